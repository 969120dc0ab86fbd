/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the emulated kernels share: grids, and a pool's memory as a device's layers. Two pools of one
 * geometry are compared: one that the library wrote with its host kernels, and one whose memory the emulated kernels
 * wrote. */
#ifndef PKV_TESTS_CUDA_H
#define PKV_TESTS_CUDA_H

#include "../../lib/tensor/cuda/emulated.h"
#include "support/paged.h"

/* A call of the emulated kernels that must give this status. */
#define assert_emulated(call, expected) check_emulated((call), (expected), #call, __FILE__, __LINE__)
static inline void check_emulated(pkv_status got, pkv_status expected, const char *call, const char *file, int line) {
    if (got == expected) return;
    print_error("%s gave %s, not %s: %s\n", call, pkv_status_string(got), pkv_status_string(expected), emulated_why());
    _fail(file, line);
}

/* The grid that a device would have, one thread, odd numbers, fewer blocks than work, many more, orders of all
 * kinds. */
static const emulated_grid emulated_grids[] = {{0, 0, 0},  {1, 1, 0},   {3, 7, 5},     {64, 32, 9},
                                               {5, 96, 3}, {1, 512, 8}, {700, 64, 11}, {2, 33, 12}};
enum { num_grids = sizeof emulated_grids / sizeof emulated_grids[0] };

static inline emulated_grid any_grid(test_random *random) { return emulated_grids[random_below(random, num_grids)]; }

/* A pool's memory as a device would be told about it. */
static inline void device_layers(pkv_pool *pool, uint32_t num_layers, uint64_t num_pages, pkv_device_layer *layers) {
    for (uint32_t i = 0; i < num_layers; ++i) {
        pkv_layer_layout at = PKV_LAYER_LAYOUT_INIT;
        assert_ok(pkv_pool_layout(pool, 0, i, &at));
        layers[i] = (pkv_device_layer){.k = {at.k_base, at.k.page, at.k.token, at.k.head, at.k_row_bytes, at.k_scales},
                                       .v = {at.v_base, at.v.page, at.v.token, at.v.head, at.v_row_bytes, at.v_scales},
                                       .page_tokens = at.page_tokens,
                                       .heads = at.num_kv_heads,
                                       .dtype = at.dtype,
                                       .scales = at.scales,
                                       .scale_page_stride = at.scale_page_stride,
                                       .num_pages = num_pages};
    }
}

static inline pkv_device_flat device_flat(const flat *rows) {
    return (pkv_device_flat){rows->memory + rows->offset, rows->token_stride, rows->head_stride};
}

/* Both pools' memory is equal, gaps and guards included. */
static inline void check_twins(const paged *host, const paged *device) {
    assert_int_equal(host->size, device->size);
    for (uint64_t i = 0; i < host->size; ++i)
        if (host->bytes[i] != device->bytes[i])
            fail_msg(
                "byte %llu of %llu is %02x, the host's is %02x (rows of %u and %u bytes, %u heads, %u tokens a page)",
                (unsigned long long)i, (unsigned long long)host->size, device->bytes[i], host->bytes[i],
                host->config.k_row, host->config.v_row, host->config.heads, host->config.page_tokens);
}

/* Ends a pool that the emulated kernels wrote: its bytes are no longer those of the model. */
static inline void end_twin(paged *device) {
    memcpy(device->expected, device->bytes, device->size);
    end_paged(device);
}

/* Random bytes in both pools. */
static inline void fill_twins(paged *host, paged *device, test_random *random) {
    for (uint64_t i = 0; i < host->size; ++i)
        host->bytes[i] = host->expected[i] = device->bytes[i] = (unsigned char)next_random(random);
}

#endif
