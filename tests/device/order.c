/* SPDX-License-Identifier: Apache-2.0 */
/* What comes after what. A stream that is held runs nothing: calls return all the same, and what they put into other streams
 * comes after it where it has to. Each scenario has to fail once the device ignores what the library orders. */
#include "device/device.h"

#include <time.h>

static void *streams[3]; /* a, b, c */
enum { a, b, c };

static int begin_streams(void **state) {
    begin_test(state);
    for (int i = 0; i < 3; ++i) streams[i] = fake()->make_stream(0);
    return 0;
}
#define stream_test(function) cmocka_unit_test_setup_teardown(function, begin_streams, end_test)

static pkv_sync in(int i) { return on(streams[i]); }

/* Runs a scenario, which says whether it saw the right bytes: it does, unless nobody orders streams, which only the fake device can
 * do without. */
static void needs_order(bool (*scenario)(void)) {
    assert_true(scenario());
    if (!is_fake) return;
    fake()->reset();
    for (int i = 0; i < 3; ++i) streams[i] = fake()->make_stream(0);
    with_fake(f, f.ignore_order = 1; f.pace_ns = UINT64_C(5000000000));
    assert_false(scenario());
}

/* ---- readers come after a commit ---- */

static bool gather_behind_a_commit(void) {
    pkv_pool *pool = device_pool(8);
    pkv_table *table = new_table(pool, 1, 8);
    fake()->hold(streams[a]);
    write_tokens(table, streams[a], 0, 8, 1);
    const pkv_sync commit = in(a), gather = in(b);
    assert_ok(pkv_table_commit(table, 8, &commit));
    device_rows back = make_rows(8);
    assert_ok(
        pkv_table_gather(table, 0, 1, 0, 8, &back.tensor[0], &back.tensor[1], &gather)); /* returns though a is held */
    if (!unordered()) assert_false(fake()->idle(streams[b]));
    if (unordered()) fake()->finish(streams[b]);
    fake()->let_go(streams[a]);
    fake()->finish(streams[b]);
    const bool right = are_rows(&back, 1, 1, 0, 0, 8);
    end_table(table);
    end_device_pool(pool);
    return right;
}

static void case_J01_a_gather_in_another_stream_comes_after_the_commits_work(void **state) {
    (void)state;
    needs_order(gather_behind_a_commit);
}

static bool gather_of_a_match(void) {
    pkv_pool *pool = device_pool(8);
    pkv_table *table = new_table(pool, 1, 8);
    fake()->hold(streams[a]);
    write_tokens(table, streams[a], 0, 8, 1);
    const pkv_sync commit = in(a), gather = in(b);
    assert_ok(pkv_table_commit(table, 8, &commit));
    pkv_table *other = matching_table(pool, 1, 9, 8);
    device_rows back = make_rows(8);
    assert_ok(pkv_table_gather(other, 0, 0, 0, 8, &back.tensor[0], &back.tensor[1], &gather));
    if (unordered()) fake()->finish(streams[b]);
    fake()->let_go(streams[a]);
    fake()->finish(streams[b]);
    const bool right = are_rows(&back, 1, 0, 0, 0, 8);
    end_table(table);
    end_table(other);
    end_device_pool(pool);
    return right;
}

static void a_table_that_matched_reads_after_the_commits_work(void **state) {
    (void)state;
    needs_order(gather_of_a_match);
}

static bool low_level_gather(void) {
    pkv_pool *pool = device_pool(8);
    pkv_page page;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &page));
    device_rows rows = make_rows(4), back = make_rows(4);
    fake()->hold(streams[a]);
    fill_rows(&rows, streams[a], 1, 0, 0, 4);
    const pkv_slot slots[4] = {0, 1, 2, 3};
    const pkv_sync write = in(a), gather = in(b);
    assert_ok(pkv_pool_write(pool, 0, 0, 4, slots, &rows.tensor[0], &rows.tensor[1], &write));
    assert_ok(pkv_pool_gather(pool, 0, 0, 1, &page, 0, 4, &back.tensor[0], &back.tensor[1], &gather));
    if (unordered()) fake()->finish(streams[b]);
    fake()->let_go(streams[a]);
    fake()->finish(streams[b]);
    const bool right = are_rows(&back, 1, 0, 0, 0, 4);
    release_pages(pool, &page, 1);
    end_device_pool(pool);
    return right;
}

static void pages_written_by_slots_are_read_after_that(void **state) {
    (void)state;
    needs_order(low_level_gather);
}

static bool batch_reads_what_tables_committed(void) {
    pkv_pool *pool = device_pool(16);
    pkv_table *tables[2] = {new_table(pool, 1, 5), new_table(pool, 100, 3)};
    fake()->hold(streams[a]);
    write_tokens(tables[0], streams[a], 0, 5, 1);
    write_tokens(tables[1], streams[b], 0, 3, 2);
    const pkv_sync in_a = in(a), in_b = in(b), in_c = in(c);
    assert_ok(pkv_table_commit(tables[0], 5, &in_a));
    assert_ok(pkv_table_commit(tables[1], 3, &in_b));
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 2;
    options.max_tokens = 2;
    pkv_batch *batch;
    assert_ok(pkv_batch_create(pool, &options, &batch));
    const uint32_t num_new[2] = {0, 0};
    assert_ok(pkv_batch_reserve(batch, 2, tables, num_new, NULL));
    device_rows back = make_rows(12);
    assert_ok(pkv_batch_gather(batch, 0, 1, NULL, 6, &back.tensor[0], &back.tensor[1], &in_c));
    if (unordered()) fake()->finish(streams[c]);
    fake()->let_go(streams[a]);
    fake()->finish(streams[c]);
    const bool right = are_rows(&back, 1, 1, 0, 0, 5) && are_rows(&back, 2, 1, 0, 6, 3);
    assert_true(are_bytes(back.at[0] + 9 * row_elements, 0, 3 * row_bytes)); /* padding */
    assert_ok(pkv_batch_destroy(batch));
    for (int i = 0; i < 2; ++i) end_table(tables[i]);
    end_device_pool(pool);
    return right;
}

static void a_batch_reads_after_the_commits_of_all_its_tables(void **state) {
    (void)state;
    needs_order(batch_reads_what_tables_committed);
}

/* ---- freed pages ---- */

/* A page that work in stream a still reads is given back, and used again in stream b. */
static bool reuse_of_a_freed_page(void) {
    pkv_pool *pool = device_pool(2);
    pkv_table *table = new_table(pool, 1, 8);
    write_tokens(table, streams[a], 0, 8, 1);
    fake()->finish(NULL);
    assert_ok(pkv_table_commit(table, 8, NULL));
    device_rows back = make_rows(8);
    fake()->hold(streams[a]);
    const pkv_sync reads = in(a);
    assert_ok(pkv_table_gather(table, 0, 0, 0, 8, &back.tensor[0], &back.tensor[1], &reads));
    assert_ok(pkv_table_destroy(table, &reads));
    assert_ok(pkv_pool_clear_all(pool, NULL));
    const bool orders = !unordered();
    if (orders) assert_int_equal(stats_of(pool).quarantined_pages, 2);
    pkv_table *next = new_table(pool, 50, 8); /* takes the very pages */
    write_tokens(next, streams[b], 0, 8, 2);
    if (!orders) fake()->finish(streams[b]);
    fake()->let_go(streams[a]);
    fake()->finish(NULL);
    const bool right = are_rows(&back, 1, 0, 0, 0, 8);
    assert_tokens(next, streams[b], 0, 8, 2);
    end_table(next);
    end_device_pool(pool);
    return right;
}

static void case_J05_a_freed_page_is_overwritten_after_the_work_that_used_it(void **state) {
    (void)state;
    needs_order(reuse_of_a_freed_page);
}

static bool reuse_of_an_evicted_page(void) {
    pkv_pool *pool = device_pool(2);
    pkv_table *table = new_table(pool, 1, 8);
    write_tokens(table, streams[a], 0, 8, 1);
    fake()->finish(NULL);
    assert_ok(pkv_table_commit(table, 8, NULL));
    device_rows back = make_rows(8);
    fake()->hold(streams[a]);
    const pkv_sync reads = in(a);
    assert_ok(pkv_table_gather(table, 0, 0, 0, 8, &back.tensor[0], &back.tensor[1], &reads));
    assert_ok(pkv_table_destroy(table, &reads));
    assert_int_equal(stats_of(pool).cached_pages, 2);
    pkv_table *next = new_table(pool, 50, 8); /* evicts them */
    write_tokens(next, streams[b], 0, 8, 2);
    if (unordered()) fake()->finish(streams[b]);
    fake()->let_go(streams[a]);
    fake()->finish(NULL);
    const bool right = are_rows(&back, 1, 0, 0, 0, 8);
    end_table(next);
    end_device_pool(pool);
    return right;
}

static void an_evicted_page_is_overwritten_after_the_work_that_used_it(void **state) {
    (void)state;
    needs_order(reuse_of_an_evicted_page);
}

static void the_same_stream_uses_freed_pages_at_once(void **state) {
    (void)state;
    const pkv_group_options group = small_group(2);
    pkv_pool *pool = device_pool_of(&group, NULL, PKV_DEBUG_HOT_PAGES);
    pkv_table *table = new_table(pool, 1, 8);
    const pkv_sync sync = in(a);
    fake()->hold(streams[a]);
    const uint64_t orders = counted(orders), waits = counted(waits);
    for (pkv_token first = 1; first < 30; first += 10) {
        write_tokens(table, streams[a], 0, 8, (uint32_t)first);
        assert_ok(pkv_table_commit(table, 8, &sync));
        assert_ok(pkv_table_destroy(table, &sync));
        table = new_table(pool, first + 10, 8);
    }
    assert_int_equal(counted(orders), orders); /* no stream waits for another one, and no thread for any */
    assert_int_equal(counted(waits), waits);
    fake()->let_go(streams[a]);
    end_table(table);
    end_device_pool(pool);
}

static void free_pages_are_given_out_before_those_in_quarantine(void **state) {
    (void)state;
    pkv_pool *pool = device_pool(4);
    pkv_page pages[4], again[4];
    assert_ok(pkv_pool_alloc(pool, 0, 4, pages));
    const pkv_sync sync = in(a);
    fake()->hold(streams[a]);
    fake()->put(streams[a], fake()->alloc(0, 8), "1234567", 8);
    assert_ok(pkv_pool_release(pool, 0, 2, pages, NULL, &sync)); /* 0 and 1 */
    assert_ok(pkv_pool_release(pool, 0, 2, pages + 2, NULL, NULL));
    pkv_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.quarantined_pages, 2);
    assert_int_equal(stats.free_pages, 2);
    assert_int_equal(stats.held_pages, 0);
    const uint64_t waits = counted(waits);
    assert_ok(pkv_pool_alloc(pool, 0, 2, again));
    assert_int_equal(again[0], 2);
    assert_int_equal(again[1], 3);
    assert_int_equal(counted(waits), waits);
    fake()->let_go(streams[a]);
    fake()->finish(streams[a]);
    stats = stats_of(pool);
    assert_int_equal(stats.quarantined_pages, 0);
    assert_int_equal(stats.free_pages, 2);
    assert_ok(pkv_pool_alloc(pool, 0, 2, again + 2));
    release_pages(pool, again, 4);
    end_device_pool(pool);
}

static void pages_in_quarantine_are_room_like_free_ones(void **state) {
    (void)state;
    pkv_pool *pool = device_pool(4);
    pkv_page pages[5];
    assert_ok(pkv_pool_alloc(pool, 0, 4, pages));
    const pkv_sync sync = in(a);
    fake()->hold(streams[a]);
    fake()->put(streams[a], fake()->alloc(0, 8), "1234567", 8);
    assert_ok(pkv_pool_release(pool, 0, 4, pages, NULL, &sync));
    assert_status(pkv_pool_alloc(pool, 0, 5, pages), PKV_ERR_NO_PAGES);
    assert_message("4 are free");
    const pthread_t thread = let_go_soon(streams[a]);
    assert_ok(pkv_pool_alloc(pool, 0, 4, pages)); /* waits for stream a: nobody has said where they will be used */
    assert_true(fake()->idle(streams[a]));
    pthread_join(thread, NULL);
    release_pages(pool, pages, 4);
    end_device_pool(pool);
}

/* Two streams used a page at once, and one table after the other gave it back. */
static bool two_users_of_a_shared_page(void) {
    pkv_pool *pool = device_pool(2);
    pkv_table *table = new_table(pool, 1, 8);
    write_tokens(table, streams[a], 0, 8, 1);
    fake()->finish(NULL);
    assert_ok(pkv_table_commit(table, 8, NULL));
    pkv_table *twin = fork_of(table);
    device_rows back = make_rows(8);
    const pkv_sync in_a = in(a), in_b = in(b);
    fake()->hold(streams[a]);
    assert_ok(pkv_table_gather(table, 0, 0, 0, 8, &back.tensor[0], &back.tensor[1], &in_a));
    assert_ok(pkv_table_destroy(table, &in_a));
    assert_ok(pkv_table_destroy(twin, &in_b)); /* the last one: its stream has nothing to do */
    assert_ok(pkv_pool_clear_all(pool, NULL));
    pkv_table *next = new_table(pool, 50, 8);
    write_tokens(next, streams[b], 0, 8, 2); /* in the stream of the last release */
    if (unordered()) fake()->finish(streams[b]);
    fake()->let_go(streams[a]);
    fake()->finish(NULL);
    const bool right = are_rows(&back, 1, 0, 0, 0, 8);
    end_table(next);
    end_device_pool(pool);
    return right;
}

static void all_who_gave_a_shared_page_back_come_before_its_next_user(void **state) {
    (void)state;
    needs_order(two_users_of_a_shared_page);
}

/* ---- copies on write ---- */

static bool copy_on_write_between_streams(void) {
    pkv_pool *pool = device_pool(6);
    pkv_table *table = new_table(pool, 1, 6);
    fake()->hold(streams[a]);
    write_tokens(table, streams[a], 0, 6, 1);
    const pkv_sync in_a = in(a), in_b = in(b);
    assert_ok(pkv_table_commit(table, 6, &in_a));
    pkv_table *twin;
    assert_ok(pkv_table_fork(table, &in_a, &twin));
    assert_ok(pkv_table_reserve(twin, 8)); /* copies the second block, and does not wait */
    write_tokens(twin, streams[b], 6, 2, 2);
    assert_ok(pkv_table_commit(twin, 8, &in_b));
    if (unordered()) fake()->finish(streams[b]);
    fake()->let_go(streams[a]);
    const bool right = has_tokens(twin, streams[c], 0, 6, 1) && has_tokens(twin, streams[c], 6, 2, 2) &&
                       has_tokens(table, streams[c], 0, 6, 1);
    end_table(table);
    end_table(twin);
    end_device_pool(pool);
    return right;
}

static void a_copy_on_write_stands_between_the_commit_and_the_write(void **state) {
    (void)state;
    needs_order(copy_on_write_between_streams);
}

/* The page that was copied from is given back by its other owner, and used again, before the copy was made. */
static bool source_of_a_copy(void) {
    const pkv_group_options group = small_group(3);
    pkv_pool *pool = device_pool_of(&group, NULL, PKV_DEBUG_HOT_PAGES);
    pkv_table *table = new_table(pool, 1, 2);
    write_tokens(table, streams[a], 0, 2, 1);
    fake()->finish(NULL);
    assert_ok(pkv_table_commit(table, 2, NULL));
    pkv_table *twin = fork_of(table);
    fake()->hold(streams[b]);
    assert_ok(pkv_table_reserve(twin, 4));
    write_tokens(twin, streams[b], 2, 1, 2);
    const pkv_sync in_a = in(a), in_b = in(b);
    assert_ok(pkv_table_commit(twin, 3, &in_b));
    assert_ok(pkv_table_destroy(table, &in_a));
    pkv_table *next = new_table(pool, 50, 4);
    write_tokens(next, streams[a], 0, 4, 3); /* over the source */
    fake()->finish(streams[a]);
    fake()->let_go(streams[b]);
    const bool right = has_tokens(twin, streams[b], 0, 2, 1);
    end_table(twin);
    end_table(next);
    end_device_pool(pool);
    return right;
}

static void the_source_of_a_copy_is_not_overwritten_before_it_was_made(void **state) {
    (void)state;
    needs_order(source_of_a_copy);
}

static bool partial_match(void) {
    pkv_pool *pool = device_pool(6);
    pkv_table *table = new_table(pool, 1, 4);
    fake()->hold(streams[a]);
    write_tokens(table, streams[a], 0, 4, 1);
    const pkv_sync in_a = in(a);
    assert_ok(pkv_table_commit(table, 4, &in_a));
    pkv_token tokens[6] = {1, 2, 3, 90, 91, 92};
    const pkv_prompt prompt = prompt_of(tokens, 6);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.flags = PKV_ADMIT_PARTIAL;
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *other;
    assert_ok(pkv_table_create(pool, &other));
    assert_ok(pkv_table_admit(other, &prompt, &options, &match));
    assert_int_equal(match.tokens, 3);
    const pkv_sync in_b = in(b);
    device_rows back = make_rows(3);
    assert_ok(pkv_table_gather(other, 0, 1, 0, 3, &back.tensor[0], &back.tensor[1], &in_b));
    if (unordered()) fake()->finish(streams[b]);
    fake()->let_go(streams[a]);
    fake()->finish(streams[b]);
    const bool right = are_rows(&back, 1, 1, 0, 0, 3);
    end_table(table);
    end_table(other);
    end_device_pool(pool);
    return right;
}

static void a_match_inside_a_block_is_copied_after_the_commits_work(void **state) {
    (void)state;
    needs_order(partial_match);
}

/* A block of which only a copy has been put into a stream is found by its name. */
static bool match_of_a_copied_block(void) {
    pkv_pool *pool = device_pool(6);
    pkv_table *table = new_table(pool, 1, 4), *twin = NULL;
    fake()->hold(streams[a]);
    write_tokens(table, streams[a], 0, 3, 1);
    const pkv_sync in_a = in(a), in_b = in(b);
    assert_ok(pkv_table_commit(table, 3, &in_a));
    assert_ok(pkv_table_fork(table, &in_a, &twin));
    pkv_token token = 4;
    assert_ok(pkv_table_set_tokens(twin, 3, 1, &token));
    assert_ok(pkv_table_reserve(twin, 4)); /* copies */
    assert_ok(pkv_table_commit(twin, 4, NULL));
    pkv_table *other = matching_table(pool, 1, 5, 4);
    device_rows back = make_rows(3);
    assert_ok(pkv_table_gather(other, 0, 1, 0, 3, &back.tensor[0], &back.tensor[1], &in_b));
    if (unordered()) fake()->finish(streams[b]);
    fake()->let_go(streams[a]);
    fake()->finish(streams[b]);
    const bool right = are_rows(&back, 1, 1, 0, 0, 3);
    end_table(table);
    end_table(twin);
    end_table(other);
    end_device_pool(pool);
    return right;
}

static void who_matches_a_copied_block_reads_after_the_copy(void **state) {
    (void)state;
    needs_order(match_of_a_copied_block);
}

/* A block that two tables had is written by one of them, cut back to before what they share, while the other still copies it. */
static bool rows_under_a_copy(void) {
    pkv_pool *pool = device_pool(6);
    pkv_table *table = new_table(pool, 1, 8), *twin = NULL;
    write_tokens(table, streams[b], 0, 7, 1);
    const pkv_sync in_a = in(a), in_b = in(b);
    assert_ok(pkv_table_commit(table, 7, &in_b));
    assert_ok(pkv_table_fork(table, &in_b, &twin));
    fake()->finish(streams[b]);
    fake()->hold(streams[a]);
    write_tokens(twin, streams[a], 7, 1, 2); /* copies the block of tokens 4 to 6 first */
    assert_ok(pkv_table_truncate(table, 5, NULL));
    write_tokens(table, streams[b], 5, 2, 3);
    if (unordered()) fake()->finish(streams[b]);
    fake()->let_go(streams[a]);
    assert_ok(pkv_table_commit(twin, 8, &in_a));
    assert_ok(pkv_table_commit(table, 7, &in_b));
    const bool right = has_tokens(twin, streams[c], 4, 3, 1) && has_tokens(table, streams[c], 5, 2, 3);
    end_table(table);
    end_table(twin);
    end_device_pool(pool);
    return right;
}

static void rows_of_a_block_that_another_table_copies_are_written_after_that(void **state) {
    (void)state;
    needs_order(rows_under_a_copy);
}

/* ---- kernels of the caller's own ---- */

/* They write where the library handed out slots that others may still use. */
static bool in_place_kernel(const pkv_sync *declared, int use) {
    const pkv_group_options group = small_group(2);
    pkv_pool *pool = device_pool_of(&group, declared, PKV_DEBUG_HOT_PAGES);
    pkv_table *table = new_table(pool, 1, 8);
    write_tokens(table, streams[a], 0, 8, 1);
    fake()->finish(NULL);
    assert_ok(pkv_table_commit(table, 8, NULL));
    device_rows back = make_rows(8);
    const pkv_sync in_a = in(a), in_use = in(use);
    if (declared != NULL || unordered()) fake()->hold(streams[a]);
    assert_ok(pkv_table_gather(table, 0, 0, 0, 8, &back.tensor[0], &back.tensor[1], &in_a));
    assert_ok(pkv_table_destroy(table, &in_a));
    if (unordered() && declared == NULL) fake()->let_go(streams[a]);
    pkv_table *next = new_table(pool, 50, 8);
    pkv_slot slots[8];
    assert_ok(pkv_table_slots(next, 0, 0, 8, slots));
    if (declared != NULL && use != a) assert_ok(pkv_pool_order(pool, &in_use));
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(pool, 0, 0, &layout));
    unsigned char junk[row_bytes];
    memset(junk, 0x99, sizeof junk);
    for (int i = 0; i < 8; ++i)
        fake()->put(streams[use],
                    (char *)layout.k_base + (uint64_t)slots[i] / page_tokens * layout.k.page +
                        (uint64_t)slots[i] % page_tokens * layout.k.token,
                    junk, sizeof junk);
    if (unordered()) fake()->finish(streams[use]);
    fake()->let_go(streams[a]);
    fake()->finish(NULL);
    const bool right = are_rows(&back, 1, 0, 0, 0, 8);
    assert_ok(pkv_table_destroy(next, &in_use));
    end_device_pool(pool);
    return right;
}

static bool in_place_in_the_pools_stream(void) {
    const pkv_sync declared = in(b);
    return in_place_kernel(&declared, b);
}
static bool in_place_in_an_ordered_stream(void) {
    const pkv_sync declared = in(b);
    return in_place_kernel(&declared, c);
}

static void what_is_handed_out_is_ready_in_the_pools_stream(void **state) {
    (void)state;
    needs_order(in_place_in_the_pools_stream);
}

static void another_stream_is_ordered_by_pool_order(void **state) {
    (void)state;
    needs_order(in_place_in_an_ordered_stream);
}

static void without_a_stream_what_is_handed_out_is_ready_for_everybody(void **state) {
    (void)state;
    assert_true(in_place_kernel(NULL, b)); /* slots() has waited for stream a */
}

static void reserving_room_waits_for_nothing(void **state) {
    (void)state;
    const pkv_group_options group = small_group(4);
    pkv_pool *pool = device_pool_of(&group, NULL, PKV_DEBUG_HOT_PAGES);
    pkv_table *table = new_table(pool, 1, 6);
    const pkv_sync in_a = in(a);
    fake()->hold(streams[a]);
    write_tokens(table, streams[a], 0, 6, 1);
    assert_ok(pkv_table_commit(table, 6, &in_a));
    const uint64_t waits = counted(waits);
    pkv_table *twin;
    assert_ok(pkv_table_fork(table, &in_a, &twin));
    assert_ok(pkv_table_reserve(twin, 8));
    assert_ok(pkv_table_truncate(twin, 0, &in_a));
    assert_ok(pkv_table_reserve(twin, 5));
    assert_int_equal(counted(waits), waits);
    fake()->let_go(streams[a]);
    end_table(table);
    end_table(twin);
    end_device_pool(pool);
}

static void pool_order_waits_without_a_stream_and_has_nothing_to_do_on_a_host_pool(void **state) {
    (void)state;
    const pkv_group_options group = small_group(2);
    const pkv_sync declared = in(b), in_a = in(a);
    pkv_pool *pool = device_pool_of(&group, &declared, PKV_DEBUG_HOT_PAGES);
    pkv_page pages[2];
    assert_ok(pkv_pool_alloc(pool, 0, 2, pages));
    fake()->hold(streams[a]);
    fake()->put(streams[a], fake()->alloc(0, 8), "1234567", 8);
    assert_ok(pkv_pool_release(pool, 0, 2, pages, NULL, &in_a));
    slow_device(UINT64_C(3000000000));
    assert_ok(pkv_pool_alloc(pool, 0, 2, pages)); /* does not wait */
    assert_false(fake()->idle(streams[a]));
    const pthread_t thread = let_go_soon(streams[a]);
    assert_ok(pkv_pool_order(pool, NULL));
    assert_true(fake()->idle(streams[a]));
    pthread_join(thread, NULL);
    release_pages(pool, pages, 2);
    end_device_pool(pool);
}

/* ---- kinds of sync ---- */

static void without_a_sync_the_work_is_done_when_the_call_returns(void **state) {
    (void)state;
    slow_device(UINT64_C(5000000000));
    pkv_pool *pool = device_pool(4);
    pkv_table *table = new_table(pool, 1, 8);
    device_rows rows = make_rows(8), back = make_rows(8);
    fill_rows(&rows, NULL, 1, 0, 0, 8);
    assert_ok(pkv_table_write(table, 0, 0, 0, 8, &rows.tensor[0], &rows.tensor[1], NULL));
    fill_rows(&rows, NULL, 9, 0, 0, 8); /* what was given is the caller's again */
    const pkv_sync none = PKV_SYNC_INIT;
    assert_ok(pkv_table_gather(table, 0, 0, 0, 8, &back.tensor[0], &back.tensor[1], &none));
    assert_rows(&back, 1, 0, 0, 8);
    end_table(table);
    end_device_pool(pool);
}

static void work_behind_an_event_is_done_when_the_call_returns(void **state) {
    (void)state;
    slow_device(UINT64_C(5000000000));
    pkv_pool *pool = device_pool(4);
    pkv_table *table = new_table(pool, 1, 8);
    device_rows rows = make_rows(8), back = make_rows(8);
    fake()->hold(streams[a]);
    fill_rows(&rows, streams[a], 1, 0, 0, 8);
    void *event = fake()->make_event();
    fake()->record(event, streams[a]);
    const pkv_sync sync = behind(event);
    const pthread_t thread = let_go_soon(streams[a]);
    assert_ok(pkv_table_write(table, 0, 0, 0, 8, &rows.tensor[0], &rows.tensor[1], &sync));
    assert_true(fake()->idle(streams[a]));
    pthread_join(thread, NULL);
    assert_ok(pkv_table_gather(table, 0, 0, 0, 8, &back.tensor[0], &back.tensor[1], NULL));
    assert_rows(&back, 1, 0, 0, 8);
    fake()->end_event(event);
    end_table(table);
    end_device_pool(pool);
}

/* The event may be used for something else once the call has returned. */
static bool commit_behind_an_event(void) {
    pkv_pool *pool = device_pool(4);
    pkv_table *table = new_table(pool, 1, 8);
    fake()->hold(streams[a]);
    write_tokens(table, streams[a], 0, 8, 1);
    void *event = fake()->make_event();
    fake()->record(event, streams[a]);
    const pkv_sync sync = behind(event), in_b = in(b);
    assert_ok(pkv_table_commit(table, 8, &sync));
    fake()->record(event, streams[b]);
    fake()->end_event(event);
    device_rows back = make_rows(8);
    assert_ok(pkv_table_gather(table, 0, 0, 0, 8, &back.tensor[0], &back.tensor[1], &in_b));
    if (unordered()) fake()->finish(streams[b]);
    fake()->let_go(streams[a]);
    fake()->finish(streams[b]);
    const bool right = are_rows(&back, 1, 0, 0, 0, 8);
    end_table(table);
    end_device_pool(pool);
    return right;
}

static void a_commit_behind_an_event_does_not_wait_and_is_waited_for(void **state) {
    (void)state;
    needs_order(commit_behind_an_event);
}

static void host_counters_are_waited_for_on_a_device_too(void **state) {
    (void)state;
    pkv_pool *pool = device_pool(4);
    pkv_table *table = new_table(pool, 1, 8);
    uint64_t counter = 4;
    pkv_sync sync = PKV_SYNC_INIT;
    sync.kind = PKV_SYNC_HOST_COUNTER;
    sync.handle = &counter;
    sync.value = 5;
    sync.timeout_ns = 1000000;
    device_rows rows = make_rows(8);
    const uint64_t before = counted(launches);
    assert_status(pkv_table_write(table, 0, 0, 0, 8, &rows.tensor[0], &rows.tensor[1], &sync), PKV_ERR_TIMEOUT);
    assert_status(pkv_table_clear(table, &sync), PKV_ERR_TIMEOUT);
    assert_int_equal(counted(launches), before);
    counter = 5;
    assert_ok(pkv_table_write(table, 0, 0, 0, 8, &rows.tensor[0], &rows.tensor[1], &sync));
    sync.handle = NULL;
    assert_status(pkv_table_write(table, 0, 0, 0, 8, &rows.tensor[0], &rows.tensor[1], &sync), PKV_ERR_INVALID);
    sync.kind = 77;
    assert_status(pkv_table_commit(table, 8, &sync), PKV_ERR_INVALID);
    sync.kind = PKV_SYNC_CUDA_EVENT;
    assert_status(pkv_table_commit(table, 8, &sync), PKV_ERR_INVALID);
    assert_message("event");
    end_table(table);
    end_device_pool(pool);
}

static void calls_with_a_stream_never_wait(void **state) {
    (void)state;
    const pkv_group_options group = small_group(16);
    const pkv_sync declared = in(a);
    pkv_pool *pool = device_pool_of(&group, &declared, PKV_DEBUG_HOT_PAGES);
    for (int i = 0; i < 3; ++i) fake()->hold(streams[i]);
    const uint64_t waits = counted(waits);
    const pkv_sync in_a = in(a), in_b = in(b);
    pkv_table *table = new_table(pool, 1, 6), *twin;
    write_tokens(table, streams[a], 0, 6, 1);
    assert_ok(pkv_table_commit(table, 6, &in_a));
    assert_ok(pkv_table_fork(table, &in_a, &twin));
    assert_ok(pkv_table_reserve(twin, 12));
    write_tokens(twin, streams[b], 6, 4, 2);
    const uint64_t accepted[2] = {6, 8};
    assert_ok(pkv_table_accept(twin, 2, accepted, &in_b));
    device_rows back = make_rows(8);
    assert_ok(pkv_table_gather(twin, 0, 0, 0, 8, &back.tensor[0], &back.tensor[1], &in_a));
    assert_ok(pkv_table_truncate(twin, 5, &in_a));
    assert_ok(pkv_table_window(twin, &in_b));
    pkv_page pages[2];
    assert_ok(pkv_pool_alloc(pool, 0, 2, pages));
    assert_ok(pkv_pool_copy_pages(pool, 0, 1, &pages[0], &pages[1], &in_b));
    const pkv_slot slot = (pkv_slot)pages[0] * page_tokens;
    assert_ok(pkv_pool_write(pool, 0, 0, 1, &slot, &back.tensor[0], &back.tensor[1], &in_a));
    assert_ok(pkv_pool_gather(pool, 0, 0, 1, pages, 0, 4, &back.tensor[0], &back.tensor[1], &in_b));
    assert_ok(pkv_pool_release(pool, 0, 2, pages, NULL, &in_a));
    assert_ok(pkv_pool_order(pool, &in_b));
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 2;
    options.max_tokens = 8;
    pkv_batch_arrays arrays = PKV_BATCH_ARRAYS_INIT;
    int32_t block_table[16];
    arrays.max_blocks = 8;
    arrays.block_table = block_table;
    options.arrays = &arrays;
    options.num_arrays = 1;
    pkv_batch *batch;
    assert_ok(pkv_batch_create(pool, &options, &batch));
    pkv_table *tables[2] = {table, twin};
    const uint32_t num_new[2] = {3, 1};
    assert_ok(pkv_batch_reserve(batch, 2, tables, num_new, NULL));
    assert_ok(pkv_batch_write(batch, 0, 1, &back.tensor[0], &back.tensor[1], &in_b));
    assert_ok(pkv_batch_commit(batch, NULL, NULL, &in_b));
    assert_ok(pkv_batch_destroy(batch));
    assert_ok(pkv_table_clear(twin, &in_b));
    assert_ok(pkv_table_destroy(table, &in_a));
    assert_int_equal(counted(waits), waits);
    for (int i = 0; i < 3; ++i) fake()->let_go(streams[i]);
    end_table(twin);
    end_device_pool(pool);
}

/* ---- what a call leaves behind ---- */

static void rows_that_nobody_committed_are_waited_for_when_their_pages_go(void **state) {
    (void)state;
    const pkv_group_options group = small_group(2);
    pkv_pool *pool = device_pool_of(&group, NULL, PKV_DEBUG_HOT_PAGES);
    pkv_table *table = new_table(pool, 1, 8);
    fake()->hold(streams[a]);
    write_tokens(table, streams[a], 0, 8, 1);
    end_table(table); /* nothing is said of stream a */
    table = new_table(pool, 50, 8);
    write_tokens(table, streams[b], 0, 8, 2);
    fake()->let_go(streams[a]);
    assert_tokens(table, streams[b], 0, 8, 2);
    end_table(table);
    end_device_pool(pool);
}

static void streams_come_and_go(void **state) {
    (void)state;
    pkv_pool *pool = device_pool(4);
    for (uint32_t i = 0; i < 200; ++i) { /* more than there are numbers for */
        void *stream = fake()->make_stream(0);
        pkv_table *table = new_table(pool, 1, 8);
        const pkv_sync sync = on(stream);
        write_tokens(table, stream, 0, 8, i);
        assert_ok(pkv_table_commit(table, 8, &sync));
        assert_tokens(table, i % 2 == 0 ? stream : streams[a], 0, 8, i);
        assert_ok(pkv_table_destroy(table, &sync));
        assert_ok(pkv_pool_clear_all(pool, NULL));
        fake()->end_stream(stream);
    }
    end_device_pool(pool);
}

static void many_streams_at_work_at_once(void **state) {
    (void)state;
    pkv_pool *pool = device_pool(100);
    pkv_table *tables[90];
    void *many[90];
    for (uint32_t i = 0; i < 90; ++i) {
        many[i] = fake()->make_stream(0);
        tables[i] = new_table(pool, (pkv_token)i * 100, 4);
        write_tokens(tables[i], many[i], 0, 4, i);
        const pkv_sync sync = on(many[i]);
        assert_ok(pkv_table_commit(tables[i], 4, &sync));
    }
    for (uint32_t i = 0; i < 90; ++i) assert_tokens(tables[i], many[(i + 7) % 90], 0, 4, i);
    for (uint32_t i = 0; i < 90; ++i) end_table(tables[i]);
    end_device_pool(pool);
}

/* case_J07: as the title of the test says, with random delays. */
static void case_J07_a_thousand_rounds_without_a_wrong_byte(void **state) {
    (void)state;
    if (is_fake) with_fake(f, f.pace_ns = 20000; f.seed = 7);
    const pkv_group_options group = small_group(4);
    pkv_pool *pool = device_pool_of(&group, NULL, PKV_DEBUG_HOT_PAGES);
    device_rows back[8], rows[8];
    for (int i = 0; i < 8; ++i) back[i] = make_rows(4), rows[i] = make_rows(4);
    test_random random = {11};
    for (uint32_t round = 0; round < 1000; ++round) {
        const int at = (int)(round % 8);
        if (at == 0 && round != 0) {
            fake()->finish(NULL);
            for (uint32_t i = 0; i < 8; ++i) assert_rows(&back[i], round - 8 + i, 1, 0, 4);
        }
        pkv_table *table = new_table(pool, 1, 4);
        const pkv_sync writes = in((int)random_below(&random, 3)), reads = in((int)random_below(&random, 3)),
                       frees = reads;
        fill_rows(&rows[at], writes.handle, round, 1, 0, 4);
        assert_ok(pkv_table_write(table, 0, 1, 0, 4, &rows[at].tensor[0], &rows[at].tensor[1], &writes));
        assert_ok(pkv_table_commit(table, 4, &writes));
        assert_ok(pkv_table_gather(table, 0, 1, 0, 4, &back[at].tensor[0], &back[at].tensor[1], &reads));
        assert_ok(pkv_table_destroy(table, &frees));
        assert_ok(pkv_pool_clear_all(pool, NULL));
    }
    end_device_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        stream_test(case_J01_a_gather_in_another_stream_comes_after_the_commits_work),
        stream_test(a_table_that_matched_reads_after_the_commits_work),
        stream_test(pages_written_by_slots_are_read_after_that),
        stream_test(a_batch_reads_after_the_commits_of_all_its_tables),
        stream_test(case_J05_a_freed_page_is_overwritten_after_the_work_that_used_it),
        stream_test(an_evicted_page_is_overwritten_after_the_work_that_used_it),
        stream_test(the_same_stream_uses_freed_pages_at_once),
        stream_test(free_pages_are_given_out_before_those_in_quarantine),
        stream_test(pages_in_quarantine_are_room_like_free_ones),
        stream_test(all_who_gave_a_shared_page_back_come_before_its_next_user),
        stream_test(a_copy_on_write_stands_between_the_commit_and_the_write),
        stream_test(the_source_of_a_copy_is_not_overwritten_before_it_was_made),
        stream_test(a_match_inside_a_block_is_copied_after_the_commits_work),
        stream_test(who_matches_a_copied_block_reads_after_the_copy),
        stream_test(rows_of_a_block_that_another_table_copies_are_written_after_that),
        stream_test(what_is_handed_out_is_ready_in_the_pools_stream),
        stream_test(another_stream_is_ordered_by_pool_order),
        stream_test(without_a_stream_what_is_handed_out_is_ready_for_everybody),
        stream_test(reserving_room_waits_for_nothing),
        stream_test(pool_order_waits_without_a_stream_and_has_nothing_to_do_on_a_host_pool),
        stream_test(without_a_sync_the_work_is_done_when_the_call_returns),
        stream_test(work_behind_an_event_is_done_when_the_call_returns),
        stream_test(a_commit_behind_an_event_does_not_wait_and_is_waited_for),
        stream_test(host_counters_are_waited_for_on_a_device_too),
        stream_test(calls_with_a_stream_never_wait),
        stream_test(rows_that_nobody_committed_are_waited_for_when_their_pages_go),
        stream_test(streams_come_and_go),
        stream_test(many_streams_at_work_at_once),
        stream_test(case_J07_a_thousand_rounds_without_a_wrong_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
