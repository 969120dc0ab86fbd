/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of prefetch sessions share: pools whose sequences lie in tiers, and views compared row by row. */
#ifndef PKV_TESTS_SESSION_H
#define PKV_TESTS_SESSION_H

#include "tier/tiered.h"

static inline pkv_group_options layers_group(uint64_t num_pages, uint32_t num_layers) {
    pkv_group_options group = small_group(num_pages);
    group.num_layers = num_layers;
    return group;
}

static inline pkv_pool *pool_of_groups(const pkv_group_options *groups, uint32_t num_groups, pkv_tier *tier) {
    pkv_tier_attachment at = attachment(tier, PKV_TIER_WRITE_BACK);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = tiered_page_tokens;
    options.num_groups = num_groups;
    options.groups = groups;
    options.tiers = &at;
    options.num_tiers = 1;
    options.debug = PKV_DEBUG_POISON;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    return pool;
}

static inline pkv_prefetch *open_session(pkv_pool *pool, const pkv_prefetch_options *options) {
    pkv_prefetch *session = NULL;
    assert_ok(pkv_prefetch_open(pool, options, &session));
    return session;
}

static inline pkv_prefetch_stats session_stats(pkv_prefetch *session) {
    pkv_prefetch_stats stats = PKV_PREFETCH_STATS_INIT;
    assert_ok(pkv_prefetch_get_stats(session, &stats));
    return stats;
}

/* What holds at any time. */
static inline void check_session(pkv_prefetch *session) {
    const pkv_prefetch_stats s = session_stats(session);
    assert_int_equal(s.needed, s.on_time + s.late + s.on_demand);
    assert_int_equal(s.io_ns, s.masked_ns + s.exposed_ns);
    assert_int_equal(s.bytes_loaded, s.bytes_used + s.wasted_bytes + s.ready_bytes);
    assert_int_equal(s.loads, s.good_loads + s.failed_loads + s.cancelled_loads + s.loads_in_flight);
    assert_true(s.ready_requests <= s.requests && s.failed <= s.needed);
    assert_int_equal(s.load.count, s.good_loads);
    assert_int_equal(s.queue.count, s.loads);
}

/* A sequence of `num_tokens` tokens from `first` on, in all groups, built in pieces that fit the pool: blocks before
 * `num_tokens - resident` are spilled. */
static inline pkv_table *long_sequence(pkv_pool *pool, pkv_token first, uint64_t num_tokens, uint64_t resident,
                                       uint32_t tag) {
    pkv_token token = first;
    const pkv_prompt prompt = prompt_of(&token, 1);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.flags = PKV_ADMIT_NO_MATCH;
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    assert_ok(pkv_table_admit(table, &prompt, &options, NULL));
    uint64_t spilled = 0;
    for (uint64_t done = 0; done < num_tokens;) {
        const uint64_t end = done + 2 * tiered_page_tokens < num_tokens ? done + 2 * tiered_page_tokens : num_tokens;
        pkv_token tokens[2 * tiered_page_tokens];
        count_up(tokens, end - done, first + (pkv_token)done);
        assert_ok(pkv_table_set_tokens(table, done, end - done, tokens));
        put_and_commit(pool, table, end, tag);
        done = end;
        const uint64_t keep = resident < done ? done - resident : 0, to = keep / tiered_page_tokens;
        if (to > spilled) assert_ok(pkv_table_spill(table, spilled, to - spilled, NULL, NULL));
        spilled = to > spilled ? to : spilled;
    }
    return table;
}

/* Compares all rows of a view with what was put in: table t has tag tags[t], and `tokens[t]` tokens. Returns how many tokens'
 * rows were compared; `next` [num_tables] is the block that each table's entries must begin with, and is moved on. */
static inline uint64_t check_view(const pkv_layer_view *view, const uint32_t *tags, const uint64_t *tokens,
                                  uint64_t *next) {
    const pkv_layer_layout *l = &view->layout;
    unsigned char expected[4096];
    uint64_t rows = 0;
    assert_int_equal(view->indptr[0], 0);
    assert_int_equal(view->indptr[view->num_tables], view->num_slices);
    for (uint32_t t = 0; t < view->num_tables; ++t) {
        const uint64_t count = (uint64_t)(view->indptr[t + 1] - view->indptr[t]);
        if (count == 0) continue;
        assert_int_equal(view->first_block[t], next[t]);
        next[t] += count;
        for (uint64_t i = 0; i < count; ++i) {
            const int32_t slice = view->slices[(uint64_t)view->indptr[t] + i];
            if (slice < 0) continue;
            for (uint32_t offset = 0; offset < l->page_tokens; ++offset) {
                const uint64_t token = (view->first_block[t] + i) * l->page_tokens + offset;
                if (token >= tokens[t]) break;
                ++rows;
                for (int side = 0; side < (l->v_row_bytes != 0 ? 2 : 1); ++side) {
                    const uint64_t bytes = side == 0 ? l->k_row_bytes : l->v_row_bytes;
                    const pkv_strides *s = side == 0 ? &l->k : &l->v;
                    assert_true(bytes * l->num_kv_heads <= sizeof expected);
                    known_row(expected, bytes * l->num_kv_heads, tags[t], view->group, view->layer, token, side);
                    for (uint32_t head = 0; head < l->num_kv_heads; ++head) {
                        const unsigned char *row = (const unsigned char *)(side == 0 ? l->k_base : l->v_base) +
                                                   (uint64_t)slice * s->page + offset * s->token + head * s->head;
                        if (memcmp(row, expected + head * bytes, bytes) != 0)
                            fail_msg("table %u, layer %u, token %llu, side %d: other bytes", t, view->index,
                                     (unsigned long long)token, side);
                    }
                }
            }
        }
    }
    return rows;
}

/* One step over all layers, every view compared. Returns the ranges that it came in. */
static inline uint64_t check_step(pkv_prefetch *session, uint32_t num_layers, uint32_t num_tables,
                                  pkv_table *const *tables, const uint32_t *tags) {
    uint64_t ranges = 0, tokens[64], next[64];
    for (uint32_t t = 0; t < num_tables; ++t) tokens[t] = info_of(tables[t]).committed;
    assert_ok(pkv_prefetch_step_begin(session, num_tables, tables, NULL, NULL));
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
        memset(next, 0, sizeof next);
        pkv_layer_view view = PKV_LAYER_VIEW_INIT;
        uint64_t rows = 0, all = 0;
        do {
            assert_ok(pkv_prefetch_layer_acquire(session, layer, 20ull * one_second, NULL, &view));
            assert_int_equal(view.index, layer);
            rows += check_view(&view, tags, tokens, next);
            assert_ok(pkv_prefetch_layer_release(session, layer, NULL));
            ++ranges;
        } while (!view.last);
        for (uint32_t t = 0; t < num_tables; ++t) all += tokens[t];
        assert_int_equal(rows, all);
    }
    assert_ok(pkv_prefetch_step_end(session, NULL));
    check_session(session);
    return ranges;
}

#endif
