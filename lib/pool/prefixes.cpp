// SPDX-License-Identifier: Apache-2.0
// Prefixes of a pool: lookup, probe, publish, clear.
#include "pool/pool.h"

#include "core/status.h"

#include <algorithm>
#include <cinttypes>

namespace pkv {

using prefix::BlockName;
using prefix::Extras;
using prefix::Key;
using prefix::no_node;
using prefix::NodeId;
using prefix::Prompt;

/// A block on its way into the index; what may throw was done before the lock.
struct Pool::BlockToPublish {
    Key key;
    Extras extras;
};

namespace {

std::span<const pkv_token> block_tokens(std::span<const pkv_token> tokens, uint64_t block, uint32_t page_tokens) {
    return tokens.subspan(block * page_tokens, page_tokens);
}

} // namespace

// ---- matching ------------------------------------------------------------------------------------------------------

// Hashing needs no lock, and neither does a first look into the hash table. A chunk at a time, so that the loads of one
// chunk are under way together: one by one, each block would wait for main memory.
void Pool::likely_keys(const Prompt &prompt, uint64_t max_blocks, std::vector<Key> &keys) const {
    constexpr uint64_t chunk = 16;
    Key key = keys_.root(prompt.ns);
    std::string extras;
    keys.reserve(std::min<uint64_t>(max_blocks, 4 * chunk));
    while (keys.size() < max_blocks) {
        const uint64_t begin = keys.size();
        const uint64_t end = std::min(begin + chunk, max_blocks);
        for (uint64_t block = begin; block < end; ++block) {
            if (!prompt.media.empty()) extras = prefix::block_extras(prompt.media, block * page_tokens_, page_tokens_);
            key = keys_.next(key, block_tokens(prompt.tokens, block, page_tokens_), extras);
            index_.prefetch_slot(key);
            keys.push_back(key);
        }
        for (uint64_t block = begin; block < end; ++block) {
            if (!index_.likely(keys[block])) {
                keys.resize(block);
                return;
            }
            index_.prefetch_node(keys[block]);
        }
    }
}

/// The verified walk: how many of the keys lead to blocks that are equal in all parts.
uint64_t Pool::match(const Prompt &prompt, std::span<const Key> keys, std::vector<NodeId> &nodes) {
    NodeId parent = index_.find_root(prompt.ns);
    if (parent == no_node) return 0;
    std::string extras;
    for (uint64_t block = 0; block < keys.size(); ++block) {
        if (!prompt.media.empty()) extras = prefix::block_extras(prompt.media, block * page_tokens_, page_tokens_);
        const BlockName name{keys[block], block_tokens(prompt.tokens, block, page_tokens_),
                             extras.empty() ? nullptr : &extras};
        parent = index_.find(parent, name, counters_.key_collisions);
        if (parent == no_node) break;
        nodes.push_back(parent);
        pages_.prefetch(index_.node(parent).page);
    }
    return nodes.size();
}

pkv_status Pool::lookup(const Prompt &prompt, uint64_t max_blocks, pkv_page *pages, uint64_t &blocks) {
    std::vector<Key> keys;
    likely_keys(prompt, max_blocks, keys);
    std::vector<NodeId> nodes;
    nodes.reserve(keys.size());
    const Lock lock(mutex_);
    blocks = match(prompt, keys, nodes);
    for (uint64_t i = 0; i < blocks; ++i) {
        pages[i] = index_.node(nodes[i]).page;
        pages_.retain(pages[i]);
    }
    ++counters_.requests;
    counters_.asked_tokens += prompt.tokens.size();
    counters_.hit_tokens += blocks * page_tokens_;
    return PKV_OK;
}

pkv_status Pool::probe(const Prompt &prompt, uint64_t max_blocks, uint64_t &blocks) {
    std::vector<Key> keys;
    likely_keys(prompt, max_blocks, keys);
    std::vector<NodeId> nodes;
    nodes.reserve(keys.size());
    const Lock lock(mutex_);
    blocks = match(prompt, keys, nodes);
    ++counters_.probes;
    return PKV_OK;
}

NodeId Pool::find_or_make_root(const prefix::Digest &digest) {
    const NodeId root = index_.find_root(digest);
    return root != no_node ? root : index_.make_root(digest, keys_.root(digest));
}

// ---- publishing ----------------------------------------------------------------------------------------------------

std::vector<Pool::BlockToPublish> Pool::name_blocks(std::span<const pkv_token> tokens,
                                                    std::span<const prefix::Media> media, const Key &parent,
                                                    uint64_t first, uint64_t end) const {
    std::vector<BlockToPublish> blocks;
    blocks.reserve(end - first);
    Key key = parent;
    const std::string none;
    for (uint64_t block = first; block < end; ++block) {
        Extras extras;
        if (!media.empty()) {
            std::string parts = prefix::block_extras(media, block * page_tokens_, page_tokens_);
            if (!parts.empty()) extras = std::make_unique<std::string>(std::move(parts));
        }
        key = keys_.next(key, block_tokens(tokens, block, page_tokens_), extras != nullptr ? *extras : none);
        index_.prefetch_slot(key);
        blocks.push_back({key, std::move(extras)});
    }
    return blocks;
}

/// Publishes one block under `parent`, or finds it published; returns its node. no_node: the page has another name, which
/// its holder gave it through pkv_pool_publish.
NodeId Pool::publish_block(NodeId parent, const BlockName &name, Extras &extras, uint64_t block, pkv_page page) {
    NodeId id = index_.find(parent, name, counters_.key_collisions);
    if (id == no_node) {
        if (pages_.published(page)) return no_node;
        id = index_.insert(parent, name, std::move(extras), static_cast<uint32_t>(block), page);
        pages_.set_node(page, id);
        ++counters_.published_blocks;
        return id;
    }
    const pkv_page owner = index_.node(id).page;
    if (owner == page) return id;
    ++counters_.duplicate_blocks;
    if (pages_.count(owner) == 0 && !pages_.published(page)) {
        // Nobody holds the page that has the name: the one in use takes it over, the other is free memory again.
        pages_.unlink(owner);
        pages_.set_node(owner, no_node);
        make_free(owner);
        index_.node(id).page = page;
        pages_.set_node(page, id);
    }
    return id;
}

/// Everything that can be wrong with Pool::publish(); finds the node that the first block hangs under.
pkv_status Pool::check_publish(const Prompt &prompt, uint64_t first_block, std::span<const pkv_page> pages,
                               std::span<const BlockToPublish> blocks, NodeId &parent) {
    for (const pkv_page page : pages) {
        if (!in_range(page)) return no_such_page(page);
        if (pages_.count(page) == 0) return fail(PKV_ERR_STATE, "page %d is held by nobody", page);
    }
    parent = index_.find_root(prompt.ns);
    NodeId at = parent;
    for (uint64_t block = 0; block < first_block + pages.size(); ++block) {
        const BlockToPublish &item = blocks[block];
        if (at != no_node)
            at = index_.find(at, {item.key, block_tokens(prompt.tokens, block, page_tokens_), item.extras.get()},
                             counters_.key_collisions);
        if (block < first_block) {
            if (at == no_node)
                return fail(PKV_ERR_NOT_FOUND, "block %" PRIu64 ", before first_block %" PRIu64 ", is not published", block,
                            first_block);
            parent = at;
            continue;
        }
        const pkv_page page = pages[block - first_block];
        if (pages_.published(page) && pages_.node(page) != at)
            return fail(PKV_ERR_STATE, "page %d is published already, as block %u of another prefix", page,
                        index_.node(pages_.node(page)).block);
    }
    return PKV_OK;
}

pkv_status Pool::publish(const Prompt &prompt, uint64_t first_block, std::span<const pkv_page> pages, pkv_page *owner) {
    const uint64_t end = first_block + pages.size();
    std::vector<pkv_page> sorted(pages.begin(), pages.end());
    std::sort(sorted.begin(), sorted.end());
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
        return fail(PKV_ERR_INVALID, "page %d is listed twice", *twice);
    std::vector<BlockToPublish> blocks = name_blocks(prompt.tokens, prompt.media, keys_.root(prompt.ns), 0, end);

    const Lock lock(mutex_);
    NodeId parent = no_node;
    PKV_TRY(check_publish(prompt, first_block, pages, blocks, parent));
    if (parent == no_node) parent = find_or_make_root(prompt.ns);
    for (uint64_t i = 0; i < pages.size(); ++i) {
        const uint64_t block = first_block + i;
        BlockToPublish &item = blocks[block];
        // The name borrows the extras that insert() takes over: the string itself stays where it is.
        const BlockName name{item.key, block_tokens(prompt.tokens, block, page_tokens_), item.extras.get()};
        parent = publish_block(parent, name, item.extras, block, pages[i]);
        if (owner != nullptr) owner[i] = index_.node(parent).page;
    }
    return PKV_OK;
}

void Pool::publish_sequence(std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                            std::span<const pkv_page> pages, uint64_t end, Frontier &frontier) {
    // Twice at most: once from the frontier, and if the frontier's block was evicted meanwhile, once from the start.
    for (int attempt = 0; attempt < 2 && frontier.blocks < end; ++attempt) {
        std::vector<BlockToPublish> blocks = name_blocks(tokens, media, frontier.key, frontier.blocks, end);
        const Lock lock(mutex_);
        if (index_.root(frontier.root).dead) return; // cleared: nothing of this sequence may be found any more
        if (frontier.blocks > 0 && index_.node(frontier.node).generation != frontier.generation) {
            frontier = Frontier{frontier.root, 0, index_.root(frontier.root).key, no_node, 0};
            continue;
        }
        NodeId parent = frontier.blocks > 0 ? frontier.node : frontier.root;
        const uint64_t first = frontier.blocks;
        for (uint64_t block = first; block < end; ++block) {
            BlockToPublish &item = blocks[block - first];
            const BlockName name{item.key, block_tokens(tokens, block, page_tokens_), item.extras.get()};
            parent = publish_block(parent, name, item.extras, block, pages[block]);
            if (parent == no_node) return;
            frontier = Frontier{frontier.root, block + 1, item.key, parent, index_.node(parent).generation};
        }
    }
}

// ---- clearing ------------------------------------------------------------------------------------------------------

void Pool::clear_root(NodeId root, pkv_clear_result &result) {
    index_.mark_dead(root);
    drop_below(root, result);
    index_.drop_root_if_unused(root);
}

void Pool::clear(const prefix::Digest &digest, pkv_clear_result &result) {
    const Lock lock(mutex_);
    const NodeId root = index_.find_root(digest);
    if (root != no_node) clear_root(root, result);
    counters_.cleared_pages += result.freed;
}

void Pool::clear_all(pkv_clear_result &result) {
    const Lock lock(mutex_);
    for (NodeId slot = 0; slot < index_.root_slots(); ++slot)
        if (const NodeId root = slot | prefix::root_bit; index_.root(root).used && !index_.root(root).dead)
            clear_root(root, result);
    counters_.cleared_pages += result.freed;
}

} // namespace pkv
