/* SPDX-License-Identifier: Apache-2.0 */
/* Scales: where they stand, that every way in and out uses them, and that they go where rows go. Field cases I05, I07, I08
 * and I10. */
#include "tensor/convert.h"

#include <math.h>

enum { heads = 2, dim = 8, page_tokens = 16, row_elements = heads * dim };

static const int32_t bytes_types[] = {PKV_DTYPE_F8_E4M3, PKV_DTYPE_F8_E5M2, PKV_DTYPE_I8};

/* 2 layers, 2 heads, rows of 8. With fixed scales: these. */
static const float k_fixed[4] = {0.5f, 7.5f, 2.0f, 3.0f}, v_fixed[4] = {4.0f, 0.25f, 7.5f, 1.0f};

static quantised_config config_of(int32_t stored, int32_t scales) {
    const bool fixed = scales == PKV_SCALES_TENSOR || scales == PKV_SCALES_HEAD;
    const quantised_config config = {.stored = stored,
                                     .scales = scales,
                                     .heads = heads,
                                     .dim = {dim, dim},
                                     .page_tokens = page_tokens,
                                     .layers = 2,
                                     .pages = 8,
                                     .fixed = {fixed ? k_fixed : NULL, fixed ? v_fixed : NULL}};
    return config;
}

/* A pool whose pages nobody holds, poisoned. */
static pkv_pool *make_free(const quantised_config *config) {
    const pkv_group_options group = quantised_group(config);
    return make_pool_of(&group, config->page_tokens, PKV_DEBUG_POISON);
}

static pkv_tensor floats(float *data, uint64_t tokens) {
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.data = data;
    tensor.dtype = PKV_DTYPE_F32;
    tensor.num_tokens = tokens;
    return tensor;
}

/* ---- every way in and out ---- */

/* 15.0 at a scale of 7.5 is stored as 2.0, and comes back as 15.0, through every pair of calls. */
static void case_I05_every_way_in_and_out_uses_the_scale(void **state) {
    (void)state;
    static const float sevens[4] = {7.5f, 7.5f, 7.5f, 7.5f};
    for (int type = 0; type < 3; ++type)
        for (int32_t scales = PKV_SCALES_TENSOR; scales <= PKV_SCALES_HEAD; ++scales)
            for (int32_t dtype = PKV_DTYPE_F32; dtype <= PKV_DTYPE_BF16; ++dtype)
                for (int way = 0; way < 3; ++way) {
                    quantised_config config = config_of(bytes_types[type], scales);
                    config.fixed[0] = config.fixed[1] = sevens;
                    pkv_pool *pool = make_free(&config);
                    const pkv_prompt none = prompt_of(NULL, 0);
                    pkv_table *table = admit(pool, &none, NULL);
                    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
                    options.max_tables = 1;
                    options.max_tokens = 3;
                    pkv_batch *batch;
                    assert_ok(pkv_batch_create(pool, &options, &batch));
                    const uint32_t num_new = 3;
                    assert_ok(pkv_batch_reserve(batch, 1, &table, &num_new, NULL));
                    flat_rows k = make_rows(heads, dim, dtype, 3, 0), v = make_rows(heads, dim, dtype, 3, 0);
                    for (uint64_t i = 0; i < 3 * row_elements; ++i) {
                        put_element(row_at(&k, 0, 0) + i * pkv_dtype_bytes(dtype), dtype, quick_encode(dtype, 15.0f));
                        put_element(row_at(&v, 0, 0) + i * pkv_dtype_bytes(dtype), dtype, quick_encode(dtype, 15.0f));
                    }
                    pkv_slot slots[3];
                    assert_ok(pkv_table_slots(table, 0, 0, 3, slots));
                    const pkv_page page = page_at(table, 0);
                    switch (way) {
                    case 0: assert_ok(pkv_pool_write(pool, 0, 1, 3, slots, &k.tensor, &v.tensor, NULL)); break;
                    case 1: assert_ok(pkv_table_write(table, 0, 1, 0, 3, &k.tensor, &v.tensor, NULL)); break;
                    default: assert_ok(pkv_batch_write(batch, 0, 1, &k.tensor, &v.tensor, NULL)); break;
                    }
                    const quantised q = {.c = config, .pool = pool, .at = {[1] = PKV_LAYER_LAYOUT_INIT}};
                    assert_ok(pkv_pool_layout(pool, 0, 1, (pkv_layer_layout *)&q.at[1]));
                    for (int side = 0; side < 2; ++side)
                        assert_true(quick_decode(config.stored, *stored_at(&q, side, 1, (uint64_t)slots[2], 1)) ==
                                    2.0f);
                    if (way == 0) assert_ok(pkv_table_commit(table, 3, NULL)); /* the library did not see the write */
                    for (int back = 0; back < 3; ++back) {
                        memset(k.memory, 0x3C, k.size);
                        memset(v.memory, 0x3C, v.size);
                        if (back == 2 && way == 0) continue; /* its step was ended by the table's own call */
                        switch (back) {
                        case 0:
                            assert_ok(pkv_pool_gather(pool, 0, 1, 1, &page, 0, 3, &k.tensor, &v.tensor, NULL));
                            break;
                        case 1: assert_ok(pkv_table_gather(table, 0, 1, 0, 3, &k.tensor, &v.tensor, NULL)); break;
                        default: assert_ok(pkv_batch_gather(batch, 0, 1, NULL, 0, &k.tensor, &v.tensor, NULL)); break;
                        }
                        for (uint64_t i = 0; i < 3 * row_elements; ++i) {
                            assert_true(quick_decode(dtype, get_element(row_at(&k, 0, 0) + i * pkv_dtype_bytes(dtype),
                                                                        dtype)) == 15.0f);
                            assert_true(quick_decode(dtype, get_element(row_at(&v, 0, 0) + i * pkv_dtype_bytes(dtype),
                                                                        dtype)) == 15.0f);
                        }
                    }
                    end_rows(&k);
                    end_rows(&v);
                    assert_ok(pkv_batch_destroy(batch));
                    end_table(table);
                    end_pool(pool);
                }
}

/* ---- a scale for each row ---- */

static void case_I07_a_rows_scale_comes_from_that_row_alone(void **state) {
    (void)state;
    for (int type = 0; type < 3; ++type) {
        const quantised_config config = config_of(bytes_types[type], PKV_SCALES_TOKEN_HEAD);
        quantised q = make_quantised(&config); /* poisoned: NaN in pages and scales */
        flat_rows k = make_rows(heads, dim, PKV_DTYPE_F32, 5, 1), v = make_rows(heads, dim, PKV_DTYPE_F32, 5, 2);
        flat_rows *sides[2] = {&k, &v};
        for (int side = 0; side < 2; ++side) {
            memset(sides[side]->memory, 0x7E, sides[side]->size); /* gaps hold 8.5e37 */
            for (uint64_t t = 0; t < 3; ++t)
                for (uint64_t i = 0; i < row_elements; ++i) {
                    const float value = (float)(t + 1) * (i / dim == 0 ? 1.0f : 100.0f) * (i % dim == 3 ? -2.0f : 1.0f);
                    memcpy(row_at(sides[side], t, i / dim) + i % dim * 4, &value, 4);
                }
        }
        const pkv_slot slots[5] = {0, 1, 2, PKV_NO_SLOT, -5}; /* 3 of 16 rows; the two skipped ones are huge */
        assert_ok(pkv_pool_write(q.pool, 0, 0, 5, slots, &k.tensor, &v.tensor, NULL));
        const float largest = type == 0 ? 448.0f : type == 1 ? 57344.0f : 127.0f;
        for (int side = 0; side < 2; ++side)
            for (uint64_t t = 0; t < 3; ++t)
                for (uint64_t head = 0; head < heads; ++head) {
                    const float most = (float)(t + 1) * (head == 0 ? 1.0f : 100.0f) * 2.0f;
                    assert_true(scale_at(&q, side, 0, t, head) == most / largest);
                    check_stored_row(&q, side, 0, t, sides[side], t, head);
                }
        for (uint64_t slot = 3; slot < page_tokens; ++slot)
            assert_int_equal(reference_bits(scale_at(&q, 0, 0, slot, 0)), UINT32_MAX);
        end_rows(&k);
        end_rows(&v);
        end_quantised(&q);
    }
}

static void a_row_of_zeros_and_of_no_numbers_has_scale_1(void **state) {
    (void)state;
    for (int type = 0; type < 3; ++type) {
        const quantised_config config = config_of(bytes_types[type], PKV_SCALES_TOKEN_HEAD);
        quantised q = make_quantised(&config);
        float data[3][row_elements];
        for (int i = 0; i < row_elements; ++i) {
            data[0][i] = i % 2 == 0 ? 0.0f : -0.0f;
            data[1][i] = i % 3 == 0 ? INFINITY : i % 3 == 1 ? -INFINITY : NAN;
            data[2][i] = i % dim == 0 ? INFINITY : i % dim == 1 ? NAN : 0.25f; /* only 0.25 counts */
        }
        const pkv_tensor k = floats(data[0], 3);
        const pkv_slot slots[3] = {4, 5, 6};
        assert_ok(pkv_pool_write(q.pool, 0, 0, 3, slots, &k, &k, NULL));
        const flat_rows rows = {
            .tensor = k, .token_stride = sizeof data[0], .head_stride = dim * 4, .heads = heads, .dim = dim};
        for (uint64_t t = 0; t < 3; ++t)
            for (uint64_t head = 0; head < heads; ++head) check_stored_row(&q, 1, 0, 4 + t, &rows, t, head);
        assert_true(scale_at(&q, 0, 0, 4, 0) == 1.0f && scale_at(&q, 0, 0, 5, 1) == 1.0f);
        assert_true(scale_at(&q, 0, 0, 6, 0) == 0.25f / (type == 0 ? 448.0f : type == 1 ? 57344.0f : 127.0f));
        end_quantised(&q);
    }
}

/* ---- what the layout shows ---- */

static void case_I08_the_layout_shows_the_scales_that_are_used(void **state) {
    (void)state;
    for (int32_t scales = PKV_SCALES_NONE; scales <= PKV_SCALES_TOKEN_HEAD; ++scales)
        for (int with_v = 0; with_v < 2; ++with_v) {
            quantised_config config = config_of(PKV_DTYPE_F8_E4M3, scales);
            float given[2][4];
            memcpy(given[0], k_fixed, sizeof k_fixed);
            memcpy(given[1], v_fixed, sizeof v_fixed);
            if (config.fixed[0] != NULL) config.fixed[0] = given[0];
            if (config.fixed[1] != NULL) config.fixed[1] = given[1];
            if (with_v == 0) config.dim[1] = 0;
            quantised q = make_quantised(&config);
            memset(given, 0x7F, sizeof given); /* they were copied */
            for (uint32_t layer = 0; layer < 2; ++layer) {
                const pkv_layer_layout *at = &q.at[layer];
                assert_int_equal(at->scales, scales);
                assert_true((at->k_scales != NULL) == (scales != PKV_SCALES_NONE));
                assert_true((at->v_scales != NULL) == (scales != PKV_SCALES_NONE && with_v == 1));
                assert_true((at->scale_page_stride != 0) == (scales == PKV_SCALES_TOKEN_HEAD));
                for (uint32_t head = 0; head < (scales == PKV_SCALES_HEAD ? heads : 1) && scales % 3 != 0; ++head) {
                    const uint32_t i = scales == PKV_SCALES_HEAD ? layer * heads + head : layer;
                    assert_true(at->k_scales[head] == k_fixed[i]);
                    if (with_v == 1) assert_true(at->v_scales[head] == v_fixed[i]);
                }
            }
            if (scales == PKV_SCALES_TOKEN_HEAD) { /* an engine's kernel may put rows and scales there itself */
                assert_true(q.at[0].scale_page_stride >= page_tokens * heads * sizeof(float));
                const uint64_t slot = 3 * page_tokens + 7;
                memset(stored_at(&q, 0, 1, slot, 1), 0x38, dim); /* 1.0 */
                ((float *)((char *)q.at[1].k_scales + 3 * q.at[1].scale_page_stride))[7 * heads + 1] = 0.5f;
                float back[row_elements];
                const pkv_tensor k = floats(back, 1);
                const pkv_page page = 3;
                assert_ok(pkv_pool_gather(q.pool, 0, 1, 1, &page, 7, 1, &k, NULL, NULL));
                for (int d = 0; d < dim; ++d) assert_true(back[dim + d] == 0.5f);
            }
            end_quantised(&q);
        }
}

static void scales_that_cannot_be_are_refused_by_name(void **state) {
    (void)state;
    static const float bad[] = {0.0f, -1.0f, INFINITY, NAN};
    float scales[4] = {1, 1, 1, 1};
    for (size_t i = 0; i < 9; ++i) {
        quantised_config config = config_of(PKV_DTYPE_I8, PKV_SCALES_HEAD);
        const char *name = "k_scales";
        scales[3] = i < 4 ? bad[i] : 1;
        if (i < 4) config.fixed[0] = scales;
        pkv_group_options group = quantised_group(&config);
        if (i == 4) group.dtype = PKV_DTYPE_F16, name = "scales";
        if (i == 5) group.k_scales = NULL;
        if (i == 6) group.v_scales = NULL, name = "v_scales";
        if (i == 7) group.scales = PKV_SCALES_TOKEN_HEAD;
        if (i == 8) group.scales = 4, name = "scales";
        pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
        options.page_tokens = page_tokens;
        options.num_groups = 1;
        options.groups = &group;
        pkv_pool *pool = NULL;
        assert_status(pkv_pool_create(&options, &pool), PKV_ERR_INVALID);
        assert_message(name);
        assert_null(pool);
    }
}

/* ---- raw rows ---- */

static void case_I10_raw_codes_pass_unchanged_and_unscaled(void **state) {
    (void)state;
    for (int type = 0; type < 3; ++type)
        for (int32_t scales = PKV_SCALES_NONE; scales <= PKV_SCALES_TOKEN_HEAD; ++scales) {
            quantised_config config = config_of(bytes_types[type], scales);
            config.dim[0] = config.dim[1] = 128;
            quantised q = make_quantised(&config);
            unsigned char codes[256], back[256];
            for (int i = 0; i < 256; ++i) codes[i] = (unsigned char)(255 - i);
            pkv_tensor raw = {.struct_size = sizeof raw, .data = codes, .dtype = config.stored, .num_tokens = 1};
            pkv_tensor out = raw;
            out.data = back;
            const pkv_slot slot = 9;
            const pkv_page page = 0;
            if (scales == PKV_SCALES_TOKEN_HEAD) { /* such rows bring no scale */
                assert_status(pkv_pool_write(q.pool, 0, 0, 1, &slot, &raw, &raw, NULL), PKV_ERR_UNSUPPORTED);
                assert_int_equal(*stored_at(&q, 0, 0, 9, 0), 0xFF);
                for (uint64_t head = 0; head < heads; ++head)
                    memcpy(stored_at(&q, 0, 0, 9, head), codes + head * 128, 128);
            } else {
                assert_ok(pkv_pool_write(q.pool, 0, 0, 1, &slot, &raw, &raw, NULL));
            }
            assert_ok(pkv_pool_gather(q.pool, 0, 0, 1, &page, 9, 1, &out, NULL, NULL));
            assert_memory_equal(back, codes, 256);
            end_quantised(&q);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_I05_every_way_in_and_out_uses_the_scale),
        cmocka_unit_test(case_I07_a_rows_scale_comes_from_that_row_alone),
        cmocka_unit_test(a_row_of_zeros_and_of_no_numbers_has_scale_1),
        cmocka_unit_test(case_I08_the_layout_shows_the_scales_that_are_used),
        cmocka_unit_test(scales_that_cannot_be_are_refused_by_name),
        cmocka_unit_test(case_I10_raw_codes_pass_unchanged_and_unscaled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
