// SPDX-License-Identifier: Apache-2.0
// Host kernels that convert while they move rows. tensor.h (public) states the rounding; every argument was checked by the
// caller. Slots, pages, strides and workers are as in kernels.h.
#pragma once

#include "core/workers.h"
#include "layout/scales.h"
#include "layout/strides.h"

#include <cstdint>
#include <span>

namespace pkv::tensor {

/// Both sides' element types, and the scales of the stored side. Rows have k_elements and v_elements elements.
struct Conversion {
    int32_t stored = 0; ///< PKV_DTYPE_* in the pages
    int32_t flat = 0;   ///< PKV_DTYPE_F32, F16 or BF16 at the caller's
    uint64_t k_elements = 0;
    uint64_t v_elements = 0; ///< 0 = no V
    LayerScales scales;
};

/// Whether rows of `flat` can be written to, and gathered from, pages of `stored`.
bool converts(int32_t stored, int32_t flat);

/// write_slots() with conversion. PKV_SCALES_TOKEN_HEAD: finds and stores each row's scale.
void write_converted(const LayerRows &layer, const Conversion &conversion, std::span<const int64_t> slots,
                     const FlatRows &k, const FlatRows &v, Workers *workers);

/// gather_pages() with conversion.
void gather_converted(const LayerRows &layer, const Conversion &conversion, const int32_t *pages, uint64_t first,
                      uint64_t count, const FlatRows &k, const FlatRows &v, Workers *workers);

} // namespace pkv::tensor
