// SPDX-License-Identifier: Apache-2.0
// How blocks become findable: named, inserted into the index, and given their pages.
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

/// A block on its way into the index; what may throw was done before the lock.
struct Pool::BlockToPublish {
    Key key;
    Extras extras;
    prefix::Digest digest; // in pools with tiers
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

} // namespace

Pool::BlocksToPublish Pool::name_blocks(std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                                        const Frontier &from, uint64_t end) const {
    BlocksToPublish blocks(end - from.blocks);
    Key key = from.key;
    prefix::Digest digest = from.digest;
    const std::string none;
    for (uint64_t block = from.blocks; block < end; ++block) {
        Extras extras;
        if (!media.empty()) {
            std::string parts = prefix::block_extras(media, block * page_tokens_, page_tokens_);
            if (!parts.empty()) extras = std::make_unique<std::string>(std::move(parts));
        }
        key = keys_.next(key, block_tokens(tokens, block, page_tokens_), extras != nullptr ? *extras : none);
        index_.prefetch_slot(key);
        if (tiers_ != nullptr)
            digest = prefix::prefix_next(digest, block_tokens(tokens, block, page_tokens_),
                                         extras != nullptr ? *extras : none);
        blocks.push_back({key, std::move(extras), digest});
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
NodeId Pool::publish_node(NodeId parent, const BlockName &name, Extras &extras, uint64_t block,
                          const GroupPages &list) {
    const NodeId id = index_.find(parent, name, counters_.key_collisions);
    for (uint32_t group = 0; group < num_groups_; ++group)
        if (list[group] != PKV_NO_PAGE && pages(group).published(list[group]) && pages(group).node(list[group]) != id)
            return no_node;
    if (id != no_node || index_.room() == 0) return id;
    ++counters_.published_blocks;
    return index_.insert(parent, name, std::move(extras), static_cast<uint32_t>(block));
}

/// Publishes a held page as a block's page of a group. A block whose page somebody holds already keeps it; with `share` that
/// one is taken in place of `page`, which becomes free. On a device `waits` is work that may still write or read `page`: whoever
/// finds it comes after that; and it gets what the other page comes after.
void Pool::publish_page(NodeId node, uint32_t group, pkv_page &page, bool share, Fences &waits) {
    PageSet &set = pages(group);
    const pkv_page owner = index_.page(node, group);
    if (owner == page) return;
    if (owner != PKV_NO_PAGE) {
        ++counters_.duplicate_blocks;
        if (share && set.count(page) == 1 && !set.published(page)) {
            ++counters_.shared_duplicates;
            set.retain(owner);
            release_one(group, page, waits);
            if (device_ != nullptr) waits |= groups_[group].order.before_reading(owner);
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
    if (!waits.none()) groups_[group].order.wrote(page, waits);
    if (through_ != 0) {
        set.want_store(page);
        cleaner_->wake();
    }
    record(PKV_EVENT_STORED, group, node);
}

/// Everything that can be wrong with Pool::publish(); finds the node that the first block hangs under.
pkv_status Pool::check_publish(uint32_t group, const Prompt &prompt, uint64_t first_block,
                               std::span<const pkv_page> list, BlocksToPublish &blocks, NodeId &parent) {
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
                return fail(PKV_ERR_NOT_FOUND, "block %" PRIu64 ", before first_block %" PRIu64 ", is not published",
                            block, first_block);
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
    Frontier start;
    start.key = keys_.root(prompt.ns);
    if (tiers_ != nullptr) start.digest = prefix::prefix_root(prompt.ns, page_tokens_);
    BlocksToPublish blocks = name_blocks(prompt.tokens, prompt.media, start, end);

    const Lock lock(mutex_);
    NodeId parent = no_node;
    PKV_TRY(check_publish(group, prompt, first_block, list, blocks, parent));
    if (index_.room() < list.size())
        return fail(PKV_ERR_NO_SPACE, "the prefix index has room for %" PRIu64 " more blocks, not for %zu",
                    index_.room(), list.size());
    reserve_timers(list.size());
    const NodeId root = find_or_make_root(prompt.ns);
    Fences none;
    if (parent == no_node) parent = root;
    for (uint64_t i = 0; i < list.size(); ++i) {
        const uint64_t block = first_block + i;
        BlockToPublish &item = blocks[block];
        // The name borrows the extras that insert() takes over: the string itself stays where it is.
        const BlockName name{item.key, block_tokens(prompt.tokens, block, page_tokens_), item.extras.get(),
                             &item.digest};
        const uint64_t before = counters_.published_blocks;
        pkv_page page = list[i];
        GroupPages one = no_pages_anywhere;
        one[group] = page;
        parent = publish_node(parent, name, item.extras, block, one);
        publish_page(parent, group, page, false, none);
        if (counters_.published_blocks != before) apply_published_retention(parent, root, {});
        if (owner != nullptr) owner[i] = index_.page(parent, group);
    }
    return PKV_OK;
}

Publication Pool::publish_sequence(std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                                   BlockLists &lists, uint64_t end, bool share,
                                   std::span<const RetentionRange> retention, Frontier &frontier, bool &replaced,
                                   Fences &waits) {
    // Twice at most: once from the frontier, and if the frontier's block was evicted meanwhile, once from the start.
    for (int attempt = 0; attempt < 2 && frontier.blocks < end; ++attempt) {
        BlocksToPublish blocks = name_blocks(tokens, media, frontier, end);
        prefetch_pages(lists, frontier.blocks, end);
        const Lock lock(mutex_);
        if (index_.root(frontier.root).dead) return Publication::over;
        if (frontier.blocks > 0 && index_.node(frontier.node).generation != frontier.generation) {
            frontier = root_frontier(frontier.root);
            continue;
        }
        reserve_timers(end - frontier.blocks);
        NodeId parent = frontier.blocks > 0 ? frontier.node : frontier.root;
        const uint64_t first = frontier.blocks;
        for (uint64_t block = first; block < end; ++block) {
            GroupPages own = no_pages_anywhere;
            for (uint32_t group = 0; group < num_groups_; ++group) own[group] = lists[group][block];
            BlockToPublish &item = blocks[block - first];
            const BlockName name{item.key, block_tokens(tokens, block, page_tokens_), item.extras.get(), &item.digest};
            const uint64_t before = counters_.published_blocks;
            parent = publish_node(parent, name, item.extras, block, own);
            if (parent == no_node) return index_.room() == 0 ? Publication::full : Publication::tried;
            for (uint32_t group = 0; group < num_groups_; ++group)
                if (own[group] != PKV_NO_PAGE) {
                    publish_page(parent, group, lists[group][block], share, waits);
                    replaced = replaced || lists[group][block] != own[group];
                }
            if (counters_.published_blocks != before) apply_published_retention(parent, frontier.root, retention);
            advance(frontier, item.key, parent, block + 1);
        }
    }
    return Publication::tried;
}

void Pool::prefetch_publication(std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                                const Frontier &frontier) const {
    if (media.empty())
        index_.prefetch_slot(keys_.next(frontier.key, block_tokens(tokens, frontier.blocks, page_tokens_), {}));
}

} // namespace pkv
