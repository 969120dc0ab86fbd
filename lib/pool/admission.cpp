// SPDX-License-Identifier: Apache-2.0
// What a pool does for block tables: admission in one step, and the counts of whole sequences.
#include "pool/pool.h"

#include "core/status.h"
#include "layout/strides.h"

#include <algorithm>
#include <cinttypes>

namespace pkv {

using prefix::Key;
using prefix::no_node;
using prefix::NodeId;

namespace {

constexpr uint64_t release_ahead = 6;

} // namespace

pkv_status Pool::admit(const prefix::Prompt &prompt, Admission &admission, BlockLists &lists, Frontier &frontier) {
    Candidates found =
        candidates(prompt, std::min(admission.max_match, admission.prompt_tokens) / page_tokens_);
    const std::vector<Key> &keys = found.keys;
    const std::vector<NodeId> &nodes = found.nodes;
    auto blocks_after = [&](uint64_t matched_tokens) {
        const uint64_t tokens = admission.reserve_tokens != 0 ? matched_tokens + admission.reserve_tokens
                                                              : admission.prompt_tokens;
        return blocks_for(tokens, page_tokens_);
    };
    // Room for the worst case, so that nothing throws once counts have changed; more than a group has will be refused.
    const uint64_t most = blocks_after(keys.size() * page_tokens_);
    for (uint32_t group = 0; group < num_groups_; ++group)
        lists[group].reserve(std::min(most, keys.size() + pages(group).size()));

    const Lock lock(mutex_);
    expire();
    const uint64_t matched = match(prompt, found);
    const uint64_t wanted = std::max(blocks_after(matched * page_tokens_), matched) - matched;
    if (const pkv_status status = check_admission(nodes, wanted, admission.watermark); status != PKV_OK) {
        ++counters_.refused;
        return status;
    }
    admission.matched_blocks = matched;
    admission.new_blocks = wanted;
    const NodeId root = find_or_make_root(prompt.ns); // the last thing that can throw

    ++index_.root(root).references;
    frontier = Frontier{root, matched, index_.root(root).key, no_node, 0};
    if (matched > 0) frontier = Frontier{root, matched, keys[matched - 1], nodes.back(), index_.node(nodes.back()).generation};
    for (uint32_t group = 0; group < num_groups_; ++group)
        for (uint64_t block = 0; block < matched; ++block) {
            const bool reached = groups_[group].reaches(block, matched * page_tokens_);
            const pkv_page page = reached ? index_.page(nodes[block], group) : PKV_NO_PAGE;
            if (reached) pages(group).retain(page);
            lists[group].push_back(page);
        }
    if (admission.partial && wanted > 0) match_inside_block(prompt, matched > 0 ? nodes.back() : root, admission);
    for (uint32_t group = 0; group < num_groups_; ++group)
        for (uint64_t i = 0; i < wanted; ++i) lists[group].push_back(take_page(group));
    counters_.allocated_pages += wanted * num_groups_;
    if (admission.retry) {
        ++counters_.retries;
    } else {
        ++counters_.requests;
        counters_.asked_tokens += admission.prompt_tokens;
        counters_.hit_tokens += matched * page_tokens_ + admission.partial_tokens;
    }
    counters_.partial_tokens += admission.partial_tokens;
    return PKV_OK;
}

/// Whether every group has `wanted` pages and the watermark besides the matched ones.
pkv_status Pool::check_admission(std::span<const NodeId> nodes, uint64_t wanted, uint64_t watermark) {
    for (uint32_t group = 0; group < num_groups_; ++group) {
        // Matched pages that nobody holds are about to be held: they are no room for the rest. (Pinned ones never were.)
        const PageSet &set = pages(group);
        uint64_t room = set.room();
        for (uint64_t block = 0; block < nodes.size(); ++block) {
            if (!groups_[group].reaches(block, nodes.size() * page_tokens_)) continue;
            const pkv_page page = index_.page(nodes[block], group);
            room -= set.count(page) == 0 && set.list_of(page) != PageList::pinned;
        }
        if (wanted > room || watermark > room - wanted)
            return fail(PKV_ERR_NO_PAGES,
                        "%" PRIu64 " pages wanted in group %u besides %zu matched and a watermark of %" PRIu64 ", %" PRIu64
                        " of %" PRIu64 " are free or can be evicted",
                        wanted, group, nodes.size(), watermark, room, set.size());
    }
    return PKV_OK;
}

/// Looks for a published block that begins with the prompt's next tokens, and holds its pages for a copy.
void Pool::match_inside_block(const prefix::Prompt &prompt, NodeId parent, Admission &admission) {
    constexpr int siblings_examined = 8;
    const uint64_t begin = prefix::is_root(parent) ? 0 : (uint64_t{index_.node(parent).block} + 1) * page_tokens_;
    const uint64_t end = std::min({admission.max_match, admission.prompt_tokens, begin + page_tokens_});
    uint64_t limit = end > begin ? end - begin : 0;
    for (const prefix::Media &media : prompt.media) // media are part of a block's name as a whole: stop before them
        if (media.position >= begin && media.position < begin + limit) limit = media.position - begin;

    uint64_t best = 0;
    NodeId best_node = no_node;
    NodeId child = index_.first_child(parent);
    for (int i = 0; i < siblings_examined && child != no_node && index_.children(parent) != 0; ++i) {
        const prefix::Node &node = index_.node(child);
        const auto tokens = index_.tokens(child);
        uint64_t same = 0;
        while (same < limit && tokens[same] == prompt.tokens[begin + same]) ++same;
        bool usable = node.extras == nullptr && same > best;
        for (uint32_t group = 0; usable && group < num_groups_; ++group) usable = index_.page(child, group) != PKV_NO_PAGE;
        if (usable) {
            best = same;
            best_node = child;
        }
        child = node.next_sibling;
    }
    if (best == 0) return;
    // Its pages are no room for the new ones while they are held; if that were too much, there is no partial match.
    for (uint32_t group = 0; group < num_groups_; ++group) {
        const pkv_page page = index_.page(best_node, group);
        const bool was_room = pages(group).count(page) == 0 && pages(group).list_of(page) != PageList::pinned;
        if (was_room && pages(group).room() < admission.new_blocks + admission.watermark + 1) return;
    }
    for (uint32_t group = 0; group < num_groups_; ++group) {
        admission.partial_pages[group] = index_.page(best_node, group);
        pages(group).retain(admission.partial_pages[group]);
    }
    admission.partial_tokens = best;
}

Frontier Pool::open_namespace(const prefix::Digest &digest) {
    const Lock lock(mutex_);
    const NodeId root = find_or_make_root(digest);
    ++index_.root(root).references;
    return Frontier{root, 0, index_.root(root).key, no_node, 0};
}

pkv_status Pool::extend(BlockLists &lists, const GroupCounts &wanted) {
    const Lock lock(mutex_);
    expire();
    for (uint32_t group = 0; group < num_groups_; ++group) {
        if (wanted[group] <= pages(group).room()) continue;
        ++counters_.failed_allocations;
        return no_pages(group, wanted[group]);
    }
    for (uint32_t group = 0; group < num_groups_; ++group) {
        for (uint64_t i = 0; i < wanted[group]; ++i) lists[group].push_back(take_page(group));
        counters_.allocated_pages += wanted[group];
    }
    return PKV_OK;
}

void Pool::retreat(Frontier &frontier, uint64_t blocks) {
    if (frontier.blocks <= blocks) return;
    const Lock lock(mutex_);
    // Up the tree, as long as the frontier's node is still the one it was; else start again from the root.
    const bool valid = index_.node(frontier.node).generation == frontier.generation;
    NodeId node = frontier.node;
    if (valid)
        for (uint64_t i = frontier.blocks; i > blocks; --i) node = index_.node(node).parent;
    if (!valid || blocks == 0) {
        frontier = Frontier{frontier.root, 0, index_.root(frontier.root).key, no_node, 0};
        return;
    }
    frontier = Frontier{frontier.root, blocks, index_.node(node).key, node, index_.node(node).generation};
}

void Pool::retain_sequence(const BlockLists &lists, const Frontier &frontier) {
    const Lock lock(mutex_);
    for (uint32_t group = 0; group < num_groups_; ++group)
        for (const pkv_page page : lists[group])
            if (page != PKV_NO_PAGE) pages(group).retain(page);
    ++index_.root(frontier.root).references;
}

/// Releases a sequence's blocks in the order in which they should be evicted: in a full group from the end, so that leaves go
/// first; in a window group from the head, and the sinks last, since the window reaches back from the end.
void Pool::release_list(uint32_t group, std::span<const pkv_page> list, uint64_t first) {
    const uint64_t size = list.size();
    if (groups_[group].full()) {
        for (uint64_t block = size; block-- > first;) {
            if (block >= first + release_ahead) prefetch_release(group, list[block - release_ahead]);
            if (list[block] != PKV_NO_PAGE) release_one(group, list[block]);
        }
    } else {
        const uint64_t sinks = std::min<uint64_t>(blocks_for(groups_[group].geometry.sinks, page_tokens_), size);
        for (uint64_t block = std::max(first, sinks); block < size; ++block) {
            if (block + release_ahead < size) prefetch_release(group, list[block + release_ahead]);
            if (list[block] != PKV_NO_PAGE) release_one(group, list[block]);
        }
        for (uint64_t block = sinks; block-- > first;)
            if (list[block] != PKV_NO_PAGE) release_one(group, list[block]);
    }
    trim_cached(group);
}

/// The state of these pages will be wanted under the lock, and other threads may have had it last. Needs no lock itself.
void Pool::prefetch_pages(const BlockLists &lists, uint64_t first, uint64_t end) const {
    for (uint32_t group = 0; group < num_groups_; ++group)
        for (uint64_t block = first; block < std::min<uint64_t>(end, lists[group].size()); ++block)
            if (lists[group][block] != PKV_NO_PAGE) groups_[group].pages.prefetch(lists[group][block]);
}

/// A page that is released soon: its node decides in which list it goes.
void Pool::prefetch_release(uint32_t group, pkv_page page) {
    if (page == PKV_NO_PAGE) return;
    if (const NodeId node = pages(group).node(page); node != no_node) prefetch(&index_.node(node));
}

void Pool::release_blocks(const BlockLists &lists, uint64_t first) {
    prefetch_pages(lists, first, UINT64_MAX);
    const Lock lock(mutex_);
    for (uint32_t group = 0; group < num_groups_; ++group) release_list(group, lists[group], first);
}

void Pool::release_sequence(const BlockLists &lists, Frontier &frontier) {
    if (frontier.root == no_node) return;
    prefetch_pages(lists, 0, UINT64_MAX);
    const Lock lock(mutex_);
    for (uint32_t group = 0; group < num_groups_; ++group) release_list(group, lists[group], 0);
    --index_.root(frontier.root).references;
    index_.drop_root_if_unused(frontier.root);
    frontier = Frontier{};
}

void Pool::release_pages(const GroupPages &list) {
    const Lock lock(mutex_);
    for (uint32_t group = 0; group < num_groups_; ++group) {
        if (list[group] == PKV_NO_PAGE) continue;
        release_one(group, list[group]);
        trim_cached(group);
    }
}

void Pool::release_passed(uint32_t group, std::span<const pkv_page> list) {
    const Lock lock(mutex_);
    for (const pkv_page page : list) {
        release_one(group, page);
        PageSet &set = pages(group);
        if (set.count(page) == 0 && set.published(page) && set.list_of(page) != PageList::pinned)
            set.move_newest(page, PageList::passed);
    }
    trim_cached(group);
}

uint32_t Pool::shared_groups(const GroupPages &list) {
    const Lock lock(mutex_);
    uint32_t shared = 0;
    for (uint32_t group = 0; group < num_groups_; ++group)
        if (list[group] != PKV_NO_PAGE && (pages(group).count(list[group]) != 1 || pages(group).published(list[group])))
            shared |= 1u << group;
    return shared;
}

prefix::Digest Pool::namespace_of(const Frontier &frontier) {
    const Lock lock(mutex_);
    return index_.root(frontier.root).digest;
}

} // namespace pkv
