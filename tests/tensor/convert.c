/* SPDX-License-Identifier: Apache-2.0 */
/* Every value through write and gather into every type that it converts to: all 16-bit inputs, all 8-bit codes, and the
 * f32 values where rounding is decided. With every set of kernels. Field case I10 (raw codes are in rows.c). */
#include "tensor/convert.h"

#include <math.h>

static const int32_t bytes_types[] = {PKV_DTYPE_F8_E4M3, PKV_DTYPE_F8_E5M2, PKV_DTYPE_I8};

static const float factors[] = {0.5f, 7.5f, 1e-3f, 1e30f, 1e-30f, 3.1e4f, 1.0f};
enum { num_factors = sizeof factors / sizeof *factors };

/* Writes elements to the pages in order, K first and then V, checks them, gathers them in three types and checks that. */
static void there_and_back(const quantised *q, int32_t dtype, const uint32_t *elements, uint64_t num_elements) {
    const quantised_config *c = &q->c;
    const uint64_t token_elements = (uint64_t)c->heads * c->dim[0], tokens = c->pages * c->page_tokens;
    assert_true(num_elements <= 2 * tokens * token_elements);
    flat_rows rows[2];
    pkv_slot *slots = calloc(tokens, sizeof *slots);
    uint64_t *all = calloc(tokens, sizeof *all);
    pkv_page pages[most_pages];
    for (uint64_t i = 0; i < tokens; ++i) all[i] = (uint64_t)(slots[i] = (pkv_slot)i);
    for (uint64_t i = 0; i < c->pages; ++i) pages[i] = (pkv_page)i;
    uint64_t next = 0;
    for (int side = 0; side < 2; ++side) {
        rows[side] = make_rows(c->heads, c->dim[side], dtype, tokens, 0);
        for (uint64_t i = 0; i < tokens * token_elements; ++i, ++next)
            put_element((unsigned char *)rows[side].tensor.data + i * pkv_dtype_bytes(dtype), dtype,
                        elements[next % num_elements]);
    }
    assert_ok(pkv_pool_write(q->pool, 0, 0, tokens, slots, &rows[0].tensor, &rows[1].tensor, NULL));
    for (int side = 0; side < 2; ++side)
        for (uint64_t i = 0; i < tokens; ++i)
            for (uint32_t head = 0; head < c->heads; ++head) check_stored_row(q, side, 0, all[i], &rows[side], i, head);
    for (int side = 0; side < 2; ++side) end_rows(&rows[side]);
    for (int32_t back = PKV_DTYPE_F32; back <= PKV_DTYPE_BF16; ++back) {
        for (int side = 0; side < 2; ++side) rows[side] = make_rows(c->heads, c->dim[side], back, tokens, 0);
        assert_ok(pkv_pool_gather(q->pool, 0, 0, c->pages, pages, 0, tokens, &rows[0].tensor, &rows[1].tensor, NULL));
        /* All codes are in the first pages: what follows is the same again. */
        const uint64_t checked = pkv_dtype_bytes(c->stored) == 1 && tokens > 32 ? 32 : tokens;
        for (int side = 0; side < 2; ++side) check_gathered(q, side, 0, all, &rows[side], 0, checked);
        for (int side = 0; side < 2; ++side) end_rows(&rows[side]);
    }
    free(slots);
    free(all);
}

/* All codes of a 16-bit type, neighbours in one row. 8 pages of 16 tokens, 4 heads of 64, K and V: 65536 elements. */
static const uint32_t *all_codes(void) {
    static uint32_t codes[65536];
    for (uint32_t i = 0; i < 65536; ++i) codes[i] = i;
    return codes;
}

static quantised make_large(int32_t stored, int32_t scales, const float *fixed) {
    const quantised_config config = {.stored = stored,
                                     .scales = scales,
                                     .heads = 4,
                                     .dim = {64, 64},
                                     .page_tokens = 16,
                                     .layers = 1,
                                     .pages = 8,
                                     .fixed = {fixed, fixed}};
    return make_quantised(&config);
}

static void check_16_bit_inputs(int32_t dtype) {
    for (int i = 0; i < 3; ++i) {
        quantised q = make_large(bytes_types[i], PKV_SCALES_NONE, NULL);
        there_and_back(&q, dtype, all_codes(), 65536);
        end_quantised(&q);
        q = make_large(bytes_types[i], PKV_SCALES_TOKEN_HEAD, NULL);
        there_and_back(&q, dtype, all_codes(), 65536);
        end_quantised(&q);
        q = make_large(bytes_types[i], PKV_SCALES_HEAD, factors + 1);
        there_and_back(&q, dtype, all_codes(), 65536);
        end_quantised(&q);
        for (int f = 0; f < (i == 1 ? 2 : num_factors); ++f) {
            q = make_large(bytes_types[i], PKV_SCALES_TENSOR, &factors[f]);
            there_and_back(&q, dtype, all_codes(), 65536);
            end_quantised(&q);
        }
    }
}

static void all_f16_inputs_become_fp8_and_int8(void **state) {
    (void)state;
    check_16_bit_inputs(PKV_DTYPE_F16);
}

static void all_bf16_inputs_become_fp8_and_int8(void **state) {
    (void)state;
    check_16_bit_inputs(PKV_DTYPE_BF16);
}

static void all_f16_and_bf16_inputs_become_each_other_and_f32(void **state) {
    (void)state;
    for (int32_t stored = PKV_DTYPE_F32; stored <= PKV_DTYPE_BF16; ++stored)
        for (int32_t dtype = PKV_DTYPE_F16; dtype <= PKV_DTYPE_BF16; ++dtype) {
            quantised q = make_large(stored, PKV_SCALES_NONE, NULL);
            there_and_back(&q, dtype, all_codes(), 65536);
            end_quantised(&q);
        }
}

/* ---- f32 ---- */

enum { most_edges = 16384 };
static uint32_t edges[most_edges];

/* Around every point where rounding to a type changes, or to some of them: both signs, and the neighbours. */
static uint64_t fill_edges(int32_t stored, test_random *random) {
    uint64_t n = 0;
    const uint32_t specials[] = {0x7F800000, 0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0x7FBFFFFF, 0x7F7FFFFF,
                                 0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0x477FE000,
                                 0x477FEFFF, 0x477FF000, 0x477FF001, 0x7F7F7FFF, 0x7F7F8000, 0x43E00000,
                                 0x43E80000, 0x43E80001, 0x47600000, 0x47700000, 0x42FE0000, 0x42FF0000};
    for (size_t i = 0; i < sizeof specials / sizeof *specials; ++i)
        for (uint32_t sign = 0; sign < 2; ++sign) edges[n++] = sign << 31 | specials[i];
    const int bits = stored == PKV_DTYPE_F16 || stored == PKV_DTYPE_BF16 ? 16 : 8;
    for (int i = 0; i < 1000; ++i) {
        uint32_t code = (uint32_t)i, next = code + 1;
        if (bits == 16 && i >= 300) code = (uint32_t)random_below(random, 32767), next = code + 1;
        if (bits == 8 && code >= 127) break;
        const float a = reference_decode(stored, code), b = reference_decode(stored, next);
        const float middle = (float)(((double)a + (double)b) / 2);
        if (!(a <= FLT_MAX && b <= FLT_MAX)) continue;
        for (uint32_t step = 0; step < 5; ++step)
            for (uint32_t sign = 0; sign < 2; ++sign) edges[n++] = sign << 31 | (reference_bits(middle) + step - 2);
        edges[n++] = reference_bits(a);
    }
    while (n < most_edges) edges[n++] = (uint32_t)next_random(random);
    return n;
}

static void f32_inputs_round_as_documented(void **state) {
    (void)state;
    const uint64_t seed = 11;
    print_message("seed %llu\n", (unsigned long long)seed);
    test_random random = {seed};
    for (int32_t stored = PKV_DTYPE_F16; stored <= PKV_DTYPE_I8; ++stored) {
        const bool scaled = stored >= PKV_DTYPE_F8_E4M3;
        for (int32_t scales = PKV_SCALES_NONE; scales <= (scaled ? PKV_SCALES_TOKEN_HEAD : PKV_SCALES_NONE); ++scales) {
            const quantised_config config = {
                .stored = stored,
                .scales = scales,
                .heads = 4,
                .dim = {64, 64},
                .page_tokens = 16,
                .layers = 1,
                .pages = 2,
                .fixed = {scales % 3 != 0 ? factors : NULL, scales % 3 != 0 ? factors + 1 : NULL}};
            quantised q = make_quantised(&config);
            there_and_back(&q, PKV_DTYPE_F32, edges, fill_edges(stored, &random));
            end_quantised(&q);
        }
    }
}

/* The looked-up conversions that everything here is compared with are those of reference_convert.h. */
static void the_quick_reference_is_the_reference(void **state) {
    (void)state;
    test_random random = {12};
    for (int32_t dtype = PKV_DTYPE_F16; dtype <= PKV_DTYPE_I8; ++dtype) {
        const uint64_t n = fill_edges(dtype, &random);
        for (uint64_t i = 0; i < n; i += long_tests() ? 1 : 5) {
            const float value = reference_float(edges[i]);
            assert_int_equal(quick_encode(dtype, value), reference_encode(dtype, value));
        }
        for (uint32_t code = 0; code < codes_of(dtype); code += codes_of(dtype) == 256 ? 1 : 37)
            assert_int_equal(reference_bits(quick_decode(dtype, code)), reference_bits(reference_decode(dtype, code)));
    }
}

/* Numbers whose value is stated, so that the reference itself is held to the documentation. */
static void values_of_the_documentation(void **state) {
    (void)state;
    static const struct {
        int32_t stored;
        float value;
        uint32_t code;
    } cases[] = {{PKV_DTYPE_F8_E4M3, 448.0f, 0x7E},
                 {PKV_DTYPE_F8_E4M3, 1e9f, 0x7E},
                 {PKV_DTYPE_F8_E4M3, -1e9f, 0xFE},
                 {PKV_DTYPE_F8_E4M3, 1.0f, 0x38},
                 {PKV_DTYPE_F8_E4M3, 1.0625f, 0x38},
                 {PKV_DTYPE_F8_E4M3, 1.1875f, 0x3A},
                 {PKV_DTYPE_F8_E4M3, 0.0009765625f, 0},
                 {PKV_DTYPE_F8_E4M3, 0.001953125f, 1},
                 {PKV_DTYPE_F8_E4M3, -0.0f, 0x80},
                 {PKV_DTYPE_F8_E5M2, 57344.0f, 0x7B},
                 {PKV_DTYPE_F8_E5M2, 1e9f, 0x7B},
                 {PKV_DTYPE_F8_E5M2, 1.0f, 0x3C},
                 {PKV_DTYPE_F8_E5M2, 1.125f, 0x3C},
                 {PKV_DTYPE_F8_E5M2, 1.375f, 0x3E},
                 {PKV_DTYPE_I8, 126.5f, 126},
                 {PKV_DTYPE_I8, 125.5f, 126},
                 {PKV_DTYPE_I8, 1e9f, 127},
                 {PKV_DTYPE_I8, -1e9f, 0x81},
                 {PKV_DTYPE_I8, -0.5f, 0},
                 {PKV_DTYPE_I8, 1.5f, 2},
                 {PKV_DTYPE_F16, 65504.0f, 0x7BFF},
                 {PKV_DTYPE_F16, 65520.0f, 0x7C00},
                 {PKV_DTYPE_F16, 65519.0f, 0x7BFF},
                 {PKV_DTYPE_BF16, 1.0f, 0x3F80},
                 {PKV_DTYPE_F8_E4M3, INFINITY, 0x7E},
                 {PKV_DTYPE_F8_E5M2, -INFINITY, 0xFB},
                 {PKV_DTYPE_I8, -INFINITY, 0x81},
                 {PKV_DTYPE_I8, NAN, 0},
                 {PKV_DTYPE_F16, -INFINITY, 0xFC00},
                 {PKV_DTYPE_BF16, INFINITY, 0x7F80}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        const quantised_config config = {
            .stored = cases[i].stored, .heads = 1, .dim = {1, 0}, .page_tokens = 1, .layers = 1, .pages = 1};
        quantised q = make_quantised(&config);
        float value = cases[i].value;
        const pkv_tensor k = {.struct_size = sizeof k, .data = &value, .dtype = PKV_DTYPE_F32, .num_tokens = 1};
        const pkv_slot slot = 0;
        assert_ok(pkv_pool_write(q.pool, 0, 0, 1, &slot, &k, NULL, NULL));
        assert_int_equal(get_element(stored_at(&q, 0, 0, 0, 0), cases[i].stored), cases[i].code);
        end_quantised(&q);
    }
}

static void nan_stays_nan_with_its_sign(void **state) {
    (void)state;
    for (int32_t stored = PKV_DTYPE_F32; stored <= PKV_DTYPE_F8_E5M2; ++stored)
        for (int32_t dtype = PKV_DTYPE_F32; dtype <= PKV_DTYPE_BF16; ++dtype)
            for (uint32_t sign = 0; sign < 2; ++sign) {
                const quantised_config config = {
                    .stored = stored, .heads = 1, .dim = {3, 0}, .page_tokens = 1, .layers = 1, .pages = 1};
                quantised q = make_quantised(&config);
                flat_rows rows = make_rows(1, 3, dtype, 1, 0);
                const uint32_t codes[4] = {0, 0x7FA00001, 0x7D01, 0x7F81}; /* signalling ones, by dtype */
                const uint32_t top = pkv_dtype_bytes(dtype) == 4 ? 31 : 15;
                for (uint64_t d = 0; d < 3; ++d)
                    put_element(row_at(&rows, 0, 0) + d * pkv_dtype_bytes(dtype), dtype, codes[dtype] | sign << top);
                const pkv_slot slot = 0;
                const pkv_page page = 0;
                assert_ok(pkv_pool_write(q.pool, 0, 0, 1, &slot, &rows.tensor, NULL, NULL));
                const float in_page = reference_decode(stored, get_element(stored_at(&q, 0, 0, 0, 0), stored));
                assert_true(in_page != in_page && reference_negative(in_page) == (sign == 1));
                assert_ok(pkv_pool_gather(q.pool, 0, 0, 1, &page, 0, 1, &rows.tensor, NULL, NULL));
                const float back = reference_decode(dtype, get_element(row_at(&rows, 0, 0), dtype));
                assert_true(back != back && reference_negative(back) == (sign == 1));
                end_rows(&rows);
                end_quantised(&q);
            }
}

/* ---- codes ---- */

static void all_256_codes_are_gathered_in_every_type(void **state) {
    (void)state;
    for (int i = 0; i < 3; ++i)
        for (int f = -1; f < num_factors; ++f) {
            const quantised_config config = {.stored = bytes_types[i],
                                             .scales = f < 0 ? PKV_SCALES_NONE : PKV_SCALES_TENSOR,
                                             .heads = 1,
                                             .dim = {256, 256},
                                             .page_tokens = 2,
                                             .layers = 1,
                                             .pages = 1,
                                             .fixed = {f < 0 ? NULL : &factors[f], f < 0 ? NULL : &factors[0]}};
            quantised q = make_quantised(&config);
            for (uint64_t code = 0; code < 256; ++code)
                for (int side = 0; side < 2; ++side)
                    for (uint64_t slot = 0; slot < 2; ++slot)
                        stored_at(&q, side, 0, slot, 0)[slot == 0 ? code : 255 - code] = (unsigned char)code;
            const uint64_t slots[2] = {0, 1};
            const pkv_page page = 0;
            for (int32_t dtype = PKV_DTYPE_F32; dtype <= PKV_DTYPE_BF16; ++dtype) {
                flat_rows k = make_rows(1, 256, dtype, 2, 0), v = make_rows(1, 256, dtype, 2, 0);
                assert_ok(pkv_pool_gather(q.pool, 0, 0, 1, &page, 0, 2, &k.tensor, &v.tensor, NULL));
                check_gathered(&q, 0, 0, slots, &k, 0, 2);
                check_gathered(&q, 1, 0, slots, &v, 0, 2);
                end_rows(&k);
                end_rows(&v);
            }
            end_quantised(&q);
        }
}

int main(int argc, char **argv) {
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_quick_reference_is_the_reference),
        cmocka_unit_test(all_f16_inputs_become_fp8_and_int8),
        cmocka_unit_test(all_bf16_inputs_become_fp8_and_int8),
        cmocka_unit_test(all_f16_and_bf16_inputs_become_each_other_and_f32),
        cmocka_unit_test(f32_inputs_round_as_documented),
        cmocka_unit_test(values_of_the_documentation),
        cmocka_unit_test(nan_stays_nan_with_its_sign),
        cmocka_unit_test(all_256_codes_are_gathered_in_every_type),
    };
    return run_with_every_kernels(argv[0], tests, sizeof tests / sizeof *tests);
}
