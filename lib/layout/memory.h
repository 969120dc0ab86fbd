// SPDX-License-Identifier: Apache-2.0
// The page bytes of a layer group: allocated here, the caller's, or none; and where each layer's rows lie in them.
#pragma once

#include "core/virtual_array.h"
#include "layout/geometry.h"
#include "layout/scales.h"

#include <vector>

namespace pkv {

/// Memory of a device that somebody else has allocated for a layer group. Nothing here reads or writes it.
struct DevicePlaces {
    std::byte *rows = nullptr;       ///< memory_bytes of the geometry; nullptr: the caller's tensors
    std::byte *row_scales = nullptr; ///< PageMemory::row_scale_bytes()
    float *fixed_scales = nullptr;   ///< K of all layers, then V
};

class PageMemory {
  public:
    PageMemory() = default;
    ~PageMemory();
    PageMemory(const PageMemory &) = delete;
    PageMemory &operator=(const PageMemory &) = delete;

    /// Allocates what the geometry asks for. May throw std::bad_alloc for the list of layers.
    pkv_status create(const Geometry &geometry, int32_t huge_pages);
    /// Finds the places of all layers in memory of a device; only aux bytes are allocated.
    pkv_status create_on_device(const Geometry &geometry, const DevicePlaces &places);
    /// Bytes that the scales of rows need; PKV_ERR_NO_MEMORY past 64 bits.
    static pkv_status row_scale_bytes(const Geometry &geometry, uint64_t &bytes);

    bool exists() const { return !layers_.empty(); }
    const LayerRows &layer(uint32_t index) const { return layers_[index]; }
    const LayerScales &scales(uint32_t layer) const { return scales_[layer]; }
    std::byte *aux(pkv_page page) { return aux_.data() + static_cast<uint64_t>(page) * aux_bytes_; }
    /// Copies what stands beside the rows of the first `tokens` tokens: their scales; with a whole page, its aux bytes too.
    void copy_beside(pkv_page src, pkv_page dst, uint32_t tokens);
    void copy_aux(pkv_page src, pkv_page dst, uint32_t tokens);
    uint32_t num_layers() const { return static_cast<uint32_t>(layers_.size()); }
    int32_t kind() const { return kind_; } ///< PKV_MEMORY_KIND_*

    /// Fills all rows of a page, and their scales, with one byte.
    void fill_page(pkv_page page, unsigned char value);

  private:
    pkv_status map(uint64_t bytes, int32_t huge_pages);
    pkv_status begin(const Geometry &geometry);
    void place_layers(const Geometry &geometry, std::byte *base);
    void place_scales(const Geometry &geometry, std::byte *row_scales, const float *fixed);

    std::vector<LayerRows> layers_;
    std::vector<LayerScales> scales_;
    std::vector<float> fixed_scales_;    // of tensors or heads: K of all layers, then V
    VirtualArray<std::byte> row_scales_; // [page, layer, K and V, token, head]
    uint64_t scale_page_stride_ = 0;     // bytes; 0 = no row scales
    uint32_t page_tokens_ = 0;
    VirtualArray<std::byte> aux_; // [page, aux_bytes]
    uint32_t aux_bytes_ = 0;
    void *mapping_ = nullptr;
    uint64_t mapping_bytes_ = 0;
    std::byte *base_ = nullptr; // inside the mapping, aligned to a huge page
    int32_t kind_ = 0;
};

} // namespace pkv
