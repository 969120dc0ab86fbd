// SPDX-License-Identifier: Apache-2.0
// One layer group of a pool: its geometry, its bytes, and the state of its pages.
#pragma once

#include "device/device.h"
#include "layout/geometry.h"
#include "layout/image.h"
#include "layout/memory.h"
#include "pool/page_order.h"
#include "pool/page_set.h"

#include <pagedkv/pool.h>

#include <vector>

namespace pkv {

struct Group {
    Geometry geometry;
    PageMemory memory;
    ImageFormat image; // of pools with tiers
    PageSet pages;     // guarded by the pool's mutex, but for size()

    // Of device pools.
    PageOrder order; // guarded by the pool's mutex
    DeviceMemory rows, row_scales, fixed_scales;
    std::vector<pkv_device_layer> layers;
    bool by_copies = false;                    // images: see Pool::choose_transfer()
    std::vector<pkv_device_layer> bare_layers; // the same without scales: for rows that are moved as they are stored

    bool full() const { return geometry.attention == PKV_ATTENTION_FULL; }

    /// Whether tokens from `length` on attend to block `block` of the `length` tokens before them.
    bool reaches(uint64_t block, uint64_t length) const {
        if (full()) return true;
        const uint64_t begin = block * geometry.page_tokens;
        return begin < geometry.sinks || begin + geometry.page_tokens + geometry.window > length;
    }
};

} // namespace pkv
