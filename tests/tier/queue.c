/* SPDX-License-Identifier: Apache-2.0 */
/* Queues by themselves: their wait handle, their waits, and their end. What operations put into them is in the tests of
 * stores and loads. */
#include "support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

static pkv_queue *make_queue(void) {
    pkv_queue *queue = NULL;
    assert_ok(pkv_queue_create(&queue));
    assert_non_null(queue);
    return queue;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void an_empty_queue_is_not_readable(void **state) {
    (void)state;
    pkv_queue *queue = make_queue();
    int32_t fd = -1;
    assert_ok(pkv_queue_handle(queue, &fd));
    struct pollfd entry = {fd, POLLIN, 0};
    assert_int_equal(poll(&entry, 1, 0), 0);
    assert_ok(pkv_queue_destroy(queue));
}

static void the_wait_handle_is_one_for_life_and_is_not_inherited(void **state) {
    (void)state;
    pkv_queue *queue = make_queue();
    int32_t first = -1;
    int32_t second = -2;
    assert_ok(pkv_queue_handle(queue, &first));
    assert_ok(pkv_queue_handle(queue, &second));
    assert_int_equal(first, second);
    assert_true((fcntl(first, F_GETFD) & FD_CLOEXEC) != 0);
    assert_ok(pkv_queue_destroy(queue));
}

static void the_wait_handle_goes_with_the_queue(void **state) {
    (void)state;
    pkv_queue *queue = make_queue();
    int32_t fd = -1;
    assert_ok(pkv_queue_handle(queue, &fd));
    assert_ok(pkv_queue_destroy(queue));
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(errno, EBADF);
}

static void a_drain_of_an_empty_queue_times_out_with_nothing(void **state) {
    (void)state;
    pkv_queue *queue = make_queue();
    pkv_completion completions[2];
    uint64_t count = 7;
    assert_status(pkv_queue_drain(queue, completions, 2, 0, &count), PKV_ERR_TIMEOUT);
    assert_int_equal(count, 0);
    const uint64_t begun = now_ns();
    count = 7;
    assert_status(pkv_queue_drain(queue, completions, 2, 20000000, &count), PKV_ERR_TIMEOUT);
    assert_int_equal(count, 0);
    assert_true(now_ns() - begun >= 20000000);
    assert_ok(pkv_queue_destroy(queue));
}

static void a_drain_without_room_or_count_is_refused(void **state) {
    (void)state;
    pkv_queue *queue = make_queue();
    pkv_completion completion;
    uint64_t count;
    assert_status(pkv_queue_drain(queue, &completion, 0, 0, &count), PKV_ERR_INVALID);
    assert_status(pkv_queue_drain(queue, NULL, 1, 0, &count), PKV_ERR_INVALID);
    assert_status(pkv_queue_drain(queue, &completion, 1, 0, NULL), PKV_ERR_INVALID);
    assert_status(pkv_queue_drain(queue, &completion, UINT64_MAX, 0, &count), PKV_ERR_INVALID);
    assert_status(pkv_queue_handle(queue, NULL), PKV_ERR_INVALID);
    assert_status(pkv_queue_create(NULL), PKV_ERR_INVALID);
    assert_ok(pkv_queue_destroy(queue));
}

static void a_queue_is_destroyed_once(void **state) {
    (void)state;
    pkv_queue *queue = make_queue();
    assert_ok(pkv_queue_destroy(queue));
    assert_status(pkv_queue_destroy(queue), PKV_ERR_HANDLE);
    int32_t fd;
    assert_status(pkv_queue_handle(queue, &fd), PKV_ERR_HANDLE);
}

static void *drain_for_ever(void *argument) {
    pkv_completion completion;
    uint64_t count = 7;
    const pkv_status status = pkv_queue_drain(argument, &completion, 1, UINT64_MAX, &count);
    return (void *)(uintptr_t)(status == PKV_ERR_HANDLE && count == 0);
}

static void destruction_wakes_those_who_wait(void **state) {
    (void)state;
    pkv_queue *queue = make_queue();
    pthread_t threads[3];
    for (int i = 0; i < 3; ++i) assert_int_equal(pthread_create(&threads[i], NULL, drain_for_ever, queue), 0);
    usleep(20000); /* most of them wait by now; those who come later find no queue: the same status */
    assert_ok(pkv_queue_destroy(queue));
    for (int i = 0; i < 3; ++i) {
        void *as_expected = NULL;
        pthread_join(threads[i], &as_expected);
        assert_non_null(as_expected);
    }
}

static void an_operation_needs_a_handle(void **state) {
    (void)state;
    pkv_queue *queue = make_queue();
    pkv_op *const other = (pkv_op *)queue; /* a handle, of another kind */
    pkv_op_info info = PKV_OP_INFO_INIT;
    assert_status(pkv_op_poll(other, &info, NULL, 0), PKV_ERR_HANDLE);
    assert_status(pkv_op_wait(other, 0), PKV_ERR_HANDLE);
    assert_status(pkv_op_cancel(other), PKV_ERR_HANDLE);
    assert_status(pkv_op_close(other), PKV_ERR_HANDLE);
    assert_ok(pkv_queue_destroy(queue));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_queue_is_not_readable),
        cmocka_unit_test(the_wait_handle_is_one_for_life_and_is_not_inherited),
        cmocka_unit_test(the_wait_handle_goes_with_the_queue),
        cmocka_unit_test(a_drain_of_an_empty_queue_times_out_with_nothing),
        cmocka_unit_test(a_drain_without_room_or_count_is_refused),
        cmocka_unit_test(a_queue_is_destroyed_once),
        cmocka_unit_test(destruction_wakes_those_who_wait),
        cmocka_unit_test(an_operation_needs_a_handle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
