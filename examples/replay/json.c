/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Deeper nesting than this is refused, so that a hostile line cannot exhaust the stack. */
#define MAX_DEPTH 32

void json_init(json *j, const char *text, size_t size) {
    j->begin = text;
    j->at = text;
    j->end = text + size;
    j->error[0] = '\0';
}

bool json_fail(json *j, const char *format, ...) {
    if (j->error[0] != '\0') return false;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(j->error, sizeof j->error, format, args);
    va_end(args);
    return false;
}

static void skip_space(json *j) {
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\t' || *j->at == '\r' || *j->at == '\n')) ++j->at;
}

/* The syntax error at the current place. */
static bool fail_here(json *j, const char *expected) {
    if (j->at >= j->end) return json_fail(j, "not JSON: the line ends where %s should be", expected);
    const unsigned char c = (unsigned char)*j->at;
    const long column = (long)(j->at - j->begin) + 1;
    if (isprint(c)) return json_fail(j, "not JSON: '%c' at column %ld where %s should be", c, column, expected);
    return json_fail(j, "not JSON: byte 0x%02x at column %ld where %s should be", c, column, expected);
}

bool json_accept(json *j, char c) {
    skip_space(j);
    if (j->at >= j->end || *j->at != c) return false;
    ++j->at;
    return true;
}

bool json_expect(json *j, char c) {
    const char expected[] = {'\'', c, '\'', '\0'};
    return json_accept(j, c) || fail_here(j, expected);
}

bool json_end(json *j) {
    skip_space(j);
    return j->at == j->end || fail_here(j, "the end of the line");
}

/* The character behind \uXXXX, the place being after the u. */
static bool unicode_escape(json *j, char *out) {
    unsigned code = 0;
    for (int i = 0; i < 4; ++i, ++j->at) {
        if (j->at >= j->end || !isxdigit((unsigned char)*j->at)) return fail_here(j, "a hexadecimal digit");
        const char c = *j->at;
        code = code * 16 + (unsigned)(isdigit((unsigned char)c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    *out = code > 0 && code < 0x80 ? (char)code : '?';
    return true;
}

static bool escape(json *j, char *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (j->at < j->end && *j->at == 'u') {
        ++j->at;
        return unicode_escape(j, out);
    }
    const char *found = j->at < j->end && *j->at != '\0' ? strchr(from, *j->at) : NULL;
    if (found == NULL) return fail_here(j, "an escape");
    ++j->at;
    *out = to[found - from];
    return true;
}

bool json_string(json *j, char *out, size_t capacity) {
    if (!json_accept(j, '"')) return fail_here(j, "a string");
    size_t size = 0;
    while (j->at < j->end && *j->at != '"') {
        char c = *j->at;
        if ((unsigned char)c < 0x20) return fail_here(j, "a character of a string");
        ++j->at;
        if (c == '\\' && !escape(j, &c)) return false;
        if (size + 1 < capacity) out[size++] = (unsigned char)c < 0x80 ? c : '?';
    }
    if (capacity > 0) out[size] = '\0';
    return json_expect(j, '"');
}

static bool digits(json *j) {
    if (j->at >= j->end || !isdigit((unsigned char)*j->at)) return fail_here(j, "a digit");
    while (j->at < j->end && isdigit((unsigned char)*j->at)) ++j->at;
    return true;
}

static bool skip_number(json *j) {
    if (j->at < j->end && *j->at == '-') ++j->at;
    if (j->at < j->end && *j->at == '0')
        ++j->at; /* no digit may follow a leading 0; what does follow is the next token's error */
    else if (!digits(j))
        return false;
    if (j->at < j->end && *j->at == '.') {
        ++j->at;
        if (!digits(j)) return false;
    }
    if (j->at < j->end && (*j->at | 0x20) == 'e') {
        ++j->at;
        if (j->at < j->end && (*j->at == '+' || *j->at == '-')) ++j->at;
        return digits(j);
    }
    return true;
}

static bool skip_literal(json *j, const char *word) {
    const size_t size = strlen(word);
    if ((size_t)(j->end - j->at) < size || memcmp(j->at, word, size) != 0) return fail_here(j, "a value");
    j->at += size;
    return true;
}

static bool skip_value(json *j, int depth);

/* An array or object, the place being after its opening bracket. */
static bool skip_members(json *j, bool object, int depth) {
    const char close = object ? '}' : ']';
    if (depth >= MAX_DEPTH) return json_fail(j, "nested deeper than %d", MAX_DEPTH);
    if (json_accept(j, close)) return true;
    do {
        if (object && !(json_string(j, NULL, 0) && json_expect(j, ':'))) return false;
        if (!skip_value(j, depth + 1)) return false;
    } while (json_accept(j, ','));
    return json_expect(j, close);
}

static bool skip_value(json *j, int depth) {
    if (json_accept(j, '{')) return skip_members(j, true, depth);
    if (json_accept(j, '[')) return skip_members(j, false, depth);
    const char c = j->at < j->end ? *j->at : '\0';
    switch (c) {
    case '"': return json_string(j, NULL, 0);
    case 't': return skip_literal(j, "true");
    case 'f': return skip_literal(j, "false");
    case 'n': return skip_literal(j, "null");
    default: break;
    }
    if (c == '-' || isdigit((unsigned char)c)) return skip_number(j);
    return fail_here(j, "a value");
}

bool json_skip(json *j) { return skip_value(j, 0); }

bool json_count(json *j, const char *what, uint64_t max, uint64_t *out) {
    skip_space(j);
    const char *const start = j->at;
    if (!json_skip(j)) return false;
    if (*start != '-' && !isdigit((unsigned char)*start)) return json_fail(j, "%s is not a whole number", what);
    for (const char *p = start + 1; p < j->at; ++p)
        if (!isdigit((unsigned char)*p) && !(*start == '-' && p == start + 1))
            return json_fail(j, "%s is not a whole number: %.*s", what, (int)(j->at - start > 40 ? 40 : j->at - start),
                             start);
    if (*start == '-')
        return json_fail(j, "%s is negative: %.*s", what, (int)(j->at - start > 40 ? 40 : j->at - start), start);
    uint64_t value = 0;
    for (const char *p = start; p < j->at; ++p) {
        const uint64_t digit = (uint64_t)(*p - '0');
        if (value > (max - digit) / 10 || digit > max)
            return json_fail(j, "%s is too large: above %llu", what, (unsigned long long)max);
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}
