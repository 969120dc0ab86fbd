// SPDX-License-Identifier: Apache-2.0
// What a pool does for block tables: admission in one step, and the counts of whole sequences.
#include "pool/pool.h"

#include "core/status.h"

#include <algorithm>
#include <cinttypes>

namespace pkv {

using prefix::Key;
using prefix::no_node;
using prefix::NodeId;

pkv_status Pool::admit(const prefix::Prompt &prompt, const Admission &admission, std::vector<pkv_page> &pages,
                       Frontier &frontier, uint64_t &matched_blocks) {
    std::vector<Key> keys;
    likely_keys(prompt, admission.max_blocks, keys);
    std::vector<NodeId> nodes;
    nodes.reserve(keys.size());
    // Room for the pages of the worst case, so that nothing throws once counts have changed.
    auto blocks_after = [&](uint64_t matched_tokens) {
        const uint64_t tokens = admission.reserve_tokens != 0 ? matched_tokens + admission.reserve_tokens
                                                              : admission.prompt_tokens;
        return blocks_for(tokens, page_tokens_);
    };
    // More than the pool has will be refused below.
    pages.reserve(std::min(blocks_after(keys.size() * page_tokens_), keys.size() + pages_.size()));

    const Lock lock(mutex_);
    const uint64_t matched = match(prompt, keys, nodes);
    const uint64_t total = std::max(blocks_after(matched * page_tokens_), matched);
    const uint64_t wanted = total - matched;

    // Matched pages that nobody holds are about to be held: they are no room for the rest.
    uint64_t matched_cached = 0;
    for (const NodeId node : nodes) matched_cached += pages_.count(index_.node(node).page) == 0;
    const uint64_t room = pages_.free_count() + pages_.cached_count() - matched_cached;
    if (wanted > room || admission.watermark > room - wanted) {
        ++counters_.refused;
        return fail(PKV_ERR_NO_PAGES,
                    "%" PRIu64 " pages wanted besides %" PRIu64 " matched and a watermark of %" PRIu64 ", %" PRIu64
                    " of %" PRIu64 " are free or can be evicted",
                    wanted, matched, admission.watermark, room, pages_.size());
    }
    const NodeId root = find_or_make_root(prompt.ns); // the last thing that can throw

    ++index_.root(root).references;
    for (const NodeId node : nodes) {
        const pkv_page page = index_.node(node).page;
        pages_.retain(page);
        pages.push_back(page);
    }
    frontier.root = root;
    frontier.blocks = matched;
    frontier.key = matched > 0 ? keys[matched - 1] : index_.root(root).key;
    frontier.node = matched > 0 ? nodes[matched - 1] : no_node;
    frontier.generation = matched > 0 ? index_.node(frontier.node).generation : 0;
    matched_blocks = matched;
    for (uint64_t i = 0; i < wanted; ++i) pages.push_back(take_page());

    counters_.allocated_pages += wanted;
    if (admission.retry) {
        ++counters_.retries;
    } else {
        ++counters_.requests;
        counters_.asked_tokens += admission.prompt_tokens;
        counters_.hit_tokens += matched * page_tokens_;
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
    frontier.blocks = blocks;
    frontier.key = index_.node(node).key;
    frontier.node = node;
    frontier.generation = index_.node(node).generation;
}

void Pool::retain_sequence(std::span<const pkv_page> pages, const Frontier &frontier) {
    const Lock lock(mutex_);
    for (const pkv_page page : pages) pages_.retain(page);
    ++index_.root(frontier.root).references;
}

void Pool::release_sequence(std::span<const pkv_page> pages, Frontier &frontier) {
    const Lock lock(mutex_);
    for (uint64_t i = pages.size(); i-- > 0;) release_one(pages[i]);
    if (frontier.root == no_node) return;
    --index_.root(frontier.root).references;
    index_.drop_root_if_unused(frontier.root);
    frontier = Frontier{};
}

} // namespace pkv
