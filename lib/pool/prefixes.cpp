// SPDX-License-Identifier: Apache-2.0
// Prefixes of a pool: lookup, probe, publish, clear.
#include "pool/pool.h"

#include "core/status.h"
#include "layout/strides.h"

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

/// A run of them. A decode step publishes one at a time, and takes no memory for that.
class Pool::BlocksToPublish {
  public:
    explicit BlocksToPublish(uint64_t count) {
        if (count > 1) rest_.reserve(count - 1);
    }
    void push_back(BlockToPublish block) {
        if (size_++ == 0)
            first_ = std::move(block);
        else
            rest_.push_back(std::move(block));
    }
    BlockToPublish &operator[](uint64_t index) { return index == 0 ? first_ : rest_[index - 1]; }

  private:
    uint64_t size_ = 0;
    BlockToPublish first_;
    std::vector<BlockToPublish> rest_;
};

namespace {

constexpr GroupPages no_pages_anywhere = [] {
    GroupPages pages{};
    pages.fill(PKV_NO_PAGE);
    return pages;
}();

std::span<const pkv_token> block_tokens(std::span<const pkv_token> tokens, uint64_t block, uint32_t page_tokens) {
    return tokens.subspan(block * page_tokens, page_tokens);
}

} // namespace

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

uint64_t Pool::match(const Prompt &prompt, Candidates &found) {
    walk(prompt, found);
    for (const NodeId node : found.nodes)
        for (uint32_t group = 0; group < num_groups_; ++group)
            if (const pkv_page page = index_.page(node, group); page != PKV_NO_PAGE) pages(group).prefetch(page);
    found.nodes.resize(covered_blocks(found.nodes));
    return found.nodes.size();
}

/// The longest prefix of a chain that every group can serve: full groups all of it, window groups what they reach from its
/// end. One pass: for each group, the length of the run of blocks with pages that ends at each block.
uint64_t Pool::covered_blocks(std::span<const NodeId> nodes) {
    if (num_groups_ == 1 && groups_[0].full()) {
        uint64_t blocks = 0;
        while (blocks < nodes.size() && index_.page(nodes[blocks], 0) != PKV_NO_PAGE) ++blocks;
        return blocks;
    }
    std::array<uint64_t, PKV_MAX_GROUPS> run{};  // blocks with pages, up to this one
    std::array<uint64_t, PKV_MAX_GROUPS> head{}; // blocks with pages, from the first
    uint64_t covered = 0;
    for (uint64_t block = 0; block < nodes.size(); ++block) {
        bool good = true;
        for (uint32_t i = 0; i < num_groups_; ++i) {
            const Group &group = groups_[i];
            const bool has = index_.page(nodes[block], i) != PKV_NO_PAGE;
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

uint64_t Pool::lookup(const Prompt &prompt, uint64_t max_blocks, pkv_page *out, uint64_t capacity) {
    Candidates found = candidates(prompt, max_blocks);
    const Lock lock(mutex_);
    const uint64_t blocks = match(prompt, found);
    for (uint32_t group = 0; group < num_groups_; ++group)
        for (uint64_t i = 0; i < blocks; ++i) {
            const pkv_page page = index_.page(found.nodes[i], group);
            const bool wanted = groups_[group].reaches(i, blocks * page_tokens_);
            out[group * capacity + i] = wanted ? page : PKV_NO_PAGE;
            if (wanted) pages(group).retain(page);
        }
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

// ---- publishing ----------------------------------------------------------------------------------------------------

Pool::BlocksToPublish Pool::name_blocks(std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                                        const Key &parent, uint64_t first, uint64_t end) const {
    BlocksToPublish blocks(end - first);
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

void Pool::record(int32_t kind, uint32_t group, NodeId node) {
    if (clearing_ || !events_.enabled()) return;
    const prefix::Node &item = index_.node(node);
    const Key &parent = index_.key_of(item.parent);
    events_.record(kind, group, {item.key.low, item.key.high}, {parent.low, parent.high}, item.block);
}

/// The node of a block under `parent`, made if it does not exist. no_node when one of the pages for it has another name,
/// which its holder gave it through pkv_pool_publish, or when the index is full.
NodeId Pool::publish_node(NodeId parent, const BlockName &name, Extras &extras, uint64_t block, const GroupPages &list) {
    const NodeId id = index_.find(parent, name, counters_.key_collisions);
    for (uint32_t group = 0; group < num_groups_; ++group)
        if (list[group] != PKV_NO_PAGE && pages(group).published(list[group]) && pages(group).node(list[group]) != id)
            return no_node;
    if (id != no_node || index_.room() == 0) return id;
    ++counters_.published_blocks;
    return index_.insert(parent, name, std::move(extras), static_cast<uint32_t>(block));
}

/// Publishes a held page as a block's page of a group. A block whose page somebody holds already keeps it; with `share` that
/// one is taken in place of `page`, which becomes free.
void Pool::publish_page(NodeId node, uint32_t group, pkv_page &page, bool share) {
    PageSet &set = pages(group);
    const pkv_page owner = index_.page(node, group);
    if (owner == page) return;
    if (owner != PKV_NO_PAGE) {
        ++counters_.duplicate_blocks;
        if (share && set.count(page) == 1 && !set.published(page)) {
            ++counters_.shared_duplicates;
            set.retain(owner);
            release_one(group, page);
            page = owner;
            return;
        }
        if (set.count(owner) != 0 || set.published(page)) return;
        // Nobody holds the page that has the name: the one in use takes it over, the other is free memory again.
        set.unlink(owner);
        detach_page(node, group);
        make_free(group, owner);
    }
    index_.set_page(node, group, page);
    set.set_node(page, node);
    record(PKV_EVENT_STORED, group, node);
}

/// Everything that can be wrong with Pool::publish(); finds the node that the first block hangs under.
pkv_status Pool::check_publish(uint32_t group, const Prompt &prompt, uint64_t first_block, std::span<const pkv_page> list,
                               BlocksToPublish &blocks, NodeId &parent) {
    const PageSet &set = pages(group);
    for (const pkv_page page : list) {
        if (!set.in_range(page)) return no_such_page(group, page);
        if (set.count(page) == 0) return fail(PKV_ERR_STATE, "page %d is held by nobody", page);
    }
    parent = index_.find_root(prompt.ns);
    NodeId at = parent;
    for (uint64_t block = 0; block < first_block + list.size(); ++block) {
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
        const pkv_page page = list[block - first_block];
        if (set.published(page) && set.node(page) != at)
            return fail(PKV_ERR_STATE, "page %d is published already, as block %u of another prefix", page,
                        index_.node(set.node(page)).block);
    }
    return PKV_OK;
}

pkv_status Pool::publish(uint32_t group, const Prompt &prompt, uint64_t first_block, std::span<const pkv_page> list,
                         pkv_page *owner) {
    const uint64_t end = first_block + list.size();
    std::vector<pkv_page> sorted(list.begin(), list.end());
    std::sort(sorted.begin(), sorted.end());
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
        return fail(PKV_ERR_INVALID, "page %d is listed twice", *twice);
    BlocksToPublish blocks = name_blocks(prompt.tokens, prompt.media, keys_.root(prompt.ns), 0, end);

    const Lock lock(mutex_);
    NodeId parent = no_node;
    PKV_TRY(check_publish(group, prompt, first_block, list, blocks, parent));
    if (index_.room() < list.size())
        return fail(PKV_ERR_NO_SPACE, "the prefix index has room for %" PRIu64 " more blocks, not for %zu", index_.room(),
                    list.size());
    reserve_timers(list.size());
    const NodeId root = find_or_make_root(prompt.ns);
    if (parent == no_node) parent = root;
    for (uint64_t i = 0; i < list.size(); ++i) {
        const uint64_t block = first_block + i;
        BlockToPublish &item = blocks[block];
        // The name borrows the extras that insert() takes over: the string itself stays where it is.
        const BlockName name{item.key, block_tokens(prompt.tokens, block, page_tokens_), item.extras.get()};
        const uint64_t before = counters_.published_blocks;
        pkv_page page = list[i];
        GroupPages one = no_pages_anywhere;
        one[group] = page;
        parent = publish_node(parent, name, item.extras, block, one);
        publish_page(parent, group, page, false);
        if (counters_.published_blocks != before) apply_published_retention(parent, root, {});
        if (owner != nullptr) owner[i] = index_.page(parent, group);
    }
    return PKV_OK;
}

Publication Pool::publish_sequence(std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                                   BlockLists &lists, uint64_t end, bool share,
                                   std::span<const RetentionRange> retention, Frontier &frontier, bool &replaced) {
    // Twice at most: once from the frontier, and if the frontier's block was evicted meanwhile, once from the start.
    for (int attempt = 0; attempt < 2 && frontier.blocks < end; ++attempt) {
        BlocksToPublish blocks = name_blocks(tokens, media, frontier.key, frontier.blocks, end);
        prefetch_pages(lists, frontier.blocks, end);
        const Lock lock(mutex_);
        if (index_.root(frontier.root).dead) return Publication::over;
        if (frontier.blocks > 0 && index_.node(frontier.node).generation != frontier.generation) {
            frontier = Frontier{frontier.root, 0, index_.root(frontier.root).key, no_node, 0};
            continue;
        }
        reserve_timers(end - frontier.blocks);
        NodeId parent = frontier.blocks > 0 ? frontier.node : frontier.root;
        const uint64_t first = frontier.blocks;
        for (uint64_t block = first; block < end; ++block) {
            GroupPages own = no_pages_anywhere;
            for (uint32_t group = 0; group < num_groups_; ++group) own[group] = lists[group][block];
            BlockToPublish &item = blocks[block - first];
            const BlockName name{item.key, block_tokens(tokens, block, page_tokens_), item.extras.get()};
            const uint64_t before = counters_.published_blocks;
            parent = publish_node(parent, name, item.extras, block, own);
            if (parent == no_node) return index_.room() == 0 ? Publication::full : Publication::tried;
            for (uint32_t group = 0; group < num_groups_; ++group)
                if (own[group] != PKV_NO_PAGE) {
                    publish_page(parent, group, lists[group][block], share);
                    replaced = replaced || lists[group][block] != own[group];
                }
            if (counters_.published_blocks != before) apply_published_retention(parent, frontier.root, retention);
            frontier = Frontier{frontier.root, block + 1, item.key, parent, index_.node(parent).generation};
        }
    }
    return Publication::tried;
}

void Pool::prefetch_publication(std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                                const Frontier &frontier) const {
    if (media.empty())
        index_.prefetch_slot(keys_.next(frontier.key, block_tokens(tokens, frontier.blocks, page_tokens_), {}));
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

void Pool::clear(const prefix::Digest &digest, pkv_clear_result &result) {
    const Lock lock(mutex_);
    const NodeId root = index_.find_root(digest);
    if (root != no_node) clear_root(root, result);
    counters_.cleared_pages += result.freed;
}

void Pool::clear_all(pkv_clear_result &result) {
    const Lock lock(mutex_);
    std::vector<NodeId> roots; // those that there are now: one that takes a cleared one's place is empty
    for (NodeId slot = 0; slot < index_.root_slots(); ++slot)
        if (const NodeId root = slot | prefix::root_bit; index_.root(root).used && !index_.root(root).dead)
            roots.push_back(root);
    for (const NodeId root : roots) clear_root(root, result);
    counters_.cleared_pages += result.freed;
}

} // namespace pkv
