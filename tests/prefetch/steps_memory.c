/* SPDX-License-Identifier: Apache-2.0 */
/* Steps over the layers of sequences that lie in tiers: every kind of page memory, and scales. */
#include "prefetch/steps.h"

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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
