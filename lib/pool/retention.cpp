// SPDX-License-Identifier: Apache-2.0
// Retention: priorities, pins and the time after which they end. It belongs to blocks; a block's pages in all groups follow.
#include "core/clock.h"
#include "layout/strides.h"
#include "pool/pool.h"

#include <algorithm>

namespace pkv {

using prefix::no_node;
using prefix::NodeId;

/// Puts the block's cached pages into the list that its retention asks for.
void Pool::relist(NodeId node, bool new_priority) {
    const uint32_t list = list_for(index_.node(node));
    for (uint32_t group = 0; group < num_groups_; ++group) {
        const pkv_page page = index_.page(node, group);
        if (page == PKV_NO_PAGE || pages(group).count(page) != 0) continue;
        const uint32_t now = pages(group).list_of(page);
        if (now == list) continue;
        // Passed pages stay so under another priority; a pin takes them out, and its end puts them back in order. A parked page
        // comes up again, from the new end of its list, when its priority changes.
        if (now == PageList::passed && list != PageList::pinned) continue;
        if (now == PageList::parked && list != PageList::pinned && !new_priority) continue;
        pages(group).move_newest(page, list);
    }
}

/// A pinned block pins the blocks before it: without them it could not be found. A node's pins are its own and one for each
/// child that has any, so that a change goes up only as far as it makes a difference.
void Pool::set_pinned(NodeId node, bool pinned) {
    if (index_.node(node).pinned == pinned) return;
    index_.node(node).pinned = pinned;
    for (NodeId at = node; !prefix::is_root(at); at = index_.node(at).parent) {
        uint32_t &pins = index_.node(at).pins;
        pinned ? ++pins : --pins;
        if (pins != (pinned ? 1u : 0u)) return;
        relist(at, false);
    }
}

/// Makes room for more timers. Stale ones are thrown out first, so that setting a retention again and again takes no more
/// memory than there are blocks with one.
void Pool::reserve_timers(uint64_t more) {
    if (timers_.size() + more <= timers_.capacity()) return;
    const auto stale = [this](const Timer &timer) PKV_REQUIRES(mutex_) { return is_stale(timer); };
    timers_.erase(std::remove_if(timers_.begin(), timers_.end(), stale), timers_.end());
    std::make_heap(timers_.begin(), timers_.end(), std::greater<>());
    const uint64_t wanted = timers_.size() + more;
    if (wanted > timers_.capacity() / 2) timers_.reserve(wanted * 2);
}

bool Pool::is_stale(const Timer &timer) {
    return index_.node(timer.node).generation != timer.generation || index_.timer(timer.node) != timer.timer;
}

/// Room for a timer was reserved.
void Pool::apply_retention(NodeId node, const pkv_retention &retention, uint64_t now_ns) {
    prefix::Node &item = index_.node(node);
    const bool new_priority = item.priority != retention.priority;
    item.priority = static_cast<uint8_t>(retention.priority);
    const uint32_t timer = ++index_.timer(node);
    set_pinned(node, retention.pin != 0);
    relist(node, new_priority);
    uint64_t deadline = 0;
    index_.set_deadline(node, 0);
    if (retention.ttl_ns == 0 || __builtin_add_overflow(now_ns, retention.ttl_ns, &deadline)) return;
    index_.set_deadline(node, deadline);
    timers_.push_back({deadline, node, item.generation, timer});
    std::push_heap(timers_.begin(), timers_.end(), std::greater<>());
}

/// What a block gets when it is published: its sequence's ranges, the last one first, or its namespace's.
void Pool::apply_published_retention(NodeId node, NodeId root, std::span<const RetentionRange> ranges) {
    const uint64_t begin = uint64_t{index_.node(node).block} * page_tokens_;
    for (size_t i = ranges.size(); i-- > 0;)
        if (ranges[i].begin < begin + page_tokens_ && ranges[i].end > begin) {
            apply_retention(node, ranges[i].retention, monotonic_ns());
            return;
        }
    if (index_.root(root).has_retention) apply_retention(node, index_.root(root).retention, monotonic_ns());
}

void Pool::expire() {
    if (device_ != nullptr) end_quarantine();
    if (timers_.empty()) return;
    const uint64_t now = monotonic_ns();
    while (!timers_.empty() && timers_.front().deadline_ns <= now) {
        const Timer timer = timers_.front();
        std::pop_heap(timers_.begin(), timers_.end(), std::greater<>());
        timers_.pop_back();
        if (is_stale(timer)) continue;
        ++counters_.expired_blocks;
        apply_retention(timer.node, pkv_retention PKV_RETENTION_INIT, now);
    }
    trim_all();
}

uint64_t Pool::set_retention(const prefix::Prompt &prompt, uint64_t first_block, uint64_t end_block,
                             const pkv_retention &retention) {
    const uint64_t end = std::min<uint64_t>(end_block, prompt.tokens.size() / page_tokens_);
    Candidates found = candidates(prompt, end);
    if (tiers_ != nullptr && first_block < end)
        for (uint32_t group = 0; group < num_groups_; ++group) {
            std::vector<pkv_tier_key> keys(end);
            image_keys(group, prompt, keys);
            tiers_->retain(std::span<const pkv_tier_key>(keys).subspan(first_block), retention);
        }
    const Lock lock(mutex_);
    expire();
    reserve_timers(found.keys.size());
    walk(prompt, found);
    const uint64_t now = monotonic_ns();
    uint64_t blocks = 0;
    for (uint64_t block = first_block; block < found.nodes.size(); ++block, ++blocks)
        apply_retention(found.nodes[block], retention, now);
    trim_all();
    return blocks;
}

void Pool::set_namespace_retention(const prefix::Digest &digest, const pkv_retention *retention) {
    const Lock lock(mutex_);
    if (retention == nullptr && index_.find_root(digest) == no_node) return;
    const NodeId root = find_or_make_root(digest);
    index_.root(root).has_retention = retention != nullptr;
    index_.root(root).retention = retention != nullptr ? *retention : pkv_retention PKV_RETENTION_INIT;
    index_.drop_root_if_unused(root);
}

void Pool::set_sequence_retention(const Frontier &frontier, std::span<const pkv_token> tokens,
                                  std::span<const prefix::Media> media, const RetentionRange &range) {
    const uint64_t first = range.begin / page_tokens_;
    if (first >= frontier.blocks) return;
    const uint64_t end = std::min(blocks_for(range.end, page_tokens_), frontier.blocks);
    prefix::Prompt prompt;
    std::vector<prefix::Digest> digests; // of blocks whose images follow
    if (tiers_ != nullptr) digests.reserve(end - first);
    bool done = false;
    {
        const Lock lock(mutex_);
        expire();
        if (index_.root(frontier.root).dead) return; // nothing of it is published
        if (index_.node(frontier.node).generation == frontier.generation) {
            reserve_timers(end - first);
            const uint64_t now = monotonic_ns();
            for (NodeId node = frontier.node; !prefix::is_root(node); node = index_.node(node).parent) {
                const uint64_t block = index_.node(node).block;
                if (block < first) break;
                if (block < end) apply_retention(node, range.retention, now);
                if (block < end && tiers_ != nullptr) digests.push_back(index_.digest(node));
            }
            trim_all();
            done = true;
        }
        prompt.ns = index_.root(frontier.root).digest;
    }
    for (uint32_t group = 0; group < num_groups_ && !digests.empty(); ++group) {
        std::vector<pkv_tier_key> keys;
        for (const prefix::Digest &digest : digests) keys.push_back(image_key(group, digest));
        tiers_->retain(keys, range.retention);
    }
    if (done) return;
    // Its last block went meanwhile: look from the first on for what is left.
    prompt.tokens = tokens;
    prompt.media.assign(media.begin(), media.end());
    set_retention(prompt, first, end, range.retention);
}

} // namespace pkv
