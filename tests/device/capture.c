/* SPDX-License-Identifier: Apache-2.0 */
/* Calls in a stream that is being captured: writes and gathers become part of the graph, and everything else is refused, with
 * nothing changed. */
#include "device/device.h"

static void *stream;

static int begin_capture_test(void **state) {
    begin_test(state);
    stream = fake()->make_stream(0);
    return 0;
}
#define capture_test(function) cmocka_unit_test_setup_teardown(function, begin_capture_test, end_test)

/* Slots in the device's memory are read when the graph runs: its counts are upper bounds. */
static void a_captured_write_goes_where_the_slots_say_when_it_runs(void **state) {
    (void)state;
    pkv_pool *pool = device_pool(4);
    pkv_page pages[4];
    assert_ok(pkv_pool_alloc(pool, 0, 4, pages));
    device_rows rows = make_rows(6), back = make_rows(16);
    pkv_slot *slots = fake()->alloc(0, 6 * sizeof *slots), given[6];
    for (int i = 0; i < 6; ++i) given[i] = -1;
    fake()->write(slots, given, sizeof given);
    const pkv_sync sync = on(stream);
    fake()->begin_capture(stream);
    assert_ok(pkv_pool_write(pool, 0, 0, 6, slots, &rows.tensor[0], &rows.tensor[1], &sync));
    void *graph = fake()->end_capture(stream);
    fake()->finish(stream);
    if (is_fake) assert_int_equal(fake()->counts().writes, 1);
    for (uint32_t round = 1; round <= 3; ++round) {
        /* A number of tokens that differs, padding behind them, and one slot past the pool's end. */
        for (int i = 0; i < 6; ++i) given[i] = i < (int)round ? (pkv_slot)(round * 4 + (uint32_t)i) : -1;
        given[5] = 16;
        fake()->write(slots, given, sizeof given);
        fill_rows(&rows, NULL, round, 0, 0, 6);
        fake()->launch(graph, stream);
        fake()->finish(stream);
        assert_ok(pkv_pool_gather(pool, 0, 0, 1, &pages[round], 0, 4, &back.tensor[0], &back.tensor[1], &sync));
        fake()->finish(stream);
        assert_rows(&back, round, 0, 0, round);
        assert_true(are_bytes(back.at[0] + round * row_elements, 0, row_bytes));
    }
    fake()->end_graph(graph);
    release_pages(pool, pages, 4);
    end_device_pool(pool);
}

static void a_captured_gather_reads_the_block_table_when_it_runs(void **state) {
    (void)state;
    pkv_pool *pool = device_pool(4);
    pkv_table *tables[2];
    for (uint32_t i = 0; i < 2; ++i) {
        tables[i] = new_table(pool, (pkv_token)(1 + 100 * i), 8);
        write_tokens(tables[i], stream, 0, 8, i);
        const pkv_sync sync = on(stream);
        assert_ok(pkv_table_commit(tables[i], 8, &sync));
    }
    pkv_page *list = fake()->alloc(0, 2 * sizeof *list), given[2];
    device_rows back = make_rows(7);
    const pkv_sync sync = on(stream);
    fake()->finish(stream);
    fake()->begin_capture(stream);
    assert_ok(pkv_pool_gather(pool, 0, 1, 2, list, 1, 7, &back.tensor[0], &back.tensor[1], &sync));
    void *graph = fake()->end_capture(stream);
    for (uint32_t i = 0; i < 2; ++i) {
        for (uint64_t block = 0; block < 2; ++block) given[block] = page_at(tables[i], block);
        fake()->write(list, given, sizeof given);
        fake()->launch(graph, stream);
        fake()->finish(stream);
        assert_rows(&back, i, 1, 1, 7);
    }
    given[1] = PKV_NO_PAGE; /* rows of zeros */
    fake()->write(list, given, sizeof given);
    fake()->launch(graph, stream);
    fake()->finish(stream);
    assert_rows(&back, 1, 1, 1, 3);
    assert_true(are_bytes(back.at[1] + 3 * row_elements, 0, 4 * row_bytes));
    fake()->end_graph(graph);
    for (int i = 0; i < 2; ++i) end_table(tables[i]);
    end_device_pool(pool);
}

/* Pinned slots are read by a call at once, and by a graph whenever it runs. */
static void pinned_slots_are_read_when_the_work_runs_if_it_is_captured(void **state) {
    (void)state;
    pkv_pool *pool = device_pool(2);
    pkv_page pages[2];
    assert_ok(pkv_pool_alloc(pool, 0, 2, pages));
    device_rows rows = make_rows(1), back = make_rows(1);
    pkv_slot *slots = fake()->alloc_pinned(sizeof *slots);
    const pkv_sync sync = on(stream);
    *slots = 99; /* checked when it is read at once */
    assert_status(pkv_pool_write(pool, 0, 0, 1, slots, &rows.tensor[0], &rows.tensor[1], &sync), PKV_ERR_INVALID);
    *slots = -1;
    fake()->begin_capture(stream);
    assert_ok(pkv_pool_write(pool, 0, 0, 1, slots, &rows.tensor[0], &rows.tensor[1], &sync));
    void *graph = fake()->end_capture(stream);
    *slots = 5;
    fill_rows(&rows, NULL, 3, 0, 0, 1);
    fake()->launch(graph, stream);
    assert_ok(pkv_pool_gather(pool, 0, 0, 1, &pages[1], 1, 1, &back.tensor[0], &back.tensor[1], &sync));
    fake()->finish(stream);
    assert_rows(&back, 3, 0, 0, 1);
    fake()->end_graph(graph);
    release_pages(pool, pages, 2);
    end_device_pool(pool);
}

/* case_J17: a graph goes on writing where its arrays say, and those are the engine's own and stay. A sequence that has gone has
 * slots of -1 there. */
static void case_J17_the_arrays_of_a_batch_live_as_long_as_the_graph(void **state) {
    (void)state;
    pkv_pool *pool = device_pool(8);
    const pkv_sync sync = on(stream);
    int64_t *slot_mapping = fake()->alloc_pinned(4 * sizeof *slot_mapping);
    pkv_batch_arrays arrays = PKV_BATCH_ARRAYS_INIT;
    arrays.slot_mapping = slot_mapping;
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 4;
    options.max_tokens = 4;
    options.num_arrays = 1;
    options.arrays = &arrays;
    pkv_batch *batch;
    assert_ok(pkv_batch_create(pool, &options, &batch));
    device_rows rows = make_rows(4);
    fake()->begin_capture(stream);
    for (uint32_t layer = 0; layer < 2; ++layer)
        assert_ok(pkv_pool_write(pool, 0, layer, 4, slot_mapping, &rows.tensor[0], &rows.tensor[1], &sync));
    void *graph = fake()->end_capture(stream);
    pkv_table *tables[2] = {new_table(pool, 1, 1), new_table(pool, 50, 1)};
    const uint32_t num_new[2] = {1, 1};
    for (uint64_t token = 0; token < 6; ++token) {
        assert_ok(pkv_batch_reserve(batch, 2, tables, num_new, NULL));
        assert_ok(pkv_pool_order(pool, &sync));
        fill_rows(&rows, stream, 7, 0, token, 4);
        fake()->launch(graph, stream);
        assert_ok(pkv_batch_commit(batch, NULL, NULL, &sync));
        fake()->finish(stream); /* the arrays are the host's to change */
    }
    device_rows back = make_rows(6);
    assert_ok(pkv_table_gather(tables[0], 0, 1, 0, 6, &back.tensor[0], &back.tensor[1], &sync));
    fake()->finish(stream);
    for (uint64_t token = 0; token < 6; ++token)
        assert_true(are_rows(&back, 7, 0, token, token, 1)); /* row 0 of each step: element 0 .. of that token */
    end_table(tables[0]);
    const uint32_t one = 1;
    assert_ok(pkv_batch_reserve(batch, 1, &tables[1], &one, NULL));
    assert_int_equal(slot_mapping[1], PKV_NO_SLOT);
    assert_ok(pkv_batch_destroy(batch));
    end_table(tables[1]);
    fake()->end_graph(graph);
    end_device_pool(pool);
}

static void writes_by_tables_and_batches_can_be_captured(void **state) {
    (void)state;
    pkv_pool *pool = device_pool(8);
    const pkv_sync sync = on(stream);
    pkv_table *table = new_table(pool, 1, 6);
    device_rows rows = make_rows(6), back = make_rows(6);
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 1;
    options.max_tokens = 6;
    pkv_batch *batch;
    assert_ok(pkv_batch_create(pool, &options, &batch));
    const uint32_t six = 6;
    assert_ok(pkv_batch_reserve(batch, 1, &table, &six, NULL));
    fake()->begin_capture(stream);
    assert_ok(pkv_table_write(table, 0, 0, 0, 6, &rows.tensor[0], &rows.tensor[1], &sync));
    assert_ok(pkv_batch_write(batch, 0, 1, &rows.tensor[0], &rows.tensor[1], &sync));
    assert_ok(pkv_table_gather(table, 0, 0, 0, 6, &back.tensor[0], &back.tensor[1], &sync));
    assert_ok(pkv_batch_gather(batch, 0, 1, NULL, 0, &back.tensor[0], &back.tensor[1], &sync));
    void *graph = fake()->end_capture(stream);
    fill_rows(&rows, stream, 2, 0, 0, 6);
    fake()->launch(graph, stream);
    fake()->finish(stream);
    assert_rows(&back, 2, 0, 0, 6);
    assert_ok(pkv_batch_commit(batch, NULL, NULL, &sync));
    assert_ok(pkv_batch_destroy(batch));
    fake()->end_graph(graph);
    end_table(table);
    end_device_pool(pool);
}

/* ---- what cannot be captured ---- */

typedef struct {
    pkv_pool *pool;
    pkv_table *table, *member, *fork;
    pkv_batch *batch;
    pkv_page pages[2];
    device_rows rows;
} fixture;

static fixture make_fixture(void) {
    fixture f = {.rows = make_rows(8)};
    const pkv_sync sync = on(stream);
    f.pool = device_pool(16);
    f.table = new_table(f.pool, 1, 8);
    write_tokens(f.table, stream, 0, 7, 1);
    assert_ok(pkv_table_commit(f.table, 6, &sync));
    f.member = new_table(f.pool, 100, 4);
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 1;
    options.max_tokens = 1;
    assert_ok(pkv_batch_create(f.pool, &options, &f.batch));
    const uint32_t one = 1;
    assert_ok(pkv_batch_reserve(f.batch, 1, &f.member, &one, NULL));
    assert_ok(pkv_pool_alloc(f.pool, 0, 2, f.pages));
    return f;
}

enum { num_calls = 11 };

static pkv_status call(int index, fixture *f, const pkv_sync *sync) {
    const uint64_t drafts[1] = {6};
    switch (index) {
    case 0: return pkv_pool_release(f->pool, 0, 2, f->pages, NULL, sync);
    case 1: return pkv_pool_copy_pages(f->pool, 0, 1, &f->pages[0], &f->pages[1], sync);
    case 2: return pkv_table_destroy(f->table, sync);
    case 3: return pkv_table_clear(f->table, sync);
    case 4: return pkv_table_commit(f->table, 7, sync);
    case 5: return pkv_table_fork(f->table, sync, &f->fork);
    case 6: return pkv_table_truncate(f->table, 3, sync);
    case 7: return pkv_table_accept(f->table, 1, drafts, sync);
    case 8: return pkv_table_window(f->table, sync);
    case 9: return pkv_batch_commit(f->batch, NULL, NULL, sync);
    default: return pkv_pool_order(f->pool, sync);
    }
}

static void other_calls_are_refused_and_change_nothing(void **state) {
    (void)state;
    for (int index = 0; index < num_calls; ++index) {
        fixture f = make_fixture();
        const pkv_sync sync = on(stream);
        fake()->finish(stream);
        const pkv_pool_stats before = stats_of(f.pool);
        const pkv_table_info info = info_of(f.table), member = info_of(f.member);
        const uint64_t launches = counted(launches);
        fake()->begin_capture(stream);
        if (call(index, &f, &sync) != PKV_ERR_CAPTURE) fail_msg("call %d was not refused", index);
        assert_message("captured");
        void *graph = fake()->end_capture(stream);
        fake()->end_graph(graph);
        assert_int_equal(counted(launches), launches);
        assert_int_equal(counted(capture_faults), 0);
        const pkv_pool_stats after = stats_of(f.pool);
        assert_same_stats(&before, &after);
        const pkv_table_info info_after = info_of(f.table), member_after = info_of(f.member);
        assert_memory_equal(&info, &info_after, sizeof info);
        assert_memory_equal(&member, &member_after, sizeof member);
        assert_ok(call(index, &f, &sync)); /* outside of a capture it succeeds */
        assert_ok(pkv_batch_destroy(f.batch));
        if (index != 2) end_table(f.table);
        if (f.fork != NULL) end_table(f.fork);
        end_table(f.member);
        if (index != 0) release_pages(f.pool, f.pages, 2);
        end_device_pool(f.pool);
    }
}

/* A copy on write would be made again each time that the graph runs. */
static void a_write_that_would_copy_first_is_refused(void **state) {
    (void)state;
    pkv_pool *pool = device_pool(8);
    pkv_table *table = new_table(pool, 1, 8);
    const pkv_sync sync = on(stream);
    write_tokens(table, stream, 0, 6, 1);
    assert_ok(pkv_table_commit(table, 6, &sync));
    pkv_table *twin;
    assert_ok(pkv_table_fork(table, &sync, &twin));
    assert_ok(pkv_table_reserve(table, 8)); /* its own copy is made here */
    device_rows rows = make_rows(2);
    pkv_table *third;
    assert_ok(pkv_table_fork(table, &sync, &third));
    fake()->begin_capture(stream);
    assert_status(pkv_table_write(table, 0, 0, 6, 2, &rows.tensor[0], &rows.tensor[1], &sync), PKV_ERR_CAPTURE);
    assert_message("copy on write");
    fake()->end_graph(fake()->end_capture(stream));
    assert_int_equal(info_of(table).committed, 6);
    write_tokens(table, stream, 6, 2, 2);
    assert_tokens(table, stream, 6, 2, 2);
    assert_tokens(third, stream, 0, 6, 1);
    end_table(table);
    end_table(twin);
    end_table(third);
    end_device_pool(pool);
}

/* What the launch needs is sent along with it, or refused: nothing of the call's is read when the graph runs. */
static void long_lists_of_the_host_cannot_be_captured(void **state) {
    (void)state;
    pkv_pool *pool = device_pool(200);
    pkv_page *pages = calloc(200, sizeof *pages);
    assert_ok(pkv_pool_alloc(pool, 0, 200, pages));
    pkv_slot *slots = calloc(800, sizeof *slots);
    for (int i = 0; i < 800; ++i) slots[i] = i;
    device_rows rows = make_rows(800);
    const pkv_sync sync = on(stream);
    fake()->begin_capture(stream);
    assert_status(pkv_pool_write(pool, 0, 0, 800, slots, &rows.tensor[0], &rows.tensor[1], &sync), PKV_ERR_CAPTURE);
    assert_ok(pkv_pool_write(pool, 0, 0, 20, slots, &rows.tensor[0], &rows.tensor[1], &sync));
    memset(slots, 0xFF, 20 * sizeof *slots);
    void *graph = fake()->end_capture(stream);
    fill_rows(&rows, NULL, 5, 0, 0, 20);
    fake()->launch(graph, stream);
    device_rows back = make_rows(20);
    assert_ok(pkv_pool_gather(pool, 0, 0, 5, pages, 0, 20, &back.tensor[0], &back.tensor[1], &sync));
    fake()->finish(stream);
    assert_rows(&back, 5, 0, 0, 20);
    fake()->end_graph(graph);
    release_pages(pool, pages, 200);
    end_pool(pool); /* the device has counted the list that it refused */
    free(pages);
    free(slots);
}

/* The stream of in-place kernels may be captured while calls without a sync go on. */
static void a_pools_stream_that_is_captured_is_not_touched(void **state) {
    (void)state;
    const pkv_group_options group = small_group(4);
    const pkv_sync declared = on(stream), other = on(fake()->make_stream(0));
    pkv_pool *pool = device_pool_of(&group, &declared, PKV_DEBUG_HOT_PAGES);
    pkv_table *table = new_table(pool, 1, 6);
    write_tokens(table, other.handle, 0, 6, 1);
    assert_ok(pkv_table_commit(table, 6, &other));
    fake()->begin_capture(stream);
    pkv_table *twin;
    assert_ok(pkv_table_fork(table, &other, &twin));
    assert_ok(pkv_table_reserve(twin, 8));
    pkv_slot slots[2];
    assert_ok(pkv_table_slots(twin, 0, 6, 2, slots)); /* waits instead */
    pkv_page pages[1];
    assert_ok(pkv_pool_alloc(pool, 0, 1, pages));
    release_pages(pool, pages, 1);
    fake()->end_graph(fake()->end_capture(stream));
    assert_tokens(twin, other.handle, 0, 6, 1);
    end_table(table);
    end_table(twin);
    end_device_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        capture_test(a_captured_write_goes_where_the_slots_say_when_it_runs),
        capture_test(a_captured_gather_reads_the_block_table_when_it_runs),
        capture_test(pinned_slots_are_read_when_the_work_runs_if_it_is_captured),
        capture_test(case_J17_the_arrays_of_a_batch_live_as_long_as_the_graph),
        capture_test(writes_by_tables_and_batches_can_be_captured),
        capture_test(other_calls_are_refused_and_change_nothing),
        capture_test(a_write_that_would_copy_first_is_refused),
        capture_test(long_lists_of_the_host_cannot_be_captured),
        capture_test(a_pools_stream_that_is_captured_is_not_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
