/* SPDX-License-Identifier: Apache-2.0 */
/* Field case Q14 where a call works in several groups, or on blocks that are shared; as no_memory.c. */
#include "capi/allocation.h"

enum { page_tokens = 4 };

/* A full group and two window groups; 40 tokens committed. */
static pkv_pool *make_windows(pkv_table **table) {
    pkv_group_options groups[3] = {small_group(32), small_group(32), small_group(32)};
    for (int i = 1; i < 3; ++i) {
        groups[i].attention = PKV_ATTENTION_WINDOW;
        groups[i].window = 4;
    }
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 3;
    options.groups = groups;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    const pkv_prompt none = prompt_of(NULL, 0);
    *table = admit(pool, &none, NULL);
    assert_ok(pkv_table_reserve(*table, 40));
    assert_ok(pkv_table_commit(*table, 40, NULL));
    return pool;
}

static void case_Q14_a_window_without_memory_moves_in_no_group(void **state) {
    (void)state;
    if (!hooks_work()) skip();
    pkv_status status = PKV_ERR_NO_MEMORY;
    for (uint64_t n = 0; status != PKV_OK; ++n) {
        pkv_table *table;
        pkv_pool *pool = make_windows(&table);
        fail_once = true;
        countdown = n;
        status = pkv_table_window(table, NULL);
        countdown = UINT64_MAX;
        if (status != PKV_OK) assert_int_equal(status, PKV_ERR_NO_MEMORY);
        pkv_page pages[10];
        uint64_t blocks;
        for (uint32_t group = 1; group < 3; ++group) {
            assert_ok(pkv_table_pages(table, group, pages, 10, &blocks));
            assert_true((pages[0] == PKV_NO_PAGE) == (status == PKV_OK));
        }
        assert_ok(pkv_table_window(table, NULL));
        end_table(table);
        end_pool(pool);
        assert_true(n < 100);
    }
}

static void case_Q14_drafts_in_a_shared_block_are_accepted_or_stay(void **state) {
    (void)state;
    if (!hooks_work()) skip();
    pkv_status status = PKV_ERR_NO_MEMORY;
    for (uint64_t n = 0; status != PKV_OK; ++n) {
        pkv_pool *pool = make_pool(16, page_tokens);
        const pkv_prompt none = prompt_of(NULL, 0);
        pkv_table *table = admit(pool, &none, NULL);
        write_and_commit(table, 6, 1);
        assert_ok(pkv_table_reserve(table, 12));
        write_rows(table, 6, 6, 1);
        pkv_table *fork = fork_of(table);
        const pkv_pool_stats before = stats_of(pool);
        const uint64_t positions[2] = {7, 9};
        fail_once = true;
        countdown = n;
        status = pkv_table_accept(table, 2, positions, NULL);
        countdown = UINT64_MAX;
        if (status != PKV_OK) {
            assert_int_equal(status, PKV_ERR_NO_MEMORY);
            const pkv_pool_stats after = stats_of(pool);
            assert_same_stats(&before, &after);
            assert_int_equal(info_of(table).committed, 6);
            assert_ok(pkv_table_accept(table, 2, positions, NULL));
        }
        assert_int_equal(info_of(table).committed, 8);
        check_rows(table, 0, 6, 1);
        end_table(fork);
        end_table(table);
        end_pool(pool);
        assert_true(n < 100);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_Q14_a_window_without_memory_moves_in_no_group),
        cmocka_unit_test(case_Q14_drafts_in_a_shared_block_are_accepted_or_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
