/* SPDX-License-Identifier: Apache-2.0 */
/* What lookup and probe find, what they take, and what they count. Field cases A25, A26, B11, F01, F04, F05, P01, P02. */
#include "support/support.h"

static void case_A25_page_given_to_another_owner_forgets_its_old_tokens(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(1, 4);
    const pkv_token old_tokens[4] = {1, 2, 3, 4};
    const pkv_token new_tokens[4] = {9, 9, 9, 9};
    const pkv_prompt old_prompt = prompt_of(old_tokens, 4);
    const pkv_prompt new_prompt = prompt_of(new_tokens, 4);
    publish_cached(pool, &old_prompt);
    pkv_table *table = admit(pool, &new_prompt, NULL);
    write_and_commit(table, 4, 1);
    pkv_page page;
    assert_int_equal(lookup_tokens(pool, &old_prompt, &page, 1), 0);
    assert_ok(pkv_table_destroy(table, NULL));
    assert_int_equal(lookup_tokens(pool, &old_prompt, &page, 1), 0);
    assert_int_equal(probe_tokens(pool, &new_prompt), 4);
    end_pool(pool);
}

static void case_A26_key_of_a_recycled_page_is_gone_from_the_index(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 4);
    pkv_page others[3];
    assert_ok(pkv_pool_alloc(pool, 0, 3, others)); /* page 3 is the one that is used again */
    const pkv_token a[4] = {1, 2, 3, 4};
    const pkv_token b[4] = {5, 6, 7, 8};
    const pkv_prompt first = prompt_of(a, 4);
    const pkv_prompt second = prompt_of(b, 4);
    publish_cached(pool, &first);
    publish_cached(pool, &second);
    pkv_page page;
    assert_int_equal(lookup_tokens(pool, &first, &page, 1), 0);
    assert_int_equal(stats_of(pool).index_blocks, 1);
    assert_int_equal(lookup_tokens(pool, &second, &page, 1), 4);
    assert_int_equal(page, 3);
    release_pages(pool, &page, 1);
    release_pages(pool, others, 3);
    end_pool(pool);
}

static void case_B11_lookup_takes_a_count_of_every_page_of_the_path(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(3, 4);
    pkv_token tokens[12];
    count_up(tokens, 12, 1);
    const pkv_prompt prompt = prompt_of(tokens, 12);
    publish_cached(pool, &prompt);
    pkv_page pages[3];
    assert_int_equal(lookup_tokens(pool, &prompt, pages, 3), 12);
    for (int i = 0; i < 3; ++i) {
        assert_int_equal(page_of(pool, pages[i]).count, 1);
        assert_int_equal(page_of(pool, pages[i]).block, i);
    }
    assert_int_equal(evict_pages(pool, 3), 0);
    pkv_page none;
    assert_status(pkv_pool_alloc(pool, 0, 1, &none), PKV_ERR_NO_PAGES);
    release_pages(pool, pages, 3);
    assert_int_equal(stats_of(pool).cached_pages, 3);
    end_pool(pool);
}

/* Tokens found of `num_tokens`, all published in pages of `page_tokens`, under max_match. */
static uint64_t found_under(uint32_t page_tokens, uint64_t num_tokens, uint64_t max_match) {
    pkv_pool *pool = make_id_pool(num_tokens / page_tokens + 1, page_tokens);
    pkv_token *tokens = calloc(num_tokens + 1, sizeof *tokens);
    count_up(tokens, num_tokens, 1);
    const pkv_prompt prompt = prompt_of(tokens, num_tokens);
    publish_cached(pool, &prompt);
    pkv_match probed = PKV_MATCH_INIT;
    pkv_match looked_up = PKV_MATCH_INIT;
    pkv_page *pages = calloc(num_tokens + 1, sizeof *pages);
    assert_ok(pkv_pool_probe(pool, &prompt, max_match, &probed));
    assert_ok(pkv_pool_lookup(pool, &prompt, max_match, pages, num_tokens, &looked_up));
    assert_int_equal(probed.tokens, looked_up.tokens);
    assert_int_equal(probed.tokens, probed.blocks * page_tokens);
    assert_int_equal(stats_of(pool).held_pages, looked_up.blocks);
    release_pages(pool, pages, looked_up.blocks);
    end_pool(pool);
    free(pages);
    free(tokens);
    return looked_up.tokens;
}

static void case_F01_one_token_is_left_to_compute(void **state) {
    (void)state;
    assert_int_equal(found_under(16, 32, 0), 16);
    assert_int_equal(found_under(16, 33, 0), 32);
    assert_int_equal(found_under(16, 16, 0), 0);
    assert_int_equal(found_under(1, 1, 0), 0);
    assert_int_equal(found_under(1, 2, 0), 1);
    assert_int_equal(found_under(16, 32, PKV_MATCH_ALL), 32);
}

static void case_F04_exact_boundary_with_the_last_token_held_back_is_one_page(void **state) {
    (void)state;
    assert_int_equal(found_under(32, 64, 0), 32);
}

static void case_F05_whole_blocks_only(void **state) {
    (void)state;
    assert_int_equal(found_under(256, 255, PKV_MATCH_ALL), 0);
    assert_int_equal(found_under(256, 256, PKV_MATCH_ALL), 256);
    assert_int_equal(found_under(256, 257, PKV_MATCH_ALL), 256);
}

static void case_F07_leaving_tokens_out_happens_once(void **state) {
    (void)state;
    assert_int_equal(found_under(256, 300, 300 - 3), 256);
}

static void max_match_is_a_bound_in_tokens(void **state) {
    (void)state;
    for (uint64_t max_match = 1; max_match < 40; ++max_match)
        assert_int_equal(found_under(4, 30, max_match), (max_match < 30 ? max_match : 30) / 4 * 4);
}

static void capacity_bounds_the_blocks(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 4);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    const pkv_prompt prompt = prompt_of(tokens, 16);
    publish_cached(pool, &prompt);
    for (uint64_t capacity = 0; capacity <= 4; ++capacity) {
        pkv_page pages[5] = {77, 77, 77, 77, 77};
        assert_int_equal(lookup_tokens(pool, &prompt, pages, capacity), 4 * capacity);
        assert_int_equal(pages[capacity], 77);
        assert_int_equal(stats_of(pool).held_pages, capacity);
        release_pages(pool, pages, capacity);
    }
    assert_int_equal(lookup_tokens(pool, &prompt, NULL, 0), 0);
    end_pool(pool);
}

static void lookup_stops_at_the_first_block_that_is_not_there(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 4);
    pkv_token tokens[20];
    count_up(tokens, 20, 1);
    const pkv_prompt prompt = prompt_of(tokens, 20);
    publish_cached(pool, &prompt);
    for (int changed = 4; changed >= 0; --changed) { /* one token of one block is another one */
        pkv_token other[20];
        memcpy(other, tokens, sizeof other);
        other[4 * changed + changed % 4] = -1;
        const pkv_prompt asked = prompt_of(other, 20);
        assert_int_equal(probe_tokens(pool, &asked), 4 * changed);
    }
    end_pool(pool);
}

static void after_the_tail_was_evicted_lookup_ends_at_the_gap(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 4);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    const pkv_prompt prompt = prompt_of(tokens, 16);
    publish_cached(pool, &prompt);
    assert_int_equal(evict_pages(pool, 2), 2);
    assert_int_equal(probe_tokens(pool, &prompt), 8);
    /* A block in the middle cannot be published while the one before it is missing. */
    pkv_page page;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &page));
    assert_status(pkv_pool_publish(pool, 0, &prompt, 3, 1, &page, NULL), PKV_ERR_NOT_FOUND);
    assert_int_equal(probe_tokens(pool, &prompt), 8);
    assert_ok(pkv_pool_publish(pool, 0, &prompt, 2, 1, &page, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 12);
    release_pages(pool, &page, 1);
    end_pool(pool);
}

static void probe_takes_nothing_and_is_counted_apart(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 4);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    const pkv_prompt prompt = prompt_of(tokens, 16);
    publish_cached(pool, &prompt);
    const pkv_pool_stats before = stats_of(pool);
    for (int i = 0; i < 5; ++i) assert_int_equal(probe_tokens(pool, &prompt), 16);
    pkv_pool_stats after = stats_of(pool);
    assert_int_equal(after.probes, before.probes + 5);
    after.probes = before.probes;
    assert_same_stats(&before, &after);
    end_pool(pool);
}

static void case_P02_each_lookup_is_one_request(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 4);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    const pkv_prompt cached = prompt_of(tokens, 8);
    publish_cached(pool, &cached);
    const pkv_prompt prompt = prompt_of(tokens, 14);
    pkv_page pages[3];
    assert_int_equal(lookup_tokens(pool, &prompt, pages, 3), 8);
    release_pages(pool, pages, 2);
    for (int i = 0; i < 5; ++i) probe_tokens(pool, &prompt); /* while it waits */
    const pkv_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.requests, 1);
    assert_int_equal(stats.asked_tokens, 14);
    assert_int_equal(stats.hit_tokens, 8);
    end_pool(pool);
}

static void empty_and_short_prompts_match_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 4);
    pkv_token tokens[4];
    count_up(tokens, 4, 1);
    const pkv_prompt block = prompt_of(tokens, 4);
    publish_cached(pool, &block);
    const pkv_prompt empty = prompt_of(NULL, 0);
    const pkv_prompt part = prompt_of(tokens, 3);
    pkv_page pages[4];
    assert_int_equal(lookup_tokens(pool, &empty, pages, 4), 0);
    assert_int_equal(lookup_tokens(pool, &part, pages, 4), 0);
    end_pool(pool);
}

static void any_token_id_is_a_token(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 4);
    const pkv_token tokens[4] = {INT32_MIN, -1, 0, INT32_MAX};
    const pkv_prompt prompt = prompt_of(tokens, 4);
    publish_cached(pool, &prompt);
    assert_int_equal(probe_tokens(pool, &prompt), 4);
    end_pool(pool);
}

static void bad_arguments_take_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 4);
    pkv_token tokens[8];
    count_up(tokens, 8, 1);
    pkv_prompt prompt = prompt_of(tokens, 8);
    publish_cached(pool, &prompt);
    const pkv_pool_stats before = stats_of(pool);
    pkv_match match = PKV_MATCH_INIT;
    pkv_match no_size = PKV_MATCH_INIT;
    no_size.struct_size = 0;
    no_size.tokens = no_size.blocks = 7;
    pkv_page pages[2];
    assert_status(pkv_pool_lookup(pool, NULL, 0, pages, 2, &match), PKV_ERR_INVALID);
    assert_status(pkv_pool_lookup(pool, &prompt, 0, NULL, 2, &match), PKV_ERR_INVALID);
    assert_status(pkv_pool_lookup(pool, &prompt, 0, pages, 2, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_lookup(pool, &prompt, PKV_MATCH_ALL, pages, 2, &no_size), PKV_ERR_INVALID);
    assert_int_equal(no_size.tokens, 7);
    assert_status(pkv_pool_probe(pool, NULL, 0, &match), PKV_ERR_INVALID);
    assert_status(pkv_pool_probe(pool, &prompt, 0, NULL), PKV_ERR_INVALID);
    prompt.tokens = NULL;
    assert_status(pkv_pool_probe(pool, &prompt, 0, &match), PKV_ERR_INVALID);
    prompt.tokens = tokens;
    prompt.num_tokens = (UINT64_C(1) << 40) + 1;
    assert_status(pkv_pool_probe(pool, &prompt, 0, &match), PKV_ERR_LIMIT);
    prompt.num_tokens = 8;
    prompt.struct_size = 0;
    assert_status(pkv_pool_probe(pool, &prompt, 0, &match), PKV_ERR_INVALID);
    const pkv_pool_stats after = stats_of(pool);
    assert_same_stats(&before, &after);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_A25_page_given_to_another_owner_forgets_its_old_tokens),
        cmocka_unit_test(case_A26_key_of_a_recycled_page_is_gone_from_the_index),
        cmocka_unit_test(case_B11_lookup_takes_a_count_of_every_page_of_the_path),
        cmocka_unit_test(case_F01_one_token_is_left_to_compute),
        cmocka_unit_test(case_F04_exact_boundary_with_the_last_token_held_back_is_one_page),
        cmocka_unit_test(case_F05_whole_blocks_only),
        cmocka_unit_test(case_F07_leaving_tokens_out_happens_once),
        cmocka_unit_test(max_match_is_a_bound_in_tokens),
        cmocka_unit_test(capacity_bounds_the_blocks),
        cmocka_unit_test(lookup_stops_at_the_first_block_that_is_not_there),
        cmocka_unit_test(after_the_tail_was_evicted_lookup_ends_at_the_gap),
        cmocka_unit_test(probe_takes_nothing_and_is_counted_apart),
        cmocka_unit_test(case_P02_each_lookup_is_one_request),
        cmocka_unit_test(empty_and_short_prompts_match_nothing),
        cmocka_unit_test(any_token_id_is_a_token),
        cmocka_unit_test(bad_arguments_take_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
