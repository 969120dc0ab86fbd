/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a stream of numbers is for. */
enum { TOKENS = 1, HIDDEN, WEIGHTS, PROMPT };

#define STEP UINT64_C(0xd1342543de82ef95) /* odd: its multiples go through all 64-bit numbers */

/* Every bit of x reaches every bit of the result. */
static uint64_t scramble(uint64_t x) {
    for (int round = 0; round < 3; ++round) {
        x ^= x >> 32;
        x *= STEP;
    }
    return x ^ x >> 32;
}

static uint64_t stream(const model *m, int purpose, uint64_t index) {
    return scramble(scramble(m->seed + (uint64_t)purpose * STEP) + index);
}

/* -1 <= x < 1 */
static float uniform(uint64_t base, uint64_t i) { return (float)(scramble(base + i) >> 40) * 0x1p-23f - 1.0f; }

uint64_t model_row(const model *m) { return model_kv_row(m) * m->queries; }

uint64_t model_kv_row(const model *m) { return (uint64_t)m->heads * m->head_dim; }

bool model_init(model *m) {
    m->hidden = malloc(model_row(m) * sizeof *m->hidden);
    m->query = malloc(model_row(m) * sizeof *m->query);
    m->k = malloc(model_kv_row(m) * sizeof *m->k);
    m->v = malloc(model_kv_row(m) * sizeof *m->v);
    if (m->hidden != NULL && m->query != NULL && m->k != NULL && m->v != NULL) return true;
    model_free(m);
    return false;
}

void model_free(model *m) {
    free(m->hidden);
    free(m->query);
    free(m->k);
    free(m->v);
    m->hidden = m->query = m->k = m->v = NULL;
}

void model_tokens(const model *m, uint64_t num_tokens, pkv_token *tokens) {
    const uint64_t base = stream(m, TOKENS, 0);
    for (uint64_t i = 0; i < num_tokens; ++i) tokens[i] = (pkv_token)(scramble(base + i) >> 33);
}

/* Four elements from one number: f16 of either sign from 0.5 to below 1, whatever the ten bits of their fractions. Numbers
 * need not pass as random, but no two rows may be alike; one multiplication is enough, and fast. */
void model_prompt(const model *m, uint32_t layer, int kind, uint64_t first, uint64_t count, uint16_t *rows) {
    const uint64_t base = stream(m, PROMPT, 2 * (uint64_t)layer + (uint64_t)kind), words = model_kv_row(m) / 4;
    for (uint64_t i = first * words, end = (first + count) * words; i < end; ++i, rows += 4) {
        uint64_t x = (base + i) * STEP;
        x ^= x >> 29;
        x = (x & UINT64_C(0x83ff83ff83ff83ff)) | UINT64_C(0x3800380038003800);
        memcpy(rows, &x, sizeof x);
    }
}

/* to = from, scaled to a mean square of one. */
static void normalise(const float *from, float *to, uint64_t n) {
    double squares = 1e-30; /* nothing is divided by 0 */
    for (uint64_t i = 0; i < n; ++i) squares += (double)from[i] * (double)from[i];
    const float factor = (float)(1 / sqrt(squares / (double)n));
    for (uint64_t i = 0; i < n; ++i) to[i] = from[i] * factor;
}

void model_begin(model *m, uint64_t position) {
    const uint64_t base = stream(m, HIDDEN, position);
    for (uint64_t i = 0; i < model_row(m); ++i) m->hidden[i] = uniform(base, i);
}

/* In place of matrices, which would take all the time: each layer multiplies by weights of its own, element by element. */
void model_project(model *m, uint32_t layer) {
    const uint64_t base = stream(m, WEIGHTS, layer), row = model_row(m), kv_row = model_kv_row(m);
    normalise(m->hidden, m->query, row);
    for (uint64_t i = 0; i < kv_row; ++i) { /* each head's from its first query head, before that is weighed */
        const uint64_t from = i / m->head_dim * m->queries * m->head_dim + i % m->head_dim;
        m->k[i] = m->query[from] * uniform(base, row + i);
        m->v[i] = m->query[from] * uniform(base, row + kv_row + i);
    }
    for (uint64_t i = 0; i < row; ++i) m->query[i] *= uniform(base, i);
}

/* Attention over many tokens averages, and its result is small: brought back to size, what differs in its last bits
 * differs in what follows. */
void model_end(model *m, const float *attention) {
    const uint64_t row = model_row(m);
    normalise(attention, m->query, row);
    for (uint64_t i = 0; i < row; ++i) m->hidden[i] = 0.5f * m->hidden[i] + m->query[(i + row / 2 + 1) % row];
}
