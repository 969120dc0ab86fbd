// SPDX-License-Identifier: Apache-2.0
// What a node counts, all its connections together.
#pragma once

#include <atomic>
#include <cstdint>

namespace pkv::node {

struct Counters {
    // Served to others:
    std::atomic<uint64_t> guests{0};         ///< connections at present
    std::atomic<uint64_t> accepted{0};       ///< connections that shook hands
    std::atomic<uint64_t> refused{0};        ///< that did not: wrong key, other protocol, too many, other model
    std::atomic<uint64_t> lookups_served{0}; ///< keys
    std::atomic<uint64_t> fetches_served{0}; ///< ranges
    std::atomic<uint64_t> bytes_served{0};   ///< put where peers read them
    std::atomic<uint64_t> leases{0};         ///< at present
    std::atomic<uint64_t> expired_leases{0};
    std::atomic<uint64_t> bad_messages{0};
    std::atomic<uint64_t> promoted{0}; ///< images copied to the first tier
    // Read from others:
    std::atomic<uint64_t> reads{0};
    std::atomic<uint64_t> failed_reads{0};
    std::atomic<uint64_t> bytes_read{0};
    std::atomic<uint64_t> late_answers{0}; ///< calls whose deadline passed
    std::atomic<uint64_t> reconnects{0};
    // Sequences handed over:
    std::atomic<uint64_t> open_offers{0}; ///< at present
    std::atomic<uint64_t> offers{0};
    std::atomic<uint64_t> expired_offers{0};
    std::atomic<uint64_t> pulls_served{0};
    std::atomic<uint64_t> failed_pulls_served{0};
    std::atomic<uint64_t> handed_bytes{0}; ///< put where pullers read them
    std::atomic<uint64_t> pulls{0};
    std::atomic<uint64_t> failed_pulls{0};
    std::atomic<uint64_t> pulled_bytes{0};
};

} // namespace pkv::node
