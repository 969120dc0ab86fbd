/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a request trace: JSON lines, one request each (examples/traces/README.md). */
#ifndef REPLAY_TRACE_H
#define REPLAY_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TRACE_BLOCK_TOKENS 512u /* tokens behind one hash id */

/* Limits: memory is bounded by them, not by the file. */
#define TRACE_MAX_TOKENS (1u << 24) /* input_length, output_length */
#define TRACE_MAX_BLOCKS (TRACE_MAX_TOKENS / TRACE_BLOCK_TOKENS)
#define TRACE_MAX_LINE (1u << 20) /* bytes */

typedef struct trace_request {
    uint64_t timestamp_ms;
    uint64_t input_tokens;
    uint64_t output_tokens;
    uint64_t num_blocks;
    uint64_t *ids; /* num_blocks hash ids; the reader's, until the next request */
} trace_request;

typedef struct trace_reader {
    FILE *file;
    const char *path;
    uint64_t line; /* of the request read last, 1 = first */
    char *text;
    trace_request request;
} trace_reader;

/* What a whole trace, or a part of its requests, amounts to. */
typedef struct trace_totals {
    uint64_t skipped; /* requests before the part */
    uint64_t requests;
    uint64_t blocks;
    uint64_t max_blocks; /* of one request */
} trace_totals;

/* All of these say on stderr what is wrong (FILE:LINE: reason) before they return failure. */

bool trace_open(trace_reader *reader, const char *path);
void trace_close(trace_reader *reader);

/* Reads the next request into reader->request: 1, 0 at the end, -1 for a bad line. */
int trace_next(trace_reader *reader);

/* Checks and adds up the first max_requests requests (0 = all), or of these the last ones only (0 = all). False also for a
 * trace without requests. */
bool trace_scan(const char *path, uint64_t max_requests, uint64_t last, trace_totals *totals);

#endif
