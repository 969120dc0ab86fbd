/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of pages: alloc, retain, release, and what happens when a caller gets them wrong. Field cases B. */
#include "support/support.h"

static void case_B01_second_release_is_an_error_and_frees_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_page page;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &page));
    assert_ok(pkv_pool_release(pool, 0, 1, &page, NULL, NULL));
    assert_status(pkv_pool_release(pool, 0, 1, &page, NULL, NULL), PKV_ERR_STATE);
    pkv_page two[2];
    assert_ok(pkv_pool_alloc(pool, 0, 1, &two[0]));
    assert_ok(pkv_pool_alloc(pool, 0, 1, &two[1]));
    assert_int_not_equal(two[0], two[1]);
    assert_int_equal(stats_of(pool).free_pages, 6);
    assert_ok(pkv_pool_release(pool, 0, 2, two, NULL, NULL));
    end_pool(pool);
}

static void case_B02_second_release_of_a_cached_page_leaves_it_cached_once(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_token tokens[4];
    count_up(tokens, 4, 1);
    const pkv_prompt prompt = prompt_of(tokens, 4);
    pkv_page page;
    publish_held(pool, &prompt, &page);
    assert_ok(pkv_pool_release(pool, 0, 1, &page, NULL, NULL));
    assert_status(pkv_pool_release(pool, 0, 1, &page, NULL, NULL), PKV_ERR_STATE);
    assert_int_equal(stats_of(pool).cached_pages, 1);
    uint64_t evicted = 0;
    assert_ok(pkv_pool_evict(pool, 0, 2, &evicted));
    assert_int_equal(evicted, 1);
    assert_int_equal(stats_of(pool).free_pages, 8);
    end_pool(pool);
}

static void a_page_listed_twice_but_held_once_releases_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_page pages[2];
    assert_ok(pkv_pool_alloc(pool, 0, 2, pages));
    const pkv_page list[3] = {pages[0], pages[1], pages[0]};
    assert_status(pkv_pool_release(pool, 0, 3, list, NULL, NULL), PKV_ERR_STATE);
    assert_int_equal(page_of(pool, pages[0]).count, 1);
    assert_int_equal(page_of(pool, pages[1]).count, 1);
    assert_ok(pkv_pool_retain(pool, 0, 1, pages));
    assert_ok(pkv_pool_release(pool, 0, 3, list, NULL, NULL));
    end_pool(pool);
}

static void case_B04_finish_and_abort_in_one_step_give_the_pages_back_once(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_token tokens[9];
    count_up(tokens, 9, 1);
    const pkv_prompt prompt = prompt_of(tokens, 9);
    pkv_table *table = admit(pool, &prompt, NULL);
    assert_int_equal(stats_of(pool).free_pages, 5);
    assert_ok(pkv_table_clear(table, NULL)); /* finish */
    assert_int_equal(stats_of(pool).free_pages, 8);
    assert_ok(pkv_table_clear(table, NULL)); /* abort */
    assert_ok(pkv_table_destroy(table, NULL));
    assert_int_equal(stats_of(pool).free_pages, 8);
    assert_int_equal(stats_of(pool).allocated_pages, 3);
    end_pool(pool);
}

static void case_B05_page_at_two_places_of_a_table_counts_twice_for_each_holder(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_page pages[2];
    assert_ok(pkv_pool_alloc(pool, 0, 2, pages));
    const pkv_page table[3] = {pages[0], pages[1], pages[0]};
    assert_ok(pkv_pool_retain(pool, 0, 1, pages)); /* its second place */
    assert_ok(pkv_pool_retain(pool, 0, 3, table)); /* the fork */
    assert_int_equal(page_of(pool, pages[0]).count, 4);
    assert_int_equal(page_of(pool, pages[1]).count, 2);
    release_pages(pool, table, 3);
    release_pages(pool, table, 3);
    assert_int_equal(page_of(pool, pages[0]).count, 0);
    assert_int_equal(page_of(pool, pages[1]).count, 0);
    assert_int_equal(stats_of(pool).free_pages, 8);
    end_pool(pool);
}

static void case_B07_minus_one_pages_are_invalid_and_none_are_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_page page = 77;
    assert_status(pkv_pool_alloc(pool, 0, (uint64_t)-1, &page), PKV_ERR_INVALID);
    assert_ok(pkv_pool_alloc(pool, 0, 0, &page));
    assert_ok(pkv_pool_alloc(pool, 0, 0, NULL));
    assert_int_equal(page, 77);
    assert_int_equal(stats_of(pool).free_pages, 8);
    assert_int_equal(stats_of(pool).allocated_pages, 0);
    end_pool(pool);
}

static void empty_lists_are_no_error(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(2, 4);
    assert_ok(pkv_pool_retain(pool, 0, 0, NULL));
    assert_ok(pkv_pool_release(pool, 0, 0, NULL, NULL, NULL));
    assert_int_equal(evict_pages(pool, 0), 0);
    assert_ok(pkv_pool_evict(pool, 0, 1, NULL));
    end_pool(pool);
}

static void null_lists_and_other_groups_are_invalid(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(2, 4);
    pkv_page page = 0;
    assert_status(pkv_pool_alloc(pool, 0, 1, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_retain(pool, 0, 1, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_release(pool, 0, 1, NULL, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_alloc(pool, 1, 1, &page), PKV_ERR_INVALID);
    assert_status(pkv_pool_retain(pool, 1, 1, &page), PKV_ERR_INVALID);
    assert_status(pkv_pool_release(pool, 1, 1, &page, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_evict(pool, 1, 1, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_evict(pool, UINT32_MAX, 1, NULL), PKV_ERR_INVALID);
    end_pool(pool);
}

static void case_B08_evict_takes_no_count_of_a_page_in_use(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_token tokens[4];
    count_up(tokens, 4, 1);
    const pkv_prompt prompt = prompt_of(tokens, 4);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 4, 8);
    pkv_page page;
    uint64_t blocks;
    assert_ok(pkv_table_pages(table, 0, &page, 1, &blocks));
    assert_int_equal(page_of(pool, page).published, 1);
    assert_int_equal(evict_pages(pool, 8), 0);
    assert_int_equal(page_of(pool, page).count, 1);
    assert_int_equal(page_of(pool, page).state, PKV_PAGE_HELD);
    assert_int_equal(stats_of(pool).free_pages, 7);
    check_rows(table, 0, 4, 8);
    assert_ok(pkv_table_destroy(table, NULL));
    end_pool(pool);
}

static void case_B10_release_after_the_last_count_of_a_hit_is_an_error(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_token tokens[4];
    count_up(tokens, 4, 1);
    const pkv_prompt prompt = prompt_of(tokens, 4);
    publish_cached(pool, &prompt);
    pkv_page page;
    assert_int_equal(lookup_tokens(pool, &prompt, &page, 1), 4);
    assert_ok(pkv_pool_release(pool, 0, 1, &page, NULL, NULL));
    assert_status(pkv_pool_release(pool, 0, 1, &page, NULL, NULL), PKV_ERR_STATE);
    assert_int_equal(page_of(pool, page).count, 0);
    assert_int_equal(page_of(pool, page).state, PKV_PAGE_CACHED);
    end_pool(pool);
}

static void case_B13_evicting_twice_frees_each_page_once(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_token tokens[12];
    count_up(tokens, 12, 1);
    const pkv_prompt prompt = prompt_of(tokens, 12);
    publish_cached(pool, &prompt);
    assert_int_equal(stats_of(pool).free_pages, 5);
    assert_int_equal(evict_pages(pool, 3), 3);
    assert_int_equal(evict_pages(pool, 3), 0);
    assert_int_equal(stats_of(pool).free_pages, 8);
    pkv_page all[9];
    assert_status(pkv_pool_alloc(pool, 0, 9, all), PKV_ERR_NO_PAGES);
    assert_ok(pkv_pool_alloc(pool, 0, 8, all));
    for (int i = 0; i < 8; ++i)
        for (int j = 0; j < i; ++j) assert_int_not_equal(all[i], all[j]);
    release_pages(pool, all, 8);
    end_pool(pool);
}

static void case_B14_one_bad_page_of_four_does_not_stop_the_others(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_page pages[4];
    assert_ok(pkv_pool_alloc(pool, 0, 4, pages));
    const pkv_page gone = pages[1];
    release_pages(pool, &gone, 1);
    pkv_status statuses[4] = {1, 1, 1, 1};
    assert_status(pkv_pool_release(pool, 0, 4, pages, statuses, NULL), PKV_ERR_STATE);
    const pkv_status expected[4] = {PKV_OK, PKV_ERR_STATE, PKV_OK, PKV_OK};
    assert_memory_equal(statuses, expected, sizeof expected);
    assert_int_equal(stats_of(pool).free_pages, 8);
    end_pool(pool);
}

static void case_B14_one_stale_handle_of_four_does_not_stop_the_others(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_table *tables[4];
    for (int i = 0; i < 4; ++i) assert_ok(pkv_table_create(pool, &tables[i]));
    assert_ok(pkv_table_destroy(tables[2], NULL));
    int ended = 0;
    int errors = 0;
    for (int i = 0; i < 4; ++i) {
        const pkv_status status = pkv_table_destroy(tables[i], NULL);
        ended += status == PKV_OK;
        errors += status == PKV_ERR_HANDLE;
    }
    assert_int_equal(ended, 3);
    assert_int_equal(errors, 1);
    end_pool(pool);
}

static void release_reports_the_first_page_in_the_list_that_failed(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_page page;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &page));
    const pkv_page list[3] = {page, 8, 5};
    assert_status(pkv_pool_release(pool, 0, 3, list, NULL, NULL), PKV_ERR_INVALID);
    assert_message("page 8");
    assert_int_equal(page_of(pool, page).count, 1);
    const pkv_page other[3] = {page, 5, PKV_NO_PAGE};
    pkv_status statuses[3];
    assert_status(pkv_pool_release(pool, 0, 3, other, statuses, NULL), PKV_ERR_STATE);
    assert_message("page 5");
    const pkv_status expected[3] = {PKV_OK, PKV_ERR_STATE, PKV_ERR_INVALID};
    assert_memory_equal(statuses, expected, sizeof expected);
    end_pool(pool);
}

static void case_B16_page_taken_by_a_hit_keeps_its_key(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_token tokens[4];
    count_up(tokens, 4, 1);
    const pkv_prompt prompt = prompt_of(tokens, 4);
    publish_cached(pool, &prompt);
    pkv_page first;
    pkv_page second;
    assert_int_equal(lookup_tokens(pool, &prompt, &first, 1), 4);
    assert_int_equal(lookup_tokens(pool, &prompt, &second, 1), 4);
    assert_int_equal(first, second);
    assert_int_equal(page_of(pool, first).count, 2);
    assert_int_equal(page_of(pool, first).published, 1);
    release_pages(pool, &first, 1);
    release_pages(pool, &second, 1);
    assert_int_equal(lookup_tokens(pool, &prompt, &first, 1), 4);
    release_pages(pool, &first, 1);
    end_pool(pool);
}

static void case_B17_clone_has_counts_of_its_own_and_closes_once(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_token tokens[6];
    count_up(tokens, 6, 1);
    const pkv_prompt prompt = prompt_of(tokens, 6);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 6, 1);
    pkv_table *clone;
    assert_ok(pkv_table_fork(table, NULL, &clone));
    pkv_page pages[2];
    uint64_t blocks;
    assert_ok(pkv_table_pages(clone, 0, pages, 2, &blocks));
    assert_int_equal(page_of(pool, pages[0]).count, 2);
    assert_int_equal(page_of(pool, pages[1]).count, 2);
    assert_ok(pkv_table_destroy(table, NULL));
    assert_status(pkv_table_destroy(table, NULL), PKV_ERR_HANDLE);
    assert_int_equal(page_of(pool, pages[1]).count, 1);
    check_rows(clone, 0, 6, 1);
    assert_ok(pkv_table_destroy(clone, NULL));
    assert_status(pkv_table_destroy(clone, NULL), PKV_ERR_HANDLE);
    assert_int_equal(stats_of(pool).free_pages + stats_of(pool).cached_pages, 8);
    end_pool(pool);
}

static void retain_of_a_list_with_one_bad_page_changes_no_count(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_token tokens[4];
    count_up(tokens, 4, 1);
    const pkv_prompt prompt = prompt_of(tokens, 4);
    pkv_page cached;
    publish_held(pool, &prompt, &cached);
    pkv_page held;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &held));
    release_pages(pool, &cached, 1);
    const struct {
        pkv_page bad;
        pkv_status status;
    } cases[] = {{7, PKV_ERR_STATE},           {cached, PKV_ERR_STATE},
                 {8, PKV_ERR_INVALID},         {PKV_NO_PAGE, PKV_ERR_INVALID},
                 {INT32_MAX, PKV_ERR_INVALID}, {INT32_MIN, PKV_ERR_INVALID}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        const pkv_page list[2] = {held, cases[i].bad};
        assert_status(pkv_pool_retain(pool, 0, 2, list), cases[i].status);
        assert_int_equal(page_of(pool, held).count, 1);
        pkv_page_info info = PKV_PAGE_INFO_INIT;
        if (cases[i].status == PKV_ERR_INVALID)
            assert_status(pkv_pool_page_info(pool, 0, cases[i].bad, &info), PKV_ERR_INVALID);
    }
    assert_int_equal(page_of(pool, cached).state, PKV_PAGE_CACHED);
    release_pages(pool, &held, 1);
    end_pool(pool);
}

static void count_is_allocs_plus_retains_minus_releases(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    pkv_page page;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &page));
    const pkv_page twice[2] = {page, page};
    uint64_t expected = 1;
    test_random random = {2024};
    for (int step = 0; step < 2000; ++step) {
        const bool up = expected < 3 || random_below(&random, 2) == 0;
        assert_ok(up ? pkv_pool_retain(pool, 0, 2, twice) : pkv_pool_release(pool, 0, 2, twice, NULL, NULL));
        expected = up ? expected + 2 : expected - 2;
        assert_int_equal(page_of(pool, page).count, expected);
        assert_int_equal(stats_of(pool).held_pages, 1);
    }
    for (; expected > 0; --expected) release_pages(pool, &page, 1);
    assert_int_equal(page_of(pool, page).state, PKV_PAGE_FREE);
    end_pool(pool);
}

static void page_info_tells_free_held_cached_and_the_block(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    pkv_token tokens[8];
    count_up(tokens, 8, 1);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    pkv_page pages[2];
    publish_held(pool, &prompt, pages);
    assert_int_equal(page_of(pool, pages[1]).state, PKV_PAGE_HELD);
    assert_int_equal(page_of(pool, pages[1]).published, 1);
    assert_int_equal(page_of(pool, pages[0]).block, 0);
    assert_int_equal(page_of(pool, pages[1]).block, 1);
    assert_int_equal(page_of(pool, 3).state, PKV_PAGE_FREE);
    assert_int_equal(page_of(pool, 3).published, 0);
    release_pages(pool, pages, 2);
    assert_int_equal(page_of(pool, pages[1]).state, PKV_PAGE_CACHED);
    assert_int_equal(page_of(pool, pages[1]).block, 1);
    pkv_page_info info = PKV_PAGE_INFO_INIT;
    assert_status(pkv_pool_page_info(pool, 1, 0, &info), PKV_ERR_INVALID);
    assert_status(pkv_pool_page_info(pool, 0, 0, NULL), PKV_ERR_INVALID);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_B01_second_release_is_an_error_and_frees_nothing),
        cmocka_unit_test(case_B02_second_release_of_a_cached_page_leaves_it_cached_once),
        cmocka_unit_test(a_page_listed_twice_but_held_once_releases_nothing),
        cmocka_unit_test(case_B04_finish_and_abort_in_one_step_give_the_pages_back_once),
        cmocka_unit_test(case_B05_page_at_two_places_of_a_table_counts_twice_for_each_holder),
        cmocka_unit_test(case_B07_minus_one_pages_are_invalid_and_none_are_nothing),
        cmocka_unit_test(empty_lists_are_no_error),
        cmocka_unit_test(null_lists_and_other_groups_are_invalid),
        cmocka_unit_test(case_B08_evict_takes_no_count_of_a_page_in_use),
        cmocka_unit_test(case_B10_release_after_the_last_count_of_a_hit_is_an_error),
        cmocka_unit_test(case_B13_evicting_twice_frees_each_page_once),
        cmocka_unit_test(case_B14_one_bad_page_of_four_does_not_stop_the_others),
        cmocka_unit_test(case_B14_one_stale_handle_of_four_does_not_stop_the_others),
        cmocka_unit_test(release_reports_the_first_page_in_the_list_that_failed),
        cmocka_unit_test(case_B16_page_taken_by_a_hit_keeps_its_key),
        cmocka_unit_test(case_B17_clone_has_counts_of_its_own_and_closes_once),
        cmocka_unit_test(retain_of_a_list_with_one_bad_page_changes_no_count),
        cmocka_unit_test(count_is_allocs_plus_retains_minus_releases),
        cmocka_unit_test(page_info_tells_free_held_cached_and_the_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
