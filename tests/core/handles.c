/* SPDX-License-Identifier: Apache-2.0 */
/* Handles that name nothing, objects destroyed in any order, and destruction while others are inside a call. */
#include "core/every_call.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

static pkv_batch *make_batch(pkv_pool *pool) {
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 1;
    pkv_batch *batch = NULL;
    assert_ok(pkv_batch_create(pool, &options, &batch));
    return batch;
}

/* Every call with this value as its handle. */
static void check_no_handle(uint64_t value) {
    for (int call = 0; call < pool_calls; ++call) assert_status(call_on_pool(call, (pkv_pool *)value), PKV_ERR_HANDLE);
    for (int call = 0; call < table_calls; ++call)
        assert_status(call_on_table(call, (pkv_table *)value), PKV_ERR_HANDLE);
    for (int call = 0; call < batch_calls; ++call)
        assert_status(call_on_batch(call, (pkv_batch *)value), PKV_ERR_HANDLE);
    for (int call = 0; call < tier_calls; ++call) assert_status(call_on_tier(call, (pkv_tier *)value), PKV_ERR_HANDLE);
    for (int call = 0; call < queue_calls; ++call)
        assert_status(call_on_queue(call, (pkv_queue *)value), PKV_ERR_HANDLE);
    for (int call = 0; call < op_calls; ++call) assert_status(call_on_op(call, (pkv_op *)value), PKV_ERR_HANDLE);
    for (int call = 0; call < session_calls; ++call)
        assert_status(call_on_session(call, (pkv_prefetch *)value), PKV_ERR_HANDLE);
    for (int call = 0; call < node_calls; ++call) assert_status(call_on_node(call, (pkv_node *)value), PKV_ERR_HANDLE);
    for (int call = 0; call < offer_calls; ++call)
        assert_status(call_on_offer(call, (pkv_offer *)value), PKV_ERR_HANDLE);
    pkv_table *table = NULL;
    assert_status(pkv_pull_table((pkv_op *)value, &table), PKV_ERR_HANDLE);
    pkv_offer *offer = NULL;
    assert_status(pkv_table_offer((pkv_node *)value, NULL, NULL, NULL, &offer, NULL), PKV_ERR_HANDLE);
    pkv_op *op = NULL;
    assert_status(pkv_table_pull((pkv_node *)value, NULL, 0, NULL, NULL, NULL, &op), PKV_ERR_HANDLE);
    pkv_prefetch *session = NULL;
    assert_status(pkv_prefetch_open((pkv_pool *)value, NULL, &session), PKV_ERR_HANDLE);
    assert_status(pkv_tier_close((pkv_tier *)value), PKV_ERR_HANDLE);
    assert_status(pkv_pool_destroy((pkv_pool *)value), PKV_ERR_HANDLE);
    assert_status(pkv_table_destroy((pkv_table *)value, NULL), PKV_ERR_HANDLE);
    assert_status(pkv_batch_destroy((pkv_batch *)value), PKV_ERR_HANDLE);
}

static void numbers_are_no_handles_before_anything_was_made(void **state) {
    (void)state;
    check_no_handle(0);
    check_no_handle(UINT64_C(0x1100000000000001));
    check_no_handle(UINT64_C(0x2100000000000001));
}

static void calls_on_live_handles_succeed(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    for (int call = 0; call < pool_calls; ++call) assert_ok(call_on_pool(call, pool));
    const pkv_prompt prompt = prompt_of(&every_token, 1);
    pkv_table *table = admit(pool, &prompt, NULL);
    for (int call = 0; call < table_calls; ++call) assert_ok(call_on_table(call, table));
    pkv_batch *batch = make_batch(pool);
    for (int call = 0; call < batch_calls; ++call) assert_ok(call_on_batch(call, batch));
    assert_ok(pkv_batch_destroy(batch));
    assert_ok(pkv_table_destroy(table, NULL));
    end_pool(pool);
}

static void null_and_garbage_are_no_handles(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    pkv_table *table;
    assert_ok(pkv_table_create(pool, &table));
    int on_stack = 0;
    const uint64_t values[] = {
        0, 1, UINT64_MAX, UINT64_C(1) << 63, INT64_MAX, (uintptr_t)&on_stack, (uintptr_t)&make_batch};
    for (size_t i = 0; i < sizeof values / sizeof *values; ++i) check_no_handle(values[i]);
    assert_ok(pkv_table_destroy(table, NULL));
    end_pool(pool);
}

static void a_handle_with_any_bit_changed_is_no_handle(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    int wrong = 0;
    for (int bit = 0; bit < 64; ++bit) {
        const uint64_t value = (uint64_t)(uintptr_t)pool ^ UINT64_C(1) << bit;
        const pkv_status status = pkv_pool_get_stats((pkv_pool *)value, 0, &stats);
        if (status == PKV_ERR_HANDLE) continue;
        ++wrong;
        print_error("bit %d changed: %s\n", bit, pkv_status_string(status));
    }
    assert_int_equal(wrong, 0);
    end_pool(pool);
}

static void handles_of_another_kind_are_no_handles(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    const pkv_prompt prompt = prompt_of(&every_token, 1);
    pkv_table *table = admit(pool, &prompt, NULL);
    pkv_batch *batch = make_batch(pool);
    for (int call = 0; call < pool_calls; ++call) {
        assert_status(call_on_pool(call, (pkv_pool *)table), PKV_ERR_HANDLE);
        assert_status(call_on_pool(call, (pkv_pool *)batch), PKV_ERR_HANDLE);
    }
    for (int call = 0; call < table_calls; ++call) {
        assert_status(call_on_table(call, (pkv_table *)pool), PKV_ERR_HANDLE);
        assert_status(call_on_table(call, (pkv_table *)batch), PKV_ERR_HANDLE);
    }
    for (int call = 0; call < batch_calls; ++call) {
        assert_status(call_on_batch(call, (pkv_batch *)pool), PKV_ERR_HANDLE);
        assert_status(call_on_batch(call, (pkv_batch *)table), PKV_ERR_HANDLE);
    }
    assert_status(pkv_pool_destroy((pkv_pool *)table), PKV_ERR_HANDLE);
    assert_status(pkv_table_destroy((pkv_table *)batch, NULL), PKV_ERR_HANDLE);
    assert_status(pkv_batch_destroy((pkv_batch *)pool), PKV_ERR_HANDLE);
    assert_ok(pkv_batch_destroy(batch));
    assert_ok(pkv_table_destroy(table, NULL));
    end_pool(pool);
}

static void closed_handles_stay_closed(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    pkv_table *table;
    assert_ok(pkv_table_create(pool, &table));
    pkv_batch *batch = make_batch(pool);
    assert_ok(pkv_batch_destroy(batch));
    check_no_handle((uintptr_t)batch);
    assert_ok(pkv_table_destroy(table, NULL));
    check_no_handle((uintptr_t)table);
    end_pool(pool);
    check_no_handle((uintptr_t)pool);
}

static void a_stale_handle_does_not_reach_the_object_in_its_place(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    const pkv_prompt prompt = prompt_of(&every_token, 1);
    pkv_table *stale[100];
    for (int i = 0; i < 100; ++i) { /* one after the other, so that places are used again */
        stale[i] = admit(pool, &prompt, NULL);
        for (int j = 0; j < i; ++j) assert_ptr_not_equal(stale[i], stale[j]);
        assert_ok(pkv_table_destroy(stale[i], NULL));
    }
    pkv_table *live = admit(pool, &prompt, NULL);
    for (int i = 0; i < 100; ++i) {
        for (int call = 0; call < table_calls; ++call) assert_status(call_on_table(call, stale[i]), PKV_ERR_HANDLE);
        assert_status(pkv_table_destroy(stale[i], NULL), PKV_ERR_HANDLE);
    }
    assert_int_equal(info_of(live).named, 1);
    assert_ok(pkv_table_destroy(live, NULL));
    pkv_pool *next = make_pool(4, 4);
    end_pool(pool);
    for (int call = 0; call < pool_calls; ++call) assert_status(call_on_pool(call, pool), PKV_ERR_HANDLE);
    end_pool(next);
}

static void many_handles_can_be_open(void **state) {
    (void)state;
    enum { many = 5000 };
    pkv_pool *pool = make_pool(4, 4);
    pkv_table **tables = calloc(many, sizeof *tables);
    for (int i = 0; i < many; ++i) assert_ok(pkv_table_create(pool, &tables[i]));
    assert_int_equal(stats_of(pool).tables, many);
    for (int i = 0; i < many; ++i) assert_int_equal(info_of(tables[i]).named, 0);
    for (int i = 0; i < many; ++i) assert_ok(pkv_table_destroy(tables[i], NULL));
    free(tables);
    end_pool(pool);
}

/* Whether an address is mapped at all. */
static bool is_mapped(void *address) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    unsigned char resident;
    return mincore((void *)((uintptr_t)address / page * page), 1, &resident) == 0 || errno != ENOMEM;
}

static void children_of_a_destroyed_pool_are_closed_and_keep_its_memory(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8192, 64);
    const pkv_prompt prompt = prompt_of(&every_token, 1);
    pkv_table *tables[2] = {admit(pool, &prompt, NULL), admit(pool, &prompt, NULL)};
    pkv_batch *batch = make_batch(pool);
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(pool, 0, 0, &layout));
    assert_ok(pkv_pool_destroy(pool));
    for (int call = 0; call < pool_calls; ++call) assert_status(call_on_pool(call, pool), PKV_ERR_HANDLE);
    for (int call = 0; call < table_calls; ++call) assert_status(call_on_table(call, tables[0]), PKV_ERR_CLOSED);
    for (int call = 0; call < batch_calls; ++call) assert_status(call_on_batch(call, batch), PKV_ERR_CLOSED);
    ((volatile unsigned char *)layout.k_base)[0] = 1;
    assert_ok(pkv_batch_destroy(batch));
    assert_ok(pkv_table_destroy(tables[0], NULL));
    assert_true(is_mapped(layout.k_base));
    assert_ok(pkv_table_destroy(tables[1], NULL));
    assert_false(is_mapped(layout.k_base));
    assert_status(pkv_table_destroy(tables[1], NULL), PKV_ERR_HANDLE);
}

static void tables_in_a_step_outlive_their_own_destruction(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    const pkv_prompt prompt = prompt_of(&every_token, 1);
    pkv_table *table = admit(pool, &prompt, NULL);
    pkv_batch *batch = make_batch(pool);
    const uint32_t num_new = 1;
    assert_ok(pkv_batch_reserve(batch, 1, &table, &num_new, NULL));
    assert_ok(pkv_table_destroy(table, NULL)); /* takes effect when the step ends */
    assert_status(pkv_table_destroy(table, NULL), PKV_ERR_HANDLE);
    assert_ok(pkv_batch_commit(batch, NULL, NULL, NULL));
    assert_int_equal(stats_of(pool).tables, 0);
    assert_int_equal(stats_of(pool).held_pages, 0);
    assert_ok(pkv_batch_destroy(batch));
    end_pool(pool);
}

/* ---- threads ---- */

struct looper {
    pkv_pool *pool;
    uint64_t calls;
    uint64_t unexpected;
};

static void *loop_until_closed(void *argument) {
    struct looper *self = argument;
    pkv_token tokens[8];
    count_up(tokens, 8, 1);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    for (;; ++self->calls) {
        pkv_page pages[2];
        pkv_match match = PKV_MATCH_INIT;
        pkv_pool_stats stats = PKV_POOL_STATS_INIT;
        pkv_status status = pkv_pool_alloc(self->pool, 0, 2, pages);
        if (status == PKV_OK) status = pkv_pool_publish(self->pool, 0, &prompt, 0, 2, pages, NULL);
        if (status == PKV_OK) status = pkv_pool_release(self->pool, 0, 2, pages, NULL, NULL);
        if (status == PKV_OK) status = pkv_pool_probe(self->pool, &prompt, 0, &match);
        if (status == PKV_OK) status = pkv_pool_get_stats(self->pool, 0, &stats);
        if (status == PKV_ERR_HANDLE) return NULL;
        if (status != PKV_OK) ++self->unexpected;
    }
}

static void a_pool_can_be_destroyed_while_threads_call_into_it(void **state) {
    (void)state;
    for (int round = 0; round < 20; ++round) {
        pkv_pool *pool = make_pool(64, 4);
        struct looper loopers[3];
        pthread_t threads[3];
        for (int i = 0; i < 3; ++i) {
            loopers[i] = (struct looper){pool, 0, 0};
            assert_int_equal(pthread_create(&threads[i], NULL, loop_until_closed, &loopers[i]), 0);
        }
        usleep(2000);
        assert_ok(pkv_pool_destroy(pool));
        for (int i = 0; i < 3; ++i) {
            pthread_join(threads[i], NULL);
            assert_int_equal(loopers[i].unexpected, 0);
        }
    }
}

struct destroyer {
    pthread_barrier_t *start;
    pkv_pool *pool;
    pkv_status status;
};

static void *destroy_at_once(void *argument) {
    struct destroyer *self = argument;
    pthread_barrier_wait(self->start);
    self->status = pkv_pool_destroy(self->pool);
    return NULL;
}

static void of_two_destructions_at_once_one_succeeds(void **state) {
    (void)state;
    for (int round = 0; round < 50; ++round) {
        pthread_barrier_t start;
        assert_int_equal(pthread_barrier_init(&start, NULL, 2), 0);
        pkv_pool *pool = make_pool(4, 4);
        struct destroyer destroyers[2] = {{&start, pool, 1}, {&start, pool, 1}};
        pthread_t threads[2];
        for (int i = 0; i < 2; ++i)
            assert_int_equal(pthread_create(&threads[i], NULL, destroy_at_once, &destroyers[i]), 0);
        for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
        assert_int_equal(destroyers[0].status + destroyers[1].status, PKV_OK + PKV_ERR_HANDLE);
        pthread_barrier_destroy(&start);
    }
}

static void *open_and_close(void *argument) {
    pkv_pool *pool = argument;
    uintptr_t failures = 0;
    for (int i = 0; i < 2000; ++i) {
        pkv_table *table = NULL;
        failures += pkv_table_create(pool, &table) != PKV_OK;
        pkv_table_info info = PKV_TABLE_INFO_INIT;
        failures += pkv_table_get_info(table, &info) != PKV_OK;
        failures += pkv_table_destroy(table, NULL) != PKV_OK;
        failures += pkv_table_destroy(table, NULL) != PKV_ERR_HANDLE;
    }
    return (void *)failures;
}

static void handles_opened_and_closed_by_many_threads_never_mix(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    pthread_t threads[4];
    for (int i = 0; i < 4; ++i) assert_int_equal(pthread_create(&threads[i], NULL, open_and_close, pool), 0);
    for (int i = 0; i < 4; ++i) {
        void *failures;
        pthread_join(threads[i], &failures);
        assert_null(failures);
    }
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_no_handles_before_anything_was_made),
        cmocka_unit_test(calls_on_live_handles_succeed),
        cmocka_unit_test(null_and_garbage_are_no_handles),
        cmocka_unit_test(a_handle_with_any_bit_changed_is_no_handle),
        cmocka_unit_test(handles_of_another_kind_are_no_handles),
        cmocka_unit_test(closed_handles_stay_closed),
        cmocka_unit_test(a_stale_handle_does_not_reach_the_object_in_its_place),
        cmocka_unit_test(many_handles_can_be_open),
        cmocka_unit_test(children_of_a_destroyed_pool_are_closed_and_keep_its_memory),
        cmocka_unit_test(tables_in_a_step_outlive_their_own_destruction),
        cmocka_unit_test(a_pool_can_be_destroyed_while_threads_call_into_it),
        cmocka_unit_test(of_two_destructions_at_once_one_succeeds),
        cmocka_unit_test(handles_opened_and_closed_by_many_threads_never_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
