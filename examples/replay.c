/* SPDX-License-Identifier: Apache-2.0 */
/* Replays a request trace through the library and checks every byte that comes back.
 *
 * Each request is admitted whole, what the cache did not have is written layer by layer and committed, then K and V of
 * all its tokens and layers are gathered and compared with what they must be, and the table is destroyed: its blocks
 * stay cached until others need their pages. With tiers (--host-bytes, --file) blocks whose pages went to others come back
 * from there, also in a later run; with nodes (--serve, --peer, --directory) in another process. The parts, in examples/replay/:
 *   trace.c, json.c   reads and checks the trace        kv.c      tokens and KV bytes in a model's stead
 *   run.c             one replay                        sweep.c   many replays without bytes, for the plot
 *   tiers.c           host memory and a file below the pool
 *   share.c           other processes
 *   report.c, svg.c, progress.c   what is shown */
#include "replay/report.h"
#include "replay/run.h"
#include "replay/share.h"
#include "replay/svg.h"
#include "replay/sweep.h"
#include "replay/tiers.h"
#include "replay/trace.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

#define MAX_BYTES (UINT64_C(1) << 40)
#define MAX_CAPACITY 4000000u /* blocks; with pages of one token still fewer pages than a pool may have */

typedef struct arguments {
    run_config config;
    const char *svg;
    bool file_bytes_given;
    bool json;
    bool help;
} arguments;

static const char usage[] =
    "usage: replay [options] TRACE\n"
    "\n"
    "Replays a request trace (JSON lines, see examples/traces/README.md) through libpagedkv: every request is "
    "admitted,\n"
    "its missing KV written, all of its KV gathered and every byte compared. Hits are counted in whole trace blocks "
    "of\n"
    "512 tokens; a prompt that ends inside a block is filled up.\n"
    "\n"
    "  --capacity N      blocks of 512 tokens in the cache (10000)\n"
    "  --requests N      replay the first N requests only\n"
    "  --last N          of these, replay the last N only\n"
    "  --page-tokens N   tokens of a page, a divisor of 512 (64)\n"
    "  --layers N        layers (2)\n"
    "  --heads N         KV heads (1)\n"
    "  --head-dim N      elements of a head, f16, a multiple of 4 (8)\n"
    "  --json            one JSON object on stdout, and nothing else\n"
    "  --svg FILE        also replay at many capacities, ids only, and plot the hit rates\n"
    "  --host-bytes N    a tier of host memory below the cache, for page images; N may end in K, M or G\n"
    "  --file FILE       a tier in a file: what an earlier run left there is found again\n"
    "  --file-bytes N    room in a new file; 0 = an existing file's own (0)\n"
    "  --cluster-key F   a file of 32 random bytes, the secret of all nodes; needed with the options below\n"
    "  --serve HOST:PORT other nodes read what is in the tiers here, after the replay too, until SIGTERM or SIGINT\n"
    "  --peer HOST:PORT  another node to read from, up to 16 times\n"
    "  --directory URL   redis://[[user]:password@]host:port[/db]: where nodes find each other; several with commas\n"
    "  --provider NAME   of libfabric: tcp, net, shm, verbs, efa; the same in all nodes\n"
    "  --fabric HOST     an address of this host, when --peer or --directory lead to others (that of --serve, or "
    "loopback)\n"
    "  --help            this text\n"
    "\n"
    "Exit status: 0; 1 for wrong bytes or a call of the library that failed; 2 for bad options, a bad trace, or a\n"
    "file that is no tier's. Blocks that a tier cannot give back are computed again, and counted.\n";

__attribute__((format(printf, 1, 2))) static bool usage_error(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("replay: ", stderr);
    (void)vfprintf(stderr, format, args);
    fputs("\nreplay: --help lists the options\n", stderr);
    va_end(args);
    return false;
}

/* A whole number from 1 to max, in plain decimal digits. */
static bool parse_number(const char *option, const char *text, uint64_t max, uint64_t *out) {
    uint64_t value = 0;
    bool good = *text != '\0';
    for (const char *p = text; good && *p != '\0'; ++p) {
        good = isdigit((unsigned char)*p) && value <= max / 10;
        value = good ? value * 10 + (uint64_t)(*p - '0') : 0;
    }
    if (good && value >= 1 && value <= max) {
        *out = value;
        return true;
    }
    return usage_error("%s: '%s' is not a whole number from 1 to %" PRIu64, option, text, max);
}

static bool parse_number32(const char *option, const char *text, uint32_t max, uint32_t *out) {
    uint64_t value = 0;
    if (!parse_number(option, text, max, &value)) return false;
    *out = (uint32_t)value;
    return true;
}

/* A number of bytes from min to MAX_BYTES: decimal digits, and perhaps K, M or G for powers of 1024. */
static bool parse_bytes(const char *option, const char *text, uint64_t min, uint64_t *out) {
    char *end = NULL;
    int shift = 0;
    errno = 0;
    const unsigned long long value = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
    bool good = end != NULL && errno == 0;
    if (good && *end != '\0') {
        shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
        good = shift > 0 && end[1] == '\0';
    }
    if (good && value <= MAX_BYTES >> shift && value << shift >= min) {
        *out = (uint64_t)value << shift;
        return true;
    }
    return usage_error("%s: '%s' is not a number of bytes from %" PRIu64 " to 1024G (K, M, G may follow)", option, text,
                       min);
}

static bool set_text(const char *option, const char *value, const char **out) {
    *out = value;
    return *value != '\0' || usage_error("%s: an empty value", option);
}

static bool set_option(arguments *args, const char *name, const char *value) {
    run_config *const config = &args->config;
    if (strcmp(name, "--host-bytes") == 0) return parse_bytes(name, value, 4096, &config->host_bytes);
    if (strcmp(name, "--file-bytes") == 0) {
        args->file_bytes_given = true;
        return parse_bytes(name, value, 0, &config->file_bytes);
    }
    if (strcmp(name, "--file") == 0) {
        config->file = value;
        return *value != '\0' || usage_error("%s: the file name is empty", name);
    }
    if (strcmp(name, "--capacity") == 0) return parse_number(name, value, MAX_CAPACITY, &config->capacity);
    if (strcmp(name, "--requests") == 0) return parse_number(name, value, UINT32_MAX, &config->max_requests);
    if (strcmp(name, "--last") == 0) return parse_number(name, value, UINT32_MAX, &config->last);
    if (strcmp(name, "--layers") == 0) return parse_number32(name, value, 1024, &config->layers);
    if (strcmp(name, "--heads") == 0) return parse_number32(name, value, 1024, &config->heads);
    if (strcmp(name, "--page-tokens") == 0) {
        if (!parse_number32(name, value, TRACE_BLOCK_TOKENS, &config->page_tokens)) return false;
        return TRACE_BLOCK_TOKENS % config->page_tokens == 0 || usage_error("%s: %s does not divide 512", name, value);
    }
    if (strcmp(name, "--head-dim") == 0) {
        if (!parse_number32(name, value, 1024, &config->head_dim)) return false;
        return config->head_dim % 4 == 0 || usage_error("%s: %s is not a multiple of 4", name, value);
    }
    if (strcmp(name, "--cluster-key") == 0) return set_text(name, value, &config->cluster_key);
    if (strcmp(name, "--serve") == 0) return set_text(name, value, &config->serve);
    if (strcmp(name, "--directory") == 0) return set_text(name, value, &config->directory);
    if (strcmp(name, "--provider") == 0) return set_text(name, value, &config->provider);
    if (strcmp(name, "--fabric") == 0) return set_text(name, value, &config->fabric);
    if (strcmp(name, "--peer") == 0) {
        if (config->num_peers == MAX_PEERS) return usage_error("%s: more than %u", name, MAX_PEERS);
        return set_text(name, value, &config->peers[config->num_peers++]);
    }
    args->svg = value; /* the only other option that takes a value */
    return *value != '\0' || usage_error("%s: the file name is empty", name);
}

static bool takes_value(const char *name) {
    static const char *const names[] = {"--capacity",   "--requests",    "--last",  "--page-tokens", "--layers",
                                        "--heads",      "--head-dim",    "--svg",   "--host-bytes",  "--file",
                                        "--file-bytes", "--cluster-key", "--serve", "--peer",        "--directory",
                                        "--provider",   "--fabric"};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* One option at argv[*i], as --name value or --name=value. */
static bool parse_option(arguments *args, int argc, char **argv, int *i) {
    const char *const argument = argv[*i];
    const char *const equals = strchr(argument, '=');
    char name[24] = "";
    const size_t size = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
    if (size < sizeof name) memcpy(name, argument, size); /* longer ones are no option's name */
    if (takes_value(name)) {
        if (equals == NULL && *i + 1 == argc) return usage_error("%s: a value is missing", name);
        return set_option(args, name, equals != NULL ? equals + 1 : argv[++*i]);
    }
    if (strcmp(argument, "--json") == 0)
        args->json = true;
    else if (strcmp(argument, "--help") == 0)
        args->help = true;
    else
        return usage_error("unknown option '%s'", argument);
    return true;
}

static bool check_sharing(const run_config *config) {
    const char *const what = config->serve != NULL       ? "--serve"
                             : config->num_peers > 0     ? "--peer"
                             : config->directory != NULL ? "--directory"
                             : config->provider != NULL  ? "--provider"
                             : config->fabric != NULL    ? "--fabric"
                                                         : NULL;
    if (what != NULL && config->cluster_key == NULL) return usage_error("%s: --cluster-key is missing", what);
    if (config->cluster_key != NULL && config->serve == NULL && config->num_peers == 0 && config->directory == NULL)
        return usage_error("--cluster-key: neither --serve nor --peer nor --directory");
    if (config->serve != NULL && config->host_bytes == 0 && config->file == NULL)
        return usage_error("--serve: there is nothing to serve: neither --host-bytes nor --file");
    return true;
}

static bool parse_arguments(arguments *args, int argc, char **argv) {
    bool options = true;
    for (int i = 1; i < argc; ++i) {
        if (options && strcmp(argv[i], "--") == 0) {
            options = false;
        } else if (options && argv[i][0] == '-') {
            if (!parse_option(args, argc, argv, &i)) return false;
        } else if (args->config.trace == NULL) {
            args->config.trace = argv[i];
        } else {
            return usage_error("more than one trace: '%s' and '%s'", args->config.trace, argv[i]);
        }
    }
    if (args->help) return true;
    if (args->config.trace == NULL) return usage_error("no trace is named");
    if (args->config.file == NULL && args->file_bytes_given) return usage_error("--file-bytes: of which --file?");
    return check_sharing(&args->config);
}

/* The sweep behind the plot, and the plot. */
static bool plot(const arguments *args, const trace_totals *totals, const run_result *result, FILE *file,
                 sweep *points) {
    char title[160], subtitle[160];
    if (!sweep_run(&args->config, totals, points)) return false;
    (void)snprintf(title, sizeof title, "Prefix hits of %s", base_name(args->config.trace));
    (void)snprintf(subtitle, sizeof subtitle, "%s requests, %s blocks of %u tokens, %s of them distinct",
                   grouped(totals->requests), grouped(totals->blocks), TRACE_BLOCK_TOKENS,
                   grouped(points->points[points->num_points - 1].capacity));
    const svg_plot picture = {
        title, subtitle, points->points, points->num_points, {args->config.capacity, run_hit_rate(result)}};
    if (svg_write(file, &picture)) return true;
    fprintf(stderr, "replay: %s: %s\n", args->svg, strerror(errno));
    return false;
}

static int replay_and_report(const arguments *args, const trace_totals *totals, FILE *svg) {
    run_result result;
    sweep points;
    if (!run_trace(&args->config, totals, "replay", &result)) return EXIT_FAILED;
    if (svg != NULL && !plot(args, totals, &result, svg, &points)) return EXIT_FAILED;
    (args->json ? report_json : report_table)(&args->config, &result, svg != NULL ? &points : NULL);
    if (fflush(stdout) != 0) {
        fprintf(stderr, "replay: stdout: %s\n", strerror(errno));
        return EXIT_FAILED;
    }
    if (args->config.serve != NULL && !share_wait(result.address)) return EXIT_FAILED;
    return result.wrong_bytes > 0 ? EXIT_FAILED : EXIT_OK;
}

int main(int argc, char **argv) {
    arguments args = {.config = {.capacity = 10000, .page_tokens = 64, .layers = 2, .heads = 1, .head_dim = 8}};
    trace_totals totals;
    FILE *svg = NULL;
    if (!parse_arguments(&args, argc, argv)) return EXIT_USAGE;
    if (args.help) return fputs(usage, stdout) < 0 || fflush(stdout) != 0 ? EXIT_FAILED : EXIT_OK;
    if (!trace_scan(args.config.trace, args.config.max_requests, args.config.last, &totals)) return EXIT_USAGE;
    /* Opened now: better to fail before the replay than after it. */
    if (args.svg != NULL && (svg = fopen(args.svg, "w")) == NULL) {
        fprintf(stderr, "replay: %s: %s\n", args.svg, strerror(errno));
        return EXIT_USAGE;
    }
    tier_set tiers;
    int status = EXIT_USAGE;
    if (tiers_open(&args.config, &tiers)) {
        if (tiers.count > 0 || tiers.node != NULL) args.config.tiers = &tiers;
        status = replay_and_report(&args, &totals, svg);
        tiers_close(&tiers);
    }
    if (svg != NULL) (void)fclose(svg);
    return status;
}
