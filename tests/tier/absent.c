/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences with blocks in tiers, at their edges: cut inside a block, named anew, forked, shared, moved down and up again. */
#include "tier/faulty.h"

enum { tag = 7, blocks = 4, tokens = blocks * tiered_page_tokens };

static const uint64_t patience = UINT64_C(10) * one_second;

typedef struct {
    pkv_tier *host;
    pkv_pool *pool;
} fixture;

/* A pool whose tier has the images of four blocks; nothing is cached. */
static fixture begin(uint64_t num_pages) {
    fixture x;
    x.host = host_tier(64);
    x.pool = pool_on(num_pages, x.host, PKV_TIER_WRITE_BACK);
    compute(x.pool, 1, tokens, tag);
    push_down(x.pool);
    return x;
}

static void end(fixture *x) {
    assert_int_equal(tier_stats(x->host).usage.pinned_images, 0);
    assert_int_equal(tier_stats(x->host).checksum_failures, 0);
    end_pool(x->pool);
    assert_ok(pkv_tier_close(x->host));
}

static void a_block_that_was_cut_and_named_anew_comes_up_all_the_same(void **state) {
    (void)state;
    fixture x = begin(16);
    pkv_table *table = admit_again(x.pool, 1, tokens, NULL);
    assert_ok(pkv_table_truncate(table, 14, NULL));
    const pkv_token others[3] = {900, 901, 902};
    assert_ok(pkv_table_set_tokens(table, 14, 3, others));
    assert_status(pkv_table_reserve(table, 17), PKV_ERR_NOT_RESIDENT);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, patience, NULL));
    check_rows(table, 0, 14, tag);
    write_and_commit(table, 17, 8);
    check_rows(table, 0, 14, tag);
    check_rows(table, 14, 3, 8);
    end_table(table);
    /* Both are found: the old block under its names, the new one under its own. */
    table = admit_again(x.pool, 1, tokens, NULL);
    assert_int_equal(info_of(table).matched, tokens);
    check_rows(table, 0, tokens, tag);
    end_table(table);
    pkv_token names[16];
    count_up(names, 14, 1);
    memcpy(names + 14, others, 2 * sizeof *others);
    const pkv_prompt prompt = prompt_of(names, 16);
    assert_int_equal(probe_tokens(x.pool, &prompt), 16);
    end(&x);
}

static void names_that_change_after_a_block_was_taken_over_decide_its_key(void **state) {
    (void)state;
    fixture x = begin(16);
    pkv_table *a = admit_again(x.pool, 1, tokens, NULL), *b = admit_again(x.pool, 1, tokens, NULL);
    check_rows(b, 0, tokens, tag); /* published again */
    assert_ok(pkv_table_truncate(a, 14, NULL));
    const pkv_token same[2] = {15, 16}, other[2] = {15, 900};
    assert_ok(pkv_table_set_tokens(a, 14, 2, same));
    assert_ok(pkv_table_restore(a, 0, UINT64_MAX, patience, NULL));
    assert_ok(pkv_table_set_tokens(a, 14, 2, other));
    pkv_token last[4] = {30, 31, 32, 33};
    assert_ok(pkv_table_set_tokens(a, 16, 4, last));
    write_and_commit(a, 20, 8);
    check_rows(a, 0, 14, tag);
    end_table(a);
    check_rows(b, 0, tokens, tag);
    end_table(b);
    pkv_token names[20];
    count_up(names, 16, 1);
    memcpy(names + 16, last, sizeof last);
    const pkv_prompt wrong = prompt_of(names, 20);
    assert_int_equal(probe_tokens(x.pool, &wrong), 16); /* not what followed token 900 */
    names[15] = 900;
    assert_int_equal(probe_tokens(x.pool, &wrong), 20);
    end(&x);
}

static void a_cut_at_a_block_leaves_the_rest_where_it_is(void **state) {
    (void)state;
    fixture x = begin(16);
    pkv_table *table = admit_again(x.pool, 1, tokens, NULL);
    assert_ok(pkv_table_truncate(table, 8, NULL));
    assert_int_equal(info_of(table).absent_blocks, 2);
    assert_int_equal(stats_of(x.pool).held_pages, 2);
    write_and_commit(table, 12, 8); /* behind blocks that are not here */
    assert_int_equal(info_of(table).published, 0);
    check_rows(table, 0, 8, tag);
    check_rows(table, 8, 4, 8);
    end_table(table);
    end(&x);
}

static void blocks_behind_absent_ones_are_published_when_those_are_here(void **state) {
    (void)state;
    fixture x = begin(16);
    pkv_table *table = admit_again(x.pool, 1, tokens, NULL);
    pkv_token names[20];
    count_up(names, 20, 1);
    assert_ok(pkv_table_set_tokens(table, 16, 4, names + 16));
    write_and_commit(table, 20, tag);
    const pkv_prompt prompt = prompt_of(names, 20);
    assert_int_equal(probe_tokens(x.pool, &prompt), 0);
    assert_ok(pkv_table_restore(table, 0, 2, patience, NULL));
    assert_int_equal(probe_tokens(x.pool, &prompt), 8);
    assert_ok(pkv_table_restore(table, 3, 1, patience, NULL)); /* a gap is left */
    assert_int_equal(probe_tokens(x.pool, &prompt), 8);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, patience, NULL));
    assert_int_equal(probe_tokens(x.pool, &prompt), 20);
    end_table(table);
    end(&x);
}

static void a_fork_of_spilled_blocks_works_after_they_came_back(void **state) {
    (void)state;
    fixture x = begin(16);
    pkv_table *table = admit_again(x.pool, 1, tokens, NULL), *fork = NULL;
    check_rows(table, 0, tokens, tag);
    write_and_commit(table, 18, tag);
    assert_ok(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL));
    assert_status(pkv_table_fork(table, NULL, &fork), PKV_ERR_NOT_RESIDENT);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, patience, NULL));
    fork = fork_of(table);
    write_and_commit(fork, 20, 9);
    write_and_commit(table, 20, 8);
    check_rows(fork, 0, 18, tag);
    check_rows(fork, 18, 2, 9);
    check_rows(table, 18, 2, 8);
    end_table(fork);
    end_table(table);
    end(&x);
}

static void a_spilled_tail_is_cut_without_coming_up(void **state) {
    (void)state;
    fixture x = begin(16);
    const pkv_prompt none = prompt_of(NULL, 0);
    pkv_table *table = admit(x.pool, &none, NULL);
    write_and_commit(table, 18, 3);
    assert_ok(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL));
    assert_int_equal(tier_stats(x.host).usage.images, blocks + 5);
    assert_ok(pkv_table_truncate(table, 16, NULL));
    assert_int_equal(tier_stats(x.host).usage.images, blocks + 4);
    write_and_commit(table, 20, 4);
    check_rows(table, 0, 16, 3);
    check_rows(table, 16, 4, 4);
    assert_ok(pkv_table_truncate(table, 3, NULL));
    check_rows(table, 0, 3, 3);
    write_and_commit(table, 6, 5);
    check_rows(table, 0, 3, 3);
    check_rows(table, 3, 3, 5);
    end_table(table);
    assert_int_equal(tier_stats(x.host).usage.images, blocks);
    end(&x);
}

static void case_J10_the_same_blocks_go_down_and_up_many_times(void **state) {
    (void)state;
    fixture x = begin(16);
    const pkv_prompt none = prompt_of(NULL, 0);
    test_random random = {1};
    pkv_table *tables[3];
    for (uint32_t i = 0; i < 3; ++i) {
        tables[i] = admit(x.pool, &none, NULL);
        write_and_commit(tables[i], 20, 100 + i);
    }
    for (int round = 0; round < 1000; ++round) {
        const uint32_t i = (uint32_t)random_below(&random, 3);
        const uint64_t first = random_below(&random, 5), count = 1 + random_below(&random, 5);
        if (random_below(&random, 2) == 0)
            assert_ok(pkv_table_spill(tables[i], first, count, NULL, NULL));
        else
            assert_ok(pkv_table_restore(tables[i], first, count, patience, NULL));
        check_rows(tables[i], 4 * first, random_below(&random, 20 - 4 * first + 1), 100 + i);
        check_rules(x.pool);
    }
    for (uint32_t i = 0; i < 3; ++i) {
        check_rows(tables[i], 0, 20, 100 + i);
        end_table(tables[i]);
    }
    end(&x);
}

static void an_admission_that_is_refused_pins_nothing(void **state) {
    (void)state;
    fixture x = begin(8);
    pkv_page pages[6];
    assert_ok(pkv_pool_alloc(x.pool, 0, 6, pages));
    pkv_token names[tokens];
    count_up(names, tokens, 1);
    const pkv_prompt prompt = prompt_of(names, tokens);
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(x.pool, &table));
    assert_status(pkv_table_admit(table, &prompt, NULL, NULL), PKV_ERR_NO_PAGES);
    assert_int_equal(tier_stats(x.host).usage.pinned_images, 0);
    assert_int_equal(stats_of(x.pool).held_pages, 6);
    release_pages(x.pool, pages, 6);
    assert_ok(pkv_table_admit(table, &prompt, NULL, NULL));
    check_rows(table, 0, 12, tag);
    end_table(table);
    end(&x);
}

static void calls_that_take_nothing_from_the_cache_ask_no_tier(void **state) {
    (void)state;
    fixture x = begin(16);
    const uint64_t lookups = tier_stats(x.host).lookups;
    pkv_token names[tokens];
    count_up(names, tokens, 1);
    const pkv_prompt prompt = prompt_of(names, tokens);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.flags = PKV_ADMIT_NO_MATCH;
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(x.pool, &table));
    assert_ok(pkv_table_admit(table, &prompt, &options, &match));
    assert_int_equal(match.tokens, 0);
    assert_int_equal(probe_tokens(x.pool, &prompt), 0);
    pkv_page pages[blocks];
    assert_int_equal(lookup_tokens(x.pool, &prompt, pages, blocks), 0);
    assert_int_equal(tier_stats(x.host).lookups, lookups);
    end_table(table);
    end(&x);
}

static void a_match_that_begins_in_pages_goes_on_in_tiers(void **state) {
    (void)state;
    fixture x = begin(16);
    pkv_table *table = admit_again(x.pool, 1, tokens, NULL);
    assert_ok(pkv_table_restore(table, 0, 2, patience, NULL));
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *other = admit_again(x.pool, 1, tokens, &match);
    assert_int_equal(match.tokens, tokens);
    assert_int_equal(match.resident_tokens, 8);
    assert_int_equal(match.tier_tokens[0], 8);
    int32_t where[blocks];
    assert_ok(pkv_table_residency(other, 0, 0, blocks, where));
    assert_int_equal(where[1], PKV_BLOCK_RESIDENT);
    assert_int_equal(where[2], PKV_BLOCK_TIER);
    check_rows(other, 0, tokens, tag);
    check_rows(table, 0, tokens, tag);
    assert_int_equal(stats_of(x.pool).held_pages, 4);
    end_table(other);
    end_table(table);
    end(&x);
}

static void batches_and_exports_need_pages(void **state) {
    (void)state;
    fixture x = begin(16);
    pkv_table *table = admit_again(x.pool, 1, tokens, NULL);
    uint64_t size = 0;
    assert_status(pkv_table_export(table, NULL, 0, &size), PKV_ERR_NOT_RESIDENT);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, patience, NULL));
    assert_ok(pkv_table_export(table, NULL, 0, &size));
    assert_true(size > 0);
    end_table(table);
    end(&x);
}

/* The thread that stores pages reads one at a time without a count on it. An admission that needs all the room there is besides
 * its match has to wait for that one. */
static void an_admission_waits_for_a_page_that_is_being_read(void **state) {
    (void)state;
    pkv_group_options group = small_group(8);
    group.num_layers = 16; /* 1 MiB a page: reading takes a while */
    group.num_kv_heads = 8;
    group.k_head_dim = group.v_head_dim = 128;
    enum { large = 16, half = 4 * large };
    pkv_host_tier_options tier_options = PKV_HOST_TIER_OPTIONS_INIT;
    tier_options.capacity_bytes = UINT64_C(64) << 20;
    pkv_tier *host = NULL;
    assert_ok(pkv_tier_open_host(&tier_options, &host));
    const pkv_tier_attachment at = attachment(host, PKV_TIER_WRITE_BACK);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = large;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = &at;
    options.num_tiers = 1;
    options.clean_pages = 8;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    pkv_token names[2 * half], others[half];
    for (int round = 0; round < (long_tests() ? 2000 : 100); ++round) {
        count_up(names, 2 * half, 1 + 1000 * round);
        count_up(others, half, 501 + 1000 * round);
        pkv_prompt prompt = prompt_of(names, half);
        pkv_table *first = admit(pool, &prompt, NULL);
        assert_ok(pkv_table_commit(first, half, NULL));
        prompt = prompt_of(others, half);
        pkv_table *second = admit(pool, &prompt, NULL);
        assert_ok(pkv_table_commit(second, half, NULL));
        end_table(second); /* its pages are read first */
        end_table(first);
        prompt = prompt_of(names, 2 * half); /* half of it matches, and the other half needs the rest of the pool */
        pkv_match match = PKV_MATCH_INIT;
        pkv_table *table = admit(pool, &prompt, &match);
        assert_int_equal(match.resident_tokens, half);
        pkv_page pages[8];
        uint64_t count = 0;
        assert_ok(pkv_table_pages(table, 0, pages, 8, &count));
        bool seen[8] = {false};
        for (int i = 0; i < 8; ++i) {
            assert_in_range(pages[i], 0, 7);
            assert_false(seen[pages[i]]);
            seen[pages[i]] = true;
        }
        end_table(table);
        check_rules(pool);
    }
    eventually(stats_of(pool).held_pages == 0);
    end_pool(pool);
    assert_ok(pkv_tier_close(host));
}

static void wrong_ranges_are_refused(void **state) {
    (void)state;
    fixture x = begin(16);
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(x.pool, &table));
    int32_t where[8];
    assert_status(pkv_table_restore(table, 0, 1, 0, NULL), PKV_ERR_STATE);
    assert_status(pkv_table_spill(table, 0, 1, NULL, NULL), PKV_ERR_STATE);
    assert_status(pkv_table_residency(table, 0, 0, 0, where), PKV_ERR_STATE);
    end_table(table);
    table = admit_again(x.pool, 1, tokens, NULL);
    assert_status(pkv_table_restore(table, blocks + 1, 1, 0, NULL), PKV_ERR_INVALID);
    assert_status(pkv_table_spill(table, blocks + 1, 1, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_table_residency(table, 0, 1, blocks, where), PKV_ERR_INVALID);
    assert_status(pkv_table_residency(table, 1, 0, 1, where), PKV_ERR_INVALID);
    assert_ok(pkv_table_restore(table, blocks, UINT64_MAX, 0, NULL)); /* nothing there */
    assert_ok(pkv_table_restore(table, 0, 0, 0, NULL));
    assert_ok(pkv_table_spill(table, blocks, UINT64_MAX, NULL, NULL));
    assert_int_equal(info_of(table).absent_blocks, blocks);
    end_table(table);
    pkv_pool *plain = make_pool(4, 4);
    const pkv_prompt none = prompt_of(NULL, 0);
    table = admit(plain, &none, NULL);
    assert_status(pkv_table_spill(table, 0, 1, NULL, NULL), PKV_ERR_STATE);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 0, NULL));
    end_table(table);
    end_pool(plain);
    end(&x);
}

static void case_C14_tables_end_well_in_every_state(void **state) {
    (void)state;
    for (int ending = 0; ending < 3; ++ending) {
        fixture x = begin(16);
        pkv_table *table = admit_again(x.pool, 1, tokens, NULL);
        assert_ok(pkv_table_restore(table, 1, 1, patience, NULL));
        assert_ok(pkv_table_spill(table, 1, 1, NULL, NULL));
        if (ending == 0) assert_ok(pkv_table_clear(table, NULL));
        if (ending == 1) assert_ok(pkv_table_truncate(table, 0, NULL));
        end_table(table);
        assert_int_equal(stats_of(x.pool).free_pages + stats_of(x.pool).cached_pages, 16);
        assert_int_equal(tier_stats(x.host).usage.images, blocks);
        end(&x);
    }
}

static void a_table_outlives_its_pool_with_blocks_in_tiers(void **state) {
    (void)state;
    fixture x = begin(16);
    pkv_table *table = admit_again(x.pool, 1, tokens, NULL);
    assert_ok(pkv_pool_destroy(x.pool));
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 0, NULL), PKV_ERR_CLOSED);
    assert_int_equal(tier_stats(x.host).usage.pinned_images, blocks);
    end_table(table);
    assert_int_equal(tier_stats(x.host).usage.pinned_images, 0);
    assert_ok(pkv_tier_close(x.host));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_that_was_cut_and_named_anew_comes_up_all_the_same),
        cmocka_unit_test(names_that_change_after_a_block_was_taken_over_decide_its_key),
        cmocka_unit_test(a_cut_at_a_block_leaves_the_rest_where_it_is),
        cmocka_unit_test(blocks_behind_absent_ones_are_published_when_those_are_here),
        cmocka_unit_test(a_fork_of_spilled_blocks_works_after_they_came_back),
        cmocka_unit_test(a_spilled_tail_is_cut_without_coming_up),
        cmocka_unit_test(case_J10_the_same_blocks_go_down_and_up_many_times),
        cmocka_unit_test(an_admission_that_is_refused_pins_nothing),
        cmocka_unit_test(calls_that_take_nothing_from_the_cache_ask_no_tier),
        cmocka_unit_test(a_match_that_begins_in_pages_goes_on_in_tiers),
        cmocka_unit_test(batches_and_exports_need_pages),
        cmocka_unit_test(an_admission_waits_for_a_page_that_is_being_read),
        cmocka_unit_test(wrong_ranges_are_refused),
        cmocka_unit_test(case_C14_tables_end_well_in_every_state),
        cmocka_unit_test(a_table_outlives_its_pool_with_blocks_in_tiers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
