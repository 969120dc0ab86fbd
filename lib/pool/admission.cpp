// SPDX-License-Identifier: Apache-2.0
// What a pool does for block tables: admission in one step, and the counts of whole sequences.
#include "pool/pool.h"

#include "core/status.h"
#include "layout/strides.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace pkv {

using prefix::Key;
using prefix::no_node;
using prefix::NodeId;

namespace {

constexpr uint64_t release_ahead = 6;

} // namespace

pkv_status Pool::admit(const prefix::Prompt &prompt, Admission &admission, BlockLists &lists, Frontier &frontier) {
    const uint64_t max_blocks = std::min(admission.max_match, admission.prompt_tokens) / page_tokens_;
    Candidates found = candidates(prompt, max_blocks);
    const TierHits hits = admission.use_tiers ? find_in_tiers(prompt, found, max_blocks) : TierHits{};
    pkv_status status = PKV_ERR_NO_MEMORY;
    try {
        status = admit_found(prompt, found, hits, admission, lists, frontier);
    } catch (const std::bad_alloc &) {
        fail(status, "no memory to admit %" PRIu64 " tokens", admission.prompt_tokens);
    }
    if (status != PKV_OK) admission.absent.clear();
    if (!hits.blocks.empty()) unpin_unused(hits, admission.absent, admission.matched_blocks);
    return status;
}

/// The admission itself, of what the index has and `hits` continues.
pkv_status Pool::admit_found(const prefix::Prompt &prompt, Candidates &found, const TierHits &hits,
                             Admission &admission, BlockLists &lists, Frontier &frontier) {
    const std::vector<Key> &keys = found.keys;
    const std::vector<NodeId> &nodes = found.nodes;
    std::vector<AbsentBlock> &absent = admission.absent;
    auto blocks_after = [&](uint64_t matched_tokens) {
        const uint64_t tokens =
            admission.reserve_tokens != 0 ? matched_tokens + admission.reserve_tokens : admission.prompt_tokens;
        return blocks_for(tokens, page_tokens_);
    };
    // Room for the worst case, so that nothing throws once counts have changed; more than a group has will be refused.
    const uint64_t most_matched = std::max<uint64_t>(keys.size(), hits.first + hits.blocks.size());
    const uint64_t most = blocks_after(most_matched * page_tokens_);
    for (uint32_t group = 0; group < num_groups_; ++group)
        lists[group].reserve(std::min(most, most_matched + pages(group).size()));
    absent.reserve(hits.blocks.size());

    const Lock lock(mutex_);
    expire();
    uint64_t matched = 0;
    GroupCounts wanted{};
    for (bool waited = true; waited;) {
        found.nodes.clear();
        walk(prompt, found);
        if (!hits.blocks.empty()) found.nodes.resize(covered_blocks(found.nodes));
        absent.clear();
        if (hits.clear_generation == clear_generation_ && nodes.size() >= hits.first)
            for (uint64_t i = nodes.size() - hits.first; i < hits.blocks.size(); ++i) absent.push_back(hits.blocks[i]);
        drop_overtaken(absent);
        matched = cut_to_covered(found, absent);
        const uint64_t blocks = std::max(blocks_after(matched * page_tokens_), matched);
        admission.new_blocks = blocks - matched;
        wanted.fill(admission.new_blocks);
        for (uint32_t group = 0; group < num_groups_; ++group)
            for (const AbsentBlock &block : absent) wanted[group] += block.groups >> group & 1;
        waited = false;
        for (uint32_t group = 0; group < num_groups_; ++group)
            // Matched pages are no room for the rest: as if all of them were cached now.
            waited = waited || wait_for_borrowed(group, wanted[group] + admission.watermark + nodes.size() + 1);
    }
    pkv_status status = check_admission(nodes, matched, wanted, admission.watermark);
    for (uint32_t group = 0; group < num_groups_ && status == PKV_OK; ++group)
        status = check_stored(group, wanted[group]);
    if (status != PKV_OK) {
        counters_.refused += admission.counted;
        return status;
    }
    admission.matched_blocks = nodes.size();
    const NodeId root = find_or_make_root(prompt.ns); // the last thing that can throw

    ++index_.root(root).references;
    frontier = root_frontier(root);
    if (!nodes.empty()) advance(frontier, keys[nodes.size() - 1], nodes.back(), nodes.size());
    for (uint32_t group = 0; group < num_groups_; ++group)
        for (uint64_t block = 0; block < nodes.size(); ++block) {
            const bool reached = groups_[group].reaches(block, matched * page_tokens_);
            const pkv_page page = reached ? index_.page(nodes[block], group) : PKV_NO_PAGE;
            if (reached) pages(group).retain(page);
            if (reached && device_ != nullptr) admission.waits |= groups_[group].order.before_reading(page);
            if (reached && on_hits_ != 0) note_hit(group, page);
            lists[group].push_back(page);
        }
    if (admission.partial && admission.new_blocks > 0 && absent.empty())
        match_inside_block(prompt, nodes.empty() ? root : nodes.back(), admission);
    for (uint32_t group = 0; group < num_groups_; ++group) {
        for (const AbsentBlock &block : absent)
            lists[group].push_back((block.groups >> group & 1) != 0 ? take_page(group, admission.waits) : PKV_NO_PAGE);
        for (uint64_t i = 0; i < admission.new_blocks; ++i) lists[group].push_back(take_page(group, admission.waits));
        counters_.allocated_pages += wanted[group];
    }
    handed_out_ |= admission.waits;
    if (admission.retry) {
        ++counters_.retries;
    } else if (admission.counted) {
        ++counters_.requests;
        counters_.asked_tokens += admission.prompt_tokens;
        counters_.hit_tokens += matched * page_tokens_ + admission.partial_tokens;
        counters_.tier_hit_tokens += absent.size() * page_tokens_;
    }
    counters_.partial_tokens += admission.partial_tokens;
    return PKV_OK;
}

void Pool::drop_overtaken(std::vector<AbsentBlock> &absent) {
    if (absent.empty()) return;
    for (const OpenStore &store : open_stores_) {
        if (store.clear_generation == clear_generation_) continue;
        for (size_t i = 0; i < absent.size(); ++i)
            for (uint32_t group = 0; group < num_groups_ && i < absent.size(); ++group) {
                const pkv_tier_key key = image_key(group, absent[i].digest);
                if (std::memcmp(key.bytes, store.key.bytes, sizeof key.bytes) == 0) absent.resize(i);
            }
    }
}

/// Cuts both parts of a match to the longest prefix that all groups cover, and says which groups need images of which absent
/// block; returns its blocks.
uint64_t Pool::cut_to_covered(Candidates &found, std::vector<AbsentBlock> &absent) {
    prefetch_found(found);
    const uint64_t covered = covered_blocks(found.nodes, absent);
    absent.resize(covered > found.nodes.size() ? covered - found.nodes.size() : 0);
    found.nodes.resize(std::min<uint64_t>(covered, found.nodes.size()));
    for (uint64_t i = 0; i < absent.size(); ++i) {
        absent[i].groups = 0;
        for (uint32_t group = 0; group < num_groups_; ++group)
            if (groups_[group].reaches(found.nodes.size() + i, covered * page_tokens_)) absent[i].groups |= 1u << group;
    }
    return covered;
}

/// Whether every group has the pages and the watermark besides the matched ones.
pkv_status Pool::check_admission(std::span<const NodeId> nodes, uint64_t matched, const GroupCounts &wanted,
                                 uint64_t watermark) {
    for (uint32_t group = 0; group < num_groups_; ++group) {
        // Matched pages that nobody holds are about to be held: they are no room for the rest. (Pinned ones never were.)
        const PageSet &set = pages(group);
        uint64_t room = set.room();
        for (uint64_t block = 0; block < nodes.size(); ++block) {
            if (!groups_[group].reaches(block, matched * page_tokens_)) continue;
            const pkv_page page = index_.page(nodes[block], group);
            room -= set.count(page) == 0 && set.list_of(page) != PageList::pinned;
        }
        if (wanted[group] > room || watermark > room - wanted[group])
            return fail(PKV_ERR_NO_PAGES,
                        "%" PRIu64 " pages wanted in group %u besides %zu matched and a watermark of %" PRIu64
                        ", %" PRIu64 " of %" PRIu64 " are free or can be evicted",
                        wanted[group], group, nodes.size(), watermark, room, set.size());
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
        for (uint32_t group = 0; usable && group < num_groups_; ++group)
            usable = index_.page(child, group) != PKV_NO_PAGE;
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
        const uint64_t room = pages(group).room() - (pages(group).borrows_room() ? 1 : 0);
        if (was_room && room < admission.new_blocks + admission.watermark + 1) return;
    }
    for (uint32_t group = 0; group < num_groups_; ++group) {
        admission.partial_pages[group] = index_.page(best_node, group);
        pages(group).retain(admission.partial_pages[group]);
        if (device_ != nullptr) admission.waits |= groups_[group].order.before_reading(admission.partial_pages[group]);
    }
    admission.partial_tokens = best;
}

Frontier Pool::open_namespace(const prefix::Digest &digest) {
    const Lock lock(mutex_);
    const NodeId root = find_or_make_root(digest);
    ++index_.root(root).references;
    return root_frontier(root);
}

Frontier Pool::root_frontier(NodeId root) const {
    Frontier frontier{root, 0, index_.root(root).key, no_node, 0, {}};
    if (tiers_ != nullptr) frontier.digest = prefix::prefix_root(index_.root(root).digest, page_tokens_);
    return frontier;
}

/// Moves a frontier to a block of its sequence.
void Pool::advance(Frontier &frontier, const Key &key, NodeId node, uint64_t blocks) const {
    frontier.blocks = blocks;
    frontier.key = key;
    frontier.node = node;
    frontier.generation = index_.node(node).generation;
    if (tiers_ != nullptr) frontier.digest = index_.digest(node);
}

pkv_status Pool::extend(BlockLists &lists, const GroupCounts &wanted, Fences &waits) {
    const Lock lock(mutex_);
    expire();
    for (uint32_t group = 0; group < num_groups_; ++group)
        if (wait_for_borrowed(group, wanted[group])) group = UINT32_MAX; // others had their turn: look at all again
    for (uint32_t group = 0; group < num_groups_; ++group) {
        if (wanted[group] > pages(group).room()) {
            ++counters_.failed_allocations;
            return no_pages(group, wanted[group]);
        }
        PKV_TRY(check_stored(group, wanted[group]));
    }
    for (uint32_t group = 0; group < num_groups_; ++group) {
        for (uint64_t i = 0; i < wanted[group]; ++i) lists[group].push_back(take_page(group, waits));
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
    if (!valid || blocks == 0)
        frontier = root_frontier(frontier.root);
    else
        advance(frontier, index_.node(node).key, node, blocks);
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
void Pool::release_list(uint32_t group, std::span<const pkv_page> list, uint64_t first, const Fences &work) {
    const uint64_t size = list.size();
    if (groups_[group].full()) {
        for (uint64_t block = size; block-- > first;) {
            if (block >= first + release_ahead) prefetch_release(group, list[block - release_ahead]);
            if (list[block] != PKV_NO_PAGE) release_one(group, list[block], work);
        }
    } else {
        const uint64_t sinks = std::min<uint64_t>(blocks_for(groups_[group].geometry.sinks, page_tokens_), size);
        for (uint64_t block = std::max(first, sinks); block < size; ++block) {
            if (block + release_ahead < size) prefetch_release(group, list[block + release_ahead]);
            if (list[block] != PKV_NO_PAGE) release_one(group, list[block], work);
        }
        for (uint64_t block = sinks; block-- > first;)
            if (list[block] != PKV_NO_PAGE) release_one(group, list[block], work);
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

void Pool::release_blocks(const BlockLists &lists, uint64_t first, const Fences &work) {
    prefetch_pages(lists, first, UINT64_MAX);
    const Lock lock(mutex_);
    for (uint32_t group = 0; group < num_groups_; ++group) release_list(group, lists[group], first, work);
}

void Pool::release_sequence(const BlockLists &lists, Frontier &frontier, const Fences &work) {
    if (frontier.root == no_node) return;
    prefetch_pages(lists, 0, UINT64_MAX);
    const Lock lock(mutex_);
    for (uint32_t group = 0; group < num_groups_; ++group) release_list(group, lists[group], 0, work);
    --index_.root(frontier.root).references;
    index_.drop_root_if_unused(frontier.root);
    frontier = Frontier{};
}

void Pool::release_pages(const GroupPages &list, const Fences &work) {
    const Lock lock(mutex_);
    for (uint32_t group = 0; group < num_groups_; ++group) {
        if (list[group] == PKV_NO_PAGE) continue;
        release_one(group, list[group], work);
        trim_cached(group);
    }
}

void Pool::release_passed(uint32_t group, std::span<const pkv_page> list, const Fences &work) {
    const Lock lock(mutex_);
    for (const pkv_page page : list) {
        release_one(group, page, work);
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
