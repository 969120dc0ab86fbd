/* SPDX-License-Identifier: Apache-2.0 */
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static object objects[MAX_OBJECTS];
static int num_objects;
static char folder[64];
static char paths[16][160];
static int num_paths;

static const char *const kind_names[KINDS] = {"pool", "table", "batch", "tier", "queue", "operation", "session", "counter", "group"};

object *find_object(kind k, const char *name) {
    for (int i = num_objects; i-- > 0;)
        if (objects[i].kind == k && strcmp(objects[i].name, name) == 0) return &objects[i];
    return NULL;
}

object *make_object(line *l, kind k, const char *key) {
    const char *const name = text_arg(l, key, NULL);
    if (name == NULL || num_objects == MAX_OBJECTS) return complain(l, "%s= names no new %s", key, kind_names[k]), NULL;
    object *const fresh = &objects[num_objects++];
    memset(fresh, 0, sizeof *fresh);
    fresh->kind = k;
    fresh->name = strdup(name);
    return fresh;
}

object *object_arg(line *l, kind k, const char *key) {
    const char *const name = text_arg(l, key, NULL);
    object *const found = name != NULL ? find_object(k, name) : NULL;
    if (name == NULL || found == NULL) complain(l, "%s=%s: there is no such %s", key, name != NULL ? name : "", kind_names[k]);
    return found;
}

void *handle_arg(line *l, kind k, const char *key) {
    const object *const found = object_arg(l, k, key);
    return found != NULL ? found->handle : NULL;
}

static void end_object(object *o) {
    switch (o->kind) {
    case POOL: (void)pkv_pool_destroy(o->handle); break;
    case TABLE: (void)pkv_table_destroy(o->handle, NULL); break;
    case BATCH:
        (void)pkv_batch_destroy(o->handle);
        free(o->arrays.block_table);
        free(o->arrays.lengths);
        free(o->arrays.last_page_len);
        free(o->arrays.slot_mapping);
        break;
    case TIER: (void)pkv_tier_close(o->handle); break;
    case QUEUE: (void)pkv_queue_destroy(o->handle); break;
    case OP: (void)pkv_op_close(o->handle); break;
    case SESSION: (void)pkv_prefetch_close(o->handle, NULL); break;
    default: break;
    }
    free(o->name);
}

void end_objects(void) {
    while (num_objects > 0) end_object(&objects[--num_objects]);
    while (num_paths > 0) (void)unlink(paths[--num_paths]);
    if (folder[0] != '\0') (void)rmdir(folder);
    folder[0] = '\0';
}

const char *scratch_path(const char *name) {
    const char *const temporary = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    if (folder[0] == '\0') {
        (void)snprintf(folder, sizeof folder, "%.40s/pkv-cases.XXXXXX", temporary);
        if (mkdtemp(folder) == NULL) abort();
    }
    for (int i = 0; i < num_paths; ++i)
        if (strcmp(strrchr(paths[i], '/') + 1, name) == 0) return paths[i];
    if (num_paths == 16) abort();
    (void)snprintf(paths[num_paths], sizeof paths[0], "%s/%s", folder, name);
    return paths[num_paths++];
}

const pkv_sync *sync_arg(line *l, pkv_sync *sync) {
    const char *const value = text_arg(l, "sync", NULL);
    if (value == NULL) return NULL;
    char name[32] = "";
    unsigned long long wanted = 0;
    object *counter = NULL;
    if (sscanf(value, "%31[^:]:%llu", name, &wanted) == 2) counter = find_object(COUNTER, name);
    if (counter == NULL) return complain(l, "sync=%s is no COUNTER:VALUE", value), NULL;
    *sync = (pkv_sync)PKV_SYNC_INIT;
    sync->kind = PKV_SYNC_HOST_COUNTER;
    sync->handle = &counter->counter;
    sync->value = wanted;
    sync->timeout_ns = number_arg(l, "sync_timeout", 1000000);
    return sync;
}
