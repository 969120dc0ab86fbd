// SPDX-License-Identifier: Apache-2.0
// Memory of tiers that is opened to peers as it is: an image that lies there is read without a copy, and without another message
// than the lookup that found and leased it.
#pragma once

#include "node/fabric.h"
#include "node/messages.h"
#include "tier/stack.h"

#include <memory>
#include <vector>

namespace pkv::node {

class InPlace {
  public:
    /// Opens what the first `count` tiers have, as far as it takes no more than `room` windows. `first`: where in its windows these
    /// begin. What cannot be registered stays closed: its images are copied.
    void open(const std::shared_ptr<Fabric> &fabric, const TierStack &tiers, uint32_t count, uint64_t first,
              size_t room);
    std::vector<Window> windows() const;

    /// Where in the windows an image lies that is pinned in a tier; no_place: it is to be fetched.
    uint64_t find(const TierStack &tiers, int8_t tier, const pkv_tier_key &key, uint64_t bytes) const;

  private:
    struct Opened {
        int8_t tier;
        uint64_t first; ///< place of its first byte
        std::shared_ptr<Region> region;
        uint64_t bytes;
    };
    std::vector<Opened> opened_;
};

} // namespace pkv::node
