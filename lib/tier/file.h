// SPDX-License-Identifier: Apache-2.0
// The file tier: page images in a preallocated file, found again by a later process.
//
//   file_tier.h    how it works, and its parts
//   file.cpp       requests: what is done at once, what becomes a read or a write, what happens when that has ended
//   file_open.cpp  opening, restart, closing
//   file_records.cpp  keeping the records in the file up to date
//   file_disk      the open file: lock, header, records
//   file_format    its bytes
//   file_io        reads and writes: uring_io.cpp, threads_io.cpp
#pragma once

#include "tier/tier.h"

#include <memory>

namespace pkv {

/// As pkv_tier_open_file says. Options are those of a caller's with any struct_size, read into this library's struct.
pkv_status make_file_tier(const pkv_file_tier_options &options, std::shared_ptr<Tier> &out);

} // namespace pkv
