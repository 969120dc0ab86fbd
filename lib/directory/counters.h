// SPDX-License-Identifier: Apache-2.0
// What is counted of a directory, all its servers together, and how long its waits are.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace pkv::directory {

struct Counters {
    std::atomic<uint64_t> lookups{0};     ///< keys asked for
    std::atomic<uint64_t> hits{0};        ///< keys of which another node was named
    std::atomic<uint64_t> failures{0};    ///< keys that were not answered, and entries that a server refused
    std::atomic<uint64_t> published{0};   ///< entries written, renewals too
    std::atomic<uint64_t> dropped{0};     ///< changes of tiers that found no room
    std::atomic<uint64_t> bad_entries{0}; ///< read, and nothing that a node of this cluster has written
};

/// Between two tries to reach a server: longer and longer, and never the same for two.
class Pause {
  public:
    uint64_t next_ns(uint64_t random) {
        const uint64_t pause = length_;
        length_ = std::min(2 * length_, longest);
        return pause / 2 + random % pause;
    }
    void reset() { length_ = first; }

  private:
    static constexpr uint64_t first = 100'000'000, longest = 10'000'000'000;
    uint64_t length_ = first;
};

} // namespace pkv::directory
