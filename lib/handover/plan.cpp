// SPDX-License-Identifier: Apache-2.0
#include "handover/plan.h"

#include "core/status.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace pkv::handover {
namespace {

/// What has to be equal, whatever shards both sides are.
pkv_status check_same(uint32_t group, const FrontGroup &theirs, const FrontGroup &ours) {
    const struct {
        const char *name;
        uint64_t theirs, ours;
    } fields[] = {
        {"total_layers", theirs.total_layers, ours.total_layers},
        {"total_heads", theirs.total_heads, ours.total_heads},
        {"dtype", static_cast<uint64_t>(theirs.dtype), static_cast<uint64_t>(ours.dtype)},
        {"attention", static_cast<uint64_t>(theirs.attention), static_cast<uint64_t>(ours.attention)},
        {"window", theirs.window, ours.window},
        {"sinks", theirs.sinks, ours.sinks},
        {"scales", static_cast<uint64_t>(theirs.scales), static_cast<uint64_t>(ours.scales)},
        {"K row bytes", theirs.k_row_bytes, ours.k_row_bytes},
        {"V row bytes", theirs.v_row_bytes, ours.v_row_bytes},
    };
    for (const auto &field : fields)
        if (field.theirs != field.ours)
            return fail(PKV_ERR_MISMATCH, "group %u: %s is %" PRIu64 " at the giver and %" PRIu64 " in the pool", group,
                        field.name, field.theirs, field.ours);
    return PKV_OK;
}

/// Fixed scales are part of what stored rows mean.
pkv_status check_scales(const Part &part, const FrontGroup &theirs, const FrontGroup &ours) {
    if (ours.scales != PKV_SCALES_TENSOR && ours.scales != PKV_SCALES_HEAD) return PKV_OK;
    const bool by_head = ours.scales == PKV_SCALES_HEAD;
    const uint64_t count = by_head ? part.heads : 1;
    const uint64_t there =
        by_head ? uint64_t{part.their_layer} * theirs.heads + part.their_first_head : part.their_layer;
    const uint64_t here = by_head ? uint64_t{part.layer} * ours.heads + part.first_head : part.layer;
    const bool k = std::memcmp(&theirs.k_scales[there], &ours.k_scales[here], count * sizeof(float)) == 0;
    const bool v =
        ours.v_row_bytes == 0 || std::memcmp(&theirs.v_scales[there], &ours.v_scales[here], count * sizeof(float)) == 0;
    if (k && v) return PKV_OK;
    return fail(PKV_ERR_MISMATCH, "group %u, layer %u: the scales at the giver are not the pool's", part.group,
                part.layer);
}

bool has_row(const FrontGroup &group, uint64_t layer, uint64_t head) {
    return layer >= group.first_layer && layer - group.first_layer < group.num_layers && head >= group.first_head &&
           head - group.first_head < group.heads;
}

/// The parts of one layer.
pkv_status plan_layer(const FrontGroup &ours, std::span<const Front> fronts, uint32_t their_group, uint32_t most_heads,
                      Part part, std::vector<Part> &parts) {
    const uint64_t model_layer = uint64_t{ours.first_layer} + part.layer;
    while (part.first_head < ours.heads) {
        const uint64_t model_head = uint64_t{ours.first_head} + part.first_head;
        part.source = 0;
        while (part.source < fronts.size() &&
               (their_group >= fronts[part.source].groups.size() ||
                !has_row(fronts[part.source].groups[their_group], model_layer, model_head)))
            ++part.source;
        if (part.source == fronts.size())
            return fail(PKV_ERR_MISMATCH,
                        "group %u: layer %" PRIu64 ", head %" PRIu64 " of the model is in none of the offers",
                        part.group, model_layer, model_head);
        const FrontGroup &theirs = fronts[part.source].groups[their_group];
        PKV_TRY(check_same(part.group, theirs, ours));
        part.their_group = their_group;
        part.their_layer = static_cast<uint32_t>(model_layer - theirs.first_layer);
        part.their_first_head = static_cast<uint32_t>(model_head - theirs.first_head);
        part.heads = std::min({ours.heads - part.first_head, theirs.heads - part.their_first_head, most_heads});
        PKV_TRY(check_scales(part, theirs, ours));
        parts.push_back(part);
        part.first_head += part.heads;
    }
    return PKV_OK;
}

} // namespace

pkv_status plan_parts(const Pool &pool, std::span<const Front> fronts, std::span<const uint32_t> groups,
                      uint64_t most_bytes, std::vector<Part> &parts) {
    if (!groups.empty() && groups.size() != pool.num_groups())
        return fail(PKV_ERR_INVALID, "num_groups is %zu: the pool has %u", groups.size(), pool.num_groups());
    for (uint32_t group = 0; group < pool.num_groups(); ++group) {
        const FrontGroup ours = describe(pool.geometry(group));
        const uint64_t most_heads = most_bytes / ours.token_bytes(1);
        if (most_heads == 0)
            return fail(PKV_ERR_LIMIT,
                        "group %u: the rows of one head have %" PRIu64 " bytes, and at most %" PRIu64
                        " are read at once",
                        group, ours.token_bytes(1), most_bytes);
        for (uint32_t layer = 0; layer < ours.num_layers; ++layer) {
            Part part;
            part.group = group;
            part.layer = layer;
            PKV_TRY(plan_layer(ours, fronts, groups.empty() ? group : groups[group],
                               static_cast<uint32_t>(std::min<uint64_t>(most_heads, PKV_MAX_HEADS)), part, parts));
        }
    }
    std::stable_sort(parts.begin(), parts.end(), [&](const Part &a, const Part &b) {
        return pool.geometry(a.group).first_layer + a.layer < pool.geometry(b.group).first_layer + b.layer;
    });
    return PKV_OK;
}

pkv_status check_windows(const Pool &pool, std::span<const Front> fronts, std::span<const Part> parts) {
    const uint64_t page_tokens = pool.page_tokens();
    for (const Part &part : parts) {
        const Front &front = fronts[part.source];
        const FrontGroup &group = front.groups[part.their_group];
        if (group.head_end == group.tail_begin) continue;
        const uint64_t blocks = blocks_for(front.num_tokens, pool.page_tokens());
        for (uint64_t block = group.head_end / page_tokens;
             block <= std::min(group.tail_begin / page_tokens, blocks - 1); ++block) {
            const uint64_t begin = block * page_tokens, end = std::min(begin + page_tokens, front.num_tokens);
            if (end <= group.head_end || begin >= group.tail_begin ||
                !needs_block(pool, part.group, block, front.num_tokens))
                continue;
            return fail(PKV_ERR_MISMATCH,
                        "group %u: the giver has its window's tokens up to %" PRIu64 " and from %" PRIu64
                        " on, which pages of %" PRIu64 " do not divide",
                        part.group, group.head_end, group.tail_begin, page_tokens);
        }
    }
    return PKV_OK;
}

} // namespace pkv::handover
