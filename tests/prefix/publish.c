/* SPDX-License-Identifier: Apache-2.0 */
/* Publishing pages: what becomes findable, duplicates, and all that is refused with nothing changed. */
#include "support/support.h"

enum { page_tokens = 4 };

static pkv_token tokens[32];

static pkv_pool *begin(uint64_t num_pages) {
    count_up(tokens, 32, 1);
    return make_id_pool(num_pages, page_tokens);
}

static void pages_become_findable_in_the_given_order(void **state) {
    (void)state;
    pkv_pool *pool = begin(8);
    const pkv_prompt prompt = prompt_of(tokens, 18); /* 4 blocks and a rest */
    pkv_page pages[4];
    pkv_page owner[4] = {77, 77, 77, 77};
    assert_ok(pkv_pool_alloc(pool, 0, 4, pages));
    const pkv_page mixed[4] = {pages[2], pages[0], pages[3], pages[1]};
    assert_ok(pkv_pool_publish(pool, 0, &prompt, 0, 4, mixed, owner));
    assert_memory_equal(owner, mixed, sizeof owner);
    pkv_page found[4];
    assert_int_equal(lookup_tokens(pool, &prompt, found, 4), 16);
    assert_memory_equal(found, mixed, sizeof found);
    assert_int_equal(stats_of(pool).published_blocks, 4);
    release_pages(pool, found, 4);
    release_pages(pool, pages, 4);
    end_pool(pool);
}

static void blocks_can_be_published_one_after_the_other(void **state) {
    (void)state;
    pkv_pool *pool = begin(8);
    pkv_page pages[4];
    assert_ok(pkv_pool_alloc(pool, 0, 4, pages));
    for (uint64_t block = 0; block < 4; ++block) {
        const pkv_prompt prompt = prompt_of(tokens, (block + 1) * page_tokens);
        assert_ok(pkv_pool_publish(pool, 0, &prompt, block, 1, &pages[block], NULL));
        const pkv_prompt whole = prompt_of(tokens, 16);
        assert_int_equal(probe_tokens(pool, &whole), (block + 1) * page_tokens);
    }
    release_pages(pool, pages, 4);
    end_pool(pool);
}

static void publishing_again_changes_nothing(void **state) {
    (void)state;
    pkv_pool *pool = begin(8);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    pkv_page pages[2];
    publish_held(pool, &prompt, pages);
    const pkv_pool_stats before = stats_of(pool);
    pkv_page owner[2];
    assert_ok(pkv_pool_publish(pool, 0, &prompt, 0, 2, pages, owner));
    assert_ok(pkv_pool_publish(pool, 0, &prompt, 1, 1, &pages[1], NULL));
    const pkv_pool_stats after = stats_of(pool);
    assert_same_stats(&before, &after);
    assert_memory_equal(owner, pages, sizeof owner);
    release_pages(pool, pages, 2);
    end_pool(pool);
}

static void duplicate_of_a_held_block_leaves_it_its_page(void **state) {
    (void)state;
    pkv_pool *pool = begin(8);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    pkv_page first[2];
    pkv_page second[2];
    pkv_page owner[2];
    publish_held(pool, &prompt, first);
    assert_ok(pkv_pool_alloc(pool, 0, 2, second));
    assert_ok(pkv_pool_publish(pool, 0, &prompt, 0, 2, second, owner));
    assert_memory_equal(owner, first, sizeof owner);
    assert_int_equal(stats_of(pool).duplicate_blocks, 2);
    assert_int_equal(stats_of(pool).index_blocks, 2);
    assert_int_equal(page_of(pool, second[0]).published, 0);
    release_pages(pool, second, 2); /* without a name they become free at once */
    assert_int_equal(stats_of(pool).free_pages, 6);
    release_pages(pool, first, 2);
    assert_int_equal(stats_of(pool).cached_pages, 2);
    end_pool(pool);
}

static void duplicate_of_a_cached_block_takes_its_place_and_no_page_is_lost(void **state) {
    (void)state;
    pkv_pool *pool = begin(8);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    pkv_page first[2];
    pkv_page second[2];
    pkv_page owner[2];
    publish_held(pool, &prompt, first);
    release_pages(pool, first, 2);
    assert_ok(pkv_pool_alloc(pool, 0, 2, second));
    assert_ok(pkv_pool_publish(pool, 0, &prompt, 0, 2, second, owner));
    assert_memory_equal(owner, second, sizeof owner);
    assert_int_equal(stats_of(pool).duplicate_blocks, 2);
    assert_int_equal(stats_of(pool).cached_pages, 0);
    assert_int_equal(stats_of(pool).free_pages, 6);
    for (int i = 0; i < 2; ++i) assert_int_equal(page_of(pool, first[i]).state, PKV_PAGE_FREE);
    pkv_page found[2];
    assert_int_equal(lookup_tokens(pool, &prompt, found, 2), 8);
    assert_memory_equal(found, second, sizeof found);
    release_pages(pool, found, 2);
    release_pages(pool, second, 2);
    assert_int_equal(evict_pages(pool, 8), 2);
    assert_int_equal(stats_of(pool).free_pages, 8);
    end_pool(pool);
}

static void a_replaced_parent_keeps_its_children(void **state) {
    (void)state;
    pkv_pool *pool = begin(8);
    const pkv_prompt prompt = prompt_of(tokens, 12);
    const pkv_prompt head = prompt_of(tokens, 4);
    publish_cached(pool, &prompt);
    pkv_page fresh;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &fresh));
    assert_ok(pkv_pool_publish(pool, 0, &head, 0, 1, &fresh, NULL));
    pkv_page found[3];
    assert_int_equal(lookup_tokens(pool, &prompt, found, 3), 12);
    assert_int_equal(found[0], fresh);
    release_pages(pool, found, 3);
    release_pages(pool, &fresh, 1);
    for (uint64_t left = 3; left-- > 0;) {
        assert_int_equal(evict_pages(pool, 1), 1);
        assert_int_equal(probe_tokens(pool, &prompt), 4 * left);
    }
    end_pool(pool);
}

/* The call fails with this status, and nothing is changed. */
static void check_refused(pkv_pool *pool, const pkv_prompt *prompt, uint64_t first, uint64_t count,
                          const pkv_page *pages, pkv_status status) {
    const pkv_pool_stats before = stats_of(pool);
    pkv_page owner[8] = {77, 77, 77, 77, 77, 77, 77, 77};
    assert_status(pkv_pool_publish(pool, 0, prompt, first, count, pages, owner), status);
    const pkv_pool_stats after = stats_of(pool);
    assert_same_stats(&before, &after);
    for (int i = 0; i < 8; ++i) assert_int_equal(owner[i], 77);
}

static void without_its_parents_a_block_is_not_found(void **state) {
    (void)state;
    pkv_pool *pool = begin(8);
    const pkv_prompt prompt = prompt_of(tokens, 16);
    pkv_page pages[4];
    assert_ok(pkv_pool_alloc(pool, 0, 4, pages));
    for (uint64_t first = 1; first < 4; ++first)
        check_refused(pool, &prompt, first, 1, &pages[first], PKV_ERR_NOT_FOUND);
    assert_ok(pkv_pool_publish(pool, 0, &prompt, 0, 1, pages, NULL));
    check_refused(pool, &prompt, 2, 2, &pages[2], PKV_ERR_NOT_FOUND);
    assert_message("block 1");
    release_pages(pool, pages, 4);
    end_pool(pool);
}

static void pages_that_are_not_held_are_refused(void **state) {
    (void)state;
    pkv_pool *pool = begin(8);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    const pkv_token other[4] = {7, 7, 7, 7};
    const pkv_prompt cached = prompt_of(other, 4);
    pkv_page pages[2];
    publish_held(pool, &cached, pages);
    release_pages(pool, pages, 1); /* now a cached page */
    assert_ok(pkv_pool_alloc(pool, 0, 1, &pages[1]));
    const pkv_page with_cached[2] = {pages[1], pages[0]};
    check_refused(pool, &prompt, 0, 2, with_cached, PKV_ERR_STATE);
    const pkv_page with_free[2] = {pages[1], 7};
    check_refused(pool, &prompt, 0, 2, with_free, PKV_ERR_STATE);
    assert_message("page 7");
    release_pages(pool, &pages[1], 1);
    end_pool(pool);
}

static void a_page_has_one_name_only(void **state) {
    (void)state;
    pkv_pool *pool = begin(8);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    pkv_page pages[2];
    publish_held(pool, &prompt, pages);
    const pkv_token other[8] = {7, 7, 7, 7, 8, 8, 8, 8};
    const pkv_prompt another = prompt_of(other, 8);
    check_refused(pool, &another, 0, 2, pages, PKV_ERR_STATE);
    const pkv_page swapped[2] = {pages[1], pages[0]};
    check_refused(pool, &prompt, 0, 2, swapped, PKV_ERR_STATE);
    pkv_namespace ns = PKV_NAMESPACE_INIT;
    ns.salt = bytes_of("s");
    pkv_prompt elsewhere = prompt;
    elsewhere.ns = &ns;
    check_refused(pool, &elsewhere, 0, 2, pages, PKV_ERR_STATE);
    release_pages(pool, pages, 2);
    end_pool(pool);
}

static void bad_arguments_are_invalid(void **state) {
    (void)state;
    pkv_pool *pool = begin(8);
    const pkv_prompt prompt = prompt_of(tokens, 11); /* 2 whole blocks */
    pkv_page pages[4];
    assert_ok(pkv_pool_alloc(pool, 0, 4, pages));
    check_refused(pool, &prompt, 0, 3, pages, PKV_ERR_INVALID);
    check_refused(pool, &prompt, 3, 0, pages, PKV_ERR_INVALID);
    check_refused(pool, &prompt, 1, UINT64_MAX, pages, PKV_ERR_INVALID);
    check_refused(pool, &prompt, UINT64_MAX, 2, pages, PKV_ERR_INVALID);
    check_refused(pool, &prompt, 0, 2, NULL, PKV_ERR_INVALID);
    check_refused(pool, NULL, 0, 1, pages, PKV_ERR_INVALID);
    const pkv_page out_of_range[3][2] = {{pages[0], 8}, {PKV_NO_PAGE, pages[0]}, {INT32_MAX, INT32_MIN}};
    for (int i = 0; i < 3; ++i) check_refused(pool, &prompt, 0, 2, out_of_range[i], PKV_ERR_INVALID);
    const pkv_page twice[2] = {pages[0], pages[0]};
    check_refused(pool, &prompt, 0, 2, twice, PKV_ERR_INVALID);
    assert_status(pkv_pool_publish(pool, 1, &prompt, 0, 1, pages, NULL), PKV_ERR_INVALID);
    assert_int_equal(stats_of(pool).namespaces, 0);
    assert_ok(pkv_pool_publish(pool, 0, &prompt, 2, 0, NULL, NULL));
    release_pages(pool, pages, 4);
    end_pool(pool);
}

static void tables_adopt_the_name_that_another_page_has(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    count_up(tokens, 32, 1);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    pkv_table *tables[2];
    for (int i = 0; i < 2; ++i) tables[i] = admit(pool, &prompt, NULL); /* both miss */
    for (int i = 0; i < 2; ++i) write_and_commit(tables[i], 8, 3);
    assert_int_equal(stats_of(pool).index_blocks, 2);
    assert_int_equal(stats_of(pool).duplicate_blocks, 2);
    assert_int_equal(info_of(tables[1]).published, 8);
    assert_ok(pkv_table_destroy(tables[1], NULL));
    assert_int_equal(stats_of(pool).free_pages, 6);
    assert_int_equal(probe_tokens(pool, &prompt), 8);
    assert_ok(pkv_table_destroy(tables[0], NULL));
    end_pool(pool);
}

static void a_sequence_whose_first_blocks_were_evicted_publishes_them_again(void **state) {
    (void)state;
    pkv_pool *pool = begin(8);
    pkv_prompt prompt = prompt_of(tokens, 8);
    pkv_table *table = admit(pool, &prompt, NULL);
    assert_ok(pkv_table_commit(table, 8, NULL));
    pkv_page pages[3];
    uint64_t blocks;
    assert_ok(pkv_table_pages(table, 0, pages, 3, &blocks));
    /* Blocks of its own cannot be evicted; blocks that are other tables' pages can. */
    pkv_table *twin;
    assert_ok(pkv_table_create(pool, &twin));
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.flags = PKV_ADMIT_NO_MATCH;
    options.reserve_tokens = 12;
    assert_ok(pkv_table_admit(twin, &prompt, &options, NULL));
    assert_ok(pkv_table_commit(twin, 8, NULL)); /* duplicates: the names stay with the first table's pages */
    assert_ok(pkv_table_destroy(table, NULL));
    assert_int_equal(evict_pages(pool, 8), 2);
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_ok(pkv_table_set_tokens(twin, 8, 4, tokens + 8));
    assert_ok(pkv_table_commit(twin, 12, NULL));
    prompt.num_tokens = 12;
    assert_int_equal(probe_tokens(pool, &prompt), 12);
    assert_int_equal(info_of(twin).published, 12);
    assert_ok(pkv_table_destroy(twin, NULL));
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_become_findable_in_the_given_order),
        cmocka_unit_test(blocks_can_be_published_one_after_the_other),
        cmocka_unit_test(publishing_again_changes_nothing),
        cmocka_unit_test(duplicate_of_a_held_block_leaves_it_its_page),
        cmocka_unit_test(duplicate_of_a_cached_block_takes_its_place_and_no_page_is_lost),
        cmocka_unit_test(a_replaced_parent_keeps_its_children),
        cmocka_unit_test(without_its_parents_a_block_is_not_found),
        cmocka_unit_test(pages_that_are_not_held_are_refused),
        cmocka_unit_test(a_page_has_one_name_only),
        cmocka_unit_test(bad_arguments_are_invalid),
        cmocka_unit_test(tables_adopt_the_name_that_another_page_has),
        cmocka_unit_test(a_sequence_whose_first_blocks_were_evicted_publishes_them_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
