/* SPDX-License-Identifier: Apache-2.0 */
/* Loads from a tier that misbehaves: no wrong byte, no hang, no page kept, and numbers that say what happened. */
#include "tier/faulty.h"

enum { tag = 7, blocks = 4, tokens = blocks * tiered_page_tokens };

static const uint64_t ms = 1000000;

/* A pool over a tier that has the images of four blocks; nothing is cached. */
static pkv_pool *stored_below(faulty *f, uint64_t timeout_ns) {
    pkv_pool *pool = pool_on_faulty(16, f, PKV_TIER_WRITE_BACK, timeout_ns);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    assert_int_equal(faulty_images(f), blocks);
    return pool;
}

/* The table has lost what is behind `valid` tokens: it refuses all but a few calls, and says why. */
static void check_lost(pkv_table *table, uint64_t valid) {
    assert_int_equal(info_of(table).valid, valid);
    assert_int_equal(info_of(table).committed, tokens);
    pkv_tensor rows = PKV_TENSOR_INIT;
    uint16_t data[64];
    rows.data = data;
    rows.dtype = PKV_DTYPE_F16;
    rows.num_tokens = 1;
    pkv_slot slot;
    pkv_table *fork = NULL;
    uint64_t size = 0;
    const pkv_retention retention = PKV_RETENTION_INIT;
    const pkv_token token = 1;
    assert_status(pkv_table_gather(table, 0, 0, 0, 1, &rows, &rows, NULL), PKV_ERR_LOST);
    assert_status(pkv_table_write(table, 0, 0, tokens, 1, &rows, &rows, NULL), PKV_ERR_LOST);
    assert_status(pkv_table_slots(table, 0, 0, 1, &slot), PKV_ERR_LOST);
    assert_status(pkv_table_reserve(table, tokens + 1), PKV_ERR_LOST);
    assert_status(pkv_table_set_tokens(table, tokens, 1, &token), PKV_ERR_LOST);
    assert_status(pkv_table_commit(table, tokens, NULL), PKV_ERR_LOST);
    assert_status(pkv_table_fork(table, NULL, &fork), PKV_ERR_LOST);
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 0, NULL), PKV_ERR_LOST);
    assert_status(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL), PKV_ERR_LOST);
    assert_status(pkv_table_export(table, NULL, 0, &size), PKV_ERR_LOST);
    assert_status(pkv_table_window(table, NULL), PKV_ERR_LOST);
    assert_status(pkv_table_accept(table, 0, NULL, NULL), PKV_ERR_LOST);
    assert_status(pkv_table_set_retention(table, 0, 1, &retention), PKV_ERR_LOST);
    if (valid < tokens) assert_status(pkv_table_truncate(table, valid + 1, NULL), PKV_ERR_LOST);
    pkv_page pages[blocks];
    assert_status(pkv_table_pages(table, 0, pages, blocks, &size), PKV_ERR_LOST);
    int32_t where[blocks];
    assert_ok(pkv_table_residency(table, 0, 0, blocks, where));
}

/* Cuts the table to what is valid, computes the rest again, and leaves. */
static void recompute(pkv_pool *pool, pkv_table *table, uint64_t valid) {
    assert_ok(pkv_table_truncate(table, valid, NULL));
    assert_int_equal(info_of(table).valid, valid);
    pkv_token names[tokens];
    count_up(names, tokens, 1);
    assert_ok(pkv_table_set_tokens(table, valid, tokens - valid, names + valid));
    write_and_commit(table, tokens, tag);
    check_rows(table, 0, tokens, tag);
    const pkv_prompt prompt = prompt_of(names, tokens);
    assert_int_equal(probe_tokens(pool, &prompt), tokens);
    end_table(table);
    check_rules(pool);
}

/* Block 2 of 4 comes up damaged in some way. */
static void lose_block_two(fault what, int64_t value, bool checksum) {
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f, 0);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    faulty_script(f, PKV_TIER_LOAD, 2, 1, what, value);
    uint64_t restored = 0;
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, &restored), PKV_ERR_LOST);
    check_lost(table, 8);
    assert_int_equal(restored, 3); /* blocks 0, 1 and 3 */
    const pkv_tier_stats stats = tier_stats(f->tier);
    assert_int_equal(stats.checksum_failures, checksum ? 1 : 0);
    assert_int_equal(stats.failed_loads, 1);
    assert_int_equal(stats.loads, 3);
    assert_int_equal(stats_of(pool).lost_blocks, 1);
    /* Only what came up is findable, and the image is not found a second time. */
    pkv_token names[tokens];
    count_up(names, tokens, 1);
    const pkv_prompt prompt = prompt_of(names, tokens);
    assert_int_equal(probe_tokens(pool, &prompt), 8);
    if (what != fault_status || value != PKV_ERR_NOT_FOUND) assert_int_equal(faulty_images(f), 3);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *other = admit_again(pool, 1, tokens, &match);
    if (what != fault_status || value != PKV_ERR_NOT_FOUND) assert_int_equal(match.tokens, 8);
    end_table(other);
    recompute(pool, table, 8);
    assert_int_equal(faulty_pins(f), 0);
    /* The block is stored anew, and good. */
    push_down(pool);
    table = admit_again(pool, 1, tokens, &match);
    assert_int_equal(match.tokens, tokens);
    check_rows(table, 0, tokens, tag);
    end_table(table);
    end_pool(pool);
    faulty_end(f);
}

static void case_J20_a_failed_load_leaves_a_valid_prefix(void **state) {
    (void)state;
    lose_block_two(fault_status, PKV_ERR_IO, false);
}

static void a_flipped_bit_anywhere_in_an_image_is_a_miss(void **state) {
    (void)state;
    /* Front, checksum, shape, key, sums, tokens, padding of the header; slices and their padding. */
    const int64_t bytes[] = {0,   8,   12,  16,  24,   56,   64,   72,   76,   90,   130,
                             151, 152, 170, 300, 4095, 4096, 4200, 4224, 8191, 8192, 12287};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; ++i) lose_block_two(fault_flip, bytes[i], true);
}

static void an_image_of_another_block_is_a_miss(void **state) {
    (void)state;
    lose_block_two(fault_other, 0, true);
}

static void case_J22_a_short_load_removes_the_image(void **state) {
    (void)state;
    lose_block_two(fault_short, 4096, false);
    lose_block_two(fault_short, 1, false);
    lose_block_two(fault_short, image_bytes, false);
}

static void not_found_after_a_hit_loses_the_block(void **state) {
    (void)state;
    lose_block_two(fault_status, PKV_ERR_NOT_FOUND, false);
}

static void a_refused_load_loses_the_block(void **state) {
    (void)state;
    lose_block_two(fault_refuse, PKV_ERR_IO, false);
}

static void case_C14_a_gather_that_fails_loses_the_block(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f, 0);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    faulty_script(f, PKV_TIER_LOAD, 1, 1, fault_flip, 5000);
    uint16_t data[8 * tokens];
    memset(data, 0x5A, sizeof data);
    pkv_tensor rows = PKV_TENSOR_INIT;
    rows.data = data;
    rows.dtype = PKV_DTYPE_F16;
    rows.num_tokens = tokens;
    assert_status(pkv_table_gather(table, 0, 0, 0, tokens, &rows, NULL, NULL), PKV_ERR_LOST);
    for (size_t i = 0; i < sizeof data / sizeof *data; ++i) assert_int_equal(data[i], 0x5A5A);
    check_lost(table, 4);
    assert_true(stats_of(pool).exposed_ns > 0);
    assert_ok(pkv_table_clear(table, NULL));
    assert_int_equal(stats_of(pool).held_pages, 0);
    end_table(table);
    end_pool(pool);
    faulty_end(f);
}

static void a_table_that_lost_blocks_can_be_destroyed(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f, 0);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    faulty_always(f, PKV_TIER_LOAD, fault_status, PKV_ERR_IO);
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, one_second, NULL), PKV_ERR_LOST);
    check_lost(table, 0);
    assert_int_equal(stats_of(pool).lost_blocks, blocks);
    end_table(table);
    assert_int_equal(faulty_pins(f), 0);
    assert_int_equal(faulty_images(f), 0);
    end_pool(pool);
    faulty_end(f);
}

static void a_second_tier_serves_what_the_first_one_spoils(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_tier *host = host_tier(64);
    pkv_tier_attachment tiers[2] = {attachment(f->tier, PKV_TIER_WRITE_BACK), attachment(host, PKV_TIER_WRITE_BACK)};
    pkv_pool *pool = pool_over(16, tiers, 2);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    faulty_script(f, PKV_TIER_LOAD, 0, 1, fault_flip, 4100);
    faulty_script(f, PKV_TIER_LOAD, 0, 1, fault_status, PKV_ERR_IO);
    faulty_script(f, PKV_TIER_LOAD, 0, 1, fault_status, PKV_ERR_NOT_FOUND);
    faulty_script(f, PKV_TIER_LOAD, 0, 1, fault_short, 100);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    check_rows(table, 0, tokens, tag);
    assert_int_equal(tier_stats(f->tier).failed_loads, 4);
    assert_int_equal(tier_stats(f->tier).checksum_failures, 1);
    assert_int_equal(tier_stats(host).loads, 4);
    assert_int_equal(stats_of(pool).lost_blocks, 0);
    end_table(table);
    assert_int_equal(faulty_pins(f), 0);
    assert_int_equal(tier_stats(host).usage.pinned_images, 0);
    end_pool(pool);
    faulty_end(f);
    assert_ok(pkv_tier_close(host));
}

static void a_timeout_leaves_the_table_usable(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f, 0);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    faulty_script(f, PKV_TIER_LOAD, 1, 1, fault_hold, 0);
    uint64_t restored = 0;
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 800 * ms, &restored), PKV_ERR_TIMEOUT);
    assert_int_equal(restored, 3);
    assert_int_equal(info_of(table).valid, tokens);
    assert_int_equal(info_of(table).absent_blocks, 1);
    assert_int_equal(tier_stats(f->tier).timeouts, 1);
    eventually(tier_stats(f->tier).open_requests == 1);
    check_rows(table, 0, 4, tag); /* block 0 is here */
    check_rules(pool);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, &restored));
    assert_int_equal(restored, 1);
    check_rows(table, 0, tokens, tag);
    faulty_let_go(f); /* the late answer comes, and finds nobody */
    eventually(tier_stats(f->tier).open_requests == 0);
    check_rows(table, 0, tokens, tag);
    end_table(table);
    end_pool(pool);
    faulty_end(f);
}

static void a_blocked_tier_is_no_hang(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f, 300 * ms);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    faulty_block(f, true);
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 30 * ms, NULL), PKV_ERR_TIMEOUT);
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 0, NULL), PKV_ERR_TIMEOUT);
    uint16_t data[8];
    pkv_tensor rows = PKV_TENSOR_INIT;
    rows.data = data;
    rows.dtype = PKV_DTYPE_F16;
    rows.num_tokens = 1;
    assert_status(pkv_table_gather(table, 0, 0, 0, 1, &rows, NULL, NULL), PKV_ERR_TIMEOUT);
    /* A lookup that is not answered finds nothing, and the sequence begins without it. */
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *other = admit_again(pool, 1, tokens, &match);
    assert_int_equal(match.tokens, 0);
    end_table(other);
    faulty_block(f, false);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    check_rows(table, 0, tokens, tag);
    end_table(table);
    assert_int_equal(faulty_pins(f), 0); /* those of the late lookup went back by themselves */
    assert_true(tier_stats(f->tier).timeouts >= 3);
    end_pool(pool);
    faulty_end(f);
}

static void a_late_lookup_gives_its_pins_back(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f, 300 * ms);
    faulty_script(f, PKV_TIER_LOOKUP, 0, blocks, fault_hold, 0);
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, 1, tokens, &match);
    assert_int_equal(match.tokens, 0);
    assert_int_equal(tier_stats(f->tier).timeouts, 1);
    faulty_let_go(f);
    assert_int_equal(faulty_pins(f), 0);
    end_table(table);
    end_pool(pool);
    faulty_end(f);
}

static void a_late_lookup_of_an_image_in_memory_gives_its_pin_back(void **state) {
    (void)state;
    faulty *f = faulty_open_as(true);
    pkv_pool *pool = stored_below(f, 300 * ms);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    assert_int_equal(faulty_pins(f), blocks);
    faulty_script(f, PKV_TIER_LOOKUP, 0, 1, fault_hold, 0);
    assert_status(pkv_table_restore(table, 0, 1, 10ull * one_second, NULL), PKV_ERR_TIMEOUT);
    assert_int_equal(tier_stats(f->tier).timeouts, 1);
    faulty_let_go(f);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    check_rows(table, 0, tokens, tag);
    end_table(table);
    assert_int_equal(faulty_pins(f), 0);
    end_pool(pool);
    faulty_end(f);
}

static void an_image_in_memory_is_checked_too(void **state) {
    (void)state;
    faulty *f = faulty_open_as(true);
    pkv_pool *pool = stored_below(f, 0);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    pthread_mutex_lock(&f->mutex);
    for (int i = 0; i < faulty_most_images; ++i)
        if (f->images[i].data != NULL) f->images[i].data[4097] ^= 0x10;
    pthread_mutex_unlock(&f->mutex);
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL), PKV_ERR_LOST);
    check_lost(table, 0);
    assert_int_equal(tier_stats(f->tier).checksum_failures, blocks);
    assert_int_equal(faulty_images(f), 0);
    end_table(table);
    end_pool(pool);
    faulty_end(f);
}

static void a_late_load_writes_into_no_page(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f, 0);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    faulty_script(f, PKV_TIER_LOAD, 0, blocks, fault_hold, 0);
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 20 * ms, NULL), PKV_ERR_TIMEOUT);
    end_table(table);
    assert_int_equal(stats_of(pool).held_pages, 0);
    /* Somebody else has all pages when the bytes arrive. */
    const pkv_prompt none = prompt_of(NULL, 0);
    table = admit(pool, &none, NULL);
    write_and_commit(table, 64, 99);
    faulty_let_go(f);
    eventually(tier_stats(f->tier).open_requests == 0);
    check_rows(table, 0, 64, 99);
    end_table(table);
    assert_int_equal(faulty_pins(f), 0);
    end_pool(pool);
    faulty_end(f);
}

static void completions_that_come_twice_count_once(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f, 0);
    faulty_always(f, PKV_TIER_LOAD, fault_twice, 0);
    faulty_script(f, PKV_TIER_LOOKUP, 0, 3, fault_twice, 0);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    check_rows(table, 0, tokens, tag);
    eventually(faulty_idle(f));
    /* A second completion of a request that has ended finds no handle: those of batches are seen. */
    assert_int_equal(tier_stats(f->tier).double_completions, 3);
    assert_int_equal(tier_stats(f->tier).loads, blocks);
    assert_int_equal(tier_stats(f->tier).failed_loads, 0);
    end_table(table);
    end_pool(pool);
    faulty_end(f);
}

static void loads_may_end_in_any_order(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f, 0);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    f->backwards_at = blocks;
    faulty_script(f, PKV_TIER_LOAD, 0, blocks, fault_hold, 0);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    check_rows(table, 0, tokens, tag);
    end_table(table);
    assert_int_equal(faulty_pins(f), 0);
    end_pool(pool);
    faulty_end(f);
}

static void repeated_failures_make_a_tier_rest(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(16, f, PKV_TIER_WRITE_BACK, 0);
    compute(pool, 1, 40, tag);
    compute(pool, 1000, 8, tag);
    push_down(pool);
    faulty_always(f, PKV_TIER_LOAD, fault_status, PKV_ERR_IO);
    pkv_table *table = admit_again(pool, 1, 40, NULL);
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL), PKV_ERR_LOST);
    end_table(table);
    assert_int_equal(tier_stats(f->tier).breaker_trips, 1);
    /* Lookups are misses without asking, and nothing is stored. */
    eventually(faulty_idle(f));
    const uint64_t lookups = faulty_seen(f, PKV_TIER_LOOKUP), stores = faulty_seen(f, PKV_TIER_STORE);
    pkv_match match = PKV_MATCH_INIT;
    table = admit_again(pool, 1000, 8, &match);
    if (tier_stats(f->tier).resting == 1) assert_int_equal(match.tokens, 0);
    write_and_commit(table, 8, tag);
    end_table(table);
    flush(pool);
    const uint64_t lookups_then = faulty_seen(f, PKV_TIER_LOOKUP), stores_then = faulty_seen(f, PKV_TIER_STORE);
    if (tier_stats(f->tier).resting == 1) { /* all of that took less than a rest */
        assert_int_equal(lookups_then, lookups);
        assert_int_equal(stores_then, stores);
    }
    end_pool(pool);
    faulty_end(f);
}

static void a_resting_tier_is_asked_for_blocks_of_live_sequences(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(32, f, PKV_TIER_WRITE_BACK, 0);
    const pkv_prompt none = prompt_of(NULL, 0);
    pkv_table *live = admit(pool, &none, NULL);
    write_and_commit(live, tokens, 3);
    assert_ok(pkv_table_spill(live, 0, UINT64_MAX, NULL, NULL));
    compute(pool, 1, 40, tag);
    push_down(pool);
    faulty_script(f, PKV_TIER_LOAD, 0, 10, fault_status, PKV_ERR_IO);
    pkv_table *table = admit_again(pool, 1, 40, NULL);
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL), PKV_ERR_LOST);
    end_table(table);
    assert_int_equal(tier_stats(f->tier).breaker_trips, 1);
    check_rows(live, 0, tokens, 3);
    assert_int_equal(tier_stats(f->tier).resting, 0); /* it gave something: at work again */
    end_table(live);
    assert_int_equal(faulty_images(f), 0);
    end_pool(pool);
    faulty_end(f);
}

static void failures_that_say_nothing_about_a_tier_make_no_rest(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(16, f, PKV_TIER_WRITE_BACK, 0);
    compute(pool, 1, 48, tag);
    push_down(pool);
    faulty_always(f, PKV_TIER_LOAD, fault_status, PKV_ERR_NOT_FOUND);
    pkv_table *table = admit_again(pool, 1, 48, NULL);
    assert_status(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL), PKV_ERR_LOST);
    end_table(table);
    assert_int_equal(tier_stats(f->tier).breaker_trips, 0);
    assert_int_equal(tier_stats(f->tier).resting, 0);
    end_pool(pool);
    faulty_end(f);
}

static void case_J08_an_image_is_pinned_from_the_match_to_the_load(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f, 0);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    assert_int_equal(faulty_pins(f), blocks);
    /* Others press on the tier; what is pinned stays. */
    f->most_images = blocks;
    compute(pool, 500, 16, 9);
    push_down(pool);
    assert_ok(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL));
    check_rows(table, 0, tokens, tag);
    assert_int_equal(faulty_pins(f), 0);
    end_table(table);
    end_pool(pool);
    faulty_end(f);
}

struct restoring {
    pkv_table *table;
    pkv_status status;
};

static void *restore_on_a_thread(void *argument) {
    struct restoring *r = argument;
    r->status = pkv_table_restore(r->table, 0, UINT64_MAX, 60ull * one_second, NULL);
    return NULL;
}

static void one_who_waits_for_anothers_load_goes_on_when_that_fails(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f, 0);
    struct restoring a = {admit_again(pool, 1, tokens, NULL), 1}, b = {admit_again(pool, 1, tokens, NULL), 1};
    faulty_script(f, PKV_TIER_LOAD, 0, blocks, fault_hold, 0);
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, restore_on_a_thread, &a);
    eventually(faulty_held(f) == blocks);
    pthread_create(&threads[1], NULL, restore_on_a_thread, &b);
    eventually(stats_of(pool).joined_loads == 1);
    /* The first one's block 0 turns out to be damaged: the second asks for itself, and finds that it has been removed. */
    pthread_mutex_lock(&f->mutex);
    for (faulty_item *item = f->held.first; item != NULL; item = item->next)
        if (item == f->held.first) item->fault = (fault_rule){fault_flip, 4100};
    pthread_mutex_unlock(&f->mutex);
    faulty_let_go(f);
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
    assert_int_equal(a.status, PKV_ERR_LOST);
    assert_int_equal(b.status, PKV_ERR_LOST);
    recompute(pool, a.table, info_of(a.table).valid);
    recompute(pool, b.table, info_of(b.table).valid);
    assert_int_equal(faulty_pins(f), 0);
    end_pool(pool);
    faulty_end(f);
}

static void a_pool_destroyed_while_a_table_restores_ends_after_it(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = stored_below(f, 0);
    struct restoring a = {admit_again(pool, 1, tokens, NULL), 1};
    faulty_script(f, PKV_TIER_LOAD, 0, blocks, fault_hold, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, restore_on_a_thread, &a);
    eventually(faulty_held(f) == blocks);
    assert_ok(pkv_pool_destroy(pool));
    assert_ok(pkv_tier_close(f->tier));
    faulty_let_go(f);
    pthread_join(thread, NULL);
    assert_int_equal(a.status, PKV_OK);
    assert_status(pkv_table_restore(a.table, 0, 1, 0, NULL), PKV_ERR_CLOSED);
    end_table(a.table);
    faulty_free(f, false);
}

static void a_tier_closed_first_goes_on_for_its_pool(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(8, f, PKV_TIER_WRITE_BACK, 0);
    assert_ok(pkv_tier_close(f->tier));
    compute(pool, 1, tokens, tag);
    push_down(pool);
    pkv_table *table = admit_again(pool, 1, tokens, NULL);
    check_rows(table, 0, tokens, tag);
    end_table(table);
    assert_false(f->closed);
    end_pool(pool);
    faulty_free(f, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_J20_a_failed_load_leaves_a_valid_prefix),
        cmocka_unit_test(a_flipped_bit_anywhere_in_an_image_is_a_miss),
        cmocka_unit_test(an_image_of_another_block_is_a_miss),
        cmocka_unit_test(case_J22_a_short_load_removes_the_image),
        cmocka_unit_test(not_found_after_a_hit_loses_the_block),
        cmocka_unit_test(a_refused_load_loses_the_block),
        cmocka_unit_test(case_C14_a_gather_that_fails_loses_the_block),
        cmocka_unit_test(a_table_that_lost_blocks_can_be_destroyed),
        cmocka_unit_test(a_second_tier_serves_what_the_first_one_spoils),
        cmocka_unit_test(a_timeout_leaves_the_table_usable),
        cmocka_unit_test(a_blocked_tier_is_no_hang),
        cmocka_unit_test(a_late_lookup_gives_its_pins_back),
        cmocka_unit_test(a_late_lookup_of_an_image_in_memory_gives_its_pin_back),
        cmocka_unit_test(an_image_in_memory_is_checked_too),
        cmocka_unit_test(a_late_load_writes_into_no_page),
        cmocka_unit_test(completions_that_come_twice_count_once),
        cmocka_unit_test(loads_may_end_in_any_order),
        cmocka_unit_test(repeated_failures_make_a_tier_rest),
        cmocka_unit_test(a_resting_tier_is_asked_for_blocks_of_live_sequences),
        cmocka_unit_test(failures_that_say_nothing_about_a_tier_make_no_rest),
        cmocka_unit_test(case_J08_an_image_is_pinned_from_the_match_to_the_load),
        cmocka_unit_test(one_who_waits_for_anothers_load_goes_on_when_that_fails),
        cmocka_unit_test(a_pool_destroyed_while_a_table_restores_ends_after_it),
        cmocka_unit_test(a_tier_closed_first_goes_on_for_its_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
