/* SPDX-License-Identifier: Apache-2.0 */
/* Steps over layers: every row of every view is the right one, however the pool's memory lies and whatever the tables do.
 * Field cases J11, J13, J23. */
#include "prefetch/watch.h"
#include "tier/file_tier.h"

static const uint64_t ten_seconds = 10ull * one_second;

/* ---- words ---- */

enum { most_groups = 4 };

typedef struct {
    pkv_tier *tier;
    pkv_pool *pool;
    pkv_prefetch *session;
} world;

static world make_world(const pkv_group_options *groups, uint32_t num_groups) {
    world w = {host_tier(2000), NULL, NULL};
    w.pool = pool_of_groups(groups, num_groups, w.tier);
    return w;
}

static world world_of_layers(uint64_t num_pages, uint32_t num_layers) {
    const pkv_group_options group = layers_group(num_pages, num_layers);
    return make_world(&group, 1);
}

static void end_world(world *w) {
    if (w->session != NULL) assert_ok(pkv_prefetch_close(w->session, NULL));
    end_groups(w->pool);
    assert_ok(pkv_tier_close(w->tier));
}

static pkv_prefetch *open_with_buffers(pkv_pool *pool, uint32_t num_buffers, uint32_t flags, const uint64_t *staging) {
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.num_buffers = num_buffers;
    options.flags = flags;
    options.staging_pages = staging;
    return open_session(pool, &options);
}

static pkv_layer_view acquired(pkv_prefetch *session, uint32_t index) {
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_ok(pkv_prefetch_layer_acquire(session, index, 2 * ten_seconds, NULL, &view));
    assert_int_equal(view.index, index);
    return view;
}

static void release(pkv_prefetch *session, uint32_t index) {
    assert_ok(pkv_prefetch_layer_release(session, index, NULL));
}

/* The rows of a view that is all of its layer, from block 0 on. */
static uint64_t check_whole(const pkv_layer_view *view, const uint32_t *tags, const uint64_t *tokens) {
    uint64_t next[64] = {0};
    assert_int_equal(view->last, 1);
    return check_view(view, tags, tokens, next);
}

static uint64_t check_of_one(const pkv_layer_view *view, uint32_t tag, uint64_t tokens) {
    return check_whole(view, &tag, &tokens);
}

/* Layers [first, end) of a step that is under way, whole or in ranges. Returns the ranges. */
static uint64_t check_layers(pkv_prefetch *session, uint32_t first, uint32_t end, uint32_t num_tables,
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
static void read_all(world *w, uint32_t num_layers) {
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

static void read_group(const pkv_group_options *group) {
    world w = make_world(group, 1);
    read_all(&w, group->num_layers);
    end_world(&w);
}

/* ---- every kind of memory ---- */

static void a_sequence_larger_than_the_pool_is_read_in_each_step(void **state) {
    (void)state;
    pkv_tier *tier = host_tier(400);
    const pkv_group_options group = layers_group(16, 4);
    pkv_pool *pool = pool_of_groups(&group, 1, tier);
    const uint32_t tag = 7;
    pkv_table *table = long_sequence(pool, 100, 32 * tiered_page_tokens, 4 * tiered_page_tokens, tag);
    assert_int_equal(info_of(table).absent_blocks, 28);
    pkv_prefetch *session = open_session(pool, NULL);
    for (int step = 0; step < 5; ++step) check_step(session, 4, 1, &table, &tag);
    const pkv_prefetch_stats stats = session_stats(session);
    assert_int_equal(stats.needed, 5 * 4 * 28);
    assert_int_equal(stats.steps, 5);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(tier));
}

static void pages_of_each_arrangement_and_layout_are_read(void **state) {
    (void)state;
    const int32_t arrangements[] = {PKV_PAGE_MAJOR, PKV_LAYER_MAJOR}, layouts[] = {PKV_LAYOUT_NHD, PKV_LAYOUT_HND};
    for (int i = 0; i < 4; ++i) {
        pkv_group_options group = layers_group(16, 5);
        group.arrangement = arrangements[i / 2];
        group.layout = layouts[i % 2];
        read_group(&group);
    }
}

static void pages_with_gaps_between_them_are_read(void **state) {
    (void)state;
    pkv_group_options group = layers_group(16, 3);
    group.k_strides.page = 3 * 2 * 64 + 64; /* one side of a layer's page has 64 bytes */
    read_group(&group);
    group.k_strides.page = 3 * 2 * 64 + 40; /* no multiple of that */
    read_group(&group);
    group.arrangement = PKV_LAYER_MAJOR;
    group.k_strides.page = 2 * 64 + 64;
    read_group(&group);
}

static void pages_without_v_are_read(void **state) {
    (void)state;
    const int32_t arrangements[] = {PKV_PAGE_MAJOR, PKV_LAYER_MAJOR};
    for (int i = 0; i < 2; ++i) {
        pkv_group_options group = layers_group(16, 4);
        group.v_head_dim = 0;
        group.arrangement = arrangements[i];
        read_group(&group);
    }
}

static void k_and_v_rows_of_different_sizes_are_read(void **state) {
    (void)state;
    pkv_group_options group = layers_group(16, 4);
    group.k_head_dim = 12;
    read_group(&group);
    group.arrangement = PKV_LAYER_MAJOR;
    read_group(&group);
}

static void opaque_rows_are_read(void **state) {
    (void)state;
    pkv_group_options group = layers_group(16, 3);
    group.dtype = PKV_DTYPE_OPAQUE;
    group.k_head_dim = group.v_head_dim = 0;
    group.k_row_bytes = 7;
    group.v_row_bytes = 11;
    read_group(&group);
    group.v_row_bytes = 0;
    read_group(&group);
}

enum { callers_pages = 16, callers_layers = 4, side_bytes = tiered_page_tokens * 2 * 8 };

/* Tensors of the caller's: K of layer l at k_at[l], in units of a layer. */
static void read_callers_memory(const int *k_at, const int *v_at, bool numbered) {
    const uint64_t layer_bytes = callers_pages * side_bytes;
    unsigned char *memory = calloc(2 * callers_layers, layer_bytes);
    void *k[callers_layers], *v[callers_layers];
    for (int layer = 0; layer < callers_layers; ++layer) {
        k[layer] = memory + (uint64_t)k_at[layer] * layer_bytes;
        v[layer] = memory + (uint64_t)v_at[layer] * layer_bytes;
    }
    pkv_group_options group = layers_group(callers_pages, callers_layers);
    group.memory = PKV_MEMORY_CALLER;
    group.k_base = k;
    group.v_base = v;
    world w = make_world(&group, 1);
    read_all(&w, callers_layers);
    /* The rows lie in one of the caller's tensors in any case; without a common numbering slice ids are pages. */
    const uint32_t tag = 6;
    pkv_table *table = long_sequence(w.pool, 1000, 6 * tiered_page_tokens, tiered_page_tokens, tag);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
    for (uint32_t layer = 0; layer < callers_layers; ++layer) {
        pkv_layer_view view;
        do {
            view = acquired(w.session, layer);
            pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
            assert_ok(pkv_pool_layout(w.pool, 0, layer, &layout));
            assert_true(numbered || (view.layout.k_base == layout.k_base && view.layout.v_base == layout.v_base));
            for (uint64_t i = 0; i < view.num_slices; ++i) {
                assert_true(view.slices[i] >= 0);
                assert_true(view.slices[i] < callers_pages * (numbered ? callers_layers : 1));
            }
            release(w.session, layer);
        } while (!view.last);
    }
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    end_table(table);
    end_world(&w);
    free(memory);
}

static void callers_tensors_with_one_numbering_of_k_and_v_are_read(void **state) {
    (void)state;
    const int k[] = {0, 1, 2, 3}, v[] = {4, 5, 6, 7}, k_mixed[] = {2, 0, 3, 1}, v_mixed[] = {6, 4, 7, 5};
    read_callers_memory(k, v, true);
    read_callers_memory(k_mixed, v_mixed, true);
}

static void callers_tensors_without_a_common_numbering_have_pages_as_slices(void **state) {
    (void)state;
    const int k[] = {0, 1, 2, 3}, v[] = {7, 6, 5, 4};
    read_callers_memory(k, v, false);
}

static void callers_tensors_from_allocations_of_their_own_are_read(void **state) {
    (void)state;
    void *k[3], *v[3];
    for (int layer = 0; layer < 3; ++layer) {
        k[layer] = malloc(16 * side_bytes);
        v[layer] = malloc(16 * side_bytes);
    }
    pkv_group_options group = layers_group(16, 3);
    group.memory = PKV_MEMORY_CALLER;
    group.k_base = k;
    group.v_base = v;
    read_group(&group);
    group.v_head_dim = 0;
    group.v_base = NULL;
    read_group(&group);
    for (int layer = 0; layer < 3; ++layer) {
        free(k[layer]);
        free(v[layer]);
    }
}

static void callers_tensors_with_strides_are_read(void **state) {
    (void)state;
    /* [page, layer, K and V, token, head]: each side of each layer has its place in a page of 2 * 3 sides. */
    const uint64_t page = 2 * 3 * side_bytes;
    unsigned char *memory = calloc(16, page);
    void *k[3], *v[3];
    for (int layer = 0; layer < 3; ++layer) {
        k[layer] = memory + 2 * layer * side_bytes;
        v[layer] = memory + (2 * layer + 1) * side_bytes;
    }
    pkv_group_options group = layers_group(16, 3);
    group.memory = PKV_MEMORY_CALLER;
    group.k_base = k;
    group.v_base = v;
    group.k_strides = group.v_strides = (pkv_strides){page, 16, 8};
    read_group(&group);
    free(memory);
}

static void all_layers_of_a_pools_own_memory_have_one_base_and_stride(void **state) {
    (void)state;
    const int32_t arrangements[] = {PKV_PAGE_MAJOR, PKV_LAYER_MAJOR};
    for (int i = 0; i < 2; ++i) {
        pkv_group_options group = layers_group(16, 4);
        group.arrangement = arrangements[i];
        world w = make_world(&group, 1);
        pkv_table *table = long_sequence(w.pool, 100, 40, 4, 1);
        w.session = open_session(w.pool, NULL);
        pkv_layer_view first = PKV_LAYER_VIEW_INIT;
        for (int step = 0; step < 2; ++step) {
            assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
            for (uint32_t layer = 0; layer < 4; ++layer) {
                pkv_layer_view view;
                do {
                    view = acquired(w.session, layer);
                    if (first.slices == NULL) first = view;
                    assert_memory_equal(&view.layout, &first.layout, sizeof view.layout);
                    release(w.session, layer);
                } while (!view.last);
            }
            assert_ok(pkv_prefetch_step_end(w.session, NULL));
        }
        end_table(table);
        end_world(&w);
    }
}

/* ---- scales ---- */

enum { scaled_layers = 3, scaled_tokens = 30, scaled_dim = 4 };

/* What stands in the pages: bytes and scales of each row. */
typedef struct {
    unsigned char rows[scaled_layers][scaled_tokens][2][2][scaled_dim]; /* token, head, side */
    float scales[scaled_layers][scaled_tokens][2][2];
} scaled_rows;

static const unsigned char *row_in(const pkv_layer_layout *l, int side, int32_t place, uint32_t offset, uint32_t head) {
    const pkv_strides *s = side == 0 ? &l->k : &l->v;
    return (const unsigned char *)(side == 0 ? l->k_base : l->v_base) + (uint64_t)place * s->page + offset * s->token +
           head * s->head;
}

static float scale_in(const pkv_layer_layout *l, int side, int32_t place, uint32_t offset, uint32_t head) {
    const char *of_page =
        (const char *)(side == 0 ? l->k_scales : l->v_scales) + (uint64_t)place * l->scale_page_stride;
    return ((const float *)(const void *)of_page)[offset * l->num_kv_heads + head];
}

static void put_floats(pkv_pool *pool, pkv_table *table, uint64_t first, uint64_t count, test_random *random,
                       scaled_rows *known) {
    float rows[2][scaled_tokens * 2 * scaled_dim];
    assert_ok(pkv_table_reserve(table, first + count));
    for (uint32_t layer = 0; layer < scaled_layers; ++layer) {
        pkv_tensor tensors[2] = {PKV_TENSOR_INIT, PKV_TENSOR_INIT};
        for (int side = 0; side < 2; ++side) {
            for (uint64_t i = 0; i < count * 2 * scaled_dim; ++i)
                rows[side][i] = (float)(int)(random_below(random, 2001)) / 100.0f - 10.0f;
            tensors[side].data = rows[side];
            tensors[side].dtype = PKV_DTYPE_F32;
            tensors[side].num_tokens = count;
        }
        assert_ok(pkv_table_write(table, 0, layer, first, count, &tensors[0], &tensors[1], NULL));
    }
    assert_ok(pkv_table_commit(table, first + count, NULL));
    for (uint32_t layer = 0; layer < scaled_layers; ++layer) {
        pkv_layer_layout l = PKV_LAYER_LAYOUT_INIT;
        assert_ok(pkv_pool_layout(pool, 0, layer, &l));
        pkv_slot slots[scaled_tokens];
        assert_ok(pkv_table_slots(table, 0, first, count, slots));
        for (uint64_t i = 0; i < count; ++i)
            for (uint32_t head = 0; head < 2; ++head)
                for (int side = 0; side < 2; ++side) {
                    const int32_t page = (int32_t)(slots[i] / tiered_page_tokens);
                    const uint32_t offset = (uint32_t)(slots[i] % tiered_page_tokens);
                    memcpy(known->rows[layer][first + i][head][side], row_in(&l, side, page, offset, head), scaled_dim);
                    if (l.scales == PKV_SCALES_TOKEN_HEAD)
                        known->scales[layer][first + i][head][side] = scale_in(&l, side, page, offset, head);
                }
    }
}

static void check_scaled(const pkv_layer_view *view, const scaled_rows *known) {
    const pkv_layer_layout *l = &view->layout;
    assert_int_equal(view->num_slices, (scaled_tokens + tiered_page_tokens - 1) / tiered_page_tokens);
    for (uint32_t token = 0; token < scaled_tokens; ++token)
        for (uint32_t head = 0; head < 2; ++head)
            for (int side = 0; side < 2; ++side) {
                const int32_t slice = view->slices[token / tiered_page_tokens];
                const uint32_t offset = token % tiered_page_tokens;
                assert_memory_equal(row_in(l, side, slice, offset, head), known->rows[view->layer][token][head][side],
                                    scaled_dim);
                if (l->scales != PKV_SCALES_TOKEN_HEAD) continue;
                const float scale = scale_in(l, side, slice, offset, head);
                assert_memory_equal(&scale, &known->scales[view->layer][token][head][side], sizeof scale);
            }
}

static void read_scaled(pkv_group_options group) {
    world w = make_world(&group, 1);
    scaled_rows *known = calloc(1, sizeof *known);
    test_random random = {42};
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(w.pool, &prompt, NULL);
    for (uint64_t done = 0; done < scaled_tokens; done += 6) {
        put_floats(w.pool, table, done, 6, &random, known);
        assert_ok(pkv_table_spill(table, 0, (done + 6) / tiered_page_tokens, NULL, NULL));
    }
    assert_true(info_of(table).absent_blocks >= 6);
    const uint64_t staging = 14;
    w.session = open_with_buffers(w.pool, 2, 0, &staging);
    for (int step = 0; step < 3; ++step) {
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
        for (uint32_t layer = 0; layer < scaled_layers; ++layer) {
            const pkv_layer_view view = acquired(w.session, layer);
            pkv_layer_layout l = PKV_LAYER_LAYOUT_INIT;
            assert_ok(pkv_pool_layout(w.pool, 0, layer, &l));
            assert_int_equal(view.layout.scales, group.scales);
            assert_int_equal(view.layout.dtype, group.dtype);
            if (group.scales != PKV_SCALES_TOKEN_HEAD) {
                assert_ptr_equal(view.layout.k_scales, l.k_scales);
                assert_ptr_equal(view.layout.v_scales, l.v_scales);
            }
            check_scaled(&view, known);
            release(w.session, layer);
        }
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
    }
    end_table(table);
    end_world(&w);
    free(known);
}

static pkv_group_options scaled_group(int32_t dtype, int32_t scales) {
    pkv_group_options group = layers_group(16, scaled_layers);
    group.dtype = dtype;
    group.scales = scales;
    return group;
}

static void scales_of_token_and_head_come_with_their_slices(void **state) {
    (void)state;
    const int32_t types[] = {PKV_DTYPE_F8_E4M3, PKV_DTYPE_F8_E5M2, PKV_DTYPE_I8};
    const int32_t arrangements[] = {PKV_PAGE_MAJOR, PKV_LAYER_MAJOR}, layouts[] = {PKV_LAYOUT_NHD, PKV_LAYOUT_HND};
    for (int i = 0; i < 12; ++i) {
        pkv_group_options group = scaled_group(types[i % 3], PKV_SCALES_TOKEN_HEAD);
        group.arrangement = arrangements[i / 3 % 2];
        group.layout = layouts[i / 6];
        read_scaled(group);
    }
}

static void scales_of_layers_and_heads_stay_where_they_are(void **state) {
    (void)state;
    const float k_scales[2 * scaled_layers] = {0.25f, 0.5f, 1, 2, 0.125f, 4},
                             v_scales[2 * scaled_layers] = {1, 2, 3, 4, 5, 6};
    pkv_group_options group = scaled_group(PKV_DTYPE_I8, PKV_SCALES_TENSOR);
    group.k_scales = k_scales;
    group.v_scales = v_scales;
    read_scaled(group);
    group.scales = PKV_SCALES_HEAD;
    group.dtype = PKV_DTYPE_F8_E4M3;
    read_scaled(group);
}

/* ---- several groups ---- */

static void groups_of_different_shapes_are_read_one_after_the_other(void **state) {
    (void)state;
    pkv_group_options groups[3] = {layers_group(16, 2), layers_group(24, 3), layers_group(16, 1)};
    groups[1].num_kv_heads = 3;
    groups[1].layout = PKV_LAYOUT_HND;
    groups[2].v_head_dim = 0;
    groups[2].dtype = PKV_DTYPE_F32;
    world w = make_world(groups, 3);
    read_all(&w, 6);
    end_world(&w);
}

static void blocks_that_a_window_has_dropped_are_minus_one(void **state) {
    (void)state;
    enum { tokens = 60, window = 10, sinks = 6 };
    pkv_group_options groups[2] = {layers_group(24, 2), window_group(24, window, sinks)};
    world w = make_world(groups, 2);
    const uint32_t tag = 3;
    const uint64_t all = tokens;
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(w.pool, &prompt, NULL);
    put_and_commit(w.pool, table, tokens, tag);
    assert_ok(pkv_table_window(table, NULL));
    assert_ok(pkv_table_spill(table, 0, 14, NULL, NULL));
    w.session = open_session(w.pool, NULL);
    for (int step = 0; step < 3; ++step) {
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
        for (uint32_t index = 0; index < 4; ++index) {
            uint64_t blocks = 0, next = 0;
            pkv_layer_view view;
            do {
                view = acquired(w.session, index);
                assert_int_equal(view.group, index / 2);
                (void)check_view(&view, &tag, &all, &next);
                for (uint64_t i = 0; i < view.num_slices; ++i, ++blocks) {
                    const bool dropped = index >= 2 && (blocks + 1) * 4 <= tokens - window && blocks * 4 >= sinks;
                    if ((view.slices[i] == -1) != dropped)
                        fail_msg("block %llu of group %u has %d", (unsigned long long)blocks, view.group,
                                 view.slices[i]);
                }
                release(w.session, index);
            } while (!view.last);
            assert_int_equal(blocks, 15);
        }
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
        check_session(w.session);
    }
    end_table(table);
    end_world(&w);
}

static void sinks_that_are_in_tiers_stay_when_the_window_moves_on(void **state) {
    (void)state;
    pkv_group_options groups[2] = {layers_group(24, 2), window_group(24, 10, 6)};
    world w = make_world(groups, 2);
    pkv_table *table = long_sequence(w.pool, 1, 60, 4, 3);
    assert_ok(pkv_table_window(table, NULL));
    int32_t where[3];
    assert_ok(pkv_table_residency(table, 1, 0, 3, where));
    assert_int_equal(where[0], PKV_BLOCK_TIER);
    assert_int_equal(where[1], PKV_BLOCK_TIER);
    assert_int_equal(where[2], PKV_BLOCK_DROPPED);
    assert_ok(pkv_table_restore(table, 0, 2, one_second, NULL));
    same_rows(w.pool, table, 1, 0, 8, 3, 0);
    end_table(table);
    end_world(&w);
}

/* ---- other tiers ---- */

static void a_sequence_in_a_file_is_read(void **state) {
    (void)state;
    const int32_t engines[] = {PKV_IO_AUTO, PKV_IO_THREADS};
    for (int i = 0; i < 2; ++i) {
        scratch s = begin_scratch();
        pkv_file_tier_options options = file_options(s.path);
        options.capacity_bytes = 64 * 20480;
        options.max_images = 64;
        options.engine = engines[i];
        world w = {open_with(&options), NULL, NULL};
        const pkv_group_options group = layers_group(16, 4);
        w.pool = pool_of_groups(&group, 1, w.tier);
        read_all(&w, 4);
        end_world(&w);
        wait_closed(s.path);
        end_scratch(&s);
    }
}

static void blocks_that_lie_in_two_tiers_are_read_from_both(void **state) {
    (void)state;
    pkv_tier *small = host_tier(9); /* 20480 bytes each: five images */
    faulty *f = faulty_open();
    const pkv_tier_attachment tiers[] = {attachment(small, PKV_TIER_WRITE_BACK),
                                         attachment(f->tier, PKV_TIER_WRITE_BACK)};
    const pkv_group_options group = layers_group(16, 4);
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = tiered_page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = tiers;
    options.num_tiers = 2;
    options.debug = PKV_DEBUG_POISON;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    const uint32_t tag = 4;
    pkv_table *table = long_sequence(pool, 1, 64, 4, tag);
    int32_t where[16];
    assert_ok(pkv_table_residency(table, 0, 0, 16, where));
    assert_int_equal(where[0], PKV_BLOCK_TIER);
    assert_int_equal(where[10], PKV_BLOCK_TIER + 1);
    pkv_prefetch *session = open_session(pool, NULL);
    for (int step = 0; step < 4; ++step) check_step(session, 4, 1, &table, &tag);
    assert_ok(pkv_prefetch_close(session, NULL));
    end_table(table);
    end_pool(pool);
    assert_ok(pkv_tier_close(small));
    faulty_end(f);
}

/* ---- ranges ---- */

static void a_layer_larger_than_a_buffer_comes_in_ranges_in_order(void **state) {
    (void)state;
    world w = world_of_layers(16, 4);
    const uint32_t tag = 9;
    pkv_table *table = long_sequence(w.pool, 1, 100, 4, tag); /* 24 absent blocks */
    const uint64_t staging[] = {3, 5, 8};
    for (int i = 0; i < 3; ++i) {
        w.session = open_with_buffers(w.pool, 2 + (uint32_t)i, 0, &staging[i]);
        const uint64_t capacity = session_stats(w.session).buffer_slices;
        assert_int_equal(capacity, staging[i] * 4 / (2 + (uint64_t)i));
        assert_int_equal(session_stats(w.session).staging_pages, staging[i]);
        for (int step = 0; step < 3; ++step)
            assert_int_equal(check_step(w.session, 4, 1, &table, &tag), 4 * ((24 + capacity - 1) / capacity));
        assert_ok(pkv_prefetch_close(w.session, NULL));
    }
    w.session = NULL;
    end_table(table);
    end_world(&w);
}

static void a_range_ends_inside_one_table_and_the_next_begins_there(void **state) {
    (void)state;
    world w = world_of_layers(32, 2);
    const uint32_t tags[] = {1, 2, 3};
    const uint64_t tokens[] = {20, 40, 12};
    pkv_table *tables[3];
    for (int t = 0; t < 3; ++t) tables[t] = long_sequence(w.pool, 1000 * (t + 1), tokens[t], 4, tags[t]);
    const uint64_t staging = 6; /* 12 slices for 2 buffers: 4 + 2, 6, 1 + 2 absent blocks */
    w.session = open_with_buffers(w.pool, 2, 0, &staging);
    const int32_t entries[3][3] = {{5, 2, 0}, {0, 6, 0}, {0, 2, 3}};
    for (int step = 0; step < 2; ++step) {
        assert_ok(pkv_prefetch_step_begin(w.session, 3, tables, NULL, NULL));
        for (uint32_t layer = 0; layer < 2; ++layer) {
            uint64_t next[3] = {0}, rows = 0;
            for (int range = 0; range < 3; ++range) {
                const pkv_layer_view view = acquired(w.session, layer);
                for (int t = 0; t < 3; ++t) assert_int_equal(view.indptr[t + 1] - view.indptr[t], entries[range][t]);
                assert_int_equal(view.last, range == 2);
                rows += check_view(&view, tags, tokens, next);
                release(w.session, layer);
            }
            assert_int_equal(rows, 72);
        }
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
    }
    for (int t = 0; t < 3; ++t) end_table(tables[t]);
    end_world(&w);
}

static void a_session_of_whole_layers_refuses_steps_that_need_ranges(void **state) {
    (void)state;
    world w = world_of_layers(16, 2);
    const uint32_t tag = 9;
    pkv_table *table = long_sequence(w.pool, 1, 32, 4, tag); /* 7 absent blocks */
    const uint64_t staging = 6;                              /* 6 slices a buffer */
    w.session = open_with_buffers(w.pool, 2, PKV_PREFETCH_WHOLE_LAYERS, &staging);
    assert_status(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL), PKV_ERR_NO_SPACE);
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_status(pkv_prefetch_layer_acquire(w.session, 0, one_second, NULL, &view), PKV_ERR_STATE);
    assert_status(pkv_prefetch_step_end(w.session, NULL), PKV_ERR_STATE);
    assert_ok(pkv_table_restore(table, 3, 1, one_second, NULL));
    for (int step = 0; step < 3; ++step) assert_int_equal(check_step(w.session, 2, 1, &table, &tag), 2);
    assert_ok(pkv_table_spill(table, 3, 1, NULL, NULL));
    assert_status(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL), PKV_ERR_NO_SPACE);
    const uint64_t fewer = 6 * tiered_page_tokens;
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, &fewer, NULL));
    assert_int_equal(check_layers(w.session, 0, 2, 1, &tag, &fewer), 2);
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    end_table(table);
    end_world(&w);
}

static void a_step_with_more_blocks_than_a_view_has_entries_is_refused(void **state) {
    (void)state;
    world w = world_of_layers(16, 2);
    const uint32_t tags[] = {1, 2};
    pkv_table *tables[] = {long_sequence(w.pool, 1, 20, 4, 1), long_sequence(w.pool, 500, 20, 4, 2)};
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.max_slices = 9;
    w.session = open_session(w.pool, &options);
    assert_status(pkv_prefetch_step_begin(w.session, 2, tables, NULL, NULL), PKV_ERR_NO_SPACE);
    check_step(w.session, 2, 1, &tables[1], &tags[1]);
    const uint64_t tokens[] = {20, 16};
    assert_ok(pkv_prefetch_step_begin(w.session, 2, tables, tokens, NULL));
    check_layers(w.session, 0, 2, 2, tags, tokens);
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    assert_status(pkv_prefetch_step_begin(w.session, 2, tables, NULL, NULL),
                  PKV_ERR_NO_SPACE); /* of known tables, too */
    for (int t = 0; t < 2; ++t) end_table(tables[t]);
    end_world(&w);
}

/* ---- tables that change ---- */

static void tables_come_and_go_between_steps(void **state) {
    (void)state;
    world w = world_of_layers(40, 3);
    w.session = open_session(w.pool, NULL);
    pkv_table *tables[4];
    const uint32_t tags[] = {1, 2, 3, 4};
    for (int t = 0; t < 4; ++t) tables[t] = long_sequence(w.pool, 1000 * (t + 1), 30 + 7 * (uint64_t)t, 4, tags[t]);
    check_step(w.session, 3, 2, tables, tags);
    check_step(w.session, 3, 4, tables, tags);
    check_step(w.session, 3, 1, tables + 2, tags + 2);
    pkv_table *swapped[] = {tables[3], tables[0]};
    const uint32_t swapped_tags[] = {4, 1};
    check_step(w.session, 3, 2, swapped, swapped_tags);
    end_table(tables[3]);
    tables[3] = long_sequence(w.pool, 9000, 50, 4, 8);
    swapped[0] = tables[3];
    const uint32_t other_tags[] = {8, 1};
    check_step(w.session, 3, 2, swapped, other_tags);
    check_step(w.session, 3, 0, tables, tags);
    check_step(w.session, 3, 3, tables, tags);
    for (int t = 0; t < 4; ++t) end_table(tables[t]);
    end_world(&w);
}

static void views_follow_what_happens_to_tables_between_steps(void **state) {
    (void)state;
    world w = world_of_layers(32, 3);
    pkv_table *tables[] = {long_sequence(w.pool, 1, 50, 12, 1), long_sequence(w.pool, 1000, 40, 8, 2)};
    const uint32_t tags[] = {1, 2};
    w.session = open_session(w.pool, NULL);
    check_step(w.session, 3, 2, tables, tags);
    assert_ok(pkv_table_spill(tables[0], 0, UINT64_MAX, NULL, NULL));
    check_step(w.session, 3, 2, tables, tags);
    assert_ok(pkv_table_restore(tables[0], 2, 5, one_second, NULL));
    check_step(w.session, 3, 2, tables, tags);
    assert_ok(pkv_table_spill(tables[0], 3, 1, NULL, NULL));
    check_step(w.session, 3, 2, tables, tags);
    assert_ok(pkv_table_restore(tables[0], 12, 1, one_second, NULL));
    put_and_commit(w.pool, tables[0], 57, 1);
    check_step(w.session, 3, 2, tables, tags);
    put_and_commit(w.pool, tables[1], 41, 2);
    check_step(w.session, 3, 2, tables, tags);
    assert_ok(pkv_table_truncate(tables[0], 24, NULL));
    check_step(w.session, 3, 2, tables, tags);
    put_and_commit(w.pool, tables[0], 38, 1);
    check_step(w.session, 3, 2, tables, tags);
    assert_ok(pkv_table_clear(tables[1], NULL));
    const pkv_prompt prompt = prompt_of(NULL, 0);
    assert_ok(pkv_table_admit(tables[1], &prompt, NULL, NULL));
    put_and_commit(w.pool, tables[1], 9, 2);
    assert_ok(pkv_table_spill(tables[1], 0, 2, NULL, NULL));
    check_step(w.session, 3, 2, tables, tags);
    for (int t = 0; t < 2; ++t) end_table(tables[t]);
    end_world(&w);
}

static void views_follow_what_happens_to_tables_inside_a_step(void **state) {
    (void)state;
    const uint64_t stagings[] = {4, 2};
    for (int i = 0; i < 2; ++i) {
        world w = world_of_layers(32, 8);
        pkv_table *tables[] = {long_sequence(w.pool, 1, 50, 12, 1), long_sequence(w.pool, 1000, 40, 8, 2)};
        const uint32_t tags[] = {1, 2};
        uint64_t tokens[] = {50, 40};
        w.session = open_with_buffers(w.pool, 2, 0, &stagings[i]);
        for (int step = 0; step < 2; ++step) {
            assert_ok(pkv_prefetch_step_begin(w.session, 2, tables, tokens, NULL));
            check_layers(w.session, 0, 1, 2, tags, tokens);
            assert_ok(pkv_table_restore(tables[0], 1, 4, one_second, NULL));
            check_layers(w.session, 1, 2, 2, tags, tokens);
            assert_ok(pkv_table_spill(tables[1], 0, UINT64_MAX, NULL, NULL));
            check_layers(w.session, 2, 3, 2, tags, tokens);
            assert_ok(pkv_table_spill(tables[0], 0, 10, NULL, NULL));
            check_layers(w.session, 3, 4, 2, tags, tokens);
            assert_ok(pkv_table_restore(tables[1], 9, 1, one_second, NULL));
            put_and_commit(w.pool, tables[1], 46, 2); /* the step goes on to attend to 40 */
            check_layers(w.session, 4, 5, 2, tags, tokens);
            assert_ok(pkv_table_truncate(tables[1], 33, NULL)); /* within a block: rows behind it are not compared */
            tokens[1] = 33;
            check_layers(w.session, 5, 6, 2, tags, tokens);
            assert_ok(pkv_table_truncate(tables[1], 16, NULL));
            tokens[1] = 16;
            check_layers(w.session, 6, 8, 2, tags, tokens);
            assert_ok(pkv_prefetch_step_end(w.session, NULL));
            check_session(w.session);
            put_and_commit(w.pool, tables[1], 40, 2);
            tokens[1] = 40;
        }
        for (int t = 0; t < 2; ++t) end_table(tables[t]);
        end_world(&w);
    }
}

static void a_table_that_changes_between_two_ranges_of_a_layer_goes_on_where_it_was(void **state) {
    (void)state;
    world w = world_of_layers(24, 2);
    const uint32_t tag = 3;
    const uint64_t tokens = 64, staging = 4; /* 4 slices a buffer, and 15 absent blocks */
    pkv_table *table = long_sequence(w.pool, 1, tokens, 4, tag);
    w.session = open_with_buffers(w.pool, 2, 0, &staging);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
    uint64_t next = 0, rows = 0;
    pkv_layer_view view = acquired(w.session, 0);
    rows += check_view(&view, &tag, &tokens, &next);
    release(w.session, 0);
    assert_int_equal(next, 4);
    assert_ok(pkv_table_restore(table, 2, 5, one_second, NULL));
    do {
        view = acquired(w.session, 0);
        rows += check_view(&view, &tag, &tokens, &next);
        release(w.session, 0);
    } while (!view.last);
    assert_int_equal(rows, tokens);
    check_layers(w.session, 1, 2, 1, &tag, &tokens);
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    end_table(table);
    end_world(&w);
}

static void a_table_that_is_destroyed_in_a_step_leaves_the_others_alone(void **state) {
    (void)state;
    world w = world_of_layers(32, 3);
    pkv_table *tables[] = {long_sequence(w.pool, 1, 50, 12, 1), long_sequence(w.pool, 1000, 40, 8, 2)};
    w.session = open_session(w.pool, NULL);
    assert_ok(pkv_prefetch_step_begin(w.session, 2, tables, NULL, NULL));
    const uint32_t tags[] = {1, 2};
    const uint64_t both[] = {50, 40}, second[] = {0, 40};
    check_layers(w.session, 0, 1, 2, tags, both);
    assert_ok(pkv_table_clear(tables[0], NULL));
    check_layers(w.session, 1, 2, 2, tags, second);
    end_table(tables[0]);
    check_layers(w.session, 2, 3, 2, tags, second);
    pkv_status statuses[2];
    assert_true(pkv_prefetch_step_end(w.session, statuses) != PKV_OK);
    assert_true(statuses[0] != PKV_OK);
    assert_int_equal(statuses[1], PKV_OK);
    end_table(tables[1]);
    end_world(&w);
}

/* ---- blocks that were found in tiers ---- */

/* Computes tokens first ... as a sequence of its own and throws it out of the pool. */
static void put_below(pkv_pool *pool, pkv_token first, uint64_t num_tokens, uint32_t tag) {
    pkv_token tokens[256];
    count_up(tokens, num_tokens, first);
    const pkv_prompt prompt = prompt_of(tokens, num_tokens);
    pkv_table *table = admit(pool, &prompt, NULL);
    put_and_commit(pool, table, num_tokens, tag);
    end_table(table);
    push_down(pool);
}

static void blocks_that_an_admission_found_in_tiers_are_read(void **state) {
    (void)state;
    world w = world_of_layers(32, 3);
    put_below(w.pool, 1, 40, 6);
    pkv_table *table = admit_again(w.pool, 1, 40, NULL);
    assert_int_equal(info_of(table).absent_blocks, 10);
    w.session = open_session(w.pool, NULL);
    const uint32_t tag = 6;
    for (int step = 0; step < 2; ++step) check_step(w.session, 3, 1, &table, &tag);
    assert_int_equal(info_of(table).absent_blocks, 10); /* reading is not restoring */
    assert_ok(pkv_table_restore(table, 0, 4, one_second, NULL));
    check_step(w.session, 3, 1, &table, &tag);
    end_table(table);
    end_world(&w);
}

static void absent_blocks_that_two_tables_share_are_loaded_once(void **state) {
    (void)state;
    const uint32_t flags[] = {PKV_PREFETCH_OFF, 0};
    for (int i = 0; i < 2; ++i) {
        world w = world_of_layers(32, 3);
        put_below(w.pool, 1, 32, 6);
        pkv_table *tables[] = {admit_again(w.pool, 1, 32, NULL), admit_again(w.pool, 1, 24, NULL)};
        const uint32_t tags[] = {6, 6};
        const uint64_t staging = 12;
        w.session = open_with_buffers(w.pool, 0, flags[i], &staging);
        assert_int_equal(check_step(w.session, 3, 2, tables, tags), 3);
        assert_int_equal(session_stats(w.session).needed, 3 * (8 + 6));
        if (flags[i] == PKV_PREFETCH_OFF) assert_int_equal(session_stats(w.session).loads, 3 * 8);
        for (int t = 0; t < 2; ++t) end_table(tables[t]);
        end_world(&w);
    }
}

/* ---- order ---- */

static void layers_come_in_the_order_of_the_options(void **state) {
    (void)state;
    pkv_group_options groups[2] = {layers_group(16, 3), layers_group(16, 2)};
    world w = make_world(groups, 2);
    const uint32_t tag = 2;
    pkv_table *table = long_sequence(w.pool, 1, 40, 4, tag);
    const pkv_layer_ref order[] = {{1, 1}, {0, 2}, {0, 0}, {1, 0}};
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.layers = order;
    options.num_layers = 4;
    w.session = open_session(w.pool, &options);
    for (int step = 0; step < 3; ++step) {
        const uint64_t tokens = 40;
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
        for (uint32_t index = 0; index < 4; ++index) {
            uint64_t next = 0;
            pkv_layer_view view;
            do {
                view = acquired(w.session, index);
                assert_int_equal(view.group, order[index].group);
                assert_int_equal(view.layer, order[index].layer);
                check_view(&view, &tag, &tokens, &next);
                release(w.session, index);
            } while (!view.last);
            assert_int_equal(next, 10);
        }
        pkv_layer_view view = PKV_LAYER_VIEW_INIT;
        assert_status(pkv_prefetch_layer_acquire(w.session, 4, one_second, NULL, &view), PKV_ERR_INVALID);
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
    }
    end_table(table);
    end_world(&w);
}

static void layers_that_are_passed_over_are_not_loaded(void **state) {
    (void)state;
    const uint32_t flags[] = {PKV_PREFETCH_OFF, 0};
    for (int i = 0; i < 2; ++i) {
        world w = world_of_layers(32, 6);
        const uint32_t tag = 2;
        const uint64_t tokens = 40;
        pkv_table *table = long_sequence(w.pool, 1, tokens, 4, tag);
        w.session = open_with_buffers(w.pool, 2, flags[i], NULL);
        for (int step = 0; step < 2; ++step) {
            assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
            check_layers(w.session, 1, 2, 1, &tag, &tokens);
            check_layers(w.session, 4, 5, 1, &tag, &tokens);
            pkv_layer_view view = PKV_LAYER_VIEW_INIT;
            assert_status(pkv_prefetch_layer_acquire(w.session, 3, one_second, NULL, &view), PKV_ERR_STATE);
            assert_status(pkv_prefetch_layer_acquire(w.session, 4, one_second, NULL, &view), PKV_ERR_STATE);
            assert_ok(pkv_prefetch_step_end(w.session, NULL));
            check_session(w.session);
        }
        assert_int_equal(session_stats(w.session).needed, 2 * 2 * 9);
        if (flags[i] == PKV_PREFETCH_OFF) assert_int_equal(session_stats(w.session).loads, 2 * 2 * 9);
        check_step(w.session, 6, 1, &table, &tag);
        end_table(table);
        end_world(&w);
    }
}

static void the_rest_of_a_layer_may_be_passed_over(void **state) {
    (void)state;
    world w = world_of_layers(16, 3);
    const uint32_t tag = 2;
    const uint64_t tokens = 60, staging = 3;
    pkv_table *table = long_sequence(w.pool, 1, tokens, 4, tag);
    w.session = open_with_buffers(w.pool, 2, 0, &staging);
    for (int step = 0; step < 3; ++step) {
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
        const pkv_layer_view view = acquired(w.session, 0);
        assert_int_equal(view.last, 0);
        release(w.session, 0);
        check_layers(w.session, 1, 2, 1, &tag, &tokens);
        assert_ok(pkv_prefetch_step_end(w.session, NULL)); /* and so may layers at the end */
    }
    check_step(w.session, 3, 1, &table, &tag);
    end_table(table);
    end_world(&w);
}

static void several_layers_are_acquired_and_released_in_order(void **state) {
    (void)state;
    world w = world_of_layers(32, 6);
    const uint32_t tag = 2;
    const uint64_t tokens = 30;
    pkv_table *table = long_sequence(w.pool, 1, tokens, 4, tag); /* 7 absent blocks */
    const uint64_t staging = 4;
    w.session = open_with_buffers(w.pool, 3, 0, &staging);
    for (int step = 0; step < 2; ++step) {
        pkv_layer_view views[6], extra = PKV_LAYER_VIEW_INIT;
        assert_status(pkv_prefetch_layer_acquire(w.session, 0, one_second, NULL, &extra), PKV_ERR_STATE);
        assert_status(pkv_prefetch_layer_release(w.session, 0, NULL), PKV_ERR_STATE);
        assert_status(pkv_prefetch_step_end(w.session, NULL), PKV_ERR_STATE);
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
        assert_status(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL), PKV_ERR_STATE);
        assert_status(pkv_prefetch_layer_release(w.session, 0, NULL), PKV_ERR_STATE);
        for (uint32_t layer = 0; layer < 3; ++layer) views[layer] = acquired(w.session, layer);
        assert_status(pkv_prefetch_layer_acquire(w.session, 3, one_second, NULL, &extra), PKV_ERR_STATE);
        for (uint32_t layer = 0; layer < 3; ++layer) assert_int_equal(check_of_one(&views[layer], tag, tokens), tokens);
        assert_status(pkv_prefetch_layer_release(w.session, 1, NULL), PKV_ERR_STATE);
        assert_status(pkv_prefetch_layer_release(w.session, 2, NULL), PKV_ERR_STATE);
        assert_status(pkv_prefetch_step_end(w.session, NULL), PKV_ERR_STATE);
        for (uint32_t layer = 3; layer < 6; ++layer) {
            release(w.session, layer - 3);
            views[layer] = acquired(w.session, layer);
            for (uint32_t held = layer - 2; held <= layer; ++held) {
                assert_int_equal(check_of_one(&views[held], tag, tokens), tokens);
                if (held != layer) assert_true(views[held].buffer != views[layer].buffer);
            }
        }
        for (uint32_t layer = 3; layer < 6; ++layer) release(w.session, layer);
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
        check_session(w.session);
    }
    end_table(table);
    end_world(&w);
}

static void a_table_may_be_listed_once_only(void **state) {
    (void)state;
    world w = world_of_layers(32, 2);
    pkv_table *table = long_sequence(w.pool, 1, 20, 4, 1), *other = long_sequence(w.pool, 500, 20, 4, 2);
    w.session = open_session(w.pool, NULL);
    pkv_table *tables[] = {table, other, table};
    assert_status(pkv_prefetch_step_begin(w.session, 3, tables, NULL, NULL), PKV_ERR_INVALID);
    const uint32_t tags[] = {1, 2};
    check_step(w.session, 2, 2, tables, tags);
    end_table(table);
    end_table(other);
    end_world(&w);
}

static void a_table_of_another_pool_is_refused(void **state) {
    (void)state;
    world w = world_of_layers(32, 2), other = world_of_layers(32, 2);
    pkv_table *table = long_sequence(other.pool, 1, 20, 4, 1);
    w.session = open_session(w.pool, NULL);
    assert_status(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL), PKV_ERR_INVALID);
    end_table(table);
    pkv_table *gone = table;
    assert_status(pkv_prefetch_step_begin(w.session, 1, &gone, NULL, NULL), PKV_ERR_HANDLE);
    end_world(&w);
    end_world(&other);
}

static void more_tables_than_a_session_takes_are_refused(void **state) {
    (void)state;
    world w = world_of_layers(32, 2);
    pkv_table *tables[] = {long_sequence(w.pool, 1, 20, 4, 1), long_sequence(w.pool, 500, 20, 4, 2)};
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.max_tables = 1;
    w.session = open_session(w.pool, &options);
    assert_status(pkv_prefetch_step_begin(w.session, 2, tables, NULL, NULL), PKV_ERR_LIMIT);
    const uint32_t tags[] = {1, 2};
    check_step(w.session, 2, 1, tables, tags);
    check_step(w.session, 2, 1, tables + 1, tags + 1);
    for (int t = 0; t < 2; ++t) end_table(tables[t]);
    end_world(&w);
}

/* ---- numbers of tokens ---- */

static void a_step_attends_to_as_many_tokens_as_it_says(void **state) {
    (void)state;
    world w = world_of_layers(32, 2);
    const uint32_t tag = 5;
    pkv_table *table = long_sequence(w.pool, 1, 42, 8, tag);
    assert_ok(pkv_table_reserve(table, 50)); /* 52: in whole blocks */
    w.session = open_session(w.pool, NULL);
    const uint64_t counts[] = {42, 10, 1, 0, 44, 52, 33, 9, 41, 50, 42};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
        const uint64_t blocks = (counts[i] + 3) / 4, known = counts[i] < 42 ? counts[i] : 42;
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, &counts[i], NULL));
        for (uint32_t layer = 0; layer < 2; ++layer) {
            uint64_t next = 0, rows = 0;
            pkv_layer_view view;
            do {
                view = acquired(w.session, layer);
                rows += check_view(&view, &tag, &known, &next);
                release(w.session, layer);
            } while (!view.last);
            assert_int_equal(next, blocks);
            assert_int_equal(rows, known);
        }
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
        check_session(w.session);
    }
    const uint64_t too_many = 53;
    assert_status(pkv_prefetch_step_begin(w.session, 1, &table, &too_many, NULL), PKV_ERR_INVALID);
    check_step(w.session, 2, 1, &table, &tag);
    end_table(table);
    end_world(&w);
}

static void rows_that_are_written_in_a_step_are_in_its_views(void **state) {
    (void)state;
    world w = world_of_layers(32, 3);
    const uint32_t tag = 5;
    uint64_t committed = 42;
    pkv_table *table = long_sequence(w.pool, 1, committed, 8, tag);
    w.session = open_session(w.pool, NULL);
    for (int step = 0; step < 8; ++step) {
        const uint64_t tokens = committed + 3;
        assert_ok(pkv_table_reserve(table, tokens));
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, &tokens, NULL));
        put_rows(w.pool, table, 0, committed, 3, tag); /* all layers at once: who computes a layer writes its rows */
        check_layers(w.session, 0, 3, 1, &tag, &tokens);
        assert_ok(pkv_table_commit(table, tokens, NULL));
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
        committed = tokens;
        if (step % 3 == 2) assert_ok(pkv_table_spill(table, 0, committed / 4, NULL, NULL));
    }
    end_table(table);
    end_world(&w);
}

/* ---- memory of views ---- */

static void views_may_lie_in_memory_of_the_callers(void **state) {
    (void)state;
    enum { buffers = 3, slices = 40, tables_at_most = 2, guard = -77 };
    world w = world_of_layers(32, 4);
    int32_t *ids = malloc((buffers * slices + 1) * sizeof *ids);
    int32_t *indptr = malloc((buffers * (tables_at_most + 1) + 1) * sizeof *indptr);
    ids[buffers * slices] = indptr[buffers * (tables_at_most + 1)] = guard;
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.num_buffers = buffers;
    options.max_slices = slices;
    options.max_tables = tables_at_most;
    options.slices = ids;
    options.slice_indptr = indptr;
    w.session = open_session(w.pool, &options);
    pkv_table *tables[] = {long_sequence(w.pool, 1, 60, 4, 1), long_sequence(w.pool, 1000, 100, 4, 2)};
    const uint32_t tags[] = {1, 2};
    const uint64_t tokens[] = {60, 100};
    for (int step = 0; step < 3; ++step) {
        assert_ok(pkv_prefetch_step_begin(w.session, 2, tables, NULL, NULL));
        for (uint32_t layer = 0; layer < 4; ++layer) {
            uint64_t next[2] = {0};
            pkv_layer_view view;
            do {
                view = acquired(w.session, layer);
                assert_true(view.buffer < buffers);
                assert_ptr_equal(view.slices, ids + view.buffer * slices);
                assert_ptr_equal(view.indptr, indptr + view.buffer * (tables_at_most + 1));
                check_view(&view, tags, tokens, next);
                release(w.session, layer);
            } while (!view.last);
            assert_int_equal(next[0] + next[1], 40);
        }
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
    }
    assert_int_equal(ids[buffers * slices], guard);
    assert_int_equal(indptr[buffers * (tables_at_most + 1)], guard);
    for (int t = 0; t < 2; ++t) end_table(tables[t]);
    end_world(&w);
    free(ids);
    free(indptr);
}

static void two_and_sixteen_buffers_give_the_same_rows(void **state) {
    (void)state;
    const uint32_t buffers[] = {2, PKV_PREFETCH_MAX_BUFFERS};
    for (int i = 0; i < 2; ++i) {
        world w = world_of_layers(40, 5);
        pkv_table *tables[] = {long_sequence(w.pool, 1, 50, 4, 1), long_sequence(w.pool, 1000, 70, 4, 2)};
        const uint32_t tags[] = {1, 2};
        const uint64_t staging[] = {16};
        w.session = open_with_buffers(w.pool, buffers[i], 0, staging);
        for (int step = 0; step < 5; ++step) check_step(w.session, 5, 2, tables, tags);
        assert_true(session_stats(w.session).depth >= 2 && session_stats(w.session).depth <= buffers[i]);
        for (int t = 0; t < 2; ++t) end_table(tables[t]);
        end_world(&w);
    }
}

/* Nothing is under way, and nothing begins for a while: what may not be loaded yet is not, though it is long ago. */
static bool is_quiet(pkv_prefetch *session) {
    const pkv_prefetch_stats first = session_stats(session);
    if (first.loads_in_flight != 0) return false;
    usleep(3000);
    return session_stats(session).loads == first.loads && session_stats(session).loads_in_flight == 0;
}

static void case_J13_a_buffer_in_use_is_not_loaded_anew(void **state) {
    (void)state;
    world w = world_of_layers(16, 3);
    const uint32_t tag = 2;
    const uint64_t tokens = 24, staging = 4; /* 6 slices a buffer */
    pkv_table *table = long_sequence(w.pool, 1, tokens, 4, tag);
    w.session = open_with_buffers(w.pool, 2, 0, &staging);
    for (int pass = 0; pass < 2; ++pass) {
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
        pkv_layer_view held = acquired(w.session, 0);
        for (uint32_t layer = 1; layer < 3; ++layer) {
            const pkv_layer_view view = acquired(w.session, layer);
            eventually(is_quiet(w.session));
            assert_true(view.buffer != held.buffer);
            assert_int_equal(check_of_one(&held, tag, tokens), tokens);
            assert_int_equal(check_of_one(&view, tag, tokens), tokens);
            release(w.session, layer - 1);
            held = view;
        }
        eventually(is_quiet(w.session)); /* layer 0 of the next pass is in the other buffer by now */
        assert_int_equal(check_of_one(&held, tag, tokens), tokens);
        release(w.session, 2);
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
    }
    end_table(table);
    end_world(&w);
}

/* ---- scripted tiers ---- */

typedef struct {
    faulty *tier;
    pkv_pool *pool;
    pkv_prefetch *session;
    pkv_table *table;
} scripted;

enum { scripted_tag = 8, scripted_tokens = 22, scripted_absent = 4, slice_stride = 4096 };

/* 4 absent blocks of 6, and as many layers as a test wants. */
static scripted make_scripted(uint32_t num_layers, const pkv_prefetch_options *options) {
    scripted s = {watched_open(), NULL, NULL, NULL};
    const pkv_group_options group = layers_group(32, num_layers);
    s.pool = pool_of_groups(&group, 1, s.tier->tier);
    const pkv_prompt prompt = prompt_of(NULL, 0);
    s.table = admit(s.pool, &prompt, NULL);
    put_and_commit(s.pool, s.table, scripted_tokens, scripted_tag);
    spill_named(s.tier, s.table, 0, 0, scripted_absent);
    assert_int_equal(info_of(s.table).absent_blocks, scripted_absent);
    forget_loads(s.tier);
    const pkv_prefetch_options defaults = PKV_PREFETCH_OPTIONS_INIT;
    pkv_prefetch_options with_room = options != NULL ? *options : defaults;
    const uint64_t staging = 16; /* each layer fits a buffer */
    with_room.staging_pages = &staging;
    s.session = open_session(s.pool, &with_room);
    return s;
}

static void end_scripted(scripted *s) {
    check_session(s->session);
    assert_ok(pkv_prefetch_close(s->session, NULL));
    end_table(s->table);
    end_pool(s->pool);
    faulty_end(s->tier);
}

static pkv_prefetch_options with_buffers(uint32_t num_buffers, uint32_t flags) {
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.num_buffers = num_buffers;
    options.flags = flags;
    return options;
}

static void case_J11_a_late_layer_is_waited_for(void **state) {
    (void)state;
    const uint32_t flags[] = {0, PKV_PREFETCH_OFF};
    for (int i = 0; i < 2; ++i) {
        const pkv_prefetch_options options = with_buffers(2, flags[i]);
        scripted s = make_scripted(3, &options);
        hold_offset(s.tier, slice_stride * 2); /* header, layer 0, layer 1 */
        assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
        pkv_layer_view view = acquired(s.session, 0);
        assert_int_equal(check_of_one(&view, scripted_tag, scripted_tokens), scripted_tokens);
        release(s.session, 0);
        later l;
        begin_later(&l, s.tier, 100);
        view = acquired(s.session, 1);
        assert_int_equal(check_of_one(&view, scripted_tag, scripted_tokens), scripted_tokens);
        assert_true(end_later(&l));
        assert_true(view.waited_ns > 0);
        release(s.session, 1);
        const uint64_t tokens = scripted_tokens;
        const uint32_t tag = scripted_tag;
        check_layers(s.session, 2, 3, 1, &tag, &tokens);
        assert_ok(pkv_prefetch_step_end(s.session, NULL));
        assert_true(session_stats(s.session).exposed_ns > 0);
        end_scripted(&s);
    }
}

static uint64_t loads_of_layer(faulty *f, uint32_t layer) {
    uint64_t count = 0;
    const uint64_t loads = num_loads(f);
    for (uint64_t i = 0; i < loads; ++i) {
        const watched_load load = load_at(f, i);
        const uint64_t slice = slice_stride * (layer + UINT64_C(1));
        count += load.offset <= slice && slice < load.offset + load.size;
    }
    return count;
}

static void case_J23_a_layer_waits_for_the_release_of_its_own_buffer_only(void **state) {
    (void)state;
    const pkv_prefetch_options options = with_buffers(2, 0);
    scripted s = make_scripted(3, &options);
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    /* Rounds 0 and 1 wait for no release. */
    const pkv_layer_view first = acquired(s.session, 0), second = acquired(s.session, 1);
    eventually(is_quiet(s.session));
    assert_int_equal(loads_of_layer(s.tier, 0), scripted_absent);
    assert_int_equal(loads_of_layer(s.tier, 1), scripted_absent);
    assert_int_equal(loads_of_layer(s.tier, 2), 0);
    assert_int_equal(check_of_one(&first, scripted_tag, scripted_tokens), scripted_tokens);
    release(s.session, 0);
    /* Round 2 waits for that of round 0, and not for that of round 1. */
    const pkv_layer_view third = acquired(s.session, 2);
    assert_int_equal(third.buffer, first.buffer);
    eventually(is_quiet(s.session));
    assert_int_equal(loads_of_layer(s.tier, 2), scripted_absent);
    assert_int_equal(check_of_one(&second, scripted_tag, scripted_tokens), scripted_tokens);
    assert_int_equal(check_of_one(&third, scripted_tag, scripted_tokens), scripted_tokens);
    assert_int_equal(loads_of_layer(s.tier, 0), scripted_absent); /* the next step's has no buffer yet */
    release(s.session, 1);
    eventually(loads_of_layer(s.tier, 0) == 2 * scripted_absent);
    release(s.session, 2);
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    end_scripted(&s);
}

static void without_prefetching_everything_is_loaded_on_demand(void **state) {
    (void)state;
    const pkv_prefetch_options options = with_buffers(4, PKV_PREFETCH_OFF);
    scripted s = make_scripted(3, &options);
    const uint32_t tag = scripted_tag;
    const uint64_t tokens = scripted_tokens;
    for (uint64_t step = 0; step < 2; ++step) {
        assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
        for (uint32_t layer = 0; layer < 3; ++layer) {
            assert_true(is_quiet(s.session));
            assert_int_equal(session_stats(s.session).loads, (3 * step + layer) * scripted_absent);
            check_layers(s.session, layer, layer + 1, 1, &tag, &tokens);
        }
        assert_ok(pkv_prefetch_step_end(s.session, NULL));
    }
    const pkv_prefetch_stats stats = session_stats(s.session);
    assert_int_equal(stats.needed, 2 * 3 * scripted_absent);
    assert_int_equal(stats.on_demand, stats.needed);
    assert_int_equal(stats.masked_ns, 0);
    assert_int_equal(stats.wasted_bytes, 0);
    assert_int_equal(stats.depth, 0);
    for (uint64_t i = 0; i < num_loads(s.tier); ++i) assert_int_equal(load_at(s.tier, i).urgent, 1);
    end_scripted(&s);
}

static void what_was_loaded_ahead_is_on_time(void **state) {
    (void)state;
    scripted s = make_scripted(3, NULL);
    const uint32_t tag = scripted_tag;
    const uint64_t tokens = scripted_tokens;
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    for (uint32_t layer = 0; layer < 3; ++layer) {
        eventually(session_stats(s.session).good_loads >= (layer + 1) * scripted_absent &&
                   session_stats(s.session).loads_in_flight == 0);
        check_layers(s.session, layer, layer + 1, 1, &tag, &tokens);
    }
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    const pkv_prefetch_stats stats = session_stats(s.session);
    assert_int_equal(stats.on_time, stats.needed);
    assert_int_equal(stats.exposed_ns, 0);
    assert_int_equal(stats.requests, 1);
    assert_int_equal(stats.ready_requests, 1);
    assert_int_equal(load_at(s.tier, 0).urgent, 0);
    end_scripted(&s);
}

static void the_first_layers_of_the_next_step_are_loaded_after_the_last_one(void **state) {
    (void)state;
    scripted s = make_scripted(2, NULL);
    const uint32_t tag = scripted_tag;
    check_step(s.session, 2, 1, &s.table, &tag);
    eventually(loads_of_layer(s.tier, 0) >= 2 * scripted_absent && session_stats(s.session).loads_in_flight == 0);
    assert_true(session_stats(s.session).ready_bytes > 0);
    const uint64_t on_time = session_stats(s.session).on_time;
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    const pkv_layer_view view = acquired(s.session, 0);
    assert_int_equal(view.waited_ns, 0);
    assert_int_equal(session_stats(s.session).on_time, on_time + scripted_absent);
    release(s.session, 0);
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    end_scripted(&s);
}

static void an_acquire_that_ran_out_of_time_may_be_repeated(void **state) {
    (void)state;
    scripted s = make_scripted(2, NULL);
    faulty_always(s.tier, PKV_TIER_LOAD, fault_hold, 0);
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_status(pkv_prefetch_layer_acquire(s.session, 0, 0, NULL, &view), PKV_ERR_TIMEOUT);
    assert_status(pkv_prefetch_layer_acquire(s.session, 0, 1000000, NULL, &view), PKV_ERR_TIMEOUT);
    assert_null(view.slices);
    assert_status(pkv_prefetch_layer_release(s.session, 0, NULL), PKV_ERR_STATE);
    let_all_go(s.tier);
    view = acquired(s.session, 0);
    assert_int_equal(check_of_one(&view, scripted_tag, scripted_tokens), scripted_tokens);
    release(s.session, 0);
    const uint32_t tag = scripted_tag;
    const uint64_t tokens = scripted_tokens;
    check_layers(s.session, 1, 2, 1, &tag, &tokens);
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    assert_int_equal(session_stats(s.session).needed, 2 * scripted_absent);
    end_scripted(&s);
}

static void a_step_may_end_while_loads_are_under_way(void **state) {
    (void)state;
    scripted s = make_scripted(2, NULL);
    const uint32_t tag = scripted_tag;
    faulty_always(s.tier, PKV_TIER_LOAD, fault_hold, 0);
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_status(pkv_prefetch_layer_acquire(s.session, 0, 1000000, NULL, &view), PKV_ERR_TIMEOUT);
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    let_all_go(s.tier);
    check_step(s.session, 2, 1, &s.table, &tag);
    end_scripted(&s);
}

/* One step in which the first load of block 2 goes wrong. */
static void one_bad_load(scripted *s, fault what, int64_t value, pkv_table *other, pkv_status expected) {
    fault_at(s->tier, 2, 1, what, value);
    pkv_table *tables[] = {s->table, other};
    const uint32_t num_tables = other != NULL ? 2 : 1;
    pkv_status statuses[2] = {1, 1};
    assert_ok(pkv_prefetch_step_begin(s->session, num_tables, tables, NULL, statuses));
    for (uint32_t t = 0; t < num_tables; ++t) assert_int_equal(statuses[t], PKV_OK);
    const uint32_t tags[] = {scripted_tag, 3};
    const uint64_t tokens[] = {scripted_tokens, 20};
    for (uint32_t layer = 0; layer < 2; ++layer) {
        const pkv_layer_view view = acquired(s->session, layer);
        const uint64_t rows = check_whole(&view, tags, tokens);
        if (layer == 0) assert_int_equal(view.slices[2], -1);
        const uint64_t all = tokens[0] + (other != NULL ? tokens[1] : 0);
        assert_int_equal(rows, all - (view.slices[2] == -1 ? 4 : 0));
        release(s->session, layer);
    }
    assert_status(pkv_prefetch_step_end(s->session, statuses), expected);
    assert_int_equal(statuses[0], expected);
    if (other != NULL) assert_int_equal(statuses[1], PKV_OK);
    check_session(s->session);
}

static void a_slice_with_a_wrong_checksum_loses_its_table_and_no_other(void **state) {
    (void)state;
    const pkv_prefetch_options options = with_buffers(4, PKV_PREFETCH_OFF);
    const int64_t bytes[] = {4100, 100}; /* of the slice, of the header */
    for (int i = 0; i < 2; ++i) {
        scripted s = make_scripted(2, &options);
        pkv_table *other = long_sequence(s.pool, 1000, 20, 4, 3);
        one_bad_load(&s, fault_flip, bytes[i], other, PKV_ERR_LOST);
        assert_int_equal(info_of(s.table).valid, 2 * tiered_page_tokens);
        assert_int_equal(session_stats(s.session).checksum_failures, 1);
        assert_int_equal(stats_of(s.pool).lost_blocks, 1);
        /* It is out of the following steps, until it is cut. */
        pkv_table *tables[] = {s.table, other};
        pkv_status statuses[2];
        const uint32_t tags[] = {scripted_tag, 3};
        uint64_t tokens[] = {0, 20};
        assert_ok(pkv_prefetch_step_begin(s.session, 2, tables, NULL, statuses));
        assert_int_equal(statuses[0], PKV_ERR_LOST);
        assert_int_equal(statuses[1], PKV_OK);
        check_layers(s.session, 0, 2, 2, tags, tokens);
        assert_status(pkv_prefetch_step_end(s.session, statuses), PKV_ERR_LOST);
        assert_ok(pkv_table_truncate(s.table, 2 * tiered_page_tokens, NULL));
        check_step(s.session, 2, 2, tables, tags);
        end_table(other);
        end_scripted(&s);
    }
}

static void a_slice_that_cannot_be_read_loses_its_table(void **state) {
    (void)state;
    const pkv_prefetch_options options = with_buffers(4, PKV_PREFETCH_OFF);
    const struct {
        fault what;
        int64_t value;
    } faults[] = {{fault_status, PKV_ERR_IO},
                  {fault_status, PKV_ERR_NOT_FOUND},
                  {fault_short, 4096},
                  {fault_refuse, PKV_ERR_IO},
                  {fault_other, 0}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; ++i) {
        scripted s = make_scripted(2, &options);
        one_bad_load(&s, faults[i].what, faults[i].value, NULL, PKV_ERR_LOST);
        assert_int_equal(info_of(s.table).valid, 2 * tiered_page_tokens);
        end_scripted(&s);
    }
}

static void a_load_that_takes_too_long_fails_and_may_come_later(void **state) {
    (void)state;
    pkv_prefetch_options options = with_buffers(4, PKV_PREFETCH_OFF);
    options.load_timeout_ns = 300000000;
    scripted s = make_scripted(2, &options);
    one_bad_load(&s, fault_hold, 0, NULL, PKV_ERR_TIMEOUT);
    assert_int_equal(info_of(s.table).valid, scripted_tokens);
    faulty_let_go(s.tier);
    const uint32_t tag = scripted_tag;
    check_step(s.session, 2, 1, &s.table, &tag);
    end_scripted(&s);
}

static void a_load_that_failed_ahead_of_time_is_tried_again(void **state) {
    (void)state;
    scripted s = make_scripted(2, NULL);
    faulty_script(s.tier, PKV_TIER_LOAD, 1, 2, fault_status, PKV_ERR_BUSY);
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    eventually(session_stats(s.session).failed_loads == 2); /* both ahead of time: the tries on demand shall be good */
    const uint32_t tag = scripted_tag;
    const uint64_t tokens = scripted_tokens;
    check_layers(s.session, 0, 2, 1, &tag, &tokens);
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    assert_int_equal(session_stats(s.session).failed, 0);
    end_scripted(&s);
}

static void a_cancel_in_a_step_leaves_acquired_views_alone(void **state) {
    (void)state;
    scripted s = make_scripted(4, NULL);
    const uint32_t tag = scripted_tag;
    const uint64_t tokens = scripted_tokens;
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    const pkv_layer_view view = acquired(s.session, 0);
    eventually(session_stats(s.session).ready_bytes > 0);
    assert_ok(pkv_prefetch_cancel(s.session));
    assert_int_equal(session_stats(s.session).ready_bytes, 0);
    assert_true(session_stats(s.session).wasted_bytes > 0);
    assert_int_equal(check_of_one(&view, scripted_tag, scripted_tokens), scripted_tokens);
    release(s.session, 0);
    check_layers(s.session, 1, 2, 1, &tag, &tokens);
    assert_ok(pkv_prefetch_cancel(s.session));
    check_layers(s.session, 2, 4, 1, &tag, &tokens);
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    assert_ok(pkv_prefetch_cancel(s.session));
    for (int step = 0; step < 2; ++step) check_step(s.session, 4, 1, &s.table, &tag);
    end_scripted(&s);
}

static void a_cancel_ends_loads_that_are_held(void **state) {
    (void)state;
    scripted s = make_scripted(2, NULL);
    const uint32_t tag = scripted_tag;
    faulty_always(s.tier, PKV_TIER_LOAD, fault_hold, 0);
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    eventually(faulty_held(s.tier) > 0);
    assert_ok(pkv_prefetch_cancel(s.session));
    assert_int_equal(session_stats(s.session).loads_in_flight, 0);
    assert_int_equal(session_stats(s.session).bytes_in_flight, 0);
    assert_true(session_stats(s.session).cancelled_loads > 0);
    faulty_behave(s.tier);
    const uint64_t tokens = scripted_tokens;
    check_layers(s.session, 0, 2, 1, &tag, &tokens); /* the late answers come afterwards, and harm nobody */
    faulty_let_go(s.tier);
    assert_ok(pkv_prefetch_step_end(s.session, NULL));
    for (int step = 0; step < 2; ++step) check_step(s.session, 2, 1, &s.table, &tag);
    end_scripted(&s);
}

static void a_session_may_be_closed_in_a_step_with_loads_under_way(void **state) {
    (void)state;
    scripted s = make_scripted(3, NULL);
    const uint64_t free_before = stats_of(s.pool).free_pages + session_stats(s.session).staging_pages;
    hold_offset(s.tier, slice_stride * 3);
    assert_ok(pkv_prefetch_step_begin(s.session, 1, &s.table, NULL, NULL));
    (void)acquired(s.session, 0);
    eventually(faulty_held(s.tier) > 0);
    assert_ok(pkv_prefetch_close(s.session, NULL));
    assert_int_equal(stats_of(s.pool).free_pages, free_before);
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_status(pkv_prefetch_layer_acquire(s.session, 1, one_second, NULL, &view), PKV_ERR_HANDLE);
    let_all_go(s.tier);
    s.session = open_session(s.pool, NULL);
    const uint32_t tag = scripted_tag;
    check_step(s.session, 3, 1, &s.table, &tag);
    end_scripted(&s);
}

/* ---- tables that have no part in a step ---- */

static void a_table_before_its_admission_has_no_entries(void **state) {
    (void)state;
    world w = world_of_layers(32, 2);
    pkv_table *tables[2] = {NULL, long_sequence(w.pool, 1, 30, 4, 2)};
    assert_ok(pkv_table_create(w.pool, &tables[0]));
    w.session = open_session(w.pool, NULL);
    pkv_status statuses[2] = {1, 1};
    const uint64_t asked[] = {0, 30};
    const uint32_t tags[] = {1, 2};
    assert_ok(pkv_prefetch_step_begin(w.session, 2, tables, asked, statuses));
    assert_int_equal(statuses[0], PKV_ERR_STATE);
    assert_int_equal(statuses[1], PKV_OK);
    check_layers(w.session, 0, 2, 2, tags, asked);
    assert_status(pkv_prefetch_step_end(w.session, statuses), PKV_ERR_STATE);
    assert_int_equal(statuses[0], PKV_ERR_STATE);
    assert_int_equal(statuses[1], PKV_OK);
    for (int t = 0; t < 2; ++t) end_table(tables[t]);
    end_world(&w);
}

static void a_step_without_tables_has_empty_views(void **state) {
    (void)state;
    world w = world_of_layers(32, 2);
    w.session = open_session(w.pool, NULL);
    for (int step = 0; step < 2; ++step) {
        assert_ok(pkv_prefetch_step_begin(w.session, 0, NULL, NULL, NULL));
        for (uint32_t layer = 0; layer < 2; ++layer) {
            const pkv_layer_view view = acquired(w.session, layer);
            assert_int_equal(view.num_slices, 0);
            assert_int_equal(view.indptr[0], 0);
            assert_int_equal(view.last, 1);
            release(w.session, layer);
        }
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
    }
    end_world(&w);
}

static void a_resident_sequence_is_read_where_it_is(void **state) {
    (void)state;
    world w = world_of_layers(32, 3);
    const uint32_t tag = 4;
    const pkv_prompt prompt = prompt_of(NULL, 0);
    pkv_table *table = admit(w.pool, &prompt, NULL);
    put_and_commit(w.pool, table, 30, tag);
    w.session = open_session(w.pool, NULL);
    assert_int_equal(check_step(w.session, 3, 1, &table, &tag), 3);
    const pkv_prefetch_stats stats = session_stats(w.session);
    assert_int_equal(stats.needed + stats.loads + stats.requests, 0);
    assert_int_equal(stats.ranges, 3);
    end_table(table);
    end_world(&w);
}

static void after_its_pool_a_session_ends_its_step_and_is_closed(void **state) {
    (void)state;
    world w = world_of_layers(32, 2);
    pkv_table *table = long_sequence(w.pool, 1, 30, 4, 2);
    w.session = open_session(w.pool, NULL);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
    (void)acquired(w.session, 0);
    release(w.session, 0);
    assert_ok(pkv_pool_destroy(w.pool));
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_status(pkv_prefetch_layer_acquire(w.session, 1, one_second, NULL, &view), PKV_ERR_CLOSED);
    (void)pkv_prefetch_step_end(w.session, NULL);
    assert_status(pkv_prefetch_step_end(w.session, NULL), PKV_ERR_STATE);
    assert_status(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL), PKV_ERR_CLOSED);
    assert_ok(pkv_prefetch_close(w.session, NULL));
    end_table(table);
    assert_ok(pkv_tier_close(w.tier));
}

/* ---- options ---- */

static void default_options_do_for_a_tiny_pool(void **state) {
    (void)state;
    world w = world_of_layers(8, 2);
    const uint32_t tag = 4;
    pkv_table *table = long_sequence(w.pool, 1, 50, 4, tag);
    w.session = open_session(w.pool, NULL);
    assert_int_equal(session_stats(w.session).staging_pages, 4); /* one for each buffer */
    assert_int_equal(session_stats(w.session).buffer_slices, 2);
    for (int step = 0; step < 3; ++step) check_step(w.session, 2, 1, &table, &tag);
    end_table(table);
    end_world(&w);
}

static void refuse(pkv_pool *pool, const pkv_prefetch_options *options, pkv_status expected) {
    pkv_prefetch *session = NULL;
    const uint64_t free_pages = stats_of(pool).free_pages;
    assert_status(pkv_prefetch_open(pool, options, &session), expected);
    assert_null(session);
    assert_int_equal(stats_of(pool).free_pages, free_pages);
}

static void bad_options_are_refused(void **state) {
    (void)state;
    pkv_group_options groups[2] = {layers_group(16, 3), layers_group(8, 2)};
    world w = make_world(groups, 2);
    const pkv_prefetch_options good = PKV_PREFETCH_OPTIONS_INIT;
    pkv_prefetch_options o = good;
    o.policy = 3;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o.policy = -1;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o = good;
    o.num_buffers = 1;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o.num_buffers = PKV_PREFETCH_MAX_BUFFERS + 1;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o = good;
    o.flags = 4;
    refuse(w.pool, &o, PKV_ERR_UNSUPPORTED);
    o = good;
    o.reserved = 1;
    refuse(w.pool, &o, PKV_ERR_UNSUPPORTED);
    o = good;
    o.max_tables = 65537;
    refuse(w.pool, &o, PKV_ERR_LIMIT);
    o = good;
    const pkv_layer_ref twice[] = {{0, 1}, {1, 1}, {0, 1}}, no_group[] = {{2, 0}}, no_layer[] = {{0, 0}, {1, 2}};
    o.layers = twice;
    o.num_layers = 3;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o.layers = no_group;
    o.num_layers = 1;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o.layers = no_layer;
    o.num_layers = 2;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o.layers = NULL;
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o = good;
    const uint64_t too_many[] = {4, 9}, too_few[] = {1, 4}, all[] = {16, 8};
    o.staging_pages = too_many;
    refuse(w.pool, &o, PKV_ERR_NO_PAGES);
    o.staging_pages = too_few; /* 3 slices for 4 buffers */
    refuse(w.pool, &o, PKV_ERR_INVALID);
    o.staging_pages = all;
    pkv_page held;
    assert_ok(pkv_pool_alloc(w.pool, 1, 1, &held));
    refuse(w.pool, &o, PKV_ERR_NO_PAGES);
    assert_ok(pkv_pool_release(w.pool, 1, 1, &held, NULL, NULL));
    w.session = open_session(w.pool, &o);
    assert_int_equal(session_stats(w.session).staging_pages, 24);
    assert_int_equal(group_stats(w.pool, 1).free_pages, 0);
    pkv_prefetch *second = NULL;
    assert_status(pkv_prefetch_open(w.pool, NULL, &second), PKV_ERR_NO_PAGES);
    assert_status(pkv_prefetch_open(w.pool, NULL, NULL), PKV_ERR_INVALID);
    assert_status(pkv_prefetch_open(NULL, NULL, &second), PKV_ERR_HANDLE);
    end_world(&w);
}

static void an_unknown_field_that_is_not_zero_is_refused(void **state) {
    (void)state;
    world w = world_of_layers(16, 2);
    struct {
        pkv_prefetch_options known;
        uint64_t unknown;
    } longer;
    memset(&longer, 0, sizeof longer);
    longer.known.struct_size = sizeof longer;
    longer.unknown = 1;
    refuse(w.pool, &longer.known, PKV_ERR_UNSUPPORTED);
    longer.unknown = 0;
    w.session = open_session(w.pool, &longer.known);
    end_world(&w);
}

static void a_pool_without_tiers_has_no_sessions(void **state) {
    (void)state;
    pkv_pool *pool = make_pool(8, 4);
    refuse(pool, NULL, PKV_ERR_STATE);
    end_pool(pool);
}

static void groups_without_a_layer_in_the_order_give_no_staging_pages(void **state) {
    (void)state;
    pkv_group_options groups[2] = {layers_group(16, 2), layers_group(16, 2)};
    world w = make_world(groups, 2);
    const pkv_layer_ref order = {1, 1};
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.layers = &order;
    options.num_layers = 1;
    w.session = open_session(w.pool, &options);
    assert_int_equal(group_stats(w.pool, 0).free_pages, 16);
    assert_int_equal(group_stats(w.pool, 1).free_pages, 12);
    const uint32_t tag = 1;
    pkv_table *table = long_sequence(w.pool, 1, 30, 4, tag);
    const uint64_t tokens = 30;
    for (int step = 0; step < 2; ++step) {
        assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
        check_layers(w.session, 0, 1, 1, &tag, &tokens);
        assert_ok(pkv_prefetch_step_end(w.session, NULL));
    }
    end_table(table);
    end_world(&w);
}

static void a_view_of_the_wrong_kind_is_refused(void **state) {
    (void)state;
    world w = world_of_layers(16, 2);
    pkv_table *table = long_sequence(w.pool, 1, 20, 4, 1);
    const uint64_t staging = 8;
    w.session = open_with_buffers(w.pool, 4, 0, &staging);
    assert_ok(pkv_prefetch_step_begin(w.session, 1, &table, NULL, NULL));
    assert_status(pkv_prefetch_layer_acquire(w.session, 0, one_second, NULL, NULL), PKV_ERR_INVALID);
    uint64_t counter = 1;
    pkv_sync sync = PKV_SYNC_INIT;
    sync.kind = PKV_SYNC_HOST_COUNTER;
    sync.handle = &counter;
    sync.value = 1;
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    assert_status(pkv_prefetch_layer_acquire(w.session, 0, one_second, &sync, &view), PKV_ERR_UNSUPPORTED);
    view = acquired(w.session, 0);
    sync.value = 2; /* whoever reads the view has not come so far: it stays acquired */
    sync.timeout_ns = 1000000;
    assert_status(pkv_prefetch_layer_release(w.session, 0, &sync), PKV_ERR_TIMEOUT);
    assert_status(pkv_prefetch_step_end(w.session, NULL), PKV_ERR_STATE);
    assert_int_equal(check_of_one(&view, 1, 20), 20);
    counter = 2;
    assert_ok(pkv_prefetch_layer_release(w.session, 0, &sync));
    assert_ok(pkv_prefetch_step_end(w.session, NULL));
    sync.value = 3;
    assert_status(pkv_prefetch_close(w.session, &sync), PKV_ERR_TIMEOUT);
    const uint32_t tag = 1;
    check_step(w.session, 2, 1, &table, &tag);
    end_table(table);
    end_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_larger_than_the_pool_is_read_in_each_step),
        cmocka_unit_test(pages_of_each_arrangement_and_layout_are_read),
        cmocka_unit_test(pages_with_gaps_between_them_are_read),
        cmocka_unit_test(pages_without_v_are_read),
        cmocka_unit_test(k_and_v_rows_of_different_sizes_are_read),
        cmocka_unit_test(opaque_rows_are_read),
        cmocka_unit_test(callers_tensors_with_one_numbering_of_k_and_v_are_read),
        cmocka_unit_test(callers_tensors_without_a_common_numbering_have_pages_as_slices),
        cmocka_unit_test(callers_tensors_from_allocations_of_their_own_are_read),
        cmocka_unit_test(callers_tensors_with_strides_are_read),
        cmocka_unit_test(all_layers_of_a_pools_own_memory_have_one_base_and_stride),
        cmocka_unit_test(scales_of_token_and_head_come_with_their_slices),
        cmocka_unit_test(scales_of_layers_and_heads_stay_where_they_are),
        cmocka_unit_test(groups_of_different_shapes_are_read_one_after_the_other),
        cmocka_unit_test(blocks_that_a_window_has_dropped_are_minus_one),
        cmocka_unit_test(sinks_that_are_in_tiers_stay_when_the_window_moves_on),
        cmocka_unit_test(a_sequence_in_a_file_is_read),
        cmocka_unit_test(blocks_that_lie_in_two_tiers_are_read_from_both),
        cmocka_unit_test(a_layer_larger_than_a_buffer_comes_in_ranges_in_order),
        cmocka_unit_test(a_range_ends_inside_one_table_and_the_next_begins_there),
        cmocka_unit_test(a_session_of_whole_layers_refuses_steps_that_need_ranges),
        cmocka_unit_test(a_step_with_more_blocks_than_a_view_has_entries_is_refused),
        cmocka_unit_test(tables_come_and_go_between_steps),
        cmocka_unit_test(views_follow_what_happens_to_tables_between_steps),
        cmocka_unit_test(views_follow_what_happens_to_tables_inside_a_step),
        cmocka_unit_test(a_table_that_changes_between_two_ranges_of_a_layer_goes_on_where_it_was),
        cmocka_unit_test(a_table_that_is_destroyed_in_a_step_leaves_the_others_alone),
        cmocka_unit_test(blocks_that_an_admission_found_in_tiers_are_read),
        cmocka_unit_test(absent_blocks_that_two_tables_share_are_loaded_once),
        cmocka_unit_test(layers_come_in_the_order_of_the_options),
        cmocka_unit_test(layers_that_are_passed_over_are_not_loaded),
        cmocka_unit_test(the_rest_of_a_layer_may_be_passed_over),
        cmocka_unit_test(several_layers_are_acquired_and_released_in_order),
        cmocka_unit_test(a_table_may_be_listed_once_only),
        cmocka_unit_test(a_table_of_another_pool_is_refused),
        cmocka_unit_test(more_tables_than_a_session_takes_are_refused),
        cmocka_unit_test(a_step_attends_to_as_many_tokens_as_it_says),
        cmocka_unit_test(rows_that_are_written_in_a_step_are_in_its_views),
        cmocka_unit_test(views_may_lie_in_memory_of_the_callers),
        cmocka_unit_test(two_and_sixteen_buffers_give_the_same_rows),
        cmocka_unit_test(case_J13_a_buffer_in_use_is_not_loaded_anew),
        cmocka_unit_test(case_J11_a_late_layer_is_waited_for),
        cmocka_unit_test(case_J23_a_layer_waits_for_the_release_of_its_own_buffer_only),
        cmocka_unit_test(without_prefetching_everything_is_loaded_on_demand),
        cmocka_unit_test(what_was_loaded_ahead_is_on_time),
        cmocka_unit_test(the_first_layers_of_the_next_step_are_loaded_after_the_last_one),
        cmocka_unit_test(an_acquire_that_ran_out_of_time_may_be_repeated),
        cmocka_unit_test(a_step_may_end_while_loads_are_under_way),
        cmocka_unit_test(a_slice_with_a_wrong_checksum_loses_its_table_and_no_other),
        cmocka_unit_test(a_slice_that_cannot_be_read_loses_its_table),
        cmocka_unit_test(a_load_that_takes_too_long_fails_and_may_come_later),
        cmocka_unit_test(a_load_that_failed_ahead_of_time_is_tried_again),
        cmocka_unit_test(a_cancel_in_a_step_leaves_acquired_views_alone),
        cmocka_unit_test(a_cancel_ends_loads_that_are_held),
        cmocka_unit_test(a_session_may_be_closed_in_a_step_with_loads_under_way),
        cmocka_unit_test(a_table_before_its_admission_has_no_entries),
        cmocka_unit_test(a_step_without_tables_has_empty_views),
        cmocka_unit_test(a_resident_sequence_is_read_where_it_is),
        cmocka_unit_test(after_its_pool_a_session_ends_its_step_and_is_closed),
        cmocka_unit_test(default_options_do_for_a_tiny_pool),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(an_unknown_field_that_is_not_zero_is_refused),
        cmocka_unit_test(a_pool_without_tiers_has_no_sessions),
        cmocka_unit_test(groups_without_a_layer_in_the_order_give_no_staging_pages),
        cmocka_unit_test(a_view_of_the_wrong_kind_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
