/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction where parents are cached and their children are held, all-or-nothing allocation, and large pools. */
#include "support/support.h"

enum { a, b, c };

/* Publishes three blocks of one token, held. */
static pkv_prompt publish_three(pkv_pool *pool, pkv_page *pages) {
    static const pkv_token tokens[3] = {1, 2, 3};
    const pkv_prompt prompt = prompt_of(tokens, 3);
    publish_held(pool, &prompt, pages);
    return prompt;
}

static void children_of_an_evicted_parent_keep_counts_and_bytes_but_no_name(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    pkv_token tokens[8];
    count_up(tokens, 8, 1);
    const pkv_prompt prompt = prompt_of(tokens, 8);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 8, 5);
    pkv_page pages[2];
    uint64_t blocks;
    assert_ok(pkv_table_pages(table, 0, pages, 2, &blocks));
    assert_ok(pkv_pool_retain(pool, 0, 1, &pages[1])); /* the child alone stays held */
    uint16_t before[4 * 8];
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.data = before;
    tensor.dtype = PKV_DTYPE_F16;
    tensor.num_tokens = 4;
    assert_ok(pkv_pool_gather(pool, 0, 1, 1, &pages[1], 0, 4, &tensor, NULL, NULL));
    assert_ok(pkv_table_destroy(table, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 8);

    assert_int_equal(evict_pages(pool, 4), 1);
    assert_int_equal(page_of(pool, pages[0]).state, PKV_PAGE_FREE);
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_int_equal(page_of(pool, pages[1]).count, 1);
    assert_int_equal(page_of(pool, pages[1]).published, 0);
    assert_int_equal(stats_of(pool).unpublished_blocks, 2);
    uint16_t after[4 * 8];
    tensor.data = after;
    assert_ok(pkv_pool_gather(pool, 0, 1, 1, &pages[1], 0, 4, &tensor, NULL, NULL));
    assert_memory_equal(after, before, sizeof after);
    release_pages(pool, &pages[1], 1);
    assert_int_equal(page_of(pool, pages[1]).state, PKV_PAGE_FREE);
    end_pool(pool);
}

static void parent_of_a_held_child_goes_after_everything_else(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 1);
    pkv_page pages[3];
    const pkv_prompt prompt = publish_three(pool, pages);
    release_pages(pool, &pages[a], 1); /* the oldest of all, but b and c hang under it */
    for (pkv_token token = 100; token < 103; ++token) {
        const pkv_prompt other = prompt_of(&token, 1);
        publish_cached(pool, &other);
    }
    assert_int_equal(evict_pages(pool, 3), 3);
    assert_int_equal(probe_tokens(pool, &prompt), 3);
    assert_int_equal(page_of(pool, pages[a]).state, PKV_PAGE_CACHED);
    release_pages(pool, &pages[b], 2); /* b and c: now a leaf is there again */
    for (uint64_t left = 3; left-- > 0;) {
        assert_int_equal(evict_pages(pool, 1), 1);
        assert_int_equal(probe_tokens(pool, &prompt), left);
    }
    end_pool(pool);
}

/* a and b are cached, c is held: one page is asked for, and one goes, the deeper one. */
static void check_one_page_goes(const pkv_page *order_of_release) {
    pkv_pool *pool = make_id_pool(8, 1);
    pkv_page pages[3];
    const pkv_prompt prompt = publish_three(pool, pages);
    release_pages(pool, &pages[order_of_release[0]], 1);
    release_pages(pool, &pages[order_of_release[1]], 1);
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_int_equal(stats_of(pool).free_pages, 6);
    assert_int_equal(stats_of(pool).evicted_pages, 1);
    assert_int_equal(probe_tokens(pool, &prompt), 1);
    assert_int_equal(page_of(pool, pages[c]).count, 1);
    release_pages(pool, &pages[c], 1);
    end_pool(pool);
}

static void evict_one_above_a_held_block_frees_one_when_the_child_was_released_first(void **state) {
    (void)state;
    const pkv_page order[2] = {b, a};
    check_one_page_goes(order);
}

static void evict_one_above_a_held_block_frees_one_when_the_parent_was_released_first(void **state) {
    (void)state;
    const pkv_page order[2] = {a, b};
    check_one_page_goes(order);
}

static void limit_with_pages_released_from_the_head_drops_no_more_than_needed(void **state) {
    (void)state;
    pkv_group_options group = small_group(8);
    group.memory = PKV_MEMORY_NONE;
    group.max_cached_pages = 1;
    pkv_pool *pool = make_pool_of(&group, 1, 0);
    pkv_page pages[3];
    const pkv_prompt prompt = publish_three(pool, pages);
    release_pages(pool, &pages[a], 1);
    release_pages(pool, &pages[b], 1); /* one too many: b, the deeper one, goes */
    assert_int_equal(stats_of(pool).cached_pages, 1);
    assert_int_equal(probe_tokens(pool, &prompt), 1);
    release_pages(pool, &pages[c], 1);
    end_pool(pool);
}

/* A chain of two, b held, a cached and passed over by an eviction that took another page. */
static pkv_prompt pass_over_a_parent(pkv_pool *pool, pkv_page *pages) {
    static const pkv_token tokens[2] = {1, 2};
    static const pkv_token other = 50;
    const pkv_prompt prompt = prompt_of(tokens, 2);
    const pkv_prompt leaf = prompt_of(&other, 1);
    publish_held(pool, &prompt, pages);
    release_pages(pool, &pages[a], 1);
    publish_cached(pool, &leaf);
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_int_equal(probe_tokens(pool, &leaf), 0);
    assert_int_equal(probe_tokens(pool, &prompt), 2);
    return prompt;
}

static void a_parent_that_was_passed_over_can_be_hit_and_cached_again(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 1);
    pkv_page pages[2];
    const pkv_prompt prompt = pass_over_a_parent(pool, pages);
    pkv_page found[2];
    assert_int_equal(lookup_tokens(pool, &prompt, found, 2), 2);
    check_rules(pool);
    release_pages(pool, found, 2);
    release_pages(pool, &pages[b], 1);
    const pkv_token newest = 60;
    const pkv_prompt leaf = prompt_of(&newest, 1);
    publish_cached(pool, &leaf);
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_int_equal(probe_tokens(pool, &prompt), 1);
    assert_int_equal(evict_pages(pool, 1), 1); /* older than the leaf */
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_int_equal(probe_tokens(pool, &leaf), 1);
    end_pool(pool);
}

static void a_parent_that_was_passed_over_can_be_replaced_and_cleared(void **state) {
    (void)state;
    for (int clear = 0; clear < 2; ++clear) {
        pkv_pool *pool = make_id_pool(8, 1);
        pkv_page pages[2];
        const pkv_prompt prompt = pass_over_a_parent(pool, pages);
        pkv_page fresh;
        assert_ok(pkv_pool_alloc(pool, 0, 1, &fresh));
        if (clear)
            assert_ok(pkv_pool_clear_all(pool, NULL));
        else
            assert_ok(pkv_pool_publish(pool, 0, &prompt, 0, 1, &fresh, NULL));
        assert_int_equal(page_of(pool, pages[a]).state, PKV_PAGE_FREE);
        assert_int_equal(probe_tokens(pool, &prompt), clear ? 0 : 2);
        release_pages(pool, &fresh, 1);
        release_pages(pool, &pages[b], 1);
        assert_int_equal(evict_pages(pool, 8), clear ? 0 : 2);
        assert_int_equal(stats_of(pool).free_pages, 8);
        end_pool(pool);
    }
}

static void failed_alloc_evicts_nothing(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    pkv_page held;
    assert_ok(pkv_pool_alloc(pool, 0, 1, &held));
    const pkv_token tokens[2] = {1, 2};
    const pkv_prompt prompt = prompt_of(tokens, 2);
    publish_cached(pool, &prompt);
    const pkv_pool_stats before = stats_of(pool);
    pkv_page pages[4] = {77, 77, 77, 77};
    assert_status(pkv_pool_alloc(pool, 0, 4, pages), PKV_ERR_NO_PAGES);
    assert_message("4 pages wanted");
    pkv_pool_stats after = stats_of(pool);
    assert_int_equal(after.failed_allocations, before.failed_allocations + 1);
    after.failed_allocations = before.failed_allocations;
    assert_same_stats(&before, &after);
    for (int i = 0; i < 4; ++i) assert_int_equal(pages[i], 77);
    assert_int_equal(probe_tokens(pool, &prompt), 2);
    assert_ok(pkv_pool_alloc(pool, 0, 3, pages)); /* just what there is */
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    release_pages(pool, pages, 3);
    release_pages(pool, &held, 1);
    end_pool(pool);
}

static void watermark_refuses_before_anything_is_evicted(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    const pkv_token tokens[2] = {1, 2};
    const pkv_prompt cached = prompt_of(tokens, 2);
    publish_cached(pool, &cached);
    const pkv_token other[3] = {7, 8, 9};
    const pkv_prompt prompt = prompt_of(other, 3);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.watermark = 2;
    pkv_table *table;
    assert_ok(pkv_table_create(pool, &table));
    assert_status(pkv_table_admit(table, &prompt, &options, NULL), PKV_ERR_NO_PAGES);
    assert_int_equal(probe_tokens(pool, &cached), 2);
    assert_int_equal(stats_of(pool).refused, 1);
    assert_int_equal(stats_of(pool).failed_allocations, 0);
    options.watermark = 1;
    assert_ok(pkv_table_admit(table, &prompt, &options, NULL));
    assert_ok(pkv_table_destroy(table, NULL));
    end_pool(pool);
}

enum { many = 100000 };

/* With work in proportion to the pool for each step this would take minutes. */
static void one_by_one_eviction_of_100k_pages_is_in_order(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(many, 1);
    for (pkv_token token = 0; token < many; ++token) {
        const pkv_prompt prompt = prompt_of(&token, 1);
        publish_cached(pool, &prompt);
    }
    assert_int_equal(stats_of(pool).cached_pages, many);
    for (pkv_page page = 0; page < many; ++page) {
        assert_int_equal(evict_pages(pool, 1), 1);
        pkv_page got;
        assert_ok(pkv_pool_alloc(pool, 0, 1, &got)); /* the page that was just freed */
        if (got != page) fail_msg("eviction %d took page %d", page, got);
    }
    assert_int_equal(stats_of(pool).held_pages, many);
    for (pkv_page page = 0; page < many; ++page) release_pages(pool, &page, 1);
    end_pool(pool);
}

static void eviction_past_33k_pages_that_cannot_go_is_quick(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(many, 1);
    pkv_page *heads = calloc(many, sizeof *heads);
    pkv_page *tails = calloc(many, sizeof *tails);
    uint64_t pairs = 0;
    for (; pairs < many / 3; ++pairs) { /* cached heads with held tails: the oldest of all */
        const pkv_token tokens[2] = {(pkv_token)pairs, -1};
        const pkv_prompt prompt = prompt_of(tokens, 2);
        pkv_page pages[2];
        publish_held(pool, &prompt, pages);
        heads[pairs] = pages[0];
        tails[pairs] = pages[1];
        release_pages(pool, &heads[pairs], 1);
    }
    const uint64_t leaves = many - 2 * pairs;
    for (uint64_t i = 0; i < leaves; ++i) {
        const pkv_token token = -(pkv_token)i - 2;
        const pkv_prompt prompt = prompt_of(&token, 1);
        publish_cached(pool, &prompt);
    }
    for (uint64_t i = 0; i < leaves; ++i) assert_int_equal(evict_pages(pool, 1), 1);
    assert_int_equal(stats_of(pool).index_blocks, 2 * pairs);
    for (uint64_t i = 0; i < pairs; ++i) { /* only parents are left: one goes at a time, oldest first */
        assert_int_equal(evict_pages(pool, 1), 1);
        if (page_of(pool, heads[i]).state != PKV_PAGE_FREE) fail_msg("head %llu is still there", (unsigned long long)i);
    }
    assert_int_equal(evict_pages(pool, 1), 0);
    assert_int_equal(stats_of(pool).index_blocks, 0);
    release_pages(pool, tails, pairs);
    free(heads);
    free(tails);
    end_pool(pool);
}

static void a_chain_of_100k_blocks_can_be_evicted_whole(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(many, 1);
    pkv_token *tokens = calloc(many, sizeof *tokens);
    count_up(tokens, many, 1);
    const pkv_prompt prompt = prompt_of(tokens, many);
    publish_cached(pool, &prompt);
    assert_int_equal(evict_pages(pool, many / 2), many / 2);
    assert_int_equal(probe_tokens(pool, &prompt), many / 2);
    assert_int_equal(evict_pages(pool, UINT64_MAX), many / 2);
    assert_int_equal(stats_of(pool).free_pages, many);
    free(tokens);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_of_an_evicted_parent_keep_counts_and_bytes_but_no_name),
        cmocka_unit_test(parent_of_a_held_child_goes_after_everything_else),
        cmocka_unit_test(evict_one_above_a_held_block_frees_one_when_the_child_was_released_first),
        cmocka_unit_test(evict_one_above_a_held_block_frees_one_when_the_parent_was_released_first),
        cmocka_unit_test(limit_with_pages_released_from_the_head_drops_no_more_than_needed),
        cmocka_unit_test(a_parent_that_was_passed_over_can_be_hit_and_cached_again),
        cmocka_unit_test(a_parent_that_was_passed_over_can_be_replaced_and_cleared),
        cmocka_unit_test(failed_alloc_evicts_nothing),
        cmocka_unit_test(watermark_refuses_before_anything_is_evicted),
        cmocka_unit_test(one_by_one_eviction_of_100k_pages_is_in_order),
        cmocka_unit_test(eviction_past_33k_pages_that_cannot_go_is_quick),
        cmocka_unit_test(a_chain_of_100k_blocks_can_be_evicted_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
