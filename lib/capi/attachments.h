// SPDX-License-Identifier: Apache-2.0
// The tiers of a pool's options.
#pragma once

#include "tier/stack.h"

#include <pagedkv/pool.h>

#include <vector>

namespace pkv {

/// Checks them, and keeps the tiers open.
pkv_status read_tiers(const pkv_pool_options &options, std::vector<Attachment> &tiers);

} // namespace pkv
