/* SPDX-License-Identifier: Apache-2.0 */
#include "geometry.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct word {
    const char *name;
    int32_t value;
} word;

static const word dtypes[] = {{"f32", PKV_DTYPE_F32},         {"f16", PKV_DTYPE_F16},
                              {"bf16", PKV_DTYPE_BF16},       {"f8_e4m3", PKV_DTYPE_F8_E4M3},
                              {"f8_e5m2", PKV_DTYPE_F8_E5M2}, {"i8", PKV_DTYPE_I8},
                              {"opaque", PKV_DTYPE_OPAQUE},   {NULL, 0}};
static const word scales[] = {{"none", PKV_SCALES_NONE}, {"token_head", PKV_SCALES_TOKEN_HEAD}, {NULL, 0}};
static const word attentions[] = {{"full", PKV_ATTENTION_FULL}, {"window", PKV_ATTENTION_WINDOW}, {NULL, 0}};

/* A field of a group: a number, or one of some words. */
static const struct field {
    const char *name;
    size_t offset;
    const word *words;
} fields[] = {
    {"num_layers", offsetof(pkv_group_options, num_layers), NULL},
    {"first_layer", offsetof(pkv_group_options, first_layer), NULL},
    {"total_layers", offsetof(pkv_group_options, total_layers), NULL},
    {"num_kv_heads", offsetof(pkv_group_options, num_kv_heads), NULL},
    {"first_head", offsetof(pkv_group_options, first_head), NULL},
    {"total_heads", offsetof(pkv_group_options, total_heads), NULL},
    {"k_head_dim", offsetof(pkv_group_options, k_head_dim), NULL},
    {"v_head_dim", offsetof(pkv_group_options, v_head_dim), NULL},
    {"k_row_bytes", offsetof(pkv_group_options, k_row_bytes), NULL},
    {"v_row_bytes", offsetof(pkv_group_options, v_row_bytes), NULL},
    {"window", offsetof(pkv_group_options, window), NULL},
    {"sinks", offsetof(pkv_group_options, sinks), NULL},
    {"aux_bytes", offsetof(pkv_group_options, aux_bytes), NULL},
    {"dtype", offsetof(pkv_group_options, dtype), dtypes},
    {"scales", offsetof(pkv_group_options, scales), scales},
    {"attention", offsetof(pkv_group_options, attention), attentions},
};

static char *trimmed(char *text) {
    char *end = text + strlen(text);
    while (isspace((unsigned char)*text)) ++text;
    while (end > text && isspace((unsigned char)end[-1])) *--end = '\0';
    return text;
}

static const char *read_number(const char *text, uint32_t *out) {
    char *end = NULL;
    errno = 0;
    const unsigned long long value = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
    if (end == NULL || *end != '\0' || errno != 0 || value > UINT32_MAX)
        return "the value is not a whole number below 2^32";
    *out = (uint32_t)value;
    return NULL;
}

/* NULL, or what is wrong. */
static const char *set_field(geometry *g, const char *name, const char *value) {
    if (g->num_groups == 0)
        return strcmp(name, "page_tokens") == 0 ? read_number(value, &g->page_tokens)
                                                : "before the first [group] only page_tokens can stand";
    for (size_t i = 0; i < sizeof fields / sizeof *fields; ++i) {
        if (strcmp(name, fields[i].name) != 0) continue;
        void *const to = (char *)&g->groups[g->num_groups - 1] + fields[i].offset;
        if (fields[i].words == NULL) return read_number(value, to);
        for (const word *w = fields[i].words; w->name != NULL; ++w) {
            if (strcmp(value, w->name) != 0) continue;
            memcpy(to, &w->value, sizeof w->value);
            return NULL;
        }
        return "no such value";
    }
    return "no such name";
}

static const char *read_line(geometry *g, char *line) {
    char *const remark = strchr(line, '#');
    if (remark != NULL) *remark = '\0';
    line = trimmed(line);
    if (*line == '\0') return NULL;
    if (strcmp(line, "[group]") == 0) {
        const pkv_group_options initial = PKV_GROUP_OPTIONS_INIT;
        if (g->num_groups == PKV_MAX_GROUPS) return "too many groups";
        g->groups[g->num_groups] = initial;
        g->groups[g->num_groups++].num_pages = 1;
        return NULL;
    }
    char *const equals = strchr(line, '=');
    if (equals == NULL) return "neither [group] nor name = value";
    *equals = '\0';
    return set_field(g, trimmed(line), trimmed(equals + 1));
}

bool geometry_read(const char *path, geometry *out) {
    char line[256];
    const char *wrong = NULL;
    unsigned number = 0;
    FILE *const file = fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "node: %s: %s\n", path, strerror(errno));
        return false;
    }
    memset(out, 0, sizeof *out);
    while (wrong == NULL && fgets(line, sizeof line, file) != NULL) {
        ++number;
        wrong = strchr(line, '\n') == NULL && !feof(file) ? "the line is too long" : read_line(out, line);
    }
    if (wrong == NULL && ferror(file)) wrong = strerror(errno);
    if (wrong == NULL && out->num_groups == 0) wrong = "there is no [group]";
    if (wrong != NULL) fprintf(stderr, "node: %s:%u: %s\n", path, number, wrong);
    (void)fclose(file);
    return wrong == NULL;
}
