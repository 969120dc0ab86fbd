/* SPDX-License-Identifier: Apache-2.0 */
/* One replay of a trace through the library. */
#ifndef REPLAY_RUN_H
#define REPLAY_RUN_H

#include "trace.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct run_config {
    const char *trace;
    uint64_t capacity;     /* of the cache, in blocks of TRACE_BLOCK_TOKENS */
    uint64_t max_requests; /* 0 = all */
    uint32_t page_tokens;  /* divides TRACE_BLOCK_TOKENS */
    uint32_t layers;
    uint32_t heads;
    uint32_t head_dim; /* of K and V, in f16 elements; a multiple of 4, so that rows are whole 8-byte words */
    bool ids_only;     /* a pool without memory: hits and evictions as ever, but no bytes */
} run_config;

/* Requests that are refused (larger than the whole cache) count in requests, tokens and blocks, and hit nothing. */
typedef struct run_result {
    uint64_t requests;
    uint64_t refused;
    uint64_t tokens; /* of prompts, filled up to whole blocks */
    uint64_t hit_tokens;
    uint64_t blocks;
    uint64_t hit_blocks;
    uint64_t distinct_pages; /* pages that were published: without eviction, those of distinct blocks */
    uint64_t evicted_pages;
    uint64_t bytes_written;
    uint64_t bytes_checked;
    uint64_t wrong_bytes;
    double seconds;
} run_result;

/* K and V bytes of a token in all layers, and pages in the cache. */
uint64_t run_token_bytes(const run_config *config);
uint64_t run_num_pages(const run_config *config);

double run_hit_rate(const run_result *result);

/* Replays. `totals` is of the same requests; `label` stands before the progress bar. False: the trace or a call of the
 * library failed, and stderr says how. Wrong bytes are counted, and the first of them reported on stderr. */
bool run_trace(const run_config *config, const trace_totals *totals, const char *label, run_result *result);

#endif
