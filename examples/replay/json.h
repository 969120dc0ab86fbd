/* SPDX-License-Identifier: Apache-2.0 */
/* A strict JSON scanner over one piece of text: it walks, the caller decides what to keep. No memory is allocated. */
#ifndef REPLAY_JSON_H
#define REPLAY_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct json {
    const char *begin;
    const char *at;
    const char *end;
    char error[160]; /* why the first failed call failed */
} json;

void json_init(json *j, const char *text, size_t size);

/* Each of these skips white space first; false means that j->error says why. */
bool json_expect(json *j, char c);
bool json_end(json *j);
bool json_skip(json *j); /* any value */

/* True, and consumed, if the next character is c; no error otherwise. */
bool json_accept(json *j, char c);

/* A string; `out` gets it decoded, cut to fit and terminated. What is outside ASCII becomes '?': enough to tell keys
 * apart. */
bool json_string(json *j, char *out, size_t capacity);

/* A whole number, 0 .. max; `what` names it in the error. */
bool json_count(json *j, const char *what, uint64_t max, uint64_t *out);

/* Sets the error, unless there is one already; always false. */
bool json_fail(json *j, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
