// SPDX-License-Identifier: Apache-2.0
// The host tier: page images in one piece of memory.
#pragma once

#include "core/status.h"
#include "tier/tier.h"

#include <memory>

namespace pkv {

/// Makes one; the options were checked. May throw std::bad_alloc.
pkv_status make_host_tier(const pkv_host_tier_options &options, std::shared_ptr<Tier> &tier);

} // namespace pkv
