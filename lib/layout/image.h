// SPDX-License-Identifier: Apache-2.0
// The page image: what a page is as bytes outside of the pool.
//
//   header   magic, version, byte order, sizes, key, shape digest, in-page order, block, an XXH3-64 checksum for each slice,
//            scales of token and head, aux bytes, tokens, and the header's own checksum; padded to 4096
//   slices   one for each layer: its K rows, then its V rows, in the order of the pool that wrote it (recorded in the
//            header), padded to 4096
//
// Everything but the in-page order has to be equal in the pool that reads; another order is converted.
#pragma once

#include "core/status.h"
#include "layout/geometry.h"
#include "layout/memory.h"

#include <pagedkv/tier_ops.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pkv {

/// BLAKE2b-256 of a prefix, up to the end of a block.
using PrefixDigest = std::array<uint8_t, 32>;

constexpr uint64_t any_block = UINT64_MAX; ///< an image whose place in a prefix nobody says

/// What one page image says besides KV.
struct ImageName {
    pkv_tier_key key{};
    uint64_t block = 0;
    std::span<const pkv_token> tokens; ///< of the block; empty for a block without names, and when they are not known
    uint32_t rows =
        UINT32_MAX; ///< pack(): the first so many tokens have rows; those of the others are zero in the image
};

/// What has to be known of an image before slices of it can be loaded alone.
struct ImageHead {
    int32_t layout = 0;            ///< PKV_LAYOUT_* of its rows
    std::vector<uint64_t> sums;    ///< of each slice; empty: not known yet
    std::vector<std::byte> scales; ///< of token and head, of all layers; empty without
};

/// How pages of one layer group become images. Immutable.
class ImageFormat {
  public:
    /// The format of a group, its number in the pool being `group`: a model may have two groups of one shape.
    pkv_status create(const Geometry &geometry, uint32_t group);

    uint64_t image_bytes() const { return image_bytes_; }
    uint64_t header_bytes() const { return header_bytes_; }
    uint64_t slice_offset(uint32_t layer) const { return header_bytes_ + uint64_t{layer} * slice_stride_; }
    uint64_t slice_stride() const { return slice_stride_; } ///< bytes from slice to slice, a multiple of 4096
    uint64_t slice_bytes() const { return slice_bytes_; }   ///< of them in use

    const std::array<uint8_t, 32> &shape() const { return shape_; } ///< equal in pools that can share images
    static uint32_t version();                                      ///< of the format

    /// Key of the image of a block with this prefix: shards, groups and geometries of one prefix have different ones.
    pkv_tier_key key(const PrefixDigest &prefix) const;

    /// Writes a page's image: image_bytes() at `image`, aligned to 4096, padding zeroed.
    void pack(PageMemory &memory, pkv_page page, const ImageName &name, std::byte *image) const;

    /// Checks an image in full and writes it into a page, in one pass over the slices. False, with the reason in `why`, if
    /// it is not the image of this name (tokens are compared when both sides have them) or anything in it is damaged: the
    /// page's bytes are undefined then.
    bool unpack(const std::byte *image, uint64_t bytes, const ImageName &name, PageMemory &memory, pkv_page page,
                const char **why) const;

    /// Checks the header of an image, its first header_bytes(), and takes over what it says of the slices. False as above.
    bool read_head(const std::byte *header, const ImageName &name, ImageHead &head, const char **why) const;
    /// Checks one slice of such an image, slice_stride() bytes, and writes it into the rows of layer `to_layer` of a page,
    /// with its scales: a place of the same shape, whatever layer it is of. False: the bytes there are undefined then.
    bool unpack_layer(const std::byte *slice, const ImageHead &head, uint32_t layer, PageMemory &memory,
                      uint32_t to_layer, pkv_page page) const;

    // The same in steps, for pages whose bytes only a device moves.
    std::byte *slice(std::byte *image, uint32_t layer) const { return image + slice_offset(layer); }
    /// Scales of token and head of one layer, K and then V; nullptr without.
    float *scales(std::byte *image, uint32_t layer) const;
    uint64_t scale_bytes() const { return scale_bytes_; } ///< of all layers, which lie behind each other
    int32_t layout() const { return layout_; }            ///< of the rows in images that pack() makes
    /// Makes an image of slices and scales that are there already. Rows that name.rows leaves out are zeroed here.
    void finish(PageMemory &memory, pkv_page page, const ImageName &name, std::byte *image) const;
    /// Checks an image in full, without a page. `layout`: of its rows.
    bool check(const std::byte *image, uint64_t bytes, const ImageName &name, int32_t &layout, const char **why) const;
    /// Of an image that was checked: what of a page is the host's.
    void unpack_aux(const std::byte *image, PageMemory &memory, pkv_page page) const;
    /// Checks one slice of an image whose header has been read.
    bool check_slice(const std::byte *slice, const ImageHead &head, uint32_t layer) const;

  private:
    void zero_rows(std::byte *image, uint32_t first) const;
    void sum_slice(std::byte *image, uint32_t layer) const;
    void write_header(PageMemory &memory, pkv_page page, const ImageName &name, std::byte *image) const;
    const char *check_header(const std::byte *header, const ImageName &name, int32_t &layout) const;

    uint64_t image_bytes_ = 0;
    uint64_t header_bytes_ = 0;
    uint64_t slice_stride_ = 0;
    uint64_t slice_bytes_ = 0;
    uint64_t side_scale_bytes_ = 0;   // scales of token and head, of K or V of one layer
    uint64_t scale_bytes_ = 0;        // of them in the header
    std::array<uint8_t, 32> shape_{}; // BLAKE2b-256 of all that decides whether bytes can be shared
    uint32_t page_tokens_ = 0;
    uint32_t num_layers_ = 0;
    int32_t layout_ = 0;
    uint64_t heads_ = 0;
    uint64_t k_row_bytes_ = 0;
    uint64_t v_row_bytes_ = 0;
    uint32_t aux_bytes_ = 0;
};

} // namespace pkv
