// SPDX-License-Identifier: Apache-2.0
// Slice ids: numbers for (layer, page), such that one base and one stride lead to the rows of any of them.
#pragma once

#include "layout/geometry.h"
#include "layout/memory.h"

#include <pagedkv/pool.h>

#include <vector>

namespace pkv {

/// The numbering of one layer group. Where K, V and scales of all layers lie in equal steps, as they do in memory of the
/// pool's own, one numbering covers all layers, and a slice of one layer can be staged in the place of any other. Else the
/// slice ids of a layer are its pages, and a slice can be staged only in its own layer.
class SliceMap {
  public:
    void create(const Geometry &geometry, const PageMemory &memory);

    bool covers_all_layers() const { return common_; }
    int32_t id(uint32_t layer, pkv_page page) const { return first(layer) + page * page_step_; }
    int32_t first(uint32_t layer) const { return common_ ? first_[layer] : 0; } ///< id of page 0
    int32_t page_step() const { return page_step_; }
    /// Turns the layout of a layer's pages into that of slices.
    void set_layout(pkv_layer_layout &layout) const;

  private:
    bool common_ = false;
    int32_t page_step_ = 1;
    std::vector<int32_t> first_; // by layer
    // Of the numbering over all layers.
    std::byte *k_base_ = nullptr;
    std::byte *v_base_ = nullptr;
    uint64_t k_step_ = 0;
    uint64_t v_step_ = 0;
    float *k_scales_ = nullptr;
    float *v_scales_ = nullptr;
    uint64_t scale_step_ = 0;
};

} // namespace pkv
