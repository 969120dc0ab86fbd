/* SPDX-License-Identifier: Apache-2.0 */
/* A storage node: a process that serves the page images of a file, with host memory in front of it, to engines on this
 * machine and others, until it is told to end (SIGTERM, SIGINT). SIGUSR1 prints its statistics, --metrics serves them.
 *
 * An engine fills the file (a file tier of its own); when the engine ends, or on another machine that the file was copied to,
 * this program goes on giving out what is in it. Nodes store nothing in each other. The parts, in examples/node/:
 *   geometry.c   what a model's pages look like, from a text file      metrics.c   statistics over HTTP */
#define _POSIX_C_SOURCE 200809L
#include "node/geometry.h"
#include "node/metrics.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pagedkv/pagedkv.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

#define MAX_BYTES (UINT64_C(1) << 50)

typedef struct arguments {
    const char *cluster_key, *listen, *provider, *fabric, *directory, *advertise, *file, *geometry, *identity, *name,
        *metrics;
    uint64_t host_bytes, file_bytes, export_bytes;
    bool help;
} arguments;

static const char usage[] =
    "usage: node --cluster-key FILE [options]\n"
    "\n"
    "Serves the page images of a file tier and of host memory in front of it to other nodes. Prints the address at "
    "which\n"
    "it is reached, one line, then runs until SIGTERM or SIGINT. SIGUSR1 prints its statistics.\n"
    "\n"
    "  --cluster-key FILE  32 random bytes, the secret of all nodes: head -c 32 /dev/urandom\n"
    "  --listen HOST:PORT  where others connect; port 0 takes any (127.0.0.1:0)\n"
    "  --provider NAME     of libfabric: tcp, net, shm, verbs, efa; the same in all nodes (the first that works)\n"
    "  --fabric HOST       the address of the fabric, where it is another than that of --listen\n"
    "  --directory URL     redis://[[user]:password@]host:port[/db]: where nodes find each other; several with commas\n"
    "  --advertise HOST:PORT  the address that the directory gives to others (that of --listen)\n"
    "  --name TEXT         for the others' messages (host/pid)\n"
    "  --host-bytes N      host memory; N may end in K, M, G or T. What readers take from the file is kept in it\n"
    "  --file FILE         a file of page images, which one process at a time has open\n"
    "  --file-bytes N      room in a new file; 0 = an existing file's own (0)\n"
    "  --identity TEXT     of the model: that of the file, and of all nodes that are let in\n"
    "  --geometry FILE     only nodes with pages of this geometry are let in (see examples/node/geometry.h); without "
    "it\n"
    "                      every one is, and finds what the file has for its own\n"
    "  --export-bytes N    memory that others read from at one time (64M)\n"
    "  --metrics HOST:PORT statistics for Prometheus, http://HOST:PORT/metrics\n"
    "  --help              this text\n"
    "\n"
    "Exit status: 0; 1 when something cannot be opened; 2 for bad options.\n";

__attribute__((format(printf, 1, 2))) static bool usage_error(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fputs("node: ", stderr);
    vfprintf(stderr, format, values);
    va_end(values);
    fputs("\nnode: --help lists the options\n", stderr);
    return false;
}

static bool failed(const char *what, pkv_status status) {
    char message[512] = "";
    (void)pkv_last_error(message, sizeof message);
    fprintf(stderr, "node: %s: %s: %s\n", what, pkv_status_string(status), message);
    return false;
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static bool parse_bytes(const char *option, const char *text, uint64_t *out) {
    static const char units[] = "KMGT";
    char *end = NULL;
    errno = 0;
    const unsigned long long value = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
    const char *const unit = end != NULL && *end != '\0' ? strchr(units, *end) : NULL;
    const int shift = unit != NULL ? 10 * (int)(unit - units + 1) : 0;
    if (end == NULL || errno != 0 || end[unit != NULL ? 1 : 0] != '\0' || value > MAX_BYTES >> shift)
        return usage_error("%s: '%s' is not a number of bytes up to 1024T (K, M, G, T may follow)", option, text);
    *out = (uint64_t)value << shift;
    return true;
}

static bool set_option(arguments *a, const char *name, const char *value) {
    const struct {
        const char *name;
        const char **text;
        uint64_t *bytes;
    } options[] = {
        {"--cluster-key", &a->cluster_key, NULL},
        {"--listen", &a->listen, NULL},
        {"--provider", &a->provider, NULL},
        {"--directory", &a->directory, NULL},
        {"--fabric", &a->fabric, NULL},
        {"--advertise", &a->advertise, NULL},
        {"--name", &a->name, NULL},
        {"--file", &a->file, NULL},
        {"--identity", &a->identity, NULL},
        {"--geometry", &a->geometry, NULL},
        {"--metrics", &a->metrics, NULL},
        {"--host-bytes", NULL, &a->host_bytes},
        {"--file-bytes", NULL, &a->file_bytes},
        {"--export-bytes", NULL, &a->export_bytes},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; ++i) {
        if (strcmp(name, options[i].name) != 0) continue;
        if (value == NULL) return usage_error("%s: a value is missing", name);
        if (options[i].bytes != NULL) return parse_bytes(name, value, options[i].bytes);
        *options[i].text = value;
        return *value != '\0' || usage_error("%s: an empty value", name);
    }
    return usage_error("unknown option '%s'", name);
}

static bool parse_arguments(arguments *a, int argc, char **argv) {
    for (int i = 1; i < argc; ++i) {
        char name[32] = "";
        const char *const equals = strchr(argv[i], '=');
        const size_t size = equals != NULL ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        if (strcmp(argv[i], "--help") == 0) {
            a->help = true;
            continue;
        }
        if (strncmp(argv[i], "--", 2) != 0 || size >= sizeof name) return usage_error("unknown option '%s'", argv[i]);
        memcpy(name, argv[i], size);
        if (!set_option(a, name, equals != NULL ? equals + 1 : i + 1 < argc ? argv[i + 1] : NULL)) return false;
        if (equals == NULL) ++i;
    }
    if (a->help) return true;
    if (a->cluster_key == NULL) return usage_error("--cluster-key is missing");
    if (a->file == NULL && a->host_bytes == 0) return usage_error("nothing to serve: neither --file nor --host-bytes");
    return a->file != NULL || a->file_bytes == 0 || usage_error("--file-bytes: of which --file?");
}

/* ---- what is served ---------------------------------------------------------------------------------------------- */

typedef struct storage {
    pkv_tier *tiers[2]; /* host memory first */
    const char *names[2];
    uint32_t num_tiers;
    pkv_pool *pool; /* for its geometry alone; NULL: any */
    pkv_node *node;
} storage;

static pkv_bytes text_bytes(const char *text) {
    const pkv_bytes bytes = {text, text != NULL ? strlen(text) : 0};
    return bytes;
}

static bool open_tiers(const arguments *a, storage *s) {
    if (a->host_bytes > 0) {
        pkv_host_tier_options host = PKV_HOST_TIER_OPTIONS_INIT;
        host.capacity_bytes = a->host_bytes;
        const pkv_status status = pkv_tier_open_host(&host, &s->tiers[s->num_tiers]);
        if (status != PKV_OK) return failed("--host-bytes", status);
        s->names[s->num_tiers++] = "host";
    }
    if (a->file != NULL) {
        pkv_file_tier_options file = PKV_FILE_TIER_OPTIONS_INIT;
        file.path = a->file;
        file.capacity_bytes = a->file_bytes;
        file.identity = text_bytes(a->identity);
        const pkv_status status = pkv_tier_open_file(&file, &s->tiers[s->num_tiers]);
        if (status != PKV_OK) return failed(a->file, status);
        s->names[s->num_tiers++] = "file";
    }
    return true;
}

/* A pool of one page in each group over the tiers: a node compares what its pools' images look like. */
static bool open_geometry(const char *path, storage *s) {
    geometry g;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    pkv_tier_attachment tiers[2] = {PKV_TIER_ATTACHMENT_INIT, PKV_TIER_ATTACHMENT_INIT};
    if (!geometry_read(path, &g)) return false;
    for (uint32_t i = 0; i < s->num_tiers; ++i) {
        tiers[i].tier = s->tiers[i];
        tiers[i].policy = PKV_TIER_READ_ONLY;
    }
    options.page_tokens = g.page_tokens;
    options.num_groups = g.num_groups;
    options.groups = g.groups;
    options.tiers = tiers;
    options.num_tiers = s->num_tiers;
    const pkv_status status = pkv_pool_create(&options, &s->pool);
    return status == PKV_OK || failed(path, status);
}

static bool read_key(const char *path, unsigned char *key) {
    FILE *const file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "node: %s: %s\n", path, strerror(errno));
        return false;
    }
    const size_t size = fread(key, 1, PKV_CLUSTER_KEY_BYTES, file);
    const bool good = size == PKV_CLUSTER_KEY_BYTES && fgetc(file) == EOF;
    (void)fclose(file);
    if (!good)
        fprintf(stderr, "node: %s: a cluster key has %d bytes, no fewer and no more\n", path, PKV_CLUSTER_KEY_BYTES);
    return good;
}

static bool open_node(const arguments *a, storage *s) {
    unsigned char key[PKV_CLUSTER_KEY_BYTES];
    if (!read_key(a->cluster_key, key)) return false;
    pkv_node_options options = PKV_NODE_OPTIONS_INIT;
    options.cluster_key.data = key;
    options.cluster_key.size = sizeof key;
    options.name = a->name;
    options.listen = a->listen;
    options.provider = a->provider;
    options.fabric_host = a->fabric;
    options.tiers = s->tiers;
    options.num_tiers = s->num_tiers;
    options.pools = &s->pool;
    options.num_pools = s->pool != NULL ? 1 : 0;
    options.identity = text_bytes(a->identity);
    options.export_bytes = a->export_bytes;
    options.directory = a->directory;
    options.advertise = a->advertise;
    options.flags = s->num_tiers > 1 ? PKV_NODE_PROMOTE : 0;
    const pkv_status status = pkv_node_open(&options, &s->node);
    memset(key, 0, sizeof key);
    return status == PKV_OK || failed("pkv_node_open", status);
}

static void close_storage(storage *s) {
    if (s->node != NULL) (void)pkv_node_close(s->node);
    if (s->pool != NULL) (void)pkv_pool_destroy(s->pool);
    for (uint32_t i = 0; i < s->num_tiers; ++i) (void)pkv_tier_close(s->tiers[i]);
}

/* ---- until it is told to end ------------------------------------------------------------------------------------- */

static int told[2]; /* a pipe: any thread may be the one that a signal comes to */

static void on_signal(int number) {
    const int error = errno;
    const char byte = number == SIGUSR1 ? 's' : 'e';
    (void)!write(told[1], &byte, 1);
    errno = error;
}

static bool catch_signals(void) {
    static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    bool good = pipe(told) == 0;
    for (size_t i = 0; good && i < sizeof numbers / sizeof *numbers; ++i)
        good = sigaction(numbers[i], &action, NULL) == 0;
    if (!good) fprintf(stderr, "node: signals: %s\n", strerror(errno));
    return good;
}

static void print_statistics(const pkv_prometheus_sources *sources) {
    char *const text = metrics_text(sources);
    if (text == NULL) return;
    fputs(text, stdout);
    (void)fflush(stdout);
    free(text);
}

static int run(const storage *s, int metrics) {
    pkv_prometheus_sources sources = PKV_PROMETHEUS_SOURCES_INIT;
    sources.tiers = s->tiers;
    sources.tier_names = s->names;
    sources.num_tiers = s->num_tiers;
    sources.nodes = &s->node;
    sources.num_nodes = 1;
    for (;;) {
        struct pollfd waited[2] = {{told[0], POLLIN, 0}, {metrics, POLLIN, 0}}; /* a descriptor of -1 is passed over */
        char byte = 0;
        if (poll(waited, 2, -1) < 0) {
            if (errno == EINTR) continue;
            fprintf(stderr, "node: poll: %s\n", strerror(errno));
            return EXIT_FAILED;
        }
        if ((waited[0].revents & POLLIN) != 0 && read(told[0], &byte, 1) == 1) {
            if (byte == 'e') return EXIT_OK;
            print_statistics(&sources);
        }
        if ((waited[1].revents & POLLIN) != 0) metrics_answer(metrics, &sources);
    }
}

static bool say_address(const storage *s) {
    char address[280];
    uint64_t size = 0;
    const pkv_status status = pkv_node_address(s->node, address, sizeof address, &size);
    if (status != PKV_OK) return failed("pkv_node_address", status);
    printf("%s\n", address);
    return fflush(stdout) == 0;
}

int main(int argc, char **argv) {
    arguments a = {.listen = "127.0.0.1:0"};
    storage s = {.num_tiers = 0};
    int metrics = -1, status = EXIT_FAILED;
    char where[280];
    if (!parse_arguments(&a, argc, argv)) return EXIT_USAGE;
    if (a.help) return fputs(usage, stdout) < 0 || fflush(stdout) != 0 ? EXIT_FAILED : EXIT_OK;
    if (catch_signals() && (a.metrics == NULL || metrics_listen(a.metrics, &metrics, where)) && open_tiers(&a, &s) &&
        (a.geometry == NULL || open_geometry(a.geometry, &s)) && open_node(&a, &s) && say_address(&s)) {
        if (metrics >= 0) fprintf(stderr, "node: statistics at http://%s/metrics\n", where);
        status = run(&s, metrics);
    }
    close_storage(&s);
    return status;
}
