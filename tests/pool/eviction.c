/* SPDX-License-Identifier: Apache-2.0 */
/* Which page goes when room is needed, and which never does. Field cases D. */
#include "support/support.h"

#include <pthread.h>

/* A cached prompt of `blocks` blocks of one token: first, first + 1, ... */
static void cache_chain(pkv_pool *pool, pkv_token first, uint64_t blocks) {
    pkv_token tokens[64];
    count_up(tokens, blocks, first);
    const pkv_prompt prompt = prompt_of(tokens, blocks);
    publish_cached(pool, &prompt);
}

static uint64_t chain_length(pkv_pool *pool, pkv_token first, uint64_t blocks) {
    pkv_token tokens[64];
    count_up(tokens, blocks, first);
    const pkv_prompt prompt = prompt_of(tokens, blocks);
    return probe_tokens(pool, &prompt);
}

/* Finds a chain and gives it back: it becomes the most recently used one. */
static void touch_chain(pkv_pool *pool, pkv_token first, uint64_t blocks) {
    pkv_token tokens[64];
    pkv_page pages[64];
    count_up(tokens, blocks, first);
    const pkv_prompt prompt = prompt_of(tokens, blocks);
    assert_int_equal(lookup_tokens(pool, &prompt, pages, blocks), blocks);
    release_pages(pool, pages, blocks);
}

static void case_D01_no_hit_on_an_evicted_page(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(2, 4);
    pkv_token tokens[3][4];
    pkv_prompt prompts[3];
    for (int i = 0; i < 3; ++i) {
        count_up(tokens[i], 4, 100 * (i + 1));
        prompts[i] = prompt_of(tokens[i], 4);
        publish_cached(pool, &prompts[i]);
    }
    pkv_page page;
    assert_int_equal(lookup_tokens(pool, &prompts[0], &page, 1), 0);
    assert_int_equal(probe_tokens(pool, &prompts[1]), 4);
    assert_int_equal(probe_tokens(pool, &prompts[2]), 4);
    assert_int_equal(stats_of(pool).evicted_pages, 1);
    end_pool(pool);
}

static void case_D02_matched_pages_are_no_room_for_the_rest(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(5, 4);
    pkv_token tokens[24];
    count_up(tokens, 24, 1);
    const pkv_prompt hit = prompt_of(tokens, 8);
    publish_cached(pool, &hit);
    const pkv_prompt prompt = prompt_of(tokens, 24); /* 2 blocks match, 4 more are wanted, 3 are usable */
    pkv_table *table;
    assert_ok(pkv_table_create(pool, &table));
    assert_status(pkv_table_admit(table, &prompt, NULL, NULL), PKV_ERR_NO_PAGES);
    assert_int_equal(stats_of(pool).free_pages, 3);
    assert_int_equal(stats_of(pool).cached_pages, 2);
    assert_int_equal(probe_tokens(pool, &prompt), 8);
    const pkv_prompt fits = prompt_of(tokens, 20);
    pkv_match match = PKV_MATCH_INIT;
    assert_ok(pkv_table_admit(table, &fits, NULL, &match));
    assert_int_equal(match.tokens, 8);
    assert_ok(pkv_table_destroy(table, NULL));
    end_pool(pool);
}

static void case_D04_of_a_chain_released_at_once_the_leaf_goes_first(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 1);
    cache_chain(pool, 1, 3);
    for (uint64_t left = 3; left-- > 0;) {
        assert_int_equal(evict_pages(pool, 1), 1);
        assert_int_equal(chain_length(pool, 1, 3), left);
    }
    end_pool(pool);
}

static void case_D05_touched_chain_loses_its_tail_not_its_head(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 1);
    cache_chain(pool, 1, 5);
    touch_chain(pool, 1, 5);
    assert_int_equal(evict_pages(pool, 2), 2);
    assert_int_equal(chain_length(pool, 1, 5), 3);
    end_pool(pool);
}

static void pages_released_one_by_one_from_the_head_still_go_leaf_first(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 1);
    pkv_token tokens[5];
    pkv_page pages[5];
    count_up(tokens, 5, 1);
    const pkv_prompt prompt = prompt_of(tokens, 5);
    publish_held(pool, &prompt, pages);
    for (int i = 0; i < 5; ++i) release_pages(pool, &pages[i], 1);
    for (uint64_t left = 5; left-- > 0;) {
        assert_int_equal(evict_pages(pool, 1), 1);
        assert_int_equal(probe_tokens(pool, &prompt), left);
        assert_int_equal(stats_of(pool).cached_pages, left);
    }
    end_pool(pool);
}

struct toucher {
    pkv_pool *pool;
    pkv_token token;
    int failures;
};

static void *touch_often(void *argument) {
    struct toucher *self = argument;
    const pkv_prompt prompt = prompt_of(&self->token, 1);
    for (int i = 0; i < 1000; ++i) {
        pkv_page page;
        pkv_match match = PKV_MATCH_INIT;
        self->failures += pkv_pool_lookup(self->pool, &prompt, PKV_MATCH_ALL, &page, 1, &match) != PKV_OK;
        self->failures += match.tokens != 1;
        self->failures += pkv_pool_release(self->pool, 0, 1, &page, NULL, NULL) != PKV_OK;
    }
    return NULL;
}

static void case_D07_touching_from_two_threads_keeps_recency(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    for (pkv_token token = 1; token <= 3; ++token) cache_chain(pool, token * 10, 1);
    struct toucher touchers[2] = {{pool, 10, 0}, {pool, 20, 0}};
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) assert_int_equal(pthread_create(&threads[i], NULL, touch_often, &touchers[i]), 0);
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
    assert_int_equal(touchers[0].failures + touchers[1].failures, 0);
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_int_equal(chain_length(pool, 10, 1), 1);
    assert_int_equal(chain_length(pool, 20, 1), 1);
    assert_int_equal(chain_length(pool, 30, 1), 0);
    end_pool(pool);
}

static void case_D08_least_recently_used_goes_not_first_in(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    for (pkv_token token = 1; token <= 3; ++token) cache_chain(pool, token * 10, 1);
    touch_chain(pool, 10, 1);
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_int_equal(chain_length(pool, 10, 1), 1);
    assert_int_equal(chain_length(pool, 20, 1), 0);
    assert_int_equal(chain_length(pool, 30, 1), 1);
    end_pool(pool);
}

static void probe_changes_no_order(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    for (pkv_token token = 1; token <= 3; ++token) cache_chain(pool, token * 10, 1);
    assert_int_equal(chain_length(pool, 10, 1), 1);
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_int_equal(chain_length(pool, 10, 1), 0);
    end_pool(pool);
}

static void case_D10_last_page_freed_is_given_first(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, 4);
    pkv_page pages[4];
    assert_ok(pkv_pool_alloc(pool, 0, 4, pages));
    for (pkv_page i = 0; i < 4; ++i) assert_int_equal(pages[i], i); /* a new pool gives 0, 1, 2 ... */
    for (pkv_page page = 1; page <= 3; ++page) release_pages(pool, &page, 1);
    pkv_page again[3];
    assert_ok(pkv_pool_alloc(pool, 0, 3, again));
    const pkv_page backwards[3] = {3, 2, 1};
    assert_memory_equal(again, backwards, sizeof again);
    /* A list is taken from its end, so its first page was the last one freed. */
    release_pages(pool, backwards, 3);
    assert_ok(pkv_pool_alloc(pool, 0, 3, again));
    assert_memory_equal(again, backwards, sizeof again);
    release_pages(pool, pages, 4);
    end_pool(pool);
}

static void free_pages_go_before_cached_ones(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    cache_chain(pool, 10, 2);
    pkv_page pages[3];
    assert_ok(pkv_pool_alloc(pool, 0, 2, pages));
    assert_int_equal(chain_length(pool, 10, 2), 2);
    assert_ok(pkv_pool_alloc(pool, 0, 1, &pages[2]));
    assert_int_equal(chain_length(pool, 10, 2), 1);
    release_pages(pool, pages, 3);
    end_pool(pool);
}

static void case_D11_pages_in_use_are_no_progress(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 1);
    pkv_page used[2];
    for (pkv_token i = 0; i < 2; ++i) {
        const pkv_token token = 100 + i;
        const pkv_prompt prompt = prompt_of(&token, 1);
        publish_held(pool, &prompt, &used[i]);
    }
    cache_chain(pool, 10, 1);
    cache_chain(pool, 20, 1);
    assert_int_equal(evict_pages(pool, 2), 2);
    assert_int_equal(chain_length(pool, 10, 1) + chain_length(pool, 20, 1), 0);
    assert_int_equal(chain_length(pool, 100, 1) + chain_length(pool, 101, 1), 2);
    assert_int_equal(evict_pages(pool, 2), 0);
    release_pages(pool, used, 2);
    end_pool(pool);
}

static void case_D13_older_entry_that_hits_is_not_the_one_evicted(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(2, 4);
    pkv_token tokens[2][8];
    for (int i = 0; i < 2; ++i) {
        count_up(tokens[i], 8, 100 * (i + 1));
        const pkv_prompt first_block = prompt_of(tokens[i], 4);
        publish_cached(pool, &first_block);
    }
    const pkv_prompt older = prompt_of(tokens[0], 8); /* its second block needs room */
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit(pool, &older, &match);
    assert_int_equal(match.tokens, 4);
    const pkv_prompt newer = prompt_of(tokens[1], 8);
    assert_int_equal(probe_tokens(pool, &newer), 0);
    assert_ok(pkv_table_destroy(table, NULL));
    end_pool(pool);
}

static pkv_pool *make_limited_pool(uint64_t num_pages, uint64_t max_cached_pages) {
    pkv_group_options group = small_group(num_pages);
    group.memory = PKV_MEMORY_NONE;
    group.max_cached_pages = max_cached_pages;
    return make_pool_of(&group, 1, 0);
}

static void case_D16_limit_of_cached_pages_holds(void **state) {
    (void)state;
    pkv_pool *pool = make_limited_pool(16, 4);
    for (pkv_token token = 1; token <= 10; ++token) {
        cache_chain(pool, token * 10, 1);
        assert_true(stats_of(pool).cached_pages <= 4);
    }
    assert_int_equal(stats_of(pool).cached_pages, 4);
    assert_int_equal(stats_of(pool).evicted_pages, 6);
    for (pkv_token token = 1; token <= 10; ++token) assert_int_equal(chain_length(pool, token * 10, 1), token > 6);
    cache_chain(pool, 500, 10); /* one list of ten: the head stays */
    assert_int_equal(stats_of(pool).cached_pages, 4);
    assert_int_equal(chain_length(pool, 500, 10), 4);
    end_pool(pool);
}

static void case_D16_evict_frees_cached_pages(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 1);
    cache_chain(pool, 10, 2);
    const uint64_t before = stats_of(pool).free_pages;
    assert_int_equal(evict_pages(pool, 2), 2);
    assert_int_equal(stats_of(pool).free_pages, before + 2);
    assert_int_equal(stats_of(pool).evicted_pages, 2);
    end_pool(pool);
}

static void case_D20_bytes_follow_the_page_id(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 2);
    pkv_page pages[3];
    assert_ok(pkv_pool_alloc(pool, 0, 3, pages));
    uint16_t rows[3][2 * 8];
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 2 * 8; ++j) rows[i][j] = (uint16_t)(1000 * (i + 1) + j);
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.dtype = PKV_DTYPE_F16;
    tensor.num_tokens = 2;
    for (int i = 0; i < 2; ++i) {
        const pkv_slot slots[2] = {(pkv_slot)pages[i] * 2, (pkv_slot)pages[i] * 2 + 1};
        tensor.data = rows[i];
        assert_ok(pkv_pool_write(pool, 0, 1, 2, slots, &tensor, &tensor, NULL));
    }
    const pkv_page steps[3][2] = {{pages[0], pages[2]}, {pages[1], pages[0]}, {pages[2], pages[1]}}; /* swap 0 and 1 */
    for (int i = 0; i < 3; ++i) assert_ok(pkv_pool_copy_pages(pool, 0, 1, &steps[i][0], &steps[i][1], NULL));
    const pkv_page sequence[2] = {pages[1], pages[0]};
    uint16_t out[2][2 * 8];
    tensor.data = out;
    tensor.num_tokens = 4;
    assert_ok(pkv_pool_gather(pool, 0, 1, 2, sequence, 0, 4, &tensor, NULL, NULL));
    assert_memory_equal(out, rows, sizeof out);
    release_pages(pool, pages, 3);
    end_pool(pool);
}

static void case_D22_both_sides_of_a_branch_stay_held_and_reachable(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_token left[8];
    pkv_token right[8];
    count_up(left, 8, 1);
    count_up(right, 8, 1);
    right[5] = 99;
    const pkv_prompt prompts[2] = {prompt_of(left, 8), prompt_of(right, 8)};
    publish_cached(pool, &prompts[0]);
    pkv_page locked[2];
    assert_int_equal(lookup_tokens(pool, &prompts[0], locked, 2), 8);
    pkv_page branch[2];
    pkv_page owner[2];
    assert_ok(pkv_pool_alloc(pool, 0, 2, branch));
    assert_ok(pkv_pool_publish(pool, 0, &prompts[1], 0, 2, branch, owner));
    assert_int_equal(owner[0], locked[0]);
    assert_int_equal(owner[1], branch[1]);
    release_pages(pool, branch, 2);
    assert_int_equal(evict_pages(pool, 8), 1); /* the branch alone */
    assert_int_equal(probe_tokens(pool, &prompts[0]), 8);
    assert_int_equal(probe_tokens(pool, &prompts[1]), 4);
    for (int i = 0; i < 2; ++i) assert_int_equal(page_of(pool, locked[i]).count, 1);
    release_pages(pool, locked, 2);
    end_pool(pool);
}

static void case_D28_more_sequences_than_the_cache_limit_make_progress(void **state) {
    (void)state;
    pkv_pool *pool = make_limited_pool(16, 8);
    pkv_table *tables[9];
    for (int round = 0; round < 3; ++round) {
        for (pkv_token i = 0; i < 9; ++i) {
            const pkv_token token = 10 * i;
            const pkv_prompt prompt = prompt_of(&token, 1);
            tables[i] = admit(pool, &prompt, NULL);
            assert_ok(pkv_table_commit(tables[i], 1, NULL));
        }
        for (int i = 0; i < 9; ++i) assert_ok(pkv_table_destroy(tables[i], NULL));
        assert_int_equal(stats_of(pool).cached_pages, 8);
    }
    end_pool(pool);
}

static void case_D29_pages_that_were_never_filled_are_not_found(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    const pkv_prompt prompt = prompt_of(tokens, 16);
    pkv_table *table = admit(pool, &prompt, NULL);
    assert_int_equal(stats_of(pool).held_pages, 4);
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_ok(pkv_table_destroy(table, NULL));
    assert_int_equal(probe_tokens(pool, &prompt), 0);
    assert_int_equal(stats_of(pool).free_pages, 8);
    end_pool(pool);
}

static void case_B11_every_page_of_a_match_is_safe_from_eviction(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(8, 1);
    cache_chain(pool, 1, 3);
    pkv_token tokens[3];
    pkv_page pages[3];
    count_up(tokens, 3, 1);
    const pkv_prompt prompt = prompt_of(tokens, 3);
    assert_int_equal(lookup_tokens(pool, &prompt, pages, 3), 3);
    assert_int_equal(evict_pages(pool, 3), 0);
    assert_int_equal(probe_tokens(pool, &prompt), 3);
    release_pages(pool, pages, 3);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_D01_no_hit_on_an_evicted_page),
        cmocka_unit_test(case_D02_matched_pages_are_no_room_for_the_rest),
        cmocka_unit_test(case_D04_of_a_chain_released_at_once_the_leaf_goes_first),
        cmocka_unit_test(case_D05_touched_chain_loses_its_tail_not_its_head),
        cmocka_unit_test(pages_released_one_by_one_from_the_head_still_go_leaf_first),
        cmocka_unit_test(case_D07_touching_from_two_threads_keeps_recency),
        cmocka_unit_test(case_D08_least_recently_used_goes_not_first_in),
        cmocka_unit_test(probe_changes_no_order),
        cmocka_unit_test(case_D10_last_page_freed_is_given_first),
        cmocka_unit_test(free_pages_go_before_cached_ones),
        cmocka_unit_test(case_D11_pages_in_use_are_no_progress),
        cmocka_unit_test(case_D13_older_entry_that_hits_is_not_the_one_evicted),
        cmocka_unit_test(case_D16_limit_of_cached_pages_holds),
        cmocka_unit_test(case_D16_evict_frees_cached_pages),
        cmocka_unit_test(case_D20_bytes_follow_the_page_id),
        cmocka_unit_test(case_D22_both_sides_of_a_branch_stay_held_and_reachable),
        cmocka_unit_test(case_D28_more_sequences_than_the_cache_limit_make_progress),
        cmocka_unit_test(case_D29_pages_that_were_never_filled_are_not_found),
        cmocka_unit_test(case_B11_every_page_of_a_match_is_safe_from_eviction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
