/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the plug-in for hiredis share: its table, and commands and replies as text. */
#ifndef PKV_TESTS_REDIS_PLUGIN_H
#define PKV_TESTS_REDIS_PLUGIN_H

#include "../../lib/directory/redis_table.h"
#include "node/redis.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <time.h>

static const uint64_t one_second = 1000000000;
static const pkv_redis_table *table; /* NULL: there is no plug-in */

static inline bool load(void) {
    if (table != NULL) return true;
    char self[PATH_MAX] = "", path[PATH_MAX + 64];
    const char *build = getenv("BUILD");
    if (build != NULL) {
        (void)snprintf(path, sizeof path, "%s/lib/pagedkv/" PKV_REDIS_PLUGIN, build);
    } else {
        assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
        (void)snprintf(path, sizeof path, "%s/../../lib/pagedkv/" PKV_REDIS_PLUGIN, dirname(self));
    }
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) {
        print_message("%s\n", dlerror());
        return false;
    }
    const pkv_redis_entry entry = (pkv_redis_entry)dlsym(plugin, PKV_REDIS_ENTRY);
    assert_non_null(entry);
    char why[256];
    assert_null(entry(PKV_REDIS_VERSION + 1, why, sizeof why));
    assert_non_null(strstr(why, "version"));
    table = entry(PKV_REDIS_VERSION, why, sizeof why);
    assert_non_null(table);
    assert_true(table->struct_size >= sizeof *table);
    return true;
}

static uint64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * one_second + (uint64_t)at.tv_nsec;
}
static uint64_t in(double seconds) { return now_ns() + (uint64_t)(seconds * 1e9); }

static char why[256];
static int wake = -1;

static inline pkv_status open_line(uint16_t port, double seconds, pkv_redis_line **line) {
    pkv_redis_server server = {.struct_size = sizeof server, .host = "127.0.0.1", .port = port, .wake_fd = wake};
    return table->open(&server, in(seconds), line, why, sizeof why);
}

static inline void add(pkv_redis_line *line, const char *text) {
    char copy[256];
    const char *words[8];
    size_t sizes[8];
    uint32_t count = 0;
    (void)snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        words[count] = word;
        sizes[count++] = strlen(word);
    }
    assert_ok(table->append(line, count, words, sizes));
}

/* Replies as text: kind and value, with a space behind each. */
typedef struct {
    char text[8192];
    size_t used;
    uint64_t next;
} replies;

static inline void write_reply(replies *to, const pkv_redis_reply *reply) {
    static const char kinds[] = "?+-$:_*,";
    to->used += (size_t)snprintf(to->text + to->used, sizeof to->text - to->used, "%c", kinds[reply->kind]);
    if (reply->kind == PKV_REDIS_NUMBER)
        to->used += (size_t)snprintf(to->text + to->used, sizeof to->text - to->used, "%lld", (long long)reply->number);
    else if (reply->bytes < 85)
        to->used +=
            (size_t)snprintf(to->text + to->used, sizeof to->text - to->used, "%.*s", (int)reply->bytes, reply->text);
    else
        to->used += (size_t)snprintf(to->text + to->used, sizeof to->text - to->used, "<%llu>",
                                     (unsigned long long)reply->bytes);
    if (reply->num_items != 0) to->used += (size_t)sprintf(to->text + to->used, "(");
    for (uint64_t i = 0; i < reply->num_items; ++i) write_reply(to, &reply->items[i]);
    if (reply->num_items != 0) to->used += (size_t)sprintf(to->text + to->used, ")");
    to->used += (size_t)sprintf(to->text + to->used, " ");
}
static inline void take(void *user, uint64_t number, const pkv_redis_reply *reply) {
    replies *to = user;
    assert_int_equal(number, to->next++);
    if (to->used < 7000) write_reply(to, reply);
}

static inline pkv_status run(pkv_redis_line *line, uint64_t count, uint64_t most_bytes, double seconds, replies *to) {
    memset(to, 0, sizeof *to);
    return table->exchange(line, count, most_bytes, in(seconds), take, to, why, sizeof why);
}

#endif
