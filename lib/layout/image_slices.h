// SPDX-License-Identifier: Apache-2.0
// Slices of page images: the rows of one layer, copied and summed in one pass.
#pragma once

#include "layout/strides.h"

#include <pagedkv/types.h>

#include <cstddef>
#include <cstdint>

namespace pkv {

/// Slices have whole pieces of this size: what disks read and write, and what stays in the first cache between sum and copy.
inline constexpr uint64_t slice_alignment = 4096;

/// Writes the rows of a page in the order `layout` (PKV_LAYOUT_*) to a slice of `bytes` bytes, a multiple of slice_alignment
/// and aligned to it, with zeros behind the rows. Returns the XXH3-64 of the whole slice. Call drain_slices() after the last.
uint64_t pack_slice(const LayerRows &rows, pkv_page page, int32_t layout, std::byte *slice, uint64_t bytes);

/// Writes a slice, whose rows are in the order `layout`, into a page. Returns the XXH3-64 of the whole slice: the caller
/// compares it before anybody reads the page. Call drain_slices() after the last.
uint64_t unpack_slice(const std::byte *slice, uint64_t bytes, int32_t layout, const LayerRows &rows, pkv_page page);

/// Makes what was written past the caches visible in the order in which other threads expect it.
void drain_slices();

/// XXH3-64 of two ranges, one behind the other.
uint64_t checksum64_of_two(const std::byte *first, uint64_t first_bytes, const std::byte *second,
                           uint64_t second_bytes);

} // namespace pkv
