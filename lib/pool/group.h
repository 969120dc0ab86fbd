// SPDX-License-Identifier: Apache-2.0
// One layer group of a pool: its geometry, its bytes, and the state of its pages.
#pragma once

#include "layout/geometry.h"
#include "layout/image.h"
#include "layout/memory.h"
#include "pool/page_set.h"

#include <pagedkv/pool.h>

namespace pkv {

struct Group {
    Geometry geometry;
    PageMemory memory;
    ImageFormat image; // of pools with tiers
    PageSet pages; // guarded by the pool's mutex, but for size()

    bool full() const { return geometry.attention == PKV_ATTENTION_FULL; }

    /// Whether tokens from `length` on attend to block `block` of the `length` tokens before them.
    bool reaches(uint64_t block, uint64_t length) const {
        if (full()) return true;
        const uint64_t begin = block * geometry.page_tokens;
        return begin < geometry.sinks || begin + geometry.page_tokens + geometry.window > length;
    }
};

} // namespace pkv
