/* SPDX-License-Identifier: Apache-2.0 */
#include "runner.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- parsing ---- */

static bool add_pair(line *l, pair *pairs, int *count, char *word) {
    char *const equals = strchr(word, '=');
    if (equals == NULL || *count == MAX_ARGS) return complain(l, "'%s' is no key=value", word), false;
    *equals = '\0';
    pairs[(*count)++] = (pair){word, equals + 1, false};
    return true;
}

bool parse_line(char *text, line *out) {
    bool after_arrow = false;
    char *rest = NULL;
    for (char *word = strtok_r(text, " \t\n", &rest); word != NULL; word = strtok_r(NULL, " \t\n", &rest)) {
        if (out->op == NULL)
            out->op = word;
        else if (strcmp(word, "->") == 0)
            after_arrow = true;
        else if (after_arrow ? !add_pair(out, out->wanted, &out->num_wanted, word) : !add_pair(out, out->args, &out->num_args, word))
            return false;
    }
    return true;
}

void free_line(line *l) {
    for (int i = 0; i < l->num_outputs; ++i) free(l->outputs[i].value);
}

void complain(line *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "line %ld: %s: ", l->number, l->op != NULL ? l->op : "");
    (void)vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    l->broken = true;
}

/* ---- arguments ---- */

static const char *find(line *l, const char *key) {
    for (int i = 0; i < l->num_args; ++i) {
        if (strcmp(l->args[i].key, key) != 0) continue;
        l->args[i].used = true;
        return l->args[i].value;
    }
    return NULL;
}

bool has(line *l, const char *key) { return find(l, key) != NULL; }

const char *text_arg(line *l, const char *key, const char *otherwise) {
    const char *const value = find(l, key);
    return value != NULL ? value : otherwise;
}

/* Decimal, hexadecimal after 0x, or "max"; the end of it in *end. */
static uint64_t number_at(const char *text, char **end) {
    if (strncmp(text, "max", 3) == 0) {
        *end = (char *)text + 3;
        return UINT64_MAX;
    }
    return *text == '-' ? (uint64_t)strtoll(text, end, 0) : strtoull(text, end, 0);
}

uint64_t number_arg(line *l, const char *key, uint64_t otherwise) {
    const char *const value = find(l, key);
    if (value == NULL) return otherwise;
    char *end = NULL;
    const uint64_t number = number_at(value, &end);
    if (end == value || *end != '\0') complain(l, "%s=%s is no number", key, value);
    return number;
}

int32_t name_arg(line *l, const char *key, const char *const *names, int32_t first, int32_t otherwise) {
    const char *const value = find(l, key);
    if (value == NULL) return otherwise;
    for (int32_t i = 0; names[i] != NULL; ++i)
        if (strcmp(names[i], value) == 0) return first + i;
    char *end = NULL;
    const int64_t number = strtoll(value, &end, 0); /* numbers that are no name's, to see them refused */
    if (end == value || *end != '\0') complain(l, "%s=%s is no name that is known", key, value);
    return (int32_t)number;
}

static void add_item(list *items, int64_t value) {
    items->items = realloc(items->items, (size_t)(items->count + 1) * sizeof *items->items);
    if (items->items == NULL) abort();
    items->items[items->count++] = value;
}

list list_arg(line *l, const char *key) {
    list items = {malloc(sizeof *items.items), 0};
    const char *at = find(l, key);
    if (at == NULL || *at == '\0' || strcmp(at, "none") == 0) return items;
    for (;;) {
        char *end = NULL;
        const int64_t first = (int64_t)number_at(at, &end);
        int64_t last = first;
        if (end == at) break;
        at = end;
        if (at[0] == '.' && at[1] == '.') {
            last = (int64_t)number_at(at + 2, &end);
            for (int64_t value = first; value <= last; ++value) add_item(&items, value);
        } else if (*at == '*') {
            for (uint64_t times = number_at(at + 1, &end); times > 0; --times) add_item(&items, first);
        } else {
            add_item(&items, first);
        }
        at = end;
        if (*at == '\0') return items;
        if (*at++ != ',') break;
    }
    complain(l, "%s is no list of numbers at '%s'", key, at);
    return items;
}

void free_list(list *items) { free(items->items); }

int32_t *narrow(const list *items) {
    int32_t *const copy = malloc((size_t)(items->count + 1) * sizeof *copy);
    if (copy == NULL) abort();
    for (uint64_t i = 0; i < items->count; ++i) copy[i] = (int32_t)items->items[i];
    return copy;
}

pkv_bytes bytes_of(line *l, const char *text, size_t length) {
    static unsigned char buffers[32][300];
    static int turn;
    if (length == 0 || *text != '@') return (pkv_bytes){text, length};
    unsigned char *const buffer = buffers[turn = (turn + 1) % 32];
    const size_t size = (length - 1) / 2;
    if (size > sizeof buffers[0]) return complain(l, "too many bytes"), (pkv_bytes){NULL, 0};
    for (size_t i = 0; i < size; ++i) {
        const char digits[3] = {text[1 + 2 * i], text[2 + 2 * i], '\0'};
        buffer[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return (pkv_bytes){buffer, size};
}

pkv_bytes bytes_arg(line *l, const char *key) {
    const char *const value = find(l, key);
    if (value == NULL) return (pkv_bytes){NULL, 0};
    return bytes_of(l, value, strlen(value));
}

/* ---- outputs ---- */

static void take_output(line *l, const char *key, char *value) {
    if (value == NULL || l->num_outputs == MAX_OUTPUTS) abort();
    l->outputs[l->num_outputs++] = (pair){(char *)key, value, false};
}

void out_text(line *l, const char *key, const char *value) { take_output(l, key, strdup(value)); }

void out_number(line *l, const char *key, uint64_t value) {
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    out_text(l, key, text);
}

void out_signed(line *l, const char *key, int64_t value) {
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRId64, value);
    out_text(l, key, text);
}

static void out_numbers(line *l, const char *key, const int64_t *items, uint64_t count, const char *first, const char *next) {
    char *const text = malloc((size_t)count * 22 + 8);
    size_t length = 0;
    if (text == NULL) abort();
    (void)strcpy(text, count == 0 ? "none" : "");
    for (uint64_t i = 0; i < count; ++i) length += (size_t)sprintf(text + length, i == 0 ? first : next, items[i]);
    take_output(l, key, text);
}

void out_unsigned(line *l, const char *key, const uint64_t *items, uint64_t count) {
    out_numbers(l, key, (const int64_t *)items, count, "%" PRIu64, ",%" PRIu64);
}

void out_list(line *l, const char *key, const int64_t *items, uint64_t count) {
    out_numbers(l, key, items, count, "%" PRId64, ",%" PRId64);
}

void out_pages(line *l, const char *key, const int32_t *items, uint64_t count) {
    int64_t *const wide = malloc((size_t)(count + 1) * sizeof *wide);
    if (wide == NULL) abort();
    for (uint64_t i = 0; i < count; ++i) wide[i] = items[i];
    out_list(l, key, wide, count);
    free(wide);
}

const char *short_status(pkv_status status) {
    const char *const name = pkv_status_string(status);
    if (strncmp(name, "PKV_ERR_", 8) == 0) return name + 8;
    return strncmp(name, "PKV_", 4) == 0 ? name + 4 : name;
}

void out_statuses(line *l, const char *key, const pkv_status *items, uint64_t count) {
    char *const text = calloc((size_t)count + 1, 20);
    if (text == NULL) abort();
    for (uint64_t i = 0; i < count; ++i) {
        if (i > 0) (void)strcat(text, ",");
        (void)strcat(text, short_status(items[i]));
    }
    if (count == 0) (void)strcpy(text, "none");
    take_output(l, key, text);
}

void out_digest(line *l, const char *key, const void *data, uint64_t size) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    char text[20];
    for (uint64_t i = 0; i < size; ++i) hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    (void)snprintf(text, sizeof text, "%016" PRIx64, hash);
    out_text(l, key, text);
}

char *expanded(const char *value) {
    line nothing = {.op = ""};
    nothing.args[0] = (pair){"value", (char *)value, false};
    nothing.num_args = 1;
    const char *const dots = strstr(value, "..");
    if (dots == NULL && strchr(value, '*') == NULL) return strdup(value);
    list items = list_arg(&nothing, "value");
    out_list(&nothing, "value", items.items, items.count);
    free_list(&items);
    return nothing.outputs[0].value;
}
