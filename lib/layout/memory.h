// SPDX-License-Identifier: Apache-2.0
// The page bytes of a layer group: allocated here, the caller's, or none; and where each layer's rows lie in them.
#pragma once

#include "layout/geometry.h"

#include <vector>

namespace pkv {

class PageMemory {
  public:
    PageMemory() = default;
    ~PageMemory();
    PageMemory(const PageMemory &) = delete;
    PageMemory &operator=(const PageMemory &) = delete;

    /// Allocates what the geometry asks for. May throw std::bad_alloc for the list of layers.
    pkv_status create(const Geometry &geometry, int32_t huge_pages);

    bool exists() const { return !layers_.empty(); }
    const LayerRows &layer(uint32_t index) const { return layers_[index]; }
    uint32_t num_layers() const { return static_cast<uint32_t>(layers_.size()); }
    int32_t kind() const { return kind_; } ///< PKV_MEMORY_KIND_*

    /// Fills all rows of a page with one byte.
    void fill_page(int32_t page, unsigned char value) const;

  private:
    pkv_status map(uint64_t bytes, int32_t huge_pages);
    void place_layers(const Geometry &geometry);

    std::vector<LayerRows> layers_;
    void *mapping_ = nullptr;
    uint64_t mapping_bytes_ = 0;
    std::byte *base_ = nullptr; // inside the mapping, aligned to a huge page
    int32_t kind_ = 0;
};

} // namespace pkv
