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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_B01_second_release_is_an_error_and_frees_nothing),
        cmocka_unit_test(case_B02_second_release_of_a_cached_page_leaves_it_cached_once),
        cmocka_unit_test(a_page_listed_twice_but_held_once_releases_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
