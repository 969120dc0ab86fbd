/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L

#include "trace.h"

#include "json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_TIMESTAMP_MS 1000000000000000u /* some 30,000 years */

enum { TIMESTAMP, INPUT_LENGTH, OUTPUT_LENGTH, HASH_IDS, NUM_FIELDS };
static const char *const field_names[NUM_FIELDS] = {"timestamp", "input_length", "output_length", "hash_ids"};

bool trace_open(trace_reader *reader, const char *path) {
    *reader = (trace_reader){.file = NULL, .path = path};
    struct stat st;
    reader->file = fopen(path, "rb");
    if (reader->file == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return false;
    }
    /* A trace is read more than once (scan, replay, plot), which a pipe cannot be. */
    if (fstat(fileno(reader->file), &st) != 0 || !S_ISREG(st.st_mode)) {
        fprintf(stderr, "%s: not a regular file\n", path);
        trace_close(reader);
        return false;
    }
    reader->text = malloc(TRACE_MAX_LINE);
    reader->request.ids = malloc(TRACE_MAX_BLOCKS * sizeof *reader->request.ids);
    if (reader->text == NULL || reader->request.ids == NULL) {
        fprintf(stderr, "%s: out of memory\n", path);
        trace_close(reader);
        return false;
    }
    return true;
}

void trace_close(trace_reader *reader) {
    if (reader->file != NULL) (void)fclose(reader->file);
    free(reader->text);
    free(reader->request.ids);
    *reader = (trace_reader){.file = NULL};
}

/* Reads one line without its end into reader->text: 1, 0 at the end of the file, -1 for a line that is too long. */
static int read_line(trace_reader *reader, size_t *size) {
    size_t n = 0;
    int c = getc_unlocked(reader->file);
    if (c == EOF) return 0;
    for (; c != EOF && c != '\n'; c = getc_unlocked(reader->file)) {
        if (n == TRACE_MAX_LINE) return -1;
        reader->text[n++] = (char)c;
    }
    *size = n;
    return 1;
}

static bool parse_ids(json *j, trace_request *request) {
    char what[40];
    if (!json_accept(j, '[')) return json_skip(j) && json_fail(j, "hash_ids is not a list");
    request->num_blocks = 0;
    if (json_accept(j, ']')) return json_fail(j, "hash_ids is empty");
    do {
        if (request->num_blocks == TRACE_MAX_BLOCKS)
            return json_fail(j, "hash_ids has more than %u ids", TRACE_MAX_BLOCKS);
        (void)snprintf(what, sizeof what, "hash_ids[%" PRIu64 "]", request->num_blocks);
        if (!json_count(j, what, INT64_MAX, &request->ids[request->num_blocks])) return false;
        ++request->num_blocks;
    } while (json_accept(j, ','));
    return json_expect(j, ']');
}

static bool parse_field(json *j, int field, trace_request *request) {
    switch (field) {
    case TIMESTAMP: return json_count(j, field_names[field], MAX_TIMESTAMP_MS, &request->timestamp_ms);
    case INPUT_LENGTH: return json_count(j, field_names[field], TRACE_MAX_TOKENS, &request->input_tokens);
    case OUTPUT_LENGTH: return json_count(j, field_names[field], TRACE_MAX_TOKENS, &request->output_tokens);
    case HASH_IDS: return parse_ids(j, request);
    default: return json_skip(j); /* a field this program does not know */
    }
}

static bool parse_object(json *j, trace_request *request, bool seen[NUM_FIELDS]) {
    char key[32];
    if (!json_expect(j, '{')) return false;
    if (json_accept(j, '}')) return json_end(j);
    do {
        if (!json_string(j, key, sizeof key) || !json_expect(j, ':')) return false;
        int field = 0;
        while (field < NUM_FIELDS && strcmp(key, field_names[field]) != 0) ++field;
        if (field < NUM_FIELDS && seen[field]) return json_fail(j, "%s is given twice", key);
        if (field < NUM_FIELDS) seen[field] = true;
        if (!parse_field(j, field, request)) return false;
    } while (json_accept(j, ','));
    return json_expect(j, '}') && json_end(j);
}

static bool parse_request(json *j, trace_request *request) {
    bool seen[NUM_FIELDS] = {false, false, false, false};
    if (!parse_object(j, request, seen)) return false;
    for (int field = 0; field < NUM_FIELDS; ++field)
        if (!seen[field]) return json_fail(j, "%s is missing", field_names[field]);
    if (request->input_tokens == 0) return json_fail(j, "input_length is 0");
    const uint64_t blocks = (request->input_tokens + TRACE_BLOCK_TOKENS - 1) / TRACE_BLOCK_TOKENS;
    if (request->num_blocks != blocks)
        return json_fail(
            j, "hash_ids has %" PRIu64 " ids, but input_length %" PRIu64 " makes %" PRIu64 " blocks of %u tokens",
            request->num_blocks, request->input_tokens, blocks, TRACE_BLOCK_TOKENS);
    return true;
}

int trace_next(trace_reader *reader) {
    json j;
    size_t size = 0;
    const int got = read_line(reader, &size);
    ++reader->line;
    json_init(&j, reader->text, size);
    if (got == 0 && !ferror(reader->file)) return 0;
    if (ferror(reader->file))
        (void)json_fail(&j, "cannot be read: %s", strerror(errno));
    else if (got < 0)
        (void)json_fail(&j, "longer than %u bytes", TRACE_MAX_LINE);
    else if (parse_request(&j, &reader->request))
        return 1;
    fprintf(stderr, "%s:%" PRIu64 ": %s\n", reader->path, reader->line, j.error);
    return -1;
}

/* Adds up requests after totals->skipped; *seen is told all of them. */
static bool add_up(const char *path, uint64_t max_requests, trace_totals *totals, uint64_t *seen) {
    trace_reader reader;
    int got = 1;
    if (!trace_open(&reader, path)) return false;
    for (*seen = 0; (max_requests == 0 || *seen < max_requests) && (got = trace_next(&reader)) == 1;) {
        if (++*seen <= totals->skipped) continue;
        ++totals->requests;
        totals->blocks += reader.request.num_blocks;
        if (reader.request.num_blocks > totals->max_blocks) totals->max_blocks = reader.request.num_blocks;
    }
    if (got == 0 && *seen == 0) {
        fprintf(stderr, "%s:1: the trace is empty\n", path);
        got = -1;
    }
    trace_close(&reader);
    return got >= 0;
}

bool trace_scan(const char *path, uint64_t max_requests, uint64_t last, trace_totals *totals) {
    uint64_t seen = 0;
    *totals = (trace_totals){0, 0, 0, 0};
    if (!add_up(path, max_requests, totals, &seen)) return false;
    if (last == 0 || last >= seen) return true;
    *totals = (trace_totals){seen - last, 0, 0, 0};
    return add_up(path, seen, totals, &seen);
}
