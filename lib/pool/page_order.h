// SPDX-License-Identifier: Apache-2.0
// Of each page of a device pool, the work that others have to come after. Not thread-safe: the pool's mutex guards it. A host
// pool has none of this.
#pragma once

#include "core/status.h"
#include "core/virtual_array.h"
#include "device/fences.h"

#include <pagedkv/types.h>

namespace pkv {

class PageOrder {
  public:
    pkv_status create(uint64_t num_pages) {
        return pages_.reserve(num_pages) ? PKV_OK : fail(PKV_ERR_NO_MEMORY, "the order of work on pages");
    }
    bool exists() const { return pages_.data() != nullptr; }

    /// What the page holds was written by this work: who reads it comes after.
    void wrote(pkv_page page, const Fences &work) { at(page).written |= work; }
    /// This work may still use what the page holds: who overwrites it comes after.
    void used(pkv_page page, const Fences &work) { at(page).in_use |= work; }

    const Fences &before_reading(pkv_page page) const { return at(page).written; }
    Fences before_writing(pkv_page page) const {
        Fences both = at(page).written;
        return both |= at(page).in_use;
    }
    /// All of it has passed.
    void forget(pkv_page page) { at(page) = {}; }

  private:
    struct Page {
        Fences written;
        Fences in_use;
    };
    Page &at(pkv_page page) { return pages_[static_cast<uint64_t>(page)]; }
    const Page &at(pkv_page page) const { return pages_[static_cast<uint64_t>(page)]; }

    VirtualArray<Page> pages_;
};

} // namespace pkv
