/* SPDX-License-Identifier: Apache-2.0 */
/* Stores into a tier that misbehaves: in the background, and of blocks of live sequences. Nothing is thought to be stored that
 * is not, nothing is kept that should go, and nobody waits for ever. */
#include "tier/faulty.h"

enum { tag = 7, blocks = 4, tokens = blocks * tiered_page_tokens };

static const uint64_t ms = 1000000;

static pkv_table *live_table(pkv_pool *pool, uint64_t num_tokens) {
    const pkv_prompt none = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &none, NULL);
    write_and_commit(table, num_tokens, tag);
    return table;
}

/* Computes four blocks while stores go wrong, and throws them out: what no tier has is counted as dropped. */
static void store_badly(int32_t policy, fault what, int64_t value, bool loses) {
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(8, f, policy, 0);
    faulty_script(f, PKV_TIER_STORE, 1, 2, what, value);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    const pkv_pool_stats stats = stats_of(pool);
    assert_int_equal(stats.free_pages, 8);
    assert_int_equal(stats.stored_images, loses ? 2 : 4);
    assert_int_equal(stats.failed_stores, loses ? 2 : 0);
    assert_int_equal(stats.dropped_images, loses ? 2 : 0);
    const pkv_tier_stats tier = tier_stats(f->tier);
    assert_int_equal(tier.stores, loses ? 2 : 4);
    assert_int_equal(tier.failed_stores, loses ? 2 : 0);
    assert_int_equal(tier.open_requests, 0);
    assert_int_equal(faulty_images(f), loses ? 2 : 4);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, tokens, &match);
    if (!loses) assert_int_equal(match.tokens, tokens);
    check_rows(table, 0, match.tokens, tag);
    end_table(table);
    end_pool(pool);
    faulty_end(f);
}

static const int32_t background[] = {PKV_TIER_WRITE_BACK, PKV_TIER_WRITE_THROUGH};

static void a_failed_store_is_no_image(void **state) {
    (void)state;
    for (int i = 0; i < 2; ++i) store_badly(background[i], fault_status, PKV_ERR_IO, true);
}

static void a_store_without_space_is_no_image(void **state) {
    (void)state;
    for (int i = 0; i < 2; ++i) store_badly(background[i], fault_status, PKV_ERR_NO_SPACE, true);
}

static void a_refused_store_is_no_image(void **state) {
    (void)state;
    for (int i = 0; i < 2; ++i) store_badly(background[i], fault_refuse, PKV_ERR_BUSY, true);
}

static void a_store_that_ends_twice_ends_once(void **state) {
    (void)state;
    for (int i = 0; i < 2; ++i) store_badly(background[i], fault_twice, 0, false);
}

static void stores_may_end_in_any_order(void **state) {
    (void)state;
    for (int i = 0; i < 2; ++i) {
        faulty *f = faulty_open();
        pkv_pool *pool = pool_on_faulty(8, f, background[i], 0);
        f->backwards_at = blocks;
        faulty_always(f, PKV_TIER_STORE, fault_hold, 0);
        compute(pool, 1, tokens, tag);
        push_down(pool);
        assert_int_equal(stats_of(pool).dropped_images, 0);
        faulty_behave(f);
        pkv_table *table = admit_again(pool, 1, tokens, NULL);
        assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
        check_rows(table, 0, tokens, tag);
        end_table(table);
        end_pool(pool);
        faulty_end(f);
    }
}

static void a_flush_of_a_blocked_tier_times_out_and_works_later(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(8, f, PKV_TIER_WRITE_BACK, 20 * ms);
    faulty_block(f, true);
    compute(pool, 1, tokens, tag);
    assert_status(pkv_pool_flush(pool, 20 * ms), PKV_ERR_TIMEOUT);
    assert_status(pkv_pool_flush(pool, 0), PKV_ERR_TIMEOUT);
    check_rules(pool);
    faulty_block(f, false);
    flush(pool);
    assert_int_equal(stats_of(pool).stored_images, blocks);
    assert_int_equal(stats_of(pool).unstored_pages, 0);
    end_pool(pool);
    faulty_end(f);
}

static void pages_evicted_while_their_stores_are_under_way_are_dropped_only_if_these_fail(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(8, f, PKV_TIER_WRITE_BACK, 300 * ms);
    faulty_block(f, true);
    compute(pool, 1, tokens, tag);
    eventually(faulty_seen(f, PKV_TIER_STORE) == blocks); /* their bytes have been read: the pages may go */
    compute(pool, 100, 32, tag);                          /* takes all of the pool */
    assert_int_equal(stats_of(pool).dropped_images, 0);
    check_rules(pool);
    faulty_block(f, false);
    push_down(pool);
    assert_int_equal(stats_of(pool).dropped_images, 0);
    /* What was on its way has been stored all the same: it is the right image of its prefix. */
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, tokens, &match);
    assert_int_equal(match.tokens, tokens);
    check_rows(table, 0, tokens, tag);
    end_table(table);
    end_pool(pool);
    faulty_end(f);
}

static void a_pool_destroyed_while_stores_are_under_way_leaves_them_to_the_tier(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(8, f, PKV_TIER_WRITE_THROUGH, 20 * ms);
    faulty_block(f, true);
    compute(pool, 1, tokens, tag);
    eventually(faulty_seen(f, PKV_TIER_STORE) == blocks);
    end_pool(pool);                                                  /* does not wait for the tier */
    assert_int_equal(tier_stats(f->tier).open_requests, blocks + 1); /* and a lookup */
    assert_ok(pkv_tier_close(f->tier));
    assert_false(f->closed);
    faulty_free(f, false);
}

static void a_second_tier_has_what_the_first_one_does_not_take(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_tier *host = host_tier(64);
    pkv_tier_attachment tiers[2] = {attachment(f->tier, PKV_TIER_WRITE_BACK), attachment(host, PKV_TIER_WRITE_BACK)};
    pkv_pool *pool = pool_over(8, tiers, 2);
    faulty_script(f, PKV_TIER_STORE, 0, 2, fault_status, PKV_ERR_IO);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    assert_int_equal(stats_of(pool).dropped_images, 0);
    assert_int_equal(stats_of(pool).stored_images, 6);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, tokens, &match);
    assert_int_equal(match.tier_tokens[0], 8);
    assert_int_equal(match.tier_tokens[1], 8);
    check_rows(table, 0, tokens, tag);
    end_table(table);
    end_pool(pool);
    faulty_end(f);
    assert_ok(pkv_tier_close(host));
}

static void failing_stores_make_a_tier_rest(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(32, f, PKV_TIER_WRITE_THROUGH, 0);
    faulty_always(f, PKV_TIER_STORE, fault_status, PKV_ERR_IO);
    compute(pool, 1, 32, tag);
    flush(pool);
    assert_int_equal(tier_stats(f->tier).breaker_trips, 1);
    const uint64_t stores = faulty_seen(f, PKV_TIER_STORE);
    compute(pool, 1000, 32, tag);
    flush(pool);
    const uint64_t stores_then = faulty_seen(f, PKV_TIER_STORE);
    if (tier_stats(f->tier).resting == 1) assert_int_equal(stores_then, stores); /* it took less than a rest */
    end_pool(pool);
    faulty_end(f);
}

/* ---- blocks of live sequences ---- */

static void spill_badly(fault what, int64_t value, pkv_status expected) {
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(8, f, PKV_TIER_WRITE_BACK, 100 * ms); /* for each of five images */
    pkv_table *table = live_table(pool, 18);
    faulty_script(f, PKV_TIER_STORE, 2, 1, what, value);
    assert_status(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL), expected);
    assert_int_equal(info_of(table).absent_blocks, 0);
    assert_int_equal(stats_of(pool).held_pages, 5);
    assert_int_equal(stats_of(pool).spilled_blocks, 0);
    check_rows(table, 0, 18, tag);
    faulty_let_go(f); /* a store that comes late leaves nothing behind */
    eventually(tier_stats(f->tier).open_requests == 0);
    assert_int_equal(faulty_images(f), 0);
    assert_int_equal(tier_stats(f->tier).timeouts, expected == PKV_ERR_TIMEOUT ? 1 : 0);
    assert_ok(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL));
    assert_int_equal(stats_of(pool).held_pages, 0);
    check_rows(table, 0, 18, tag);
    end_table(table);
    assert_int_equal(faulty_images(f), 0);
    end_pool(pool);
    faulty_end(f);
}

static void a_spill_that_fails_moves_nothing(void **state) {
    (void)state;
    spill_badly(fault_status, PKV_ERR_IO, PKV_ERR_IO);
    spill_badly(fault_status, PKV_ERR_NO_SPACE, PKV_ERR_NO_SPACE);
    spill_badly(fault_refuse, PKV_ERR_UNSUPPORTED, PKV_ERR_UNSUPPORTED);
}

static void a_spill_that_is_not_answered_moves_nothing(void **state) {
    (void)state;
    spill_badly(fault_hold, 0, PKV_ERR_TIMEOUT);
    spill_badly(fault_linger, 0, PKV_ERR_TIMEOUT);
}

static void a_spill_goes_on_in_the_next_tier(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_tier *host = host_tier(64);
    pkv_tier_attachment tiers[2] = {attachment(f->tier, PKV_TIER_WRITE_BACK), attachment(host, PKV_TIER_WRITE_BACK)};
    pkv_pool *pool = pool_over(8, tiers, 2);
    pkv_table *table = live_table(pool, tokens);
    faulty_script(f, PKV_TIER_STORE, 0, 1, fault_status, PKV_ERR_NO_SPACE);
    faulty_script(f, PKV_TIER_STORE, 0, 1, fault_status, PKV_ERR_IO);
    assert_ok(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL));
    int32_t where[blocks];
    assert_ok(pkv_table_residency(table, 0, 0, blocks, where));
    assert_int_equal(where[0], PKV_BLOCK_TIER + 1);
    assert_int_equal(where[1], PKV_BLOCK_TIER + 1);
    assert_int_equal(where[2], PKV_BLOCK_TIER);
    assert_int_equal(where[3], PKV_BLOCK_TIER);
    check_rows(table, 0, tokens, tag);
    end_table(table);
    assert_int_equal(faulty_images(f), 0);
    assert_int_equal(tier_stats(host).usage.images, 0);
    end_pool(pool);
    faulty_end(f);
    assert_ok(pkv_tier_close(host));
}

static void a_spilled_block_that_comes_back_damaged_is_lost(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(8, f, PKV_TIER_WRITE_BACK, 0);
    pkv_table *table = live_table(pool, 18);
    assert_ok(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL));
    faulty_script(f, PKV_TIER_LOAD, 4, 1, fault_flip, 8200);
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL), PKV_ERR_LOST);
    assert_int_equal(info_of(table).valid, 16);
    assert_ok(pkv_table_truncate(table, 16, NULL));
    check_rows(table, 0, 16, tag);
    write_and_commit(table, 18, tag);
    check_rows(table, 0, 18, tag);
    end_table(table);
    assert_int_equal(faulty_images(f), 0);
    end_pool(pool);
    faulty_end(f);
}

static void case_I04_rows_that_a_sequence_has_not_written_do_not_leave_the_pool(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(8, f, PKV_TIER_WRITE_BACK, 0);
    pkv_table *table = live_table(pool, 32); /* all pages have somebody's rows */
    end_table(table);
    table = live_table(pool, 2);
    assert_ok(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL));
    pthread_mutex_lock(&f->mutex);
    for (int i = 0; i < faulty_most_images; ++i)
        for (uint64_t at = 4096; f->images[i].data != NULL && at < f->images[i].bytes; at += 4096) {
            const unsigned char *slice = f->images[i].data + at; /* K of 4 tokens, 16 bytes each; V; padding */
            for (int byte = 0; byte < 4096; ++byte) {
                const bool written = byte < 128 && byte % 64 < 32;
                if (!written && slice[byte] != 0) fail_msg("byte %d of a slice is %02x", byte, slice[byte]);
            }
        }
    pthread_mutex_unlock(&f->mutex);
    check_rows(table, 0, 2, tag);
    end_table(table);
    end_pool(pool);
    faulty_end(f);
}

static void a_restore_without_pages_loads_nothing(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(8, f, PKV_TIER_WRITE_BACK, 0);
    pkv_table *table = live_table(pool, 20);
    assert_ok(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL));
    pkv_page pages[4];
    assert_ok(pkv_pool_alloc(pool, 0, 4, pages));
    uint64_t restored = 9;
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, one_second, &restored), PKV_ERR_NO_PAGES);
    assert_int_equal(restored, 0);
    assert_int_equal(faulty_seen(f, PKV_TIER_LOAD), 0);
    assert_int_equal(stats_of(pool).held_pages, 4);
    assert_ok(pkv_table_restore(table, 0, 4, one_second, &restored));
    assert_int_equal(restored, 4);
    release_pages(pool, pages, 4);
    check_rows(table, 0, 20, tag);
    end_table(table);
    end_pool(pool);
    faulty_end(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_store_is_no_image),
        cmocka_unit_test(a_store_without_space_is_no_image),
        cmocka_unit_test(a_refused_store_is_no_image),
        cmocka_unit_test(a_store_that_ends_twice_ends_once),
        cmocka_unit_test(stores_may_end_in_any_order),
        cmocka_unit_test(a_flush_of_a_blocked_tier_times_out_and_works_later),
        cmocka_unit_test(pages_evicted_while_their_stores_are_under_way_are_dropped_only_if_these_fail),
        cmocka_unit_test(a_pool_destroyed_while_stores_are_under_way_leaves_them_to_the_tier),
        cmocka_unit_test(a_second_tier_has_what_the_first_one_does_not_take),
        cmocka_unit_test(failing_stores_make_a_tier_rest),
        cmocka_unit_test(a_spill_that_fails_moves_nothing),
        cmocka_unit_test(a_spill_that_is_not_answered_moves_nothing),
        cmocka_unit_test(a_spill_goes_on_in_the_next_tier),
        cmocka_unit_test(a_spilled_block_that_comes_back_damaged_is_lost),
        cmocka_unit_test(case_I04_rows_that_a_sequence_has_not_written_do_not_leave_the_pool),
        cmocka_unit_test(a_restore_without_pages_loads_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
