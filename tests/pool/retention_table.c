/* SPDX-License-Identifier: Apache-2.0 */
/* Retention that a table, a namespace or several layer groups bring to the blocks published. */
#include "support/support.h"

enum { page_tokens = 4, num_tokens = 32, num_blocks = num_tokens / page_tokens };

static pkv_retention keep(uint32_t priority, int32_t pin) {
    pkv_retention retention = PKV_RETENTION_INIT;
    retention.priority = priority;
    retention.pin = pin;
    return retention;
}

static pkv_token tokens_32[num_tokens];

static pkv_prompt prompt_32(void) {
    count_up(tokens_32, num_tokens, 1);
    return prompt_of(tokens_32, num_tokens);
}

static void set_range(pkv_table *table, uint64_t first, uint64_t count, uint32_t priority) {
    const pkv_retention retention = keep(priority, 0);
    assert_ok(pkv_table_set_retention(table, first, count, &retention));
}

/* The table's blocks, as far as they are published, have these priorities. */
static void check_priorities(pkv_pool *pool, pkv_table *table, const uint32_t *expected, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        const pkv_page_info info = page_of(pool, page_at(table, i));
        assert_int_equal(info.published, 1);
        if (info.priority != expected[i])
            fail_msg("block %llu has priority %u, not %u", (unsigned long long)i, info.priority, expected[i]);
    }
}

/* ---- tables ---- */

static void a_range_is_for_published_blocks_and_for_those_that_will_be(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    const pkv_prompt prompt = prompt_32();
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 16, 1);
    set_range(table, 13, 7, 80); /* tokens 13 .. 19: blocks 3 and 4 */
    check_priorities(pool, table, (const uint32_t[]){50, 50, 50, 80}, 4);
    write_and_commit(table, 32, 1);
    check_priorities(pool, table, (const uint32_t[]){50, 50, 50, 80, 80, 50, 50, 50}, 8);
    end_table(table);
    end_pool(pool);
}

static void a_later_range_overrides_an_earlier_one_where_they_overlap(void **state) {
    (void)state;
    for (int before = 0; before < 2; ++before) {
        pkv_pool *pool = make_pool(16, page_tokens);
        const pkv_prompt prompt = prompt_32();
        pkv_table *table = admit(pool, &prompt, NULL);
        if (before == 0) write_and_commit(table, 32, 1);
        set_range(table, 0, UINT64_MAX, 10);
        set_range(table, 4, 16, 20);
        set_range(table, 19, 3, 90); /* blocks 4 and 5 */
        set_range(table, 8, 1, 30);
        set_range(table, 100, 50, 99);
        set_range(table, 0, 0, 98);
        if (before == 1) write_and_commit(table, 32, 1);
        check_priorities(pool, table, (const uint32_t[]){10, 20, 30, 20, 90, 90, 10, 10}, 8);
        end_table(table);
        end_pool(pool);
    }
}

static void a_range_to_the_end_reaches_blocks_that_nobody_knew_of(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    const pkv_prompt prompt = prompt_32();
    const pkv_prompt head = prompt_of(prompt.tokens, 6);
    pkv_table *table = admit(pool, &head, NULL);
    set_range(table, 4, UINT64_MAX, 70);
    assert_ok(pkv_table_set_tokens(table, 6, 26, prompt.tokens + 6));
    write_and_commit(table, 32, 1);
    check_priorities(pool, table, (const uint32_t[]){50, 70, 70, 70, 70, 70, 70, 70}, 8);
    end_table(table);
    end_pool(pool);
}

static void matched_blocks_are_the_sequences_too(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    const pkv_prompt prompt = prompt_32(), head = prompt_of(prompt.tokens, 16);
    publish_cached(pool, &head);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit(pool, &prompt, &match);
    assert_int_equal(match.tokens, 16);
    set_range(table, 0, UINT64_MAX, 75);
    check_priorities(pool, table, (const uint32_t[]){75, 75, 75, 75}, 4);
    end_table(table);
    end_pool(pool);
}

static void a_table_has_room_for_64_ranges(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    const pkv_prompt prompt = prompt_32();
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 4, 1);
    for (uint32_t i = 0; i < 64; ++i) set_range(table, 0, UINT64_MAX, i);
    const pkv_retention retention = keep(99, 0);
    assert_status(pkv_table_set_retention(table, 0, UINT64_MAX, &retention), PKV_ERR_LIMIT);
    check_priorities(pool, table, (const uint32_t[]){63}, 1);
    write_and_commit(table, 8, 1);
    check_priorities(pool, table, (const uint32_t[]){63, 63}, 2);
    assert_ok(pkv_table_clear(table, NULL)); /* as new */
    assert_ok(pkv_table_admit(table, &prompt, NULL, NULL));
    write_and_commit(table, 12, 1);
    check_priorities(pool, table, (const uint32_t[]){63, 63, 50}, 3);
    set_range(table, 8, 4, 1);
    check_priorities(pool, table, (const uint32_t[]){63, 63, 1}, 3);
    end_table(table);
    end_pool(pool);
}

static void ranges_need_a_sequence(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_table *table;
    const pkv_retention retention = keep(60, 0);
    assert_ok(pkv_table_create(pool, &table));
    assert_status(pkv_table_set_retention(table, 0, 1, &retention), PKV_ERR_STATE);
    end_table(table);
    end_pool(pool);
}

static void a_fork_has_the_ranges_of_its_source(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(32, page_tokens);
    const pkv_prompt prompt = prompt_32();
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 10, 1);
    set_range(table, 8, UINT64_MAX, 66);
    pkv_table *fork = fork_of(table);
    set_range(table, 8, UINT64_MAX, 67); /* the source's alone */
    write_and_commit(fork, 16, 2);
    check_priorities(pool, fork, (const uint32_t[]){50, 50, 66, 66}, 4);
    end_table(fork);
    end_table(table);
    end_pool(pool);
}

/* Two sequences computed the same blocks; the other one's are published, and its last one was evicted. */
static void a_range_finds_what_is_still_published_of_a_sequence(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(32, page_tokens);
    const pkv_prompt prompt = prompt_32();
    pkv_table *other = admit(pool, &prompt, NULL), *table = admit(pool, &prompt, NULL);
    write_and_commit(other, 16, 1);
    write_and_commit(table, 16, 1);
    pkv_page pages[4];
    for (uint64_t i = 0; i < 4; ++i) pages[i] = page_at(other, i);
    end_table(other);
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_int_equal(probe_tokens(pool, &prompt), 12);
    set_range(table, 0, UINT64_MAX, 88);
    for (int i = 0; i < 3; ++i) assert_int_equal(page_of(pool, pages[i]).priority, 88);
    end_table(table);
    end_pool(pool);
}

static void pins_of_a_table_outlive_it(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    const pkv_prompt prompt = prompt_32();
    pkv_table *table = admit(pool, &prompt, NULL);
    const pkv_retention pin = keep(50, 1);
    assert_ok(pkv_table_set_retention(table, 0, 8, &pin)); /* a system prompt */
    write_and_commit(table, 32, 1);
    end_table(table);
    assert_int_equal(stats_of(pool).pinned_pages, 2);
    assert_int_equal(evict_pages(pool, 8), 6);
    assert_int_equal(probe_tokens(pool, &prompt), 8);
    end_pool(pool);
}

/* ---- namespaces ---- */

static void a_namespace_sets_what_is_published_from_then_on(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_namespace ns = PKV_NAMESPACE_INIT, other = PKV_NAMESPACE_INIT;
    ns.salt = bytes_of("tenant");
    other.salt = bytes_of("another");
    pkv_prompt prompt = prompt_32();
    prompt.ns = &ns;
    const pkv_retention high = keep(80, 0);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 8, 1);
    assert_ok(pkv_pool_set_namespace_retention(pool, &ns, &high));
    assert_ok(pkv_pool_set_namespace_retention(pool, &other, &high));
    write_and_commit(table, 16, 1);
    set_range(table, 16, 4, 5); /* the table's word counts more */
    write_and_commit(table, 24, 1);
    assert_ok(pkv_pool_set_namespace_retention(pool, &ns, NULL));
    write_and_commit(table, 32, 1);
    check_priorities(pool, table, (const uint32_t[]){50, 50, 80, 80, 5, 80, 50, 50}, 8);
    end_table(table);
    assert_ok(pkv_pool_clear_all(pool, NULL));
    end_pool(pool);
}

static void a_namespace_without_parts_has_a_default_of_its_own(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_namespace ns = PKV_NAMESPACE_INIT;
    ns.salt = bytes_of("tenant");
    const pkv_retention pin = keep(80, 1);
    assert_ok(pkv_pool_set_namespace_retention(pool, NULL, &pin));
    pkv_prompt prompt = prompt_32();
    publish_cached(pool, &prompt);
    assert_int_equal(stats_of(pool).pinned_pages, 8);
    prompt.ns = &ns;
    publish_cached(pool, &prompt);
    assert_int_equal(stats_of(pool).pinned_pages, 8);
    assert_int_equal(stats_of(pool).cached_pages, 16);
    assert_int_equal(evict_pages(pool, 16), 8);
    end_pool(pool);
}

static void taking_back_a_default_that_was_never_set_is_no_error(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, page_tokens);
    assert_ok(pkv_pool_set_namespace_retention(pool, NULL, NULL));
    assert_int_equal(stats_of(pool).namespaces, 0);
    end_pool(pool);
}

/* "from now on" has no end but another call: all of a namespace's blocks may go meanwhile. */
static void a_default_outlives_the_blocks_of_its_namespace(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    const pkv_prompt prompt = prompt_32();
    const pkv_retention high = keep(80, 0);
    assert_ok(pkv_pool_set_namespace_retention(pool, NULL, &high));
    publish_cached(pool, &prompt);
    assert_int_equal(evict_pages(pool, 16), 8);
    pkv_page pages[num_blocks];
    publish_held(pool, &prompt, pages);
    assert_int_equal(page_of(pool, pages[0]).priority, 80);
    release_pages(pool, pages, num_blocks);
    end_pool(pool);
}

static void a_default_outlives_a_clear(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    const pkv_prompt prompt = prompt_32();
    const pkv_retention high = keep(80, 0);
    assert_ok(pkv_pool_set_namespace_retention(pool, NULL, &high));
    publish_cached(pool, &prompt);
    assert_ok(pkv_pool_clear(pool, NULL, NULL)); /* forgets prefixes; nothing is said of defaults */
    pkv_page pages[num_blocks];
    publish_held(pool, &prompt, pages);
    assert_int_equal(page_of(pool, pages[0]).priority, 80);
    release_pages(pool, pages, num_blocks);
    end_pool(pool);
}

/* ---- groups ---- */

enum { window = 8 };

/* A full group and a window group of 8 tokens with a sink of one, of the small geometry. */
static pkv_pool *make_two_groups(uint64_t full_pages, uint64_t window_pages) {
    pkv_group_options groups[2] = {small_group(full_pages), small_group(window_pages)};
    groups[1].attention = PKV_ATTENTION_WINDOW;
    groups[1].window = window;
    groups[1].sinks = 1;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 2;
    options.groups = groups;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    return pool;
}

static pkv_pool_stats stats_of_group(pkv_pool *pool, uint32_t group) {
    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    assert_ok(pkv_pool_get_stats(pool, group, &stats));
    return stats;
}

static void retention_is_a_blocks_in_all_groups(void **state) {
    (void)state;
    pkv_pool *pool = make_two_groups(16, 16);
    const pkv_prompt prompt = prompt_32();
    pkv_table *table = admit(pool, &prompt, NULL);
    assert_ok(pkv_table_commit(table, 32, NULL));
    const pkv_retention pin = keep(70, 1), unpin = keep(70, 0);
    uint64_t blocks = 0;
    assert_ok(pkv_pool_set_retention(pool, &prompt, 28, 4, &pin, &blocks));
    assert_int_equal(blocks, 1); /* blocks, not pages */
    pkv_page pages[2][num_blocks];
    for (uint32_t group = 0; group < 2; ++group) {
        assert_ok(pkv_table_pages(table, group, pages[group], num_blocks, &blocks));
        pkv_page_info info = PKV_PAGE_INFO_INIT;
        assert_ok(pkv_pool_page_info(pool, group, pages[group][7], &info));
        assert_int_equal(info.priority, 70);
        assert_int_equal(info.pinned, 1);
    }
    end_table(table);
    for (uint32_t group = 0; group < 2; ++group) {
        assert_int_equal(stats_of_group(pool, group).pinned_pages, 8);
        uint64_t evicted = 0;
        assert_ok(pkv_pool_evict(pool, group, 8, &evicted));
        assert_int_equal(evicted, 0);
    }
    assert_int_equal(probe_tokens(pool, &prompt), 32);
    assert_ok(pkv_pool_set_retention(pool, &prompt, 28, 4, &unpin, NULL));
    for (uint32_t group = 0; group < 2; ++group) assert_int_equal(stats_of_group(pool, group).pinned_pages, 0);
    assert_int_equal(evict_pages(pool, 8), 8);
    assert_int_equal(stats_of_group(pool, 1).free_pages, 16); /* a block goes with its pages in all groups */
    end_pool(pool);
}

static void blocks_that_a_window_has_passed_go_first_unless_they_are_pinned(void **state) {
    (void)state;
    for (int pinned = 0; pinned < 2; ++pinned) {
        pkv_pool *pool = make_two_groups(16, 16);
        const pkv_prompt prompt = prompt_32();
        pkv_table *table = admit(pool, &prompt, NULL);
        const pkv_retention retention = keep(100, pinned), low = keep(0, 0);
        pkv_page pages[num_blocks];
        uint64_t blocks = 0, evicted = 0;
        assert_ok(pkv_table_commit(table, 32, NULL));
        assert_ok(pkv_table_pages(table, 1, pages, num_blocks, &blocks));
        assert_ok(pkv_table_set_retention(table, 20, 4, &retention)); /* block 5, right before the window */
        assert_ok(pkv_table_set_retention(table, 24, 8, &low));       /* what the window reaches */
        assert_ok(pkv_table_window(table, NULL));
        end_table(table);
        assert_int_equal(stats_of_group(pool, 1).pinned_pages, pinned * 6);
        assert_ok(pkv_pool_evict(pool, 1, 5, &evicted));
        assert_int_equal(evicted, pinned != 0 ? 2 : 5);
        pkv_page_info info = PKV_PAGE_INFO_INIT;
        assert_ok(pkv_pool_page_info(pool, 1, pages[5], &info));
        assert_int_equal(info.state, pinned != 0 ? PKV_PAGE_CACHED : PKV_PAGE_FREE);
        if (pinned == 0) assert_int_equal(probe_tokens(pool, &prompt), 32); /* the window itself is whole */
        end_pool(pool);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_is_for_published_blocks_and_for_those_that_will_be),
        cmocka_unit_test(a_later_range_overrides_an_earlier_one_where_they_overlap),
        cmocka_unit_test(a_range_to_the_end_reaches_blocks_that_nobody_knew_of),
        cmocka_unit_test(matched_blocks_are_the_sequences_too),
        cmocka_unit_test(a_table_has_room_for_64_ranges),
        cmocka_unit_test(ranges_need_a_sequence),
        cmocka_unit_test(a_fork_has_the_ranges_of_its_source),
        cmocka_unit_test(a_range_finds_what_is_still_published_of_a_sequence),
        cmocka_unit_test(pins_of_a_table_outlive_it),
        cmocka_unit_test(a_namespace_sets_what_is_published_from_then_on),
        cmocka_unit_test(a_namespace_without_parts_has_a_default_of_its_own),
        cmocka_unit_test(taking_back_a_default_that_was_never_set_is_no_error),
        cmocka_unit_test(a_default_outlives_the_blocks_of_its_namespace),
        cmocka_unit_test(a_default_outlives_a_clear),
        cmocka_unit_test(retention_is_a_blocks_in_all_groups),
        cmocka_unit_test(blocks_that_a_window_has_passed_go_first_unless_they_are_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
