/* SPDX-License-Identifier: Apache-2.0 */
/* Order against work elsewhere on a host pool: every call that takes a pkv_sync waits for a host counter, changes nothing
 * when the time is over, and refuses what it cannot wait for. */
#include "support/support.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

struct fixture {
    pkv_pool *pool;
    pkv_table *table;  /* 6 tokens committed, room for 8 */
    pkv_table *member; /* of the batch's step */
    pkv_batch *batch;  /* in a step of one new token */
    pkv_page pages[2];
    uint16_t rows[16 * 8];
    pkv_tensor tensor;
    pkv_table *fork;
};

static pkv_token tokens[8];

static void begin(struct fixture *f) {
    memset(f, 0, sizeof *f);
    f->pool = make_pool(16, 4);
    count_up(tokens, 8, 1);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    f->table = admit(f->pool, &prompt, NULL);
    write_and_commit(f->table, 6, 1);
    const pkv_prompt other = prompt_of(tokens + 4, 3);
    f->member = admit(f->pool, &other, NULL);
    write_and_commit(f->member, 3, 1);
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 1;
    assert_ok(pkv_batch_create(f->pool, &options, &f->batch));
    const uint32_t num_new = 1;
    assert_ok(pkv_batch_reserve(f->batch, 1, &f->member, &num_new, NULL));
    assert_ok(pkv_pool_alloc(f->pool, 0, 2, f->pages));
    f->tensor = (pkv_tensor)PKV_TENSOR_INIT;
    f->tensor.data = f->rows;
    f->tensor.dtype = PKV_DTYPE_F16;
    f->tensor.num_tokens = 16;
    /* The step's token, so that it may be gathered. */
    assert_ok(pkv_batch_write(f->batch, 0, 0, &f->tensor, &f->tensor, NULL));
}

static void end(struct fixture *f) {
    pkv_batch_destroy(f->batch);
    pkv_table_destroy(f->member, NULL);
    pkv_table_destroy(f->table, NULL);
    if (f->fork != NULL) assert_ok(pkv_table_destroy(f->fork, NULL));
    pkv_status statuses[2];
    pkv_pool_release(f->pool, 0, 2, f->pages, statuses, NULL); /* one test has done so */
    end_pool(f->pool);
}

enum { num_calls = 14 };

static const char *const call_names[num_calls] = {
    "pkv_pool_release",   "pkv_pool_write",  "pkv_pool_gather",  "pkv_pool_copy_pages", "pkv_table_destroy",
    "pkv_table_clear",    "pkv_table_write", "pkv_table_commit", "pkv_table_gather",    "pkv_table_fork",
    "pkv_table_truncate", "pkv_batch_write", "pkv_batch_gather", "pkv_batch_commit",
};

static pkv_status call(int index, struct fixture *f, const pkv_sync *sync) {
    const pkv_slot slot = (pkv_slot)f->pages[0] * 4;
    const pkv_tensor *t = &f->tensor;
    switch (index) {
    case 0: return pkv_pool_release(f->pool, 0, 2, f->pages, NULL, sync);
    case 1: return pkv_pool_write(f->pool, 0, 0, 1, &slot, t, t, sync);
    case 2: return pkv_pool_gather(f->pool, 0, 0, 2, f->pages, 0, 8, t, NULL, sync);
    case 3: return pkv_pool_copy_pages(f->pool, 0, 1, &f->pages[0], &f->pages[1], sync);
    case 4: return pkv_table_destroy(f->table, sync);
    case 5: return pkv_table_clear(f->table, sync);
    case 6: return pkv_table_write(f->table, 0, 0, 6, 2, t, t, sync);
    case 7: return pkv_table_commit(f->table, 8, sync);
    case 8: return pkv_table_gather(f->table, 0, 0, 0, 6, t, NULL, sync);
    case 9: return pkv_table_fork(f->table, sync, &f->fork);
    case 10: return pkv_table_truncate(f->table, 3, sync);
    case 11: return pkv_batch_write(f->batch, 0, 0, t, t, sync);
    case 12: return pkv_batch_gather(f->batch, 0, 0, NULL, 0, t, NULL, sync);
    default: return pkv_batch_commit(f->batch, NULL, NULL, sync);
    }
}

static pkv_sync counter_sync(const uint64_t *counter, uint64_t value, uint64_t timeout_ns) {
    pkv_sync sync = PKV_SYNC_INIT;
    sync.kind = PKV_SYNC_HOST_COUNTER;
    sync.handle = (void *)(uintptr_t)counter;
    sync.value = value;
    sync.timeout_ns = timeout_ns;
    return sync;
}

/* Everything of the fixture that a call could change, the bytes of all pages included. */
struct snapshot {
    pkv_pool_stats stats;
    pkv_table_info infos[2];
    pkv_page_info pages[2];
    uint16_t rows[16 * 8];
    unsigned char bytes[16 * 2 * 2 * 4 * 2 * 4 * 2];
    pkv_table *fork;
};

static struct snapshot snapshot_of(struct fixture *f) {
    struct snapshot shot;
    memset(&shot, 0, sizeof shot);
    shot.stats = stats_of(f->pool);
    shot.infos[0] = info_of(f->table);
    shot.infos[1] = info_of(f->member);
    for (int i = 0; i < 2; ++i) shot.pages[i] = page_of(f->pool, f->pages[i]);
    memcpy(shot.rows, f->rows, sizeof shot.rows);
    assert_int_equal(shot.stats.page_bytes * 16, sizeof shot.bytes);
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(f->pool, 0, 0, &layout));
    memcpy(shot.bytes, layout.k_base, sizeof shot.bytes);
    shot.fork = f->fork;
    return shot;
}

/* Every call with this sync fails so, and changes nothing; without it the call succeeds. */
static void check_refused(const pkv_sync *sync, pkv_status expected) {
    for (int index = 0; index < num_calls; ++index) {
        struct fixture f;
        begin(&f);
        const struct snapshot before = snapshot_of(&f);
        const pkv_status status = call(index, &f, sync);
        if (status != expected) fail_msg("%s gave %s", call_names[index], pkv_status_string(status));
        const struct snapshot after = snapshot_of(&f);
        if (memcmp(&before, &after, sizeof before) != 0) fail_msg("%s changed something", call_names[index]);
        assert_ok(call(index, &f, NULL));
        end(&f);
    }
}

static void after_the_time_is_over_nothing_was_changed(void **state) {
    (void)state;
    const uint64_t counter = 6;
    const pkv_sync sync = counter_sync(&counter, 7, 1000000);
    check_refused(&sync, PKV_ERR_TIMEOUT);
    assert_message("6");
    assert_message("7");
}

static void kinds_of_other_devices_are_unsupported(void **state) {
    (void)state;
    uint64_t handle = 0;
    pkv_sync sync = PKV_SYNC_INIT;
    sync.handle = &handle;
    sync.kind = PKV_SYNC_CUDA_STREAM;
    check_refused(&sync, PKV_ERR_UNSUPPORTED);
    sync.kind = PKV_SYNC_CUDA_EVENT;
    check_refused(&sync, PKV_ERR_UNSUPPORTED);
}

static void counters_without_an_aligned_address_are_invalid(void **state) {
    (void)state;
    uint64_t counters[2] = {100, 100};
    pkv_sync sync = counter_sync(NULL, 1, 0);
    check_refused(&sync, PKV_ERR_INVALID);
    for (uintptr_t offset = 1; offset < 8; ++offset) {
        sync.handle = (unsigned char *)counters + offset;
        struct fixture f;
        begin(&f);
        assert_status(call(7, &f, &sync), PKV_ERR_INVALID);
        end(&f);
    }
}

static void unknown_kinds_and_struct_sizes_are_invalid(void **state) {
    (void)state;
    pkv_sync sync = PKV_SYNC_INIT;
    sync.kind = 4;
    check_refused(&sync, PKV_ERR_INVALID);
    sync.kind = -1;
    check_refused(&sync, PKV_ERR_INVALID);
    sync = (pkv_sync)PKV_SYNC_INIT;
    sync.struct_size = 0;
    check_refused(&sync, PKV_ERR_INVALID);
}

static void reserved_must_be_0(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    pkv_sync sync = PKV_SYNC_INIT;
    sync.reserved = 1;
    assert_int_not_equal(call(7, &f, &sync), PKV_OK);
    end(&f);
}

static void no_sync_and_counters_already_there_do_not_wait(void **state) {
    (void)state;
    const uint64_t counter = 7;
    const pkv_sync syncs[] = {PKV_SYNC_INIT, counter_sync(&counter, 7, 1), counter_sync(&counter, 0, 1),
                              counter_sync(&counter, 6, 0)};
    for (size_t i = 0; i < sizeof syncs / sizeof *syncs; ++i)
        for (int index = 0; index < num_calls; ++index) {
            struct fixture f;
            begin(&f);
            assert_ok(call(index, &f, &syncs[i]));
            end(&f);
        }
}

static void *raise_later(void *counter) {
    usleep(2000);
    __atomic_store_n((uint64_t *)counter, 5, __ATOMIC_RELEASE);
    usleep(2000);
    __atomic_store_n((uint64_t *)counter, UINT64_MAX, __ATOMIC_RELEASE);
    return NULL;
}

static void every_call_goes_on_when_another_thread_raises_the_counter(void **state) {
    (void)state;
    for (int index = 0; index < num_calls; ++index) {
        struct fixture f;
        begin(&f);
        uint64_t counter = 0;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, raise_later, &counter), 0);
        const pkv_sync sync = counter_sync(&counter, 6, UINT64_C(20000000000));
        const pkv_status status = call(index, &f, &sync);
        const uint64_t reached = __atomic_load_n(&counter, __ATOMIC_ACQUIRE);
        pthread_join(thread, NULL);
        if (status != PKV_OK || reached < 6)
            fail_msg("%s gave %s at %llu", call_names[index], pkv_status_string(status), (unsigned long long)reached);
        end(&f);
    }
}

static void *use_pool_meanwhile(void *argument) {
    pkv_page page;
    pkv_pool *pool = argument;
    uintptr_t failures = 0;
    for (int i = 0; i < 100; ++i) {
        failures += pkv_pool_alloc(pool, 0, 1, &page) != PKV_OK;
        failures += pkv_pool_release(pool, 0, 1, &page, NULL, NULL) != PKV_OK;
    }
    return (void *)failures;
}

struct waiter {
    struct fixture *f;
    uint64_t *counter;
    pkv_status status;
};

static void *wait_in_release(void *argument) {
    struct waiter *self = argument;
    const pkv_sync sync = counter_sync(self->counter, 1, UINT64_C(20000000000));
    self->status = call(0, self->f, &sync);
    return NULL;
}

static void a_call_that_waits_holds_up_nobody_else(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    uint64_t counter = 0;
    struct waiter waiter = {&f, &counter, 1};
    pthread_t waiting, working;
    void *failures;
    assert_int_equal(pthread_create(&waiting, NULL, wait_in_release, &waiter), 0);
    assert_int_equal(pthread_create(&working, NULL, use_pool_meanwhile, f.pool), 0);
    pthread_join(working, &failures); /* would never end if the waiter had the pool */
    assert_null(failures);
    __atomic_store_n(&counter, 1, __ATOMIC_RELEASE);
    pthread_join(waiting, NULL);
    assert_int_equal(waiter.status, PKV_OK);
    end(&f);
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void without_a_timeout_the_wait_is_one_second(void **state) {
    (void)state;
    struct fixture f;
    begin(&f);
    const uint64_t counter = 0;
    const pkv_sync sync = counter_sync(&counter, 1, 0);
    const double start = seconds_now();
    assert_status(call(7, &f, &sync), PKV_ERR_TIMEOUT);
    const double waited = seconds_now() - start;
    assert_true(waited >= 0.99 && waited < 20.0);
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_the_time_is_over_nothing_was_changed),
        cmocka_unit_test(kinds_of_other_devices_are_unsupported),
        cmocka_unit_test(counters_without_an_aligned_address_are_invalid),
        cmocka_unit_test(unknown_kinds_and_struct_sizes_are_invalid),
        cmocka_unit_test(reserved_must_be_0),
        cmocka_unit_test(no_sync_and_counters_already_there_do_not_wait),
        cmocka_unit_test(every_call_goes_on_when_another_thread_raises_the_counter),
        cmocka_unit_test(a_call_that_waits_holds_up_nobody_else),
        cmocka_unit_test(without_a_timeout_the_wait_is_one_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
