// SPDX-License-Identifier: Apache-2.0
// The pages of one layer group: counts, the free pages, and the order in which cached pages are evicted.
//
// A page is free (count 0, no node), held (count > 0) or cached (count 0, with a node of the prefix index). Cached pages are
// in one of two lists. `recent` is in order of release. `parked` holds pages that came up for eviction while blocks hang
// under theirs: those go first; a parked page returns to the old end of `recent` when its last child is gone, which is its
// right place, since everything that was older went before it. So every step is O(1), whatever the pool's size.
//
// Not thread-safe: the pool's mutex guards it.
#pragma once

#include "core/virtual_array.h"
#include "prefix/index.h"

#include <pagedkv/types.h>

namespace pkv {

struct alignas(32) PageMeta {
    uint32_t count;
    prefix::NodeId node; // + 1, so that zeroed memory means none
    uint32_t older;      // neighbours in a list, + 1
    uint32_t newer;
    uint32_t list; // PageList
    uint32_t unused[3];
};

enum class PageList : uint32_t { none = 0, recent = 1, parked = 2 };

class PageSet {
  public:
    pkv_status create(uint64_t num_pages);

    uint64_t size() const { return size_; }
    uint64_t free_count() const { return num_free_stack_ + (size_ - fresh_); }
    uint64_t cached_count() const { return lists_[1].length + lists_[2].length; }
    uint64_t held_count() const { return size_ - free_count() - cached_count(); }

    uint32_t count(pkv_page page) const { return meta(page).count; }
    prefix::NodeId node(pkv_page page) const {
        const prefix::NodeId stored = meta(page).node;
        return stored == 0 ? prefix::no_node : stored - 1;
    }
    bool published(pkv_page page) const { return meta(page).node != 0; }
    void set_node(pkv_page page, prefix::NodeId node) { meta(page).node = node == prefix::no_node ? 0 : node + 1; }
    void prefetch(pkv_page page) const { __builtin_prefetch(&meta_[static_cast<uint64_t>(page)], 1); }

    /// The neighbour in a list that was released later, or PKV_NO_PAGE.
    pkv_page newer(pkv_page page) const { return meta(page).newer == 0 ? PKV_NO_PAGE : id(meta(page).newer); }
    /// A free page with count 1, or PKV_NO_PAGE.
    pkv_page take_free();
    /// Adds a count; a cached page becomes held.
    void retain(pkv_page page);
    /// Takes a count of a held page; true when it was the last one. The page is in no list then: cache() or set_free() it.
    bool release(pkv_page page) { return --meta(page).count == 0; }
    /// Bare arithmetic on a count, for a check that is undone again.
    void drop_count(pkv_page page) { --meta(page).count; }
    void restore_count(pkv_page page) { ++meta(page).count; }
    void cache(pkv_page page) { push_newest(page, PageList::recent); }
    void set_free(pkv_page page);

    /// The next page for eviction, PKV_NO_PAGE when none is in `recent`.
    pkv_page oldest() const { return lists_[1].oldest == 0 ? PKV_NO_PAGE : id(lists_[1].oldest); }
    pkv_page oldest_parked() const { return lists_[2].oldest == 0 ? PKV_NO_PAGE : id(lists_[2].oldest); }
    void park(pkv_page page);
    void unpark(pkv_page page);
    bool parked(pkv_page page) const { return meta(page).list == static_cast<uint32_t>(PageList::parked); }
    /// Takes a cached page out of its list.
    void unlink(pkv_page page);

    uint64_t bytes() const; ///< memory in use

  private:
    struct List {
        uint32_t oldest = 0; // page + 1
        uint32_t newest = 0;
        uint64_t length = 0;
    };

    static pkv_page id(uint32_t stored) { return static_cast<pkv_page>(stored - 1); }
    static uint32_t stored(pkv_page page) { return static_cast<uint32_t>(page) + 1; }
    PageMeta &meta(pkv_page page) { return meta_[static_cast<uint64_t>(page)]; }
    const PageMeta &meta(pkv_page page) const { return meta_[static_cast<uint64_t>(page)]; }
    void push_newest(pkv_page page, PageList to);

    uint64_t size_ = 0;
    VirtualArray<PageMeta> meta_;
    VirtualArray<pkv_page> free_stack_; // pages freed, the last one on top
    uint64_t num_free_stack_ = 0;
    uint64_t fresh_ = 0; // pages from here on were never used; they come after the freed ones
    List lists_[3];
};

} // namespace pkv
