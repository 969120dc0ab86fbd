/* SPDX-License-Identifier: Apache-2.0 */
/* The shadow-model test's frame: a library pool and a model side by side, the trace of what was called, and rows. */
#ifndef PKV_TESTS_SHADOW_H
#define PKV_TESTS_SHADOW_H

#include "support/support.h"

#include "support/model.h"

#include <inttypes.h>

enum {
    trace_lines = 60,
    trace_width = 320,
    batch_rows = 6,
    num_digests = 3,
    num_namespaces = 4,
    num_known_keys = 1 << 14,
    most_hints = 512,
};

/* What the test knows of one layer group besides the model. */
typedef struct {
    uint64_t heads;
    uint64_t row_bytes[2]; /* K and V; V 0: none */
    int32_t dtype;
    pkv_layer_layout layouts[model_layers];
    /* The batch's arrays. */
    int32_t *block_table;
    int32_t *block_indices;
    int32_t block_indptr[batch_rows + 1];
    int64_t *slot_mapping;
    /* Pages that the call under way has handed out, in order. */
    pkv_page hints[most_hints];
    uint64_t num_hints;
} shadow_group;

typedef struct {
    model *m;
    pkv_pool *pool;
    pkv_pool_options options;
    pkv_group_options group_options[model_max_groups];
    shadow_group groups[model_max_groups];
    pkv_table *tables[model_max_tables];
    int max_tables;
    uint64_t max_tokens; /* of a sequence */
    bool equal_keys;
    bool windows_alone; /* no group is of full attention */
    bool undetermined;  /* the order of eviction is not promised here, and does not show: the run ends */

    pkv_batch *batch;
    uint64_t batch_tokens;
    uint64_t batch_blocks;
    int32_t last_page_len[batch_rows];
    int32_t lengths[batch_rows];

    uint64_t events_read;
    struct {
        uint64_t tag; /* 0: unused */
        pkv_key key;
    } known_keys[num_known_keys];
    uint64_t num_known;
    model_prompt last_prompt; /* that some call was given */
    pkv_pool_stats last_stats;

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
    fprintf(stderr, "page size %u, %u groups:", s->m->page_tokens, s->m->num_groups);
    for (uint32_t group = 0; group < s->m->num_groups; ++group) {
        const model_group *g = &s->m->groups[group];
        fprintf(stderr, " %" PRIu64 " pages", g->num_pages);
        if (g->window != 0) fprintf(stderr, " window %" PRIu64 " sinks %" PRIu64, g->window, g->sinks);
        fprintf(stderr, "%s,", g->bytes ? "" : " ids only");
    }
    fprintf(stderr, " step %" PRIu64 ", seed 0x%" PRIx64 "; to see it again:\n", s->step, s->seed);
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
    if (got != expected)
        mismatch(s, "%s is %" PRId64 ", the model says %" PRId64, what, (int64_t)got, (int64_t)expected);
}

static void same_pages(shadow *s, const pkv_page *got, const pkv_page *expected, uint64_t num, const char *what) {
    for (uint64_t i = 0; i < num; ++i)
        if (got[i] != expected[i])
            mismatch(s, "%s: page %" PRIu64 " of %" PRIu64 " is %d, the model says %d", what, i, num, got[i],
                     expected[i]);
}

static uint64_t below(shadow *s, uint64_t bound) { return bound == 0 ? 0 : random_below(&s->random, bound); }
static bool percent(shadow *s, uint64_t chance) { return below(s, 100) < chance; }
static uint32_t any_group(shadow *s) { return (uint32_t)below(s, s->m->num_groups); }

/* ---- where the order of eviction is not promised ---- */

static void forget_hints(shadow *s) {
    for (uint32_t group = 0; group < s->m->num_groups; ++group) s->groups[group].num_hints = 0;
}

static void hint_pages(shadow *s, uint32_t group, const pkv_page *pages, uint64_t num) {
    shadow_group *g = &s->groups[group];
    for (uint64_t i = 0; i < num && g->num_hints < most_hints; ++i) g->hints[g->num_hints++] = pages[i];
}

/* The library comes first in each operation: what it took shows, in its pages, and in which order, in what it handed out. */
static pkv_page chosen_by_library(void *user, uint32_t group, const pkv_page *pages, uint64_t num) {
    shadow *s = user;
    const shadow_group *g = &s->groups[group];
    pkv_page taken[model_max_pages];
    uint64_t num_taken = 0;
    for (uint64_t i = 0; i < num; ++i) {
        pkv_page_info info = PKV_PAGE_INFO_INIT;
        assert_ok(pkv_pool_page_info(s->pool, group, pages[i], &info));
        if (info.state != PKV_PAGE_CACHED) taken[num_taken++] = pages[i];
    }
    if (num_taken == 0) mismatch(s, "the library evicted a page before those below it");
    for (uint64_t i = 0; num_taken > 1 && i < g->num_hints; ++i)
        for (uint64_t j = 0; j < num_taken; ++j)
            if (taken[j] == g->hints[i]) return taken[j];
    if (num_taken > 1) s->undetermined = true;
    return taken[0];
}

/* ---- what rows hold ---- */

/* The caller's side of a write or gather of `num` rows; from row_tags, or cleared for the library to fill. */
static void make_rows(shadow *s, uint32_t group, uint32_t layer, uint64_t num, bool fill, pkv_tensor tensors[2]) {
    const shadow_group *g = &s->groups[group];
    assert_true(num <= s->max_rows);
    for (int side = 0; side < 2; ++side) {
        const uint64_t bytes = g->row_bytes[side];
        tensors[side] = (pkv_tensor)PKV_TENSOR_INIT;
        tensors[side].data = s->rows[side];
        tensors[side].dtype = g->dtype;
        tensors[side].num_tokens = num;
        if (!fill) memset(s->rows[side], 0xEE, num * g->heads * bytes);
        for (uint64_t i = 0; fill && i < num; ++i)
            for (uint64_t head = 0; head < g->heads; ++head)
                model_row(s->rows[side] + (i * g->heads + head) * bytes, bytes, s->row_tags[i],
                          group * model_layers + layer, side, head);
    }
}

static const pkv_tensor *v_of(const shadow *s, uint32_t group, const pkv_tensor tensors[2]) {
    return s->groups[group].row_bytes[1] > 0 ? &tensors[1] : NULL;
}

static void check_gathered(shadow *s, uint32_t group, uint32_t layer, uint64_t num, const char *what) {
    const shadow_group *g = &s->groups[group];
    uint8_t expected[64];
    for (int side = 0; side < 2; ++side) {
        const uint64_t bytes = g->row_bytes[side];
        for (uint64_t i = 0; bytes > 0 && i < num; ++i)
            for (uint64_t head = 0; head < g->heads; ++head) {
                model_row(expected, bytes, s->row_tags[i], group * model_layers + layer, side, head);
                if (memcmp(expected, s->rows[side] + (i * g->heads + head) * bytes, bytes) != 0)
                    mismatch(s,
                             "%s: %s of group %u, layer %u, row %" PRIu64 " of %" PRIu64 ", head %" PRIu64
                             " has other bytes",
                             what, side == 0 ? "K" : "V", group, layer, i, num, head);
            }
    }
}

static uint8_t *row_address(shadow *s, uint32_t group, uint32_t layer, int side, pkv_page page, uint64_t offset,
                            uint64_t head) {
    const pkv_layer_layout *layout = &s->groups[group].layouts[layer];
    const pkv_strides *strides = side == 0 ? &layout->k : &layout->v;
    uint8_t *base = side == 0 ? layout->k_base : layout->v_base;
    return base + (uint64_t)page * strides->page + offset * strides->token + head * strides->head;
}

/* All bytes of a page, read in place. */
static void check_page_bytes(shadow *s, uint32_t group, pkv_page page) {
    const shadow_group *g = &s->groups[group];
    uint8_t expected[64];
    settle_device();
    for (uint32_t layer = 0; layer < model_layers; ++layer)
        for (int side = 0; side < 2 && g->row_bytes[side] > 0; ++side)
            for (uint64_t offset = 0; offset < s->m->page_tokens; ++offset)
                for (uint64_t head = 0; head < g->heads; ++head) {
                    model_row(expected, g->row_bytes[side], model_tags(s->m, group, page, layer)[offset],
                              group * model_layers + layer, side, head);
                    if (memcmp(expected, row_address(s, group, layer, side, page, offset, head), g->row_bytes[side]) !=
                        0)
                        mismatch(
                            s, "group %u: page %d (count %" PRIu64 ") holds other bytes: layer %u, %s, offset %" PRIu64,
                            group, page, s->m->groups[group].pages[page].count, layer, side == 0 ? "K" : "V", offset);
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

#endif
