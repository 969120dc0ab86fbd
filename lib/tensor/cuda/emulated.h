/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels on the host: the very bodies that run on a device, one thread after another, over a grid of any shape,
 * after the very same checks and choices. Memory is the host's own. For tests, and for devices made of host memory.
 *
 * Each function takes what the table's takes, does the work before it returns, and gives the same statuses;
 * emulated_why() says why the last one of this thread failed. From any thread. */
#pragma once

#include "tensor/device_table.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct emulated_grid {
    uint32_t blocks;  /* that run, whatever the work is; 0: as many as there is work for, up to 1024 */
    uint32_t threads; /* of a block; need be no power of two; 0: 256 */
    uint64_t seed;    /* blocks run in an order drawn from it, and threads in theirs; 0: in order */
} emulated_grid;

pkv_status emulated_write(const pkv_device_write *write, emulated_grid grid);
pkv_status emulated_gather(const pkv_device_gather *gather, emulated_grid grid);
pkv_status emulated_copy_pages(const pkv_device_layer *layers, uint32_t num_layers, uint64_t num_pages,
                               const int32_t *src, const int32_t *dst, const uint32_t *tokens, emulated_grid grid);
pkv_status emulated_copy_between(const pkv_device_layer *from, const pkv_device_layer *to, uint32_t num_layers,
                                 uint64_t num_pages, const int32_t *src, const int32_t *dst, const uint32_t *tokens,
                                 emulated_grid grid);
pkv_status emulated_pack(const pkv_device_layer *layers, uint32_t num_layers, const pkv_device_slice *slices,
                         uint64_t num_slices, emulated_grid grid);
pkv_status emulated_unpack(const pkv_device_layer *layers, uint32_t num_layers, const pkv_device_slice *slices,
                           uint64_t num_slices, emulated_grid grid);

const char *emulated_why(void);

/* Host arrays of this thread's last call that did not fit into parameters: bytes. A captured launch could not have
 * them. */
uint64_t emulated_staged_bytes(void);
/* Launches of this thread's last call, and the bytes of the narrowest access of any of them, of the longer side
 * where they convert. */
uint32_t emulated_launches(void);
uint32_t emulated_unit(void);
/* Accesses so far that a device would have refused, of all threads: at addresses that are no multiples of their
 * bytes. */
uint64_t emulated_misaligned(void);

#ifdef __cplusplus
}
#endif
