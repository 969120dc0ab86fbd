/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and gauges, and the algebra between them. Field cases P. */
#include "support/support.h"

enum { page_tokens = 16 };

static pkv_table *new_table(pkv_pool *pool) {
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    return table;
}

static void case_P01_a_preempted_request_is_counted_once(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, page_tokens);
    pkv_token tokens[32];
    count_up(tokens, 32, 1);
    const pkv_prompt head = prompt_of(tokens, 16), prompt = prompt_of(tokens, 32);
    publish_cached(pool, &head);
    pkv_table *table = new_table(pool);
    assert_ok(pkv_table_admit(table, &prompt, NULL, NULL));
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.flags = PKV_ADMIT_RETRY;
    for (int i = 0; i < 10; ++i) {
        assert_ok(pkv_table_clear(table, NULL));
        assert_ok(pkv_table_admit(table, &prompt, &options, NULL));
    }
    const pkv_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.requests, 1);
    assert_int_equal(stats.asked_tokens, 32);
    assert_int_equal(stats.hit_tokens, 16);
    assert_int_equal(stats.retries, 10);
    end_table(table);
    end_pool(pool);
}

static void case_P02_a_waiting_request_is_counted_when_it_is_admitted(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, page_tokens);
    pkv_token tokens[32];
    count_up(tokens, 32, 1);
    const pkv_prompt prompt = prompt_of(tokens, 32);
    pkv_page pages[3];
    assert_ok(pkv_pool_alloc(pool, 0, 3, pages));
    pkv_table *table = new_table(pool);
    for (int i = 0; i < 5; ++i) {
        assert_int_equal(probe_tokens(pool, &prompt), 0);
        assert_status(pkv_table_admit(table, &prompt, NULL, NULL), PKV_ERR_NO_PAGES);
    }
    assert_ok(pkv_pool_release(pool, 0, 3, pages, NULL, NULL));
    assert_ok(pkv_table_admit(table, &prompt, NULL, NULL));
    const pkv_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.requests, 1);
    assert_int_equal(stats.asked_tokens, 32);
    assert_int_equal(stats.probes, 5);
    assert_int_equal(stats.refused, 5);
    assert_int_equal(stats.failed_allocations, 0);
    end_table(table);
    end_pool(pool);
}

static void case_P04_usage_stays_between_0_and_1(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, page_tokens);
    pkv_page pages[5];
    for (uint64_t held = 1; held <= 4; ++held) {
        assert_ok(pkv_pool_alloc(pool, 0, 1, &pages[held - 1]));
        assert_true(stats_of(pool).usage == (double)held / 4);
    }
    assert_status(pkv_pool_alloc(pool, 0, 1, &pages[4]), PKV_ERR_NO_PAGES);
    const pkv_page none = PKV_NO_PAGE;
    assert_status(pkv_pool_release(pool, 0, 1, &none, NULL, NULL), PKV_ERR_INVALID);
    assert_true(stats_of(pool).usage == 1.0);
    assert_ok(pkv_pool_release(pool, 0, 4, pages, NULL, NULL));
    assert_status(pkv_pool_release(pool, 0, 4, pages, NULL, NULL), PKV_ERR_STATE);
    assert_true(stats_of(pool).usage == 0.0);
    end_pool(pool);
}

static void case_P05_the_usage_of_an_idle_pool_is_0(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(4, page_tokens);
    assert_true(stats_of(pool).usage == 0.0);
    assert_int_equal(stats_of(pool).free_pages, 4);
    pkv_token tokens[64];
    count_up(tokens, 64, 1);
    const pkv_prompt prompt = prompt_of(tokens, 64);
    publish_cached(pool, &prompt);
    assert_int_equal(stats_of(pool).cached_pages, 4);
    assert_true(stats_of(pool).usage == 0.0); /* cached pages are nobody's */
    end_pool(pool);
}

static void case_P08_free_held_and_cached_pages_are_all_pages(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_token tokens[144];
    count_up(tokens, 48, 1000);
    const pkv_prompt old = prompt_of(tokens, 48);
    publish_cached(pool, &old); /* 3 cached */
    count_up(tokens, 144, 1);
    const pkv_prompt prompt = prompt_of(tokens, 144);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 80, 1); /* 5 with KV, 4 reserved */
    const pkv_pool_stats stats = stats_of(pool);
    const pkv_table_info info = info_of(table);
    assert_int_equal(info.committed_blocks, 5);
    assert_int_equal(info.blocks - info.committed_blocks, 4);
    assert_int_equal(stats.held_pages, 9);
    assert_int_equal(stats.cached_pages, 3);
    assert_int_equal(stats.free_pages, 4);
    end_table(table);
    end_pool(pool);
}

static void case_P08_hits_behind_a_gap_are_not_counted(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(16, page_tokens);
    pkv_token tokens[48], changed[48];
    count_up(tokens, 48, 1);
    count_up(changed, 48, 1);
    changed[20] = 999;
    const pkv_prompt prompt = prompt_of(tokens, 48), other = prompt_of(changed, 48);
    publish_cached(pool, &prompt);
    pkv_page pages[3];
    pkv_match match = PKV_MATCH_INIT;
    assert_ok(pkv_pool_lookup(pool, &other, PKV_MATCH_ALL, pages, 3, &match));
    assert_int_equal(match.tokens, 16);
    assert_int_equal(stats_of(pool).hit_tokens, 16);
    assert_int_equal(stats_of(pool).asked_tokens, 48);
    assert_ok(pkv_pool_release(pool, 0, 1, pages, NULL, NULL));
    end_pool(pool);
}

static void case_P10_tokens_add_up_over_rounds(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(64, page_tokens);
    pkv_token tokens[200];
    count_up(tokens, 200, 1);
    const pkv_prompt prompt = prompt_of(tokens, 200);
    for (int round = 0; round < 50; ++round) {
        pkv_table *table = admit(pool, &prompt, NULL);
        write_and_commit(table, 200, 1);
        end_table(table);
    }
    const pkv_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.requests, 50);
    assert_int_equal(stats.asked_tokens, 50 * 200);
    assert_int_equal(stats.hit_tokens, 49 * 192);
    end_pool(pool);
}

static void case_P11_sizes_return_to_0_after_a_longer_prefix_replaced_a_shorter(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(64, page_tokens);
    pkv_token tokens[30 * page_tokens];
    count_up(tokens, 30 * page_tokens, 1);
    for (uint64_t blocks = 10; blocks <= 30; blocks += 20) {
        const pkv_prompt prompt = prompt_of(tokens, blocks * page_tokens);
        publish_cached(pool, &prompt);
        assert_int_equal(stats_of(pool).index_blocks, blocks);
        assert_int_equal(stats_of(pool).cached_pages, blocks);
    }
    assert_int_equal(stats_of(pool).duplicate_blocks, 10);
    assert_ok(pkv_pool_evict(pool, 0, 64, NULL));
    const pkv_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.index_blocks, 0);
    assert_int_equal(stats.cached_pages, 0);
    assert_int_equal(stats.namespaces, 0);
    assert_int_equal(stats.free_pages, 64);
    assert_int_equal(stats.published_blocks, 30);
    assert_int_equal(stats.unpublished_blocks, 30);
    assert_int_equal(stats.evicted_pages, 30);
    end_pool(pool);
}

static void case_P13_page_bytes_is_what_the_formula_says(void **state) {
    (void)state;
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = 4;
    group.num_layers = 3;
    group.num_kv_heads = 2;
    group.total_heads = 16; /* of a shard: only the heads held here count */
    group.k_head_dim = 24;
    group.v_head_dim = 8;
    group.dtype = PKV_DTYPE_F32;
    pkv_pool *pool = make_pool_of(&group, 5, 0);
    assert_int_equal(stats_of(pool).page_bytes, 5 * 3 * 2 * (24 + 8) * 4);
    assert_ok(pkv_pool_destroy(pool));
    group.k_strides.page = 10000; /* gaps do not count */
    pool = make_pool_of(&group, 5, 0);
    assert_int_equal(stats_of(pool).page_bytes, 5 * 3 * 2 * (24 + 8) * 4);
    assert_ok(pkv_pool_destroy(pool));
}

static void each_allocation_without_room_is_counted_once(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(2, page_tokens);
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &prompt, NULL);
    pkv_page pages[3];
    assert_status(pkv_pool_alloc(pool, 0, 3, pages), PKV_ERR_NO_PAGES);
    assert_status(pkv_table_reserve(table, 3 * page_tokens), PKV_ERR_NO_PAGES);
    const pkv_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.failed_allocations, 2);
    assert_int_equal(stats.allocated_pages, 0);
    assert_int_equal(stats.refused, 0);
    end_table(table);
    end_pool(pool);
}

static void the_kinds_of_memory_and_seed_are_said(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(2, page_tokens);
    assert_int_equal(stats_of(pool).memory_kind, PKV_MEMORY_KIND_NONE);
    assert_int_equal(stats_of(pool).key_seed, PKV_KEY_SEED_RANDOM);
    end_pool(pool);
    const pkv_group_options group = small_group(2);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.huge_pages = PKV_HUGE_PAGES_NEVER;
    options.seed = 5;
    assert_ok(pkv_pool_create(&options, &pool));
    assert_int_equal(stats_of(pool).memory_kind, PKV_MEMORY_KIND_PAGES);
    assert_int_equal(stats_of(pool).key_seed, PKV_KEY_SEED_FIXED);
    end_pool(pool);
}

static void wrong_arguments_of_the_statistics_are_refused(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(2, page_tokens);
    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    assert_status(pkv_pool_get_stats(pool, 1, &stats), PKV_ERR_INVALID);
    assert_status(pkv_pool_get_stats(pool, 0, NULL), PKV_ERR_INVALID);
    assert_status(pkv_pool_get_stats(NULL, 0, &stats), PKV_ERR_HANDLE);
    end_pool(pool);
}

/* ---- rule R15 in random order ---- */

static void check_growth(const pkv_pool_stats *before, const pkv_pool_stats *now) {
    const uint64_t *a = &before->requests, *b = &now->requests;
    const size_t count = (sizeof *now - offsetof(pkv_pool_stats, requests)) / sizeof(uint64_t);
    for (size_t i = 0; i < count; ++i)
        if (b[i] < a[i])
            fail_msg("counter %zu fell from %llu to %llu", i, (unsigned long long)a[i], (unsigned long long)b[i]);
}

static void counters_only_grow_and_gauges_add_up(void **state) {
    (void)state;
    enum { num_tables = 6, pages = 24, p = 4 };
    const uint64_t seed = 42;
    print_message("seed %llu\n", (unsigned long long)seed);
    test_random random = {seed};
    pkv_pool *pool = make_pool(pages, p);
    pkv_table *tables[num_tables];
    for (int i = 0; i < num_tables; ++i) tables[i] = new_table(pool);
    pkv_token tokens[48];
    pkv_pool_stats before = stats_of(pool);
    uint64_t requests = 0, asked = 0, hits = 0, retries = 0, probes = 0, refused = 0;
    for (int step = 0; step < (long_tests() ? 200000 : 5000); ++step) {
        pkv_table *table = tables[random_below(&random, num_tables)];
        for (int i = 0; i < 48; ++i) tokens[i] = i < 16 ? i : (pkv_token)random_below(&random, 2);
        const pkv_prompt prompt = prompt_of(tokens, 1 + random_below(&random, 48));
        const uint64_t what = random_below(&random, 8);
        if (what < 4) {
            pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
            options.flags = (uint32_t)random_below(&random, 4);
            options.watermark = random_below(&random, 4);
            pkv_match match = PKV_MATCH_INIT;
            const pkv_status status = pkv_table_admit(table, &prompt, &options, &match);
            if (status == PKV_ERR_NO_PAGES) ++refused;
            if (status == PKV_OK && (options.flags & PKV_ADMIT_RETRY) != 0) ++retries;
            if (status == PKV_OK && (options.flags & PKV_ADMIT_RETRY) == 0) {
                ++requests;
                asked += prompt.num_tokens;
                hits += match.tokens;
            }
            if (status == PKV_OK) assert_ok(pkv_table_commit(table, prompt.num_tokens, NULL));
        } else if (what == 4) {
            probe_tokens(pool, &prompt);
            ++probes;
        } else if (what == 5) {
            assert_ok(pkv_pool_evict(pool, 0, random_below(&random, 3), NULL));
        } else if (what == 6 && random_below(&random, 20) == 0) {
            assert_ok(pkv_pool_clear_all(pool, NULL));
        } else {
            assert_ok(pkv_table_clear(table, NULL));
        }
        const pkv_pool_stats now = stats_of(pool);
        check_rules(pool);
        check_growth(&before, &now);
        assert_int_equal(now.requests, requests);
        assert_int_equal(now.asked_tokens, asked);
        assert_int_equal(now.hit_tokens, hits);
        assert_int_equal(now.retries, retries);
        assert_int_equal(now.probes, probes);
        assert_int_equal(now.refused, refused);
        assert_int_equal(now.tables, num_tables);
        assert_int_equal(now.num_pages, pages);
        assert_true(now.unpublished_blocks >= now.evicted_pages + now.cleared_pages);
        before = now;
    }
    for (int i = 0; i < num_tables; ++i) end_table(tables[i]);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_P01_a_preempted_request_is_counted_once),
        cmocka_unit_test(case_P02_a_waiting_request_is_counted_when_it_is_admitted),
        cmocka_unit_test(case_P04_usage_stays_between_0_and_1),
        cmocka_unit_test(case_P05_the_usage_of_an_idle_pool_is_0),
        cmocka_unit_test(case_P08_free_held_and_cached_pages_are_all_pages),
        cmocka_unit_test(case_P08_hits_behind_a_gap_are_not_counted),
        cmocka_unit_test(case_P10_tokens_add_up_over_rounds),
        cmocka_unit_test(case_P11_sizes_return_to_0_after_a_longer_prefix_replaced_a_shorter),
        cmocka_unit_test(case_P13_page_bytes_is_what_the_formula_says),
        cmocka_unit_test(each_allocation_without_room_is_counted_once),
        cmocka_unit_test(the_kinds_of_memory_and_seed_are_said),
        cmocka_unit_test(wrong_arguments_of_the_statistics_are_refused),
        cmocka_unit_test(counters_only_grow_and_gauges_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
