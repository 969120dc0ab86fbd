/* SPDX-License-Identifier: Apache-2.0 */
/* The device's converting kernels, run on the host over many grids: bit by bit what the host kernels make of every
 * element, with every kind of scales. With every set of host kernels. Field cases I05, I07, I10 and H10 for
 * conversions. */
#include "tensor/convert.h"
#include "tensor/cuda.h"

#include <math.h>

enum { most_tokens = 512 };

static const float fixed_scales[2 * 8 * 4] = {7.5f, 0.3f,   1e-3f, 1.0f, 3e4f, 0.25f, 2.0f, 9.0f,
                                              1.5f, 7.5f,   1e-2f, 3.0f, 0.1f, 1e4f,  1.0f, 5.0f,
                                              1.0f, 1e-30f, 3e30f, 0.7f, 1.1f, 2.2f,  3.3f, 4.4f};

/* Two pools: the host's kernels write one, the device's the other. */
typedef struct {
    quantised host, device;
    pkv_device_layer layers[most_layers];
} twins;

static twins make_twins(const quantised_config *config) {
    twins t = {.host = make_quantised(config), .device = make_quantised(config)};
    device_layers(t.device.pool, config->layers, config->pages, t.layers);
    return t;
}

static void end_twins(twins *t) {
    end_quantised(&t->host);
    end_quantised(&t->device);
}

/* Every row and every scale is the same, bit by bit. */
static void check_both(const twins *t) {
    const quantised_config *c = &t->host.c;
    for (int side = 0; side < (c->dim[1] != 0 ? 2 : 1); ++side)
        for (uint32_t layer = 0; layer < c->layers; ++layer)
            for (uint64_t slot = 0; slot < c->pages * c->page_tokens; ++slot)
                for (uint32_t head = 0; head < c->heads; ++head) {
                    const uint64_t size = c->dim[side] * pkv_dtype_bytes(c->stored);
                    const float a = scale_at(&t->host, side, layer, slot, head),
                                b = scale_at(&t->device, side, layer, slot, head);
                    if (reference_bits(a) != reference_bits(b))
                        fail_msg("the scale of slot %llu, head %u is %a, the host's %a", (unsigned long long)slot, head,
                                 (double)b, (double)a);
                    const unsigned char *x = stored_at(&t->host, side, layer, slot, head),
                                        *y = stored_at(&t->device, side, layer, slot, head);
                    for (uint64_t i = 0; i < size; ++i)
                        if (x[i] != y[i])
                            fail_msg("byte %llu of the row of slot %llu, head %u (dtype %d, scale %a) is %02x, the "
                                     "host's %02x",
                                     (unsigned long long)i, (unsigned long long)slot, head, c->stored, (double)a, y[i],
                                     x[i]);
                }
}

static pkv_device_flat flat_of(const flat_rows *rows) {
    return (pkv_device_flat){rows->tensor.data, rows->token_stride, rows->head_stride};
}

/* Into all layers, the same rows. */
static void write_both(twins *t, uint64_t count, const int64_t *slots, const flat_rows *k, const flat_rows *v,
                       emulated_grid grid) {
    const quantised_config *c = &t->host.c;
    pkv_device_flat k_at[most_layers], v_at[most_layers];
    for (uint32_t i = 0; i < c->layers; ++i) {
        k_at[i] = flat_of(k);
        v_at[i] = flat_of(v);
        assert_ok(
            pkv_pool_write(t->host.pool, 0, i, count, slots, &k->tensor, c->dim[1] != 0 ? &v->tensor : NULL, NULL));
    }
    const pkv_device_write write = {.struct_size = sizeof write,
                                    .num_layers = c->layers,
                                    .flat_dtype = k->tensor.dtype,
                                    .layers = t->layers,
                                    .k = k_at,
                                    .v = c->dim[1] != 0 ? v_at : NULL,
                                    .slots = slots,
                                    .num_slots = count,
                                    .slot_bytes = 8,
                                    .slots_on_host = count % 2 == 0};
    assert_emulated(emulated_write(&write, grid), PKV_OK);
}

/* A NaN at a scale that is NaN, as in rows that nobody wrote: which of the two remains differs among the host's
 * kernels. */
static void settle_nan_of_nan(const twins *t, int side, uint32_t layer, uint64_t first, uint64_t count,
                              const flat_rows *host, const flat_rows *device) {
    const int32_t dtype = host->tensor.dtype;
    for (uint64_t i = 0; i < count; ++i)
        for (uint32_t head = 0; head < host->heads; ++head) {
            const float scale = scale_at(&t->host, side, layer, first + i, head);
            for (uint32_t d = 0; scale != scale && d < host->dim; ++d) {
                unsigned char *const at = row_at(host, i, head) + d * pkv_dtype_bytes(dtype);
                const uint32_t got = get_element(row_at(device, i, head) + d * pkv_dtype_bytes(dtype), dtype);
                const float a = quick_decode(dtype, get_element(at, dtype)), b = quick_decode(dtype, got);
                if (a != a && b != b) put_element(at, dtype, got);
            }
        }
}

/* Tokens of the pages in order, from `first` on, of one layer. */
static void gather_both(twins *t, uint32_t layer, uint64_t first, uint64_t count, int32_t dtype, int shape,
                        emulated_grid grid) {
    const quantised_config *c = &t->host.c;
    int32_t pages[most_pages];
    for (uint64_t i = 0; i < c->pages; ++i) pages[i] = (int32_t)i;
    flat_rows rows[2][2];
    pkv_device_flat at[2];
    for (int side = 0; side < 2; ++side) {
        rows[0][side] = make_rows(c->heads, c->dim[side], dtype, count, shape);
        rows[1][side] = make_rows(c->heads, c->dim[side], dtype, count, shape);
        at[side] = flat_of(&rows[1][side]);
    }
    const uint64_t out = 0;
    assert_ok(pkv_pool_gather(t->host.pool, 0, layer, c->pages, pages, first, count, &rows[0][0].tensor,
                              c->dim[1] != 0 ? &rows[0][1].tensor : NULL, NULL));
    const pkv_device_gather gather = {.struct_size = sizeof gather,
                                      .num_layers = 1,
                                      .flat_dtype = dtype,
                                      .layers = &t->layers[layer],
                                      .k = &at[0],
                                      .v = c->dim[1] != 0 ? &at[1] : NULL,
                                      .pages = pages,
                                      .num_pages = c->pages,
                                      .first = &first,
                                      .counts = &count,
                                      .out_first = &out,
                                      .num_sequences = 1,
                                      .max_count = count,
                                      .arrays_on_host = count % 2 == 0};
    assert_emulated(emulated_gather(&gather, grid), PKV_OK);
    for (int side = 0; side < 2; ++side) {
        if (dtype != c->stored && c->dim[side] != 0)
            settle_nan_of_nan(t, side, layer, first, count, &rows[0][side], &rows[1][side]);
        for (uint64_t i = 0; i < rows[0][side].size; ++i)
            if (rows[0][side].memory[i] != rows[1][side].memory[i])
                fail_msg("byte %llu of side %d, gathered from dtype %d as %d, is %02x, the host's %02x",
                         (unsigned long long)i, side, c->stored, dtype, rows[1][side].memory[i],
                         rows[0][side].memory[i]);
        end_rows(&rows[0][side]);
        end_rows(&rows[1][side]);
    }
}

static const int32_t flat_types[] = {PKV_DTYPE_F32, PKV_DTYPE_F16, PKV_DTYPE_BF16};

/* ---- every input ---- */

static void every_16_bit_element_becomes_what_the_host_makes_of_it(void **state) {
    (void)state;
    for (int from = 1; from < 3; ++from)
        for (int32_t stored = PKV_DTYPE_F32; stored <= PKV_DTYPE_I8; ++stored)
            for (int32_t scales = PKV_SCALES_NONE; scales <= PKV_SCALES_TOKEN_HEAD; ++scales) {
                const bool has_scales = stored >= PKV_DTYPE_F8_E4M3;
                if (stored == flat_types[from] || (!has_scales && scales != PKV_SCALES_NONE)) continue;
                /* 65536 elements for K, and again for V. */
                const quantised_config config = {
                    .stored = stored,
                    .scales = scales,
                    .heads = 8,
                    .dim = {64, 64},
                    .page_tokens = 16,
                    .layers = 1,
                    .pages = 8,
                    .fixed = {scales == PKV_SCALES_TENSOR || scales == PKV_SCALES_HEAD ? fixed_scales : NULL,
                              scales == PKV_SCALES_TENSOR || scales == PKV_SCALES_HEAD ? fixed_scales + 16 : NULL}};
                twins t = make_twins(&config);
                flat_rows k = make_rows(8, 64, flat_types[from], 128, 0),
                          v = make_rows(8, 64, flat_types[from], 128, 0);
                int64_t slots[128];
                for (int i = 0; i < 128; ++i) slots[i] = i;
                for (uint32_t i = 0; i < 65536; ++i) {
                    put_element((unsigned char *)k.tensor.data + 2 * i, flat_types[from], i);
                    put_element((unsigned char *)v.tensor.data + 2 * i, flat_types[from], (i * 40503u) & 0xFFFF);
                }
                for (int g = 0; g < 2; ++g) {
                    write_both(&t, 128, slots, &k, &v, emulated_grids[g * 4]);
                    check_both(&t);
                }
                for (int to = 0; to < 3; ++to)
                    if (flat_types[to] != stored) gather_both(&t, 0, 0, 128, flat_types[to], 0, emulated_grids[0]);
                end_rows(&k);
                end_rows(&v);
                end_twins(&t);
            }
}

/* Bits of all kinds: around what rounds up and down, subnormal, infinite, NaN with payloads. */
static uint32_t any_float(test_random *random) {
    const uint64_t kind = random_below(random, 8);
    uint32_t bits = (uint32_t)next_random(random);
    if (kind == 0) return (uint32_t)(random_below(random, 2) << 31) | (uint32_t)random_below(random, 0x01000000);
    if (kind == 1) return (bits & 0x80000000u) | 0x7F800000u | (random_below(random, 2) == 0 ? 0 : bits & 0x7FFFFF);
    const uint32_t exponent = kind == 2 ? 100 + bits % 60 : 112 + bits % 35;
    bits = (bits & 0x80000000u) | exponent << 23 | (uint32_t)(next_random(random) & 0x7FFFFF);
    if (kind == 3) bits &= ~UINT32_C(0xFFFF); /* ties */
    if (kind == 4) bits = (bits & ~UINT32_C(0x1FFF)) | 0x1000;
    return bits;
}

static void floats_of_all_kinds_become_what_the_host_makes_of_them(void **state) {
    (void)state;
    test_random random = {77};
    for (int32_t stored = PKV_DTYPE_F16; stored <= PKV_DTYPE_I8; ++stored)
        for (int32_t scales = PKV_SCALES_NONE; scales <= PKV_SCALES_TOKEN_HEAD; ++scales) {
            if (stored < PKV_DTYPE_F8_E4M3 && scales != PKV_SCALES_NONE) continue;
            const bool fixed = scales == PKV_SCALES_TENSOR || scales == PKV_SCALES_HEAD;
            const quantised_config config = {.stored = stored,
                                             .scales = scales,
                                             .heads = 4,
                                             .dim = {128, 0},
                                             .page_tokens = 16,
                                             .layers = 2,
                                             .pages = 8,
                                             .fixed = {fixed ? fixed_scales + 8 : NULL, NULL}};
            twins t = make_twins(&config);
            flat_rows k = make_rows(4, 128, PKV_DTYPE_F32, 128, 0), none = make_rows(4, 0, PKV_DTYPE_F32, 128, 0);
            int64_t slots[128];
            for (int i = 0; i < 128; ++i) slots[i] = 127 - i;
            for (int round = 0; round < (long_tests() ? 40 : 3); ++round) {
                for (uint32_t i = 0; i < 128 * 512; ++i)
                    put_element((unsigned char *)k.tensor.data + 4 * i, PKV_DTYPE_F32, any_float(&random));
                write_both(&t, 128, slots, &k, &none, any_grid(&random));
                check_both(&t);
            }
            end_rows(&k);
            end_rows(&none);
            end_twins(&t);
        }
}

/* Rows that nobody wrote have any scale. */
static void case_I10_every_code_at_every_scale_is_gathered_as_the_host_does(void **state) {
    (void)state;
    static const uint32_t scales[] = {0x3F800000u, 0x40F00000u, 0x00000001u, 0x00800000u, 0x7F7FFFFFu, 0x7E000000u,
                                      0x7F800000u, 0xFF800000u, 0x00000000u, 0x80000000u, 0xBF800000u, 0x7FC00000u,
                                      0x7F800001u, 0xFFC12345u, 0x2F123456u, 0x4B000000u};
    for (int32_t stored = PKV_DTYPE_F8_E4M3; stored <= PKV_DTYPE_I8; ++stored) {
        const quantised_config config = {.stored = stored,
                                         .scales = PKV_SCALES_TOKEN_HEAD,
                                         .heads = 1,
                                         .dim = {256, 256},
                                         .page_tokens = 4,
                                         .layers = 1,
                                         .pages = 4};
        twins t = make_twins(&config);
        for (uint64_t slot = 0; slot < 16; ++slot)
            for (int side = 0; side < 2; ++side)
                for (int pool = 0; pool < 2; ++pool) {
                    const quantised *q = pool == 0 ? &t.host : &t.device;
                    for (uint32_t i = 0; i < 256; ++i) stored_at(q, side, 0, slot, 0)[i] = (unsigned char)i;
                    float *const row_scales = side == 0 ? q->at[0].k_scales : q->at[0].v_scales;
                    memcpy((char *)row_scales + slot / 4 * q->at[0].scale_page_stride + slot % 4 * sizeof(float),
                           &scales[(slot + (uint64_t)side * 7) % 16], sizeof(float));
                }
        for (int to = 0; to < 3; ++to)
            for (int shape = 0; shape < 4; ++shape)
                gather_both(&t, 0, 0, 16, flat_types[to], shape, emulated_grids[shape]);
        gather_both(&t, 0, 1, 14, stored, 0, emulated_grids[0]); /* as they are */
        end_twins(&t);
    }
}

/* ---- every geometry ---- */

static void converted_rows_are_the_hosts_in_every_geometry(void **state) {
    (void)state;
    static const uint32_t dims[] = {1, 7, 46, 64, 100, 128}, heads[] = {1, 2, 3};
    const uint64_t seed = 23;
    print_message("seed %llu\n", (unsigned long long)seed);
    test_random random = {seed};
    for (size_t d = 0; d < 6; ++d)
        for (size_t h = 0; h < 3; ++h)
            for (int layout = PKV_LAYOUT_NHD; layout <= PKV_LAYOUT_HND; ++layout)
                for (int place = 0; place < 3; ++place)
                    for (int32_t stored = PKV_DTYPE_F32; stored <= PKV_DTYPE_I8; ++stored)
                        for (int32_t scales = PKV_SCALES_NONE; scales <= PKV_SCALES_TOKEN_HEAD; ++scales) {
                            if (stored < PKV_DTYPE_F8_E4M3 && scales != PKV_SCALES_NONE) continue;
                            if (!long_tests() && random_below(&random, 3) != 0) continue;
                            const bool fixed = scales == PKV_SCALES_TENSOR || scales == PKV_SCALES_HEAD,
                                       mla = random_below(&random, 4) == 0;
                            const quantised_config config = {
                                .stored = stored,
                                .scales = scales,
                                .layout = layout,
                                .arrangement = place == 1 ? PKV_LAYER_MAJOR : PKV_PAGE_MAJOR,
                                .memory = place == 2 ? PKV_MEMORY_CALLER : PKV_MEMORY_POOL,
                                .heads = heads[h],
                                .dim = {dims[d], mla ? 0 : dims[random_below(&random, 6)]},
                                .page_tokens = 1 + (uint32_t)random_below(&random, 9),
                                .layers = 2,
                                .pages = 4,
                                .fixed = {fixed ? fixed_scales : NULL, fixed && !mla ? fixed_scales + 4 : NULL}};
                            twins t = make_twins(&config);
                            const uint64_t num_slots = config.pages * config.page_tokens;
                            int64_t slots[most_tokens];
                            for (uint64_t i = 0; i < num_slots; ++i)
                                slots[i] = random_below(&random, 9) == 0 ? -1 : (int64_t)(num_slots - 1 - i);
                            int32_t dtype = flat_types[random_below(&random, 3)];
                            if (dtype == stored) dtype = dtype == PKV_DTYPE_F32 ? PKV_DTYPE_F16 : PKV_DTYPE_F32;
                            const int shape = (int)random_below(&random, 4);
                            flat_rows k = make_rows(config.heads, config.dim[0], dtype, num_slots, shape),
                                      v = make_rows(config.heads, config.dim[1], dtype, num_slots, shape);
                            for (int side = 0; side < 2; ++side) {
                                flat_rows *rows = side == 0 ? &k : &v;
                                for (uint64_t token = 0; token < num_slots; ++token)
                                    for (uint32_t head = 0; head < config.heads; ++head)
                                        for (uint32_t i = 0; i < config.dim[side]; ++i)
                                            put_element(row_at(rows, token, head) + i * pkv_dtype_bytes(dtype), dtype,
                                                        quick_encode(dtype, reference_float(any_float(&random))));
                            }
                            write_both(&t, num_slots, slots, &k, &v, any_grid(&random));
                            check_both(&t);
                            const uint64_t first = random_below(&random, num_slots),
                                           count = random_below(&random, num_slots - first + 1);
                            for (int to = 0; to < 3; ++to)
                                if (flat_types[to] != stored)
                                    gather_both(&t, 1, first, count, flat_types[to], (int)random_below(&random, 4),
                                                any_grid(&random));
                            end_rows(&k);
                            end_rows(&v);
                            end_twins(&t);
                        }
    assert_int_equal(emulated_misaligned(), 0);
}

static void padding_of_converted_rows_is_zero(void **state) {
    (void)state;
    const quantised_config config = {
        .stored = PKV_DTYPE_F8_E4M3, .heads = 2, .dim = {16, 16}, .page_tokens = 4, .layers = 1, .pages = 4};
    twins t = make_twins(&config); /* poisoned: NaN */
    for (int to = 0; to < 3; ++to)
        for (int shape = 0; shape < 4; ++shape) {
            flat_rows k = make_rows(2, 16, flat_types[to], 12, shape);
            const pkv_device_flat at = flat_of(&k);
            const int32_t pages[3] = {1, -1, 2};
            const uint64_t first = 1, count = 8, out = 1;
            const pkv_device_gather gather = {.struct_size = sizeof gather,
                                              .num_layers = 1,
                                              .flat_dtype = flat_types[to],
                                              .layers = t.layers,
                                              .k = &at,
                                              .pages = pages,
                                              .num_pages = 3,
                                              .first = &first,
                                              .counts = &count,
                                              .out_first = &out,
                                              .num_sequences = 1,
                                              .max_count = 8,
                                              .padded = 10};
            assert_emulated(emulated_gather(&gather, emulated_grids[shape * 2]), PKV_OK);
            for (uint64_t row = 0; row < 12; ++row)
                for (uint32_t head = 0; head < 2; ++head)
                    for (uint32_t i = 0; i < 16; ++i) {
                        const uint32_t element =
                            get_element(row_at(&k, row, head) + i * pkv_dtype_bytes(flat_types[to]), flat_types[to]);
                        if (row == 0 || row == 11) {
                            assert_int_equal(element & 0xFF, 0x3C); /* not the call's */
                        } else if (row >= 9 || (row - 1 + first >= 4 && row - 1 + first < 8)) {
                            assert_int_equal(element, 0);
                        } else {
                            assert_true(isnan(quick_decode(flat_types[to], element)));
                        }
                    }
            end_rows(&k);
        }
    assert_int_equal(emulated_misaligned(), 0);
    end_twins(&t);
}

int main(int argc, char **argv) {
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_16_bit_element_becomes_what_the_host_makes_of_it),
        cmocka_unit_test(floats_of_all_kinds_become_what_the_host_makes_of_them),
        cmocka_unit_test(case_I10_every_code_at_every_scale_is_gathered_as_the_host_does),
        cmocka_unit_test(converted_rows_are_the_hosts_in_every_geometry),
        cmocka_unit_test(padding_of_converted_rows_is_zero),
    };
    return run_with_every_kernels(argv[0], tests, sizeof tests / sizeof *tests);
}
