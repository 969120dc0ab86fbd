/* SPDX-License-Identifier: Apache-2.0 */
/* fork(): handles of the parent are refused in the child, the child can make its own, the parent notices nothing.
 * Field cases N16, Q22. */
#include "core/every_call.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

struct parent_handles {
    pkv_pool *pool;
    pkv_table *table;
    pkv_batch *batch;
};

/* Runs in the child, without cmocka: 0, or the number of the step that went wrong. */
static int check_child(const struct parent_handles *parent) {
    for (int call = 0; call < pool_calls; ++call)
        if (call_on_pool(call, parent->pool) != PKV_ERR_FORKED) return 10 + call;
    for (int call = 0; call < table_calls; ++call)
        if (call_on_table(call, parent->table) != PKV_ERR_FORKED) return 40 + call;
    for (int call = 0; call < batch_calls; ++call)
        if (call_on_batch(call, parent->batch) != PKV_ERR_FORKED) return 60 + call;
    if (pkv_table_destroy(parent->table, NULL) != PKV_ERR_FORKED) return 70;
    if (pkv_batch_destroy(parent->batch) != PKV_ERR_FORKED) return 71;
    if (pkv_pool_destroy(parent->pool) != PKV_ERR_FORKED) return 72;
    return 0;
}

static int use_new_pool(void) {
    const pkv_group_options group = small_group(8);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = 1;
    options.num_groups = 1;
    options.groups = &group;
    options.copy_threads = 1;
    pkv_pool *pool = NULL;
    if (pkv_pool_create(&options, &pool) != PKV_OK) return 80;
    for (int call = 0; call < pool_calls; ++call)
        if (call_on_pool(call, pool) != PKV_OK) return 81;
    const pkv_prompt prompt = prompt_of(&every_token, 1);
    pkv_page page;
    pkv_match match = PKV_MATCH_INIT;
    if (pkv_pool_alloc(pool, 0, 1, &page) != PKV_OK || pkv_pool_publish(pool, 0, &prompt, 0, 1, &page, NULL) != PKV_OK)
        return 82;
    if (pkv_pool_probe(pool, &prompt, PKV_MATCH_ALL, &match) != PKV_OK || match.tokens != 1) return 83;
    if (pkv_pool_destroy(pool) != PKV_OK) return 84;
    return pkv_pool_destroy(pool) == PKV_ERR_HANDLE ? 0 : 85;
}

static int status_of(pid_t child) {
    int status = 0;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

static struct parent_handles make_handles(void) {
    struct parent_handles handles = {make_pool(8, 4), NULL, NULL};
    const pkv_prompt prompt = prompt_of(&every_token, 1);
    handles.table = admit(handles.pool, &prompt, NULL);
    write_and_commit(handles.table, 1, 9);
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 1;
    assert_ok(pkv_batch_create(handles.pool, &options, &handles.batch));
    return handles;
}

static void end_handles(struct parent_handles *handles) {
    check_rows(handles->table, 0, 1, 9);
    assert_ok(pkv_batch_destroy(handles->batch));
    assert_ok(pkv_table_destroy(handles->table, NULL));
    end_pool(handles->pool);
}

static void case_Q22_a_pool_can_be_made_in_a_child_when_the_parent_made_none(void **state) {
    (void)state;
    const pid_t child = fork(); /* first test of the program: nothing was made yet */
    if (child == 0) _exit(use_new_pool());
    assert_int_equal(status_of(child), 0);
}

static void case_N16_handles_of_the_parent_are_refused_in_the_child(void **state) {
    (void)state;
    struct parent_handles handles = make_handles();
    const pid_t child = fork();
    if (child == 0) _exit(check_child(&handles));
    assert_int_equal(status_of(child), 0);
    end_handles(&handles);
}

static void case_N16_a_child_makes_pools_of_its_own_and_the_parent_is_unharmed(void **state) {
    (void)state;
    struct parent_handles handles = make_handles();
    const pid_t child = fork();
    if (child == 0) {
        const int made = use_new_pool();
        _exit(made != 0 ? made : check_child(&handles)); /* refused afterwards as well */
    }
    assert_int_equal(status_of(child), 0);
    end_handles(&handles);
}

static void a_child_of_a_child_refuses_both_generations(void **state) {
    (void)state;
    struct parent_handles handles = make_handles();
    const pid_t child = fork();
    if (child == 0) {
        struct parent_handles own = make_handles();
        const pid_t grandchild = fork();
        if (grandchild == 0) {
            const int first = check_child(&handles);
            const int second = check_child(&own);
            const int made = use_new_pool();
            _exit(first != 0 ? first : second != 0 ? second : made);
        }
        const int result = status_of(grandchild);
        end_handles(&own);
        _exit(result != 0 ? result : check_child(&handles));
    }
    assert_int_equal(status_of(child), 0);
    end_handles(&handles);
}

struct busy {
    pkv_pool *pool;
    atomic_int stop;
    int failures;
};

static void *keep_busy(void *argument) {
    struct busy *self = argument;
    while (!atomic_load(&self->stop)) {
        pkv_table *table = NULL;
        pkv_page page;
        self->failures += pkv_table_create(self->pool, &table) != PKV_OK;
        self->failures += pkv_table_destroy(table, NULL) != PKV_OK;
        self->failures += pkv_pool_alloc(self->pool, 0, 1, &page) != PKV_OK;
        self->failures += pkv_pool_release(self->pool, 0, 1, &page, NULL, NULL) != PKV_OK;
    }
    return NULL;
}

/* Locks that another thread holds at the moment of the fork must not matter in the child. */
static void a_fork_while_other_threads_are_inside_calls_leaves_the_child_usable(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* ThreadSanitizer's own locks may be held at the fork */
#endif
    struct busy busy = {make_pool(64, 4), 0, 0};
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) assert_int_equal(pthread_create(&threads[i], NULL, keep_busy, &busy), 0);
    int result = 0;
    for (int round = 0; round < 15 && result == 0; ++round) {
        usleep(500);
        const pid_t child = fork();
        if (child == 0) {
            alarm(20); /* a hang is a failure */
            pkv_pool_stats stats = PKV_POOL_STATS_INIT;
            const int refused = pkv_pool_get_stats(busy.pool, 0, &stats) == PKV_ERR_FORKED ? 0 : 90;
            result = refused != 0 ? refused : use_new_pool();
            if (result == 0) raise(SIGKILL); /* no look at leaks: the dead threads took theirs with them */
            _exit(result);
        }
        result = status_of(child);
        if (result == 1000 + SIGKILL) result = 0;
    }
    atomic_store(&busy.stop, 1);
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
    assert_int_equal(result, 0);
    assert_int_equal(busy.failures, 0);
    end_pool(busy.pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_Q22_a_pool_can_be_made_in_a_child_when_the_parent_made_none),
        cmocka_unit_test(case_N16_handles_of_the_parent_are_refused_in_the_child),
        cmocka_unit_test(case_N16_a_child_makes_pools_of_its_own_and_the_parent_is_unharmed),
        cmocka_unit_test(a_child_of_a_child_refuses_both_generations),
        cmocka_unit_test(a_fork_while_other_threads_are_inside_calls_leaves_the_child_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
