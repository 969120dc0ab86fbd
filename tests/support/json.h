/* SPDX-License-Identifier: Apache-2.0 */
/* A strict reader of JSON (RFC 8259) for tests that look at what the library writes: no comments, no trailing commas, no
 * member twice, only UTF-8, nothing behind the value. Include it after support.h. */
#ifndef PKV_TESTS_JSON_H
#define PKV_TESTS_JSON_H

#include "support/support.h"

typedef enum { json_null, json_bool, json_number, json_string, json_array, json_object } json_kind;

typedef struct json {
    json_kind kind;
    bool truth;
    double number;
    char *text;         /* of a string, its characters, terminated; of a number, its digits as they stand there */
    char *key;          /* of a member of an object */
    struct json *first; /* elements or members, in order */
    struct json *next;
    uint64_t count;
} json;

typedef struct {
    const char *at, *end;
    int depth;
} json_reader;

static inline void json_free(json *value) {
    while (value != NULL) {
        json *next = value->next;
        json_free(value->first);
        free(value->text);
        free(value->key);
        free(value);
        value = next;
    }
}

static inline void json_skip_space(json_reader *r) {
    while (r->at < r->end && strchr(" \t\r\n", *r->at) != NULL && *r->at != '\0') ++r->at;
}

static inline bool json_take(json_reader *r, const char *word) {
    const size_t length = strlen(word);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) return false;
    r->at += length;
    return true;
}

/* Appends a character as UTF-8. */
static inline size_t json_encode(char *out, uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    const size_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; --i, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((length == 2 ? 0xC0 : length == 3 ? 0xE0 : 0xF0) | c);
    return length;
}

static inline bool json_hex(json_reader *r, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 4; ++i, ++r->at) {
        if (r->at == r->end) return false;
        const char *digits = "0123456789abcdef0123456789ABCDEF", *digit = strchr(digits, *r->at);
        if (digit == NULL || *digit == '\0') return false;
        *out = *out << 4 | (uint32_t)((digit - digits) & 15);
    }
    return true;
}

/* Behind a backslash. */
static inline bool json_escape(json_reader *r, char *out, size_t *length) {
    if (r->at == r->end) return false;
    const char *names = "\"\\/bfnrt", *values = "\"\\/\b\f\n\r\t";
    const char *name = strchr(names, *r->at);
    if (name != NULL && *name != '\0') {
        out[(*length)++] = values[name - names];
        ++r->at;
        return true;
    }
    uint32_t c, low;
    if (!json_take(r, "u") || !json_hex(r, &c) || c == 0) return false; /* the tests' strings are terminated ones */
    if (c >= 0xD800 && c < 0xDC00) {
        if (!json_take(r, "\\u") || !json_hex(r, &low) || low < 0xDC00 || low > 0xDFFF) return false;
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    } else if (c >= 0xDC00 && c < 0xE000) {
        return false;
    }
    *length += json_encode(out + *length, c);
    return true;
}

/* A character of more than one byte: decoded and encoded again it has to be the same. */
static inline bool json_utf8(json_reader *r, char *out, size_t *length) {
    const unsigned char lead = (unsigned char)*r->at;
    const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC0 || lead > 0xF7 || (size_t)(r->end - r->at) < bytes) return false;
    uint32_t c = lead & (0xFFu >> (bytes + 1));
    for (size_t i = 1; i < bytes; ++i) {
        if (((unsigned char)r->at[i] & 0xC0) != 0x80) return false;
        c = c << 6 | ((unsigned char)r->at[i] & 0x3F);
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return false;
    if (json_encode(out + *length, c) != bytes || memcmp(out + *length, r->at, bytes) != 0) return false;
    *length += bytes;
    r->at += bytes;
    return true;
}

static inline char *json_read_string(json_reader *r) {
    if (!json_take(r, "\"")) return NULL;
    const char *end = r->at;
    while (end < r->end && *end != '"') end += *end == '\\' ? 2 : 1;
    char *out = malloc((size_t)(end - r->at) + 1); /* no escape is shorter than what it stands for */
    size_t length = 0;
    bool good = true;
    while (good && r->at < r->end && *r->at != '"') {
        const unsigned char c = (unsigned char)*r->at;
        if (c == '\\') {
            ++r->at;
            good = json_escape(r, out, &length);
        } else if (c >= 0x80) {
            good = json_utf8(r, out, &length);
        } else {
            good = c >= 0x20;
            out[length++] = *r->at++;
        }
    }
    if (!good || !json_take(r, "\"")) {
        free(out);
        return NULL;
    }
    out[length] = '\0';
    return out;
}

static inline bool json_digits(json_reader *r) {
    const char *from = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') ++r->at;
    return r->at > from;
}

static inline bool json_read_number(json_reader *r, json *value) {
    const char *from = r->at;
    (void)json_take(r, "-");
    if (!json_take(r, "0") && !json_digits(r)) return false;
    if (json_take(r, ".") && !json_digits(r)) return false;
    if (json_take(r, "e") || json_take(r, "E")) {
        if (!json_take(r, "+")) (void)json_take(r, "-");
        if (!json_digits(r)) return false;
    }
    value->kind = json_number;
    const size_t length = (size_t)(r->at - from);
    value->text = memcpy(calloc(length + 1, 1), from, length);
    value->number = strtod(value->text, NULL);
    return true;
}

static inline json *json_read(json_reader *r);

/* Elements, or with keys members, up to `close`. */
static inline bool json_read_list(json_reader *r, json *value, const char *close, bool keys) {
    json **last = &value->first;
    json_skip_space(r);
    if (json_take(r, close)) return true;
    do {
        char *key = NULL;
        json_skip_space(r);
        if (keys) {
            key = json_read_string(r);
            json_skip_space(r);
            bool good = key != NULL && json_take(r, ":");
            for (const json *other = value->first; good && other != NULL; other = other->next)
                good = strcmp(other->key, key) != 0;
            if (!good) {
                free(key);
                return false;
            }
        }
        json *item = json_read(r);
        if (item == NULL) {
            free(key);
            return false;
        }
        item->key = key;
        *last = item;
        last = &item->next;
        ++value->count;
        json_skip_space(r);
    } while (json_take(r, ","));
    return json_take(r, close);
}

static inline bool json_read_into(json_reader *r, json *value) {
    json_skip_space(r);
    if (r->at == r->end) return false;
    switch (*r->at) {
    case 'n': value->kind = json_null; return json_take(r, "null");
    case 't': value->kind = json_bool; return value->truth = json_take(r, "true");
    case 'f': value->kind = json_bool; return json_take(r, "false");
    case '"': value->kind = json_string; return (value->text = json_read_string(r)) != NULL;
    case '[':
        value->kind = json_array;
        ++r->at;
        return json_read_list(r, value, "]", false);
    case '{':
        value->kind = json_object;
        ++r->at;
        return json_read_list(r, value, "}", true);
    default: return json_read_number(r, value);
    }
}

static inline json *json_read(json_reader *r) {
    json *value = calloc(1, sizeof *value);
    if (r->depth < 64) {
        ++r->depth;
        if (json_read_into(r, value)) {
            --r->depth;
            return value;
        }
    }
    json_free(value);
    return NULL;
}

/* ---- for tests ---- */

/* NULL when `text` is not JSON. */
static inline json *json_parse(const char *text, size_t length) {
    json_reader reader = {text, text + length, 0};
    json *value = json_read(&reader);
    json_skip_space(&reader);
    if (value != NULL && reader.at != reader.end) {
        json_free(value);
        return NULL;
    }
    return value;
}

/* The value in a file, which has to be JSON. */
static inline json *json_load(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("%s cannot be read", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const long size = ftell(file);
    assert_true(size >= 0);
    rewind(file);
    char *text = malloc((size_t)size + 1);
    assert_int_equal(fread(text, 1, (size_t)size, file), (size_t)size);
    fclose(file);
    json *value = json_parse(text, (size_t)size);
    free(text);
    if (value == NULL) fail_msg("%s is not JSON", path);
    return value;
}

/* A member of an object, or NULL. */
static inline const json *json_find(const json *object, const char *key) {
    if (object->kind != json_object) return NULL;
    const json *member = object->first;
    while (member != NULL && strcmp(member->key, key) != 0) member = member->next;
    return member;
}

/* A member that has to be there, and of a kind. */
static inline const json *json_get(const json *object, const char *key, json_kind kind) {
    const json *member = json_find(object, key);
    if (member == NULL || member->kind != kind) fail_msg("no member \"%s\" of kind %d", key, (int)kind);
    return member;
}

static inline const char *json_text(const json *object, const char *key) {
    return json_get(object, key, json_string)->text;
}

/* A number without a fraction, exactly. */
static inline uint64_t json_uint(const json *object, const char *key) {
    const char *digits = json_get(object, key, json_number)->text;
    assert_int_equal(strspn(digits, "0123456789"), strlen(digits));
    return strtoull(digits, NULL, 10);
}

/* A number with three decimals, in thousandths. */
static inline uint64_t json_thousandths(const json *object, const char *key) {
    const char *digits = json_get(object, key, json_number)->text, *point = strchr(digits, '.');
    assert_non_null(point);
    assert_int_equal(strlen(point), 4);
    return strtoull(digits, NULL, 10) * 1000 + strtoull(point + 1, NULL, 10);
}

#endif
