/* SPDX-License-Identifier: Apache-2.0 */
/* When a pool stores pages in its tiers, which images stay there, and what clearing does to them. */
#include "tier/faulty.h"

enum { tag = 7, blocks = 4, tokens = blocks * tiered_page_tokens };

static const uint64_t ms = 1000000;

static uint64_t matched_of(pkv_pool *pool, pkv_token first, uint64_t num_tokens) {
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, first, num_tokens, &match);
    end_table(table);
    return match.tokens;
}

/* Admits, brings everything up, compares, leaves. */
static void use_again(pkv_pool *pool, pkv_token first, uint64_t num_tokens) {
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_again(pool, first, num_tokens, &match);
    assert_int_equal(match.tokens, num_tokens);
    check_rows(table, 0, num_tokens, tag);
    end_table(table);
}

/* ---- when pages are stored ---- */

static void write_back_stores_what_is_evictable(void **state) {
    (void)state;
    pkv_tier *host = host_tier(64);
    pkv_pool *pool = pool_on(8, host, PKV_TIER_WRITE_BACK);
    pkv_token names[tokens];
    count_up(names, tokens, 1);
    const pkv_prompt prompt = prompt_of(names, tokens);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, tokens, tag);
    flush(pool);
    assert_int_equal(stats_of(pool).stored_images, 0); /* held pages are in nobody's way */
    end_table(table);
    flush(pool);
    assert_int_equal(stats_of(pool).stored_images, blocks);
    assert_int_equal(stats_of(pool).unstored_pages, 0);
    compute(pool, 100, 32, tag); /* takes all pages */
    assert_int_equal(stats_of(pool).dropped_images, 0);
    push_down(pool);
    use_again(pool, 1, tokens);
    end_pool(pool);
    assert_ok(pkv_tier_close(host));
}

static void write_back_leaves_pages_alone_while_there_is_room(void **state) {
    (void)state;
    pkv_tier *host = host_tier(64);
    const pkv_group_options group = small_group(16);
    const pkv_tier_attachment at = attachment(host, PKV_TIER_WRITE_BACK);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = tiered_page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = &at;
    options.num_tiers = 1;
    options.clean_pages = 4;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    compute(pool, 1, 48, tag); /* 4 of 16 are free */
    usleep(30000);             /* too short to prove anything, long enough to see most mistakes */
    assert_int_equal(stats_of(pool).stored_images, 0);
    assert_int_equal(stats_of(pool).unstored_pages, 12);
    compute(pool, 1000, 12, tag); /* 1 is free: 3 have to be clean */
    eventually(stats_of(pool).stored_images >= 3);
    eventually(stats_of(pool).unstored_pages <= 12);
    end_pool(pool);
    assert_ok(pkv_tier_close(host));
}

static void write_through_stores_at_publication(void **state) {
    (void)state;
    pkv_tier *host = host_tier(64);
    pkv_pool *pool = pool_on(8, host, PKV_TIER_WRITE_THROUGH);
    pkv_token names[tokens];
    count_up(names, tokens, 1);
    const pkv_prompt prompt = prompt_of(names, tokens);
    pkv_table *table = admit(pool, &prompt, NULL);
    write_and_commit(table, 8, tag);
    eventually(tier_stats(host).usage.images == 2); /* the sequence goes on */
    write_and_commit(table, tokens, tag);
    eventually(tier_stats(host).usage.images == blocks);
    end_table(table);
    (void)evict_pages(pool, UINT32_MAX);
    assert_int_equal(stats_of(pool).dropped_images, 0);
    assert_int_equal(stats_of(pool).stored_images, blocks);
    use_again(pool, 1, tokens);
    end_pool(pool);
    assert_ok(pkv_tier_close(host));
}

static void case_C17_write_through_goes_on_when_a_tier_is_full(void **state) {
    (void)state;
    pkv_tier *host = host_tier(4);
    pkv_pool *pool = pool_on(8, host, PKV_TIER_WRITE_THROUGH);
    compute(pool, 1, 32, tag);
    flush(pool);
    assert_int_equal(stats_of(pool).stored_images, 8);
    assert_int_equal(stats_of(pool).failed_stores, 0);
    assert_int_equal(tier_stats(host).usage.images, 4);
    assert_int_equal(tier_stats(host).usage.evicted_images, 4);
    end_pool(pool);
    assert_ok(pkv_tier_close(host));
}

static void write_on_hits_stores_at_the_hit_that_was_asked_for(void **state) {
    (void)state;
    pkv_tier *host = host_tier(64);
    pkv_tier_attachment at = attachment(host, PKV_TIER_WRITE_ON_HITS);
    at.hits = 3;
    pkv_pool *pool = pool_over(16, &at, 1);
    compute(pool, 1, tokens, tag);
    for (int hits = 1; hits <= 2; ++hits) {
        assert_int_equal(matched_of(pool, 1, tokens), tokens);
        flush(pool);
        assert_int_equal(stats_of(pool).stored_images, 0);
    }
    assert_int_equal(matched_of(pool, 1, 8), 8); /* two blocks reach their third hit, by admission */
    flush(pool);
    assert_int_equal(stats_of(pool).stored_images, 2);
    pkv_token names[tokens];
    count_up(names, tokens, 1);
    const pkv_prompt prompt = prompt_of(names, tokens);
    pkv_page pages[blocks];
    assert_int_equal(lookup_tokens(pool, &prompt, pages, blocks), tokens); /* the others by lookup */
    release_pages(pool, pages, blocks);
    flush(pool);
    assert_int_equal(stats_of(pool).stored_images, blocks);
    for (int i = 0; i < 3; ++i) assert_int_equal(matched_of(pool, 1, tokens), tokens);
    (void)probe_tokens(pool, &prompt); /* no hit */
    flush(pool);
    assert_int_equal(stats_of(pool).stored_images, blocks);
    end_pool(pool);
    assert_ok(pkv_tier_close(host));
}

static void pages_that_are_not_hit_often_enough_are_dropped(void **state) {
    (void)state;
    pkv_tier *host = host_tier(64);
    pkv_tier_attachment at = attachment(host, PKV_TIER_WRITE_ON_HITS);
    at.hits = 1;
    pkv_pool *pool = pool_over(16, &at, 1);
    compute(pool, 1, tokens, tag);
    assert_int_equal(matched_of(pool, 1, 8), 8);
    push_down(pool);
    assert_int_equal(stats_of(pool).stored_images, 2);
    assert_int_equal(stats_of(pool).dropped_images, 2);
    assert_int_equal(matched_of(pool, 1, tokens), 8);
    end_pool(pool);
    assert_ok(pkv_tier_close(host));
}

static void a_read_only_tier_serves_and_takes_nothing(void **state) {
    (void)state;
    pkv_tier *host = host_tier(64);
    pkv_pool *writer = pool_on(8, host, PKV_TIER_WRITE_BACK), *reader = pool_on(8, host, PKV_TIER_READ_ONLY);
    compute(writer, 1, tokens, tag);
    push_down(writer);
    use_again(reader, 1, tokens);
    compute(reader, 100, 8, tag);
    push_down(reader);
    assert_int_equal(stats_of(reader).stored_images, 0);
    assert_int_equal(stats_of(reader).failed_stores, 0);
    assert_int_equal(stats_of(reader).dropped_images, 2);
    assert_int_equal(tier_stats(host).stores, blocks);
    pkv_table *table = admit_again(reader, 1, tokens, NULL);
    assert_status(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL), PKV_OK); /* absent already */
    check_rows(table, 0, tokens, tag);
    assert_ok(pkv_table_truncate(table, 12, NULL));
    assert_status(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL), PKV_ERR_NO_SPACE);
    end_table(table);
    end_pool(writer);
    end_pool(reader);
    assert_ok(pkv_tier_close(host));
}

static void promoted_pages_are_not_stored_again(void **state) {
    (void)state;
    pkv_tier *host = host_tier(64);
    pkv_pool *pool = pool_on(8, host, PKV_TIER_WRITE_BACK);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    for (int i = 0; i < 3; ++i) {
        use_again(pool, 1, tokens);
        push_down(pool);
    }
    assert_int_equal(stats_of(pool).stored_images, blocks);
    assert_int_equal(stats_of(pool).dropped_images, 0);
    assert_int_equal(tier_stats(host).stores, blocks);
    assert_int_equal(tier_stats(host).loads, 3 * blocks);
    end_pool(pool);
    assert_ok(pkv_tier_close(host));
}

static void case_P07_bytes_that_move_are_counted(void **state) {
    (void)state;
    pkv_tier *host = host_tier(64);
    pkv_pool *pool = pool_on(8, host, PKV_TIER_WRITE_BACK);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    assert_int_equal(tier_stats(host).bytes_stored, blocks * image_bytes);
    assert_int_equal(tier_stats(host).bytes_loaded, 0);
    use_again(pool, 1, tokens);
    assert_int_equal(tier_stats(host).bytes_loaded, blocks * image_bytes);
    assert_int_equal(tier_stats(host).bytes_stored, blocks * image_bytes);
    assert_int_equal(tier_stats(host).usage.used_bytes, blocks * image_bytes);
    const pkv_tier_stats stats = tier_stats(host);
    assert_true(stats.hits <= stats.lookups && stats.loads + stats.failed_loads == blocks);
    end_pool(pool);
    assert_ok(pkv_tier_close(host));
}

/* ---- two tiers ---- */

static void images_that_a_small_tier_gives_up_are_found_in_the_next(void **state) {
    (void)state;
    pkv_tier *host = host_tier(8);
    faulty *f = faulty_open();
    pkv_tier_attachment tiers[2] = {attachment(host, PKV_TIER_WRITE_BACK), attachment(f->tier, PKV_TIER_DEMOTE)};
    pkv_pool *pool = pool_over(16, tiers, 2);
    for (int i = 0; i < 16; ++i) {
        compute(pool, 1 + 100 * i, 8, tag);
        push_down(pool);
        eventually(tier_stats(host).usage.images < 7); /* an eighth of it is kept free */
    }
    assert_int_equal(tier_stats(host).usage.evicted_images, 0);
    assert_true(tier_stats(host).usage.images + faulty_images(f) >= 32);
    assert_int_equal(stats_of(pool).dropped_images, 0);
    for (int i = 0; i < 16; ++i) {
        use_again(pool, 1 + 100 * i, 8);
        push_down(pool);
        eventually(tier_stats(host).usage.images < 7);
    }
    assert_true(tier_stats(f->tier).loads > 0);
    end_pool(pool);
    faulty_end(f);
    assert_ok(pkv_tier_close(host));
}

static void demotion_takes_the_least_valuable_first_and_keeps_retention(void **state) {
    (void)state;
    pkv_tier *host = host_tier(8);
    faulty *f = faulty_open();
    pkv_tier_attachment tiers[2] = {attachment(host, PKV_TIER_WRITE_BACK), attachment(f->tier, PKV_TIER_DEMOTE)};
    pkv_pool *pool = pool_over(16, tiers, 2);
    pkv_retention retention = PKV_RETENTION_INIT;
    retention.priority = 90;
    assert_ok(pkv_pool_set_namespace_retention(pool, NULL, &retention));
    compute(pool, 1, 16, tag);
    push_down(pool);
    retention.priority = 20;
    assert_ok(pkv_pool_set_namespace_retention(pool, NULL, &retention));
    compute(pool, 1000, 16, tag);
    push_down(pool);
    eventually(faulty_images(f) >= 1);
    pthread_mutex_lock(&f->mutex);
    for (int i = 0; i < faulty_most_images; ++i)
        if (f->images[i].data != NULL) assert_int_equal(f->images[i].retention.priority, 20);
    pthread_mutex_unlock(&f->mutex);
    end_pool(pool);
    faulty_end(f);
    assert_ok(pkv_tier_close(host));
}

static void a_demotion_that_fails_is_tried_with_patience(void **state) {
    (void)state;
    pkv_tier *host = host_tier(8);
    faulty *f = faulty_open();
    pkv_tier_attachment tiers[2] = {attachment(host, PKV_TIER_WRITE_BACK), attachment(f->tier, PKV_TIER_DEMOTE)};
    pkv_pool *pool = pool_over(16, tiers, 2);
    faulty_always(f, PKV_TIER_STORE, fault_status, PKV_ERR_NO_SPACE);
    compute(pool, 1, 32, tag);
    push_down(pool);
    eventually(faulty_seen(f, PKV_TIER_STORE) > 0);
    const uint64_t before = faulty_seen(f, PKV_TIER_STORE);
    usleep(200000);
    assert_in_range(faulty_seen(f, PKV_TIER_STORE) - before, 0, 8 * 30); /* a batch in 20 ms, not one after another */
    faulty_behave(f);
    eventually(tier_stats(host).usage.images < 7);
    use_again(pool, 1, 32);
    end_pool(pool);
    faulty_end(f);
    assert_ok(pkv_tier_close(host));
}

static void an_exclusive_tier_holds_what_the_pool_does_not(void **state) {
    (void)state;
    pkv_tier *host = host_tier(64);
    pkv_tier_attachment at = attachment(host, PKV_TIER_WRITE_BACK);
    at.flags = PKV_TIER_EXCLUSIVE;
    pkv_pool *pool = pool_over(16, &at, 1);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    assert_int_equal(tier_stats(host).usage.images, blocks);
    pkv_table *a = admit_again(pool, 1, tokens, NULL), *b = admit_again(pool, 1, tokens, NULL);
    check_rows(a, 0, tokens, tag);
    check_rows(b, 0, tokens, tag);
    assert_int_equal(tier_stats(host).usage.images, 0);
    end_table(a);
    end_table(b);
    push_down(pool); /* stored again */
    assert_int_equal(stats_of(pool).dropped_images, 0);
    assert_int_equal(stats_of(pool).stored_images, 2 * blocks);
    assert_int_equal(tier_stats(host).usage.images, blocks);
    use_again(pool, 1, tokens);
    end_pool(pool);
    assert_ok(pkv_tier_close(host));
}

/* ---- PKV_POOL_KEEP_UNSTORED ---- */

static pkv_pool *keeping_pool(faulty *f) {
    const pkv_group_options group = small_group(8);
    pkv_tier_attachment at = attachment(f->tier, PKV_TIER_WRITE_BACK);
    at.timeout_ns = 200 * ms;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = tiered_page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = &at;
    options.num_tiers = 1;
    options.flags = PKV_POOL_KEEP_UNSTORED;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    return pool;
}

static void unstored_pages_are_kept_until_a_blocked_tier_takes_them(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = keeping_pool(f);
    faulty_block(f, true);
    compute(pool, 1, 24, tag); /* 6 of 8 pages */
    pkv_page pages[8];
    assert_status(pkv_pool_alloc(pool, 0, 8, pages), PKV_ERR_AGAIN);
    pkv_token names[16];
    count_up(names, 16, 500);
    const pkv_prompt prompt = prompt_of(names, 16);
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    assert_status(pkv_table_admit(table, &prompt, NULL, NULL), PKV_ERR_AGAIN);
    assert_status(pkv_pool_alloc(pool, 0, 9, pages), PKV_ERR_NO_PAGES); /* that no waiting helps */
    assert_int_equal(stats_of(pool).cached_pages, 6);
    assert_int_equal(stats_of(pool).refused, 1);
    assert_ok(pkv_pool_alloc(pool, 0, 2, pages)); /* free ones */
    release_pages(pool, pages, 2);
    check_rules(pool);
    faulty_block(f, false);
    pkv_status status = PKV_ERR_AGAIN;
    eventually((status = pkv_table_admit(table, &prompt, NULL, NULL)) != PKV_ERR_AGAIN);
    assert_int_equal(status, PKV_OK);
    assert_int_equal(stats_of(pool).dropped_images, 0);
    end_table(table);
    push_down(pool);
    use_again(pool, 1, 24);
    end_pool(pool);
    faulty_end(f);
}

static void reserving_waits_for_stores_too(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = keeping_pool(f);
    const pkv_prompt none = prompt_of(NULL, 0);
    pkv_table *table = admit(pool, &none, NULL);
    faulty_block(f, true);
    compute(pool, 1, 24, tag);
    assert_status(pkv_table_reserve(table, 32), PKV_ERR_AGAIN);
    assert_int_equal(info_of(table).reserved, 0);
    faulty_block(f, false);
    pkv_status status = PKV_ERR_AGAIN;
    eventually((status = pkv_table_reserve(table, 32)) != PKV_ERR_AGAIN);
    assert_int_equal(status, PKV_OK);
    assert_int_equal(stats_of(pool).dropped_images, 0);
    end_table(table);
    end_pool(pool);
    faulty_end(f);
}

static void a_tier_that_fails_all_stores_does_not_block_the_pool(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = keeping_pool(f);
    faulty_always(f, PKV_TIER_STORE, fault_status, PKV_ERR_IO);
    compute(pool, 1, 32, tag);
    pkv_page pages[8];
    pkv_status status = PKV_ERR_AGAIN;
    eventually((status = pkv_pool_alloc(pool, 0, 8, pages)) != PKV_ERR_AGAIN);
    assert_int_equal(status, PKV_OK);
    assert_int_equal(stats_of(pool).dropped_images, 8);
    release_pages(pool, pages, 8);
    end_pool(pool);
    faulty_end(f);
}

/* ---- retention ---- */

static void set_default_retention(pkv_pool *pool, uint32_t priority, int32_t pin) {
    pkv_retention retention = PKV_RETENTION_INIT;
    retention.priority = priority;
    retention.pin = pin;
    assert_ok(pkv_pool_set_namespace_retention(pool, NULL, &retention));
}

static void priorities_decide_in_a_tier_as_in_the_pool(void **state) {
    (void)state;
    pkv_tier *host = host_tier(8);
    pkv_pool *pool = pool_on(16, host, PKV_TIER_WRITE_BACK);
    set_default_retention(pool, 90, 0);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    set_default_retention(pool, 10, 0);
    compute(pool, 1000, tokens, tag);
    push_down(pool);
    set_default_retention(pool, 50, 0);
    compute(pool, 2000, tokens, tag); /* in a full tier: the ones with priority 10 go, though 90 are older */
    push_down(pool);
    assert_int_equal(matched_of(pool, 1, tokens), tokens);
    assert_int_equal(matched_of(pool, 1000, tokens), 0);
    assert_int_equal(matched_of(pool, 2000, tokens), tokens);
    use_again(pool, 1, tokens);
    end_pool(pool);
    assert_ok(pkv_tier_close(host));
}

static void pinned_images_survive_pressure(void **state) {
    (void)state;
    pkv_tier *host = host_tier(8);
    pkv_pool *pool = pool_on(16, host, PKV_TIER_WRITE_BACK), *other = pool_on(16, host, PKV_TIER_WRITE_BACK);
    set_default_retention(pool, 50, 1);
    compute(pool, 1, tokens, tag);
    flush(pool); /* the pages are pinned, too: they stay in this pool */
    assert_int_equal(tier_stats(host).usage.pinned_images, blocks);
    for (int i = 1; i <= 10; ++i) {
        compute(other, 1000 * i, tokens, tag);
        push_down(other);
    }
    use_again(other, 1, tokens);
    /* Unpinned they go like others. */
    pkv_token names[tokens];
    count_up(names, tokens, 1);
    const pkv_prompt prompt = prompt_of(names, tokens);
    const pkv_retention plain = PKV_RETENTION_INIT;
    uint64_t set = 0;
    assert_ok(pkv_pool_set_retention(pool, &prompt, 0, UINT64_MAX, &plain, &set));
    assert_int_equal(set, blocks);
    assert_int_equal(tier_stats(host).usage.pinned_images, 0);
    push_down(pool); /* a page that is cached may be stored again when its image is gone */
    push_down(other);
    for (int i = 20; i <= 30; ++i) {
        compute(other, 1000 * i, tokens, tag);
        push_down(other);
    }
    assert_int_equal(matched_of(other, 1, tokens), 0);
    end_pool(pool);
    end_pool(other);
    assert_ok(pkv_tier_close(host));
}

/* ---- clearing ---- */

static pkv_namespace salted(const char *salt) {
    pkv_namespace ns = PKV_NAMESPACE_INIT;
    ns.salt = bytes_of(salt);
    return ns;
}

static pkv_table *admit_in(pkv_pool *pool, const pkv_namespace *ns, pkv_match *match) {
    pkv_token names[tokens];
    count_up(names, tokens, 1);
    pkv_prompt prompt = prompt_of(names, tokens);
    prompt.ns = ns;
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = PKV_MATCH_ALL;
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    assert_ok(pkv_table_admit(table, &prompt, &options, match));
    return table;
}

static uint64_t matched_in(pkv_pool *pool, const pkv_namespace *ns, uint32_t rows) {
    pkv_match match = PKV_MATCH_INIT;
    pkv_table *table = admit_in(pool, ns, &match);
    check_rows(table, 0, match.tokens, rows);
    end_table(table);
    return match.tokens;
}

static void clearing_a_namespace_clears_its_images_and_no_others(void **state) {
    (void)state;
    pkv_tier *host = host_tier(64);
    faulty *f = faulty_open();
    pkv_tier_attachment tiers[2] = {attachment(host, PKV_TIER_WRITE_BACK), attachment(f->tier, PKV_TIER_WRITE_BACK)};
    pkv_pool *pool = pool_over(32, tiers, 2);
    const pkv_namespace x = salted("x"), y = salted("y");
    const pkv_namespace *namespaces[] = {NULL, &x, &y};
    for (uint32_t i = 0; i < 3; ++i) {
        pkv_table *table = admit_in(pool, namespaces[i], NULL);
        write_and_commit(table, tokens, 10 + i);
        end_table(table);
    }
    push_down(pool);
    assert_int_equal(tier_stats(host).usage.images, 12);
    assert_ok(pkv_pool_clear(pool, &x, NULL));
    assert_int_equal(tier_stats(host).usage.images, 8);
    assert_int_equal(faulty_images(f), 8);
    assert_int_equal(matched_in(pool, &x, 11), 0);
    assert_int_equal(matched_in(pool, NULL, 10), tokens);
    assert_int_equal(matched_in(pool, &y, 12), tokens);
    /* What is computed anew in it is found as usual. */
    pkv_table *table = admit_in(pool, &x, NULL);
    write_and_commit(table, tokens, 13);
    end_table(table);
    push_down(pool);
    assert_int_equal(matched_in(pool, &x, 13), tokens);
    assert_ok(pkv_pool_clear_all(pool, NULL));
    /* Pages brought up from the first tier may have been on their way to the second: these images go as they arrive. */
    eventually(tier_stats(host).usage.images == 0 && faulty_images(f) == 0);
    for (uint32_t i = 0; i < 3; ++i) assert_int_equal(matched_in(pool, namespaces[i], 0), 0);
    end_pool(pool);
    faulty_end(f);
    assert_ok(pkv_tier_close(host));
}

static void spilled_blocks_survive_a_clear(void **state) {
    (void)state;
    pkv_tier *host = host_tier(64);
    pkv_pool *pool = pool_on(16, host, PKV_TIER_WRITE_BACK);
    pkv_table *table = admit_in(pool, NULL, NULL);
    write_and_commit(table, tokens, 10);
    assert_ok(pkv_table_spill(table, 0, UINT64_MAX, NULL, NULL));
    assert_ok(pkv_pool_clear(pool, NULL, NULL));
    assert_ok(pkv_pool_clear_all(pool, NULL));
    check_rows(table, 0, tokens, 10);
    end_table(table);
    assert_int_equal(stats_of(pool).index_blocks, 0);
    end_pool(pool);
    assert_ok(pkv_tier_close(host));
}

static void blocks_admitted_before_a_clear_are_lost_and_not_wrong(void **state) {
    (void)state;
    for (int in_memory = 0; in_memory < 2; ++in_memory) {
        faulty *f = faulty_open_as(in_memory != 0);
        pkv_pool *pool = pool_on_faulty(32, f, PKV_TIER_WRITE_BACK, 0);
        pkv_table *table = admit_in(pool, NULL, NULL);
        write_and_commit(table, tokens, 10);
        end_table(table);
        push_down(pool);
        table = admit_in(pool, NULL, NULL);
        assert_ok(pkv_pool_clear(pool, NULL, NULL));
        assert_status(pkv_table_restore(table, 0, UINT64_MAX, 10ull * one_second, NULL), PKV_ERR_LOST);
        assert_int_equal(info_of(table).valid, 0);
        assert_int_equal(stats_of(pool).lost_blocks, blocks);
        /* It may go on, but what it computes is not found: it began before the clear. */
        assert_ok(pkv_table_truncate(table, 0, NULL));
        write_and_commit(table, tokens, 20);
        check_rows(table, 0, tokens, 20);
        end_table(table);
        push_down(pool);
        assert_int_equal(matched_in(pool, NULL, 20), 0);
        assert_int_equal(faulty_pins(f), 0);
        assert_int_equal(faulty_images(f), 0);
        end_pool(pool);
        faulty_end(f);
    }
}

static void what_was_loaded_before_a_clear_is_not_published_after_it(void **state) {
    (void)state;
    pkv_tier *host = host_tier(64);
    pkv_pool *pool = pool_on(32, host, PKV_TIER_WRITE_BACK);
    pkv_table *table = admit_in(pool, NULL, NULL);
    write_and_commit(table, tokens, 10);
    end_table(table);
    push_down(pool);
    table = admit_in(pool, NULL, NULL);
    check_rows(table, 0, 8, 10);
    assert_ok(pkv_pool_clear(pool, NULL, NULL));
    check_rows(table, 0, 8, 10); /* its own sequence keeps what it has */
    assert_int_equal(matched_in(pool, NULL, 10), 0);
    end_table(table);
    assert_int_equal(stats_of(pool).cached_pages, 0);
    push_down(pool);
    assert_int_equal(tier_stats(host).usage.images, 0);
    end_pool(pool);
    assert_ok(pkv_tier_close(host));
}

static void a_store_that_ends_after_a_clear_leaves_no_image(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(32, f, PKV_TIER_WRITE_THROUGH, 0);
    faulty_always(f, PKV_TIER_STORE, fault_hold, 0);
    pkv_table *table = admit_in(pool, NULL, NULL);
    write_and_commit(table, tokens, 10);
    end_table(table);
    eventually(faulty_held(f) == blocks);
    assert_ok(pkv_pool_clear(pool, NULL, NULL));
    faulty_let_go(f);
    eventually(faulty_images(f) == 0 && tier_stats(f->tier).open_requests == 0);
    assert_int_equal(matched_in(pool, NULL, 10), 0);
    end_pool(pool);
    faulty_end(f);
}

/* Between the moment when a tier has it and the moment when the pool hears of that, it must not be found, either. */
static void a_store_that_overtakes_a_clear_is_not_found(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(32, f, PKV_TIER_WRITE_THROUGH, 0);
    faulty_always(f, PKV_TIER_STORE, fault_hold, 1);
    pkv_table *table = admit_in(pool, NULL, NULL);
    write_and_commit(table, tokens, 10);
    end_table(table);
    eventually(faulty_held(f) == blocks);
    assert_ok(pkv_pool_clear(pool, NULL, NULL));
    faulty_let_go(f);
    eventually(faulty_held(f) == blocks); /* stored; nobody has been told */
    assert_int_equal(tier_stats(f->tier).usage.images, blocks);
    assert_int_equal(matched_in(pool, NULL, 10), 0);
    faulty_let_go(f);
    eventually(faulty_images(f) == 0 && tier_stats(f->tier).open_requests == 0);
    end_pool(pool);
    faulty_end(f);
}

static void a_clear_of_a_blocked_tier_is_no_hang(void **state) {
    (void)state;
    faulty *f = faulty_open();
    pkv_pool *pool = pool_on_faulty(32, f, PKV_TIER_WRITE_BACK, 20 * ms);
    compute(pool, 1, tokens, tag);
    push_down(pool);
    faulty_block(f, true);
    assert_ok(pkv_pool_clear(pool, NULL, NULL));
    faulty_block(f, false);
    assert_int_equal(faulty_images(f), 0);
    assert_int_equal(matched_of(pool, 1, tokens), 0);
    end_pool(pool);
    faulty_end(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_back_stores_what_is_evictable),
        cmocka_unit_test(write_back_leaves_pages_alone_while_there_is_room),
        cmocka_unit_test(write_through_stores_at_publication),
        cmocka_unit_test(case_C17_write_through_goes_on_when_a_tier_is_full),
        cmocka_unit_test(write_on_hits_stores_at_the_hit_that_was_asked_for),
        cmocka_unit_test(pages_that_are_not_hit_often_enough_are_dropped),
        cmocka_unit_test(a_read_only_tier_serves_and_takes_nothing),
        cmocka_unit_test(promoted_pages_are_not_stored_again),
        cmocka_unit_test(case_P07_bytes_that_move_are_counted),
        cmocka_unit_test(images_that_a_small_tier_gives_up_are_found_in_the_next),
        cmocka_unit_test(demotion_takes_the_least_valuable_first_and_keeps_retention),
        cmocka_unit_test(a_demotion_that_fails_is_tried_with_patience),
        cmocka_unit_test(an_exclusive_tier_holds_what_the_pool_does_not),
        cmocka_unit_test(unstored_pages_are_kept_until_a_blocked_tier_takes_them),
        cmocka_unit_test(reserving_waits_for_stores_too),
        cmocka_unit_test(a_tier_that_fails_all_stores_does_not_block_the_pool),
        cmocka_unit_test(priorities_decide_in_a_tier_as_in_the_pool),
        cmocka_unit_test(pinned_images_survive_pressure),
        cmocka_unit_test(clearing_a_namespace_clears_its_images_and_no_others),
        cmocka_unit_test(spilled_blocks_survive_a_clear),
        cmocka_unit_test(blocks_admitted_before_a_clear_are_lost_and_not_wrong),
        cmocka_unit_test(what_was_loaded_before_a_clear_is_not_published_after_it),
        cmocka_unit_test(a_store_that_ends_after_a_clear_leaves_no_image),
        cmocka_unit_test(a_store_that_overtakes_a_clear_is_not_found),
        cmocka_unit_test(a_clear_of_a_blocked_tier_is_no_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
