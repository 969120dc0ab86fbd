// SPDX-License-Identifier: Apache-2.0
// The kernels' parameters, plain and whole: what a launch needs to know travels in them, down to the bases of the
// layers and, where they are few, the slots and pages. plan.h fills them.
#pragma once

#include "tensor/cuda/grid.cuh"

namespace pkv::cuda {

/// With the fields before them they stay below the 4096 bytes that every device takes as parameters.
inline constexpr uint32_t inline_bytes = 3200;

/// An array: at an address that kernels read, or, nullptr, inside the parameters.
struct Array {
    const void *at;
    uint64_t offset;
};

/// K or V of one layer, and the caller's rows for it.
struct Plane {
    unsigned char *pages;
    unsigned char *flat;
    float *scales; ///< of the pages
};

/// The end of every kernel's parameters.
struct Inline {
    alignas(16) unsigned char bytes[inline_bytes];

    /// Two loads of different kinds, of which one is done: that of the parameters is quick.
    template <class T> PKV_HD T read(const Array &array, uint64_t index) const {
        if (array.at == nullptr) return reinterpret_cast<const T *>(bytes + array.offset)[index];
#if defined(__CUDA_ARCH__)
        __builtin_assume(__isGlobal(array.at));
#endif
        return static_cast<const T *>(array.at)[index];
    }
    /// Planes are always here.
    PKV_HD Plane plane(uint32_t planes_at, uint64_t index) const {
        return reinterpret_cast<const Plane *>(bytes + planes_at)[index];
    }
};

/// The scales of the stored side.
struct ScaleShape {
    int32_t kind; ///< PKV_SCALES_*
    uint32_t heads;
    uint64_t page_stride; ///< bytes, PKV_SCALES_TOKEN_HEAD
};

// ---- write ----------------------------------------------------------------------------------------------------------

/// K or V of all layers. A run is what one team writes: a row, or a token's rows of all heads where they have no gaps.
struct WriteSide {
    uint64_t runs; ///< of all planes and tokens
    Divider64 of_token;
    uint64_t page, token, head; ///< bytes, in the pages
    uint64_t flat_token, flat_head;
    uint64_t elements; ///< of a run: converted writes
    uint32_t units;    ///< of a run
    uint32_t planes;   ///< the first of its planes
};

struct WriteParams {
    WriteSide side[2];
    Divider64 tokens;
    Divider64 page_tokens;
    uint64_t num_pages;
    Array slots;
    uint32_t planes_at; ///< in the rest
    ScaleShape scales;
    uint32_t slot_bytes;
    uint32_t lanes_log2;
    Inline rest;
};

// ---- tiles: a few tokens of a page, all heads -----------------------------------------------------------------------

/// How the rows of a tile lie on both sides. A run is a row, or a token's rows of all heads.
struct TileShape {
    uint64_t src_token, src_head; ///< bytes
    uint64_t dst_token, dst_head;
    Divider32 units;        ///< of a run
    Divider32 runs;         ///< of a token
    uint32_t one_run;       ///< the whole tile has no gaps on either side
    uint32_t tokens_inside; ///< the inner loop goes over the tokens
};

/// How pages are cut into tiles of `tokens` tokens; the last one of a page may have fewer.
struct Cut {
    uint32_t tokens;
    uint32_t page_tokens;
    Divider64 of_page; ///< tiles of a page
};

// ---- gather ---------------------------------------------------------------------------------------------------------

// Arrays that are given.
inline constexpr uint32_t has_indptr = 1, has_first = 2, has_counts = 4, has_out_first = 8, has_tiles = 16;

struct GatherSide {
    uint64_t items; ///< planes * sequences * tiles
    uint64_t page;  ///< bytes
    TileShape tile; ///< from pages to the caller's rows
    uint32_t planes;
};

struct GatherParams {
    GatherSide side[2];
    Cut cut;
    Divider64 tiles;     ///< of a sequence at most, or, with tile_first, of all
    Divider64 sequences; ///< not with tile_first
    Divider64 page_tokens;
    uint64_t num_pages; ///< of the pool
    uint64_t entries;   ///< of `pages`
    uint64_t pages_stride;
    uint64_t max_count;
    uint64_t padded;
    uint64_t num_sequences;
    uint64_t first_token; ///< without `first`
    uint64_t out_stride;  ///< without `out_first`
    Array pages, indptr, first, counts, out_first;
    Array tile_first; ///< [num_sequences + 1]: tiles before each sequence
    uint32_t planes_at;
    ScaleShape scales;
    uint32_t has; ///< has_*
    uint32_t lanes_log2;
    Inline rest;
};

// ---- pages ----------------------------------------------------------------------------------------------------------

struct CopySide {
    uint64_t items; ///< planes * pairs * tiles of a page
    uint64_t src_page, dst_page;
    TileShape tile;
    uint32_t planes;
};

struct CopyParams {
    CopySide side[2];
    Cut cut;
    Divider64 pairs;
    Array src, dst, tokens;
    uint32_t planes_at; ///< flat is the source, pages the destination
    uint32_t lanes_log2;
    Inline rest;
};

// ---- slices ---------------------------------------------------------------------------------------------------------

struct SliceEntry {
    unsigned char *bytes;
    int32_t page;
    uint32_t plane; ///< the layer's
    uint32_t tokens;
    int32_t layout; ///< PKV_LAYOUT_*
};

struct SliceSide {
    uint64_t offset;         ///< where its rows begin in a slice
    uint64_t page, token;    ///< bytes, in the pages
    uint64_t slice_token[2]; ///< bytes, by the slice's layout
    TileShape tile[2];       ///< by the slice's layout
    uint32_t planes;
};

struct SliceParams {
    SliceSide side[2];
    uint64_t items; ///< slices * sides * tiles of a page
    Cut cut;
    uint32_t num_sides;
    uint32_t pack; ///< 1: from pages to slices, 0: the other way
    Array slices;
    uint32_t planes_at; ///< flat is not used
    uint32_t lanes_log2;
    Inline rest;
};

static_assert(sizeof(WriteParams) <= 4096 && sizeof(GatherParams) <= 4096 && sizeof(CopyParams) <= 4096 &&
              sizeof(SliceParams) <= 4096);

} // namespace pkv::cuda
