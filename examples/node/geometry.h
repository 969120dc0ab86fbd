/* SPDX-License-Identifier: Apache-2.0 */
/* The geometry of a model, from a text file: what the images of a storage node have to be of. */
#ifndef NODE_GEOMETRY_H
#define NODE_GEOMETRY_H

#include <pagedkv/pagedkv.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct geometry {
    uint32_t page_tokens;
    uint32_t num_groups;
    pkv_group_options groups[PKV_MAX_GROUPS];
} geometry;

/* Lines `name = value`, names as in pkv_pool_options and pkv_group_options; `[group]` begins a layer group, `#` a remark.
 * Types are f32, f16, bf16, f8_e4m3, f8_e5m2, i8, opaque; scales none, token_head (those of tensors or heads
 * are factors of the model's, and part of its geometry: such nodes go without this file); attention full, window.
 *     page_tokens = 64
 *     [group]
 *     num_layers = 32
 *     num_kv_heads = 8
 *     k_head_dim = 128
 *     v_head_dim = 128
 *     dtype = f16
 * False: stderr says in which line. */
bool geometry_read(const char *path, geometry *out);

#endif
