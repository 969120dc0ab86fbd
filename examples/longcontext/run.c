/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include "../replay/progress.h"
#include "attention.h"
#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CHUNK_PAGES 32u
#define LOAD_TIMEOUT_NS UINT64_C(60000000000)

struct run_sequence {
    run_config config;
    run_geometry geometry;
    model model;
    attention attention;
    pkv_pool *pool;
    pkv_table *table;
    pkv_prefetch *session;   /* NULL while everything is in pages */
    pkv_page *pages;         /* the block table then, [geometry.sequence_pages] */
    uint64_t first_resident; /* the blocks before it are spilled */
};

static bool ok(pkv_status status, const char *what) {
    char message[256] = "";
    if (status == PKV_OK) return true;
    (void)pkv_last_error(message, sizeof message);
    fprintf(stderr, "longcontext: %s: %s: %s\n", what, pkv_status_string(status), message);
    return false;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static uint64_t parts_of(uint64_t n, uint64_t part) { return (n + part - 1) / part; }

bool run_shape(const run_config *c, run_geometry *g) {
    const uint64_t slice = c->page_tokens * c->heads * c->head_dim * 2 * sizeof(uint16_t);
    const uint64_t header = 256 + 8 * c->layers + sizeof(pkv_token) * c->page_tokens;
    g->page_bytes = c->layers * slice;
    g->prompt_pages = parts_of(c->tokens, c->page_tokens);
    g->sequence_pages = parts_of(c->tokens + c->steps, c->page_tokens);
    g->pool_pages = parts_of(g->sequence_pages, c->ratio);
    /* Few resident blocks and much staging memory, or the other way round: all of them are needed once in a step, so that a
     * resident block saves one load, and room for loads that run ahead may hide many. */
    g->staging_pages = g->pool_pages / 4 > c->buffers ? g->pool_pages / 4 : c->buffers;
    const uint64_t others = g->staging_pages + g->sequence_pages - g->prompt_pages;
    g->resident_pages = others < g->pool_pages ? g->pool_pages - others : 0;
    g->image_bytes = PKV_IMAGE_ALIGNMENT *
                     (parts_of(header, PKV_IMAGE_ALIGNMENT) + c->layers * parts_of(slice, PKV_IMAGE_ALIGNMENT));
    g->file_bytes = g->image_bytes * (g->sequence_pages + 8);
    return g->resident_pages > 0;
}

bool run_outputs_init(const run_config *c, run_outputs *outputs) {
    outputs->row = c->heads * c->queries * c->head_dim;
    outputs->values = malloc(c->steps * outputs->row * sizeof *outputs->values);
    outputs->digests = malloc(c->steps * PKV_DIGEST_BYTES);
    outputs->ranges = malloc(c->steps * sizeof *outputs->ranges);
    outputs->seconds = 0;
    if (outputs->values != NULL && outputs->digests != NULL && outputs->ranges != NULL) return true;
    fprintf(stderr, "longcontext: no memory for the outputs of %" PRIu64 " steps\n", c->steps);
    run_outputs_free(outputs);
    return false;
}

void run_outputs_free(run_outputs *outputs) {
    free(outputs->values);
    free(outputs->digests);
    free(outputs->ranges);
    memset(outputs, 0, sizeof *outputs);
}

uint64_t run_compare(const run_config *c, const run_outputs *a, const run_outputs *b) {
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < c->steps; ++i)
        wrong += memcmp(a->values + i * a->row, b->values + i * b->row, a->row * sizeof *a->values) != 0 ||
                 memcmp(a->digests + i * PKV_DIGEST_BYTES, b->digests + i * PKV_DIGEST_BYTES, PKV_DIGEST_BYTES) != 0;
    return wrong;
}

/* ---- the prompt -------------------------------------------------------------------------------------------------- */

static pkv_tensor tensor_of(void *data, int32_t dtype, uint64_t num_tokens) {
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.data = data;
    tensor.dtype = dtype;
    tensor.num_tokens = num_tokens;
    return tensor;
}

static bool make_pool(run_sequence *s, pkv_tier *tier) {
    const run_config *const c = &s->config;
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = tier != NULL ? s->geometry.pool_pages : s->geometry.sequence_pages;
    group.num_layers = (uint32_t)c->layers;
    group.num_kv_heads = (uint32_t)c->heads;
    group.k_head_dim = group.v_head_dim = (uint32_t)c->head_dim;
    group.dtype = PKV_DTYPE_F16;
    pkv_tier_attachment below = PKV_TIER_ATTACHMENT_INIT;
    below.tier = tier;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = (uint32_t)c->page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = &below;
    options.num_tiers = tier != NULL;
    /* The default is too little for 8 images where these are large. */
    if (16 * s->geometry.image_bytes > UINT64_C(32) << 20) options.staging_bytes = 16 * s->geometry.image_bytes;
    return ok(pkv_pool_create(&options, &s->pool), "pkv_pool_create") &&
           ok(pkv_table_create(s->pool, &s->table), "pkv_table_create");
}

static bool admit(run_sequence *s) {
    const uint64_t tokens = s->config.tokens;
    pkv_token *const ids = malloc(tokens * sizeof *ids);
    pkv_prompt prompt = PKV_PROMPT_INIT;
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    if (ids == NULL) return ok(PKV_ERR_NO_MEMORY, "prompt");
    model_tokens(&s->model, tokens, ids);
    prompt.tokens = ids;
    prompt.num_tokens = tokens;
    options.reserve_tokens = 1; /* room for each chunk comes when its turn does */
    const pkv_status status = pkv_table_admit(s->table, &prompt, &options, NULL);
    free(ids);
    return ok(status, "pkv_table_admit");
}

/* Moves the first blocks down until `pages` more find room. */
static bool make_room(run_sequence *s, uint64_t blocks, uint64_t pages, uint64_t room) {
    const uint64_t resident = blocks - s->first_resident;
    if (resident + pages <= room) return true;
    const uint64_t count = resident + pages - room;
    pkv_spill_result result = PKV_SPILL_RESULT_INIT;
    if (!ok(pkv_table_spill(s->table, s->first_resident, count, NULL, &result), "pkv_table_spill")) return false;
    s->first_resident += count;
    return true;
}

static bool write_chunk(run_sequence *s, uint64_t first, uint64_t count, uint16_t *k, uint16_t *v) {
    const pkv_tensor k_rows = tensor_of(k, PKV_DTYPE_F16, count), v_rows = tensor_of(v, PKV_DTYPE_F16, count);
    for (uint32_t layer = 0; layer < s->config.layers; ++layer) {
        model_prompt(&s->model, layer, 0, first, count, k);
        model_prompt(&s->model, layer, 1, first, count, v);
        if (!ok(pkv_table_write(s->table, 0, layer, first, count, &k_rows, &v_rows, NULL), "pkv_table_write"))
            return false;
    }
    return ok(pkv_table_commit(s->table, first + count, NULL), "pkv_table_commit");
}

static bool build_prompt(run_sequence *s, uint64_t room) {
    const run_config *const c = &s->config;
    const uint64_t chunk = c->page_tokens * (room / 2 > MAX_CHUNK_PAGES ? MAX_CHUNK_PAGES : parts_of(room, 2));
    uint16_t *const rows = malloc(2 * chunk * model_kv_row(&s->model) * sizeof *rows);
    bool good = rows != NULL || ok(PKV_ERR_NO_MEMORY, "rows of the prompt");
    progress bar;
    progress_start(&bar, room < s->geometry.prompt_pages ? "longcontext: prompt, spilled" : "longcontext: prompt",
                   c->tokens);
    for (uint64_t first = 0; good && first < c->tokens; first += chunk) {
        const uint64_t count = c->tokens - first < chunk ? c->tokens - first : chunk;
        good = make_room(s, first / c->page_tokens, parts_of(count, c->page_tokens), room) &&
               ok(pkv_table_reserve(s->table, first + count), "pkv_table_reserve") &&
               write_chunk(s, first, count, rows, rows + chunk * model_kv_row(&s->model));
        progress_update(&bar, first + count);
    }
    progress_finish(&bar);
    free(rows);
    return good;
}

run_sequence *run_build(const run_config *config, pkv_tier *tier) {
    run_sequence *const s = calloc(1, sizeof *s);
    if (s == NULL) return ok(PKV_ERR_NO_MEMORY, "sequence") ? s : NULL;
    s->config = *config;
    (void)run_shape(config, &s->geometry);
    s->model.seed = config->seed;
    s->model.layers = (uint32_t)config->layers;
    s->model.heads = (uint32_t)config->heads;
    s->model.queries = (uint32_t)config->queries;
    s->model.head_dim = (uint32_t)config->head_dim;
    s->pages = malloc(s->geometry.sequence_pages * sizeof *s->pages);
    const bool memory = s->pages != NULL && model_init(&s->model) &&
                        attention_init(&s->attention, s->model.heads, s->model.queries, s->model.head_dim);
    const uint64_t room = tier != NULL ? s->geometry.resident_pages : s->geometry.sequence_pages;
    if ((memory || ok(PKV_ERR_NO_MEMORY, "model")) && make_pool(s, tier) && admit(s) && build_prompt(s, room)) return s;
    run_destroy(s);
    return NULL;
}

void run_destroy(run_sequence *s) {
    if (s == NULL) return;
    if (s->session != NULL) (void)pkv_prefetch_close(s->session, NULL);
    if (s->table != NULL) (void)pkv_table_destroy(s->table, NULL);
    if (s->pool != NULL) (void)pkv_pool_destroy(s->pool);
    model_free(&s->model);
    attention_free(&s->attention);
    free(s->pages);
    free(s);
}

uint64_t run_absent_blocks(const run_sequence *s) {
    pkv_table_info info = PKV_TABLE_INFO_INIT;
    return ok(pkv_table_get_info(s->table, &info), "pkv_table_get_info") ? info.absent_blocks : 0;
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

/* K and V of the step's token: f32, which the library converts to the pages' f16. */
static bool write_token(run_sequence *s, uint32_t layer, uint64_t position) {
    const pkv_tensor k = tensor_of(s->model.k, PKV_DTYPE_F32, 1), v = tensor_of(s->model.v, PKV_DTYPE_F32, 1);
    return ok(pkv_table_write(s->table, 0, layer, position, 1, &k, &v, NULL), "pkv_table_write");
}

/* A layer whose blocks are all in pages. */
static bool attend_pages(run_sequence *s, uint32_t layer, uint64_t num_tokens) {
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    return ok(pkv_pool_layout(s->pool, 0, layer, &layout), "pkv_pool_layout") &&
           attention_add(&s->attention, &layout, s->pages, parts_of(num_tokens, s->config.page_tokens), 0);
}

/* A layer as the session gives it, range by range. A missing block ends the layer: pkv_prefetch_step_end says why. */
static bool attend_session(run_sequence *s, uint32_t layer, uint64_t *ranges) {
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    bool good = true;
    do {
        if (!ok(pkv_prefetch_layer_acquire(s->session, layer, LOAD_TIMEOUT_NS, NULL, &view),
                "pkv_prefetch_layer_acquire"))
            return false;
        ++*ranges;
        good = good && attention_add(&s->attention, &view.layout, view.slices + view.indptr[0],
                                     (uint64_t)(view.indptr[1] - view.indptr[0]), view.first_block[0]);
        if (!ok(pkv_prefetch_layer_release(s->session, layer, NULL), "pkv_prefetch_layer_release")) return false;
    } while (!view.last);
    return good;
}

static bool add_to_digest(uint8_t *digest, const float *values, uint64_t count) {
    const pkv_bytes parts[2] = {{digest, PKV_DIGEST_BYTES}, {values, count * sizeof *values}};
    uint8_t both[PKV_DIGEST_BYTES];
    if (!ok(pkv_digest(parts, 2, both), "pkv_digest")) return false;
    memcpy(digest, both, sizeof both);
    return true;
}

/* All layers of one token. The session is in a step, or s->pages is the block table. */
static bool layers(run_sequence *s, uint64_t position, uint8_t *digest, uint64_t *ranges) {
    model_begin(&s->model, position);
    for (uint32_t layer = 0; layer < s->config.layers; ++layer) {
        model_project(&s->model, layer);
        if (!write_token(s, layer, position)) return false;
        attention_begin(&s->attention, s->model.query, position + 1);
        const bool good = s->session != NULL ? attend_session(s, layer, ranges) : attend_pages(s, layer, position + 1);
        if (!good || !attention_end(&s->attention)) {
            fprintf(stderr, "longcontext: layer %" PRIu32 " of token %" PRIu64 ": blocks are missing\n", layer,
                    position);
            return false;
        }
        if (!add_to_digest(digest, s->attention.out, model_row(&s->model))) return false;
        model_end(&s->model, s->attention.out);
    }
    return true;
}

static bool step_pages(run_sequence *s, uint64_t position, uint8_t *digest) {
    uint64_t blocks = 0, ranges = 0;
    return ok(pkv_table_pages(s->table, 0, s->pages, s->geometry.sequence_pages, &blocks), "pkv_table_pages") &&
           layers(s, position, digest, &ranges);
}

static bool step_session(run_sequence *s, uint64_t position, uint8_t *digest, uint64_t *ranges) {
    const uint64_t num_tokens = position + 1;
    pkv_status status = PKV_OK;
    if (!ok(pkv_prefetch_step_begin(s->session, 1, &s->table, &num_tokens, NULL), "pkv_prefetch_step_begin"))
        return false;
    const bool good = layers(s, position, digest, ranges);
    return ok(pkv_prefetch_step_end(s->session, &status), "pkv_prefetch_step_end") &&
           ok(status, "what the step gave") && good;
}

static bool decode(run_sequence *s, const char *label, run_outputs *outputs) {
    progress bar;
    progress_start(&bar, label, s->config.steps);
    const double begin = now_seconds();
    bool good = true;
    for (uint64_t step = 0; good && step < s->config.steps; ++step) {
        const uint64_t position = s->config.tokens + step;
        uint8_t *const digest = outputs->digests + step * PKV_DIGEST_BYTES;
        memset(digest, 0, PKV_DIGEST_BYTES);
        outputs->ranges[step] = 0;
        good = ok(pkv_table_reserve(s->table, position + 1), "pkv_table_reserve") &&
               (s->session != NULL ? step_session(s, position, digest, &outputs->ranges[step])
                                   : step_pages(s, position, digest)) &&
               ok(pkv_table_commit(s->table, position + 1, NULL), "pkv_table_commit");
        memcpy(outputs->values + step * outputs->row, s->model.hidden, outputs->row * sizeof *outputs->values);
        progress_update(&bar, step + 1);
    }
    outputs->seconds = now_seconds() - begin;
    progress_finish(&bar);
    return good;
}

bool run_resident(run_sequence *s, run_outputs *outputs) { return decode(s, "longcontext: all in pages", outputs); }

bool run_session(run_sequence *s, uint32_t flags, run_outputs *outputs, pkv_prefetch_stats *stats) {
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    options.flags = flags;
    options.num_buffers = (uint32_t)s->config.buffers;
    options.staging_pages = &s->geometry.staging_pages;
    options.max_tables = 1;
    if (!ok(pkv_prefetch_open(s->pool, &options, &s->session), "pkv_prefetch_open")) return false;
    const bool off = (flags & PKV_PREFETCH_OFF) != 0;
    /* Numbers are taken while the session is open: what closing it drops is no fault of its predictions. */
    const bool good = decode(s, off ? "longcontext: prefetch off" : "longcontext: prefetch on", outputs) &&
                      ok(pkv_prefetch_get_stats(s->session, stats), "pkv_prefetch_get_stats");
    const bool closed = ok(pkv_prefetch_close(s->session, NULL), "pkv_prefetch_close");
    s->session = NULL;
    return good && closed && ok(pkv_table_truncate(s->table, s->config.tokens, NULL), "pkv_table_truncate");
}
