// SPDX-License-Identifier: Apache-2.0
#include "pool/page_set.h"

#include "core/status.h"

#include <cinttypes>

namespace pkv {

static_assert(sizeof(PageMeta) == 32);

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

void PageSet::push_newest(pkv_page page, PageList to) {
    List &list = lists_[static_cast<uint32_t>(to)];
    PageMeta &item = meta(page);
    item.list = static_cast<uint32_t>(to);
    item.older = list.newest;
    item.newer = 0;
    if (list.newest != 0)
        meta(id(list.newest)).newer = stored(page);
    else
        list.oldest = stored(page);
    list.newest = stored(page);
    ++list.length;
}

void PageSet::unlink(pkv_page page) {
    PageMeta &item = meta(page);
    List &list = lists_[item.list];
    if (item.older != 0)
        meta(id(item.older)).newer = item.newer;
    else
        list.oldest = item.newer;
    if (item.newer != 0)
        meta(id(item.newer)).older = item.older;
    else
        list.newest = item.older;
    item.list = static_cast<uint32_t>(PageList::none);
    --list.length;
}

void PageSet::park(pkv_page page) {
    unlink(page);
    push_newest(page, PageList::parked);
}

void PageSet::unpark(pkv_page page) {
    unlink(page);
    List &list = lists_[1];
    PageMeta &item = meta(page);
    item.list = static_cast<uint32_t>(PageList::recent);
    item.newer = list.oldest;
    item.older = 0;
    if (list.oldest != 0)
        meta(id(list.oldest)).older = stored(page);
    else
        list.newest = stored(page);
    list.oldest = stored(page);
    ++list.length;
}

} // namespace pkv
