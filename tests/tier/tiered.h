/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of pools with tiers share: tiers, pools over them, and sequences that go down and come back. */
#ifndef PKV_TESTS_TIERED_H
#define PKV_TESTS_TIERED_H

#include "support/support.h"

enum { tiered_page_tokens = 4, one_second = 1000000000, image_bytes = 12288 /* of small_group: header and 2 layers */ };

static inline pkv_tier *host_tier(uint64_t images) {
    pkv_host_tier_options options = PKV_HOST_TIER_OPTIONS_INIT;
    options.capacity_bytes = images * image_bytes;
    pkv_tier *tier = NULL;
    assert_ok(pkv_tier_open_host(&options, &tier));
    return tier;
}

static inline pkv_tier_attachment attachment(pkv_tier *tier, int32_t policy) {
    pkv_tier_attachment at = PKV_TIER_ATTACHMENT_INIT;
    at.tier = tier;
    at.policy = policy;
    return at;
}

static inline pkv_pool *pool_over(uint64_t num_pages, const pkv_tier_attachment *tiers, uint32_t num_tiers) {
    const pkv_group_options group = small_group(num_pages);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = tiered_page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = tiers;
    options.num_tiers = num_tiers;
    options.clean_pages = num_pages;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    return pool;
}

/* A pool of `num_pages` over one tier. */
static inline pkv_pool *pool_on(uint64_t num_pages, pkv_tier *tier, int32_t policy) {
    const pkv_tier_attachment at = attachment(tier, policy);
    return pool_over(num_pages, &at, 1);
}

static inline pkv_tier_stats tier_stats(pkv_tier *tier) {
    pkv_tier_stats stats = PKV_TIER_STATS_INIT;
    assert_ok(pkv_tier_get_stats(tier, &stats));
    return stats;
}

/* Computes tokens [first, first + num_tokens) as a sequence of its own, whose rows are tagged, and releases it. */
static inline void compute(pkv_pool *pool, pkv_token first, uint64_t num_tokens, uint32_t tag) {
    pkv_token *tokens = malloc(num_tokens * sizeof *tokens);
    count_up(tokens, num_tokens, first);
    const pkv_prompt prompt = prompt_of(tokens, num_tokens);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, num_tokens, tag);
    end_table(table);
    free(tokens);
}

/* Admits the same tokens, of which any number may match. */
static inline pkv_table *admit_again(pkv_pool *pool, pkv_token first, uint64_t num_tokens, pkv_match *match) {
    pkv_token *tokens = malloc(num_tokens * sizeof *tokens);
    count_up(tokens, num_tokens, first);
    const pkv_prompt prompt = prompt_of(tokens, num_tokens);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = PKV_MATCH_ALL;
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    assert_ok(pkv_table_admit(table, &prompt, &options, match));
    free(tokens);
    return table;
}

static inline void flush(pkv_pool *pool) { assert_ok(pkv_pool_flush(pool, 10ull * one_second)); }

/* Throws everything cached out of the pool, once it has been stored. */
static inline void push_down(pkv_pool *pool) {
    flush(pool);
    (void)evict_pages(pool, UINT32_MAX);
}

#endif
