// SPDX-License-Identifier: Apache-2.0
// What a launch runs.
#pragma once

#include <cstdint>

namespace pkv::cuda {

/// One instance of one body.
struct Kernel {
    enum class Op : uint8_t { write, gather, copy, slices };
    Op op;
    uint8_t unit; ///< bytes of an access: 16, 8, 4, 2, 1; 0: it converts
    uint8_t from; ///< PKV_DTYPE_*, where it converts
    uint8_t to;
    bool vector; ///< it converts elements_at_once(); else one
};

} // namespace pkv::cuda
