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

pkv_page PageSet::victim() const {
    for (uint32_t word = 0; word < 2; ++word)
        if (filled_[word] != 0)
            return oldest(PageList::passed + word * 64 + static_cast<uint32_t>(std::countr_zero(filled_[word])));
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
}

void PageSet::unlink(pkv_page page) {
    PageMeta &item = meta(page);
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
