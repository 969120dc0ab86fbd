/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences over a host tier: blocks that were evicted come back from there, and live ones can be moved down. */
#include "tier/tiered.h"

static void evicted_blocks_come_back_from_a_host_tier(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(64);
    pkv_pool *pool = pool_on(8, tier, PKV_TIER_WRITE_BACK);
    compute(pool, 1, 16, 7);
    push_down(pool);
    assert_int_equal(stats_of(pool).cached_pages, 0);
    assert_int_equal(stats_of(pool).dropped_images, 0);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, 16, &match);
    assert_int_equal(match.tokens, 16);
    assert_int_equal(match.resident_tokens, 0);
    assert_int_equal(match.tier_tokens[0], 16);
    uint64_t restored = 0;
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, one_second, &restored));
    assert_int_equal(restored, 4);
    check_rows(table, 0, 16, 7);
    const pkv_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.hit_tokens, 16);
    assert_int_equal(stats.tier_hit_tokens, 16);
    assert_int_equal(stats.loaded_blocks, 4);
    assert_int_equal(stats.exposed_ns, 0);
    assert_int_equal(tier_stats(tier).loads, 4);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

static void case_F02_a_prompt_that_a_tier_has_whole_leaves_a_token_to_compute(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(64);
    pkv_pool *pool = pool_on(8, tier, PKV_TIER_WRITE_BACK);
    compute(pool, 1, 16, 7);
    push_down(pool);
    pkv_token tokens[16];
    count_up(tokens, 16, 1);
    const pkv_prompt prompt = prompt_of(tokens, 16);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit(pool, &prompt, &match);
    assert_int_equal(match.tier_tokens[0], 12);
    assert_int_equal(match.tokens, 12); /* of 16: the last block is computed again */
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, one_second, NULL));
    write_and_commit(table, 16, 7);
    check_rows(table, 0, 16, 7);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

static void a_gather_brings_absent_blocks_up_by_itself(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(64);
    pkv_pool *pool = pool_on(8, tier, PKV_TIER_WRITE_BACK);
    compute(pool, 1, 16, 7);
    push_down(pool);
    pkv_table *table = admit_again(pool, 1, 16, NULL);
    check_rows(table, 4, 8, 7);
    assert_int_equal(info_of(table).absent_blocks, 2);
    assert_true(stats_of(pool).exposed_ns > 0);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

static void calls_that_need_pages_refuse_absent_blocks(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(64);
    pkv_pool *pool = pool_on(16, tier, PKV_TIER_WRITE_BACK);
    compute(pool, 1, 16, 7);
    push_down(pool);
    pkv_table *table = admit_again(pool, 1, 16, NULL), *fork = NULL;
    pkv_page pages[4];
    uint64_t count = 0;
    assert_status(pkv_table_pages(table, 0, pages, 4, &count), PKV_ERR_NOT_RESIDENT);
    pkv_slot slots[4];
    assert_status(pkv_table_slots(table, 0, 0, 4, slots), PKV_ERR_NOT_RESIDENT);
    assert_status(pkv_table_fork(table, NULL, &fork), PKV_ERR_NOT_RESIDENT);
    int32_t where[4];
    assert_ok(pkv_table_residency(table, 0, 0, 4, where));
    for (int i = 0; i < 4; ++i) assert_int_equal(where[i], PKV_BLOCK_TIER);
    assert_ok(pkv_table_restore(table, 0, 2, one_second, NULL));
    assert_ok(pkv_table_residency(table, 0, 0, 4, where));
    assert_int_equal(where[1], PKV_BLOCK_RESIDENT);
    assert_int_equal(where[2], PKV_BLOCK_TIER);
    assert_ok(pkv_table_slots(table, 0, 4, 4, slots));
    /* The sequence goes on behind absent blocks. */
    write_and_commit(table, 20, 9);
    check_rows(table, 16, 4, 9);
    check_rows(table, 0, 16, 7);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

static void spilled_blocks_free_their_pages_and_come_back(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(64);
    pkv_pool *pool = pool_on(8, tier, PKV_TIER_WRITE_BACK);
    pkv_token tokens[18];
    count_up(tokens, 18, 1);
    const pkv_prompt prompt = prompt_of(tokens, 0);
    pkv_table *table = admit(pool, &prompt, NULL); /* no names: no block has a key */
    assert_ok(pkv_table_reserve(table, 18));
    write_and_commit(table, 18, 3);
    pkv_spill_result result = PKV_SPILL_RESULT_INIT;
    assert_ok(pkv_table_spill(table, 0, UINT64_MAX, NULL, &result));
    assert_int_equal(result.spilled_blocks, 5);
    assert_int_equal(stats_of(pool).free_pages, 8);
    assert_int_equal(tier_stats(tier).usage.pinned_images, 5);
    assert_status(pkv_table_reserve(table, 19), PKV_ERR_NOT_RESIDENT);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, one_second, NULL));
    assert_int_equal(tier_stats(tier).usage.images, 0);
    check_rows(table, 0, 18, 3);
    assert_ok(pkv_table_reserve(table, 20));
    write_and_commit(table, 20, 3);
    check_rows(table, 0, 20, 3);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

static void a_spill_without_room_changes_nothing(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(3);
    pkv_pool *pool = pool_on(8, tier, PKV_TIER_WRITE_BACK);
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &prompt, NULL);
    assert_ok(pkv_table_reserve(table, 20));
    write_and_commit(table, 20, 3);
    assert_status(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL), PKV_ERR_NO_SPACE);
    assert_int_equal(info_of(table).absent_blocks, 0);
    assert_int_equal(stats_of(pool).held_pages, 5);
    assert_int_equal(tier_stats(tier).usage.images, 0);
    check_rows(table, 0, 20, 3);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

static void shared_pages_stay_when_a_sequence_is_spilled(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(64);
    pkv_pool *pool = pool_on(8, tier, PKV_TIER_WRITE_BACK);
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &prompt, NULL);
    assert_ok(pkv_table_reserve(table, 12));
    write_and_commit(table, 12, 3);
    pkv_table *fork = fork_of(table);
    assert_ok(pkv_table_truncate(fork, 4, NULL));
    pkv_spill_result result = PKV_SPILL_RESULT_INIT;
    assert_ok(pkv_table_spill(table, 0, UINT64_MAX, NULL, &result));
    assert_int_equal(result.spilled_blocks, 2);
    assert_int_equal(result.shared_pages, 1);
    check_rows(fork, 0, 4, 3);
    check_rows(table, 0, 12, 3);
    end_table(fork);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

static void a_table_that_ends_gives_its_pins_back(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(64);
    pkv_pool *pool = pool_on(8, tier, PKV_TIER_WRITE_BACK);
    compute(pool, 1, 16, 7);
    push_down(pool);
    pkv_table *table = admit_again(pool, 1, 16, NULL);
    assert_int_equal(tier_stats(tier).usage.pinned_images, 4);
    assert_ok(pkv_table_truncate(table, 8, NULL));
    assert_int_equal(tier_stats(tier).usage.pinned_images, 2);
    end_table(table);
    assert_int_equal(tier_stats(tier).usage.pinned_images, 0);
    assert_int_equal(tier_stats(tier).usage.images, 4);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

static void two_sequences_load_a_prefix_once(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(64);
    pkv_pool *pool = pool_on(16, tier, PKV_TIER_WRITE_BACK);
    compute(pool, 1, 16, 7);
    push_down(pool);
    pkv_table *a = admit_again(pool, 1, 16, NULL), *b = admit_again(pool, 1, 16, NULL);
    assert_ok(pkv_table_restore(a, 0, UINT64_MAX, one_second, NULL));
    assert_ok(pkv_table_restore(b, 0, UINT64_MAX, one_second, NULL));
    assert_int_equal(tier_stats(tier).loads, 4);
    assert_int_equal(stats_of(pool).adopted_blocks, 4);
    assert_int_equal(stats_of(pool).held_pages, 4);
    for (uint64_t block = 0; block < 4; ++block) assert_int_equal(page_at(a, block), page_at(b, block));
    check_rows(b, 0, 16, 7);
    end_table(a);
    end_table(b);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

/* A head that all prompts share is always in the pool: for the tier it is in use all the same, and outlives what is not. */
static void a_shared_head_stays_in_the_tier_while_the_pool_uses_it(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(32);
    pkv_pool *pool = pool_on(16, tier, PKV_TIER_WRITE_BACK);
    pkv_token tokens[16];
    for (pkv_token number = 1; number <= 40; ++number) {
        count_up(tokens, 4, 1);
        count_up(tokens + 4, 12, 100 * number);
        const pkv_prompt prompt = prompt_of(tokens, 16);
        pkv_table *table = admit(pool, &prompt, NULL);
        write_and_commit(table, 16, 5);
        end_table(table);
        flush(pool);
    }
    end_pool(pool);
    assert_true(tier_stats(tier).usage.evicted_images > 0);
    pool = pool_on(16, tier, PKV_TIER_WRITE_BACK); /* as after a restart: nothing is in pages */
    pkv_match match = PKV_MATCH_INIT;
    const pkv_prompt prompt = prompt_of(tokens, 16);
    pkv_table *table = admit(pool, &prompt, &match);
    assert_int_equal(match.tier_tokens[0], 12); /* all but the last block: admission leaves a token to compute */
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

static void the_longest_answer_time_of_a_tier_is_no_limit(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(64);
    pkv_tier_attachment at = attachment(tier, PKV_TIER_WRITE_BACK);
    at.timeout_ns = UINT64_MAX;
    pkv_pool *pool = pool_over(8, &at, 1);
    compute(pool, 1, 16, 7);
    push_down(pool);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, 16, &match);
    assert_int_equal(match.tier_tokens[0], 16);
    check_rows(table, 0, 16, 7);
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evicted_blocks_come_back_from_a_host_tier),
        cmocka_unit_test(case_F02_a_prompt_that_a_tier_has_whole_leaves_a_token_to_compute),
        cmocka_unit_test(a_gather_brings_absent_blocks_up_by_itself),
        cmocka_unit_test(calls_that_need_pages_refuse_absent_blocks),
        cmocka_unit_test(spilled_blocks_free_their_pages_and_come_back),
        cmocka_unit_test(a_spill_without_room_changes_nothing),
        cmocka_unit_test(shared_pages_stay_when_a_sequence_is_spilled),
        cmocka_unit_test(a_table_that_ends_gives_its_pins_back),
        cmocka_unit_test(two_sequences_load_a_prefix_once),
        cmocka_unit_test(the_longest_answer_time_of_a_tier_is_no_limit),
        cmocka_unit_test(a_shared_head_stays_in_the_tier_while_the_pool_uses_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
