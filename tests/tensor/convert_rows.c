/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that are converted on their way, in many geometries: strides, odd lengths, skipped slots, helper threads. With
 * every set of kernels. Field cases H01, H08 and H10 for conversions. */
#include "tensor/convert.h"

#include <math.h>

static const float scales_of_heads[2 * 8] = {7.5f, 0.5f, 1e-3f, 1.0f, 3e4f, 0.25f, 2.0f, 9.0f,
                                             1.5f, 7.5f, 1e-2f, 3.0f, 0.1f, 1e4f,  1.0f, 5.0f};

/* Random numbers of many sizes, with some that are no numbers. */
static void fill_rows(flat_rows *rows, uint64_t tokens, test_random *random) {
    for (uint64_t t = 0; t < tokens; ++t)
        for (uint32_t head = 0; head < rows->heads; ++head) {
            const int size = (int)random_below(random, 24) - 12;
            for (uint32_t d = 0; d < rows->dim; ++d) {
                float value = (float)((double)((int64_t)random_below(random, 2000001) - 1000000) * 1e-6 * pow(2, size));
                const uint64_t special = random_below(random, 200);
                if (special == 0) value = INFINITY;
                if (special == 1) value = -NAN;
                if (special == 2) value = -0.0f;
                put_element(row_at(rows, t, head) + d * pkv_dtype_bytes(rows->tensor.dtype), rows->tensor.dtype,
                            quick_encode(rows->tensor.dtype, value));
            }
        }
}

/* All rows of the pages and their scales, one after another. */
static uint64_t snapshot(const quantised *q, unsigned char **out) {
    const uint64_t slots = q->c.pages * q->c.page_tokens, size = pkv_dtype_bytes(q->c.stored);
    const uint64_t row[2] = {q->c.dim[0] * size, q->c.dim[1] * size};
    const uint64_t bytes = (row[0] + row[1] + 2 * sizeof(float)) * q->c.heads * slots * q->c.layers;
    unsigned char *at = *out = calloc(bytes, 1);
    for (uint32_t layer = 0; layer < q->c.layers; ++layer)
        for (uint64_t slot = 0; slot < slots; ++slot)
            for (uint32_t head = 0; head < q->c.heads; ++head)
                for (int side = 0; side < 2; ++side, at += sizeof(float)) {
                    if (row[side] == 0) continue;
                    memcpy(at, stored_at(q, side, layer, slot, head), row[side]);
                    at += row[side];
                    const float scale = scale_at(q, side, layer, slot, head);
                    memcpy(at, &scale, sizeof scale);
                }
    return bytes;
}

/* Where a slot's rows of a layer begin in a snapshot, and how long they are. */
static uint64_t in_snapshot(const quantised *q, uint64_t *size) {
    *size = ((q->c.dim[0] + q->c.dim[1]) * pkv_dtype_bytes(q->c.stored) + 2 * sizeof(float)) * q->c.heads;
    return q->c.pages * q->c.page_tokens * *size;
}

/* Every row of every layer, so that none holds poison. */
static void write_all(quantised *q, test_random *random) {
    const uint64_t num_slots = q->c.pages * q->c.page_tokens;
    const int32_t dtype = q->c.stored == PKV_DTYPE_F32 ? PKV_DTYPE_BF16 : PKV_DTYPE_F32;
    pkv_slot *slots = calloc(num_slots, sizeof *slots);
    for (uint64_t i = 0; i < num_slots; ++i) slots[i] = (pkv_slot)i;
    for (uint32_t layer = 0; layer < q->c.layers; ++layer) {
        flat_rows k = make_rows(q->c.heads, q->c.dim[0], dtype, num_slots, 0),
                  v = make_rows(q->c.heads, q->c.dim[1], dtype, num_slots, 0);
        fill_rows(&k, num_slots, random);
        fill_rows(&v, num_slots, random);
        assert_ok(
            pkv_pool_write(q->pool, 0, layer, num_slots, slots, &k.tensor, q->c.dim[1] != 0 ? &v.tensor : NULL, NULL));
        end_rows(&k);
        end_rows(&v);
    }
    free(slots);
}

static void write_some(quantised *q, int32_t dtype, test_random *random) {
    const quantised_config *c = &q->c;
    const uint64_t num_slots = c->pages * c->page_tokens, count = random_below(random, 2 * c->page_tokens + 2);
    const uint32_t layer = (uint32_t)random_below(random, c->layers);
    const uint64_t start = random_below(random, num_slots), way = random_below(random, 3);
    flat_rows rows[2];
    for (int side = 0; side < 2; ++side) {
        rows[side] = make_rows(c->heads, c->dim[side], dtype, count, (int)random_below(random, 4));
        fill_rows(&rows[side], count, random);
    }
    pkv_slot *slots = calloc(count + 1, sizeof *slots);
    int64_t *writer = calloc(num_slots, sizeof *writer); /* 1 + the row that a slot has in the end */
    for (uint64_t i = 0; i < count; ++i) {
        slots[i] = (pkv_slot)(way == 0 ? random_below(random, num_slots) : (start + i) % num_slots);
        if (way != 1 && random_below(random, 4) == 0) slots[i] = random_below(random, 2) == 0 ? PKV_NO_SLOT : -1000;
        if (slots[i] >= 0) writer[slots[i]] = (int64_t)i + 1;
    }
    unsigned char *before, *after;
    const uint64_t bytes = snapshot(q, &before);
    assert_ok(pkv_pool_write(q->pool, 0, layer, count, slots, &rows[0].tensor, c->dim[1] != 0 ? &rows[1].tensor : NULL,
                             NULL));
    uint64_t slot_size;
    const uint64_t layer_size = in_snapshot(q, &slot_size);
    for (uint64_t slot = 0; slot < num_slots; ++slot) {
        if (writer[slot] == 0) continue;
        for (int side = 0; side < (c->dim[1] != 0 ? 2 : 1); ++side)
            for (uint32_t head = 0; head < c->heads; ++head)
                check_stored_row(q, side, layer, slot, &rows[side], (uint64_t)writer[slot] - 1, head);
    }
    snapshot(q, &after); /* what no slot named is as it was */
    for (uint64_t slot = 0; slot < num_slots; ++slot)
        if (writer[slot] != 0)
            memcpy(before + layer * layer_size + slot * slot_size, after + layer * layer_size + slot * slot_size,
                   slot_size);
    assert_memory_equal(before, after, bytes);
    free(before);
    free(after);
    free(slots);
    free(writer);
    for (int side = 0; side < 2; ++side) end_rows(&rows[side]);
}

/* Bytes around `count` rows are untouched. */
static void check_guards(const flat_rows *rows, uint64_t count) {
    unsigned char *is_row = calloc(rows->size, 1);
    for (uint64_t t = 0; t < count; ++t)
        for (uint32_t head = 0; head < rows->heads; ++head)
            memset(is_row + (row_at(rows, t, head) - rows->memory), 1, rows->dim * pkv_dtype_bytes(rows->tensor.dtype));
    for (uint64_t i = 0; i < rows->size; ++i)
        if (is_row[i] == 0) assert_int_equal(rows->memory[i], 0x3C);
    free(is_row);
}

static void gather_some(quantised *q, int32_t dtype, test_random *random) {
    const quantised_config *c = &q->c;
    pkv_page pages[4];
    for (int i = 0; i < 4; ++i) pages[i] = (pkv_page)random_below(random, c->pages);
    if (random_below(random, 2) == 0) pages[1] = (pages[0] + 1) % (pkv_page)c->pages;
    const uint64_t first = random_below(random, 4 * c->page_tokens),
                   count = random_below(random, 4 * c->page_tokens - first + 1);
    const uint32_t layer = (uint32_t)random_below(random, c->layers);
    uint64_t *slots = calloc(count + 1, sizeof *slots);
    for (uint64_t i = 0; i < count; ++i)
        slots[i] = (uint64_t)pages[(first + i) / c->page_tokens] * c->page_tokens + (first + i) % c->page_tokens;
    const uint64_t wanted = random_below(random, 3);
    const bool with[2] = {wanted != 1 || c->dim[1] == 0, wanted != 2 && c->dim[1] != 0};
    flat_rows rows[2];
    for (int side = 0; side < 2; ++side)
        rows[side] = make_rows(c->heads, c->dim[side], dtype, count, (int)random_below(random, 4));
    assert_ok(pkv_pool_gather(q->pool, 0, layer, 4, pages, first, count, with[0] ? &rows[0].tensor : NULL,
                              with[1] ? &rows[1].tensor : NULL, NULL));
    for (int side = 0; side < 2; ++side) {
        if (with[side]) check_gathered(q, side, layer, slots, &rows[side], 0, count);
        check_guards(&rows[side], with[side] ? count : 0);
        end_rows(&rows[side]);
    }
    free(slots);
}

static void exercise(const quantised_config *config, uint64_t seed, int rounds) {
    test_random random = {seed};
    quantised q = make_quantised(config);
    write_all(&q, &random);
    for (int round = 0; round < rounds; ++round)
        for (int32_t dtype = PKV_DTYPE_F32; dtype <= PKV_DTYPE_BF16; ++dtype) {
            if (dtype != config->stored) write_some(&q, dtype, &random);
            gather_some(&q, dtype, &random);
        }
    end_quantised(&q);
}

static void rows_are_converted_in_every_geometry(void **state) {
    (void)state;
    static const uint32_t dims[] = {1, 7, 16, 46, 64, 100, 129}, tokens[] = {1, 3, 4, 8};
    const uint64_t seed = long_tests() ? 31 : 30;
    print_message("seed %llu\n", (unsigned long long)seed);
    test_random random = {seed};
    for (int32_t stored = PKV_DTYPE_F32; stored <= PKV_DTYPE_I8; ++stored)
        for (int32_t scales = PKV_SCALES_NONE; scales <= (stored >= PKV_DTYPE_F8_E4M3 ? PKV_SCALES_TOKEN_HEAD : 0);
             ++scales)
            for (int place = 0; place < 6; ++place)
                for (int round = 0; round < (long_tests() ? 20 : 1); ++round) {
                    quantised_config config = {
                        .stored = stored, .scales = scales, .layers = 2, .pages = 5, .layout = place % 2};
                    config.memory = place / 2 == 2 ? PKV_MEMORY_CALLER : PKV_MEMORY_POOL;
                    config.arrangement = place / 2 == 1 ? PKV_LAYER_MAJOR : PKV_PAGE_MAJOR;
                    config.heads = 1 + (uint32_t)random_below(&random, 4);
                    config.page_tokens = tokens[random_below(&random, 4)];
                    config.dim[0] = dims[random_below(&random, 7)];
                    config.dim[1] = random_below(&random, 5) == 0 ? 0 : dims[random_below(&random, 7)];
                    if (scales == PKV_SCALES_TENSOR || scales == PKV_SCALES_HEAD) {
                        config.fixed[0] = scales_of_heads;
                        config.fixed[1] = scales_of_heads + 8;
                    }
                    exercise(&config, next_random(&random), 2);
                }
}

static void a_latent_cache_is_converted_too(void **state) {
    (void)state;
    for (int32_t scales = PKV_SCALES_NONE; scales <= PKV_SCALES_TOKEN_HEAD; ++scales) {
        const quantised_config config = {.stored = PKV_DTYPE_F8_E4M3,
                                         .scales = scales,
                                         .heads = 1,
                                         .dim = {576, 0},
                                         .page_tokens = 16,
                                         .layers = 2,
                                         .pages = 4,
                                         .fixed = {scales % 3 != 0 ? scales_of_heads : NULL, NULL}};
        exercise(&config, 40 + (uint64_t)scales, 2);
    }
}

/* PKV_DEBUG_POISON fills pages and their scales with 0xFF. What an integration reads too early has to show: in fp8 as NaN,
 * and with a scale for each row always. */
static void rows_that_nobody_wrote_are_no_numbers_in_a_poisoned_pool(void **state) {
    (void)state;
    for (int32_t stored = PKV_DTYPE_F8_E4M3; stored <= PKV_DTYPE_I8; ++stored)
        for (int32_t scales = stored == PKV_DTYPE_I8 ? PKV_SCALES_TOKEN_HEAD : PKV_SCALES_NONE;
             scales <= PKV_SCALES_TOKEN_HEAD; scales += 3)
            for (int32_t dtype = PKV_DTYPE_F32; dtype <= PKV_DTYPE_BF16; ++dtype) {
                const quantised_config config = {.stored = stored,
                                                 .scales = scales,
                                                 .heads = 1,
                                                 .dim = {33, 0},
                                                 .page_tokens = 1,
                                                 .layers = 1,
                                                 .pages = 1};
                quantised q = make_quantised(&config);
                flat_rows rows = make_rows(1, 33, dtype, 1, 0);
                const pkv_page page = 0;
                assert_ok(pkv_pool_gather(q.pool, 0, 0, 1, &page, 0, 1, &rows.tensor, NULL, NULL));
                for (uint64_t d = 0; d < 33; ++d) {
                    const float value =
                        quick_decode(dtype, get_element(row_at(&rows, 0, 0) + d * pkv_dtype_bytes(dtype), dtype));
                    if (value == value)
                        fail_msg("dtype %d, scales %d, as dtype %d: %g", stored, scales, dtype, (double)value);
                }
                end_rows(&rows);
                end_quantised(&q);
            }
}

/* Past the sizes from which work is shared and from which stores bypass the caches. */
static void large_conversions_are_right_with_and_without_helper_threads(void **state) {
    (void)state;
    static const struct {
        int32_t stored, scales, layout;
        int shape;
    } ways[] = {{PKV_DTYPE_F8_E4M3, PKV_SCALES_TENSOR, PKV_LAYOUT_NHD, 0},
                {PKV_DTYPE_I8, PKV_SCALES_TOKEN_HEAD, PKV_LAYOUT_HND, 3},
                {PKV_DTYPE_BF16, PKV_SCALES_NONE, PKV_LAYOUT_NHD, 2},
                {PKV_DTYPE_F32, PKV_SCALES_NONE, PKV_LAYOUT_HND, 1}};
    static uint16_t codes[65536 + 128]; /* all values of f16, in no order */
    for (uint32_t i = 0; i < 65536 + 128; ++i) codes[i] = (uint16_t)(i * 40503);
    test_random random = {50};
    for (int way = 0; way < 4; ++way)
        for (uint32_t threads = way == 2 ? 3 : 0; threads <= (way == 3 ? 0 : 3); threads += 3) {
            const quantised_config config = {
                .stored = ways[way].stored,
                .scales = ways[way].scales,
                .layout = ways[way].layout,
                .heads = 8,
                .dim = {128, 120},
                .page_tokens = 64,
                .layers = 1,
                .pages = 66,
                .copy_threads = threads,
                .fixed = {ways[way].scales == PKV_SCALES_TENSOR ? scales_of_heads : NULL,
                          ways[way].scales == PKV_SCALES_TENSOR ? scales_of_heads + 1 : NULL}};
            const uint64_t count = config.stored == PKV_DTYPE_F32 ? 1500 : 4200;
            quantised q = make_quantised(&config);
            flat_rows rows[2];
            for (int side = 0; side < 2; ++side) {
                rows[side] = make_rows(8, config.dim[side], PKV_DTYPE_F16, count, ways[way].shape);
                for (uint64_t t = 0; t < count; ++t)
                    for (uint32_t head = 0; head < 8; ++head)
                        memcpy(row_at(&rows[side], t, head), codes + (t * 40503 + head * 977 + (uint64_t)side) % 65536,
                               2 * config.dim[side]);
            }
            pkv_slot *slots = calloc(count, sizeof *slots);
            uint64_t *order = calloc(count, sizeof *order);
            pkv_page pages[66];
            for (uint64_t i = 0; i < count; ++i) slots[i] = (pkv_slot)i + 5;
            slots[17] = slots[count / 2] = PKV_NO_SLOT;
            assert_ok(pkv_pool_write(q.pool, 0, 0, count, slots, &rows[0].tensor, &rows[1].tensor, NULL));
            const uint64_t step = 1 + random_below(&random, 4);
            for (uint64_t i = 0; i < count; i += slots[i] < 0 ? 1 : 9 * step)
                for (int side = 0; side < 2 && slots[i] >= 0; ++side)
                    for (uint32_t head = 0; head < 8; head += 3)
                        check_stored_row(&q, side, 0, (uint64_t)slots[i], &rows[side], i, head);
            for (int side = 0; side < 2; ++side) end_rows(&rows[side]);
            for (pkv_page i = 0; i < 66; ++i) pages[i] = way % 2 == 0 ? i : i * 5 % 66;
            for (uint64_t i = 0; i < count; ++i) order[i] = (uint64_t)pages[i / 64] * 64 + i % 64;
            for (int side = 0; side < 2; ++side)
                rows[side] = make_rows(8, config.dim[side], PKV_DTYPE_BF16, count, ways[way].shape);
            if (config.stored == PKV_DTYPE_BF16) rows[0].tensor.dtype = rows[1].tensor.dtype = PKV_DTYPE_F16;
            assert_ok(pkv_pool_gather(q.pool, 0, 0, 66, pages, 0, count, &rows[0].tensor, &rows[1].tensor, NULL));
            for (uint64_t i = 0; i < count; i += 20 * step) {
                const uint64_t row = order[i] - 5; /* what was written there */
                if (order[i] < 5 || row >= count || slots[row] < 0) continue;
                for (int side = 0; side < 2; ++side) check_gathered(&q, side, 0, order + i, &rows[side], i, 1);
            }
            for (int side = 0; side < 2; ++side) end_rows(&rows[side]);
            free(slots);
            free(order);
            end_quantised(&q);
        }
}

int main(int argc, char **argv) {
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_converted_in_every_geometry),
        cmocka_unit_test(a_latent_cache_is_converted_too),
        cmocka_unit_test(rows_that_nobody_wrote_are_no_numbers_in_a_poisoned_pool),
        cmocka_unit_test(large_conversions_are_right_with_and_without_helper_threads),
    };
    return run_with_every_kernels(argv[0], tests, sizeof tests / sizeof *tests);
}
