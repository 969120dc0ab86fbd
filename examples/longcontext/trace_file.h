/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in a trace that pkv_trace_stop wrote: spans in lanes. */
#ifndef LONGCONTEXT_TRACE_FILE_H
#define LONGCONTEXT_TRACE_FILE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum span_kind { SPAN_COMPUTE, SPAN_WAIT, SPAN_LOADS } span_kind;

typedef struct span {
    double begin, end; /* ms since the trace began */
    uint64_t layer;    /* SPAN_COMPUTE */
    uint32_t lane;     /* of trace_file.lanes */
    span_kind kind;
} span;

#define TRACE_MAX_LANES 8

typedef struct trace_lane {
    uint64_t process, number;
    char name[40];
} trace_lane;

typedef struct trace_file {
    span *spans; /* in order of their begin */
    uint64_t num_spans;
    uint64_t capacity;
    trace_lane lanes[TRACE_MAX_LANES]; /* those of sessions, the compute lane first */
    uint32_t num_lanes;
} trace_file;

/* Reads the lanes of the session in a trace. False: stderr says why, and nothing is to be freed. */
bool trace_file_read(const char *path, trace_file *out);
void trace_file_free(trace_file *t);

#endif
