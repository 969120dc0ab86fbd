/* SPDX-License-Identifier: Apache-2.0 */
#include "attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 16, STRIP = ATTENTION_STRIP };

bool attention_init(attention *a, uint32_t heads, uint32_t queries, uint32_t head_dim) {
    const uint64_t rows = (uint64_t)heads * queries;
    memset(a, 0, sizeof *a);
    a->heads = heads;
    a->queries = queries;
    a->head_dim = head_dim;
    a->max = malloc(rows * sizeof *a->max);
    a->sum = malloc(rows * sizeof *a->sum);
    a->out = malloc(rows * head_dim * sizeof *a->out);
    a->weights = malloc((uint64_t)queries * ATTENTION_MAX_PAGE_TOKENS * sizeof *a->weights);
    if (a->max != NULL && a->sum != NULL && a->out != NULL && a->weights != NULL) return true;
    attention_free(a);
    return false;
}

void attention_free(attention *a) {
    free(a->max);
    free(a->sum);
    free(a->out);
    free(a->weights);
    memset(a, 0, sizeof *a);
}

void attention_begin(attention *a, const float *query, uint64_t num_tokens) {
    const uint64_t rows = (uint64_t)a->heads * a->queries;
    a->query = query;
    a->num_tokens = num_tokens;
    a->seen = 0;
    a->next_block = 0;
    for (uint64_t i = 0; i < rows; ++i) {
        a->max[i] = -INFINITY;
        a->sum[i] = 0;
    }
    memset(a->out, 0, rows * a->head_dim * sizeof *a->out);
}

/* The loops below run over constant numbers of elements, or lanes: that is what makes compilers vectorise them without
 * being allowed to reorder sums. */

/* f16 to f32, exactly. The exponents differ by 112, and so do those of subnormal numbers; there are no infinities here. */
static void widen(const uint16_t *row, float *out, size_t dim) {
    union {
        uint32_t bits[STRIP];
        float values[STRIP];
    } strip;
    for (; dim > 0; dim -= STRIP, row += STRIP, out += STRIP) {
        for (int i = 0; i < STRIP; ++i) strip.bits[i] = (uint32_t)(row[i] & 0x7fffu) << 13;
        for (int i = 0; i < STRIP; ++i) strip.values[i] *= 0x1p112f;
        for (int i = 0; i < STRIP; ++i) strip.bits[i] |= (uint32_t)(row[i] & 0x8000u) << 16;
        for (int i = 0; i < STRIP; ++i) out[i] = strip.values[i];
    }
}

static float dot(const float *x, const float *y, size_t dim) {
    float lanes[LANES];
    for (int i = 0; i < LANES; ++i) lanes[i] = 0;
    for (; dim > 0; dim -= LANES, x += LANES, y += LANES)
        for (int i = 0; i < LANES; ++i) lanes[i] += x[i] * y[i];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    return lanes[0];
}

static void add_scaled(float *sum, float factor, const float *x, size_t dim) {
    for (; dim > 0; dim -= STRIP, sum += STRIP, x += STRIP)
        for (int i = 0; i < STRIP; ++i) sum[i] += factor * x[i];
}

static void scale(float *x, float factor, size_t dim) {
    for (; dim > 0; dim -= STRIP, x += STRIP)
        for (int i = 0; i < STRIP; ++i) x[i] *= factor;
}

/* Scores of one query row become weights exp(score - max); what was summed up under a smaller maximum shrinks. */
static void weigh(float *weights, uint64_t tokens, float *max, float *sum, float *out, size_t dim) {
    float largest = *max;
    for (uint64_t t = 0; t < tokens; ++t) largest = weights[t] > largest ? weights[t] : largest;
    const float shrink = expf(*max - largest);
    *max = largest;
    *sum *= shrink;
    scale(out, shrink, dim);
    for (uint64_t t = 0; t < tokens; ++t) {
        weights[t] = expf(weights[t] - largest);
        *sum += weights[t];
    }
}

/* One KV head of one block: rows at k and v, token_stride bytes apart. */
static void add_block(attention *a, uint32_t head, const unsigned char *k, uint64_t k_stride, const unsigned char *v,
                      uint64_t v_stride, uint64_t tokens) {
    float row[ATTENTION_MAX_HEAD_DIM];
    const uint32_t dim = a->head_dim;
    const float unit = 1 / sqrtf((float)dim);
    const uint64_t first = (uint64_t)head * a->queries;
    for (uint64_t t = 0; t < tokens; ++t) {
        widen((const uint16_t *)(const void *)(k + t * k_stride), row, dim);
        for (uint32_t q = 0; q < a->queries; ++q)
            a->weights[q * ATTENTION_MAX_PAGE_TOKENS + t] = unit * dot(row, a->query + (first + q) * dim, dim);
    }
    for (uint32_t q = 0; q < a->queries; ++q)
        weigh(a->weights + q * ATTENTION_MAX_PAGE_TOKENS, tokens, &a->max[first + q], &a->sum[first + q],
              a->out + (first + q) * dim, dim);
    for (uint64_t t = 0; t < tokens; ++t) {
        widen((const uint16_t *)(const void *)(v + t * v_stride), row, dim);
        for (uint32_t q = 0; q < a->queries; ++q)
            add_scaled(a->out + (first + q) * dim, a->weights[q * ATTENTION_MAX_PAGE_TOKENS + t], row, dim);
    }
}

bool attention_add(attention *a, const pkv_layer_layout *layout, const int32_t *ids, uint64_t count,
                   uint64_t first_block) {
    if (count == 0) return true;
    if (first_block != a->next_block) return false;
    for (uint64_t i = 0; i < count; ++i)
        if (ids[i] < 0) return false;
    for (uint64_t i = 0; i < count; ++i) {
        const uint64_t left = a->num_tokens - a->seen;
        const uint64_t tokens = left < layout->page_tokens ? left : layout->page_tokens;
        const unsigned char *const k = (const unsigned char *)layout->k_base + (uint64_t)ids[i] * layout->k.page;
        const unsigned char *const v = (const unsigned char *)layout->v_base + (uint64_t)ids[i] * layout->v.page;
        for (uint32_t h = 0; h < a->heads && tokens > 0; ++h)
            add_block(a, h, k + h * layout->k.head, layout->k.token, v + h * layout->v.head, layout->v.token, tokens);
        a->seen += tokens;
    }
    a->next_block += count;
    return true;
}

bool attention_end(attention *a) {
    const uint64_t rows = (uint64_t)a->heads * a->queries;
    if (a->seen < a->num_tokens) return false;
    for (uint64_t i = 0; i < rows; ++i)
        for (uint32_t d = 0; d < a->head_dim; ++d) a->out[i * a->head_dim + d] /= a->sum[i];
    return true;
}
