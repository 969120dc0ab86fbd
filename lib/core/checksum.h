// SPDX-License-Identifier: Apache-2.0
// The checksum of everything that leaves the pool's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pkv {

/// XXH3-64 (xxHash 0.8 specification), without a seed.
uint64_t checksum64(std::span<const std::byte> bytes);

} // namespace pkv
