/* SPDX-License-Identifier: Apache-2.0 */
/* A trace as it stands in a file, read back and checked: every event has what its kind needs, every lane with spans has a name,
 * and spans of a lane do not overlap. */
#ifndef PKV_TESTS_TRACE_H
#define PKV_TESTS_TRACE_H

#include "support/json.h"

#include <dirent.h>
#include <unistd.h>

/* ---- a scratch folder ---- */

typedef struct {
    char folder[128];
    char path[160];
} trace_scratch;

static inline trace_scratch begin_scratch(void) {
    trace_scratch s;
    const char *base = getenv("TMPDIR");
    if (base == NULL || base[0] == '\0' || strlen(base) > 90 || access(base, W_OK) != 0) base = "/tmp";
    (void)snprintf(s.folder, sizeof s.folder, "%s/pkv-trace-XXXXXX", base);
    assert_non_null(mkdtemp(s.folder));
    (void)snprintf(s.path, sizeof s.path, "%s/trace.json", s.folder);
    return s;
}

static inline int files_in(const char *folder) {
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* Only the file at `path` may be in it. */
static inline void end_scratch(trace_scratch *s) {
    (void)unlink(s->path);
    assert_int_equal(files_in(s->folder), 0);
    assert_int_equal(rmdir(s->folder), 0);
}

/* ---- a trace ---- */

/* A span, or a counter's value (without lane and end). Times are nanoseconds from the start of the trace. */
typedef struct {
    uint64_t process, lane, begin, end, value;
    const char *name;
    const char *process_name, *lane_name;
    const json *args;
} trace_event;

typedef struct {
    json *root;
    trace_event *spans;
    uint64_t num_spans; /* sorted by process, lane and begin */
    trace_event *counters;
    uint64_t num_counters; /* in the order in which they were recorded */
    uint64_t dropped;
} trace;

static inline int trace_compare(const void *a, const void *b) {
    const trace_event *x = a, *y = b;
    if (x->process != y->process) return x->process < y->process ? -1 : 1;
    if (x->lane != y->lane) return x->lane < y->lane ? -1 : 1;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* What a metadata event says; it has to be there exactly once. */
static inline const json *trace_metadata(const json *events, const char *name, uint64_t process, uint64_t lane) {
    const json *found = NULL;
    for (const json *event = events->first; event != NULL; event = event->next) {
        if (strcmp(json_text(event, "ph"), "M") != 0 || strcmp(json_text(event, "name"), name) != 0) continue;
        if (json_uint(event, "pid") != process || json_uint(event, "tid") != lane) continue;
        if (found != NULL) fail_msg("%s of %d, %d stands there twice", name, (int)process, (int)lane);
        found = json_get(event, "args", json_object);
    }
    if (found == NULL) fail_msg("no %s of %d, %d", name, (int)process, (int)lane);
    return found;
}

static inline void trace_read_event(trace *t, const json *event) {
    const char *phase = json_text(event, "ph"), *name = json_text(event, "name");
    trace_event read = {.process = json_uint(event, "pid"), .name = name, .args = json_get(event, "args", json_object)};
    if (strcmp(phase, "M") == 0) {
        assert_true(strcmp(name, "process_name") == 0 || strcmp(name, "thread_name") == 0 ||
                    strcmp(name, "thread_sort_index") == 0);
        return;
    }
    read.begin = json_thousandths(event, "ts");
    if (strcmp(phase, "C") == 0) {
        assert_int_equal(read.args->count, 1);
        read.value = json_uint(read.args, "value");
        t->counters[t->num_counters++] = read;
        return;
    }
    if (strcmp(phase, "X") != 0) fail_msg("an event of phase %s", phase);
    read.lane = json_uint(event, "tid");
    read.end = read.begin + json_thousandths(event, "dur");
    t->spans[t->num_spans++] = read;
}

static inline void trace_name_spans(trace *t, const json *events) {
    for (uint64_t i = 0; i < t->num_spans; ++i) {
        trace_event *span = &t->spans[i];
        const trace_event *before = i > 0 ? span - 1 : NULL;
        if (before != NULL && before->process == span->process) span->process_name = before->process_name;
        if (span->process_name == NULL)
            span->process_name = json_text(trace_metadata(events, "process_name", span->process, 0), "name");
        if (before != NULL && before->process == span->process && before->lane == span->lane) {
            span->lane_name = before->lane_name;
            if (before->end > span->begin)
                fail_msg("spans overlap in lane %s of %s", span->lane_name, span->process_name);
        } else {
            span->lane_name = json_text(trace_metadata(events, "thread_name", span->process, span->lane), "name");
            (void)json_uint(trace_metadata(events, "thread_sort_index", span->process, span->lane), "sort_index");
        }
    }
    for (uint64_t i = 0; i < t->num_counters; ++i)
        t->counters[i].process_name =
            json_text(trace_metadata(events, "process_name", t->counters[i].process, 0), "name");
}

static inline trace trace_load(const char *path) {
    trace t = {.root = json_load(path)};
    assert_int_equal(t.root->count, 3);
    assert_string_equal(json_text(t.root, "displayTimeUnit"), "ns");
    t.dropped = json_uint(json_get(t.root, "otherData", json_object), "dropped_events");
    const json *events = json_get(t.root, "traceEvents", json_array);
    t.spans = calloc(events->count + 1, sizeof *t.spans);
    t.counters = calloc(events->count + 1, sizeof *t.counters);
    for (const json *event = events->first; event != NULL; event = event->next) trace_read_event(&t, event);
    qsort(t.spans, t.num_spans, sizeof *t.spans, trace_compare);
    trace_name_spans(&t, events);
    return t;
}

static inline void trace_end(trace *t) {
    json_free(t->root);
    free(t->spans);
    free(t->counters);
}

/* Spans in lanes of this name; the first of them in `first`, which may be NULL. */
static inline uint64_t trace_in_lane(const trace *t, const char *lane_name, const trace_event **first) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < t->num_spans; ++i) {
        if (strcmp(t->spans[i].lane_name, lane_name) != 0) continue;
        if (count++ == 0 && first != NULL) *first = &t->spans[i];
    }
    return count;
}

#endif
