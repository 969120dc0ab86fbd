/* SPDX-License-Identifier: Apache-2.0 */
/* Pages whose elements have another type than the caller's, beside the conversions of reference_convert.h, one element at
 * a time. Page bytes and scales are read where pkv_pool_layout says that they lie. */
#ifndef PKV_TESTS_CONVERT_H
#define PKV_TESTS_CONVERT_H

#include "support/reference_convert.h"
#include "support/support.h"

enum { most_layers = 4, most_pages = 256 };

typedef struct {
    int32_t stored, scales, layout, memory, arrangement;
    uint32_t heads, dim[2], page_tokens, layers, copy_threads; /* dim[1] 0: no V */
    uint64_t pages;
    const float *fixed[2]; /* PKV_SCALES_TENSOR and HEAD: of K and V */
} quantised_config;

typedef struct {
    quantised_config c;
    pkv_pool *pool;
    pkv_layer_layout at[most_layers];
    unsigned char *own; /* PKV_MEMORY_CALLER */
    uint64_t own_size;
} quantised;

/* The caller's rows of one side. `shape` as in paged.h: dense, with gaps, heads first, unaligned. */
typedef struct {
    pkv_tensor tensor;
    unsigned char *memory;
    uint64_t size, token_stride, head_stride;
    uint32_t heads, dim;
} flat_rows;

/* ---- the reference, with its values looked up: millions of elements are compared ---- */

static inline uint32_t codes_of(int32_t dtype) { return pkv_dtype_bytes(dtype) == 2 ? 65536 : 256; }

static inline float quick_decode(int32_t dtype, uint32_t code) {
    static float *tables[PKV_DTYPE_OPAQUE];
    if (dtype == PKV_DTYPE_F32) return reference_float(code);
    if (tables[dtype] == NULL) {
        tables[dtype] = calloc(codes_of(dtype), sizeof(float));
        for (uint32_t i = 0; i < codes_of(dtype); ++i) tables[dtype][i] = reference_decode(dtype, i);
    }
    return tables[dtype][code];
}

/* As reference_encode: the nearest of all magnitudes, of two as near the even code. */
static inline uint32_t quick_encode(int32_t dtype, float value) {
    static double *tables[PKV_DTYPE_OPAQUE];
    if (dtype == PKV_DTYPE_F32 || dtype == PKV_DTYPE_I8 || value != value) return reference_encode(dtype, value);
    const reference_format format = reference_format_of(dtype);
    if (tables[dtype] == NULL) {
        tables[dtype] = calloc(format.largest + 2, sizeof(double));
        for (uint32_t i = 0; i < format.largest + 2; ++i) tables[dtype][i] = reference_magnitude(format, i);
    }
    const double *const table = tables[dtype], magnitude = reference_negative(value) ? -(double)value : (double)value;
    uint32_t below = 0, above = format.largest + 1;
    while (above - below > 1) {
        const uint32_t middle = below + (above - below) / 2;
        *(table[middle] <= magnitude ? &below : &above) = middle;
    }
    const double down = magnitude - table[below], up = table[below + 1] - magnitude;
    uint32_t code = up < down || (up == down && below % 2 != 0) ? below + 1 : below;
    if (code > format.largest) code = format.infinity != 0 ? format.infinity : format.largest;
    return (reference_negative(value) ? 1u << (format.bits - 1) : 0) | code;
}

/* Equal, or NaN both with the same sign. */
static inline bool quick_same(int32_t dtype, uint32_t a, uint32_t b) {
    if (a == b) return true;
    const float x = quick_decode(dtype, a), y = quick_decode(dtype, b);
    return x != x && y != y && reference_negative(x) == reference_negative(y);
}

/* ---- elements and rows ---- */

static inline uint32_t get_element(const unsigned char *at, int32_t dtype) {
    uint32_t element = 0;
    memcpy(&element, at, pkv_dtype_bytes(dtype));
    return element;
}
static inline void put_element(unsigned char *at, int32_t dtype, uint32_t element) {
    memcpy(at, &element, pkv_dtype_bytes(dtype));
}

static inline pkv_group_options quantised_group(const quantised_config *c) {
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = c->pages;
    group.num_layers = c->layers;
    group.num_kv_heads = c->heads;
    group.k_head_dim = c->dim[0];
    group.v_head_dim = c->dim[1];
    group.dtype = c->stored;
    group.layout = c->layout;
    group.arrangement = c->arrangement;
    group.memory = c->memory;
    group.scales = c->scales;
    group.k_scales = c->fixed[0];
    group.v_scales = c->dim[1] != 0 ? c->fixed[1] : NULL;
    return group;
}

/* A pool whose pages are all held by the test, 0, 1, 2 ... The caller's memory has odd strides and addresses. */
static inline quantised make_quantised(const quantised_config *config) {
    quantised q = {.c = *config};
    const quantised_config *c = &q.c;
    pkv_group_options group = quantised_group(c);
    void *bases[2][most_layers];
    if (c->memory == PKV_MEMORY_CALLER) {
        pkv_strides strides[2];
        uint64_t size = 3;
        for (int side = 0; side < 2; ++side) {
            const uint64_t row = c->dim[side] * pkv_dtype_bytes(c->stored),
                           inner = c->layout == PKV_LAYOUT_NHD ? c->heads : c->page_tokens;
            const uint64_t step = row + 1, over = inner * step + 5;
            strides[side] =
                (pkv_strides){(c->layout == PKV_LAYOUT_NHD ? c->page_tokens : c->heads) * over + 7,
                              c->layout == PKV_LAYOUT_NHD ? over : step, c->layout == PKV_LAYOUT_NHD ? step : over};
            for (uint32_t layer = 0; layer < c->layers; ++layer, size += c->pages * strides[side].page)
                bases[side][layer] = (void *)(uintptr_t)size;
        }
        q.own = malloc(size);
        memset(q.own, 0x5A, size);
        q.own_size = size;
        for (int side = 0; side < 2; ++side)
            for (uint32_t layer = 0; layer < c->layers; ++layer)
                bases[side][layer] = q.own + (uintptr_t)bases[side][layer];
        group.k_base = bases[0];
        group.k_strides = strides[0];
        if (c->dim[1] != 0) group.v_base = bases[1];
        if (c->dim[1] != 0) group.v_strides = strides[1];
    }
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = c->page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.huge_pages = PKV_HUGE_PAGES_NEVER;
    options.copy_threads = c->copy_threads;
    options.debug = PKV_DEBUG_POISON;
    assert_ok(pkv_pool_create(&options, &q.pool));
    for (uint32_t layer = 0; layer < c->layers; ++layer) {
        q.at[layer] = (pkv_layer_layout)PKV_LAYER_LAYOUT_INIT;
        assert_ok(pkv_pool_layout(q.pool, 0, layer, &q.at[layer]));
    }
    pkv_page pages[most_pages];
    assert_ok(pkv_pool_alloc(q.pool, 0, c->pages, pages));
    return q;
}

static inline void end_quantised(quantised *q); /* checks the bytes between rows, too */

static inline unsigned char *stored_at(const quantised *q, int side, uint32_t layer, uint64_t slot, uint64_t head) {
    const pkv_layer_layout *at = &q->at[layer];
    const pkv_strides *s = side == 0 ? &at->k : &at->v;
    return (unsigned char *)(side == 0 ? at->k_base : at->v_base) + slot / q->c.page_tokens * s->page +
           slot % q->c.page_tokens * s->token + head * s->head;
}

static inline void check_gaps(const quantised *q) {
    if (q->own == NULL) return;
    unsigned char *is_row = calloc(q->own_size, 1);
    for (int side = 0; side < (q->c.dim[1] != 0 ? 2 : 1); ++side)
        for (uint32_t layer = 0; layer < q->c.layers; ++layer)
            for (uint64_t slot = 0; slot < q->c.pages * q->c.page_tokens; ++slot)
                for (uint32_t head = 0; head < q->c.heads; ++head)
                    memset(is_row + (stored_at(q, side, layer, slot, head) - q->own), 1,
                           q->c.dim[side] * pkv_dtype_bytes(q->c.stored));
    for (uint64_t i = 0; i < q->own_size; ++i)
        if (is_row[i] == 0) assert_int_equal(q->own[i], 0x5A);
    free(is_row);
}

static inline void end_quantised(quantised *q) {
    check_gaps(q);
    pkv_page pages[most_pages];
    for (uint64_t i = 0; i < q->c.pages; ++i) pages[i] = (pkv_page)i;
    release_pages(q->pool, pages, q->c.pages);
    end_pool(q->pool);
    free(q->own);
}

/* The scale of a row; 1 without scales. */
static inline float scale_at(const quantised *q, int side, uint32_t layer, uint64_t slot, uint64_t head) {
    const pkv_layer_layout *at = &q->at[layer];
    const float *scales = side == 0 ? at->k_scales : at->v_scales;
    const uint64_t page_tokens = q->c.page_tokens;
    switch (q->c.scales) {
    case PKV_SCALES_NONE: return 1;
    case PKV_SCALES_TENSOR: return scales[0];
    case PKV_SCALES_HEAD: return scales[head];
    default:
        return *(const float *)((const char *)scales + slot / page_tokens * at->scale_page_stride +
                                ((slot % page_tokens) * q->c.heads + head) * sizeof(float));
    }
}

static inline flat_rows make_rows(uint32_t heads, uint32_t dim, int32_t dtype, uint64_t tokens, int shape) {
    const uint64_t row = dim * pkv_dtype_bytes(dtype);
    flat_rows rows = {
        .tensor = PKV_TENSOR_INIT, .token_stride = heads * row, .head_stride = row, .heads = heads, .dim = dim};
    if (shape == 1) {
        rows.head_stride = row + 2;
        rows.token_stride = heads * rows.head_stride + 3;
    } else if (shape == 2) {
        rows.token_stride = row + 4;
        rows.head_stride = tokens * rows.token_stride + 16;
    }
    rows.size = tokens * rows.token_stride + heads * rows.head_stride + 8;
    rows.memory = malloc(rows.size);
    memset(rows.memory, 0x3C, rows.size);
    rows.tensor.data = rows.memory + (shape == 3 ? 1 : 0);
    rows.tensor.dtype = dtype;
    rows.tensor.num_tokens = tokens;
    if (shape == 1 || shape == 2) rows.tensor.token_stride = rows.token_stride;
    if (shape == 1 || shape == 2) rows.tensor.head_stride = rows.head_stride;
    return rows;
}

static inline void end_rows(flat_rows *rows) { free(rows->memory); }

static inline unsigned char *row_at(const flat_rows *rows, uint64_t token, uint64_t head) {
    return (unsigned char *)rows->tensor.data + token * rows->token_stride + head * rows->head_stride;
}

/* The scale that PKV_SCALES_TOKEN_HEAD documents for a row of the caller's. */
static inline float expected_scale(int32_t stored, int32_t dtype, const unsigned char *row, uint32_t dim) {
    float most = 0;
    for (uint32_t d = 0; d < dim; ++d) {
        float value = quick_decode(dtype, get_element(row + d * pkv_dtype_bytes(dtype), dtype));
        if (value < 0) value = -value;
        if (value <= FLT_MAX && value > most) most = value; /* not NaN, not infinite */
    }
    return reference_scale(stored, most);
}

/* One row in the pages is what row (token, head) of the caller's becomes. */
static inline void check_stored_row(const quantised *q, int side, uint32_t layer, uint64_t slot, const flat_rows *rows,
                                    uint64_t token, uint64_t head) {
    const int32_t stored = q->c.stored, dtype = rows->tensor.dtype;
    const uint64_t flat_size = pkv_dtype_bytes(dtype), stored_size = pkv_dtype_bytes(stored);
    const unsigned char *row = row_at(rows, token, head), *at = stored_at(q, side, layer, slot, head);
    const float scale = scale_at(q, side, layer, slot, head);
    if (q->c.scales == PKV_SCALES_TOKEN_HEAD) {
        const float expected = expected_scale(stored, dtype, row, rows->dim);
        if (reference_bits(scale) != reference_bits(expected))
            fail_msg("the scale of slot %llu, head %llu is %a, not %a", (unsigned long long)slot,
                     (unsigned long long)head, (double)scale, (double)expected);
    }
    for (uint32_t d = 0; d < rows->dim; ++d) {
        const uint32_t from = get_element(row + d * flat_size, dtype), got = get_element(at + d * stored_size, stored);
        const float value = quick_decode(dtype, from);
        const uint32_t expected = quick_encode(stored, scale == 1 ? value : value / scale);
        if (!quick_same(stored, got, expected))
            fail_msg("%08x of dtype %d at scale %a became %08x of dtype %d, not %08x (element %u of %u)", from, dtype,
                     (double)scale, got, stored, expected, d, rows->dim);
    }
}

/* Rows [begin, begin + count) of the caller's are what the rows of these slots are in its type. */
static inline void check_gathered(const quantised *q, int side, uint32_t layer, const uint64_t *slots,
                                  const flat_rows *rows, uint64_t begin, uint64_t count) {
    const int32_t stored = q->c.stored, dtype = rows->tensor.dtype;
    for (uint64_t i = 0; i < count; ++i)
        for (uint32_t head = 0; head < q->c.heads; ++head) {
            const unsigned char *row = row_at(rows, begin + i, head), *at = stored_at(q, side, layer, slots[i], head);
            const float scale = scale_at(q, side, layer, slots[i], head);
            for (uint32_t d = 0; d < rows->dim; ++d) {
                const uint32_t code = get_element(at + d * pkv_dtype_bytes(stored), stored);
                const uint32_t got = get_element(row + d * pkv_dtype_bytes(dtype), dtype);
                const float value = quick_decode(stored, code);
                const uint32_t expected =
                    dtype == stored ? code : quick_encode(dtype, scale == 1 ? value : value * scale);
                if (got != expected && (dtype == stored || !quick_same(dtype, got, expected)))
                    fail_msg("%08x of dtype %d at scale %a was gathered as %08x of dtype %d, not %08x", code, stored,
                             (double)scale, got, dtype, expected);
            }
        }
}

#endif
