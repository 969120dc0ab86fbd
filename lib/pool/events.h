// SPDX-License-Identifier: Apache-2.0
// A bounded ring of what happened to the prefix index. Not thread-safe: the pool's mutex guards it.
#pragma once

#include <pagedkv/pool.h>

#include <cstdint>
#include <vector>

namespace pkv {

class EventRing {
  public:
    void create(uint64_t capacity) { ring_.resize(capacity); } ///< throws std::bad_alloc
    bool enabled() const { return !ring_.empty(); }
    uint64_t recorded() const { return last_; }

    void record(int32_t kind, uint32_t group, pkv_key key, pkv_key parent, uint64_t block) {
        if (ring_.empty()) return;
        ++last_;
        ring_[last_ % ring_.size()] = pkv_event{last_, kind, group, key, parent, block};
    }

    /// Copies events after `after`; returns how many. `missed` = those that are gone already.
    uint64_t read(uint64_t after, pkv_event *events, uint64_t capacity, uint64_t &missed) const {
        const uint64_t oldest = last_ > ring_.size() ? last_ - ring_.size() + 1 : 1;
        missed = after + 1 < oldest ? oldest - after - 1 : 0;
        uint64_t count = 0;
        for (uint64_t sequence = after + 1 + missed; sequence <= last_ && count < capacity; ++sequence)
            events[count++] = ring_[sequence % ring_.size()];
        return count;
    }

  private:
    std::vector<pkv_event> ring_;
    uint64_t last_ = 0; // sequence number of the newest event
};

} // namespace pkv
