/* SPDX-License-Identifier: Apache-2.0 */
#define PKV_TESTS_ON_DEVICE_ITSELF
#include "support/on_device.h"

#include "device/fake/fake.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the device ---- */

enum { num_streams = 3, max_known = 1 << 12 };

static struct {
    pthread_mutex_t mutex;
    const struct fake_device *device; /* NULL: tests of host pools */
    bool streams;                     /* and calls are given some */
    void *list[num_streams];
    uint64_t random;
    /* Tables, and batches, and the stream that rows which are not committed are in. */
    struct {
        const void *object;
        int stream;
        bool open;
        uint64_t end; /* rows that were written are tokens before this one */
    } known[max_known];
    size_t num_known; /* places below this one were in use */
} the = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void look(void) {
    const char *how = getenv("PKV_TEST_DEVICE"), *folder = getenv("PKV_PLUGIN_DIR");
    if (how == NULL || folder == NULL) return;
    char path[4096];
    snprintf(path, sizeof path, "%s/libpagedkv-cuda.so", folder);
    void *plugin = dlopen(path, RTLD_NOW);
    fake_device_entry entry = NULL;
    if (plugin != NULL) *(void **)&entry = dlsym(plugin, FAKE_DEVICE_ENTRY);
    if (entry == NULL) {
        fprintf(stderr, "%s is no fake device\n", path);
        abort();
    }
    the.device = entry();
    the.streams = strcmp(how, "streams") == 0;
    for (int i = 0; i < num_streams && the.streams; ++i) the.list[i] = the.device->make_stream(0);
}

/* Without a lock: tests fork while other threads are in here. */
static const struct fake_device *device(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look);
    return the.device;
}

static bool with_streams(const pkv_sync *sync) { return sync == NULL && device() != NULL && the.streams; }

bool runs_on_device(void) { return device() != NULL; }
bool runs_with_streams(void) { return with_streams(NULL); }

void settle_device(void) {
    if (device() != NULL) the.device->finish(NULL);
}

static int any_stream(void) { /* under the lock */
    the.random = the.random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int)((the.random >> 33) % num_streams);
}

static size_t place_of(const void *object) { /* under the lock */
    size_t free = the.num_known;
    for (size_t at = 0; at < the.num_known; ++at) {
        if (the.known[at].object == object) return at;
        if (the.known[at].object == NULL) free = at;
    }
    if (free == max_known) abort();
    if (free == the.num_known) ++the.num_known;
    the.known[free].object = object;
    the.known[free].open = false;
    the.known[free].stream = any_stream();
    the.known[free].end = 0;
    return free;
}

static pkv_sync sync_of(int stream) {
    pkv_sync sync = PKV_SYNC_INIT;
    sync.kind = PKV_SYNC_CUDA_STREAM;
    sync.handle = the.list[stream];
    return sync;
}

/* A stream, whichever. */
static pkv_sync some_stream(int *number) {
    pthread_mutex_lock(&the.mutex);
    *number = any_stream();
    pthread_mutex_unlock(&the.mutex);
    return sync_of(*number);
}

/* The stream of an object's rows that are not committed; another one than last time when there are none. */
static pkv_sync stream_of(const void *object, bool opens, int *number) {
    pthread_mutex_lock(&the.mutex);
    const size_t at = place_of(object);
    if (!the.known[at].open) the.known[at].stream = any_stream();
    the.known[at].open = the.known[at].open || opens;
    *number = the.known[at].stream;
    pthread_mutex_unlock(&the.mutex);
    return sync_of(*number);
}

/* There are no rows behind these. */
static void set_closed(const void *object, uint64_t committed) {
    pthread_mutex_lock(&the.mutex);
    const size_t at = place_of(object);
    if (the.known[at].end <= committed) the.known[at].open = false;
    pthread_mutex_unlock(&the.mutex);
}

static void forget(const void *object) {
    pthread_mutex_lock(&the.mutex);
    the.known[place_of(object)].object = NULL;
    pthread_mutex_unlock(&the.mutex);
}

static void note_written(const void *object, uint64_t end) {
    pthread_mutex_lock(&the.mutex);
    const size_t at = place_of(object);
    if (the.known[at].end < end) the.known[at].end = end;
    pthread_mutex_unlock(&the.mutex);
}

/* The rows of a table that are not committed become this stream's: the caller's to order. */
static void move_to(const void *object, int stream) {
    pthread_mutex_lock(&the.mutex);
    const size_t at = place_of(object);
    const int before = the.known[at].open ? the.known[at].stream : stream;
    the.known[at].open = true;
    the.known[at].stream = stream;
    pthread_mutex_unlock(&the.mutex);
    if (before != stream) the.device->order(the.list[stream], the.list[before]);
}

/* ---- the calls ---- */

pkv_status test_pool_create(const pkv_pool_options *options, pkv_pool **pool) {
    if (device() == NULL || options == NULL || options->struct_size != sizeof *options ||
        options->huge_pages == PKV_HUGE_PAGES_REQUIRE)
        return pkv_pool_create(options, pool);
    pkv_pool_options on_device = *options;
    on_device.device = PKV_DEVICE_CUDA;
    on_device.debug |= PKV_DEBUG_HOT_PAGES;
    return pkv_pool_create(&on_device, pool);
}

pkv_status test_pool_release(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_page *pages,
                             pkv_status *statuses, const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_pool_release(pool, group, num_pages, pages, statuses, sync);
    int number;
    const pkv_sync stream = some_stream(&number);
    return pkv_pool_release(pool, group, num_pages, pages, statuses, &stream);
}

pkv_status test_pool_write(pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t num_slots, const pkv_slot *slots,
                           const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_pool_write(pool, group, layer, num_slots, slots, k, v, sync);
    int number;
    const pkv_sync stream = some_stream(&number);
    return pkv_pool_write(pool, group, layer, num_slots, slots, k, v, &stream);
}

pkv_status test_pool_gather(pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t num_pages, const pkv_page *pages,
                            uint64_t first_token, uint64_t num_tokens, const pkv_tensor *k, const pkv_tensor *v,
                            const pkv_sync *sync) {
    if (!with_streams(sync))
        return pkv_pool_gather(pool, group, layer, num_pages, pages, first_token, num_tokens, k, v, sync);
    int number;
    const pkv_sync stream = some_stream(&number);
    const pkv_status status =
        pkv_pool_gather(pool, group, layer, num_pages, pages, first_token, num_tokens, k, v, &stream);
    the.device->finish(stream.handle);
    return status;
}

pkv_status test_pool_copy_pages(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_page *src,
                                const pkv_page *dst, const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_pool_copy_pages(pool, group, num_pages, src, dst, sync);
    int number;
    const pkv_sync stream = some_stream(&number);
    return pkv_pool_copy_pages(pool, group, num_pages, src, dst, &stream);
}

pkv_status test_table_destroy(pkv_table *table, const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_table_destroy(table, sync);
    int number;
    const pkv_sync stream = stream_of(table, false, &number);
    forget(table);
    return pkv_table_destroy(table, &stream);
}

pkv_status test_table_clear(pkv_table *table, const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_table_clear(table, sync);
    int number;
    const pkv_sync stream = stream_of(table, false, &number);
    const pkv_status status = pkv_table_clear(table, &stream);
    if (status == PKV_OK) forget(table);
    return status;
}

pkv_status test_table_write(pkv_table *table, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens,
                            const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_table_write(table, group, layer, position, num_tokens, k, v, sync);
    int number;
    const pkv_sync stream = stream_of(table, true, &number);
    note_written(table, position + num_tokens);
    return pkv_table_write(table, group, layer, position, num_tokens, k, v, &stream);
}

pkv_status test_table_commit(pkv_table *table, uint64_t num_tokens, const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_table_commit(table, num_tokens, sync);
    int number;
    const pkv_sync stream = stream_of(table, false, &number);
    const pkv_status status = pkv_table_commit(table, num_tokens, &stream);
    if (status == PKV_OK) set_closed(table, num_tokens);
    return status;
}

pkv_status test_table_gather(pkv_table *table, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens,
                             const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_table_gather(table, group, layer, position, num_tokens, k, v, sync);
    pkv_table_info info = PKV_TABLE_INFO_INIT;
    const bool committed = pkv_table_get_info(table, &info) == PKV_OK && position + num_tokens <= info.committed;
    int number;
    const pkv_sync stream = committed ? some_stream(&number) : stream_of(table, false, &number);
    const pkv_status status = pkv_table_gather(table, group, layer, position, num_tokens, k, v, &stream);
    the.device->finish(stream.handle);
    return status;
}

pkv_status test_table_fork(pkv_table *table, const pkv_sync *sync, pkv_table **fork) {
    if (!with_streams(sync)) return pkv_table_fork(table, sync, fork);
    int number;
    const pkv_sync stream = stream_of(table, false, &number);
    return pkv_table_fork(table, &stream, fork);
}

pkv_status test_table_truncate(pkv_table *table, uint64_t num_tokens, const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_table_truncate(table, num_tokens, sync);
    int number;
    const pkv_sync stream = stream_of(table, false, &number);
    return pkv_table_truncate(table, num_tokens, &stream);
}

pkv_status test_table_accept(pkv_table *table, uint64_t num_positions, const uint64_t *positions,
                             const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_table_accept(table, num_positions, positions, sync);
    int number;
    const pkv_sync stream = stream_of(table, true, &number);
    return pkv_table_accept(table, num_positions, positions, &stream);
}

pkv_status test_table_window(pkv_table *table, const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_table_window(table, sync);
    int number;
    const pkv_sync stream = stream_of(table, false, &number);
    return pkv_table_window(table, &stream);
}

pkv_status test_table_spill(pkv_table *table, uint64_t first_block, uint64_t num_blocks, const pkv_sync *sync,
                            pkv_spill_result *result) {
    if (!with_streams(sync)) return pkv_table_spill(table, first_block, num_blocks, sync, result);
    int number;
    const pkv_sync stream = stream_of(table, false, &number);
    return pkv_table_spill(table, first_block, num_blocks, &stream, result);
}

pkv_status test_batch_reserve(pkv_batch *batch, uint32_t num_tables, pkv_table *const *tables, const uint32_t *num_new,
                              pkv_status *statuses) {
    if (with_streams(NULL)) {
        forget(batch);
        int number;
        (void)stream_of(batch, true, &number);
        for (uint32_t i = 0; i < num_tables && tables != NULL; ++i)
            if (tables[i] != NULL) move_to(tables[i], number);
    }
    return pkv_batch_reserve(batch, num_tables, tables, num_new, statuses);
}

pkv_status test_batch_write(pkv_batch *batch, uint32_t group, uint32_t layer, const pkv_tensor *k, const pkv_tensor *v,
                            const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_batch_write(batch, group, layer, k, v, sync);
    int number;
    const pkv_sync stream = stream_of(batch, true, &number);
    return pkv_batch_write(batch, group, layer, k, v, &stream);
}

pkv_status test_batch_gather(pkv_batch *batch, uint32_t group, uint32_t layer, const uint64_t *first, uint64_t padded,
                             const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_batch_gather(batch, group, layer, first, padded, k, v, sync);
    int number;
    const pkv_sync stream = stream_of(batch, true, &number);
    const pkv_status status = pkv_batch_gather(batch, group, layer, first, padded, k, v, &stream);
    the.device->finish(stream.handle);
    return status;
}

pkv_status test_batch_commit(pkv_batch *batch, const uint32_t *num_accepted, pkv_status *statuses,
                             const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_batch_commit(batch, num_accepted, statuses, sync);
    int number;
    const pkv_sync stream = stream_of(batch, true, &number);
    return pkv_batch_commit(batch, num_accepted, statuses, &stream);
}

pkv_status test_prefetch_layer_acquire(pkv_prefetch *session, uint32_t index, uint64_t timeout_ns, const pkv_sync *sync,
                                       pkv_layer_view *view) {
    if (!with_streams(sync)) return pkv_prefetch_layer_acquire(session, index, timeout_ns, sync, view);
    int number;
    const pkv_sync stream = some_stream(&number);
    const pkv_status status = pkv_prefetch_layer_acquire(session, index, timeout_ns, &stream, view);
    if (status == PKV_OK) the.device->finish(stream.handle);
    return status;
}

pkv_status test_prefetch_layer_release(pkv_prefetch *session, uint32_t index, const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_prefetch_layer_release(session, index, sync);
    int number;
    const pkv_sync stream = some_stream(&number);
    return pkv_prefetch_layer_release(session, index, &stream);
}

pkv_status test_prefetch_close(pkv_prefetch *session, const pkv_sync *sync) {
    if (!with_streams(sync)) return pkv_prefetch_close(session, sync);
    int number;
    const pkv_sync stream = some_stream(&number);
    return pkv_prefetch_close(session, &stream);
}
