// SPDX-License-Identifier: Apache-2.0
#include "core/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pkv {

uint64_t checksum64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

} // namespace pkv
