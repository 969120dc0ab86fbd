/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of page images share: pools of any geometry over a tier, whose rows, scales and aux bytes are known. A row's
 * bytes depend on what it is (image, layer, K or V, token, head), not on where it lies. */
#ifndef PKV_TESTS_IMAGE_H
#define PKV_TESTS_IMAGE_H

#include "support/support.h"

#include <unistd.h>

enum { shaped_pages = 5, shaped_max_layers = 6, untouched = 0xA5 };

typedef struct {
    int32_t dtype;
    uint32_t k_row, v_row; /* elements, or bytes of opaque rows; v_row 0: no V */
    uint32_t heads, page_tokens, layers;
    int32_t layout, arrangement, memory, scales;
    uint32_t aux_bytes, gap; /* bytes between pages of the pool's own memory */
} shape;

typedef struct {
    shape shape;
    pkv_pool *pool;
    pkv_page pages[shaped_pages]; /* all of them, held */
    unsigned char *own;           /* PKV_MEMORY_CALLER */
    uint64_t own_bytes;
} shaped;

static inline uint32_t shape_row_bytes(const shape *s, int side) {
    const uint32_t elements = side == 0 ? s->k_row : s->v_row;
    return elements * (s->dtype == PKV_DTYPE_OPAQUE ? 1 : (uint32_t)pkv_dtype_bytes(s->dtype));
}

/* Odd strides, bases at odd addresses, all in one block. */
static inline void place_in_own(shaped *p, pkv_group_options *group, void **k_base, void **v_base) {
    const shape *s = &p->shape;
    const bool tokens_first = s->layout == PKV_LAYOUT_NHD;
    uint64_t at = 61;
    uint64_t places[2][shaped_max_layers] = {{0}};
    for (int side = 0; side < (s->v_row != 0 ? 2 : 1); ++side) {
        const uint64_t row = shape_row_bytes(s, side);
        pkv_strides strides;
        if (tokens_first) {
            strides.head = row + 1;
            strides.token = s->heads * strides.head + 5;
            strides.page = s->page_tokens * strides.token + 7;
        } else {
            strides.token = row + 3;
            strides.head = s->page_tokens * strides.token + 1;
            strides.page = s->heads * strides.head + 9;
        }
        *(side == 0 ? &group->k_strides : &group->v_strides) = strides;
        for (uint32_t layer = 0; layer < s->layers; ++layer) {
            places[side][layer] = at;
            at += shaped_pages * strides.page + 13;
        }
    }
    p->own_bytes = at;
    p->own = malloc(at);
    memset(p->own, untouched, at);
    for (uint32_t layer = 0; layer < s->layers; ++layer) {
        k_base[layer] = p->own + places[0][layer];
        v_base[layer] = p->own + places[1][layer];
    }
    group->k_base = k_base;
    if (s->v_row != 0) group->v_base = v_base;
}

static inline shaped make_shaped(const shape *s, pkv_tier *tier) {
    shaped p = {*s, NULL, {0}, NULL, 0};
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = shaped_pages;
    group.num_layers = s->layers;
    group.num_kv_heads = s->heads;
    group.dtype = s->dtype;
    if (s->dtype == PKV_DTYPE_OPAQUE) {
        group.k_row_bytes = s->k_row;
        group.v_row_bytes = s->v_row;
    } else {
        group.k_head_dim = s->k_row;
        group.v_head_dim = s->v_row;
    }
    group.layout = s->layout;
    group.arrangement = s->arrangement;
    group.memory = s->memory;
    group.scales = s->scales;
    group.aux_bytes = s->aux_bytes;
    float factors[shaped_max_layers * 16];
    for (int i = 0; i < shaped_max_layers * 16; ++i) factors[i] = 0.5f + (float)i;
    if (s->scales == PKV_SCALES_TENSOR || s->scales == PKV_SCALES_HEAD) {
        group.k_scales = factors;
        if (s->v_row != 0) group.v_scales = factors + 1;
    }
    if (s->gap != 0)
        group.k_strides.page = (uint64_t)s->page_tokens * s->heads * (shape_row_bytes(s, 0) + shape_row_bytes(s, 1)) *
                                   (s->arrangement == PKV_PAGE_MAJOR ? s->layers : 1) +
                               s->gap;
    void *k_base[shaped_max_layers], *v_base[shaped_max_layers];
    if (s->memory == PKV_MEMORY_CALLER) place_in_own(&p, &group, k_base, v_base);
    pkv_tier_attachment at = PKV_TIER_ATTACHMENT_INIT;
    at.tier = tier;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = s->page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = &at;
    options.num_tiers = 1;
    options.staging_bytes = 1; /* the least */
    assert_ok(pkv_pool_create(&options, &p.pool));
    assert_ok(pkv_pool_alloc(p.pool, 0, shaped_pages, p.pages));
    return p;
}

static inline void end_shaped(shaped *p) {
    release_pages(p->pool, p->pages, shaped_pages);
    assert_ok(pkv_pool_destroy(p->pool));
    free(p->own);
}

/* ---- contents ---- */

static inline test_random stream_of(uint32_t image, uint32_t layer, int side, uint32_t token, uint32_t head) {
    const test_random random = {((((uint64_t)image * 8 + layer) * 70000 + token) * 300 + head) * 4 + (uint64_t)side};
    return random;
}

static inline unsigned char *row_of(const pkv_layer_layout *l, int side, pkv_page page, uint32_t token, uint32_t head) {
    const pkv_strides *s = side == 0 ? &l->k : &l->v;
    return (unsigned char *)(side == 0 ? l->k_base : l->v_base) + (uint64_t)page * s->page + token * s->token +
           head * s->head;
}

/* The row's bytes of image `image`: written, or compared. */
static inline bool each_byte(unsigned char *at, uint64_t bytes, test_random random, bool write) {
    for (uint64_t i = 0; i < bytes;) {
        uint64_t word = next_random(&random);
        for (int j = 0; j < 8 && i < bytes; ++j, ++i, word >>= 8) {
            if (write)
                at[i] = (unsigned char)word;
            else if (at[i] != (unsigned char)word)
                return false;
        }
    }
    return true;
}

/* Writes the content of an image into a page, or compares it: true if all of it is the same. */
static inline bool page_content(shaped *p, uint64_t index, uint32_t image, bool write) {
    const shape *s = &p->shape;
    const pkv_page page = p->pages[index];
    for (uint32_t layer = 0; layer < s->layers; ++layer) {
        pkv_layer_layout l = PKV_LAYER_LAYOUT_INIT;
        assert_ok(pkv_pool_layout(p->pool, 0, layer, &l));
        for (int side = 0; side < (s->v_row != 0 ? 2 : 1); ++side)
            for (uint32_t token = 0; token < s->page_tokens; ++token)
                for (uint32_t head = 0; head < s->heads; ++head) {
                    test_random random = stream_of(image, layer, side, token, head);
                    if (!each_byte(row_of(&l, side, page, token, head), shape_row_bytes(s, side), random, write))
                        return false;
                    if (s->scales != PKV_SCALES_TOKEN_HEAD) continue;
                    char *scales = (char *)(side == 0 ? l.k_scales : l.v_scales) + (uint64_t)page * l.scale_page_stride;
                    float *scale = (float *)(void *)scales + (uint64_t)token * s->heads + head;
                    random.state ^= 0xABCDEF;
                    const float value = (float)(next_random(&random) % 100000) / 64.0f + 1.0f;
                    if (write) *scale = value;
                    if (memcmp(scale, &value, sizeof value) != 0) return false;
                }
    }
    void *aux = NULL;
    if (s->aux_bytes == 0) return true;
    assert_ok(pkv_pool_aux(p->pool, 0, page, &aux));
    return each_byte(aux, s->aux_bytes, stream_of(image, 7, 3, 1, 1), write);
}

static inline void fill_image(shaped *p, uint64_t index, uint32_t image) { (void)page_content(p, index, image, true); }
static inline bool is_image(shaped *p, uint64_t index, uint32_t image) { return page_content(p, index, image, false); }

/* ---- moving them ---- */

static inline pkv_tier_key image_name(uint32_t image) {
    test_random random = {image + 5};
    pkv_tier_key key;
    for (int i = 0; i < 4; ++i) {
        const uint64_t word = next_random(&random);
        memcpy(key.bytes + 8 * i, &word, 8);
    }
    return key;
}

static inline pkv_status wait_op(pkv_op *op, pkv_status *statuses, uint64_t count) {
    const pkv_status status = pkv_op_wait(op, UINT64_C(60000000000));
    pkv_op_info info = PKV_OP_INFO_INIT;
    do {
        assert_ok(pkv_op_poll(op, &info, statuses, count));
        assert_int_equal(info.state, PKV_OP_ENDED);
    } while (info.buffers_free == 0 && usleep(100) == 0);
    assert_ok(pkv_op_close(op));
    return status;
}

static inline pkv_status store_image(shaped *p, uint64_t index, uint32_t image) {
    const pkv_tier_key key = image_name(image);
    pkv_op *op = NULL;
    assert_ok(pkv_pool_store(p->pool, 0, 1, &key, &p->pages[index], NULL, NULL, &op));
    return wait_op(op, NULL, 0);
}

static inline pkv_status load_image(shaped *p, uint64_t index, uint32_t image) {
    const pkv_tier_key key = image_name(image);
    pkv_op *op = NULL;
    assert_ok(pkv_pool_load(p->pool, 0, 1, &key, &p->pages[index], NULL, NULL, &op));
    return wait_op(op, NULL, 0);
}

#endif
