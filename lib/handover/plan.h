// SPDX-License-Identifier: Apache-2.0
// Which rows of a pool come from which giver: each of its heads of each of its layers from the first offer that has it.
#pragma once

#include "handover/front.h"
#include "pool/pool.h"

#include <span>
#include <vector>

namespace pkv::handover {

/// Some heads of one layer of a pool.
struct Part {
    uint32_t group = 0;
    uint32_t layer = 0;
    uint32_t first_head = 0;
    uint32_t heads = 0;
    uint32_t source = 0; ///< the giver, and what it has them as
    uint32_t their_group = 0;
    uint32_t their_layer = 0;
    uint32_t their_first_head = 0;
};

/// PKV_ERR_MISMATCH when rows of the pool are in none of the offers, or are not the same there. `groups`, unless it is empty,
/// has the givers' group for each of the pool's. The parts come layer by layer in the model's order. A part has no more heads
/// than fit into `most_bytes` with one token.
pkv_status plan_parts(const Pool &pool, std::span<const Front> fronts, std::span<const uint32_t> groups,
                      uint64_t most_bytes, std::vector<Part> &parts);

/// Whether a sequence of front.num_tokens tokens needs a block of a group of the pool.
inline bool needs_block(const Pool &pool, uint32_t group, uint64_t block, uint64_t num_tokens) {
    return pool.group(group).reaches(block, num_tokens);
}

/// PKV_ERR_MISMATCH when a block that a window of the pool still reaches was cut elsewhere.
pkv_status check_windows(const Pool &pool, std::span<const Front> fronts, std::span<const Part> parts);

} // namespace pkv::handover
