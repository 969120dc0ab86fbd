/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include "kv.h"
#include "progress.h"
#include "tiers.h"

#include <inttypes.h>
#include <pagedkv/pagedkv.h>
#include <stdlib.h>
#include <string.h>

/* K and V cross the ABI in pieces of about this size, which stay in a core's own cache. */
#define PIECE_BYTES (128u << 10)

/* A disk may stall for long; a replay that waits is of more use than one that gives up. */
#define WAIT_NS UINT64_C(60000000000)

typedef struct replay {
    const run_config *config;
    run_result *result;
    trace_reader reader;
    pkv_pool *pool;
    pkv_namespace ns;
    pkv_token *tokens;     /* of one request */
    int32_t *where;        /* of its pages: PKV_BLOCK_* */
    uint64_t *rows[2];     /* one piece of K, of V */
    uint64_t token_words;  /* 8-byte words of a token's K, or V, in one layer */
    uint64_t piece_tokens; /* a multiple of a trace block, or a power of two below it */
} replay;

uint64_t run_token_bytes(const run_config *config) {
    return 2 * (uint64_t)config->layers * config->heads * config->head_dim * pkv_dtype_bytes(PKV_DTYPE_F16);
}

uint64_t run_num_pages(const run_config *config) {
    return config->capacity * (TRACE_BLOCK_TOKENS / config->page_tokens);
}

double run_hit_rate(const run_result *result) {
    return result->blocks > 0 ? (double)result->hit_blocks / (double)result->blocks : 0;
}

static bool ok(pkv_status status, const char *call) {
    char message[512] = "";
    if (status == PKV_OK) return true;
    (void)pkv_last_error(message, sizeof message);
    fprintf(stderr, "replay: %s: %s: %s\n", call, pkv_status_string(status), message);
    return false;
}

static bool make_pool(replay *r) {
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = run_num_pages(r->config);
    group.num_layers = r->config->layers;
    group.num_kv_heads = r->config->heads;
    group.k_head_dim = r->config->head_dim;
    group.v_head_dim = r->config->head_dim;
    group.dtype = PKV_DTYPE_F16;
    group.memory = r->config->ids_only ? PKV_MEMORY_NONE : PKV_MEMORY_POOL;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = r->config->page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    pkv_tier_attachment attachments[TIERS_MAX];
    if (r->config->tiers != NULL && r->config->tiers->count > 0) {
        tiers_attach(r->config->tiers, attachments);
        options.tiers = attachments;
        options.num_tiers = r->config->tiers->count;
        options.clean_pages = group.num_pages; /* all that is cached is stored as soon as there is time */
        /* An engine in a hurry would rather lose an image than wait for its store. Here the figures should tell what the
         * tiers can hold, not how fast this machine's disk is. */
        options.flags = PKV_POOL_KEEP_UNSTORED;
    }
    return ok(pkv_pool_create(&options, &r->pool), "pkv_pool_create");
}

static bool make_buffers(replay *r, const trace_totals *totals) {
    r->token_words = run_token_bytes(r->config) / r->config->layers / 2 / sizeof(uint64_t);
    const uint64_t token_bytes = r->token_words * sizeof(uint64_t);
    const uint64_t block_bytes = token_bytes * TRACE_BLOCK_TOKENS;
    r->piece_tokens = TRACE_BLOCK_TOKENS;
    if (block_bytes <= PIECE_BYTES) r->piece_tokens *= PIECE_BYTES / block_bytes;
    while (r->piece_tokens > 1 && r->piece_tokens * token_bytes > PIECE_BYTES) r->piece_tokens /= 2;
    r->tokens = malloc(totals->max_blocks * TRACE_BLOCK_TOKENS * sizeof *r->tokens);
    r->where = malloc(totals->max_blocks * (TRACE_BLOCK_TOKENS / r->config->page_tokens) * sizeof *r->where);
    r->rows[KV_K] = malloc(r->piece_tokens * token_bytes);
    r->rows[KV_V] = malloc(r->piece_tokens * token_bytes);
    if (r->tokens != NULL && r->where != NULL && r->rows[KV_K] != NULL && r->rows[KV_V] != NULL) return true;
    fprintf(stderr, "replay: out of memory\n");
    return false;
}

static pkv_tensor rows_tensor(const replay *r, int kind, uint64_t num_tokens) {
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.data = r->rows[kind];
    tensor.dtype = PKV_DTYPE_F16;
    tensor.num_tokens = num_tokens;
    return tensor;
}

/* Fills the piece [first, first + count) of one layer, as a model's forward pass would. */
static void compute_rows(replay *r, uint32_t layer, int kind, uint64_t first, uint64_t count) {
    for (uint64_t done = 0; done < count;) {
        const uint64_t token = first + done, offset = token % TRACE_BLOCK_TOKENS;
        const uint64_t left = count - done, n = left < TRACE_BLOCK_TOKENS - offset ? left : TRACE_BLOCK_TOKENS - offset;
        kv_fill(r->reader.request.ids[token / TRACE_BLOCK_TOKENS], layer, kind, offset * r->token_words,
                n * r->token_words, r->rows[kind] + done * r->token_words);
        done += n;
    }
}

static void report_wrong(const replay *r, uint32_t layer, int kind, uint64_t token, uint64_t offset) {
    const uint64_t token_bytes = r->token_words * sizeof(uint64_t);
    fprintf(stderr, "%s:%" PRIu64 ": wrong byte: layer %u, %c, token %" PRIu64 ", byte %" PRIu64 "\n", r->config->trace,
            r->reader.line, layer, kind == KV_K ? 'K' : 'V', token + offset / token_bytes, offset % token_bytes);
}

/* Compares every byte of a gathered piece with what compute_rows made of it, perhaps requests ago. */
static void check_rows(replay *r, uint32_t layer, int kind, uint64_t first, uint64_t count) {
    for (uint64_t done = 0; done < count;) {
        uint64_t at = 0;
        const uint64_t token = first + done, offset = token % TRACE_BLOCK_TOKENS;
        const uint64_t left = count - done, n = left < TRACE_BLOCK_TOKENS - offset ? left : TRACE_BLOCK_TOKENS - offset;
        const uint64_t wrong =
            kv_wrong_bytes(r->reader.request.ids[token / TRACE_BLOCK_TOKENS], layer, kind, offset * r->token_words,
                           n * r->token_words, r->rows[kind] + done * r->token_words, &at);
        if (wrong > 0 && r->result->wrong_bytes == 0) report_wrong(r, layer, kind, token, at);
        r->result->wrong_bytes += wrong;
        done += n;
    }
    r->result->bytes_checked += count * r->token_words * sizeof(uint64_t);
}

static bool write_layer(replay *r, pkv_table *table, uint32_t layer, uint64_t first, uint64_t end) {
    for (uint64_t n; first < end; first += n) {
        n = end - first < r->piece_tokens ? end - first : r->piece_tokens;
        compute_rows(r, layer, KV_K, first, n);
        compute_rows(r, layer, KV_V, first, n);
        const pkv_tensor k = rows_tensor(r, KV_K, n), v = rows_tensor(r, KV_V, n);
        if (!ok(pkv_table_write(table, 0, layer, first, n, &k, &v, NULL), "pkv_table_write")) return false;
        r->result->bytes_written += 2 * n * r->token_words * sizeof(uint64_t);
    }
    return true;
}

static bool check_layer(replay *r, pkv_table *table, uint32_t layer, uint64_t end) {
    for (uint64_t first = 0, n; first < end; first += n) {
        n = end - first < r->piece_tokens ? end - first : r->piece_tokens;
        const uint64_t bytes = n * r->token_words * sizeof(uint64_t);
        const pkv_tensor k = rows_tensor(r, KV_K, n), v = rows_tensor(r, KV_V, n);
        /* What the last piece left here must not be able to pass for this one. */
        memset(r->rows[KV_K], 0xa5, bytes);
        memset(r->rows[KV_V], 0xa5, bytes);
        if (!ok(pkv_table_gather(table, 0, layer, first, n, &k, &v, NULL), "pkv_table_gather")) return false;
        check_rows(r, layer, KV_K, first, n);
        check_rows(r, layer, KV_V, first, n);
    }
    return true;
}

/* Computes what the cache did not have, then reads the whole sequence back. */
static bool prefill(replay *r, pkv_table *table, uint64_t matched, uint64_t total) {
    const uint32_t layers = r->config->ids_only ? 0 : r->config->layers;
    for (uint32_t layer = 0; layer < layers; ++layer)
        if (!write_layer(r, table, layer, matched, total)) return false;
    if (!ok(pkv_table_commit(table, total, NULL), "pkv_table_commit")) return false;
    for (uint32_t layer = 0; layer < layers; ++layer)
        if (!check_layer(r, table, layer, total)) return false;
    return true;
}

/* ---- tiers ------------------------------------------------------------------------------------------------------- */

/* Waits until what is cached has been stored. */
static bool wait_for_stores(replay *r) {
    const double started = now_seconds();
    const bool good = ok(pkv_pool_flush(r->pool, WAIT_NS), "pkv_pool_flush");
    r->result->store_seconds += now_seconds() - started;
    return good;
}

static pkv_status admit(replay *r, pkv_table *table, uint64_t total, pkv_match *match) {
    pkv_prompt prompt = PKV_PROMPT_INIT;
    prompt.ns = &r->ns;
    prompt.tokens = r->tokens;
    prompt.num_tokens = total;
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = PKV_MATCH_ALL;
    pkv_status status;
    do status = pkv_table_admit(table, &prompt, &options, match);
    while (status == PKV_ERR_AGAIN && wait_for_stores(r));
    return status;
}

static run_place place_of(const replay *r, int32_t where) {
    return where < PKV_BLOCK_TIER ? PLACE_POOL : r->config->tiers->places[where - PKV_BLOCK_TIER];
}

/* Adds the first `num_blocks` trace blocks to the places that r->where tells. */
static void count_places(replay *r, uint64_t num_blocks) {
    const uint64_t pages = TRACE_BLOCK_TOKENS / r->config->page_tokens;
    for (uint64_t block = 0; block < num_blocks; ++block) {
        run_place slowest = PLACE_POOL;
        for (uint64_t page = 0; page < pages; ++page) {
            const run_place place = place_of(r, r->where[block * pages + page]);
            if (place > slowest) slowest = place;
        }
        ++r->result->place_blocks[slowest];
    }
}

/* Tokens at the start of the sequence whose KV is in pages, after a restore that failed. */
static bool readable_tokens(replay *r, pkv_table *table, uint64_t matched, uint64_t *valid) {
    pkv_table_info info = PKV_TABLE_INFO_INIT;
    int32_t where = PKV_BLOCK_RESIDENT;
    if (!ok(pkv_table_get_info(table, &info), "pkv_table_get_info")) return false;
    const uint64_t pages = (info.valid < matched ? info.valid : matched) / r->config->page_tokens;
    for (uint64_t page = 0; page < pages; ++page) { /* what only came too late is still absent */
        if (!ok(pkv_table_residency(table, 0, page, 1, &where), "pkv_table_residency")) return false;
        if (where != PKV_BLOCK_RESIDENT) break;
        *valid = (page + 1) * r->config->page_tokens;
    }
    return true;
}

/* Goes on with what can be read: the rest of the prompt is to be computed, whatever admission found. */
static bool cut_to(replay *r, pkv_table *table, uint64_t valid, uint64_t total) {
    if (!ok(pkv_table_truncate(table, valid, NULL), "pkv_table_truncate") ||
        !ok(pkv_table_set_tokens(table, valid, total - valid, r->tokens + valid), "pkv_table_set_tokens"))
        return false;
    pkv_status status;
    do status = pkv_table_reserve(table, total);
    while (status == PKV_ERR_AGAIN && wait_for_stores(r));
    return ok(status, "pkv_table_reserve");
}

/* Brings the matched tokens into pages, all of them or, when a tier fails, those before the first that is lost. */
static bool bring_up(replay *r, pkv_table *table, uint64_t matched, uint64_t total, uint64_t *valid) {
    *valid = matched;
    if (r->config->tiers == NULL) return true;
    if (!ok(pkv_table_residency(table, 0, 0, matched / r->config->page_tokens, r->where), "pkv_table_residency"))
        return false;
    const double started = now_seconds();
    const pkv_status status = pkv_table_restore(table, 0, UINT64_MAX, WAIT_NS, NULL);
    r->result->load_seconds += now_seconds() - started;
    if (status == PKV_ERR_LOST || status == PKV_ERR_TIMEOUT) {
        *valid = 0;
        if (!readable_tokens(r, table, matched, valid) || !cut_to(r, table, *valid, total)) return false;
        r->result->lost_blocks += (matched + TRACE_BLOCK_TOKENS - 1) / TRACE_BLOCK_TOKENS - *valid / TRACE_BLOCK_TOKENS;
    } else if (!ok(status, "pkv_table_restore")) {
        return false;
    }
    count_places(r, *valid / TRACE_BLOCK_TOKENS);
    return true;
}

/* ---- the replay -------------------------------------------------------------------------------------------------- */

static bool replay_request(replay *r) {
    const trace_request *const request = &r->reader.request;
    const uint64_t total = request->num_blocks * TRACE_BLOCK_TOKENS;
    uint64_t valid = 0;
    pkv_table *table = NULL;
    pkv_match match = PKV_MATCH_INIT;
    for (uint64_t block = 0; block < request->num_blocks; ++block)
        kv_tokens(request->ids[block], r->tokens + block * TRACE_BLOCK_TOKENS);

    ++r->result->requests;
    r->result->blocks += request->num_blocks;
    r->result->tokens += total;
    if (!ok(pkv_table_create(r->pool, &table), "pkv_table_create")) return false;
    const pkv_status status = admit(r, table, total, &match);
    bool good = true;
    if (status == PKV_ERR_NO_PAGES && request->num_blocks > r->config->capacity)
        ++r->result->refused;
    else
        good = ok(status, "pkv_table_admit") && bring_up(r, table, match.tokens, total, &valid) &&
               prefill(r, table, valid, total);
    r->result->hit_tokens += valid;
    r->result->hit_blocks += valid / TRACE_BLOCK_TOKENS;
    return ok(pkv_table_destroy(table, NULL), "pkv_table_destroy") && good;
}

static bool replay_all(replay *r, const trace_totals *totals, const char *label) {
    progress bar;
    int got = 1;
    bool good = true;
    const double started = now_seconds();
    progress_start(&bar, label, totals->blocks);
    for (uint64_t i = 0; i < totals->skipped && got == 1; ++i) got = trace_next(&r->reader);
    while (good && got == 1 && r->result->requests < totals->requests && (got = trace_next(&r->reader)) == 1) {
        /* The buffers are of the size that the scan found. */
        if (r->reader.request.num_blocks > totals->max_blocks) break;
        good = replay_request(r);
        progress_update(&bar, r->result->blocks);
    }
    progress_finish(&bar);
    r->result->seconds = now_seconds() - started;
    if (good && got >= 0 && r->result->requests != totals->requests)
        fprintf(stderr, "%s: changed while it was read\n", r->config->trace);
    return good && r->result->requests == totals->requests;
}

static bool read_stats(replay *r) {
    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    if (!ok(pkv_pool_get_stats(r->pool, 0, &stats), "pkv_pool_get_stats")) return false;
    r->result->evicted_pages = stats.evicted_pages;
    r->result->distinct_pages = stats.published_blocks;
    r->result->dropped_pages = stats.dropped_images;
    return r->config->tiers == NULL || tiers_read(r->config->tiers, r->config, r->result);
}

/* A later run on the same file is to find everything. */
static bool store_rest(replay *r) { return r->config->tiers == NULL || wait_for_stores(r); }

bool run_trace(const run_config *config, const trace_totals *totals, const char *label, run_result *result) {
    static const char model[] = KV_MODEL;
    replay r = {.config = config, .result = result, .ns = PKV_NAMESPACE_INIT};
    r.ns.model.data = model;
    r.ns.model.size = sizeof model - 1;
    *result = (run_result){.requests = 0};
    const bool good = make_buffers(&r, totals) && make_pool(&r) && trace_open(&r.reader, config->trace) &&
                      replay_all(&r, totals, label) && store_rest(&r) && read_stats(&r);
    trace_close(&r.reader);
    if (r.pool != NULL) (void)pkv_pool_destroy(r.pool);
    free(r.tokens);
    free(r.where);
    free(r.rows[KV_K]);
    free(r.rows[KV_V]);
    return good;
}
