/* SPDX-License-Identifier: Apache-2.0 */
/* What a padded gather leaves where a sequence has no token, in every element type, stored and asked for. Field cases I01,
 * I02 and I04; f16 as it is stored is in table/batch_rows.c, too. */
#include "tensor/convert.h"

enum { heads = 2, dim = 6, page_tokens = 4, padded = 16, num_rows = 2, behind = 2 };

static void check_padding(int32_t stored, int32_t scales, int32_t dtype, int shape, bool poison) {
    const float fixed[4] = {7.5f, 0.5f, 7.5f, 2.0f};
    const bool has_fixed = scales == PKV_SCALES_TENSOR || scales == PKV_SCALES_HEAD;
    const quantised_config config = {.stored = stored,
                                     .scales = scales,
                                     .heads = heads,
                                     .dim = {dim, dim},
                                     .page_tokens = page_tokens,
                                     .layers = 1,
                                     .pages = 8,
                                     .fixed = {has_fixed ? fixed : NULL, has_fixed ? fixed : NULL}};
    pkv_group_options group = quantised_group(&config);
    if (stored == PKV_DTYPE_OPAQUE) {
        group.k_head_dim = group.v_head_dim = 0;
        group.k_row_bytes = group.v_row_bytes = dim;
    }
    pkv_pool *pool = make_pool_of(&group, page_tokens, poison ? PKV_DEBUG_POISON : 0);
    static const uint64_t lengths[num_rows] = {13, 3}, first[num_rows] = {0, 1};
    const uint64_t element = stored == PKV_DTYPE_OPAQUE ? 1 : pkv_dtype_bytes(dtype), row_bytes = dim * element;
    const pkv_prompt none = prompt_of(NULL, 0);
    pkv_table *tables[num_rows];
    unsigned char ones[16 * heads * dim * 4];
    memset(ones, 0x3F, sizeof ones);
    const pkv_tensor source = {.struct_size = sizeof source,
                               .data = ones,
                               .dtype = scales == PKV_SCALES_TOKEN_HEAD ? PKV_DTYPE_BF16 : stored,
                               .num_tokens = 16};
    for (int i = 0; i < num_rows; ++i) {
        tables[i] = admit(pool, &none, NULL);
        assert_ok(pkv_table_reserve(tables[i], lengths[i]));
        assert_ok(pkv_table_write(tables[i], 0, 0, 0, lengths[i], &source, &source, NULL));
        assert_ok(pkv_table_commit(tables[i], lengths[i], NULL));
    }
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = num_rows;
    pkv_batch *batch;
    assert_ok(pkv_batch_create(pool, &options, &batch));
    const uint32_t no_new[num_rows] = {0};
    assert_ok(pkv_batch_reserve(batch, num_rows, tables, no_new, NULL));

    const uint64_t tokens = num_rows * padded + behind;
    const uint64_t head_stride = row_bytes + (shape == 1 ? 3 : 0),
                   token_stride = heads * head_stride + (shape == 1 ? 5 : 0);
    unsigned char *data[2];
    pkv_tensor out[2];
    for (int side = 0; side < 2; ++side) {
        data[side] = malloc(tokens * token_stride);
        memset(data[side], 0xFF, tokens * token_stride); /* NaN in every float type */
        out[side] =
            (pkv_tensor){sizeof(pkv_tensor),          data[side], dtype, 0, tokens, shape == 1 ? token_stride : 0,
                         shape == 1 ? head_stride : 0};
    }
    assert_ok(pkv_batch_gather(batch, 0, 0, first, padded, &out[0], &out[1], NULL));
    for (int side = 0; side < 2; ++side)
        for (uint64_t token = 0; token < tokens; ++token)
            for (uint64_t byte = 0; byte < token_stride; ++byte) {
                const unsigned char got = data[side][token * token_stride + byte];
                const bool in_row = byte / head_stride < heads && byte % head_stride < row_bytes;
                const uint64_t r = token / padded;
                if (!in_row || r >= num_rows)
                    assert_int_equal(got, 0xFF); /* not the call's */
                else if (token % padded >= lengths[r] - first[r])
                    assert_int_equal(got, 0);
                else if (dtype == stored && scales == PKV_SCALES_NONE)
                    assert_int_equal(got, 0x3F);
            }
    for (int side = 0; side < 2; ++side) free(data[side]);
    assert_ok(pkv_batch_destroy(batch));
    for (int i = 0; i < num_rows; ++i) end_table(tables[i]);
    end_pool(pool);
}

static void case_I01_padding_is_zero_in_every_type(void **state) {
    (void)state;
    for (int32_t dtype = PKV_DTYPE_F32; dtype <= PKV_DTYPE_OPAQUE; ++dtype)
        for (int shape = 0; shape < 2; ++shape)
            for (int poison = 0; poison < 2; ++poison) check_padding(dtype, PKV_SCALES_NONE, dtype, shape, poison == 1);
}

static void case_I02_padding_of_converted_rows_is_zero_whatever_the_scales(void **state) {
    (void)state;
    for (int32_t stored = PKV_DTYPE_F32; stored <= PKV_DTYPE_I8; ++stored)
        for (int32_t dtype = PKV_DTYPE_F32; dtype <= PKV_DTYPE_BF16; ++dtype)
            for (int32_t scales = PKV_SCALES_NONE; scales <= (stored >= PKV_DTYPE_F8_E4M3 ? PKV_SCALES_TOKEN_HEAD : 0);
                 ++scales)
                for (int shape = 0; shape < 2; ++shape) check_padding(stored, scales, dtype, shape, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_I01_padding_is_zero_in_every_type),
        cmocka_unit_test(case_I02_padding_of_converted_rows_is_zero_whatever_the_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
