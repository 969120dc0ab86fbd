// SPDX-License-Identifier: Apache-2.0
// Which blocks a sequence needs next: what stands behind pkv_prefetch_predict, and what sessions load by. Pure functions of
// their arguments; prefetch.h says in which order the blocks come.
//
// Check first (check_predictor, check_position): the others take their arguments as they are, and no value that was checked
// overflows. Counting comes before predicting, so that a caller that only asks how many there are, or has no room for them,
// costs no memory, however long the sequence is.
#pragma once

#include "core/status.h"

#include <pagedkv/prefetch.h>

#include <cstdint>
#include <span>
#include <vector>

namespace pkv {

constexpr uint64_t max_predicted_tokens = uint64_t{1} << 40;

/// PKV_ERR_INVALID for an unknown policy, or page_tokens out of range.
pkv_status check_predictor(const pkv_predictor &predictor);

/// PKV_ERR_LIMIT for a sequence that is too long; PKV_ERR_INVALID for a position behind its end.
pkv_status check_position(uint64_t num_tokens, uint64_t position);

/// How many blocks predict() appends: in no time, but for the scores of HINTED, which are looked at once.
uint64_t count_predicted(const pkv_predictor &predictor, uint64_t num_tokens, uint64_t position,
                         std::span<const float> scores);

/// Appends the blocks in the order in which they should be loaded. SEQUENTIAL and FULL take time in proportion to what is
/// appended; HINTED looks at each score once, and sorts no more of them than are asked for. `scores` is empty but for HINTED.
/// May throw std::bad_alloc.
void predict(const pkv_predictor &predictor, uint64_t num_tokens, uint64_t position, std::span<const float> scores,
             std::vector<uint64_t> &blocks);

} // namespace pkv
