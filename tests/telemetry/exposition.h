/* SPDX-License-Identifier: Apache-2.0 */
/* A strict reader of Prometheus' text format 0.0.4, as pkv_stats_prometheus() writes it: what the format asks for, and the
 * conventions for names. */
#ifndef PKV_TESTS_EXPOSITION_H
#define PKV_TESTS_EXPOSITION_H

#include "support/support.h"

#include <ctype.h>
#include <math.h>

enum { most_families = 256, most_samples = 8192, most_labels = 8 };

typedef struct {
    char *name;
    char *value; /* without escapes */
} exposition_label;

typedef struct {
    char *name;
    char *labels; /* as they stand there, in order */
    exposition_label label[most_labels];
    int num_labels;
    char *value;
    int family;
} exposition_sample;

typedef struct {
    char *name;
    const char *type; /* "" before its TYPE line */
    uint64_t samples;
} exposition_family;

typedef struct {
    exposition_family families[most_families];
    int num_families;
    exposition_sample *samples;
    uint64_t num_samples;
} exposition;

static inline bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* A name of letters, digits and underscores, up to one of `stops`. */
static inline char *exposition_name(const char **at, const char *stops) {
    const char *from = *at;
    while (isalnum((unsigned char)**at) || **at == '_') ++*at;
    if (*at == from || isdigit((unsigned char)*from) || **at == '\0' || strchr(stops, **at) == NULL)
        fail_msg("no name: %.40s", from);
    return strndup(from, (size_t)(*at - from));
}

/* The value of a label, behind its opening quote; goes behind the closing one. */
static inline char *exposition_value(const char **at) {
    char *out = malloc(strlen(*at) + 1);
    size_t length = 0;
    for (; **at != '"'; ++*at) {
        char c = **at;
        assert_true(c != '\0' && c != '\n');
        if (c == '\\') {
            c = *++*at;
            if (c == 'n')
                c = '\n';
            else if (c != '\\' && c != '"')
                fail_msg("no escape: \\%c", c);
        }
        out[length++] = c;
    }
    ++*at;
    out[length] = '\0';
    return out;
}

/* name{label="value",...} number */
static inline void exposition_read_sample(exposition *e, const char *line) {
    assert_true(e->num_samples < most_samples);
    exposition_sample *s = &e->samples[e->num_samples];
    const char *at = line;
    s->name = exposition_name(&at, "{");
    const char *labels = ++at;
    do {
        assert_true(s->num_labels < most_labels);
        exposition_label *label = &s->label[s->num_labels++];
        label->name = exposition_name(&at, "=");
        assert_true(strncmp(label->name, "__", 2) != 0);
        for (int i = 0; i < s->num_labels - 1; ++i) assert_string_not_equal(s->label[i].name, label->name);
        assert_int_equal(at[1], '"');
        at += 2;
        label->value = exposition_value(&at);
    } while (*at++ == ',');
    assert_int_equal(at[-1], '}');
    s->labels = strndup(labels, (size_t)(at - 1 - labels));
    assert_int_equal(*at++, ' ');
    s->value = strdup(at);
    char *end = NULL;
    const double number = strtod(s->value, &end);
    if (end == s->value || *end != '\0' || !isfinite(number) || number < 0 || !isdigit((unsigned char)*s->value))
        fail_msg("no number: %s", line);
    ++e->num_samples;
}

static inline void exposition_check_name(const exposition_family *family) {
    const char *name = family->name, *unit;
    assert_int_equal(strncmp(name, "pagedkv_", 8), 0);
    assert_true((strcmp(family->type, "counter") == 0) == ends_with(name, "_total"));
    if (strcmp(family->type, "histogram") == 0) assert_true(ends_with(name, "_seconds"));
    for (const char *const *word = (const char *const[]){"_ns", "_ms", "_us", "_count", "_sum", "_bucket", NULL}; *word;
         ++word)
        if (ends_with(name, *word)) fail_msg("%s ends with %s", name, *word);
    if ((unit = strstr(name, "_seconds")) != NULL) assert_true(unit[8] == '\0' || strcmp(unit + 8, "_total") == 0);
    if ((unit = strstr(name, "_bytes")) != NULL) assert_true(unit[6] == '\0' || strcmp(unit + 6, "_total") == 0);
}

static inline void exposition_read_line(exposition *e, const char *line) {
    exposition_family *family = e->num_families > 0 ? &e->families[e->num_families - 1] : NULL;
    if (strncmp(line, "# HELP ", 7) == 0) {
        const char *at = line + 7;
        char *name = exposition_name(&at, " ");
        assert_true(family == NULL || family->samples > 0);
        for (int i = 0; i < e->num_families; ++i)
            if (strcmp(e->families[i].name, name) == 0) fail_msg("family %s comes twice", name);
        assert_true(strlen(at) > 1 && strchr(at, '\\') == NULL);
        assert_true(e->num_families < most_families);
        e->families[e->num_families++] = (exposition_family){name, "", 0};
        return;
    }
    assert_non_null(family);
    if (strncmp(line, "# TYPE ", 7) == 0) {
        const char *at = line + 7;
        char *name = exposition_name(&at, " ");
        assert_string_equal(name, family->name);
        free(name);
        assert_string_equal(family->type, "");
        for (const char *const *type = (const char *const[]){"counter", "gauge", "histogram", NULL}; *type; ++type)
            if (strcmp(at + 1, *type) == 0) family->type = *type;
        assert_string_not_equal(family->type, "");
        exposition_check_name(family);
        return;
    }
    assert_string_not_equal(family->type, "");
    exposition_read_sample(e, line);
    exposition_sample *sample = &e->samples[e->num_samples - 1];
    sample->family = e->num_families - 1;
    ++family->samples;
    const size_t length = strlen(family->name);
    const char *suffix = sample->name + length;
    const bool histogram = strcmp(family->type, "histogram") == 0;
    if (strncmp(sample->name, family->name, length) != 0 ||
        (histogram ? strcmp(suffix, "_bucket") != 0 && strcmp(suffix, "_sum") != 0 && strcmp(suffix, "_count") != 0
                   : *suffix != '\0'))
        fail_msg("%s is not of family %s", sample->name, family->name);
}

/* Nanoseconds of a number of seconds, exactly. */
static inline uint64_t exposition_ns(const char *text) {
    const uint64_t whole = strtoull(text, NULL, 10);
    const char *point = strchr(text, '.');
    uint64_t ns = 0;
    assert_int_equal(strspn(text, "0123456789."), strlen(text));
    for (int i = 1; i <= 9; ++i)
        ns = 10 * ns + (point != NULL && *point != '\0' && *++point != '\0' ? (uint64_t)(*point - '0') : 0);
    return whole * 1000000000 + ns;
}

/* From the first bucket of a histogram on: all of them, the sum, the count. */
static inline uint64_t exposition_check_histogram(const exposition *e, uint64_t at) {
    const char *family = e->families[e->samples[at].family].name;
    uint64_t count = 0;
    for (int bucket = 0; bucket < PKV_HISTOGRAM_BUCKETS; ++bucket, ++at) {
        const exposition_sample *s = &e->samples[at];
        assert_true(at < e->num_samples && ends_with(s->name, "_bucket"));
        const exposition_label *le = &s->label[s->num_labels - 1];
        assert_string_equal(le->name, "le");
        if (bucket < PKV_HISTOGRAM_BUCKETS - 1)
            assert_int_equal(exposition_ns(le->value), (UINT64_C(1) << bucket) - 1);
        else
            assert_string_equal(le->value, "+Inf");
        const uint64_t cumulated = strtoull(s->value, NULL, 10);
        assert_true(cumulated >= count);
        count = cumulated;
    }
    const exposition_sample *sum = &e->samples[at], *total = sum + 1;
    assert_true(at + 1 < e->num_samples && ends_with(sum->name, "_sum") && ends_with(total->name, "_count"));
    assert_int_equal(strncmp(sum->name, family, strlen(family)), 0);
    assert_string_equal(sum->labels, total->labels);
    assert_int_equal(strtoull(total->value, NULL, 10), count);
    return at + 2;
}

static inline exposition exposition_parse(const char *text) {
    exposition e = {.samples = calloc(most_samples, sizeof *e.samples)};
    while (*text != '\0') {
        const char *end = strchr(text, '\n');
        assert_non_null(end); /* also behind the last line */
        char *line = strndup(text, (size_t)(end - text));
        exposition_read_line(&e, line);
        free(line);
        text = end + 1;
    }
    if (e.num_families > 0) assert_true(e.families[e.num_families - 1].samples > 0);
    for (uint64_t i = 0; i < e.num_samples; ++i)
        for (uint64_t j = 0; j < i; ++j)
            if (e.samples[i].family == e.samples[j].family && strcmp(e.samples[i].name, e.samples[j].name) == 0 &&
                strcmp(e.samples[i].labels, e.samples[j].labels) == 0)
                fail_msg("%s{%s} comes twice", e.samples[i].name, e.samples[i].labels);
    for (uint64_t i = 0; i < e.num_samples;)
        i = strcmp(e.families[e.samples[i].family].type, "histogram") == 0 ? exposition_check_histogram(&e, i) : i + 1;
    return e;
}

static inline void exposition_free(exposition *e) {
    for (int i = 0; i < e->num_families; ++i) free(e->families[i].name);
    for (uint64_t i = 0; i < e->num_samples; ++i) {
        for (int j = 0; j < e->samples[i].num_labels; ++j) {
            free(e->samples[i].label[j].name);
            free(e->samples[i].label[j].value);
        }
        free(e->samples[i].name);
        free(e->samples[i].labels);
        free(e->samples[i].value);
    }
    free(e->samples);
}

/* The value of a series that has to be there. */
static inline const char *exposition_at(const exposition *e, const char *name, const char *labels) {
    for (uint64_t i = 0; i < e->num_samples; ++i)
        if (strcmp(e->samples[i].name, name) == 0 && strcmp(e->samples[i].labels, labels) == 0)
            return e->samples[i].value;
    fail_msg("no series %s{%s}", name, labels);
    return NULL;
}

/* ---- fields of statistics, and the series that they stand in ---- */

typedef enum { field_number, field_ns, field_ratio, field_flag, field_histogram } field_kind;

typedef struct {
    const char *name;  /* of the family */
    const char *label; /* besides those of the source, or NULL */
    size_t offset;
    field_kind kind;
} field;

/* Not inlined: where statistics have no histograms, compilers warn of what is never reached. */
__attribute__((noinline)) static void exposition_compare_histogram(const exposition *e, const field *f,
                                                                   const char *labels, const pkv_histogram *histogram) {
    char name[128], all[512];
    uint64_t count = 0;
    for (int bucket = 0; bucket < PKV_HISTOGRAM_BUCKETS; ++bucket) {
        count += histogram->buckets[bucket];
        (void)snprintf(name, sizeof name, "%s_bucket", f->name);
        const uint64_t bound = (UINT64_C(1) << bucket) - 1;
        if (bucket == PKV_HISTOGRAM_BUCKETS - 1)
            (void)snprintf(all, sizeof all, "%s,le=\"+Inf\"", labels);
        else {
            (void)snprintf(all, sizeof all, "%s,le=\"%llu.%09llu", labels, (unsigned long long)(bound / 1000000000),
                           (unsigned long long)(bound % 1000000000));
            size_t length = strlen(all);
            while (all[length - 1] == '0') --length;
            if (all[length - 1] == '.') --length;
            (void)snprintf(all + length, sizeof all - length, "\"");
        }
        assert_int_equal(strtoull(exposition_at(e, name, all), NULL, 10), count);
    }
    (void)snprintf(name, sizeof name, "%s_sum", f->name);
    assert_int_equal(exposition_ns(exposition_at(e, name, labels)), histogram->sum_ns);
    (void)snprintf(name, sizeof name, "%s_count", f->name);
    assert_int_equal(strtoull(exposition_at(e, name, labels), NULL, 10), histogram->count);
}

/* Every field of `stats` that is in the table stands in the series of these labels. */
static inline void exposition_compare(const exposition *e, const field *fields, size_t num_fields, const char *labels,
                                      const void *stats) {
    for (size_t i = 0; i < num_fields; ++i) {
        const field *f = &fields[i];
        const void *at = (const unsigned char *)stats + f->offset;
        char all[512], number[32];
        (void)snprintf(all, sizeof all, "%s%s%s", labels, f->label != NULL ? "," : "",
                       f->label != NULL ? f->label : "");
        if (f->kind == field_histogram) {
            exposition_compare_histogram(e, f, all, at);
            continue;
        }
        const char *there = exposition_at(e, f->name, all);
        if (f->kind == field_ratio) {
            assert_true(strtod(there, NULL) == *(const double *)at);
        } else if (f->kind == field_flag) {
            assert_string_equal(there, *(const int32_t *)at != 0 ? "1" : "0");
        } else if (f->kind == field_ns) {
            assert_int_equal(exposition_ns(there), *(const uint64_t *)at);
        } else {
            (void)snprintf(number, sizeof number, "%llu", (unsigned long long)*(const uint64_t *)at);
            assert_string_equal(there, number);
        }
    }
}

/* The text about some sources, which has to be good. */
static inline char *exposition_text(const pkv_prometheus_sources *sources) {
    uint64_t size = 0, written = 0;
    assert_ok(pkv_stats_prometheus(sources, NULL, 0, &size));
    char *text = malloc(size + 1000); /* numbers grow */
    assert_ok(pkv_stats_prometheus(sources, text, size + 1000, &written));
    assert_int_equal(strlen(text) + 1, written);
    return text;
}

#endif
