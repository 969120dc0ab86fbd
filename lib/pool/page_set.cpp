// SPDX-License-Identifier: Apache-2.0
#include "pool/page_set.h"

#include "core/status.h"

#include <bit>
#include <cinttypes>

namespace pkv {

static_assert(sizeof(PageMeta) == 32);
static_assert(PageList::count - PageList::passed <= 128, "filled_ has a bit for each evictable list");

pkv_status PageSet::create(uint64_t num_pages) {
    if (!meta_.reserve(num_pages) || !free_stack_.reserve(num_pages))
        return fail(PKV_ERR_NO_MEMORY, "state of %" PRIu64 " pages", num_pages);
    size_ = num_pages;
    return PKV_OK;
}

uint64_t PageSet::bytes() const { return fresh_ * (sizeof(PageMeta) + sizeof(pkv_page)); }

pkv_page PageSet::take_free() {
    pkv_page page;
    if (num_free_stack_ > 0) {
        page = free_stack_[--num_free_stack_];
        // The pages below will be wanted next, and their state may be far away in memory.
        if (num_free_stack_ >= 8) prefetch(free_stack_[num_free_stack_ - 8]);
    } else if (fresh_ < size_) {
        page = static_cast<pkv_page>(fresh_++);
    } else {
        return PKV_NO_PAGE;
    }
    meta(page).count = 1;
    return page;
}

void PageSet::retain(pkv_page page) {
    if (meta(page).count == 0) unlink(page);
    ++meta(page).count;
}

void PageSet::set_free(pkv_page page) { free_stack_[num_free_stack_++] = page; }

pkv_status PageSet::create_quarantine() {
    return quarantine_.reserve(size_) ? PKV_OK : fail(PKV_ERR_NO_MEMORY, "state of %" PRIu64 " pages", size_);
}

void PageSet::quarantine(pkv_page page) {
    quarantine_[(first_quarantined_ + quarantined_) % size_] = page;
    ++quarantined_;
}

void PageSet::release_quarantined() {
    set_free(quarantine_[first_quarantined_]);
    first_quarantined_ = (first_quarantined_ + 1) % size_;
    --quarantined_;
}

pkv_page PageSet::take_quarantined() {
    if (quarantined_ == 0) return PKV_NO_PAGE;
    release_quarantined();
    return take_free();
}

pkv_page PageSet::victim() const {
    for (uint32_t word = 0; word < 2; ++word)
        for (uint64_t filled = filled_[word]; filled != 0; filled &= filled - 1) {
            const pkv_page page =
                oldest(PageList::passed + word * 64 + static_cast<uint32_t>(std::countr_zero(filled)));
            if (page != borrowed_) return page;
            if (const pkv_page next = newer(page); next != PKV_NO_PAGE) return next;
        }
    return PKV_NO_PAGE;
}

void PageSet::count_in(uint32_t list) {
    ++cached_;
    if (++lists_[list].length == 1 && list >= PageList::passed)
        filled_[(list - PageList::passed) / 64] |= uint64_t{1} << (list - PageList::passed) % 64;
}

/// Links a page in before `newer`, a stored neighbour; 0 = at the new end.
void PageSet::push_before(pkv_page page, uint32_t to, uint32_t newer) {
    List &list = lists_[to];
    PageMeta &item = meta(page);
    item.list = to;
    item.newer = newer;
    item.older = newer != 0 ? meta(id(newer)).older : list.newest;
    if (item.older != 0)
        meta(id(item.older)).newer = stored(page);
    else
        list.oldest = stored(page);
    if (newer != 0)
        meta(id(newer)).older = stored(page);
    else
        list.newest = stored(page);
    count_in(to);
    if (wanted_ != 0 && dirty(page))
        link_store(page, PageImages::dirty);
    else if (tracked_ && images(page) != 0)
        link_store(page, PageImages::used);
}

void PageSet::unlink(pkv_page page) {
    PageMeta &item = meta(page);
    if ((item.images & (PageImages::dirty | PageImages::used)) != 0) unlink_store(page);
    const uint32_t from = item.list;
    List &list = lists_[from];
    if (item.older != 0)
        meta(id(item.older)).newer = item.newer;
    else
        list.oldest = item.newer;
    if (item.newer != 0)
        meta(id(item.newer)).older = item.older;
    else
        list.newest = item.older;
    item.list = PageList::none;
    --cached_;
    if (--list.length == 0 && from >= PageList::passed)
        filled_[(from - PageList::passed) / 64] &= ~(uint64_t{1} << (from - PageList::passed) % 64);
}

// ---- images in tiers -----------------------------------------------------------------------------------------------

namespace {

constexpr uint32_t waiting_flags = PageImages::urgent | PageImages::dirty | PageImages::used;

uint32_t store_list(uint32_t images) {
    return (images & PageImages::urgent) != 0 ? 0 : (images & PageImages::dirty) != 0 ? 1 : 2;
}

} // namespace

/// Puts a page at the end of one of the lists, unless it waits already or is being stored.
void PageSet::link_store(pkv_page page, uint32_t flag) {
    constexpr uint32_t busy = waiting_flags | PageImages::storing;
    PageMeta &item = meta(page);
    if ((item.images & busy) != 0) return;
    List &list = stores_[store_list(flag)];
    item.images |= flag;
    item.next_store = 0;
    item.prev_store = list.newest;
    if (list.newest != 0)
        meta(id(list.newest)).next_store = stored(page);
    else
        list.oldest = stored(page);
    list.newest = stored(page);
    ++list.length;
}

void PageSet::unlink_store(pkv_page page) {
    PageMeta &item = meta(page);
    if ((item.images & waiting_flags) == 0) return;
    List &list = stores_[store_list(item.images)];
    (item.prev_store != 0 ? meta(id(item.prev_store)).next_store : list.oldest) = item.next_store;
    (item.next_store != 0 ? meta(id(item.next_store)).prev_store : list.newest) = item.prev_store;
    item.images &= ~waiting_flags;
    --list.length;
}

void PageSet::add_images(pkv_page page, uint32_t tiers) {
    meta(page).images |= tiers;
    if (!dirty(page) && (meta(page).images & PageImages::used) == 0) unlink_store(page);
}

void PageSet::drop_image(pkv_page page, uint32_t tier) {
    meta(page).images &= ~(uint32_t{1} << tier);
    if ((meta(page).images & PageImages::used) != 0) unlink_store(page);
    if (wanted_ != 0 && dirty(page) && meta(page).list != PageList::none) link_store(page, PageImages::dirty);
}

void PageSet::want_store(pkv_page page) {
    if ((meta(page).images & (PageImages::dirty | PageImages::used)) != 0) unlink_store(page);
    link_store(page, PageImages::urgent);
}

pkv_page PageSet::take_store(bool dirty_too) {
    for (uint32_t i = 0; i < 2; ++i) {
        const List &list = stores_[i];
        if (list.oldest == 0 || (i == 1 && !dirty_too)) continue;
        const pkv_page page = id(list.oldest);
        unlink_store(page);
        meta(page).images |= PageImages::storing | (i == 0 ? PageImages::was_urgent : 0);
        return page;
    }
    return PKV_NO_PAGE;
}

pkv_page PageSet::take_used() {
    if (stores_[2].oldest == 0) return PKV_NO_PAGE;
    const pkv_page page = id(stores_[2].oldest);
    unlink_store(page);
    return page;
}

void PageSet::end_store(pkv_page page) { meta(page).images &= ~(PageImages::storing | PageImages::was_urgent); }

void PageSet::put_back(pkv_page page) {
    const bool urgent = (meta(page).images & PageImages::was_urgent) != 0;
    end_store(page);
    link_store(page, urgent ? PageImages::urgent : PageImages::dirty);
}

uint32_t PageSet::count_hit(pkv_page page) {
    if (meta(page).images < ~uint32_t{0} - PageImages::one_hit) meta(page).images += PageImages::one_hit;
    return meta(page).images / PageImages::one_hit;
}

void PageSet::move_newest(pkv_page page, uint32_t list) {
    unlink(page);
    push_before(page, list, 0);
}

void PageSet::move_oldest(pkv_page page, uint32_t list) {
    unlink(page);
    push_before(page, list, lists_[list].oldest);
}

void PageSet::park(pkv_page page, pkv_page next) {
    unlink(page);
    push_before(page, PageList::parked, next == PKV_NO_PAGE ? 0 : stored(next));
}

} // namespace pkv
