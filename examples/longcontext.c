/* SPDX-License-Identifier: Apache-2.0 */
/* A sequence that is larger than its pool, decoded with exact attention over all of it.
 *
 * The KV of one sequence is 8 times as large as the pool; what does not fit lies in a file. Each decode step reads all of
 * it, layer by layer, through a prefetch session. That is done three times: with everything in pages, to have something
 * to compare with; with a session that loads what is asked for, when it is asked for; and with one that loads ahead, while
 * the layers before are computed. All three have to give the same bits. The parts, in examples/longcontext/:
 *   run.c         the sequence, and its steps: what a program does with a session stands in attend_session, step_session
 *   attention.c   attention by ranges of blocks, in place, through base, strides and slice ids
 *   model.c       numbers in a model's stead
 *   report.c, timeline.c   what is shown
 * From examples/replay/: json.c reads the trace that the timeline is drawn from, progress.c shows how far a run is. */
#define _XOPEN_SOURCE 700

#include "longcontext/attention.h"
#include "longcontext/report.h"
#include "longcontext/run.h"
#include "longcontext/timeline.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

typedef struct arguments {
    run_config config;
    const char *file;
    const char *trace;
    const char *svg;
    bool keep_file;
    bool json;
    bool help;
} arguments;

static const char usage[] =
    "usage: longcontext [options]\n"
    "\n"
    "Decodes one sequence whose KV is many times as large as the pool, with exact attention over all of it: once with\n"
    "everything in pages, then from a small pool over a file, without and with prefetch. Every step has to give the "
    "same\n"
    "bits. K, V and the model are made up, from a seed.\n"
    "\n"
    "  --tokens N        tokens of the prompt (16384)\n"
    "  --steps N         tokens to decode (3)\n"
    "  --layers N        layers (16)\n"
    "  --heads N         KV heads (8)\n"
    "  --queries N       query heads for each KV head (8): more compute for each byte\n"
    "  --head-dim N      elements of a head, f16, a multiple of 64 (128)\n"
    "  --page-tokens N   tokens of a page (32)\n"
    "  --ratio N         the sequence has N times the pool's pages (8)\n"
    "  --buffers N       buffers of the prefetch session (4)\n"
    "  --seed N          another model, another prompt (1)\n"
    "  --file FILE       where spilled blocks lie, on a real disk if it is to tell anything; must not exist yet\n"
    "                    (a new file in $TMPDIR, or /var/tmp)\n"
    "  --keep-file       leave the file there\n"
    "  --trace FILE      what the run with prefetch did in time, for https://ui.perfetto.dev or chrome://tracing\n"
    "  --svg FILE        a picture of some steps of it\n"
    "  --json            one JSON object on stdout, and nothing else\n"
    "  --help            this text\n"
    "\n"
    "Exit status: 0; 1 for a step that differs or a call of the library that failed; 2 for bad options or files.\n";

__attribute__((format(printf, 1, 2))) static bool usage_error(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("longcontext: ", stderr);
    (void)vfprintf(stderr, format, args);
    fputs("\nlongcontext: --help lists the options\n", stderr);
    va_end(args);
    return false;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset; /* of its uint64_t in run_config */
    uint64_t min, max, multiple;
} numbers[] = {
    {"--tokens", offsetof(run_config, tokens), 1, 1u << 24, 1},
    {"--steps", offsetof(run_config, steps), 1, 10000, 1},
    {"--layers", offsetof(run_config, layers), 1, 512, 1},
    {"--heads", offsetof(run_config, heads), 1, 256, 1},
    {"--queries", offsetof(run_config, queries), 1, ATTENTION_MAX_QUERIES, 1},
    {"--head-dim", offsetof(run_config, head_dim), ATTENTION_STRIP, ATTENTION_MAX_HEAD_DIM, ATTENTION_STRIP},
    {"--page-tokens", offsetof(run_config, page_tokens), 1, ATTENTION_MAX_PAGE_TOKENS, 1},
    {"--ratio", offsetof(run_config, ratio), 2, 1000, 1},
    {"--buffers", offsetof(run_config, buffers), 2, PKV_PREFETCH_MAX_BUFFERS, 1},
    {"--seed", offsetof(run_config, seed), 0, UINT64_MAX, 1},
};

static const struct {
    const char *name;
    size_t offset; /* of its const char * in arguments */
} files[] = {
    {"--file", offsetof(arguments, file)},
    {"--trace", offsetof(arguments, trace)},
    {"--svg", offsetof(arguments, svg)},
};

static const struct {
    const char *name;
    size_t offset; /* of its bool in arguments */
} flags[] = {
    {"--keep-file", offsetof(arguments, keep_file)},
    {"--json", offsetof(arguments, json)},
    {"--help", offsetof(arguments, help)},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void *member(void *object, size_t offset) { return (char *)object + offset; }

static bool set_number(run_config *config, size_t i, const char *text) {
    const uint64_t max = numbers[i].max;
    uint64_t value = 0;
    bool good = *text != '\0';
    for (const char *p = text; good && *p != '\0'; ++p) {
        const uint64_t digit = (uint64_t)(*p - '0');
        good = isdigit((unsigned char)*p) && digit <= max && value <= (max - digit) / 10;
        value = good ? value * 10 + digit : 0;
    }
    if (!good || value < numbers[i].min)
        return usage_error("%s: '%s' is not a whole number from %" PRIu64 " to %" PRIu64, numbers[i].name, text,
                           numbers[i].min, max);
    if (value % numbers[i].multiple != 0)
        return usage_error("%s: %s is not a multiple of %" PRIu64, numbers[i].name, text, numbers[i].multiple);
    *(uint64_t *)member(config, numbers[i].offset) = value;
    return true;
}

/* Options that take a value; *known says whether it is one. */
static bool set_value(arguments *args, const char *name, const char *value, bool *known) {
    *known = true;
    for (size_t i = 0; i < COUNT(numbers); ++i)
        if (strcmp(name, numbers[i].name) == 0)
            return value == NULL ? usage_error("%s: a value is missing", name) : set_number(&args->config, i, value);
    for (size_t i = 0; i < COUNT(files); ++i)
        if (strcmp(name, files[i].name) == 0) {
            if (value == NULL) return usage_error("%s: a value is missing", name);
            if (*value == '\0') return usage_error("%s: the file name is empty", name);
            *(const char **)member(args, files[i].offset) = value;
            return true;
        }
    *known = false;
    return true;
}

/* One option at argv[*i], as --name value or --name=value. */
static bool parse_option(arguments *args, int argc, char **argv, int *i) {
    const char *const argument = argv[*i];
    const char *const equals = strchr(argument, '=');
    char name[24] = "";
    const size_t size = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
    bool known = false;
    if (size < sizeof name) memcpy(name, argument, size); /* longer ones are no option's name */
    const char *const value = equals != NULL ? equals + 1 : *i + 1 < argc ? argv[*i + 1] : NULL;
    if (!set_value(args, name, value, &known)) return false;
    *i += known && equals == NULL;
    for (size_t f = 0; f < COUNT(flags) && !known; ++f)
        if (strcmp(argument, flags[f].name) == 0) known = *(bool *)member(args, flags[f].offset) = true;
    if (known) return true;
    return *argument == '-' ? usage_error("unknown option '%s'", argument) : usage_error("'%s' is no option", argument);
}

static bool parse_arguments(arguments *args, int argc, char **argv) {
    const run_config *const c = &args->config;
    run_geometry g;
    for (int i = 1; i < argc; ++i)
        if (!parse_option(args, argc, argv, &i)) return false;
    if (args->help || run_shape(c, &g)) return true;
    return usage_error("--tokens: a pool of %" PRIu64 " pages, 1/%" PRIu64
                       " of the sequence's, has no room besides %" PRIu64 " staging pages and %" PRIu64
                       " for tokens that are decoded",
                       g.pool_pages, c->ratio, g.staging_pages, g.sequence_pages - g.prompt_pages);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static bool file_error(const char *path, const char *reason) {
    fprintf(stderr, "longcontext: %s: %s\n", path, reason);
    return false;
}

/* Opens the file that spilled blocks lie in. Unless it is to be kept, its name goes at once: whatever ends the program,
 * nothing is left behind. */
static bool open_tier(const arguments *args, pkv_tier **tier) {
    static const char identity[] = "pagedkv example: longcontext";
    const char *const folder = getenv("TMPDIR");
    char made[4096], message[512] = "";
    struct stat info;
    run_geometry g;
    pkv_file_tier_options options = PKV_FILE_TIER_OPTIONS_INIT;
    (void)run_shape(&args->config, &g);
    options.path = args->file;
    if (args->file != NULL && lstat(args->file, &info) == 0) return file_error(args->file, "exists already");
    if (args->file == NULL) {
        (void)snprintf(made, sizeof made, "%s/longcontext.XXXXXX",
                       folder != NULL && *folder != '\0' ? folder : "/var/tmp");
        const int fd = mkstemp(made);
        if (fd < 0) return file_error(made, strerror(errno));
        (void)close(fd);
        options.path = made;
    }
    options.capacity_bytes = g.file_bytes;
    options.max_images = g.sequence_pages + 8;
    options.identity.data = identity;
    options.identity.size = sizeof identity - 1;
    const pkv_status status = pkv_tier_open_file(&options, tier);
    if (status != PKV_OK) (void)pkv_last_error(message, sizeof message);
    if (args->file == NULL || (status == PKV_OK && !args->keep_file)) (void)unlink(options.path);
    if (status != PKV_OK) fprintf(stderr, "longcontext: --file: %s: %s\n", pkv_status_string(status), message);
    return status == PKV_OK;
}

/* Better to fail before the runs than after them. */
static bool can_write(const char *path) {
    if (path == NULL) return true;
    FILE *const file = fopen(path, "a");
    if (file == NULL) return file_error(path, strerror(errno));
    (void)fclose(file);
    return true;
}

/* ---- the runs ---------------------------------------------------------------------------------------------------- */

static bool reference_run(const run_config *config, run_outputs *outputs) {
    run_sequence *const sequence = run_build(config, NULL);
    const bool good = sequence != NULL && run_resident(sequence, outputs);
    run_destroy(sequence);
    return good;
}

/* The run with prefetch, recorded if anybody wants to see it. */
static bool recorded_run(const arguments *args, run_sequence *sequence, run_outputs *outputs, report_run *run) {
    char path[4096];
    uint64_t dropped = 0;
    if (args->trace == NULL && args->svg == NULL) return run_session(sequence, 0, outputs, &run->stats);
    if (args->trace != NULL)
        (void)snprintf(path, sizeof path, "%s", args->trace);
    else
        (void)snprintf(path, sizeof path, "%s.trace.json", args->svg); /* for the picture, and no longer */
    if (pkv_trace_start(0) != PKV_OK) return file_error(path, "no trace can be recorded");
    bool good = run_session(sequence, 0, outputs, &run->stats);
    if (pkv_trace_stop(path, &dropped) != PKV_OK) return file_error(path, "the trace cannot be written");
    if (dropped > 0) fprintf(stderr, "longcontext: %s: %" PRIu64 " events found no room\n", path, dropped);
    if (good && args->svg != NULL) good = timeline_draw(path, args->svg, &args->config, outputs, &run->stats);
    if (args->trace == NULL) (void)unlink(path);
    return good;
}

static bool small_pool_runs(const arguments *args, pkv_tier *tier, const run_outputs *want, run_outputs *got,
                            report *r) {
    pkv_tier_stats stats = PKV_TIER_STATS_INIT;
    run_sequence *const sequence = run_build(&args->config, tier);
    if (sequence == NULL) return false;
    r->absent_blocks = run_absent_blocks(sequence);
    bool good = run_session(sequence, PKV_PREFETCH_OFF, got, &r->off.stats);
    r->off.seconds = got->seconds;
    r->off.wrong_steps = good ? run_compare(&args->config, want, got) : 0;
    good = good && recorded_run(args, sequence, got, &r->on);
    r->on.seconds = got->seconds;
    r->on.wrong_steps = good ? run_compare(&args->config, want, got) : 0;
    run_destroy(sequence);
    if (pkv_tier_get_stats(tier, &stats) != PKV_OK) return false;
    r->engine = stats.usage.engine;
    r->checksum_failures = stats.checksum_failures;
    return good;
}

static int run_and_report(const arguments *args, pkv_tier *tier) {
    const pkv_prefetch_stats none = PKV_PREFETCH_STATS_INIT;
    run_outputs want, got;
    report r;
    memset(&r, 0, sizeof r);
    r.config = args->config;
    r.off.stats = r.on.stats = none;
    (void)run_shape(&r.config, &r.geometry);
    const bool memory = run_outputs_init(&r.config, &want) & run_outputs_init(&r.config, &got);
    const bool good = memory && reference_run(&r.config, &want) && small_pool_runs(args, tier, &want, &got, &r);
    if (good) {
        r.seconds = want.seconds;
        memcpy(r.digest, want.digests + (r.config.steps - 1) * PKV_DIGEST_BYTES, PKV_DIGEST_BYTES);
    }
    run_outputs_free(&want);
    run_outputs_free(&got);
    if (!good) return EXIT_FAILED;
    (args->json ? report_json : report_table)(&r);
    if (!args->json && args->trace != NULL) printf("\ntrace: %s (https://ui.perfetto.dev)\n", args->trace);
    if (!args->json && args->svg != NULL) printf("%spicture: %s\n", args->trace != NULL ? "" : "\n", args->svg);
    if (fflush(stdout) != 0) {
        (void)file_error("stdout", strerror(errno));
        return EXIT_FAILED;
    }
    return r.off.wrong_steps + r.on.wrong_steps > 0 ? EXIT_FAILED : EXIT_OK;
}

int main(int argc, char **argv) {
    arguments args = {.config = {.tokens = 16384,
                                 .steps = 3,
                                 .layers = 16,
                                 .heads = 8,
                                 .queries = 8,
                                 .head_dim = 128,
                                 .page_tokens = 32,
                                 .ratio = 8,
                                 .buffers = 4,
                                 .seed = 1}};
    pkv_tier *tier = NULL;
    if (!parse_arguments(&args, argc, argv)) return EXIT_USAGE;
    if (args.help) return fputs(usage, stdout) < 0 || fflush(stdout) != 0 ? EXIT_FAILED : EXIT_OK;
    if (!can_write(args.trace) || !can_write(args.svg) || !open_tier(&args, &tier)) return EXIT_USAGE;
    const int status = run_and_report(&args, tier);
    (void)pkv_tier_close(tier);
    return status;
}
