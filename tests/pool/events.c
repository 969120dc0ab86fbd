/* SPDX-License-Identifier: Apache-2.0 */
/* What a pool tells about its prefix index, and that a reader who follows it knows the index. */
#include "support/support.h"

#include <pthread.h>

static pkv_pool *make_event_pool(uint64_t num_pages, uint32_t page_tokens, uint32_t capacity) {
    pkv_group_options group = small_group(num_pages);
    group.memory = PKV_MEMORY_NONE;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.event_capacity = capacity;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    return pool;
}

static uint64_t read_events(pkv_pool *pool, uint64_t after, pkv_event *events, uint64_t capacity, uint64_t missed) {
    uint64_t count = 77, gone = 77;
    assert_ok(pkv_pool_events(pool, after, events, capacity, &count, &gone));
    assert_int_equal(gone, missed);
    return count;
}

static bool same_key(pkv_key a, pkv_key b) { return a.low == b.low && a.high == b.high; }

static void check_event(const pkv_event *event, uint64_t sequence, int32_t kind, pkv_key key, uint64_t block) {
    assert_int_equal(event->sequence, sequence);
    assert_int_equal(event->kind, kind);
    assert_int_equal(event->group, 0);
    assert_int_equal(event->block, block);
    assert_true(same_key(event->key, key));
}

/* Caches single blocks of one token: one STORED event each. */
static void cache_tokens(pkv_pool *pool, pkv_token first, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        const pkv_token token = first + (pkv_token)i;
        const pkv_prompt prompt = prompt_of(&token, 1);
        publish_cached(pool, &prompt);
    }
}

/* ---- what is recorded ---- */

static void stored_removed_and_cleared_in_order_with_keys_and_parents(void **state) {
    (void)state;
    pkv_pool *pool = make_event_pool(8, 4, 64);
    pkv_token tokens[14];
    count_up(tokens, 14, 1);
    const pkv_prompt prompt = prompt_of(tokens, 14);
    pkv_key keys[3];
    uint64_t num_keys = 0;
    assert_ok(pkv_pool_keys(pool, &prompt, keys, 3, &num_keys));
    assert_int_equal(num_keys, 3);
    publish_cached(pool, &prompt);
    assert_int_equal(evict_pages(pool, 1), 1);
    assert_ok(pkv_pool_clear(pool, NULL, NULL));
    pkv_event events[8];
    assert_int_equal(read_events(pool, 0, events, 8, 0), 5);
    for (uint64_t i = 0; i < 3; ++i) {
        check_event(&events[i], i + 1, PKV_EVENT_STORED, keys[i], i);
        if (i > 0) assert_true(same_key(events[i].parent, keys[i - 1]));
    }
    const pkv_key root = events[0].parent;
    check_event(&events[3], 4, PKV_EVENT_REMOVED, keys[2], 2);
    assert_true(same_key(events[3].parent, keys[1]));
    check_event(&events[4], 5, PKV_EVENT_CLEARED, root, 0); /* one for all blocks */
    publish_cached(pool, &prompt);
    assert_int_equal(read_events(pool, 5, events, 8, 0), 3);
    check_event(&events[0], 6, PKV_EVENT_STORED, keys[0], 0);
    assert_true(same_key(events[0].parent, root));
    assert_int_equal(stats_of(pool).events, 8);
    end_pool(pool);
}

static void clear_all_tells_of_each_namespace(void **state) {
    (void)state;
    pkv_pool *pool = make_event_pool(8, 1, 64);
    pkv_namespace ns = PKV_NAMESPACE_INIT;
    ns.salt = bytes_of("tenant");
    const pkv_token token = 1;
    pkv_prompt prompt = prompt_of(&token, 1);
    publish_cached(pool, &prompt);
    prompt.ns = &ns;
    publish_cached(pool, &prompt);
    assert_ok(pkv_pool_clear_all(pool, NULL));
    pkv_event events[8];
    assert_int_equal(read_events(pool, 0, events, 8, 0), 4);
    assert_false(same_key(events[0].parent, events[1].parent));
    assert_false(same_key(events[0].key, events[1].key));
    for (int i = 2; i < 4; ++i) assert_int_equal(events[i].kind, PKV_EVENT_CLEARED);
    assert_true(same_key(events[2].key, events[0].parent) != same_key(events[3].key, events[0].parent));
    assert_true(same_key(events[2].key, events[1].parent) != same_key(events[3].key, events[1].parent));
    end_pool(pool);
}

static void what_changes_no_block_is_no_event(void **state) {
    (void)state;
    pkv_pool *pool = make_event_pool(8, 1, 64);
    cache_tokens(pool, 1, 1);
    const pkv_token token = 1, other = 2;
    const pkv_prompt prompt = prompt_of(&token, 1), unknown = prompt_of(&other, 1);
    pkv_page page, duplicate;
    assert_int_equal(lookup_tokens(pool, &prompt, &page, 1), 1);
    assert_int_equal(probe_tokens(pool, &unknown), 0);
    publish_held(pool, &prompt, &duplicate); /* the block keeps its page, which is held */
    release_pages(pool, &duplicate, 1);
    release_pages(pool, &page, 1);
    const pkv_retention retention = {sizeof retention, 90, 1, 0};
    assert_ok(pkv_pool_set_retention(pool, &prompt, 0, 1, &retention, NULL));
    assert_int_equal(stats_of(pool).events, 1);
    end_pool(pool);
}

static void a_page_that_replaces_another_is_removed_and_stored(void **state) {
    (void)state;
    pkv_pool *pool = make_event_pool(8, 1, 64);
    const pkv_token token = 1;
    const pkv_prompt prompt = prompt_of(&token, 1);
    publish_cached(pool, &prompt);
    publish_cached(pool, &prompt); /* nobody holds the first page: the second takes its place */
    pkv_event events[8];
    pkv_key key;
    uint64_t num_keys;
    assert_ok(pkv_pool_keys(pool, &prompt, &key, 1, &num_keys));
    assert_int_equal(read_events(pool, 0, events, 8, 0), 3);
    check_event(&events[1], 2, PKV_EVENT_REMOVED, key, 0);
    check_event(&events[2], 3, PKV_EVENT_STORED, key, 0);
    end_pool(pool);
}

/* ---- the ring ---- */

static void a_reader_takes_events_in_pieces(void **state) {
    (void)state;
    pkv_pool *pool = make_event_pool(32, 1, 64);
    cache_tokens(pool, 1, 23);
    uint64_t after = 0;
    for (uint64_t piece = 1; after < 23; ++piece) {
        pkv_event events[8];
        const uint64_t count = read_events(pool, after, events, piece, 0);
        assert_int_equal(count, piece < 23 - after ? piece : 23 - after);
        for (uint64_t i = 0; i < count; ++i) assert_int_equal(events[i].sequence, after + i + 1);
        after += count;
    }
    assert_int_equal(read_events(pool, 23, NULL, 0, 0), 0);
    assert_int_equal(read_events(pool, 0, NULL, 0, 0), 0);
    end_pool(pool);
}

static void a_reader_that_lags_is_told_how_much_is_gone(void **state) {
    (void)state;
    pkv_pool *pool = make_event_pool(64, 1, 10);
    pkv_event events[16];
    cache_tokens(pool, 1, 10);
    assert_int_equal(read_events(pool, 0, events, 16, 0), 10);
    cache_tokens(pool, 11, 15); /* 25 in all: 16 .. 25 are there */
    for (uint64_t after = 0; after <= 25; ++after) {
        const uint64_t missed = after < 15 ? 15 - after : 0;
        const uint64_t count = read_events(pool, after, events, 16, missed);
        assert_int_equal(count, 25 - after - missed);
        for (uint64_t i = 0; i < count; ++i) assert_int_equal(events[i].sequence, after + missed + i + 1);
    }
    assert_int_equal(read_events(pool, 3, events, 4, 12), 4);
    assert_int_equal(events[0].sequence, 16);
    uint64_t count = 0;
    assert_ok(pkv_pool_events(pool, 0, events, 16, &count, NULL));
    assert_int_equal(count, 10);
    end_pool(pool);
}

static void a_ring_of_one_event_keeps_the_last(void **state) {
    (void)state;
    pkv_pool *pool = make_event_pool(8, 1, 1);
    pkv_event events[2];
    assert_int_equal(read_events(pool, 0, events, 2, 0), 0);
    cache_tokens(pool, 1, 3);
    assert_int_equal(read_events(pool, 0, events, 2, 2), 1);
    assert_int_equal(events[0].sequence, 3);
    end_pool(pool);
}

static void wrong_reads_are_refused(void **state) {
    (void)state;
    pkv_event event;
    uint64_t count = 77, missed = 77;
    pkv_pool *pool = make_event_pool(8, 1, 0);
    cache_tokens(pool, 1, 1);
    assert_status(pkv_pool_events(pool, 0, &event, 1, &count, &missed), PKV_ERR_STATE);
    assert_message("event_capacity");
    assert_int_equal(stats_of(pool).events, 0);
    end_pool(pool);
    pool = make_event_pool(8, 1, 4);
    cache_tokens(pool, 1, 1);
    assert_status(pkv_pool_events(pool, 2, &event, 1, &count, &missed), PKV_ERR_INVALID);
    assert_message("2");
    assert_status(pkv_pool_events(pool, UINT64_MAX, &event, 1, &count, &missed), PKV_ERR_INVALID);
    assert_status(pkv_pool_events(pool, 0, NULL, 1, &count, &missed), PKV_ERR_INVALID);
    assert_status(pkv_pool_events(pool, 0, &event, 1, NULL, &missed), PKV_ERR_INVALID);
    assert_int_equal(count, 77);
    assert_int_equal(missed, 77);
    end_pool(pool);
}

/* ---- threads ---- */

static void *publish_and_evict(void *argument) {
    pkv_pool *pool = argument;
    for (pkv_token token = 0; token < 3000; ++token) {
        pkv_page page;
        const pkv_prompt prompt = prompt_of(&token, 1);
        if (pkv_pool_alloc(pool, 0, 1, &page) != PKV_OK) continue;
        pkv_pool_publish(pool, 0, &prompt, 0, 1, &page, NULL);
        pkv_pool_release(pool, 0, 1, &page, NULL, NULL);
    }
    return NULL;
}

static void two_writers_and_a_reader_see_one_order(void **state) {
    (void)state;
    pkv_pool *pool = make_event_pool(16, 1, 1u << 16);
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) assert_int_equal(pthread_create(&threads[i], NULL, publish_and_evict, pool), 0);
    uint64_t after = 0;
    int64_t stored = 0;
    for (int ended = 0; ended<3; ended += ended> 0) {
        pkv_event events[100];
        uint64_t count = 0, missed = 0;
        do {
            assert_ok(pkv_pool_events(pool, after, events, 100, &count, &missed));
            assert_int_equal(missed, 0);
            for (uint64_t i = 0; i < count; ++i) {
                assert_int_equal(events[i].sequence, ++after);
                stored += events[i].kind == PKV_EVENT_STORED ? 1 : -1;
                assert_in_range(stored, 0, 16);
            }
        } while (count > 0);
        if (ended == 0 && stats_of(pool).events > 5000) {
            for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
            ended = 1;
        }
    }
    assert_int_equal(after, stats_of(pool).events);
    assert_int_equal(stored, stats_of(pool).index_blocks);
    end_pool(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_removed_and_cleared_in_order_with_keys_and_parents),
        cmocka_unit_test(clear_all_tells_of_each_namespace),
        cmocka_unit_test(what_changes_no_block_is_no_event),
        cmocka_unit_test(a_page_that_replaces_another_is_removed_and_stored),
        cmocka_unit_test(a_reader_takes_events_in_pieces),
        cmocka_unit_test(a_reader_that_lags_is_told_how_much_is_gone),
        cmocka_unit_test(a_ring_of_one_event_keeps_the_last),
        cmocka_unit_test(wrong_reads_are_refused),
        cmocka_unit_test(two_writers_and_a_reader_see_one_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
