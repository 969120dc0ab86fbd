// SPDX-License-Identifier: Apache-2.0
// Which cached page goes, and what goes with it.
//
// In a full-attention group a block without its page ends every match, so it goes as a node, with its pages in all groups;
// leaves before parents. In a window group a page goes by itself: blocks before and behind may well match without it.
#include "core/status.h"
#include "pool/cleaner.h"
#include "pool/pool.h"

#include <cinttypes>
#include <thread>

namespace pkv {

using prefix::no_node;
using prefix::NodeId;

uint64_t Pool::evict(uint32_t group, uint64_t num_pages) {
    const Lock lock(mutex_);
    expire();
    PageSet &set = pages(group);
    const auto free_pages = [&set] { return set.free_count() + set.quarantined_count(); };
    const uint64_t before = free_pages();
    while (free_pages() - before < num_pages && set.cached_count() > set.pinned_count()) {
        const pkv_page page = evict_one(group);
        if (page == PKV_NO_PAGE) break;
        make_free(group, page);
    }
    return free_pages() - before;
}

/// Waits while so many pages may not be had without the one that the cleaner reads, which takes as long as a copy of a page.
/// True: the lock was given up meanwhile.
bool Pool::wait_for_borrowed(uint32_t group, uint64_t wanted) {
    const PageSet &set = pages(group);
    if (!set.borrows_room() || wanted < set.room()) return false;
    ++borrow_waiters_; // the cleaner takes no other page before they had their turn
    while (set.borrows_room() && wanted >= set.room()) {
        mutex_.unlock();
        std::this_thread::yield();
        mutex_.lock();
    }
    --borrow_waiters_;
    return true;
}

/// Whether so many pages can be had without the loss of one that is still to be stored.
pkv_status Pool::check_stored(uint32_t group, uint64_t wanted) {
    const PageSet &set = pages(group);
    if (!keep_unstored_ || wanted <= set.free_count() + set.quarantined_count() || wanted > set.room()) return PKV_OK;
    const uint64_t waiting = set.dirty_count() + set.urgent_count() + cleaner_->open_stores();
    if (waiting == 0) return PKV_OK;
    cleaner_->wake();
    return fail(PKV_ERR_AGAIN,
                "%" PRIu64 " pages wanted in group %u, %" PRIu64 " are free, and %" PRIu64
                " cached ones wait to be stored first",
                wanted, group, set.free_count() + set.quarantined_count(), waiting);
}

uint32_t Pool::list_for(const prefix::Node &node) const {
    return node.pins > 0 ? PageList::pinned : PageList::priority + node.priority;
}

void Pool::cache_page(uint32_t group, pkv_page page) {
    pages(group).cache(page, list_for(index_.node(pages(group).node(page))));
    if (tiers_ != nullptr) cleaner_->wake();
}

void Pool::trim_cached(uint32_t group) {
    PageSet &set = pages(group);
    while (set.cached_count() > geometry(group).max_cached_pages && set.cached_count() > set.pinned_count()) {
        const pkv_page page = evict_one(group);
        if (page == PKV_NO_PAGE) return; // being read: end_read() looks again
        make_free(group, page);
    }
}

/// Takes one cached page, which there must be besides pinned ones, out of the index and out of all lists.
pkv_page Pool::evict_one(uint32_t group) {
    PageSet &set = pages(group);
    ++counters_.evicted_pages;
    for (pkv_page page = set.victim(); page != PKV_NO_PAGE; page = set.victim()) {
        const NodeId node = set.node(page);
        if (groups_[group].full() && index_.children(node) != 0) {
            set.park(page, parked_above(group, node)); // not a leaf: its descendants go first
            continue;
        }
        prefetch_victims(group, page);
        note_dropped(group, page);
        set.unlink(page);
        detach_page(node, group);
        pkv_clear_result dropped{};
        if (groups_[group].full())
            drop_node(node, dropped);
        else
            prune(node);
        counters_.evicted_pages += dropped.freed;
        return page;
    }
    // Only pages whose descendants are held, or cached in other groups, are left: the descendants lose their names.
    const pkv_page page = set.oldest_parked();
    if (page == PKV_NO_PAGE) {
        --counters_.evicted_pages;
        return page;
    }
    const NodeId node = set.node(page);
    pkv_clear_result dropped{};
    drop_below(node, dropped);
    note_dropped(group, page);
    set.unlink(page);
    detach_page(node, group);
    drop_node(node, dropped);
    counters_.evicted_pages += dropped.freed;
    return page;
}

/// The page of the nearest ancestor that is parked: descendants stand before it, so that they are evicted before it.
pkv_page Pool::parked_above(uint32_t group, NodeId node) {
    for (NodeId at = index_.node(node).parent; !prefix::is_root(at); at = index_.node(at).parent) {
        const pkv_page page = index_.page(at, group);
        if (page != PKV_NO_PAGE && pages(group).list_of(page) == PageList::parked) return page;
    }
    return PKV_NO_PAGE;
}

/// Evictions come in runs: what the next victims need should be on its way from memory while this one goes. Each step looks
/// at what an earlier one has fetched: a page's state four victims ahead, then its node, then its slot in the hash table.
void Pool::prefetch_victims(uint32_t group, pkv_page page) {
    const PageSet &set = pages(group);
    pkv_page ahead[4];
    for (pkv_page &next : ahead) {
        page = set.newer(page);
        if (page == PKV_NO_PAGE) return;
        next = page;
    }
    set.prefetch(ahead[3]);
    prefetch(&index_.node(set.node(ahead[2])));
    index_.prefetch_slot(index_.node(set.node(ahead[1])).key);
}

/// A cached page goes: for good, if no tier has its image.
void Pool::note_dropped(uint32_t group, pkv_page page) {
    if (tiers_ != nullptr && pages(group).images(page) == 0 && !pages(group).storing(page)) ++counters_.dropped_images;
}

void Pool::detach_page(NodeId node, uint32_t group) {
    pages(group).set_node(index_.page(node, group), no_node);
    index_.set_page(node, group, PKV_NO_PAGE);
    record(PKV_EVENT_REMOVED, group, node);
}

void Pool::drop_page(NodeId node, uint32_t group, pkv_clear_result &result) {
    const pkv_page page = index_.page(node, group);
    if (page == PKV_NO_PAGE) return;
    const bool cached = pages(group).count(page) == 0;
    if (cached && !clearing_) note_dropped(group, page);
    if (cached) pages(group).unlink(page);
    detach_page(node, group);
    if (cached) make_free(group, page);
    ++(cached ? result.freed : result.held);
}

void Pool::drop_node(NodeId node, pkv_clear_result &result) {
    for (uint32_t group = 0; group < num_groups_; ++group) drop_page(node, group, result);
    prune(node);
}

/// Takes one node without pages or children out of the index.
void Pool::remove_node(NodeId node) {
    set_pinned(node, false);
    index_.remove(node);
    ++counters_.unpublished_blocks;
}

void Pool::prune(NodeId node) {
    while (!prefix::is_root(node)) {
        if (index_.children(node) != 0) return;
        if (index_.has_pages(node)) {
            // Its last child is gone: parked pages come up for eviction again, before all that is younger.
            for (uint32_t group = 0; group < num_groups_; ++group) {
                const pkv_page page = index_.page(node, group);
                if (page != PKV_NO_PAGE && pages(group).list_of(page) == PageList::parked)
                    pages(group).move_oldest(page, list_for(index_.node(node)));
            }
            return;
        }
        const NodeId parent = index_.node(node).parent;
        remove_node(node);
        node = parent;
    }
    index_.drop_root_if_unused(node);
}

/// Takes out all blocks below `top`, which stays, even when nothing is left of it.
void Pool::drop_below(NodeId top, pkv_clear_result &result) {
    // Depth first, leaf by leaf: takes no memory, and each block is visited twice.
    NodeId at = top;
    for (;;) {
        while (index_.children(at) != 0) at = index_.first_child(at);
        if (at == top) return;
        const NodeId parent = index_.node(at).parent;
        for (uint32_t group = 0; group < num_groups_; ++group) drop_page(at, group, result);
        remove_node(at);
        at = parent;
    }
}

} // namespace pkv
