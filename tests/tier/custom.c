/* SPDX-License-Identifier: Apache-2.0 */
/* A tier of the caller's own, without a pool: opening, numbers, closing, and completions of requests that do not exist. */
#include "support/support.h"

#include <pthread.h>
#include <stdatomic.h>

struct context {
    int closed;
    uint64_t images;
};

static pkv_status refuse(void *context, const pkv_tier_batch *batch) {
    (void)context, (void)batch;
    return PKV_ERR_UNSUPPORTED;
}

static void count_close(void *context) { ++((struct context *)context)->closed; }

static void tell(void *context, pkv_tier_usage *usage) {
    usage->images = ((struct context *)context)->images;
    usage->capacity_bytes = 1 << 20;
}

static pkv_tier_ops ops_of(void) {
    pkv_tier_ops ops = {0};
    ops.struct_size = sizeof ops;
    ops.name = "custom";
    ops.submit = refuse;
    ops.usage = tell;
    ops.close = count_close;
    return ops;
}

static void a_tier_without_submit_is_refused(void **state) {
    (void)state;
    struct context context = {0, 0};
    pkv_tier_ops ops = ops_of();
    ops.submit = NULL;
    pkv_tier *tier = NULL;
    assert_status(pkv_tier_open(&ops, &context, &tier), PKV_ERR_INVALID);
    assert_message("submit");
    assert_null(tier);
    assert_status(pkv_tier_open(NULL, &context, &tier), PKV_ERR_INVALID);
    ops.submit = refuse;
    assert_status(pkv_tier_open(&ops, &context, NULL), PKV_ERR_INVALID);
    ops.struct_size = 0;
    assert_status(pkv_tier_open(&ops, &context, &tier), PKV_ERR_INVALID);
    assert_int_equal(context.closed, 0);
}

static void only_submit_is_needed(void **state) {
    (void)state;
    pkv_tier_ops ops = {0};
    ops.struct_size = sizeof ops;
    ops.submit = refuse;
    pkv_tier *tier = NULL;
    assert_ok(pkv_tier_open(&ops, NULL, &tier));
    pkv_tier_stats stats = PKV_TIER_STATS_INIT;
    assert_ok(pkv_tier_get_stats(tier, &stats));
    assert_int_equal(stats.usage.capacity_bytes, 0);
    assert_ok(pkv_tier_close(tier));
}

static void ops_of_an_older_header_are_taken(void **state) {
    (void)state;
    struct context context = {0, 0};
    pkv_tier_ops ops = ops_of();
    ops.struct_size = offsetof(pkv_tier_ops, cancel); /* ends with submit: close is not seen */
    pkv_tier *tier = NULL;
    assert_ok(pkv_tier_open(&ops, &context, &tier));
    assert_ok(pkv_tier_close(tier));
    assert_int_equal(context.closed, 0);
}

static void close_is_called_once_and_ends_the_handle(void **state) {
    (void)state;
    struct context context = {0, 0};
    const pkv_tier_ops ops = ops_of();
    pkv_tier *tier = NULL;
    assert_ok(pkv_tier_open(&ops, &context, &tier));
    assert_int_equal(context.closed, 0);
    assert_ok(pkv_tier_close(tier));
    assert_int_equal(context.closed, 1);
    assert_status(pkv_tier_close(tier), PKV_ERR_HANDLE);
    pkv_tier_stats stats = PKV_TIER_STATS_INIT;
    assert_status(pkv_tier_get_stats(tier, &stats), PKV_ERR_HANDLE);
    assert_int_equal(context.closed, 1);
}

static void the_functions_are_copied(void **state) {
    (void)state;
    struct context context = {0, 0};
    pkv_tier_ops ops = ops_of();
    pkv_tier *tier = NULL;
    assert_ok(pkv_tier_open(&ops, &context, &tier));
    memset(&ops, 0xFF, sizeof ops);
    assert_ok(pkv_tier_close(tier));
    assert_int_equal(context.closed, 1);
}

static void stats_hold_what_the_tier_says_of_itself(void **state) {
    (void)state;
    struct context context = {0, 5};
    const pkv_tier_ops ops = ops_of();
    pkv_tier *tier = NULL;
    assert_ok(pkv_tier_open(&ops, &context, &tier));
    pkv_tier_stats stats = PKV_TIER_STATS_INIT;
    assert_ok(pkv_tier_get_stats(tier, &stats));
    assert_int_equal(stats.usage.images, 5);
    assert_int_equal(stats.usage.capacity_bytes, 1 << 20);
    assert_int_equal(stats.open_requests, 0);
    assert_int_equal(stats.resting, 0);
    context.images = 6;
    assert_ok(pkv_tier_get_stats(tier, &stats));
    assert_int_equal(stats.usage.images, 6);
    assert_status(pkv_tier_get_stats(tier, NULL), PKV_ERR_INVALID);
    stats.struct_size = 0;
    assert_status(pkv_tier_get_stats(tier, &stats), PKV_ERR_INVALID);
    assert_ok(pkv_tier_close(tier));
}

static void completions_of_what_is_no_request_are_refused(void **state) {
    (void)state;
    struct context context = {0, 0};
    const pkv_tier_ops ops = ops_of();
    pkv_tier *tier = NULL;
    assert_ok(pkv_tier_open(&ops, &context, &tier));
    const uint64_t values[] = {0, 1, UINT64_MAX, (uintptr_t)&context, (uintptr_t)tier, UINT64_C(0x7100000000000001)};
    for (size_t i = 0; i < sizeof values / sizeof *values; ++i)
        assert_status(pkv_tier_complete((pkv_tier_request *)(uintptr_t)values[i], 0, PKV_OK, 0), PKV_ERR_HANDLE);
    assert_ok(pkv_tier_close(tier));
}

static _Atomic int closes;

static void count_close_by_threads(void *context) {
    (void)context;
    atomic_fetch_add(&closes, 1);
}

static void *close_tier(void *argument) { return (void *)(uintptr_t)(pkv_tier_close(argument) == PKV_OK); }

static void of_many_who_close_a_tier_one_does(void **state) {
    (void)state;
    pkv_tier_ops ops = ops_of();
    ops.close = count_close_by_threads;
    for (int round = 0; round < 50; ++round) {
        atomic_store(&closes, 0);
        pkv_tier *tier = NULL;
        assert_ok(pkv_tier_open(&ops, NULL, &tier));
        pthread_t threads[3];
        for (int i = 0; i < 3; ++i) assert_int_equal(pthread_create(&threads[i], NULL, close_tier, tier), 0);
        uintptr_t good = 0;
        for (int i = 0; i < 3; ++i) {
            void *one = NULL;
            pthread_join(threads[i], &one);
            good += (uintptr_t)one;
        }
        assert_int_equal(good, 1);
        assert_int_equal(atomic_load(&closes), 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tier_without_submit_is_refused),
        cmocka_unit_test(only_submit_is_needed),
        cmocka_unit_test(ops_of_an_older_header_are_taken),
        cmocka_unit_test(close_is_called_once_and_ends_the_handle),
        cmocka_unit_test(the_functions_are_copied),
        cmocka_unit_test(stats_hold_what_the_tier_says_of_itself),
        cmocka_unit_test(completions_of_what_is_no_request_are_refused),
        cmocka_unit_test(of_many_who_close_a_tier_one_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
