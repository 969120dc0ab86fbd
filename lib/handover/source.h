// SPDX-License-Identifier: Apache-2.0
// One giver, as a pull sees it: the connection, the pull's number there, what it has said of the sequence, and pieces that were
// asked for. All of it belongs to the pull's thread.
#pragma once

#include "handover/front.h"
#include "handover/links.h"
#include "handover/ticket.h"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>

namespace pkv::handover {

/// Rows that are asked for: tokens of a part.
struct Wanted {
    size_t part = 0;
    uint64_t first = 0;
    uint64_t count = 0;
    uint32_t tries = 0; ///< whose bytes were not what they should be
};

/// One that is on its way.
struct Flying {
    Wanted wanted;
    uint64_t bytes = 0;
    uint64_t sum = 0;
    std::shared_ptr<std::byte> slot;
};

struct Source {
    Ticket ticket;
    Link link;
    uint64_t connection = 0; ///< another number for each, 0 for none: what comes from an earlier one is not looked at
    bool broken = false;     ///< the connection has ended
    uint32_t tries = 0;      ///< connections that ended
    uint64_t pull = 0;
    uint64_t piece_bytes = 0; ///< of the largest piece
    uint64_t front_bytes = 0;
    uint32_t bad_fronts = 0; ///< pieces of the front that were something else
    Front front;
    node::Progress progress;
    bool watching = false;
    std::vector<size_t> parts; ///< that come from here
    size_t first_part = 0;     ///< of them: those before have been asked for to the end
    std::deque<Wanted> again;  ///< to be asked for once more
    uint64_t again_at_ns = 0;  ///< not before
    uint64_t next_number = 0;
    std::map<uint64_t, Flying> flying;
};

} // namespace pkv::handover
