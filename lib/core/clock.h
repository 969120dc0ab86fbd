// SPDX-License-Identifier: Apache-2.0
// The library's clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace pkv {

/// Nanoseconds that never go back.
inline uint64_t monotonic_ns() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

} // namespace pkv
