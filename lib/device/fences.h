// SPDX-License-Identifier: Apache-2.0
// Points in the order of a device's streams.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pkv {

/// For each stream of a set, what had been put into it by a moment. Two of them are united by uniting the sets and taking the
/// later moment: that may name a little more than either did, never less, and nothing that was put in after the later one.
struct Fences {
    uint64_t streams = 0; ///< a bit for each of the streams that Order knows
    uint64_t ticket = 0;  ///< the moment: tickets rise

    bool none() const { return streams == 0; }
    Fences &operator|=(const Fences &other) {
        streams |= other.streams;
        ticket = std::max(ticket, other.ticket);
        return *this;
    }
};

} // namespace pkv
