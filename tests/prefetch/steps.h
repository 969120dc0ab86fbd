/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of steps over layers share: a pool over a tier with a session on it, views checked as they come. */
#ifndef PKV_TESTS_STEPS_H
#define PKV_TESTS_STEPS_H

#include "prefetch/session.h"
#include "prefetch/watch.h"

static const uint64_t ten_seconds = 10ull * one_second;

/* ---- words ---- */

enum { most_groups = 4 };

typedef struct {
    pkv_tier *tier;
    pkv_pool *pool;
    pkv_prefetch *session;
} world;

static inline world make_world(const pkv_group_options *groups, uint32_t num_groups) {
    world w = {host_tier(2000), NULL, NULL};
    w.pool = pool_of_groups(groups, num_groups, w.tier);
    return w;
}

static inline world world_of_layers(uint64_t num_pages, uint32_t num_layers) {
    const pkv_group_options group = layers_group(num_pages, num_layers);
    return make_world(&group, 1);
}

static inline void end_world(world *w) {
    if (w->session != NULL) assert_ok(pkv_prefetch_close(w->session, NULL));
    end_groups(w->pool);
    assert_ok(pkv_tier_close(w->tier));
}

static inline pkv_prefetch *open_with_buffers(pkv_pool *pool, uint32_t num_buffers, uint32_t flags,
                                              const uint64_t *staging) {
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.num_buffers = num_buffers;
    options.flags = flags;
    options.staging_pages = staging;
    return open_session(pool, &options);
}

static inline pkv_layer_view acquired(pkv_prefetch *session, uint32_t index) {
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_ok(pkv_prefetch_layer_acquire(session, index, 2 * ten_seconds, NULL, &view));
    assert_int_equal(view.index, index);
    return view;
}

static inline void release(pkv_prefetch *session, uint32_t index) {
    assert_ok(pkv_prefetch_layer_release(session, index, NULL));
}

/* The rows of a view that is all of its layer, from block 0 on. */
static inline uint64_t check_whole(const pkv_layer_view *view, const uint32_t *tags, const uint64_t *tokens) {
    uint64_t next[64] = {0};
    assert_int_equal(view->last, 1);
    return check_view(view, tags, tokens, next);
}

static inline uint64_t check_of_one(const pkv_layer_view *view, uint32_t tag, uint64_t tokens) {
    return check_whole(view, &tag, &tokens);
}

/* Layers [first, end) of a step that is under way, whole or in ranges. Returns the ranges. */
static inline uint64_t check_layers(pkv_prefetch *session, uint32_t first, uint32_t end, uint32_t num_tables,
                                    const uint32_t *tags, const uint64_t *tokens) {
    uint64_t ranges = 0, all = 0;
    for (uint32_t t = 0; t < num_tables; ++t) all += tokens[t];
    for (uint32_t index = first; index < end; ++index) {
        uint64_t next[64] = {0}, rows = 0;
        pkv_layer_view view;
        do {
            view = acquired(session, index);
            assert_int_equal(view.num_tables, num_tables);
            rows += check_view(&view, tags, tokens, next);
            release(session, index);
            ++ranges;
        } while (!view.last);
        assert_int_equal(rows, all);
    }
    return ranges;
}

/* A sequence that is in tiers but for its last two blocks, the last one half full, read in three steps by sessions with
 * staging memory of the usual size and of little. */
static inline void read_all(world *w, uint32_t num_layers) {
    const uint32_t tag = 5;
    pkv_table *table = long_sequence(w->pool, 100, 20 * tiered_page_tokens + 2, 2 * tiered_page_tokens, tag);
    assert_true(info_of(table).absent_blocks >= 18);
    w->session = open_session(w->pool, NULL);
    for (int step = 0; step < 3; ++step) check_step(w->session, num_layers, 1, &table, &tag);
    assert_ok(pkv_prefetch_close(w->session, NULL));
    uint64_t staging[most_groups];
    for (int group = 0; group < most_groups; ++group) staging[group] = 3;
    w->session = open_with_buffers(w->pool, 2, 0, staging);
    for (int step = 0; step < 3; ++step) check_step(w->session, num_layers, 1, &table, &tag);
    end_table(table);
}

static inline void read_group(const pkv_group_options *group) {
    world w = make_world(group, 1);
    read_all(&w, group->num_layers);
    end_world(&w);
}

/* Nothing is under way, and nothing begins for a while: what may not be loaded yet is not, though it is long ago. */
static inline bool is_quiet(pkv_prefetch *session) {
    const pkv_prefetch_stats first = session_stats(session);
    if (first.loads_in_flight != 0) return false;
    usleep(3000);
    return session_stats(session).loads == first.loads && session_stats(session).loads_in_flight == 0;
}

/* Computes tokens first ... as a sequence of its own and throws it out of the pool. */
static inline void put_below(pkv_pool *pool, pkv_token first, uint64_t num_tokens, uint32_t tag) {
    pkv_token tokens[256];
    count_up(tokens, num_tokens, first);
    const pkv_prompt prompt = prompt_of(tokens, num_tokens);
    pkv_table *table = admit(pool, &prompt, NULL);
    put_and_commit(pool, table, num_tokens, tag);
    end_table(table);
    push_down(pool);
}

#endif
