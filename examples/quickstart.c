/* SPDX-License-Identifier: Apache-2.0 */
/* Two requests that share a prefix, and a fork of the second: the smallest tour of the library. */
#include <pagedkv/pagedkv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        const pkv_status status_ = (call);                                                                             \
        char message_[256] = "";                                                                                       \
        if (status_ != PKV_OK) {                                                                                       \
            (void)pkv_last_error(message_, sizeof message_);                                                           \
            fprintf(stderr, "%s: %s: %s\n", #call, pkv_status_string(status_), message_);                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { LAYERS = 2, HEADS = 2, HEAD_DIM = 4, ROW = HEADS * HEAD_DIM, PROMPT = 40, TOTAL = PROMPT + 1 };

/* Stands in for the model: K and V of one token in one layer, which a real one computes from all tokens up to it. */
static void model(const pkv_token *tokens, uint64_t token, uint32_t layer, float *k, float *v) {
    for (int i = 0; i < ROW; ++i) {
        k[i] = (float)(tokens[token] * 16 + (int)layer * 8 + i);
        v[i] = -k[i];
    }
}

static pkv_tensor rows(float *data, uint64_t num_tokens) {
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.data = data;
    tensor.dtype = PKV_DTYPE_F32;
    tensor.num_tokens = num_tokens;
    return tensor;
}

/* Computes tokens [first, end) of a sequence, in all layers, and says that they are complete. */
static void compute(pkv_table *table, const pkv_token *tokens, uint64_t first, uint64_t end) {
    float k[TOTAL * ROW], v[TOTAL * ROW];
    for (uint32_t layer = 0; layer < LAYERS; ++layer) {
        for (uint64_t t = first; t < end; ++t) model(tokens, t, layer, &k[(t - first) * ROW], &v[(t - first) * ROW]);
        const pkv_tensor k_rows = rows(k, end - first), v_rows = rows(v, end - first);
        CHECK(pkv_table_write(table, 0, layer, first, end - first, &k_rows, &v_rows, NULL));
    }
    CHECK(pkv_table_commit(table, end, NULL));
}

/* Takes tokens [0, end) out again and compares every byte: returns how many tokens that were, or ends the program. */
static int verify(pkv_table *table, const pkv_token *tokens, uint64_t end) {
    float k[TOTAL * ROW], v[TOTAL * ROW], want_k[ROW], want_v[ROW];
    for (uint32_t layer = 0; layer < LAYERS; ++layer) {
        const pkv_tensor k_rows = rows(k, end), v_rows = rows(v, end);
        memset(k, 0xff, sizeof k);
        memset(v, 0xff, sizeof v);
        CHECK(pkv_table_gather(table, 0, layer, 0, end, &k_rows, &v_rows, NULL));
        for (uint64_t t = 0; t < end; ++t) {
            model(tokens, t, layer, want_k, want_v);
            if (memcmp(&k[t * ROW], want_k, sizeof want_k) != 0 || memcmp(&v[t * ROW], want_v, sizeof want_v) != 0) {
                fprintf(stderr, "token %d of layer %d has other bytes than were written\n", (int)t, (int)layer);
                exit(1);
            }
        }
    }
    return (int)end;
}

int main(void) {
    pkv_table *tables[3];
    pkv_token tokens[3][TOTAL]; /* of request 1, of request 2, of its fork */
    for (int t = 0; t < TOTAL; ++t) {
        tokens[0][t] = 1000 + t;
        tokens[1][t] = t < 35 ? tokens[0][t] : 2000 + t; /* the same system prompt, then another question */
        tokens[2][t] = tokens[1][t];
    }

    /* quickstart:begin */
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT; /* the model: 2 layers, 2 KV heads of 4 floats */
    group.num_pages = 64;
    group.num_layers = LAYERS;
    group.num_kv_heads = HEADS;
    group.k_head_dim = group.v_head_dim = HEAD_DIM;
    group.dtype = PKV_DTYPE_F32;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = 16;
    options.num_groups = 1;
    options.groups = &group;
    pkv_pool *pool;
    CHECK(pkv_pool_create(&options, &pool));

    for (int i = 0; i < 2; ++i) {
        pkv_prompt prompt = PKV_PROMPT_INIT;
        pkv_match match = PKV_MATCH_INIT;
        prompt.tokens = tokens[i]; /* request 2 begins with 35 tokens of request 1 */
        prompt.num_tokens = PROMPT;
        CHECK(pkv_table_create(pool, &tables[i]));
        CHECK(pkv_table_admit(tables[i], &prompt, NULL, &match)); /* takes what is cached, makes room for the rest */
        printf("request %d: %d of %d tokens came from the cache\n", i + 1, (int)match.tokens, PROMPT);
        compute(tables[i], tokens[i], match.tokens, PROMPT); /* pkv_table_write layer by layer, pkv_table_commit */
    }

    CHECK(pkv_table_fork(tables[1], NULL, &tables[2])); /* another answer to request 2: all pages are shared */
    CHECK(pkv_table_reserve(tables[2], TOTAL));         /* room for a token: the last block becomes private */
    CHECK(pkv_table_set_tokens(tables[2], PROMPT, 1, &tokens[2][PROMPT]));
    compute(tables[2], tokens[2], PROMPT, TOTAL);
    for (int i = 0; i < 3; ++i) /* pkv_table_gather, and a comparison */
        printf("table %d: %d tokens, every byte as written\n", i + 1,
               verify(tables[i], tokens[i], i < 2 ? PROMPT : TOTAL));
    /* quickstart:end */

    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    CHECK(pkv_pool_get_stats(pool, 0, &stats));
    printf("pool: 3 tables of 3 blocks hold %d pages; %d page was copied for the fork\n", (int)stats.held_pages,
           (int)stats.copied_pages);
    for (int i = 0; i < 3; ++i) CHECK(pkv_table_destroy(tables[i], NULL));
    CHECK(pkv_pool_destroy(pool));
    return 0;
}
