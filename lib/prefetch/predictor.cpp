// SPDX-License-Identifier: Apache-2.0
#include "prefetch/predictor.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>

namespace pkv {
namespace {

/// Blocks begin .. end - 1.
struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;

    uint64_t size() const { return end > begin ? end - begin : 0; }
    bool has(uint64_t block) const { return block >= begin && block < end; }
};

/// All that does not depend on scores, in order and without a block twice.
struct Plan {
    uint64_t num_blocks = 0;
    Range sinks;
    Range recent;
    Range before; ///< FULL: what lies between the two
    Range after;  ///< SEQUENTIAL, FULL: what lies behind them

    bool is_fixed(uint64_t block) const { return sinks.has(block) || recent.has(block); }
    uint64_t size() const { return sinks.size() + recent.size() + before.size() + after.size(); }
};

uint64_t blocks_up_to(uint64_t tokens, uint64_t page_tokens) {
    return tokens / page_tokens + (tokens % page_tokens != 0 ? 1 : 0);
}

Plan make_plan(const pkv_predictor &predictor, uint64_t num_tokens, uint64_t position) {
    const uint64_t page_tokens = predictor.page_tokens;
    Plan plan;
    plan.num_blocks = blocks_up_to(num_tokens, page_tokens);
    plan.sinks.end = blocks_up_to(std::min(predictor.sink_tokens, num_tokens), page_tokens);

    const uint64_t recent_tokens = std::min(predictor.recent_tokens, position);
    if (recent_tokens != 0) {
        plan.recent.end = blocks_up_to(position, page_tokens);
        plan.recent.begin = std::max((position - recent_tokens) / page_tokens, plan.sinks.end);
    }

    // Sinks begin at block 0, and recent blocks reach up to `position`: what is left from there on is one range.
    const uint64_t at = position / page_tokens;
    const uint64_t fixed_end = std::max(plan.sinks.end, plan.recent.end);
    if (predictor.policy == PKV_PREDICT_SEQUENTIAL) {
        plan.after.begin = std::max(at, fixed_end);
        plan.after.end = at + std::min(predictor.lookahead, plan.num_blocks - at);
    } else if (predictor.policy == PKV_PREDICT_FULL) {
        if (plan.recent.size() != 0) plan.before = {plan.sinks.end, plan.recent.begin};
        plan.after = {fixed_end, plan.num_blocks};
    }
    return plan;
}

void append(Range range, std::vector<uint64_t> &blocks) {
    for (uint64_t block = range.begin; block < range.end; ++block) blocks.push_back(block);
}

/// Calls `use` with each block that a score can choose, ascending.
template <class Use> void for_scored(const Plan &plan, std::span<const float> scores, Use &&use) {
    const uint64_t count = std::min<uint64_t>(scores.size(), plan.num_blocks);
    for (uint64_t block = 0; block < count; ++block)
        if (!std::isnan(scores[block]) && !plan.is_fixed(block)) use(block);
}

} // namespace

pkv_status check_predictor(const pkv_predictor &predictor) {
    if (predictor.policy < PKV_PREDICT_SEQUENTIAL || predictor.policy > PKV_PREDICT_HINTED)
        return fail(PKV_ERR_INVALID, "policy is %" PRId32 ", none of PKV_PREDICT_*", predictor.policy);
    if (predictor.page_tokens < 1 || predictor.page_tokens > PKV_MAX_PAGE_TOKENS)
        return fail(PKV_ERR_INVALID, "page_tokens is %" PRIu32 ", not 1 .. %d", predictor.page_tokens,
                    PKV_MAX_PAGE_TOKENS);
    return PKV_OK;
}

pkv_status check_position(uint64_t num_tokens, uint64_t position) {
    if (num_tokens > max_predicted_tokens)
        return fail(PKV_ERR_LIMIT, "num_tokens is %" PRIu64 ", above 2^40", num_tokens);
    if (position > num_tokens)
        return fail(PKV_ERR_INVALID, "position is %" PRIu64 ", behind the %" PRIu64 " tokens of the sequence", position,
                    num_tokens);
    return PKV_OK;
}

uint64_t count_predicted(const pkv_predictor &predictor, uint64_t num_tokens, uint64_t position,
                         std::span<const float> scores) {
    const Plan plan = make_plan(predictor, num_tokens, position);
    if (predictor.policy != PKV_PREDICT_HINTED) return plan.size();
    uint64_t scored = 0;
    for_scored(plan, scores, [&](uint64_t) { ++scored; });
    return plan.size() + std::min(scored, predictor.lookahead);
}

void predict(const pkv_predictor &predictor, uint64_t num_tokens, uint64_t position, std::span<const float> scores,
             std::vector<uint64_t> &blocks) {
    const Plan plan = make_plan(predictor, num_tokens, position);
    append(plan.sinks, blocks);
    append(plan.recent, blocks);
    append(plan.before, blocks);
    append(plan.after, blocks);
    if (predictor.policy != PKV_PREDICT_HINTED || predictor.lookahead == 0) return;

    // The candidates stand where the chosen ones will: the best come to the front, the rest is cut off.
    const auto first = static_cast<std::ptrdiff_t>(blocks.size());
    for_scored(plan, scores, [&](uint64_t block) { blocks.push_back(block); });
    const auto candidates = blocks.size() - static_cast<uint64_t>(first);
    const auto chosen = static_cast<std::ptrdiff_t>(std::min<uint64_t>(candidates, predictor.lookahead));
    std::partial_sort(
        blocks.begin() + first, blocks.begin() + first + chosen, blocks.end(),
        [&](uint64_t a, uint64_t b) { return scores[a] > scores[b] || (scores[a] == scores[b] && a < b); });
    blocks.resize(static_cast<uint64_t>(first + chosen));
}

} // namespace pkv
