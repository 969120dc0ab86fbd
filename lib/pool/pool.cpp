// SPDX-License-Identifier: Apache-2.0
// Pages of a pool: creation, alloc, retain, release, eviction, statistics.
#include "pool/pool.h"

#include "core/status.h"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <sodium.h>
#include <sys/random.h>

namespace pkv {
namespace {

constexpr uint32_t max_copy_threads = 256;

pkv_status random_seed(uint64_t &seed) {
    while (seed == 0) {
        const ssize_t got = getrandom(&seed, sizeof seed, 0);
        if (got != sizeof seed && errno != EINTR)
            return fail(PKV_ERR_IO, "no random seed from the operating system: %s", std::strerror(errno));
    }
    return PKV_OK;
}

} // namespace

pkv_status Pool::create(const pkv_pool_options &options, std::span<const pkv_group_options> groups,
                        std::shared_ptr<Pool> &pool) {
    if (groups.size() > 1)
        return fail(PKV_ERR_UNSUPPORTED, "num_groups is %zu: this version supports one layer group", groups.size());
    if (options.huge_pages < PKV_HUGE_PAGES_AUTO || options.huge_pages > PKV_HUGE_PAGES_REQUIRE)
        return fail(PKV_ERR_INVALID, "huge_pages is %d, none of PKV_HUGE_PAGES_*", options.huge_pages);
    if ((options.debug & ~(PKV_DEBUG_EQUAL_KEYS | PKV_DEBUG_POISON)) != 0 || options.reserved != 0)
        return fail(PKV_ERR_UNSUPPORTED, "debug is 0x%x, with unknown bits, or reserved is not 0", options.debug);
    if (options.copy_threads > max_copy_threads)
        return fail(PKV_ERR_LIMIT, "copy_threads is %u, more than %u", options.copy_threads, max_copy_threads);
    if (sodium_init() < 0) return fail(PKV_ERR_INTERNAL, "libsodium does not start");

    auto fresh = std::make_shared<Pool>();
    fresh->page_tokens_ = options.page_tokens;
    PKV_TRY(make_geometry(groups[0], 0, options.page_tokens, fresh->geometry_));
    PKV_TRY(fresh->memory_.create(fresh->geometry_, options.huge_pages));
    PKV_TRY(fresh->pages_.create(fresh->geometry_.num_pages));
    PKV_TRY(fresh->index_.create(fresh->geometry_.num_pages, options.page_tokens));
    if (options.copy_threads > 0) fresh->workers_ = std::make_unique<Workers>(options.copy_threads);

    uint64_t seed = options.seed;
    fresh->key_seed_ = seed != 0 ? PKV_KEY_SEED_FIXED : PKV_KEY_SEED_RANDOM;
    PKV_TRY(random_seed(seed));
    fresh->keys_.set_seed(seed, (options.debug & PKV_DEBUG_EQUAL_KEYS) != 0);
    fresh->poison_ = (options.debug & PKV_DEBUG_POISON) != 0;
    if (fresh->poison_)
        for (uint64_t page = 0; page < fresh->geometry_.num_pages; ++page)
            fresh->memory_.fill_page(static_cast<pkv_page>(page), 0xFF);
    pool = std::move(fresh);
    return PKV_OK;
}

pkv_status Pool::check_group(uint32_t group) const {
    if (group >= num_groups()) return fail(PKV_ERR_INVALID, "group %u: the pool has %u", group, num_groups());
    return PKV_OK;
}

pkv_status Pool::check_layer(uint32_t group, uint32_t layer) const {
    PKV_TRY(check_group(group));
    if (layer >= geometry_.num_layers)
        return fail(PKV_ERR_INVALID, "layer %u: group %u has %u", layer, group, geometry_.num_layers);
    return PKV_OK;
}

pkv_status Pool::no_such_page(pkv_page page) const {
    return fail(PKV_ERR_INVALID, "page %d is not in 0 .. %" PRIu64, page, pages_.size() - 1);
}

// ---- alloc, retain, release ----------------------------------------------------------------------------------------

pkv_status Pool::alloc(uint64_t num_pages, pkv_page *pages) {
    const Lock lock(mutex_);
    const uint64_t free = pages_.free_count();
    const uint64_t cached = pages_.cached_count();
    if (num_pages > free + cached) {
        ++counters_.failed_allocations;
        return fail(PKV_ERR_NO_PAGES, "%" PRIu64 " pages wanted, %" PRIu64 " are free and %" PRIu64 " cached of %" PRIu64,
                    num_pages, free, cached, pages_.size());
    }
    for (uint64_t i = 0; i < num_pages; ++i) pages[i] = take_page();
    counters_.allocated_pages += num_pages;
    return PKV_OK;
}

pkv_page Pool::take_page() {
    pkv_page page = pages_.take_free();
    if (page != PKV_NO_PAGE) return page;
    make_free(evict_one()); // the caller made sure that there is one
    return pages_.take_free();
}

pkv_status Pool::retain(std::span<const pkv_page> pages) {
    const Lock lock(mutex_);
    for (const pkv_page page : pages) {
        if (!in_range(page)) return no_such_page(page);
        const uint32_t count = pages_.count(page);
        if (count == 0) return fail(PKV_ERR_STATE, "page %d is held by nobody", page);
        if (count > UINT32_MAX - pages.size()) return fail(PKV_ERR_LIMIT, "page %d has a count of %u", page, count);
    }
    for (const pkv_page page : pages) pages_.retain(page);
    return PKV_OK;
}

pkv_status Pool::release(std::span<const pkv_page> pages, pkv_status *statuses) {
    const Lock lock(mutex_);
    pkv_status first = PKV_OK;
    pkv_page first_page = 0;
    if (statuses == nullptr) {
        // Count down and up again: finds a page that is listed more often than it is held, before anything happens.
        uint64_t checked = 0;
        for (; checked < pages.size() && first == PKV_OK; ++checked) {
            const pkv_page page = pages[checked];
            first_page = page;
            if (!in_range(page))
                first = PKV_ERR_INVALID;
            else if (pages_.count(page) == 0)
                first = PKV_ERR_STATE;
            else
                pages_.drop_count(page);
        }
        const uint64_t good = first == PKV_OK ? checked : checked - 1;
        for (uint64_t i = 0; i < good; ++i) pages_.restore_count(pages[i]);
    }
    if (statuses != nullptr || first == PKV_OK) {
        for (uint64_t i = pages.size(); i-- > 0;) {
            const pkv_page page = pages[i];
            pkv_status status = PKV_OK;
            if (!in_range(page))
                status = PKV_ERR_INVALID;
            else if (pages_.count(page) == 0)
                status = PKV_ERR_STATE;
            else
                release_one(page);
            if (statuses != nullptr) statuses[i] = status;
            if (status != PKV_OK) {
                first = status;
                first_page = page;
            }
        }
    }
    if (first == PKV_ERR_INVALID) return no_such_page(first_page);
    if (first == PKV_ERR_STATE) return fail(first, "page %d was released more often than it was held", first_page);
    return PKV_OK;
}

void Pool::release_held(std::span<const pkv_page> pages) {
    const Lock lock(mutex_);
    for (uint64_t i = pages.size(); i-- > 0;) release_one(pages[i]);
}

void Pool::release_one(pkv_page page) {
    if (!pages_.release(page)) return;
    if (!pages_.published(page)) {
        make_free(page);
        return;
    }
    pages_.cache(page);
    while (pages_.cached_count() > geometry_.max_cached_pages) make_free(evict_one());
}

void Pool::make_free(pkv_page page) {
    if (poison_) memory_.fill_page(page, 0xFF);
    pages_.set_free(page);
}

pkv_status Pool::page_info(pkv_page page, pkv_page_info &info) {
    const Lock lock(mutex_);
    if (!in_range(page)) return no_such_page(page);
    info.count = pages_.count(page);
    info.published = pages_.published(page) ? 1 : 0;
    info.block = pages_.published(page) ? index_.node(pages_.node(page)).block : 0;
    info.state = info.count > 0 ? PKV_PAGE_HELD : info.published != 0 ? PKV_PAGE_CACHED : PKV_PAGE_FREE;
    return PKV_OK;
}

bool Pool::is_private(pkv_page page) {
    const Lock lock(mutex_);
    return pages_.count(page) == 1 && !pages_.published(page);
}

// ---- eviction ------------------------------------------------------------------------------------------------------

uint64_t Pool::evict(uint64_t num_pages) {
    const Lock lock(mutex_);
    uint64_t evicted = 0;
    for (; evicted < num_pages && pages_.cached_count() > 0; ++evicted) make_free(evict_one());
    return evicted;
}

/// Takes one cached page, which there must be, out of the index and out of all lists.
pkv_page Pool::evict_one() {
    ++counters_.evicted_pages;
    for (pkv_page page = pages_.oldest(); page != PKV_NO_PAGE; page = pages_.oldest()) {
        const prefix::NodeId node = pages_.node(page);
        if (index_.children(node) != 0) {
            pages_.park(page); // not a leaf: its descendants go first
            continue;
        }
        prefetch_victims(page);
        pages_.unlink(page);
        unpublish(node);
        return page;
    }
    // Only pages whose descendants are all held are left: the descendants keep their bytes, but lose their names.
    const pkv_page page = pages_.oldest_parked();
    pkv_clear_result dropped{};
    const prefix::NodeId node = pages_.node(page);
    drop_below(node, dropped);
    counters_.evicted_pages += dropped.freed;
    pages_.unlink(page);
    unpublish(node);
    return page;
}

/// Evictions come in runs: the state of the next two victims should be on its way from memory while this one goes.
void Pool::prefetch_victims(pkv_page page) const {
    const pkv_page next = pages_.newer(page);
    if (next == PKV_NO_PAGE) return;
    index_.prefetch_slot(index_.node(pages_.node(next)).key);
    const pkv_page after = pages_.newer(next);
    if (after == PKV_NO_PAGE) return;
    __builtin_prefetch(&index_.node(pages_.node(after)));
    if (const pkv_page third = pages_.newer(after); third != PKV_NO_PAGE) pages_.prefetch(third);
}

void Pool::unpublish(prefix::NodeId node) {
    const prefix::NodeId parent = index_.node(node).parent;
    pages_.set_node(index_.node(node).page, prefix::no_node);
    index_.remove(node);
    ++counters_.unpublished_blocks;
    if (prefix::is_root(parent)) {
        index_.drop_root_if_unused(parent);
    } else if (index_.children(parent) == 0) {
        const pkv_page page = index_.node(parent).page;
        if (pages_.parked(page)) pages_.unpark(page);
    }
}

void Pool::drop_below(prefix::NodeId top, pkv_clear_result &result) {
    // Depth first, leaf by leaf: takes no memory, and each block is visited twice.
    prefix::NodeId at = top;
    for (;;) {
        while (index_.children(at) != 0) at = index_.first_child(at);
        if (at == top) return;
        const prefix::NodeId parent = index_.node(at).parent;
        const pkv_page page = index_.node(at).page;
        const bool last_of_root = prefix::is_root(parent) && index_.children(parent) == 1;
        if (pages_.count(page) == 0) {
            pages_.unlink(page);
            unpublish(at);
            make_free(page);
            ++result.freed;
        } else {
            unpublish(at);
            ++result.held;
        }
        if (last_of_root) return; // the root may be gone
        at = parent;
    }
}

// ---- statistics ----------------------------------------------------------------------------------------------------

void Pool::stats(pkv_pool_stats &out) {
    const Lock lock(mutex_);
    out = counters_;
    out.num_pages = pages_.size();
    out.free_pages = pages_.free_count();
    out.held_pages = pages_.held_count();
    out.cached_pages = pages_.cached_count();
    out.tables = tables_.load(std::memory_order_relaxed);
    out.namespaces = index_.num_roots();
    out.index_blocks = index_.size();
    out.page_bytes = geometry_.page_bytes();
    out.metadata_bytes = pages_.bytes() + index_.bytes();
    out.usage = static_cast<double>(out.held_pages) / static_cast<double>(out.num_pages);
    out.memory_kind = memory_.kind();
    out.key_seed = key_seed_;
}

void Pool::count_copies(uint64_t pages) {
    const Lock lock(mutex_);
    counters_.copied_pages += pages;
}

} // namespace pkv
