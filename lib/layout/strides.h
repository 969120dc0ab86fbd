// SPDX-License-Identifier: Apache-2.0
// The address of a row in a paged tensor: the only place where pages, tokens and heads become bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pkv {

/// Distances in bytes. The fields are 64 bits wide, so every product below is a 64-bit product (field cases G01 to G08).
struct Strides {
    uint64_t page = 0;
    uint64_t token = 0;
    uint64_t head = 0;
};

/// Offset of the row of (page, token offset in the page, head) from the layer's base.
constexpr uint64_t row_offset(const Strides &s, uint64_t page, uint64_t token, uint64_t head) {
    return page * s.page + token * s.token + head * s.head;
}

/// K or V of one layer in a pool.
struct PagedRows {
    std::byte *base = nullptr;
    Strides strides;
    uint32_t page_tokens = 0;
    uint32_t heads = 0;
    uint64_t row_bytes = 0; ///< bytes of one (token, head); 0 = absent

    std::byte *row(uint64_t page, uint64_t token, uint64_t head) const {
        return base + row_offset(strides, page, token, head);
    }
};

/// One layer: the pool's side. v.row_bytes is 0 for a latent cache.
struct LayerRows {
    PagedRows k;
    PagedRows v;
};

/// `count` heads from `first` on, as if there were no others.
inline LayerRows heads_of(const LayerRows &layer, uint32_t first, uint32_t count) {
    LayerRows part = layer;
    part.k.base = layer.k.row(0, 0, first);
    part.k.heads = count;
    if (layer.v.row_bytes == 0) return part;
    part.v.base = layer.v.row(0, 0, first);
    part.v.heads = count;
    return part;
}

/// K or V of the caller's, for a range of tokens; heads and row bytes are those of the paged side.
struct FlatRows {
    std::byte *base = nullptr; ///< nullptr: not wanted
    uint64_t token_stride = 0;
    uint64_t head_stride = 0;
};

} // namespace pkv
