/* SPDX-License-Identifier: Apache-2.0 */
/* The shadow-model test's frame: a library pool and a model side by side, the trace of what was called, and the comparison
 * after each step. */
#ifndef PKV_TESTS_SHADOW_H
#define PKV_TESTS_SHADOW_H

#include "support/support.h"

#include "support/model.h"

#include <inttypes.h>

enum { trace_lines = 60, trace_width = 240, batch_rows = 6, num_digests = 3, num_namespaces = 4 };

typedef struct {
    model *m;
    pkv_pool *pool;
    pkv_table *tables[model_max_tables];
    int max_tables;
    uint64_t max_tokens; /* of a sequence */
    bool equal_keys;
    uint64_t heads;
    uint64_t row_bytes[2]; /* K and V; V 0: none */
    int32_t dtype;
    pkv_layer_layout layouts[model_layers];

    pkv_batch *batch;
    uint64_t batch_tokens;
    uint64_t batch_blocks;
    int32_t *block_table;
    int32_t *block_indices;
    int32_t block_indptr[batch_rows + 1];
    int32_t last_page_len[batch_rows];
    int32_t lengths[batch_rows];
    int64_t *slot_mapping;

    uint64_t seed;
    uint64_t step;
    test_random random;
    char trace[trace_lines][trace_width];
    uint8_t *rows[2]; /* buffers for the caller's side of K and V */
    uint64_t *row_tags;
    uint64_t max_rows;
} shadow;

/* ---- trace and failure ---- */

/* Adds to the current step's line. */
__attribute__((format(printf, 2, 3))) static void note(shadow *s, const char *format, ...) {
    char *line = s->trace[s->step % trace_lines];
    const size_t used = strlen(line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, trace_width - used, format, arguments);
    va_end(arguments);
}

/* The run under way, for whatever ends it: a mismatch, an assertion, a signal, a sanitizer. */
static shadow *current_run;

/* Prints the last operations of an unfinished run and the command that repeats it. */
static void report_run(void) {
    const shadow *s = current_run;
    if (s == NULL) return;
    current_run = NULL;
    for (uint64_t step = s->step >= trace_lines ? s->step - trace_lines + 1 : 0; step <= s->step; ++step)
        fprintf(stderr, "%7" PRIu64 " %s\n", step, s->trace[step % trace_lines]);
    fprintf(stderr, "page size %u, %" PRIu64 " pages, step %" PRIu64 ", seed 0x%" PRIx64 "; to see it again:\n",
            s->m->page_tokens, s->m->num_pages, s->step, s->seed);
    fprintf(stderr, "  PKV_TEST_SEED=0x%" PRIx64 " PKV_TEST_STEPS=%" PRIu64 " make check SUITE=shadow\n", s->seed,
            s->step + 1);
}

__attribute__((format(printf, 2, 3), noreturn)) static void mismatch(shadow *s, const char *format, ...) {
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    print_error("step %" PRIu64 ": %s\n", s->step, message);
    fail();
    abort();
}

static void same_status(shadow *s, pkv_status got, pkv_status expected, const char *call) {
    if (got != PKV_OK) note(s, " = %s", pkv_status_string(got));
    if (got == expected) return;
    char message[256];
    pkv_last_error(message, sizeof message);
    mismatch(s, "%s gave %s (last error: %s), the model says %s", call, pkv_status_string(got), message,
             pkv_status_string(expected));
}

static void same_number(shadow *s, uint64_t got, uint64_t expected, const char *what) {
    if (got != expected) mismatch(s, "%s is %" PRIu64 ", the model says %" PRIu64, what, got, expected);
}

static void same_pages(shadow *s, const pkv_page *got, const pkv_page *expected, uint64_t num, const char *what) {
    for (uint64_t i = 0; i < num; ++i)
        if (got[i] != expected[i])
            mismatch(s, "%s: page %" PRIu64 " of %" PRIu64 " is %d, the model says %d", what, i, num, got[i],
                     expected[i]);
}

static uint64_t below(shadow *s, uint64_t bound) { return bound == 0 ? 0 : random_below(&s->random, bound); }
static bool percent(shadow *s, uint64_t chance) { return below(s, 100) < chance; }

/* ---- what rows hold ---- */

/* The caller's side of a write or gather of `num` rows; from row_tags, or cleared for the library to fill. */
static void make_rows(shadow *s, uint32_t layer, uint64_t num, bool fill, pkv_tensor tensors[2]) {
    assert_true(num <= s->max_rows);
    for (int side = 0; side < 2; ++side) {
        const uint64_t bytes = s->row_bytes[side];
        tensors[side] = (pkv_tensor)PKV_TENSOR_INIT;
        tensors[side].data = s->rows[side];
        tensors[side].dtype = s->dtype;
        tensors[side].num_tokens = num;
        if (!fill) memset(s->rows[side], 0xEE, num * s->heads * bytes);
        for (uint64_t i = 0; fill && i < num; ++i)
            for (uint64_t head = 0; head < s->heads; ++head)
                model_row(s->rows[side] + (i * s->heads + head) * bytes, bytes, s->row_tags[i], layer, side, head);
    }
}

static void check_gathered(shadow *s, uint32_t layer, uint64_t num, const char *what) {
    uint8_t expected[64];
    for (int side = 0; side < 2; ++side) {
        const uint64_t bytes = s->row_bytes[side];
        for (uint64_t i = 0; i < num; ++i)
            for (uint64_t head = 0; head < s->heads; ++head) {
                model_row(expected, bytes, s->row_tags[i], layer, side, head);
                if (memcmp(expected, s->rows[side] + (i * s->heads + head) * bytes, bytes) != 0)
                    mismatch(s, "%s: %s of layer %u, row %" PRIu64 " of %" PRIu64 ", head %" PRIu64 " has other bytes",
                             what, side == 0 ? "K" : "V", layer, i, num, head);
            }
    }
}

static uint8_t *row_address(shadow *s, uint32_t layer, int side, pkv_page page, uint64_t offset, uint64_t head) {
    const pkv_layer_layout *layout = &s->layouts[layer];
    const pkv_strides *strides = side == 0 ? &layout->k : &layout->v;
    return (uint8_t *)(side == 0 ? layout->k_base : layout->v_base) + (uint64_t)page * strides->page +
           offset * strides->token + head * strides->head;
}

/* All bytes of a page, read in place. */
static void check_page_bytes(shadow *s, pkv_page page) {
    uint8_t expected[64];
    for (uint32_t layer = 0; layer < model_layers; ++layer)
        for (int side = 0; side < 2 && s->row_bytes[side] > 0; ++side)
            for (uint64_t offset = 0; offset < s->m->page_tokens; ++offset)
                for (uint64_t head = 0; head < s->heads; ++head) {
                    model_row(expected, s->row_bytes[side], model_tags(s->m, page, layer)[offset], layer, side, head);
                    if (memcmp(expected, row_address(s, layer, side, page, offset, head), s->row_bytes[side]) != 0)
                        mismatch(s, "page %d (count %" PRIu64 ") holds other bytes: layer %u, %s, offset %" PRIu64,
                                 page, s->m->pages[page].count, layer, side == 0 ? "K" : "V", offset);
                }
}

/* ---- prompts ---- */

typedef struct {
    pkv_prompt prompt;
    pkv_media media[model_max_media];
} api_prompt;

static const pkv_namespace *namespace_of(int ns) {
    static const pkv_namespace spaces[num_namespaces] = {
        PKV_NAMESPACE_INIT,
        {sizeof(pkv_namespace), {NULL, 0}, {"x", 1}, 0, 0, {NULL, 0}},
        {sizeof(pkv_namespace), {NULL, 0}, {NULL, 0}, 0, 0, {"x", 1}},
        {sizeof(pkv_namespace), {NULL, 0}, {"x", 1}, 0, 1, {NULL, 0}},
    };
    return ns == 0 ? NULL : &spaces[ns];
}

static const pkv_prompt *to_api(const model_prompt *prompt, api_prompt *out) {
    static const pkv_bytes digests[num_digests] = {{"a", 1}, {"ab", 2}, {"b", 1}};
    out->prompt = prompt_of(prompt->tokens, prompt->num_tokens);
    out->prompt.ns = namespace_of(prompt->ns);
    out->prompt.media = out->media;
    out->prompt.num_media = (uint64_t)prompt->num_media;
    for (int i = 0; i < prompt->num_media; ++i)
        out->media[i] =
            (pkv_media){prompt->media[i].position, prompt->media[i].num_tokens, digests[prompt->media[i].digest]};
    return &out->prompt;
}

/* ---- comparison ---- */

static void check_stats(shadow *s) {
    const pkv_pool_stats got = stats_of(s->pool);
    const pkv_pool_stats *expected = &s->m->stats;
#define SAME(field) same_number(s, got.field, expected->field, "stats." #field)
    SAME(num_pages);
    SAME(free_pages);
    SAME(held_pages);
    SAME(cached_pages);
    SAME(quarantined_pages);
    SAME(tables);
    SAME(namespaces);
    SAME(index_blocks);
    SAME(requests);
    SAME(asked_tokens);
    SAME(hit_tokens);
    SAME(retries);
    SAME(refused);
    SAME(probes);
    SAME(allocated_pages);
    SAME(failed_allocations);
    SAME(evicted_pages);
    SAME(cleared_pages);
    SAME(published_blocks);
    SAME(unpublished_blocks);
    SAME(duplicate_blocks);
    SAME(copied_pages);
#undef SAME
    if (!s->equal_keys) same_number(s, got.key_collisions, 0, "stats.key_collisions");
    if (s->m->max_cached != 0 && got.cached_pages > s->m->max_cached) mismatch(s, "more pages cached than allowed");
}

static void check_page(shadow *s, pkv_page page) {
    const model_page *expected = &s->m->pages[page];
    const pkv_page_info got = page_of(s->pool, page);
    const bool published = expected->node >= 0;
    const int32_t state = expected->count > 0 ? PKV_PAGE_HELD : published ? PKV_PAGE_CACHED : PKV_PAGE_FREE;
    if (got.count != expected->count || got.state != state || got.published != published ||
        got.block != (published ? s->m->nodes[expected->node].block : 0))
        mismatch(s,
                 "page %d has count %" PRIu64 ", state %d, published %d, block %" PRIu64
                 "; the model says count %" PRIu64 ", state %d, published %d",
                 page, got.count, got.state, got.published, got.block, expected->count, state, published);
}

static void check_table(shadow *s, int index) {
    const model_table *t = &s->m->tables[index];
    const pkv_table_info got = info_of(s->tables[index]);
    pkv_page pages[model_max_pages + 1];
    uint64_t num_pages = 0;
    char what[40];
    snprintf(what, sizeof what, "table %d", index);
    if (got.named != t->named || got.reserved != model_reserved(s->m, t) || got.committed != t->committed ||
        got.published != t->published * s->m->page_tokens || got.matched != t->matched || got.blocks != t->num_pages ||
        got.committed_blocks != (t->committed + s->m->page_tokens - 1) / s->m->page_tokens)
        mismatch(s,
                 "%s has named %" PRIu64 ", reserved %" PRIu64 ", committed %" PRIu64 ", published %" PRIu64
                 ", matched %" PRIu64 "; the model says %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64,
                 what, got.named, got.reserved, got.committed, got.published, got.matched, t->named,
                 model_reserved(s->m, t), t->committed, t->published * s->m->page_tokens, t->matched);
    assert_ok(pkv_table_pages(s->tables[index], 0, pages, model_max_pages + 1, &num_pages));
    same_number(s, num_pages, t->num_pages, what);
    same_pages(s, pages, t->pages, num_pages, what);
    /* What is committed is the KV of exactly this sequence. */
    for (uint64_t i = 0; s->m->bytes && i < t->committed; ++i)
        for (uint32_t layer = 0; layer < model_layers; ++layer)
            if (model_row_tag(s->m, t, layer, i) != t->sequence.tags[i])
                mismatch(s, "%s: committed token %" PRIu64 " of layer %u has the KV of another prefix", what, i, layer);
}

/* Every block that the model says is published is found under its whole prefix, by a probe. */
static void check_published(shadow *s) {
    static model_prompt prompt;
    const uint32_t page_tokens = s->m->page_tokens;
    for (uint64_t i = 0; i < s->m->num_pages; ++i) {
        const model_node *leaf = &s->m->nodes[i];
        if (!leaf->used || (leaf->block + 1) * page_tokens > model_max_tokens) continue;
        if (s->m->num_pages > 40 && !percent(s, 10)) continue;
        prompt.ns = s->m->roots[leaf->root].ns;
        prompt.num_tokens = (leaf->block + 1) * page_tokens;
        prompt.num_media = 0;
        for (const model_node *node = leaf;; node = &s->m->nodes[node->parent]) {
            memcpy(prompt.tokens + node->block * page_tokens, node->tokens, page_tokens * sizeof(pkv_token));
            memmove(prompt.media + node->num_media, prompt.media, (size_t)prompt.num_media * sizeof(model_media));
            memcpy(prompt.media, node->media, (size_t)node->num_media * sizeof(model_media));
            for (int j = 0; j < node->num_media; ++j) prompt.media[j].position += node->block * page_tokens;
            prompt.num_media += node->num_media;
            if (node->parent < 0) break;
        }
        api_prompt api;
        same_number(s, probe_tokens(s->pool, to_api(&prompt, &api)), prompt.num_tokens,
                    "tokens found of a published prefix");
        ++s->m->stats.probes;
        for (uint32_t layer = 0; s->m->bytes && layer < model_layers; ++layer)
            if (model_tags(s->m, leaf->page, layer)[page_tokens - 1] != leaf->tag)
                mismatch(s, "page %d is published under a prefix that is not its content's", leaf->page);
    }
}

static void check_everything(shadow *s) {
    if (!model_gauges(s->m)) mismatch(s, "the model contradicts itself");
    check_stats(s);
    const uint64_t num_pages = s->m->num_pages;
    const bool all = num_pages <= 40 || s->step % 32 == 0;
    for (uint64_t i = 0; i < (all ? num_pages : 24); ++i) check_page(s, (pkv_page)(all ? i : below(s, num_pages)));
    for (int i = 0; i < s->max_tables; ++i)
        if (s->m->tables[i].alive) check_table(s, i);
    if (s->step % 64 == 63) check_published(s);
    if (!s->m->bytes) return;
    if (s->step % 128 == 127)
        for (uint64_t page = 0; page < num_pages; ++page) check_page_bytes(s, (pkv_page)page);
    else
        check_page_bytes(s, (pkv_page)below(s, num_pages));
}

#endif
