/* SPDX-License-Identifier: Apache-2.0 */
/* Exact attention of one token over a sequence that comes in pieces: an online softmax, whose state goes on from piece to
 * piece. The same operations in the same order of blocks, wherever the blocks lie and however they are cut into pieces:
 * the result is the same to the last bit. */
#ifndef LONGCONTEXT_ATTENTION_H
#define LONGCONTEXT_ATTENTION_H

#include <pagedkv/pagedkv.h>
#include <stdbool.h>
#include <stdint.h>

#define ATTENTION_STRIP 64u /* head dimensions are multiples of it */
#define ATTENTION_MAX_HEAD_DIM 256u
#define ATTENTION_MAX_PAGE_TOKENS 256u
#define ATTENTION_MAX_QUERIES 64u

typedef struct attention {
    uint32_t heads;   /* KV heads */
    uint32_t queries; /* query heads that share a KV head */
    uint32_t head_dim;
    uint64_t num_tokens; /* of the sequence */
    uint64_t seen;       /* of them, attended to so far */
    uint64_t next_block; /* the one that has to come next */
    const float *query;  /* [heads, queries, head_dim] */
    float *max;          /* [heads, queries]: the largest score so far */
    float *sum;          /* the same shape: of exp(score - max) */
    float *out;          /* as query: of exp(score - max) * V; divided by the sum at the end */
    float *weights;      /* [queries, ATTENTION_MAX_PAGE_TOKENS], of one block */
} attention;

/* Its arrays; false without memory. */
bool attention_init(attention *a, uint32_t heads, uint32_t queries, uint32_t head_dim);
void attention_free(attention *a);

/* Begins a layer. `query` stays the caller's. */
void attention_begin(attention *a, const float *query, uint64_t num_tokens);

/* Goes on with `count` blocks from first_block on: block first_block + i is slice ids[i] of the layout, whose rows are f16.
 * False, and nothing is done, when they do not follow what came before, or one of them is missing. */
bool attention_add(attention *a, const pkv_layer_layout *layout, const int32_t *ids, uint64_t count,
                   uint64_t first_block);

/* The result is in a->out. False when tokens are missing. */
bool attention_end(attention *a);

#endif
