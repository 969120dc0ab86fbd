/* SPDX-License-Identifier: Apache-2.0 */
/* A plain pool on the device, f16, one layer or several, and rows for it: what tests of order and of graphs write
 * and gather. */
#ifndef PKV_TESTS_GPU_ROWS_H
#define PKV_TESTS_GPU_ROWS_H

#include "gpu/device.h"

enum {
    row_dim = 64,
    row_bytes = 2 * row_dim,
    row_heads = 2,
    token_bytes = row_heads * row_bytes,
    page_tokens = 8,
    most_layers = 4
};

typedef struct {
    uint32_t num_layers;
    uint64_t num_pages, bytes; /* of the memory */
    unsigned char *memory;     /* [layer, page, K then V, token, head] */
    pkv_device_layer layers[most_layers];
} device_pool;

static inline uint64_t page_bytes(void) { return 2 * page_tokens * token_bytes; }

static inline device_pool make_device_pool(uint32_t num_layers, uint64_t num_pages) {
    device_pool pool = {
        .num_layers = num_layers, .num_pages = num_pages, .bytes = num_layers * num_pages * page_bytes()};
    pool.memory = device_bytes(pool.bytes);
    for (uint32_t i = 0; i < num_layers; ++i) {
        unsigned char *const base = pool.memory + i * num_pages * page_bytes();
        pool.layers[i] = (pkv_device_layer){
            .k = {base, page_bytes(), token_bytes, row_bytes, row_bytes, NULL},
            .v = {base + page_tokens * token_bytes, page_bytes(), token_bytes, row_bytes, row_bytes, NULL},
            .page_tokens = page_tokens,
            .heads = row_heads,
            .dtype = PKV_DTYPE_F16,
            .num_pages = num_pages};
    }
    return pool;
}

/* Of one side, by slot, in the pool's memory. */
static inline uint64_t place_of(const device_pool *pool, uint32_t layer, int side, uint64_t slot) {
    return (layer * pool->num_pages + slot / page_tokens) * page_bytes() + (uint64_t)side * page_tokens * token_bytes +
           slot % page_tokens * token_bytes;
}

/* Random rows on the device, and what they are. */
typedef struct {
    unsigned char *device, *host;
    uint64_t rows;
} device_rows;

static inline device_rows make_device_rows(uint64_t rows, uint64_t seed) {
    device_rows r = {.host = malloc(rows * token_bytes), .rows = rows};
    test_random random = {seed};
    for (uint64_t i = 0; i < rows * token_bytes; ++i) r.host[i] = (unsigned char)next_random(&random);
    r.device = upload_new(r.host, rows * token_bytes);
    return r;
}

static inline void end_device_rows(device_rows *r) {
    free_bytes(r->device);
    free(r->host);
}

static inline pkv_device_flat flat_of(const void *device) {
    return (pkv_device_flat){(void *)(uintptr_t)device, token_bytes, row_bytes};
}

/* The same rows for K and V of the first layer. */
static inline pkv_status write_slots(device_pool *pool, void *stream, const device_rows *rows, const int64_t *slots,
                                     uint64_t count, bool on_host) {
    const pkv_device_flat at = flat_of(rows->device);
    const pkv_device_write write = {
        sizeof write, 1, PKV_DTYPE_F16, pool->layers, &at, &at, slots, count, 8, on_host, 0, 0};
    return gpu->write(context, stream, &write, WHY);
}

/* What was written is there, in K and V. */
static inline void check_slots(const device_pool *pool, const device_rows *rows, const int64_t *slots, uint64_t count) {
    unsigned char *const all = malloc(pool->bytes);
    download(all, pool->memory, pool->bytes);
    for (uint64_t i = 0; i < count; ++i)
        for (int side = 0; side < 2; ++side)
            if (memcmp(all + place_of(pool, 0, side, (uint64_t)slots[i]), rows->host + i * token_bytes, token_bytes) !=
                0)
                fail_msg("the row of slot %lld is not what was written", (long long)slots[i]);
    free(all);
}

#endif
