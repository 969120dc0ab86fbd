// SPDX-License-Identifier: Apache-2.0
#include "prefetch/slices.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace pkv {
namespace {

/// Rows (or scales) of all layers on one grid: each layer begins a whole number of steps behind the base, and so does each
/// page behind the one before it.
struct Grid {
    uintptr_t base = UINTPTR_MAX;
    uint64_t step = 0;
    std::vector<uint64_t> layers; // begin of each, in steps
    uint64_t page = 0;            // from page to page, in steps

    Grid(const std::vector<const void *> &bases, uint64_t page_stride) : step(page_stride) {
        for (const void *at : bases) base = std::min(base, reinterpret_cast<uintptr_t>(at));
        for (const void *at : bases) step = std::gcd(step, reinterpret_cast<uintptr_t>(at) - base);
        for (const void *at : bases) layers.push_back((reinterpret_cast<uintptr_t>(at) - base) / step);
        page = page_stride / step;
    }
    bool same_numbers(const Grid &other) const { return layers == other.layers && page == other.page; }
};

} // namespace

void SliceMap::create(const Geometry &geometry, const PageMemory &memory) {
    const uint32_t num_layers = geometry.num_layers;
    const bool has_v = geometry.v_row_bytes != 0;
    const bool has_scales = geometry.scales == PKV_SCALES_TOKEN_HEAD;
    std::vector<const void *> k, v, k_scales, v_scales;
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
        k.push_back(memory.layer(layer).k.base);
        v.push_back(memory.layer(layer).v.base);
        k_scales.push_back(memory.scales(layer).k.rows);
        v_scales.push_back(memory.scales(layer).v.rows);
    }
    const Grid k_grid(k, geometry.k_strides.page);
    const uint64_t last = *std::max_element(k_grid.layers.begin(), k_grid.layers.end());
    uint64_t most = 0;
    if (__builtin_mul_overflow(k_grid.page, geometry.num_pages, &most) || most > INT32_MAX || last > INT32_MAX - most)
        return;
    if (has_v) {
        const Grid grid(v, geometry.v_strides.page);
        if (!grid.same_numbers(k_grid)) return;
        v_base_ = reinterpret_cast<std::byte *>(grid.base);
        v_step_ = grid.step;
    }
    if (has_scales) {
        const uint64_t stride = memory.scales(0).k.page_stride;
        const Grid grid(k_scales, stride);
        if (!grid.same_numbers(k_grid)) return;
        k_scales_ = reinterpret_cast<float *>(grid.base);
        scale_step_ = grid.step;
        if (has_v) {
            const Grid other(v_scales, stride);
            if (!other.same_numbers(k_grid) || other.step != grid.step) return;
            v_scales_ = reinterpret_cast<float *>(other.base);
        }
    }
    k_base_ = reinterpret_cast<std::byte *>(k_grid.base);
    k_step_ = k_grid.step;
    page_step_ = static_cast<int32_t>(k_grid.page);
    for (const uint64_t layer : k_grid.layers) first_.push_back(static_cast<int32_t>(layer));
    common_ = true;
}

void SliceMap::set_layout(pkv_layer_layout &layout) const {
    if (!common_) return;
    layout.k_base = k_base_;
    layout.k.page = k_step_;
    if (layout.v_base != nullptr) {
        layout.v_base = v_base_;
        layout.v.page = v_step_;
    }
    if (scale_step_ != 0) {
        layout.k_scales = k_scales_;
        layout.v_scales = v_scales_;
        layout.scale_page_stride = scale_step_;
    }
}

} // namespace pkv
