/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of prefetch sessions. */
#include "runner.h"

#include <stdlib.h>
#include <string.h>

static const char *const policies[] = {"sequential", "full", "hinted", NULL};

static pkv_status prefetch_open(line *l) {
    pkv_prefetch_options options = PKV_PREFETCH_OPTIONS_INIT;
    pkv_prefetch *session = NULL;
    list staging = list_arg(l, "staging");
    uint64_t pages[PKV_MAX_GROUPS] = {0};
    for (uint64_t i = 0; i < staging.count && i < PKV_MAX_GROUPS; ++i) pages[i] = (uint64_t)staging.items[i];
    options.policy = name_arg(l, "policy", policies, 0, PKV_PREDICT_SEQUENTIAL);
    options.flags = (uint32_t)number_arg(l, "flags", 0);
    options.sink_tokens = number_arg(l, "sink_tokens", 0);
    options.recent_tokens = number_arg(l, "recent_tokens", 0);
    options.max_lookahead = number_arg(l, "max_lookahead", 0);
    options.max_block_pages = number_arg(l, "max_block_pages", 0);
    options.num_buffers = (uint32_t)number_arg(l, "num_buffers", 0);
    options.max_tables = (uint32_t)number_arg(l, "max_tables", 0);
    if (staging.count != 0) options.staging_pages = pages;
    const pkv_status status = pkv_prefetch_open(handle_arg(l, POOL, "pool"), &options, &session);
    object *const o = make_object(l, SESSION, "session");
    if (o != NULL) o->handle = session;
    free_list(&staging);
    return status;
}

static pkv_prefetch *session_arg(line *l) { return handle_arg(l, SESSION, "session"); }

static pkv_status prefetch_close(line *l) {
    pkv_sync sync;
    return pkv_prefetch_close(session_arg(l), sync_arg(l, &sync));
}
static pkv_status prefetch_cancel(line *l) { return pkv_prefetch_cancel(session_arg(l)); }

static pkv_status prefetch_prompt(line *l) {
    prompt_memory memory;
    pkv_match match = PKV_MATCH_INIT;
    pkv_op_options options = PKV_OP_OPTIONS_INIT;
    pkv_op *op = NULL;
    options.user = number_arg(l, "user", 0);
    if (has(l, "queue")) options.queue = handle_arg(l, QUEUE, "queue");
    const pkv_status status = pkv_prefetch_prompt(session_arg(l), prompt_arg(l, &memory), &options, &match, &op);
    if (status == PKV_OK) {
        out_number(l, "match", match.tokens);
        out_number(l, "resident", match.resident_tokens);
    }
    object *const o = make_object(l, OP, "op");
    if (o != NULL) o->handle = op;
    free_prompt(&memory);
    return status;
}

static pkv_status prefetch_hint(line *l) {
    list scores = list_arg(l, "scores");
    float *const floats = malloc((size_t)(scores.count + 1) * sizeof *floats);
    if (floats == NULL) abort();
    for (uint64_t i = 0; i < scores.count; ++i) floats[i] = (float)scores.items[i];
    const pkv_status status = pkv_prefetch_hint(session_arg(l), handle_arg(l, TABLE, "table"), scores.count, floats);
    free(floats);
    free_list(&scores);
    return status;
}

static pkv_status prefetch_submit(line *l) {
    uint64_t submitted = 0;
    const pkv_status status =
        pkv_prefetch_submit(session_arg(l), handle_arg(l, TABLE, "table"), number_arg(l, "position", 0), &submitted);
    if (status == PKV_OK) out_number(l, "submitted", submitted);
    return status;
}

static pkv_status prefetch_require(line *l) {
    pkv_require_result result = PKV_REQUIRE_RESULT_INIT;
    const pkv_status status =
        pkv_prefetch_require(session_arg(l), handle_arg(l, TABLE, "table"), number_arg(l, "first_block", 0),
                             number_arg(l, "num_blocks", UINT64_MAX), number_arg(l, "timeout", UINT64_MAX), &result);
    if (status == PKV_OK) {
        out_number(l, "resident", result.resident);
        out_number(l, "absent", result.on_time + result.late + result.on_demand);
    }
    return status;
}

static pkv_status prefetch_step_begin(line *l) {
    object *const o = object_arg(l, SESSION, "session");
    char names[512], *rest = NULL;
    pkv_table *tables[64];
    uint32_t count = 0;
    (void)strncpy(names, text_arg(l, "tables", ""), sizeof names - 1);
    names[sizeof names - 1] = '\0';
    for (char *name = strtok_r(names, ",", &rest); name != NULL && count < 64; name = strtok_r(NULL, ",", &rest)) {
        const object *const table = find_object(TABLE, name);
        if (table == NULL) complain(l, "there is no table %s", name);
        tables[count++] = table != NULL ? table->handle : NULL;
    }
    list num_tokens = list_arg(l, "num_tokens");
    pkv_status statuses[64] = {0};
    const pkv_status status =
        pkv_prefetch_step_begin(o != NULL ? o->handle : NULL, count, tables,
                                num_tokens.count != 0 ? (const uint64_t *)num_tokens.items : NULL, statuses);
    if (o != NULL && status == PKV_OK) o->rows = count;
    if (status == PKV_OK) out_statuses(l, "statuses", statuses, count);
    free_list(&num_tokens);
    return status;
}

static pkv_status prefetch_acquire(line *l) {
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    const pkv_status status = pkv_prefetch_layer_acquire(session_arg(l), (uint32_t)number_arg(l, "index", 0),
                                                         number_arg(l, "timeout", UINT64_MAX), NULL, &view);
    if (status != PKV_OK) return status;
    uint64_t missing = 0;
    for (uint64_t i = 0; i < view.num_slices; ++i) missing += view.slices[i] < 0;
    out_number(l, "group", view.group);
    out_number(l, "layer", view.layer);
    out_number(l, "num_tables", view.num_tables);
    out_number(l, "num_slices", view.num_slices);
    out_number(l, "missing", missing);
    out_signed(l, "last", view.last);
    return status;
}

static pkv_status prefetch_release(line *l) {
    pkv_sync sync;
    return pkv_prefetch_layer_release(session_arg(l), (uint32_t)number_arg(l, "index", 0), sync_arg(l, &sync));
}

static pkv_status prefetch_step_end(line *l) {
    object *const o = object_arg(l, SESSION, "session");
    pkv_status statuses[64] = {0};
    const pkv_status status = pkv_prefetch_step_end(o != NULL ? o->handle : NULL, statuses);
    if (status == PKV_OK) out_statuses(l, "statuses", statuses, o != NULL ? o->rows : 0);
    return status;
}

static pkv_status prefetch_stats(line *l) {
    pkv_prefetch_stats stats = PKV_PREFETCH_STATS_INIT;
    const pkv_status status = pkv_prefetch_get_stats(session_arg(l), &stats);
    if (status != PKV_OK) return status;
    out_number(l, "needed", stats.needed);
    out_number(l, "failed", stats.failed);
    out_number(l, "steps", stats.steps);
    out_number(l, "ranges", stats.ranges);
    out_number(l, "prompts", stats.prompts);
    out_number(l, "staging_pages", stats.staging_pages);
    out_number(l, "checksum_failures", stats.checksum_failures);
    out_number(l, "balance", stats.needed - stats.on_time - stats.late - stats.on_demand);
    return status;
}

const named_operation prefetch_operations[] = {
    {"prefetch.open", prefetch_open},
    {"prefetch.close", prefetch_close},
    {"prefetch.cancel", prefetch_cancel},
    {"prefetch.prompt", prefetch_prompt},
    {"prefetch.hint", prefetch_hint},
    {"prefetch.submit", prefetch_submit},
    {"prefetch.require", prefetch_require},
    {"prefetch.step_begin", prefetch_step_begin},
    {"prefetch.acquire", prefetch_acquire},
    {"prefetch.release", prefetch_release},
    {"prefetch.step_end", prefetch_step_end},
    {"prefetch.stats", prefetch_stats},
    {NULL, NULL},
};
