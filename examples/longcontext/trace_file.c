/* SPDX-License-Identifier: Apache-2.0 */
#include "trace_file.h"

#include "../replay/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fields of an event that matter here. */
typedef struct event {
    char name[24];
    char phase[4];     /* "X": a span; "M": the name of a lane, or of a process */
    uint64_t pid, tid; /* process and lane */
    double ts, dur;    /* microseconds */
    char arg_name[40]; /* args.name of "M" */
    uint64_t layer;    /* args.layer of a span */
} event;

static bool read_number(json *j, double *out) {
    char text[40] = "";
    const char *const start = j->at;
    if (!json_skip(j)) return false;
    const size_t size = (size_t)(j->at - start);
    if (size >= sizeof text) return json_fail(j, "a number of %u characters", (unsigned)size);
    memcpy(text, start, size);
    *out = strtod(text, NULL); /* skips the white space before it */
    return true;
}

static bool read_args(json *j, event *e) {
    char key[24];
    if (!json_expect(j, '{')) return false;
    if (json_accept(j, '}')) return true;
    do {
        if (!json_string(j, key, sizeof key) || !json_expect(j, ':')) return false;
        const bool good = strcmp(key, "name") == 0    ? json_string(j, e->arg_name, sizeof e->arg_name)
                          : strcmp(key, "layer") == 0 ? json_count(j, key, UINT32_MAX, &e->layer)
                                                      : json_skip(j);
        if (!good) return false;
    } while (json_accept(j, ','));
    return json_expect(j, '}');
}

static bool read_field(json *j, const char *key, event *e) {
    if (strcmp(key, "name") == 0) return json_string(j, e->name, sizeof e->name);
    if (strcmp(key, "ph") == 0) return json_string(j, e->phase, sizeof e->phase);
    if (strcmp(key, "pid") == 0) return json_count(j, key, UINT32_MAX, &e->pid);
    if (strcmp(key, "tid") == 0) return json_count(j, key, UINT32_MAX, &e->tid);
    if (strcmp(key, "ts") == 0) return read_number(j, &e->ts);
    if (strcmp(key, "dur") == 0) return read_number(j, &e->dur);
    if (strcmp(key, "args") == 0) return read_args(j, e);
    return json_skip(j);
}

static bool read_event(json *j, event *e) {
    char key[24];
    memset(e, 0, sizeof *e);
    if (!json_expect(j, '{')) return false;
    do {
        if (!json_string(j, key, sizeof key) || !json_expect(j, ':') || !read_field(j, key, e)) return false;
    } while (json_accept(j, ','));
    return json_expect(j, '}');
}

/* A session's lanes have names before anything happens in them, that of compute first. */
static void add_lane(trace_file *t, const event *e) {
    const bool compute = strcmp(e->arg_name, "compute") == 0;
    if (t->num_lanes == 0 ? !compute : e->pid != t->lanes[0].process || t->num_lanes == TRACE_MAX_LANES) return;
    trace_lane *const lane = &t->lanes[t->num_lanes++];
    lane->process = e->pid;
    lane->number = e->tid;
    memcpy(lane->name, e->arg_name, sizeof lane->name);
}

static bool add_span(json *j, trace_file *t, const event *e) {
    uint32_t lane = 0;
    while (lane < t->num_lanes && (t->lanes[lane].process != e->pid || t->lanes[lane].number != e->tid)) ++lane;
    if (lane == t->num_lanes) return true; /* somebody else's */
    if (t->num_spans == t->capacity) {
        const uint64_t capacity = t->capacity > 0 ? 2 * t->capacity : 1024;
        span *const spans = realloc(t->spans, capacity * sizeof *spans);
        if (spans == NULL) return json_fail(j, "out of memory");
        t->spans = spans;
        t->capacity = capacity;
    }
    span *const s = &t->spans[t->num_spans++];
    s->begin = e->ts * 1e-3;
    s->end = (e->ts + e->dur) * 1e-3;
    s->layer = e->layer;
    s->lane = lane;
    s->kind = lane > 0 ? SPAN_LOADS : strcmp(e->name, "wait") == 0 ? SPAN_WAIT : SPAN_COMPUTE;
    return true;
}

static bool read_events(json *j, trace_file *t) {
    event e;
    if (!json_expect(j, '[')) return false;
    if (json_accept(j, ']')) return true;
    do {
        if (!read_event(j, &e)) return false;
        if (strcmp(e.phase, "M") == 0 && strcmp(e.name, "thread_name") == 0) add_lane(t, &e);
        if (strcmp(e.phase, "X") == 0 && !add_span(j, t, &e)) return false;
    } while (json_accept(j, ','));
    return json_expect(j, ']');
}

static bool read_all(json *j, trace_file *t) {
    char key[24];
    if (!json_expect(j, '{')) return false;
    do {
        if (!json_string(j, key, sizeof key) || !json_expect(j, ':')) return false;
        if (!(strcmp(key, "traceEvents") == 0 ? read_events(j, t) : json_skip(j))) return false;
    } while (json_accept(j, ','));
    return json_expect(j, '}') && json_end(j);
}

/* The whole file; NULL, with errno set, when it cannot be had. */
static char *read_text(const char *path, size_t *size) {
    FILE *const file = fopen(path, "rb");
    size_t capacity = (size_t)1 << 20;
    char *text = file != NULL ? malloc(capacity) : NULL;
    *size = 0;
    while (text != NULL) {
        *size += fread(text + *size, 1, capacity - *size, file);
        if (*size < capacity) break;
        char *const more = realloc(text, capacity *= 2);
        if (more == NULL) free(text);
        text = more;
    }
    if (file != NULL) (void)fclose(file);
    return text;
}

/* Loads and waits are written down when they end. */
static int by_begin(const void *a, const void *b) {
    const double x = ((const span *)a)->begin, y = ((const span *)b)->begin;
    return (x > y) - (x < y);
}

bool trace_file_read(const char *path, trace_file *out) {
    json j;
    size_t size = 0;
    memset(out, 0, sizeof *out);
    char *const text = read_text(path, &size);
    if (text == NULL) {
        fprintf(stderr, "longcontext: %s: %s\n", path, strerror(errno));
        return false;
    }
    json_init(&j, text, size);
    const bool good = read_all(&j, out);
    if (!good) {
        fprintf(stderr, "longcontext: %s: %s\n", path, j.error);
        trace_file_free(out);
    } else if (out->num_spans > 0) {
        qsort(out->spans, out->num_spans, sizeof *out->spans, by_begin);
    }
    free(text);
    return good;
}

void trace_file_free(trace_file *t) {
    free(t->spans);
    memset(t, 0, sizeof *t);
}
