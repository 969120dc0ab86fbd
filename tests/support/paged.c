/* SPDX-License-Identifier: Apache-2.0 */
#include "support/paged.h"

enum { pattern = 0xA5, guard = 0x3C };

static pkv_group_options options_of(const paged_config *config) {
    const uint32_t element = config->dtype == PKV_DTYPE_OPAQUE ? 1 : (uint32_t)pkv_dtype_bytes(config->dtype);
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = config->pages;
    group.num_layers = config->layers;
    group.num_kv_heads = config->heads;
    group.dtype = config->dtype;
    if (config->dtype == PKV_DTYPE_OPAQUE) {
        group.k_row_bytes = config->k_row;
        group.v_row_bytes = config->v_row;
    } else {
        group.k_head_dim = config->k_row / element;
        group.v_head_dim = config->v_row / element;
    }
    group.layout = config->layout;
    group.arrangement = config->arrangement;
    group.memory = config->memory;
    group.k_strides.page = config->page_stride;
    return group;
}

static pkv_pool *pool_of(const paged_config *config, const pkv_group_options *group) {
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = config->page_tokens;
    options.num_groups = 1;
    options.groups = group;
    options.huge_pages = PKV_HUGE_PAGES_NEVER;
    options.copy_threads = config->copy_threads;
    pkv_pool *pool = NULL;
    assert_ok(pkv_pool_create(&options, &pool));
    return pool;
}

/* All pages, in order, each with one count. */
static void take_all(paged *p) {
    pkv_page *pages = calloc(p->config.pages, sizeof *pages);
    assert_ok(pkv_pool_alloc(p->pool, 0, p->config.pages, pages));
    for (uint64_t i = 0; i < p->config.pages; ++i) assert_true(pages[i] == (pkv_page)i);
    free(pages);
}

static void give_all(paged *p) {
    pkv_page *pages = calloc(p->config.pages, sizeof *pages);
    for (uint64_t i = 0; i < p->config.pages; ++i) pages[i] = (pkv_page)i;
    assert_ok(pkv_pool_release(p->pool, 0, p->config.pages, pages, NULL, NULL));
    free(pages);
}

static void check_layout(const paged *p) {
    for (uint32_t layer = 0; layer < p->config.layers; ++layer) {
        pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
        assert_ok(pkv_pool_layout(p->pool, 0, layer, &layout));
        assert_ptr_equal(layout.k_base, p->bytes + p->base[0][layer]);
        assert_memory_equal(&layout.k, &p->strides[0], sizeof layout.k);
        if (p->config.v_row == 0) {
            assert_null(layout.v_base);
        } else {
            assert_ptr_equal(layout.v_base, p->bytes + p->base[1][layer]);
            assert_memory_equal(&layout.v, &p->strides[1], sizeof layout.v);
        }
        assert_int_equal(layout.k_row_bytes, p->config.k_row);
        assert_int_equal(layout.v_row_bytes, p->config.v_row);
        assert_int_equal(layout.num_kv_heads, p->config.heads);
        assert_int_equal(layout.page_tokens, p->config.page_tokens);
        assert_int_equal(layout.dtype, p->config.dtype);
    }
}

/* [page, layer, K then V] or [layer, page, K then V], without gaps but the one that page_stride leaves. */
static paged *place_in_pool(const paged_config *config) {
    paged *p = calloc(1, sizeof *p);
    p->config = *config;
    const uint64_t k_bytes = (uint64_t)config->page_tokens * config->heads * config->k_row;
    const uint64_t v_bytes = (uint64_t)config->page_tokens * config->heads * config->v_row;
    const bool page_major = config->arrangement == PKV_PAGE_MAJOR;
    uint64_t page = (k_bytes + v_bytes) * (page_major ? config->layers : 1);
    if (config->page_stride != 0) page = config->page_stride;
    for (uint32_t layer = 0; layer < config->layers; ++layer) {
        p->base[0][layer] = page_major ? layer * (k_bytes + v_bytes) : layer * page * config->pages;
        p->base[1][layer] = p->base[0][layer] + k_bytes;
    }
    for (int side = 0; side < 2; ++side) {
        const uint64_t row = side == 0 ? config->k_row : config->v_row;
        p->strides[side].page = page;
        p->strides[side].token = config->layout == PKV_LAYOUT_NHD ? config->heads * row : row;
        p->strides[side].head = config->layout == PKV_LAYOUT_NHD ? row : config->page_tokens * row;
    }
    p->size = page * config->pages * (page_major ? 1 : config->layers);
    const pkv_group_options group = options_of(config);
    p->pool = pool_of(config, &group);
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    assert_ok(pkv_pool_layout(p->pool, 0, 0, &layout));
    p->bytes = layout.k_base;
    return p;
}

/* The caller's memory: odd strides, bases at odd addresses, all layers and both sides in one block. */
static paged *place_in_own(const paged_config *config) {
    paged *p = calloc(1, sizeof *p);
    p->config = *config;
    p->size = 61;
    void *bases[2][paged_max_layers];
    for (int side = 0; side < 2; ++side) {
        const uint64_t row = side == 0 ? config->k_row : config->v_row;
        pkv_strides *s = &p->strides[side];
        if (row == 0) continue;
        if (config->layout == PKV_LAYOUT_NHD) {
            s->head = row + 1;
            s->token = config->heads * s->head + 5;
            s->page = config->page_tokens * s->token + 7;
        } else {
            s->token = row + 3;
            s->head = config->page_tokens * s->token + 1;
            s->page = config->heads * s->head + 9;
        }
        for (uint32_t layer = 0; layer < config->layers; ++layer) {
            p->base[side][layer] = p->size;
            p->size += config->pages * s->page + 13;
        }
    }
    p->own = p->bytes = malloc(p->size);
    for (int side = 0; side < 2; ++side)
        for (uint32_t layer = 0; layer < config->layers; ++layer) bases[side][layer] = p->bytes + p->base[side][layer];
    pkv_group_options group = options_of(config);
    group.k_base = bases[0];
    group.k_strides = p->strides[0];
    if (config->v_row != 0) {
        group.v_base = bases[1];
        group.v_strides = p->strides[1];
    }
    p->pool = pool_of(config, &group);
    return p;
}

paged *make_sparse(const paged_config *config) {
    paged *p = place_in_pool(config);
    check_layout(p);
    take_all(p);
    return p;
}

void end_sparse(paged *p) {
    give_all(p);
    end_pool(p->pool);
    free(p);
}

paged *make_paged(const paged_config *config) {
    paged *p = config->memory == PKV_MEMORY_CALLER ? place_in_own(config) : place_in_pool(config);
    check_layout(p);
    take_all(p);
    memset(p->bytes, pattern, p->size);
    p->expected = malloc(p->size);
    memset(p->expected, pattern, p->size);
    return p;
}

void end_paged(paged *p) {
    check_paged(p);
    give_all(p);
    end_pool(p->pool);
    free(p->own);
    free(p->expected);
    free(p);
}

uint64_t paged_at(const paged *p, int side, uint32_t layer, uint64_t page, uint64_t token, uint64_t head) {
    const pkv_strides *s = &p->strides[side];
    return p->base[side][layer] + page * s->page + token * s->token + head * s->head;
}

void check_paged(const paged *p) {
    if (memcmp(p->bytes, p->expected, p->size) == 0) return;
    uint64_t at = 0;
    while (p->bytes[at] == p->expected[at]) ++at;
    const paged_config *c = &p->config;
    fail_msg("byte %llu of %llu is %02x, not %02x (rows of %u and %u bytes, %u heads, %u tokens a page, layout %d, "
             "arrangement %d, memory %d)",
             (unsigned long long)at, (unsigned long long)p->size, p->bytes[at], p->expected[at], c->k_row, c->v_row,
             c->heads, c->page_tokens, c->layout, c->arrangement, c->memory);
}

/* ---- the caller's rows ---- */

static uint64_t row_bytes(const paged *p, int side) { return side == 0 ? p->config.k_row : p->config.v_row; }

flat make_flat(const paged *p, int side, uint64_t num_tokens, int shape, test_random *random) {
    const uint64_t row = row_bytes(p, side), heads = p->config.heads;
    flat rows = {.tensor = PKV_TENSOR_INIT, .token_stride = heads * row, .head_stride = row, .offset = 64};
    if (shape == flat_gaps) {
        rows.head_stride = row + 2;
        rows.token_stride = heads * rows.head_stride + 3;
    } else if (shape == flat_heads_first) {
        rows.token_stride = row + 4;
        rows.head_stride = num_tokens * rows.token_stride + 16;
    } else if (shape == flat_unaligned) {
        rows.offset = 67;
    }
    if (shape == flat_gaps || shape == flat_heads_first) {
        rows.tensor.token_stride = rows.token_stride;
        rows.tensor.head_stride = rows.head_stride;
    }
    rows.size = rows.offset + num_tokens * rows.token_stride + heads * rows.head_stride + row + 64;
    rows.memory = malloc(rows.size);
    for (uint64_t i = 0; i < rows.size; i += 8) {
        const uint64_t value = next_random(random);
        memcpy(rows.memory + i, &value, rows.size - i < 8 ? rows.size - i : 8);
    }
    rows.tensor.data = rows.memory + rows.offset;
    rows.tensor.dtype = p->config.dtype;
    rows.tensor.num_tokens = num_tokens;
    return rows;
}

void end_flat(flat *rows) { free(rows->memory); }

unsigned char *flat_row(const flat *rows, uint64_t token, uint64_t head) {
    return rows->memory + rows->offset + token * rows->token_stride + head * rows->head_stride;
}

void paged_write(paged *p, uint32_t layer, uint64_t num_slots, const pkv_slot *slots, const flat *k, const flat *v) {
    assert_ok(pkv_pool_write(p->pool, 0, layer, num_slots, slots, &k->tensor, v != NULL ? &v->tensor : NULL, NULL));
    const uint64_t page_tokens = p->config.page_tokens;
    for (uint64_t i = 0; i < num_slots; ++i) {
        if (slots[i] < 0) continue;
        const uint64_t slot = (uint64_t)slots[i];
        for (int side = 0; side < (v != NULL ? 2 : 1); ++side)
            for (uint64_t head = 0; head < p->config.heads; ++head)
                memcpy(p->expected + paged_at(p, side, layer, slot / page_tokens, slot % page_tokens, head),
                       flat_row(side == 0 ? k : v, i, head), row_bytes(p, side));
    }
    check_paged(p);
}

void paged_gather(paged *p, uint32_t layer, uint64_t num_pages, const pkv_page *pages, uint64_t first, uint64_t count,
                  flat *k, flat *v) {
    flat *sides[2] = {k, v};
    unsigned char *expected[2] = {NULL, NULL};
    for (int side = 0; side < 2; ++side) {
        if (sides[side] == NULL) continue;
        memset(sides[side]->memory, guard, sides[side]->size);
        flat model = *sides[side];
        model.memory = expected[side] = malloc(model.size);
        memset(model.memory, guard, model.size);
        for (uint64_t i = 0; i < count; ++i)
            for (uint64_t head = 0; head < p->config.heads; ++head) {
                const uint64_t token = first + i, page = (uint64_t)pages[token / p->config.page_tokens];
                memcpy(flat_row(&model, i, head),
                       p->expected + paged_at(p, side, layer, page, token % p->config.page_tokens, head),
                       row_bytes(p, side));
            }
    }
    assert_ok(pkv_pool_gather(p->pool, 0, layer, num_pages, pages, first, count, k != NULL ? &k->tensor : NULL,
                              v != NULL ? &v->tensor : NULL, NULL));
    for (int side = 0; side < 2; ++side) {
        if (sides[side] == NULL) continue;
        if (memcmp(sides[side]->memory, expected[side], sides[side]->size) != 0)
            fail_msg("gathered rows of side %d, or bytes around them, are wrong (rows of %llu bytes, %u heads)", side,
                     (unsigned long long)row_bytes(p, side), p->config.heads);
        free(expected[side]);
    }
}

void paged_copy(paged *p, uint64_t num_pages, const pkv_page *src, const pkv_page *dst) {
    assert_ok(pkv_pool_copy_pages(p->pool, 0, num_pages, src, dst, NULL));
    for (uint64_t i = 0; i < num_pages; ++i)
        for (uint32_t layer = 0; layer < p->config.layers; ++layer)
            for (int side = 0; side < (p->config.v_row != 0 ? 2 : 1); ++side)
                for (uint64_t token = 0; token < p->config.page_tokens; ++token)
                    for (uint64_t head = 0; head < p->config.heads; ++head)
                        memcpy(p->expected + paged_at(p, side, layer, (uint64_t)dst[i], token, head),
                               p->expected + paged_at(p, side, layer, (uint64_t)src[i], token, head),
                               row_bytes(p, side));
    check_paged(p);
}
