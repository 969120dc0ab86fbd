/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the plug-in share: loading it, the providers that this machine has, memory with known bytes, reads and
 * what came of them. */
#ifndef PKV_TESTS_FABRIC_H
#define PKV_TESTS_FABRIC_H

#include "../../lib/node/fabric_table.h"
#include "fabric/build.h"
#include "support/support.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define second 1000000000ull
#define never UINT64_MAX
/* Longer than any read here takes on a busy machine, under a sanitizer. */
#define patience (60 * second)

static const pkv_fabric_table *fabric; /* NULL: there is no plug-in */
static char why[512];

static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * second + (uint64_t)now.tv_nsec;
}

static inline void sleep_ms(long ms) {
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static inline bool plugin_path(char *path, size_t bytes) {
    build_path(path, bytes, "lib/pagedkv/" PKV_FABRIC_PLUGIN);
    return access(path, R_OK) == 0;
}

static const int replaced_signals[] = {SIGBUS, SIGSEGV, SIGTERM, SIGINT};

/* Loads the plug-in, once, as fabric_table.h asks for it. False: this build has none. */
static inline bool load_fabric(void) {
    if (fabric != NULL) return true;
    char path[8192];
    if (!plugin_path(path, sizeof path)) return false;
    struct sigaction actions[4];
    for (int i = 0; i < 4; ++i) sigaction(replaced_signals[i], NULL, &actions[i]);
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    for (int i = 0; i < 4; ++i) sigaction(replaced_signals[i], &actions[i], NULL);
    pkv_fabric_entry entry;
    *(void **)&entry = dlsym(plugin, PKV_FABRIC_ENTRY);
    if (entry == NULL) exit(2);
    fabric = entry(PKV_FABRIC_VERSION, why, sizeof why);
    if (fabric == NULL) {
        fprintf(stderr, "%s\n", why);
        exit(2);
    }
    return true;
}

/* A status of the table, with the message if it is another one. */
static inline void check_fabric(pkv_status got, pkv_status expected, const char *call, const char *file, int line) {
    if (got == expected) return;
    print_error("%s: %s, not %s: %s\n", call, pkv_status_string(got), pkv_status_string(expected), why);
    _fail(file, line);
}
#define assert_fabric(call, expected) check_fabric((call), (expected), #call, __FILE__, __LINE__)

/* ---- memory ---- */

/* The word at a place of the memory of one seed: no two places near each other look alike. */
static inline uint64_t word_at(uint64_t seed, uint64_t word) {
    const uint64_t mixed = (seed + 1) * 0x9E3779B97F4A7C15u + word * 0xBF58476D1CE4E5B9u;
    return (mixed ^ (mixed >> 29)) * 0x94D049BB133111EBu;
}

/* Of `bytes` bytes of that memory from `offset` on, those in the word that begins it; returns how many. */
static inline uint64_t first_bytes(unsigned char *out, uint64_t seed, uint64_t offset, uint64_t bytes) {
    const uint64_t word = word_at(seed, offset / 8), skip = offset % 8, count = bytes < 8 - skip ? bytes : 8 - skip;
    memcpy(out, (const unsigned char *)&word + skip, count);
    return count;
}

static inline void fill(unsigned char *memory, uint64_t bytes, uint64_t seed) {
    for (uint64_t i = 0; i < bytes;) i += first_bytes(memory + i, seed, i, bytes - i);
}

/* `data` is what stands at `offset` in the memory of that seed. */
static inline bool holds(const unsigned char *data, uint64_t bytes, uint64_t seed, uint64_t offset) {
    for (uint64_t i = 0; i < bytes;) {
        unsigned char expected[8];
        const uint64_t count = first_bytes(expected, seed, offset + i, bytes - i);
        if (memcmp(data + i, expected, count) != 0) return false;
        i += count;
    }
    return true;
}

static inline bool all_are(const unsigned char *data, uint64_t bytes, unsigned char value) {
    for (uint64_t i = 0; i < bytes; ++i)
        if (data[i] != value) return false;
    return true;
}

/* ---- a node: a domain, memory that peers read, memory that reads land in ---- */

struct node {
    pkv_fabric_domain *domain;
    unsigned char *memory; /* for peers */
    unsigned char *data;   /* for reads */
    uint64_t bytes;        /* of each */
    pkv_fabric_region *region;
    pkv_fabric_region *target;
    uint32_t num_windows;
    pkv_fabric_window windows[PKV_FABRIC_MAX_REGIONS];
};

struct peer {
    pkv_fabric_endpoint *endpoint;
    size_t name_bytes;
    unsigned char name[PKV_FABRIC_MAX_NAME];
};

static inline unsigned char *map(uint64_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

/* False: this machine does not have the provider. */
static inline bool open_node(struct node *node, const char *provider, uint64_t bytes, uint64_t seed) {
    memset(node, 0, sizeof *node);
    const pkv_status status = fabric->open(provider, NULL, &node->domain, why, sizeof why);
    if (status == PKV_ERR_UNSUPPORTED) return false;
    assert_fabric(status, PKV_OK);
    node->bytes = bytes;
    node->memory = map(bytes);
    node->data = map(bytes);
    fill(node->memory, bytes, seed);
    assert_fabric(fabric->add_memory(node->domain, node->memory, bytes, 1, &node->region, why, sizeof why), PKV_OK);
    assert_fabric(fabric->add_memory(node->domain, node->data, bytes, 0, &node->target, why, sizeof why), PKV_OK);
    node->num_windows = fabric->windows(node->region, node->windows, PKV_FABRIC_MAX_REGIONS);
    assert_in_range(node->num_windows, 1, PKV_FABRIC_MAX_REGIONS);
    return true;
}

static inline void close_node(struct node *node) {
    fabric->remove_memory(node->region);
    fabric->remove_memory(node->target);
    fabric->close(node->domain);
    munmap(node->memory, node->bytes);
    munmap(node->data, node->bytes);
}

static inline void open_peer(struct node *node, struct peer *peer) {
    peer->name_bytes = sizeof peer->name;
    assert_fabric(fabric->endpoint_open(node->domain, &peer->endpoint, peer->name, &peer->name_bytes, why, sizeof why),
                  PKV_OK);
    assert_in_range(peer->name_bytes, 1, PKV_FABRIC_MAX_NAME);
}

static inline void connect_peers(struct peer *one, struct peer *other) {
    assert_fabric(fabric->endpoint_connect(one->endpoint, other->name, other->name_bytes, why, sizeof why), PKV_OK);
    assert_fabric(fabric->endpoint_connect(other->endpoint, one->name, one->name_bytes, why, sizeof why), PKV_OK);
}

/* ---- reads ---- */

/* Of a modes struct that the caller's headers know. */
static inline pkv_fabric_modes modes_of(struct node *node) {
    pkv_fabric_modes modes = {.struct_size = sizeof modes};
    fabric->modes(node->domain, &modes);
    return modes;
}

struct result {
    atomic_int calls; /* of done: has to become 1 and stay so */
    pkv_status status;
    int32_t error;
    uint64_t at; /* when */
};

static inline void record(void *user, pkv_status status, int32_t error) {
    struct result *result = user;
    result->status = status;
    result->error = error;
    result->at = now_ns();
    atomic_fetch_add(&result->calls, 1);
}

/* False when it has not ended in a minute. */
static inline bool wait_for(struct result *result) {
    const uint64_t end = now_ns() + patience;
    for (uint64_t turn = 0; atomic_load(&result->calls) == 0; ++turn) {
        if (now_ns() > end) return false;
        const struct timespec pause = {0, 20000};
        if (turn > 100) nanosleep(&pause, NULL);
    }
    return true;
}

static inline pkv_status begin_read(struct node *reader, struct peer *peer, const struct node *owner, uint64_t at,
                                    uint64_t bytes, uint64_t offset, uint64_t deadline_ns, struct result *result) {
    memset(result, 0, sizeof *result);
    return fabric->read(peer->endpoint, reader->target, reader->data + at, bytes, owner->windows, owner->num_windows,
                        offset, deadline_ns, record, result);
}

/* One read, from begin to end: its status. */
static inline pkv_status read_now(struct node *reader, struct peer *peer, const struct node *owner, uint64_t at,
                                  uint64_t bytes, uint64_t offset) {
    struct result result;
    const pkv_status status = begin_read(reader, peer, owner, at, bytes, offset, now_ns() + patience, &result);
    if (status != PKV_OK) return status;
    assert_true(wait_for(&result));
    return result.status;
}

/* ---- providers ---- */

static const char *const all_providers[] = {"tcp", "tcp;ofi_rxm", "net", "shm", "verbs", "efa"};
enum { num_providers = sizeof all_providers / sizeof all_providers[0] };

/* Entries of /dev/shm that a process has made through libfabric. */
static inline int shm_files_of(pid_t pid) {
    char prefix[32];
    int count = 0;
    snprintf(prefix, sizeof prefix, "%d", (int)pid);
    DIR *dir = opendir("/dev/shm");
    if (dir == NULL) return 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strstr(entry->d_name, prefix) != NULL) ++count;
    closedir(dir);
    return count;
}

struct provider_test {
    const char *name;
    void (*run)(void **provider);
};

/* This machine has that provider, and it is none of those before it under another name ("tcp" was "tcp;ofi_rxm" once). */
static inline bool is_another(int number) {
    static char names[num_providers][64];
    for (int i = 0; names[number][0] == '\0' && i <= number; ++i) {
        pkv_fabric_domain *domain = NULL;
        pkv_fabric_modes modes = {.struct_size = sizeof modes};
        if (fabric->open(all_providers[i], NULL, &domain, why, sizeof why) != PKV_OK) continue;
        fabric->modes(domain, &modes);
        fabric->close(domain);
        memcpy(names[i], modes.provider, sizeof names[i]);
    }
    for (int i = 0; i < number; ++i)
        if (strcmp(names[i], names[number]) == 0) return false;
    return names[number][0] != '\0';
}

/* Runs each test with each provider, as tests of their own: "name (provider)". */
static inline int run_with_every_provider(const struct provider_test *tests, size_t num_tests) {
    static char names[64 * num_providers][96];
    static struct CMUnitTest units[64 * num_providers];
    size_t count = 0;
    for (size_t i = 0; i < num_tests; ++i) {
        for (int j = 0; j < num_providers; ++j) {
            if (load_fabric() ? !is_another(j) : j != 0) continue;
            snprintf(names[count], sizeof names[count], "%s (%s)", tests[i].name, all_providers[j]);
            units[count] =
                (struct CMUnitTest){names[count], tests[i].run, NULL, NULL, (void *)(uintptr_t)all_providers[j]};
            ++count;
        }
    }
    return _cmocka_run_group_tests("fabric", units, count, NULL, NULL);
}

/* First in every test: skips where there is no plug-in. */
#define provider_of(state) (load_fabric() ? (const char *)*(state) : (skip(), (const char *)NULL))

#endif
