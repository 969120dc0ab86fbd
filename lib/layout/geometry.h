// SPDX-License-Identifier: Apache-2.0
// What a layer group looks like: sizes, strides, and the place of its shard in the model.
#pragma once

#include "layout/strides.h"

#include <pagedkv/pool.h>

#include <vector>

namespace pkv {

/// The checked geometry of one layer group. Strides are those of every layer; bases come with the memory.
struct Geometry {
    uint32_t page_tokens = 0;
    uint64_t num_pages = 0;
    uint32_t num_layers = 0;
    uint32_t first_layer = 0;
    uint32_t total_layers = 0;
    uint32_t heads = 0;
    uint32_t first_head = 0;
    uint32_t total_heads = 0;
    int32_t dtype = 0;
    int32_t layout = 0;
    int32_t arrangement = 0;
    int32_t memory = 0;
    int32_t attention = 0;
    uint32_t window = 0; // tokens; 0 for full attention
    uint32_t sinks = 0;
    int32_t scales = 0;
    uint32_t aux_bytes = 0;
    uint64_t max_cached_pages = 0; // UINT64_MAX = no limit
    uint64_t k_row_bytes = 0;
    uint64_t v_row_bytes = 0; // 0 = no V
    Strides k_strides;
    Strides v_strides;
    // Memory of the pool's own: where layer 0's V and the next layer begin, and how much there is in all.
    uint64_t v_offset = 0;
    uint64_t layer_stride = 0;
    uint64_t memory_bytes = 0;
    std::vector<float> k_scales; // PKV_SCALES_TENSOR: [layer]; PKV_SCALES_HEAD: [layer, head]
    std::vector<float> v_scales;
    // Memory of the caller's.
    std::vector<void *> caller_k;
    std::vector<void *> caller_v;

    /// K and V bytes of a page over all layers, gaps not counted.
    uint64_t page_bytes() const { return uint64_t{page_tokens} * num_layers * heads * (k_row_bytes + v_row_bytes); }
};

/// Checks one group's options and works out sizes and strides.
pkv_status make_geometry(const pkv_group_options &options, uint32_t group, uint32_t page_tokens, Geometry &geometry);

/// Bytes of an element, 0 for opaque and unknown types.
uint64_t dtype_bytes(int32_t dtype);

/// Bytes of a row at the caller's, whose element type may be another one than the group's.
uint64_t flat_row_bytes(const Geometry &geometry, int32_t dtype, uint64_t stored_row_bytes);

} // namespace pkv
