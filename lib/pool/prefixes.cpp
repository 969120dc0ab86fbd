// SPDX-License-Identifier: Apache-2.0
// Prefixes of a pool: match, lookup, probe, clear.
#include "pool/cleaner.h"
#include "pool/pool.h"

#include "core/status.h"
#include "layout/strides.h"

#include <algorithm>
#include <cinttypes>

namespace pkv {

using prefix::block_tokens;
using prefix::BlockName;
using prefix::Extras;
using prefix::Key;
using prefix::no_node;
using prefix::NodeId;
using prefix::Prompt;

// ---- matching ------------------------------------------------------------------------------------------------------

// Hashing needs no lock, and neither does a first look into the hash table. A chunk at a time, so that the loads of one
// chunk are under way together: one by one, each block would wait for main memory.
Pool::Candidates Pool::candidates(const Prompt &prompt, uint64_t max_blocks) const {
    constexpr uint64_t chunk = 16;
    Candidates found;
    std::vector<Key> &keys = found.keys;
    Key key = keys_.root(prompt.ns);
    std::string extras;
    keys.reserve(std::min<uint64_t>(max_blocks, 4 * chunk));
    bool likely = true;
    while (likely && keys.size() < max_blocks) {
        const uint64_t begin = keys.size();
        const uint64_t end = std::min(begin + chunk, max_blocks);
        for (uint64_t block = begin; block < end; ++block) {
            if (!prompt.media.empty()) extras = prefix::block_extras(prompt.media, block * page_tokens_, page_tokens_);
            key = keys_.next(key, block_tokens(prompt.tokens, block, page_tokens_), extras);
            index_.prefetch_slot(key);
            keys.push_back(key);
        }
        for (uint64_t block = begin; likely && block < end; ++block) {
            likely = index_.likely(keys[block]);
            if (likely)
                index_.prefetch_node(keys[block]);
            else
                keys.resize(block);
        }
    }
    found.nodes.reserve(keys.size());
    return found;
}

/// The verified walk: nodes of the candidates, as far as they lead to blocks that are equal in all parts.
void Pool::walk(const Prompt &prompt, Candidates &found) {
    NodeId parent = index_.find_root(prompt.ns);
    std::string extras;
    for (uint64_t block = 0; block < found.keys.size() && parent != no_node; ++block) {
        if (!prompt.media.empty()) extras = prefix::block_extras(prompt.media, block * page_tokens_, page_tokens_);
        const BlockName name{found.keys[block], block_tokens(prompt.tokens, block, page_tokens_),
                             extras.empty() ? nullptr : &extras};
        parent = index_.find(parent, name, counters_.key_collisions);
        if (parent != no_node) found.nodes.push_back(parent);
    }
}

/// The state of matched pages will be wanted next.
void Pool::prefetch_found(const Candidates &found) {
    for (const NodeId node : found.nodes)
        for (uint32_t group = 0; group < num_groups_; ++group)
            if (const pkv_page page = index_.page(node, group); page != PKV_NO_PAGE) pages(group).prefetch(page);
}

uint64_t Pool::match(const Prompt &prompt, Candidates &found) {
    walk(prompt, found);
    prefetch_found(found);
    found.nodes.resize(covered_blocks(found.nodes));
    return found.nodes.size();
}

/// The longest prefix of a chain that every group can serve: full groups all of it, window groups what they reach from its
/// end. One pass: for each group, the length of the run of blocks with pages that ends at each block.
/// Blocks behind those of the index may be in tiers.
uint64_t Pool::covered_blocks(std::span<const NodeId> nodes, std::span<const AbsentBlock> absent) {
    auto has_block = [&](uint64_t block, uint32_t group) PKV_REQUIRES(mutex_) {
        return block < nodes.size() ? index_.page(nodes[block], group) != PKV_NO_PAGE
                                    : absent[block - nodes.size()].tier[group] != no_tier;
    };
    const uint64_t end = nodes.size() + absent.size();
    if (num_groups_ == 1 && groups_[0].full()) {
        uint64_t blocks = 0;
        while (blocks < end && has_block(blocks, 0)) ++blocks;
        return blocks;
    }
    std::array<uint64_t, PKV_MAX_GROUPS> run{};  // blocks with pages, up to this one
    std::array<uint64_t, PKV_MAX_GROUPS> head{}; // blocks with pages, from the first
    uint64_t covered = 0;
    for (uint64_t block = 0; block < end; ++block) {
        bool good = true;
        for (uint32_t i = 0; i < num_groups_; ++i) {
            const Group &group = groups_[i];
            const bool has = has_block(block, i);
            run[i] = has ? run[i] + 1 : 0;
            if (has && head[i] == block) ++head[i];
            if (run[i] == block + 1) continue; // all of it: enough for any kind
            if (group.full()) return covered;
            const uint64_t window_blocks = blocks_for(group.geometry.window, page_tokens_);
            const uint64_t sink_blocks = blocks_for(group.geometry.sinks, page_tokens_);
            good = good && run[i] >= std::min(window_blocks, block + 1) && head[i] >= std::min(sink_blocks, block + 1);
        }
        if (good) covered = block + 1;
    }
    return covered;
}

pkv_status Pool::lookup(const Prompt &prompt, uint64_t max_blocks, pkv_page *out, uint64_t capacity, uint64_t &blocks) {
    Fences waits;
    blocks = lookup(prompt, max_blocks, out, capacity, waits);
    if (device_ == nullptr) return PKV_OK;
    const pkv_status status = make_ready(waits);
    for (uint32_t group = 0; group < num_groups_ && status != PKV_OK; ++group)
        for (uint64_t i = 0; i < blocks; ++i)
            if (out[group * capacity + i] != PKV_NO_PAGE) release_page(group, out[group * capacity + i]);
    return status;
}

uint64_t Pool::lookup(const Prompt &prompt, uint64_t max_blocks, pkv_page *out, uint64_t capacity, Fences &waits) {
    Candidates found = candidates(prompt, max_blocks);
    const Lock lock(mutex_);
    const uint64_t blocks = match(prompt, found);
    for (uint32_t group = 0; group < num_groups_; ++group)
        for (uint64_t i = 0; i < blocks; ++i) {
            const pkv_page page = index_.page(found.nodes[i], group);
            const bool wanted = groups_[group].reaches(i, blocks * page_tokens_);
            out[group * capacity + i] = wanted ? page : PKV_NO_PAGE;
            if (wanted) pages(group).retain(page);
            if (wanted && device_ != nullptr) waits |= groups_[group].order.before_reading(page);
            if (wanted && on_hits_ != 0) note_hit(group, page);
        }
    handed_out_ |= waits;
    ++counters_.requests;
    counters_.asked_tokens += prompt.tokens.size();
    counters_.hit_tokens += blocks * page_tokens_;
    return blocks;
}

uint64_t Pool::probe(const Prompt &prompt, uint64_t max_blocks) {
    Candidates found = candidates(prompt, max_blocks);
    const Lock lock(mutex_);
    const uint64_t blocks = match(prompt, found); // may lack memory for media: counted only when it went well
    ++counters_.probes;
    return blocks;
}

void Pool::block_keys(const Prompt &prompt, std::span<pkv_key> out) const {
    Key key = keys_.root(prompt.ns);
    for (uint64_t block = 0; block < out.size(); ++block) {
        key = keys_.next(key, block_tokens(prompt.tokens, block, page_tokens_),
                         prefix::block_extras(prompt.media, block * page_tokens_, page_tokens_));
        out[block] = {key.low, key.high};
    }
}

NodeId Pool::find_or_make_root(const prefix::Digest &digest) {
    const NodeId root = index_.find_root(digest);
    return root != no_node ? root : index_.make_root(digest, keys_.root(digest));
}

// ---- clearing ------------------------------------------------------------------------------------------------------

void Pool::clear_root(NodeId root, pkv_clear_result &result) {
    // Tables that refer to it keep the old root, and publish nothing more. A default retention outlives the clearing.
    const bool stays = index_.root(root).references == 0;
    if (!stays && index_.root(root).has_retention)
        index_.replace_root(root);
    else if (!stays)
        index_.mark_dead(root);
    const Key key = index_.root(root).key;
    events_.record(PKV_EVENT_CLEARED, 0, {key.low, key.high}, {0, 0}, 0);
    clearing_ = true;
    drop_below(root, result);
    clearing_ = false;
    index_.drop_root_if_unused(root);
}

/// What tiers have of these namespaces goes first, and until it has gone nobody takes anything from there.
void Pool::clear_tiers(uint64_t tag) {
    if (tiers_ == nullptr) return;
    {
        const Lock lock(mutex_);
        ++clear_generation_;
        ++clears_;
    }
    try {
        tiers_->clear({tag});
    } catch (...) { // no memory: nothing was forgotten
        const Lock lock(mutex_);
        end_clear();
        throw;
    }
}

void Pool::end_clear() {
    if (tiers_ == nullptr) return;
    ++clear_generation_;
    --clears_;
}

void Pool::clear(const prefix::Digest &digest, pkv_clear_result &result) {
    clear_tiers(prefix::namespace_tag(digest));
    const Lock lock(mutex_);
    const NodeId root = index_.find_root(digest);
    if (root != no_node) clear_root(root, result);
    counters_.cleared_pages += result.freed;
    end_clear();
}

void Pool::clear_all(pkv_clear_result &result) {
    clear_tiers(PKV_TIER_TAG_ALL);
    const Lock lock(mutex_);
    std::vector<NodeId> roots; // those that there are now: one that takes a cleared one's place is empty
    for (NodeId slot = 0; slot < index_.root_slots(); ++slot)
        if (const NodeId root = slot | prefix::root_bit; index_.root(root).used && !index_.root(root).dead)
            roots.push_back(root);
    for (const NodeId root : roots) clear_root(root, result);
    counters_.cleared_pages += result.freed;
    end_clear();
}

} // namespace pkv
