// SPDX-License-Identifier: Apache-2.0
// PKV_NODE_PROMOTE: copies of images that were read from slower tiers, in the first one.
#pragma once

#include "node/counters.h"
#include "tier/stack.h"

#include <atomic>
#include <memory>

namespace pkv::node {

class Promotion {
  public:
    /// Copies an image and begins to store it in the first tier; not if too many bytes are on their way there. Nothing is waited
    /// for, and nothing thrown: callers are threads of tiers.
    void offer(TierStack &tiers, const pkv_tier_key &key, const std::byte *image, uint64_t bytes,
               const std::shared_ptr<Counters> &counters) noexcept;

  private:
    static constexpr uint64_t most_bytes = uint64_t{64} << 20;
    std::shared_ptr<std::atomic<uint64_t>> under_way_ = std::make_shared<std::atomic<uint64_t>>(0); ///< bytes
};

} // namespace pkv::node
