// SPDX-License-Identifier: Apache-2.0
// Where the scales of stored fp8 and int8 rows lie: value = stored * scale.
#pragma once

#include <pagedkv/pool.h>

#include <cstddef>
#include <cstdint>

namespace pkv {

/// Scales of K or V of one layer.
struct RowScales {
    int32_t kind = PKV_SCALES_NONE;
    const float *fixed = nullptr; ///< PKV_SCALES_TENSOR: one; PKV_SCALES_HEAD: [heads]
    std::byte *rows = nullptr;    ///< PKV_SCALES_TOKEN_HEAD: scale of (page 0, token 0, head 0)
    uint64_t page_stride = 0;     ///< PKV_SCALES_TOKEN_HEAD: bytes from page to page; inside: [token, head]
    uint32_t heads = 0;

    /// As pkv_layer_layout shows it.
    float *address() const { return rows != nullptr ? reinterpret_cast<float *>(rows) : const_cast<float *>(fixed); }
    float *row(uint64_t page, uint64_t token, uint64_t head) const {
        return reinterpret_cast<float *>(rows + page * page_stride + (token * heads + head) * sizeof(float));
    }
};

struct LayerScales {
    RowScales k;
    RowScales v;
};

} // namespace pkv
