// SPDX-License-Identifier: Apache-2.0
// The pages of one layer group: counts, the free pages, and the order in which cached pages are evicted.
//
// A page is free (count 0, no node), held (count > 0) or cached (count 0, with a node of the prefix index). A cached page is
// in one list:
//
//   passed    blocks that a window has passed: evicted first
//   one for each priority, 0 to 100, in order of release: evicted from the lowest priority's old end
//   parked    pages that came up for eviction while blocks hang under theirs: those go first, and here, too, descendants
//             stand before ancestors. A parked page returns to the old end of its priority's list when its last child is
//             gone, which is its right place: all that was older went before it
//   pinned    never evicted
//
// With tiers below, a published page also knows which of them have its image, and may wait in one of two lists for its
// image to be stored: urgent ones, cached or held, in order of request; and dirty ones, cached pages whose image is missing
// where it is wanted, in order of release. Cached pages that have their images wait in a third one, also in order of release,
// until their tiers have been told that they were in use.
//
// A page of a device pool that becomes free while work under a sync may still use it waits in quarantine, and is given out, the
// oldest first, when no other is free.
//
// So every step is O(1), whatever the pool's size. Not thread-safe: the pool's mutex guards it.
#pragma once

#include "core/prefetch.h"
#include "core/virtual_array.h"
#include "prefix/index.h"

#include <pagedkv/types.h>

namespace pkv {

/// Lists of cached pages; `priority` + p is the list of priority p.
struct PageList {
    static constexpr uint32_t none = 0;
    static constexpr uint32_t parked = 1;
    static constexpr uint32_t pinned = 2;
    static constexpr uint32_t passed = 3;
    static constexpr uint32_t priority = 4;
    static constexpr uint32_t count = priority + 101;
};

struct alignas(32) PageMeta {
    uint32_t count;
    prefix::NodeId node; // + 1, so that zeroed memory means none
    uint32_t older;      // neighbours in a list, + 1
    uint32_t newer;
    uint32_t list;       // PageList
    uint32_t images;     // PageImages
    uint32_t next_store; // neighbours among pages that wait to be stored, + 1
    uint32_t prev_store;
};

/// What PageMeta::images says.
struct PageImages {
    static constexpr uint32_t tiers = 0xFF;         // a bit for each tier that has the image
    static constexpr uint32_t urgent = 1 << 8;      // in the list of urgent stores
    static constexpr uint32_t dirty = 1 << 9;       // in the list of dirty pages
    static constexpr uint32_t storing = 1 << 10;    // being stored
    static constexpr uint32_t used = 1 << 11;       // in the list of pages whose tiers are to be told
    static constexpr uint32_t was_urgent = 1 << 12; // being stored, and in the list of urgent stores before
    static constexpr uint32_t one_hit = 1 << 16;    // the upper half counts hits
};

class PageSet {
  public:
    pkv_status create(uint64_t num_pages);

    uint64_t size() const { return size_; }
    uint64_t free_count() const { return num_free_stack_ + (size_ - fresh_); }
    uint64_t cached_count() const { return cached_; }
    uint64_t quarantined_count() const { return quarantined_; }
    uint64_t pinned_count() const { return lists_[PageList::pinned].length; }
    /// Pages that can be had: free, or evictable.
    uint64_t room() const { return free_count() + quarantined_ + cached_ - pinned_count(); }
    uint64_t held_count() const { return size_ - free_count() - quarantined_ - cached_; }
    bool in_range(pkv_page page) const { return page >= 0 && static_cast<uint64_t>(page) < size_; }

    uint32_t count(pkv_page page) const { return meta(page).count; }
    prefix::NodeId node(pkv_page page) const {
        const prefix::NodeId stored = meta(page).node;
        return stored == 0 ? prefix::no_node : stored - 1;
    }
    bool published(pkv_page page) const { return meta(page).node != 0; }
    /// Gives a page its name, or takes it: nothing is known of images then.
    void set_node(pkv_page page, prefix::NodeId node) {
        forget_images(page);
        meta(page).node = node == prefix::no_node ? 0 : node + 1;
    }
    void prefetch(pkv_page page) const { pkv::prefetch<true>(&meta_[static_cast<uint64_t>(page)]); }

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
    void set_free(pkv_page page);

    pkv_status create_quarantine();
    void quarantine(pkv_page page); ///< instead of set_free()
    pkv_page oldest_quarantined() const { return quarantined_ == 0 ? PKV_NO_PAGE : quarantine_[first_quarantined_]; }
    void release_quarantined();  ///< the oldest one is free
    pkv_page take_quarantined(); ///< the oldest one, with count 1, or PKV_NO_PAGE

    /// Puts a page without a count at the new end of a list.
    void cache(pkv_page page, uint32_t list) { push_before(page, list, 0); }
    /// Moves a cached page to the new end, or to the old end, of another list.
    void move_newest(pkv_page page, uint32_t list);
    void move_oldest(pkv_page page, uint32_t list);
    /// Moves a cached page to the parked ones: right before `next`, or behind all if that is PKV_NO_PAGE.
    void park(pkv_page page, pkv_page next);
    /// Takes a cached page out of its list.
    void unlink(pkv_page page);
    uint32_t list_of(pkv_page page) const { return meta(page).list; }

    /// The next page for eviction, parked and pinned ones aside; PKV_NO_PAGE when there is none.
    pkv_page victim() const;
    pkv_page oldest_parked() const {
        const pkv_page page = oldest(PageList::parked);
        return page != PKV_NO_PAGE && page == borrowed_ ? newer(page) : page;
    }

    uint64_t bytes() const; ///< memory in use

    // ---- images in tiers
    /// Keeps track of images from now on; dirty pages are those whose image one of these tiers (a bit mask) lacks.
    void want_images(uint32_t tiers) {
        tracked_ = true;
        wanted_ = tiers;
    }
    uint32_t wanted_images() const { return wanted_; }
    uint32_t images(pkv_page page) const { return meta(page).images & PageImages::tiers; }
    bool dirty(pkv_page page) const { return (meta(page).images & wanted_) != wanted_; }
    uint64_t dirty_count() const { return stores_[1].length; } ///< cached pages that wait
    uint64_t urgent_count() const { return stores_[0].length; }
    void add_images(pkv_page page, uint32_t tiers);
    void drop_image(pkv_page page, uint32_t tier);
    void want_store(pkv_page page); ///< puts it among the urgent ones
    /// Takes the next page to store out of its list and marks it as being stored; PKV_NO_PAGE when none waits.
    pkv_page take_store(bool dirty_too);
    void end_store(pkv_page page); ///< its image may be wanted again
    void put_back(pkv_page page);  ///< to the end of the list that take_store() took it from
    bool storing(pkv_page page) const { return (meta(page).images & PageImages::storing) != 0; }
    /// Takes the next page out of the list of those whose tiers are to be told; PKV_NO_PAGE when there is none.
    pkv_page take_used();
    uint64_t used_count() const { return stores_[2].length; }
    uint32_t count_hit(pkv_page page); ///< returns the page's hits
    uint32_t hits(pkv_page page) const { return meta(page).images / PageImages::one_hit; }

    /// A page whose bytes are being read without a count on it: not evicted meanwhile, see victim().
    void set_borrowed(pkv_page page) { borrowed_ = page; }
    pkv_page borrowed() const { return borrowed_; }
    /// Whether a borrowed page is part of room(), but cannot be had now.
    bool borrows_room() const {
        return borrowed_ != PKV_NO_PAGE && meta(borrowed_).count == 0 && list_of(borrowed_) != PageList::pinned &&
               list_of(borrowed_) != PageList::none;
    }

  private:
    void forget_images(pkv_page page) {
        if (!tracked_) return;
        unlink_store(page);
        meta(page).images = 0;
    }
    void link_store(pkv_page page, uint32_t flag);
    void unlink_store(pkv_page page);
    struct List {
        uint32_t oldest = 0; // page + 1
        uint32_t newest = 0;
        uint64_t length = 0;
    };

    static pkv_page id(uint32_t stored) { return static_cast<pkv_page>(stored - 1); }
    static uint32_t stored(pkv_page page) { return static_cast<uint32_t>(page) + 1; }
    PageMeta &meta(pkv_page page) { return meta_[static_cast<uint64_t>(page)]; }
    const PageMeta &meta(pkv_page page) const { return meta_[static_cast<uint64_t>(page)]; }
    pkv_page oldest(uint32_t list) const { return lists_[list].oldest == 0 ? PKV_NO_PAGE : id(lists_[list].oldest); }
    void push_before(pkv_page page, uint32_t list, uint32_t newer);
    void count_in(uint32_t list);

    uint64_t size_ = 0;
    VirtualArray<PageMeta> meta_;
    VirtualArray<pkv_page> free_stack_; // pages freed, the last one on top
    uint64_t num_free_stack_ = 0;
    uint64_t fresh_ = 0;                // pages from here on were never used; they come after the freed ones
    VirtualArray<pkv_page> quarantine_; // a ring
    uint64_t first_quarantined_ = 0;
    uint64_t quarantined_ = 0;
    uint64_t cached_ = 0;
    List lists_[PageList::count];
    bool tracked_ = false; // there are tiers
    uint32_t wanted_ = 0;  // tiers that should have every cached page
    List stores_[3];       // urgent, dirty, used
    pkv_page borrowed_ = PKV_NO_PAGE;
    uint64_t filled_[2] = {}; // a bit for each list from `passed` on: not empty
};

} // namespace pkv
