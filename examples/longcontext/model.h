/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for a model: K and V of a prompt, and what a decode step does around its attention. Everything follows from a
 * seed, and what a layer gives goes into the next one: a wrong byte anywhere changes all that comes after it. */
#ifndef LONGCONTEXT_MODEL_H
#define LONGCONTEXT_MODEL_H

#include <pagedkv/pagedkv.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct model {
    uint64_t seed;
    uint32_t layers;
    uint32_t heads;    /* KV heads */
    uint32_t queries;  /* query heads that share a KV head */
    uint32_t head_dim; /* a multiple of 4 */
    /* of the token that is decoded */
    float *hidden; /* [heads, queries, head_dim] */
    float *query;  /* the same shape */
    float *k, *v;  /* [heads, head_dim] */
} model;

/* Takes the shape from *m; false without memory. */
bool model_init(model *m);
void model_free(model *m);

uint64_t model_row(const model *m);    /* elements of hidden, query, and an attention's result */
uint64_t model_kv_row(const model *m); /* elements of K, or V, of one token in one layer */

/* Ids of the prompt's tokens. */
void model_tokens(const model *m, uint64_t num_tokens, pkv_token *tokens);

/* K (kind 0) or V (kind 1) of tokens [first, first + count) of the prompt in a layer: f16, [count, heads, head_dim]. Not
 * what a model computes, but as large, and it lets a test build long prompts in no time. */
void model_prompt(const model *m, uint32_t layer, int kind, uint64_t first, uint64_t count, uint16_t *rows);

/* Begins a decode step: the hidden state of its token. */
void model_begin(model *m, uint64_t position);

/* What the hidden state gives for a layer's attention: m->query, m->k, m->v. */
void model_project(model *m, uint32_t layer);

/* Takes the attention's result into the hidden state. */
void model_end(model *m, const float *attention);

#endif
