/* SPDX-License-Identifier: Apache-2.0 */
/* Priorities and pins: which cached blocks outlive others. By prompt and by namespace; by table and in time in
 * retention_table.c and retention_time.c. Field cases B10, D11 and R6. */
#include "support/support.h"

enum { most_blocks = 128 };

static pkv_retention keep(uint32_t priority, int32_t pin) {
    pkv_retention retention = PKV_RETENTION_INIT;
    retention.priority = priority;
    retention.pin = pin;
    return retention;
}

/* A cached prompt of `blocks` blocks of one token: first, first + 1, ... Its pages may be wanted. */
static void cache_chain(pkv_pool *pool, pkv_token first, uint64_t blocks, pkv_page *pages) {
    pkv_token tokens[most_blocks];
    pkv_page taken[most_blocks];
    count_up(tokens, blocks, first);
    const pkv_prompt prompt = prompt_of(tokens, blocks);
    publish_held(pool, &prompt, taken);
    release_pages(pool, taken, blocks);
    if (pages != NULL) memcpy(pages, taken, blocks * sizeof *pages);
}

static uint64_t chain_length(pkv_pool *pool, pkv_token first, uint64_t blocks) {
    pkv_token tokens[most_blocks];
    count_up(tokens, blocks, first);
    const pkv_prompt prompt = prompt_of(tokens, blocks);
    return probe_tokens(pool, &prompt);
}

/* Blocks [begin, begin + count) of a chain of `blocks`. */
static void keep_chain(pkv_pool *pool, pkv_token first, uint64_t blocks, uint64_t begin, uint64_t count,
                       pkv_retention retention) {
    pkv_token tokens[most_blocks];
    count_up(tokens, blocks, first);
    const pkv_prompt prompt = prompt_of(tokens, blocks);
    uint64_t found = 0;
    assert_ok(pkv_pool_set_retention(pool, &prompt, begin, count, &retention, &found));
    assert_int_equal(found, count);
}

/* ---- priorities ---- */

static void of_101_priorities_the_lowest_goes_first(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(101, 1);
    for (uint32_t i = 0; i < 101; ++i) {
        const uint32_t priority = i * 37 % 101;
        cache_chain(pool, 1000 + (pkv_token)priority, 1, NULL);
        keep_chain(pool, 1000 + (pkv_token)priority, 1, 0, 1, keep(priority, 0));
    }
    for (pkv_token priority = 0; priority < 101; ++priority) {
        assert_int_equal(chain_length(pool, 1000 + priority, 1), 1);
        assert_int_equal(evict_pages(pool, 1), 1);
        assert_int_equal(chain_length(pool, 1000 + priority, 1), 0);
    }
    end_pool(pool);
}

static void alloc_takes_the_lowest_priority_too(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(3, 1);
    pkv_page pages[3], taken;
    for (int i = 0; i < 3; ++i) cache_chain(pool, 10 * (i + 1), 1, &pages[i]);
    keep_chain(pool, 10, 1, 0, 1, keep(51, 0));
    keep_chain(pool, 20, 1, 0, 1, keep(49, 0));
    assert_ok(pkv_pool_alloc(pool, 0, 1, &taken));
    assert_int_equal(taken, pages[1]);
    release_pages(pool, &taken, 1);
    end_pool(pool);
}

static void what_is_released_at_a_priority_goes_in_order_of_release(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(3, 1);
    pkv_page pages[3];
    for (int i = 0; i < 3; ++i) {
        const pkv_token token = 10 * (i + 1);
        const pkv_prompt prompt = prompt_of(&token, 1);
        publish_held(pool, &prompt, &pages[i]);
        keep_chain(pool, token, 1, 0, 1, keep(70, 0)); /* while it is held */
    }
    release_pages(pool, &pages[1], 1);
    release_pages(pool, &pages[2], 1);
    release_pages(pool, &pages[0], 1);
    const pkv_token order[3] = {20, 30, 10};
    for (int i = 0; i < 3; ++i) {
        assert_int_equal(evict_pages(pool, 1), 1);
        assert_int_equal(chain_length(pool, order[i], 1), 0);
    }
    end_pool(pool);
}

static void a_kept_child_keeps_its_parents(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 1);
    cache_chain(pool, 10, 3, NULL); /* 50, 0, 100 from the head on */
    keep_chain(pool, 10, 3, 1, 1, keep(0, 0));
    keep_chain(pool, 10, 3, 2, 1, keep(100, 0));
    cache_chain(pool, 20, 2, NULL);
    keep_chain(pool, 20, 2, 0, 2, keep(99, 0));
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_int_equal(chain_length(pool, 20, 2), 1);
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_int_equal(chain_length(pool, 20, 2), 0);
    assert_int_equal(chain_length(pool, 10, 3), 3);
    for (uint64_t left = 3; left-- > 0;) {
        assert_int_equal(evict_pages(pool, 1), 1);
        assert_int_equal(chain_length(pool, 10, 3), left);
    }
    end_pool(pool);
}

static void parents_go_by_their_own_priority_once_the_child_is_gone(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 1);
    cache_chain(pool, 10, 2, NULL);
    keep_chain(pool, 10, 2, 0, 1, keep(80, 0));
    keep_chain(pool, 10, 2, 1, 1, keep(20, 0));
    cache_chain(pool, 20, 1, NULL);
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_int_equal(chain_length(pool, 10, 2), 1);
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_int_equal(chain_length(pool, 20, 1), 0);
    assert_int_equal(chain_length(pool, 10, 2), 1);
    end_pool(pool);
}

static void retention_outlives_retain_and_release(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    pkv_page page, found;
    cache_chain(pool, 10, 1, &page);
    cache_chain(pool, 20, 1, NULL);
    keep_chain(pool, 10, 1, 0, 1, keep(90, 0));
    const pkv_token token = 10;
    const pkv_prompt prompt = prompt_of(&token, 1);
    for (int i = 0; i < 3; ++i) {
        assert_int_equal(lookup_tokens(pool, &prompt, &found, 1), 1);
        assert_ok(pkv_pool_retain(pool, 0, 1, &found));
        assert_int_equal(page_of(pool, page).priority, 90);
        release_pages(pool, &found, 1);
        release_pages(pool, &found, 1);
        assert_int_equal(page_of(pool, page).priority, 90);
    }
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_int_equal(chain_length(pool, 10, 1), 1);
    assert_int_equal(chain_length(pool, 20, 1), 0);
    end_pool(pool);
}

static void a_page_published_anew_begins_at_the_default(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(1, 1);
    pkv_page page;
    cache_chain(pool, 10, 1, &page);
    keep_chain(pool, 10, 1, 0, 1, keep(90, 0));
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_int_equal(page_of(pool, page).priority, 0); /* not published */
    cache_chain(pool, 10, 1, &page);
    assert_int_equal(page_of(pool, page).priority, PKV_PRIORITY_DEFAULT);
    end_pool(pool);
}

/* ---- pins ---- */

static void pinned_pages_are_no_room(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    pkv_page pages[4];
    cache_chain(pool, 10, 2, NULL);
    keep_chain(pool, 10, 2, 0, 2, keep(0, 1));
    cache_chain(pool, 20, 2, NULL);
    assert_int_equal(stats_of(pool).pinned_pages, 2);
    assert_int_equal(stats_of(pool).cached_pages, 4);
    assert_status(pkv_pool_alloc(pool, 0, 3, pages), PKV_ERR_NO_PAGES);
    assert_int_equal(chain_length(pool, 20, 2), 2);
    assert_ok(pkv_pool_alloc(pool, 0, 2, pages));
    assert_status(pkv_pool_alloc(pool, 0, 1, pages + 2), PKV_ERR_NO_PAGES);
    assert_int_equal(evict_pages(pool, 4), 0);
    assert_int_equal(chain_length(pool, 10, 2), 2);
    assert_int_equal(chain_length(pool, 20, 2), 0);
    release_pages(pool, pages, 2);
    end_pool(pool);
}

static void tables_get_no_pinned_pages_as_room_but_match_them(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 1);
    pkv_token tokens[5];
    count_up(tokens, 5, 10);
    cache_chain(pool, 10, 2, NULL);
    cache_chain(pool, 30, 1, NULL);
    keep_chain(pool, 10, 2, 0, 2, keep(0, 1));
    keep_chain(pool, 30, 1, 0, 1, keep(0, 1));
    const pkv_prompt prompt = prompt_of(tokens, 4), fits = prompt_of(tokens, 3);
    pkv_table *table;
    pkv_match match = PKV_MATCH_INIT;
    assert_ok(pkv_table_create(pool, &table));
    assert_status(pkv_table_admit(table, &prompt, NULL, NULL), PKV_ERR_NO_PAGES);
    assert_ok(pkv_table_admit(table, &fits, NULL, &match));
    assert_int_equal(match.tokens, 2);
    assert_status(pkv_table_reserve(table, 4), PKV_ERR_NO_PAGES);
    assert_int_equal(stats_of(pool).pinned_pages, 1); /* held ones are not cached */
    end_table(table);
    assert_int_equal(stats_of(pool).pinned_pages, 3);
    end_pool(pool);
}

static void case_B10_a_pin_is_a_flag_and_can_be_taken_back_twice(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(2, 1);
    pkv_page page;
    cache_chain(pool, 10, 1, &page);
    for (int i = 0; i < 2; ++i) keep_chain(pool, 10, 1, 0, 1, keep(50, 1));
    assert_int_equal(page_of(pool, page).pinned, 1);
    for (int i = 0; i < 2; ++i) {
        keep_chain(pool, 10, 1, 0, 1, keep(50, 0));
        assert_int_equal(page_of(pool, page).pinned, 0);
        assert_int_equal(page_of(pool, page).count, 0);
        assert_int_equal(stats_of(pool).pinned_pages, 0);
    }
    assert_int_equal(evict_pages(pool, 2), 1);
    end_pool(pool);
}

static void a_pinned_block_pins_those_before_it_and_no_other(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(16, 1);
    pkv_page pages[4], branch[4];
    const pkv_token other[4] = {10, 11, 100, 101}; /* parts after two blocks */
    const pkv_prompt prompt = prompt_of(other, 4);
    cache_chain(pool, 10, 4, pages);
    assert_int_equal(lookup_tokens(pool, &prompt, branch, 4), 2);
    assert_ok(pkv_pool_alloc(pool, 0, 2, branch + 2));
    assert_ok(pkv_pool_publish(pool, 0, &prompt, 2, 2, branch + 2, NULL));
    release_pages(pool, branch, 4);
    keep_chain(pool, 10, 4, 2, 1, keep(50, 1));
    uint64_t found = 0;
    pkv_retention pin = keep(50, 1), unpin = keep(50, 0);
    assert_ok(pkv_pool_set_retention(pool, &prompt, 3, 1, &pin, &found));
    for (int i = 0; i < 4; ++i) assert_int_equal(page_of(pool, pages[i]).pinned, i < 3);
    for (int i = 0; i < 4; ++i) assert_int_equal(page_of(pool, branch[i]).pinned, 1);
    assert_int_equal(stats_of(pool).pinned_pages, 5);
    assert_int_equal(evict_pages(pool, 16), 1);
    keep_chain(pool, 10, 3, 2, 1, unpin); /* the first two are still before the other pin */
    assert_int_equal(evict_pages(pool, 16), 1);
    assert_int_equal(probe_tokens(pool, &prompt), 4);
    assert_ok(pkv_pool_set_retention(pool, &prompt, 3, 1, &unpin, &found));
    assert_int_equal(evict_pages(pool, 16), 4);
    end_pool(pool);
}

static void clear_frees_pinned_pages(void **state) {
    (void)state;
    for (int all = 0; all < 2; ++all) {
        pkv_pool *pool = make_id_pool(8, 1);
        cache_chain(pool, 10, 4, NULL);
        keep_chain(pool, 10, 4, 3, 1, keep(100, 1));
        pkv_clear_result result = PKV_CLEAR_RESULT_INIT;
        assert_ok(all != 0 ? pkv_pool_clear_all(pool, &result) : pkv_pool_clear(pool, NULL, &result));
        assert_int_equal(result.freed, 4);
        assert_int_equal(stats_of(pool).pinned_pages, 0);
        assert_int_equal(stats_of(pool).free_pages, 8);
        end_pool(pool);
    }
}

static void a_limit_of_cached_pages_spares_pins_and_holds_again_without_them(void **state) {
    (void)state;
    pkv_group_options group = small_group(8);
    group.max_cached_pages = 2;
    pkv_pool *pool = make_pool_of(&group, 1, 0);
    pkv_token tokens[4];
    pkv_page pages[4];
    count_up(tokens, 4, 10);
    const pkv_prompt prompt = prompt_of(tokens, 4);
    publish_held(pool, &prompt, pages);
    keep_chain(pool, 10, 4, 0, 4, keep(50, 1));
    release_pages(pool, pages, 4);
    assert_int_equal(stats_of(pool).cached_pages, 4); /* "not evicted at all" */
    cache_chain(pool, 50, 1, NULL);
    assert_int_equal(chain_length(pool, 50, 1), 0);
    keep_chain(pool, 10, 4, 0, 4, keep(50, 0));
    assert_int_equal(stats_of(pool).cached_pages, 2); /* "the rest is evicted at once" */
    assert_int_equal(chain_length(pool, 10, 4), 2);
    end_pool(pool);
}

/* ---- by prompt ---- */

static void the_range_takes_in_blocks_that_hold_any_of_its_tokens(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 4);
    pkv_token tokens[34];
    pkv_page pages[8];
    count_up(tokens, 34, 1);
    const pkv_prompt prompt = prompt_of(tokens, 34);
    publish_held(pool, &prompt, pages);
    static const struct {
        uint64_t first, count, begin, end;
    } ranges[] = {{5, 6, 1, 3},           {4, 4, 1, 2}, {3, 1, 0, 1},  {0, 0, 0, 0},
                  {31, UINT64_MAX, 7, 8}, {8, 1, 2, 3}, {32, 2, 0, 0}, {100, UINT64_MAX, 0, 0},
                  {0, UINT64_MAX, 0, 8},  {3, 2, 0, 2}};
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; ++r) {
        pkv_retention retention = keep(10 + (uint32_t)r, 0), usual = PKV_RETENTION_INIT;
        uint64_t blocks = 77;
        assert_ok(pkv_pool_set_retention(pool, &prompt, 0, UINT64_MAX, &usual, NULL));
        assert_ok(pkv_pool_set_retention(pool, &prompt, ranges[r].first, ranges[r].count, &retention, &blocks));
        assert_int_equal(blocks, ranges[r].end - ranges[r].begin);
        for (uint64_t i = 0; i < 8; ++i)
            assert_int_equal(page_of(pool, pages[i]).priority,
                             i >= ranges[r].begin && i < ranges[r].end ? 10 + r : PKV_PRIORITY_DEFAULT);
    }
    release_pages(pool, pages, 8);
    end_pool(pool);
}

static void what_is_not_published_is_not_set_and_no_error(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 4);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    const pkv_prompt prompt = prompt_of(tokens, 16), head = prompt_of(tokens, 8), none = prompt_of(NULL, 0);
    const pkv_retention pin = keep(100, 1);
    uint64_t blocks = 77;
    assert_ok(pkv_pool_set_retention(pool, &prompt, 0, UINT64_MAX, &pin, &blocks));
    assert_int_equal(blocks, 0);
    publish_cached(pool, &head);
    assert_ok(pkv_pool_set_retention(pool, &prompt, 0, UINT64_MAX, &pin, &blocks));
    assert_int_equal(blocks, 2);
    assert_ok(pkv_pool_set_retention(pool, &none, 0, UINT64_MAX, &pin, &blocks));
    assert_int_equal(blocks, 0);
    assert_int_equal(stats_of(pool).pinned_pages, 2);
    assert_int_equal(stats_of(pool).namespaces, 1);
    end_pool(pool);
}

static void bad_values_are_refused_by_name(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    pkv_page page;
    cache_chain(pool, 10, 1, &page);
    const pkv_token token = 10;
    const pkv_prompt prompt = prompt_of(&token, 1);
    pkv_table *table = admit(pool, &prompt, NULL);
    static const struct {
        pkv_retention retention;
        const char *field, *value;
    } bad[] = {{{sizeof(pkv_retention), 101, 0, 0}, "priority", "101"},
               {{sizeof(pkv_retention), UINT32_MAX, 0, 0}, "priority", "4294967295"},
               {{sizeof(pkv_retention), 50, 2, 0}, "pin", "2"},
               {{sizeof(pkv_retention), 50, -1, 0}, "pin", "-1"},
               {{0, 50, 0, 0}, "struct_size", "0"}};
    uint64_t blocks = 77;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i)
        for (int way = 0; way < 3; ++way) {
            const pkv_retention *how = &bad[i].retention;
            assert_status(way == 0   ? pkv_pool_set_retention(pool, &prompt, 0, 1, how, &blocks)
                          : way == 1 ? pkv_pool_set_namespace_retention(pool, NULL, how)
                                     : pkv_table_set_retention(table, 0, 1, how),
                          PKV_ERR_INVALID);
            assert_message(bad[i].field);
            assert_message(bad[i].value);
        }
    assert_status(pkv_pool_set_retention(pool, &prompt, 0, 1, NULL, &blocks), PKV_ERR_INVALID);
    assert_status(pkv_table_set_retention(table, 0, 1, NULL), PKV_ERR_INVALID);
    const pkv_retention pin = keep(90, 1);
    assert_status(pkv_pool_set_retention(pool, NULL, 0, 1, &pin, &blocks), PKV_ERR_INVALID);
    assert_int_equal(blocks, 77);
    assert_int_equal(page_of(pool, page).priority, PKV_PRIORITY_DEFAULT);
    assert_int_equal(page_of(pool, page).pinned, 0);
    end_table(table);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_101_priorities_the_lowest_goes_first),
        cmocka_unit_test(alloc_takes_the_lowest_priority_too),
        cmocka_unit_test(what_is_released_at_a_priority_goes_in_order_of_release),
        cmocka_unit_test(a_kept_child_keeps_its_parents),
        cmocka_unit_test(parents_go_by_their_own_priority_once_the_child_is_gone),
        cmocka_unit_test(retention_outlives_retain_and_release),
        cmocka_unit_test(a_page_published_anew_begins_at_the_default),
        cmocka_unit_test(pinned_pages_are_no_room),
        cmocka_unit_test(tables_get_no_pinned_pages_as_room_but_match_them),
        cmocka_unit_test(case_B10_a_pin_is_a_flag_and_can_be_taken_back_twice),
        cmocka_unit_test(a_pinned_block_pins_those_before_it_and_no_other),
        cmocka_unit_test(clear_frees_pinned_pages),
        cmocka_unit_test(a_limit_of_cached_pages_spares_pins_and_holds_again_without_them),
        cmocka_unit_test(the_range_takes_in_blocks_that_hold_any_of_its_tokens),
        cmocka_unit_test(what_is_not_published_is_not_set_and_no_error),
        cmocka_unit_test(bad_values_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
