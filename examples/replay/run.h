/* SPDX-License-Identifier: Apache-2.0 */
/* One replay of a trace through the library. */
#ifndef REPLAY_RUN_H
#define REPLAY_RUN_H

#include "trace.h"

#include <stdbool.h>
#include <stdint.h>

#define MAX_PEERS 16u

typedef struct run_config {
    const char *trace;
    uint64_t capacity;     /* of the cache, in blocks of TRACE_BLOCK_TOKENS */
    uint64_t max_requests; /* 0 = all */
    uint64_t last;         /* of these the last ones only; 0 = all */
    uint32_t page_tokens;  /* divides TRACE_BLOCK_TOKENS */
    uint32_t layers;
    uint32_t heads;
    uint32_t head_dim; /* of K and V, in f16 elements; a multiple of 4, so that rows are whole 8-byte words */
    bool ids_only;     /* a pool without memory: hits and evictions as ever, but no bytes; and without tiers */
    /* tiers, all 0 without them */
    uint64_t host_bytes;
    const char *file;
    uint64_t file_bytes; /* 0 = as the file is */
    /* other processes, all NULL and 0 without them */
    const char *cluster_key; /* a file of 32 bytes */
    const char *serve;       /* host:port at which others take what is in the tiers */
    const char *peers[MAX_PEERS];
    uint32_t num_peers;
    const char *directory;
    const char *provider;
    const char *fabric;
    const struct tier_set *tiers; /* those opened for it (tiers.h), or NULL */
} run_config;

/* Where the tokens of a prompt were found. A trace block counts for the slowest place that one of its pages came from. */
typedef enum run_place { PLACE_POOL, PLACE_HOST, PLACE_FILE, PLACE_REMOTE, PLACES } run_place;

/* What became of one tier. */
typedef struct run_tier {
    bool exists;
    uint64_t capacity_bytes;
    uint64_t images;
    uint64_t image_bytes; /* of one image */
    uint64_t recovered_images;
    uint64_t evicted_images;
    uint64_t bytes_loaded;
    uint64_t bytes_stored;
    uint64_t checksum_failures;
    int32_t engine;        /* PKV_IO_* */
    uint64_t failed_loads; /* other nodes: reads that gave nothing */
} run_tier;

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
    /* with tiers */
    uint64_t place_blocks[PLACES]; /* of hit_blocks */
    uint64_t lost_blocks;          /* found at admission, and computed again because no tier gave them back */
    uint64_t dropped_pages;        /* evicted before a tier had their image */
    double load_seconds;           /* of seconds: waiting for blocks from tiers */
    double store_seconds;          /* waiting until pages were stored; the flush at the end is not part of seconds */
    run_tier tiers[PLACES];
    uint64_t connected_peers; /* other nodes that are read from */
    char provider[64];        /* of libfabric; empty without nodes */
    char address[280];        /* at which others find this process; empty if they do not */
} run_result;

/* K and V bytes of a token in all layers, and pages in the cache. */
uint64_t run_token_bytes(const run_config *config);
uint64_t run_num_pages(const run_config *config);

double run_hit_rate(const run_result *result);

/* Replays. `totals` is of the same requests; `label` stands before the progress bar. False: the trace or a call of the
 * library failed, and stderr says how. Wrong bytes are counted, and the first of them reported on stderr. */
bool run_trace(const run_config *config, const trace_totals *totals, const char *label, run_result *result);

#endif
