/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of sequences that are handed over share: pools that are shards of one model, rows whose bytes are known
 * from their place in the model, offers and pulls. */
#ifndef PKV_TESTS_HANDOVER_H
#define PKV_TESTS_HANDOVER_H

#include "node/nodes.h"

enum { row_elements = 4, most_row = 64 };

/* A shard of a model, as a pool of one group. */
typedef struct {
    uint32_t layers, first_layer, total_layers;
    uint32_t heads, first_head, total_heads;
    uint32_t page_tokens;
    uint64_t pages;
    int32_t layout, arrangement;
    bool latent; /* no V */
} shard;

/* All of a model of 4 layers and 4 heads. */
static inline shard whole_model(uint64_t pages) {
    const shard s = {4, 0, 4, 4, 0, 4, 4, pages, PKV_LAYOUT_NHD, PKV_PAGE_MAJOR, false};
    return s;
}
static inline shard with_heads(shard s, uint32_t first, uint32_t heads) {
    s.first_head = first;
    s.heads = heads;
    return s;
}
static inline shard with_layers(shard s, uint32_t first, uint32_t layers) {
    s.first_layer = first;
    s.layers = layers;
    return s;
}

static inline pkv_group_options group_of(const shard *s) {
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = s->pages;
    group.num_layers = s->layers;
    group.first_layer = s->first_layer;
    group.total_layers = s->total_layers;
    group.num_kv_heads = s->heads;
    group.first_head = s->first_head;
    group.total_heads = s->total_heads;
    group.k_head_dim = row_elements;
    group.v_head_dim = s->latent ? 0 : row_elements;
    group.layout = s->layout;
    group.arrangement = s->arrangement;
    return group;
}

static inline pkv_pool *shard_pool(const shard *s) {
    const pkv_group_options group = group_of(s);
    return make_pool_of(&group, s->page_tokens, PKV_DEBUG_POISON);
}

/* One element of the model's KV; never 0xFFFF, which poison looks like. */
static inline uint16_t model_element(uint32_t tag, uint32_t layer, uint32_t head, uint64_t token, int side,
                                     uint32_t index) {
    uint64_t mixed = tag;
    mixed = mixed * 4099 + layer;
    mixed = mixed * 4099 + head;
    mixed = mixed * 1000003 + token;
    mixed = mixed * 2 + (uint64_t)side;
    mixed = (mixed * 64 + index) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint16_t)((mixed >> 40) % 65535);
}

static inline void model_rows(const shard *s, uint32_t layer, uint64_t position, uint64_t count, uint32_t tag, int side,
                              uint16_t *rows) {
    for (uint64_t token = 0; token < count; ++token)
        for (uint32_t head = 0; head < s->heads; ++head)
            for (uint32_t i = 0; i < row_elements; ++i)
                *rows++ = model_element(tag, s->first_layer + layer, s->first_head + head, position + token, side, i);
}

static inline pkv_tensor rows_tensor(void *data, uint64_t count) {
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.data = data;
    tensor.dtype = PKV_DTYPE_F16;
    tensor.num_tokens = count;
    return tensor;
}

/* Puts the model's rows of tokens [position, position + count) into one layer of the shard's. */
static inline void put_layer(pkv_table *table, const shard *s, uint32_t layer, uint64_t position, uint64_t count,
                             uint32_t tag) {
    const size_t elements = (size_t)count * s->heads * row_elements;
    uint16_t *k = malloc(elements * 2 + 2), *v = malloc(elements * 2 + 2);
    model_rows(s, layer, position, count, tag, 0, k);
    model_rows(s, layer, position, count, tag, 1, v);
    const pkv_tensor kt = rows_tensor(k, count), vt = rows_tensor(v, count);
    assert_ok(pkv_table_write(table, 0, layer, position, count, &kt, s->latent ? NULL : &vt, NULL));
    free(k);
    free(v);
}

/* reserve, all layers, commit */
static inline void put_tokens(pkv_table *table, const shard *s, uint64_t end, uint32_t tag) {
    const uint64_t begin = info_of(table).committed;
    assert_ok(pkv_table_reserve(table, end));
    for (uint32_t layer = 0; layer < s->layers; ++layer) put_layer(table, s, layer, begin, end - begin, tag);
    assert_ok(pkv_table_commit(table, end, NULL));
}

/* Compares tokens [position, position + count) of all layers of the shard's. */
static inline void same_tokens(pkv_table *table, const shard *s, uint64_t position, uint64_t count, uint32_t tag) {
    const size_t elements = (size_t)count * s->heads * row_elements;
    uint16_t *expected = malloc(elements * 2 + 2), *got[2] = {malloc(elements * 2 + 2), malloc(elements * 2 + 2)};
    for (uint32_t layer = 0; layer < s->layers; ++layer) {
        memset(got[0], 0xEE, elements * 2);
        memset(got[1], 0xEE, elements * 2);
        const pkv_tensor kt = rows_tensor(got[0], count), vt = rows_tensor(got[1], count);
        assert_ok(pkv_table_gather(table, 0, layer, position, count, &kt, s->latent ? NULL : &vt, NULL));
        for (int side = 0; side < (s->latent ? 1 : 2); ++side) {
            model_rows(s, layer, position, count, tag, side, expected);
            for (size_t i = 0; i < elements; ++i)
                if (got[side][i] != expected[i])
                    fail_msg("%s of layer %u, token %zu, element %zu is %04x, not %04x (tag %u)", side == 0 ? "K" : "V",
                             layer, position + i / (s->heads * row_elements), i % (s->heads * row_elements),
                             got[side][i], expected[i], tag);
        }
    }
    free(expected);
    free(got[0]);
    free(got[1]);
}

/* A table admitted with tokens first, first + 1, ... of which nothing matches. */
static inline pkv_table *admit_counted(pkv_pool *pool, pkv_token first, uint64_t num_tokens, uint64_t reserve) {
    pkv_token *tokens = malloc(num_tokens * sizeof *tokens + 1);
    count_up(tokens, num_tokens, first);
    const pkv_prompt prompt = prompt_of(tokens, num_tokens);
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.flags = PKV_ADMIT_NO_MATCH;
    options.reserve_tokens = reserve;
    pkv_table *table = NULL;
    assert_ok(pkv_table_create(pool, &table));
    assert_ok(pkv_table_admit(table, &prompt, &options, NULL));
    free(tokens);
    return table;
}

/* The same, computed to the end. */
static inline pkv_table *computed(pkv_pool *pool, const shard *s, pkv_token first, uint64_t num_tokens, uint32_t tag) {
    pkv_table *table = admit_counted(pool, first, num_tokens, 0);
    put_tokens(table, s, num_tokens, tag);
    return table;
}

/* ---- tickets */

typedef struct {
    unsigned char bytes[PKV_MAX_TICKET_BYTES];
    uint64_t size;
} ticket;

static inline ticket ticket_of(pkv_offer *offer) {
    ticket t = {{0}, 0};
    uint64_t needed = 0;
    assert_ok(pkv_offer_ticket(offer, NULL, 0, &needed));
    assert_ok(pkv_offer_ticket(offer, t.bytes, sizeof t.bytes, &t.size));
    assert_int_equal(t.size, needed);
    return t;
}

static inline pkv_offer *offer_of(pkv_node *node, pkv_table *table, const pkv_offer_options *options) {
    pkv_offer *offer = NULL;
    assert_ok(pkv_table_offer(node, table, options, NULL, &offer, NULL));
    return offer;
}

static inline pkv_offer_info offer_info(pkv_offer *offer) {
    pkv_offer_info info = PKV_OFFER_INFO_INIT;
    assert_ok(pkv_offer_get_info(offer, &info));
    return info;
}

static inline pkv_op *begin_pull_of(pkv_node *node, pkv_pool *pool, const ticket *tickets, uint32_t num_tickets,
                                    const pkv_pull_options *options, uint64_t timeout_ns) {
    pkv_bytes list[PKV_MAX_TICKETS];
    for (uint32_t i = 0; i < num_tickets; ++i) list[i] = (pkv_bytes){tickets[i].bytes, tickets[i].size};
    pkv_op_options how = PKV_OP_OPTIONS_INIT;
    how.timeout_ns = timeout_ns;
    pkv_op *op = NULL;
    assert_ok(pkv_table_pull(node, pool, num_tickets, list, options, &how, &op));
    return op;
}
static inline pkv_op *begin_pull(pkv_node *node, pkv_pool *pool, const ticket *t) {
    /* ThreadSanitizer spends most of a second on each race of libfabric's that is suppressed. */
    return begin_pull_of(node, pool, t, 1, NULL, 120ull * one_second);
}

/* Waits for a pull that goes well. */
static inline pkv_table *pulled(pkv_op *op) {
    pkv_table *table = NULL;
    assert_ok(pkv_op_wait(op, 150ull * one_second));
    assert_ok(pkv_pull_table(op, &table));
    assert_status(pkv_pull_table(op, &table), PKV_ERR_STATE);
    assert_ok(pkv_op_close(op));
    return table;
}

/* Waits for one that fails as expected, with this in its message. */
static inline void pull_fails(pkv_op *op, pkv_status expected, const char *message) {
    pkv_table *table = NULL;
    assert_status(pkv_op_wait(op, 150ull * one_second), expected);
    assert_message(message);
    assert_status(pkv_pull_table(op, &table), expected);
    assert_message(message);
    assert_null(table);
    assert_ok(pkv_op_close(op));
}

/* Nothing of a pool is held by anybody. */
static inline void all_released(pkv_pool *pool) { soon(stats_of(pool).held_pages == 0 && stats_of(pool).tables == 0); }

/* ---- two nodes of one process */

typedef struct {
    pkv_node *giver, *puller;
} nodes;

static inline bool open_nodes_with(nodes *n, pkv_node_options giver) {
    giver.listen = "127.0.0.1:0";
    n->puller = NULL;
    n->giver = open_node(&giver);
    if (n->giver == NULL) return false;
    const pkv_node_options puller = node_options();
    n->puller = open_node(&puller);
    return true;
}
static inline bool open_nodes(nodes *n) { return open_nodes_with(n, node_options()); }
static inline void close_nodes(nodes *n) {
    assert_ok(pkv_node_close(n->puller));
    assert_ok(pkv_node_close(n->giver));
}

/* What many tests begin with: a sequence of the whole model, offered. */
enum { given_tokens = 51 /* 12 blocks of 4, and 3 in the last one */, given_tag = 7 };

typedef struct {
    nodes at;
    shard model;
    pkv_pool *pool; /* the giver's */
    pkv_table *table;
    pkv_offer *offer;
    ticket t;
} given;

static inline bool begin_with(given *g, const pkv_offer_options *options) {
    memset(g, 0, sizeof *g);
    if (!open_nodes(&g->at)) return false;
    g->model = whole_model(64);
    g->pool = shard_pool(&g->model);
    g->table = computed(g->pool, &g->model, 1, given_tokens, given_tag);
    g->offer = offer_of(g->at.giver, g->table, options);
    g->t = ticket_of(g->offer);
    return true;
}
static inline bool begin(given *g) { return begin_with(g, NULL); }

static inline void end(given *g) {
    if (g->offer != NULL) assert_ok(pkv_offer_close(g->offer));
    if (g->table != NULL) end_table(g->table);
    all_released(g->pool);
    end_pool(g->pool);
    close_nodes(&g->at);
}

static inline pkv_pull_options pull_options(uint32_t flags) {
    pkv_pull_options options = PKV_PULL_OPTIONS_INIT;
    options.flags = flags;
    return options;
}

/* Offers, pulls, and ends the offer. */
static inline pkv_table *hand_over(nodes *n, pkv_table *table, pkv_pool *to, const pkv_pull_options *options) {
    pkv_offer *offer = offer_of(n->giver, table, NULL);
    const ticket t = ticket_of(offer);
    pkv_table *copy = pulled(begin_pull_of(n->puller, to, &t, 1, options, 0));
    assert_ok(pkv_offer_close(offer));
    return copy;
}
static inline void is_refused(nodes *n, pkv_table *table, pkv_pool *to, const pkv_pull_options *options,
                              pkv_status status, const char *message) {
    pkv_offer *offer = offer_of(n->giver, table, NULL);
    const ticket t = ticket_of(offer);
    pull_fails(begin_pull_of(n->puller, to, &t, 1, options, 0), status, message);
    assert_ok(pkv_offer_close(offer));
    all_released(to);
}

#endif
