/* SPDX-License-Identifier: Apache-2.0 */
/* What transfer.c and transfer_refused.c share: pools of one geometry in many forms, a sequence with a namespace and two
 * images, and exports of it. */
#ifndef PKV_TESTS_TRANSFER_H
#define PKV_TESTS_TRANSFER_H

#include "support/support.h"

enum { num_pages = 32, num_tokens = 19 };

enum { plain, latent, opaque, sliding, kinds };

typedef struct {
    pkv_pool *pool;
    void *memory[2][8]; /* PKV_MEMORY_CALLER: of each layer */
} place;

static inline void geometry_of(int kind, pkv_group_options *groups, uint32_t *num_groups) {
    *num_groups = 1;
    groups[0] = small_group(num_pages);
    if (kind == latent) {
        groups[0].num_kv_heads = 1;
        groups[0].k_head_dim = 20;
        groups[0].v_head_dim = 0;
        groups[0].num_layers = 3;
    } else if (kind == opaque) {
        groups[0].dtype = PKV_DTYPE_OPAQUE;
        groups[0].k_head_dim = groups[0].v_head_dim = 0;
        groups[0].k_row_bytes = 18;
        groups[0].v_row_bytes = 34;
    } else if (kind == sliding) {
        groups[1] = window_group(num_pages, 6, 2);
        groups[1].num_layers = 1;
        *num_groups = 2;
    }
}

enum { other_layout = 1, other_arrangement = 2, own_memory = 4, forms = 8 };

static inline place make_place(int kind, int form, uint32_t page_tokens) {
    place p = {0};
    pkv_group_options groups[2];
    uint32_t num_groups = 0;
    geometry_of(kind, groups, &num_groups);
    for (uint32_t g = 0; g < num_groups; ++g) {
        if (form & other_layout) groups[g].layout = PKV_LAYOUT_HND;
        if ((form & other_arrangement) && !(form & own_memory)) groups[g].arrangement = PKV_LAYER_MAJOR;
    }
    if (form & own_memory) { /* the first group's; the largest rows of all kinds fit */
        for (int side = 0; side < 2; ++side)
            for (int layer = 0; layer < 3; ++layer) p.memory[side][layer] = calloc(num_pages * page_tokens, 2 * 64);
        groups[0].memory = PKV_MEMORY_CALLER;
        groups[0].k_base = p.memory[0];
        groups[0].v_base = kind == latent ? NULL : p.memory[1];
    }
    p.pool = make_groups(groups, num_groups, page_tokens);
    return p;
}

static inline void end_place(place *p) {
    end_groups(p->pool);
    for (int side = 0; side < 2; ++side)
        for (int layer = 0; layer < 3; ++layer) free(p->memory[side][layer]);
}

typedef struct {
    pkv_token tokens[num_tokens + 4];
    pkv_namespace ns;
    pkv_media media[2];
    pkv_prompt prompt;
} question;

static inline void ask(question *q) {
    const pkv_namespace none = PKV_NAMESPACE_INIT;
    count_up(q->tokens, num_tokens + 4, 1);
    q->ns = none;
    q->ns.model = bytes_of("model");
    q->ns.salt = bytes_of("tenant");
    q->media[0] = (pkv_media){3, 4, bytes_of("first image")};
    q->media[1] = (pkv_media){13, 1, bytes_of("second")};
    q->prompt = prompt_of(q->tokens, num_tokens + 4);
    q->prompt.ns = &q->ns;
    q->prompt.media = q->media;
    q->prompt.num_media = 2;
}

static inline pkv_table *answer(place *p, const question *q) {
    pkv_table *table = admit(p->pool, &q->prompt, NULL);
    put_and_commit(p->pool, table, num_tokens, 7); /* 4 tokens are named and have no rows */
    return table;
}

typedef struct {
    unsigned char *data;
    uint64_t size;
} image;

static inline image export_of(pkv_table *table) {
    image out = {NULL, 0};
    assert_ok(pkv_table_export(table, NULL, 0, &out.size));
    out.data = malloc(out.size); /* exactly: one byte more is seen */
    uint64_t written = 0;
    assert_ok(pkv_table_export(table, out.data, out.size, &written));
    assert_int_equal(written, out.size);
    return out;
}

static inline pkv_table *empty_table(pkv_pool *pool) {
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    return table;
}

/* Import gives a status, and then the table is as new. */
static inline void refused(pkv_table *table, const void *data, uint64_t size, pkv_status status) {
    assert_status(pkv_table_import(table, data, size), status);
    assert_int_equal(info_of(table).blocks, 0);
    assert_status(pkv_table_reserve(table, 1), PKV_ERR_STATE);
}

#endif
