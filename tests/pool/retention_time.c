/* SPDX-License-Identifier: Apache-2.0 */
/* Retention in time: what ends after ttl_ns, the order of release among equals, and what many pinned pages cost. Field
 * cases C07 and R6. */
#include "support/support.h"

#include <time.h>

enum { one_hour_ms = 3600 * 1000 };

static pkv_retention keep(uint32_t priority, int32_t pin, uint64_t ttl_ms) {
    pkv_retention retention = PKV_RETENTION_INIT;
    retention.priority = priority;
    retention.pin = pin;
    retention.ttl_ns = ttl_ms * 1000000;
    return retention;
}

static void sleep_ms(long milliseconds) {
    const struct timespec time = {0, milliseconds * 1000000};
    nanosleep(&time, NULL);
}

/* A cached prompt of one block of one token. */
static pkv_page cache_token(pkv_pool *pool, pkv_token token) {
    const pkv_prompt prompt = prompt_of(&token, 1);
    pkv_page page;
    publish_held(pool, &prompt, &page);
    release_pages(pool, &page, 1);
    return page;
}

static bool has_token(pkv_pool *pool, pkv_token token) {
    const pkv_prompt prompt = prompt_of(&token, 1);
    return probe_tokens(pool, &prompt) == 1;
}

static void keep_token(pkv_pool *pool, pkv_token token, pkv_retention retention) {
    const pkv_prompt prompt = prompt_of(&token, 1);
    uint64_t blocks = 0;
    assert_ok(pkv_pool_set_retention(pool, &prompt, 0, 1, &retention, &blocks));
    assert_int_equal(blocks, 1);
}

/* ---- ttl ---- */

static void case_C07_pinned_pages_can_be_had_again_after_their_time(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(64, 16);
    pkv_token tokens[64 * 16];
    pkv_page pages[64];
    count_up(tokens, 64 * 16, 1);
    const pkv_prompt prompt = prompt_of(tokens, 64 * 16);
    publish_cached(pool, &prompt);
    const pkv_retention pin = keep(100, 1, 100);
    assert_ok(pkv_pool_set_retention(pool, &prompt, 0, UINT64_MAX, &pin, NULL));
    assert_int_equal(stats_of(pool).pinned_pages, 64);
    assert_status(pkv_pool_alloc(pool, 0, 1, pages), PKV_ERR_NO_PAGES);
    sleep_ms(120);
    assert_ok(pkv_pool_alloc(pool, 0, 64, pages));
    assert_int_equal(stats_of(pool).pinned_pages, 0);
    assert_int_equal(stats_of(pool).expired_blocks, 64);
    release_pages(pool, pages, 64);
    end_pool(pool);
}

/* Each way to ask for room, right after the time has passed. */
static void every_call_that_wants_room_sees_that_the_time_has_passed(void **state) {
    (void)state;
    for (int way = 0; way < 5; ++way) {
        pkv_pool *pool = make_pool(2, 1);
        cache_token(pool, 10);
        cache_token(pool, 20);
        const pkv_token token = 30;
        const pkv_prompt prompt = prompt_of(&token, 1), none = prompt_of(NULL, 0);
        pkv_table *table = admit(pool, &none, NULL), *other;
        pkv_batch *batch;
        pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
        options.max_tables = 1;
        assert_ok(pkv_table_create(pool, &other));
        assert_ok(pkv_batch_create(pool, &options, &batch));
        keep_token(pool, 10, keep(100, 1, 10));
        keep_token(pool, 20, keep(100, 1, 10));
        sleep_ms(15);
        const uint32_t one = 1;
        pkv_page page;
        switch (way) {
        case 0: assert_ok(pkv_pool_alloc(pool, 0, 1, &page)); break;
        case 1: assert_int_equal(evict_pages(pool, 1), 1); break;
        case 2: assert_ok(pkv_table_admit(other, &prompt, NULL, NULL)); break;
        case 3: assert_ok(pkv_table_reserve(table, 1)); break;
        default: assert_ok(pkv_batch_reserve(batch, 1, &table, &one, NULL)); break;
        }
        assert_ok(pkv_batch_destroy(batch));
        end_table(table);
        end_table(other);
        if (way == 0) release_pages(pool, &page, 1);
        assert_int_equal(stats_of(pool).expired_blocks, 2);
        end_pool(pool);
    }
}

static void after_its_time_a_block_shows_the_default(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    const pkv_page page = cache_token(pool, 10);
    keep_token(pool, 10, keep(90, 1, 60));
    assert_int_equal(page_of(pool, page).priority, 90);
    assert_int_equal(page_of(pool, page).pinned, 1);
    sleep_ms(80);
    /* No other call came between: time alone has ended it. */
    assert_int_equal(page_of(pool, page).priority, PKV_PRIORITY_DEFAULT);
    assert_int_equal(page_of(pool, page).pinned, 0);
    end_pool(pool);
}

static void after_their_time_statistics_count_no_pinned_page(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    cache_token(pool, 10);
    keep_token(pool, 10, keep(90, 1, 10));
    sleep_ms(15);
    assert_int_equal(stats_of(pool).pinned_pages, 0);
    assert_int_equal(stats_of(pool).expired_blocks, 1);
    end_pool(pool);
}

static void a_low_priority_ends_too(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(2, 1);
    cache_token(pool, 10);
    keep_token(pool, 10, keep(0, 0, 10));
    cache_token(pool, 20);
    keep_token(pool, 20, keep(40, 0, 0));
    sleep_ms(15);
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_true(has_token(pool, 10));
    assert_false(has_token(pool, 20));
    end_pool(pool);
}

static void a_held_block_ages_as_well(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(2, 1);
    const pkv_token token = 10;
    const pkv_prompt prompt = prompt_of(&token, 1);
    pkv_page page;
    publish_held(pool, &prompt, &page);
    keep_token(pool, 10, keep(90, 1, 10));
    sleep_ms(15);
    release_pages(pool, &page, 1);
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_int_equal(stats_of(pool).expired_blocks, 1);
    end_pool(pool);
}

static void a_later_call_replaces_the_time_of_an_earlier_one(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    static const struct {
        uint64_t first_ms, then_ms;
        bool ends;
    } ways[] = {{10, 0, false}, {10, one_hour_ms, false}, {0, 10, true}, {one_hour_ms, 10, true}};
    uint64_t expired = 0;
    for (int i = 0; i < 4; ++i) {
        const pkv_page page = cache_token(pool, 10);
        keep_token(pool, 10, keep(90, 1, ways[i].first_ms));
        keep_token(pool, 10, keep(80, 1, ways[i].then_ms));
        sleep_ms(15);
        assert_int_equal(evict_pages(pool, 1), ways[i].ends);
        expired += ways[i].ends;
        assert_int_equal(stats_of(pool).expired_blocks, expired);
        if (!ways[i].ends) assert_int_equal(page_of(pool, page).priority, 80);
        assert_ok(pkv_pool_clear_all(pool, NULL));
    }
    end_pool(pool);
}

static void a_time_past_all_clocks_never_ends(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    cache_token(pool, 10);
    pkv_retention retention = keep(90, 1, 0);
    for (int i = 0; i < 2; ++i) {
        retention.ttl_ns = i == 0 ? UINT64_MAX : UINT64_MAX / 2;
        keep_token(pool, 10, retention);
        assert_int_equal(evict_pages(pool, 1), 0);
    }
    end_pool(pool);
}

static void the_time_of_a_block_that_is_gone_does_not_touch_the_next(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(1, 1);
    cache_token(pool, 10);
    keep_token(pool, 10, keep(90, 0, 10));
    assert_int_equal(evict_pages(pool, 1), 1);
    const pkv_page page = cache_token(pool, 20);
    keep_token(pool, 20, keep(80, 1, 0));
    sleep_ms(15);
    assert_int_equal(evict_pages(pool, 1), 0);
    assert_int_equal(page_of(pool, page).priority, 80);
    assert_int_equal(page_of(pool, page).pinned, 1);
    assert_int_equal(stats_of(pool).expired_blocks, 0);
    end_pool(pool);
}

/* As many changes as a narrow counter has values, and then some around it. */
static void no_number_of_later_changes_brings_an_old_time_back(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(4, 1);
    const pkv_page page = cache_token(pool, 10);
    const pkv_token token = 10;
    const pkv_prompt prompt = prompt_of(&token, 1);
    const pkv_retention for_ever = keep(90, 1, 0), brief = keep(60, 0, 200);
    for (int i = 0; i < 4; ++i) keep_token(pool, 10, brief);
    for (int i = 0; i < 65536; ++i) pkv_pool_set_retention(pool, &prompt, 0, 1, &for_ever, NULL);
    sleep_ms(210);
    assert_int_equal(evict_pages(pool, 1), 0);
    assert_int_equal(page_of(pool, page).priority, 90);
    assert_int_equal(stats_of(pool).expired_blocks, 0);
    end_pool(pool);
}

/* ---- order of release: a change counts as one ---- */

/* Released in order 10, 20, 30; set in order 30, 20, 10. */
static void a_cached_block_whose_retention_changes_counts_as_released_then(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(3, 1);
    for (pkv_token token = 10; token <= 30; token += 10) cache_token(pool, token);
    for (pkv_token token = 30; token >= 10; token -= 10) keep_token(pool, token, keep(70, 0, 0));
    for (pkv_token token = 30; token >= 10; token -= 10) {
        assert_int_equal(evict_pages(pool, 1), 1);
        assert_false(has_token(pool, token));
    }
    end_pool(pool);
}

static void a_page_whose_pin_ends_counts_as_released_then(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(2, 1);
    cache_token(pool, 10);
    keep_token(pool, 10, keep(50, 1, 0));
    cache_token(pool, 20);
    keep_token(pool, 10, keep(50, 0, 0));
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_false(has_token(pool, 20));
    end_pool(pool);
}

static void a_page_whose_time_ends_counts_as_released_then(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(2, 1);
    cache_token(pool, 10);
    keep_token(pool, 10, keep(90, 0, 10));
    cache_token(pool, 20);
    sleep_ms(15);
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_false(has_token(pool, 20));
    end_pool(pool);
}

/* While it is held the release still decides. */
static void a_held_block_whose_retention_changes_counts_from_its_release(void **state) {
    (void)state;
    pkv_pool *pool = make_id_pool(2, 1);
    const pkv_token token = 10;
    const pkv_prompt prompt = prompt_of(&token, 1);
    pkv_page page;
    publish_held(pool, &prompt, &page);
    keep_token(pool, 10, keep(60, 0, 0));
    cache_token(pool, 20);
    keep_token(pool, 20, keep(60, 0, 0));
    release_pages(pool, &page, 1);
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_false(has_token(pool, 20));
    end_pool(pool);
}

/* ---- cost ---- */

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Nanoseconds for a number of evictions of one page beside pinned ones. */
static uint64_t time_of_evictions(uint32_t pinned, uint32_t evictable) {
    pkv_pool *pool = make_id_pool(pinned + evictable, 1);
    for (uint32_t i = 0; i < pinned + evictable; ++i) { /* the pinned ones are the oldest */
        cache_token(pool, (pkv_token)i);
        if (i < pinned) keep_token(pool, (pkv_token)i, keep(i % 101, 1, 0));
    }
    const uint64_t begin = now_ns();
    for (uint32_t i = 0; i < evictable; ++i) assert_int_equal(evict_pages(pool, 1), 1);
    const uint64_t time = now_ns() - begin;
    assert_int_equal(evict_pages(pool, 1), 0);
    assert_int_equal(stats_of(pool).pinned_pages, pinned);
    end_pool(pool);
    return time;
}

static void rule_R6_pinned_pages_cost_an_eviction_nothing(void **state) {
    (void)state;
    enum { pinned = 20000, evictable = 2000 };
    uint64_t alone = UINT64_MAX, beside = UINT64_MAX; /* the best of some, as the machine may be busy */
    for (int i = 0; i < 3; ++i) {
        const uint64_t a = time_of_evictions(0, evictable), b = time_of_evictions(pinned, evictable);
        alone = a < alone ? a : alone;
        beside = b < beside ? b : beside;
    }
    print_message("%d evictions: %llu us, beside %d pinned pages %llu us\n", evictable,
                  (unsigned long long)alone / 1000, pinned, (unsigned long long)beside / 1000);
    assert_true(beside < 20 * alone + 10000000); /* one look at each would be 2000 * 20000 */
}

static void a_pin_reaches_the_head_of_a_long_prefix_and_leaves_it_again(void **state) {
    (void)state;
    enum { length = 30000 };
    pkv_pool *pool = make_id_pool(length, 1);
    pkv_token *tokens = calloc(length, sizeof *tokens);
    pkv_page *pages = calloc(length, sizeof *pages);
    count_up(tokens, length, 1);
    const pkv_prompt trunk = prompt_of(tokens, length);
    publish_held(pool, &trunk, pages);
    const pkv_retention pin = keep(50, 1, 0);
    assert_ok(pkv_pool_set_retention(pool, &trunk, length - 1, 1, &pin, NULL));
    for (uint32_t i = 0; i < length; i += 999) assert_int_equal(page_of(pool, pages[i]).pinned, 1);
    const pkv_retention unpin = keep(50, 0, 0);
    assert_ok(pkv_pool_set_retention(pool, &trunk, length - 1, 1, &unpin, NULL));
    for (uint32_t i = 0; i < length; i += 999) assert_int_equal(page_of(pool, pages[i]).pinned, 0);
    release_pages(pool, pages, length);
    assert_int_equal(evict_pages(pool, length), length);
    free(tokens);
    free(pages);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_C07_pinned_pages_can_be_had_again_after_their_time),
        cmocka_unit_test(every_call_that_wants_room_sees_that_the_time_has_passed),
        cmocka_unit_test(after_its_time_a_block_shows_the_default),
        cmocka_unit_test(after_their_time_statistics_count_no_pinned_page),
        cmocka_unit_test(a_low_priority_ends_too),
        cmocka_unit_test(a_held_block_ages_as_well),
        cmocka_unit_test(a_later_call_replaces_the_time_of_an_earlier_one),
        cmocka_unit_test(a_time_past_all_clocks_never_ends),
        cmocka_unit_test(the_time_of_a_block_that_is_gone_does_not_touch_the_next),
        cmocka_unit_test(no_number_of_later_changes_brings_an_old_time_back),
        cmocka_unit_test(a_cached_block_whose_retention_changes_counts_as_released_then),
        cmocka_unit_test(a_page_whose_pin_ends_counts_as_released_then),
        cmocka_unit_test(a_page_whose_time_ends_counts_as_released_then),
        cmocka_unit_test(a_held_block_whose_retention_changes_counts_from_its_release),
        cmocka_unit_test(rule_R6_pinned_pages_cost_an_eviction_nothing),
        cmocka_unit_test(a_pin_reaches_the_head_of_a_long_prefix_and_leaves_it_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
