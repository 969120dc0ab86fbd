// SPDX-License-Identifier: Apache-2.0
// Pages of a pool: creation, alloc, retain, release, eviction, statistics.
#include "pool/pool.h"

#include "core/clock.h"
#include "core/status.h"
#include "pool/cleaner.h"
#include "pool/mover.h"
#include "tensor/kernels.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <sodium.h>
#include <sys/random.h>
#include <system_error>
#include <thread>

namespace pkv {
namespace {

constexpr uint32_t max_copy_threads = 256;
constexpr uint32_t max_events = 1u << 24;

pkv_status random_seed(uint64_t &seed) {
    while (seed == 0) {
        const ssize_t got = getrandom(&seed, sizeof seed, 0);
        if (got != sizeof seed && errno != EINTR)
            return fail(PKV_ERR_IO, "no random seed from the operating system: %s", std::strerror(errno));
    }
    return PKV_OK;
}

pkv_status start_workers(uint32_t threads, std::unique_ptr<Workers> &workers) {
    if (threads == 0) return PKV_OK;
    try {
        workers = std::make_unique<Workers>(threads);
    } catch (const std::system_error &error) {
        return fail(PKV_ERR_NO_MEMORY, "%u helper threads: %s", threads, error.what());
    }
    return PKV_OK;
}

} // namespace

Pool::Pool() = default;

Pool::~Pool() {
    // Their threads end before anything that they use. The mover's last jobs still wake the cleaner.
    if (cleaner_ != nullptr) cleaner_->stop();
    mover_.reset();
    if (poison_stream_ != nullptr) device_->give_stream(false, poison_stream_);
}

pkv_status Pool::create(const pkv_pool_options &options, std::span<const pkv_group_options> groups,
                        std::vector<Attachment> tiers, std::shared_ptr<Pool> &pool) {
    if (options.huge_pages < PKV_HUGE_PAGES_AUTO || options.huge_pages > PKV_HUGE_PAGES_REQUIRE)
        return fail(PKV_ERR_INVALID, "huge_pages is %d, none of PKV_HUGE_PAGES_*", options.huge_pages);
    if ((options.debug & ~(PKV_DEBUG_EQUAL_KEYS | PKV_DEBUG_POISON | PKV_DEBUG_HOT_PAGES)) != 0)
        return fail(PKV_ERR_UNSUPPORTED, "debug is 0x%x, with unknown bits", options.debug);
    if (options.copy_threads > max_copy_threads)
        return fail(PKV_ERR_LIMIT, "copy_threads is %u, more than %u", options.copy_threads, max_copy_threads);
    if ((options.flags & ~PKV_POOL_KEEP_UNSTORED) != 0)
        return fail(PKV_ERR_UNSUPPORTED, "flags is 0x%x, with unknown bits", options.flags);
    if (options.event_capacity > max_events)
        return fail(PKV_ERR_LIMIT, "event_capacity is %u, more than %u", options.event_capacity, max_events);
    if (sodium_init() < 0) return fail(PKV_ERR_INTERNAL, "libsodium does not start");

    auto fresh = std::make_shared<Pool>();
    PKV_TRY(fresh->open_device(options));
    fresh->page_tokens_ = options.page_tokens;
    fresh->num_groups_ = static_cast<uint32_t>(groups.size());
    fresh->groups_ = std::make_unique<Group[]>(groups.size());
    fresh->poison_ = (options.debug & PKV_DEBUG_POISON) != 0;
    fresh->hot_pages_ = (options.debug & PKV_DEBUG_HOT_PAGES) != 0;
    fresh->has_memory_ = true;
    uint64_t max_nodes = 0;
    bool any_full = false;
    for (uint32_t i = 0; i < fresh->num_groups_; ++i) {
        Group &group = fresh->groups_[i];
        PKV_TRY(make_geometry(groups[i], i, options.page_tokens, group.geometry));
        PKV_TRY(group.pages.create(group.geometry.num_pages));
        PKV_TRY(fresh->device_ == nullptr ? group.memory.create(group.geometry, options.huge_pages)
                                          : fresh->create_device_memory(group));
        max_nodes += group.geometry.num_pages;
        any_full = any_full || group.full();
        fresh->has_memory_ = fresh->has_memory_ && group.memory.exists();
        fresh->caller_memory_ = fresh->caller_memory_ || group.geometry.memory == PKV_MEMORY_CALLER;
        const Lock lock(fresh->mutex_); // nobody else has it yet; said for the checker
        if (fresh->poison_ && group.geometry.memory == PKV_MEMORY_POOL)
            for (uint64_t page = 0; page < group.geometry.num_pages; ++page)
                fresh->poison(i, static_cast<pkv_page>(page));
    }
    if (fresh->poison_stream_ != nullptr)
        PKV_TRY(fresh->device_->call("poison", &pkv_device_table::wait_stream, fresh->poison_stream_));
    if (max_nodes > INT32_MAX)
        return fail(PKV_ERR_LIMIT, "%" PRIu64 " pages over all groups, more than 2^31-1", max_nodes);
    // Where all groups have windows, sequences go on for longer than there are pages, and their blocks are chained to the first.
    const uint64_t num_pages = max_nodes;
    max_nodes = std::min<uint64_t>((any_full ? max_nodes : 16 * max_nodes) + 4096, INT32_MAX);
    PKV_TRY(fresh->index_.create(max_nodes, options.page_tokens, fresh->num_groups_, !tiers.empty()));
    {
        const Lock lock(fresh->mutex_); // nobody else has it yet; said for the checker
        fresh->events_.create(options.event_capacity);
    }
    PKV_TRY(start_workers(options.copy_threads, fresh->workers_));

    uint64_t seed = options.seed;
    fresh->key_seed_ = seed != 0 ? PKV_KEY_SEED_FIXED : PKV_KEY_SEED_RANDOM;
    PKV_TRY(random_seed(seed));
    fresh->keys_.set_seed(seed, (options.debug & PKV_DEBUG_EQUAL_KEYS) != 0);
    if (!tiers.empty()) PKV_TRY(fresh->create_tiers(options, std::move(tiers)));
    log_message(PKV_LOG_INFO,
                "pool of %u groups, %" PRIu64 " pages of %u tokens, memory kind %d, %s kernels, %u copy threads",
                fresh->num_groups_, num_pages, uint32_t{fresh->page_tokens_}, fresh->groups_[0].memory.kind(),
                fresh->device_ != nullptr ? fresh->device_->facts().name : tensor::kernel_name(), options.copy_threads);
    pool = std::move(fresh);
    return PKV_OK;
}

bool Pool::close() {
    uint64_t calls = 0;
    if (caller_memory_ && !byte_calls_.compare_exchange_strong(calls, closed_bit, std::memory_order_acq_rel) &&
        (calls & closed_bit) == 0)
        return false;
    closed_.store(true, std::memory_order_release);
    return true;
}

pkv_status Pool::quiesce(uint64_t timeout_ns) const {
    const uint64_t start = monotonic_ns();
    for (;;) {
        const uint64_t calls = byte_calls_.load(std::memory_order_acquire) & ~closed_bit;
        if (calls == 0) return PKV_OK;
        if (monotonic_ns() - start >= timeout_ns)
            return fail(PKV_ERR_TIMEOUT, "%" PRIu64 " calls are at work on page bytes after %" PRIu64 " ns", calls,
                        timeout_ns);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

pkv_status Pool::check_group(uint32_t group) const {
    if (group >= num_groups()) return fail(PKV_ERR_INVALID, "group %u: the pool has %u", group, num_groups());
    return PKV_OK;
}

pkv_status Pool::check_layer(uint32_t group, uint32_t layer) const {
    PKV_TRY(check_group(group));
    if (layer >= geometry(group).num_layers)
        return fail(PKV_ERR_INVALID, "layer %u: group %u has %u", layer, group, geometry(group).num_layers);
    return PKV_OK;
}

pkv_status Pool::no_such_page(uint32_t group, pkv_page page) const {
    return fail(PKV_ERR_INVALID, "page %d is not in 0 .. %" PRIu64, page, groups_[group].pages.size() - 1);
}

// ---- alloc, retain, release ----------------------------------------------------------------------------------------

pkv_status Pool::alloc(uint32_t group, uint64_t num_pages, pkv_page *out, Fences &waits) {
    const Lock lock(mutex_);
    expire();
    wait_for_borrowed(group, num_pages);
    if (num_pages > pages(group).room()) {
        ++counters_.failed_allocations;
        return no_pages(group, num_pages);
    }
    PKV_TRY(check_stored(group, num_pages));
    for (uint64_t i = 0; i < num_pages; ++i) out[i] = take_page(group, waits);
    counters_.allocated_pages += num_pages;
    return PKV_OK;
}

pkv_status Pool::alloc(uint32_t group, uint64_t num_pages, pkv_page *out) {
    Fences waits;
    PKV_TRY(alloc(group, num_pages, out, waits));
    if (device_ == nullptr) return PKV_OK;
    const pkv_status status = make_ready(waits);
    if (status != PKV_OK) release(group, {out, num_pages}, nullptr);
    return status;
}

pkv_status Pool::no_pages(uint32_t group, uint64_t wanted) {
    const PageSet &set = pages(group);
    return fail(PKV_ERR_NO_PAGES,
                "%" PRIu64 " pages wanted in group %u: of %" PRIu64 ", %" PRIu64 " are free and %" PRIu64
                " cached, %" PRIu64 " of these pinned",
                wanted, group, set.size(), set.free_count() + set.quarantined_count(), set.cached_count(),
                set.pinned_count());
}

/// A page for the caller; whoever calls made sure that there is room.
pkv_page Pool::take_page(uint32_t group, Fences &waits) {
    PageSet &set = pages(group);
    pkv_page page = set.take_free();
    if (page == PKV_NO_PAGE) page = set.take_quarantined();
    if (page == PKV_NO_PAGE) {
        make_free(group, evict_one(group));
        page = set.take_free();
        if (page == PKV_NO_PAGE) page = set.take_quarantined();
    }
    if (device_ != nullptr) {
        const Fences before = groups_[group].order.before_writing(page);
        waits |= before;
        handed_out_ |= before;
    }
    return page;
}

pkv_status Pool::retain(uint32_t group, std::span<const pkv_page> list) {
    const Lock lock(mutex_);
    PageSet &set = pages(group);
    for (const pkv_page page : list) {
        if (!set.in_range(page)) return no_such_page(group, page);
        const uint32_t count = set.count(page);
        if (count == 0) return fail(PKV_ERR_STATE, "page %d is held by nobody", page);
        if (count > UINT32_MAX - list.size()) return fail(PKV_ERR_LIMIT, "page %d has a count of %u", page, count);
    }
    for (const pkv_page page : list) set.retain(page);
    return PKV_OK;
}

namespace {

/// Whether a page can be released.
pkv_status check_release(const PageSet &set, pkv_page page) {
    if (!set.in_range(page)) return PKV_ERR_INVALID;
    return set.count(page) == 0 ? PKV_ERR_STATE : PKV_OK;
}

} // namespace

pkv_status Pool::release(uint32_t group, std::span<const pkv_page> list, pkv_status *statuses, const Fences &work) {
    const Lock lock(mutex_);
    PageSet &set = pages(group);
    pkv_status first = PKV_OK;
    pkv_page first_page = 0;
    if (statuses == nullptr) {
        // Count down and up again: finds a page that is listed more often than it is held, before anything happens.
        uint64_t counted = 0;
        for (; counted < list.size(); ++counted) {
            first_page = list[counted];
            first = check_release(set, first_page);
            if (first != PKV_OK) break;
            set.drop_count(first_page);
        }
        for (uint64_t i = 0; i < counted; ++i) set.restore_count(list[i]);
    }
    if (statuses != nullptr || first == PKV_OK) {
        for (uint64_t i = list.size(); i-- > 0;) {
            const pkv_status status = check_release(set, list[i]);
            if (status == PKV_OK) release_one(group, list[i], work);
            if (statuses != nullptr) statuses[i] = status;
            if (status != PKV_OK) {
                first = status;
                first_page = list[i];
            }
        }
    }
    trim_cached(group);
    if (first == PKV_ERR_INVALID) return no_such_page(group, first_page);
    if (first == PKV_ERR_STATE) return fail(first, "page %d was released more often than it was held", first_page);
    return PKV_OK;
}

void Pool::release_one(uint32_t group, pkv_page page, const Fences &work) {
    if (!work.none()) groups_[group].order.used(page, work);
    if (!pages(group).release(page)) return;
    if (pages(group).published(page))
        cache_page(group, page);
    else
        make_free(group, page);
}

void Pool::make_free(uint32_t group, pkv_page page) {
    if (page == pages(group).borrowed()) {
        // The cleaner is reading it: it counts as a holder until it is done.
        condemned_ = true;
        pages(group).restore_count(page);
        return;
    }
    const bool in_use = device_ != nullptr && is_in_use(group, page);
    if (poison_ && geometry(group).memory == PKV_MEMORY_POOL) poison(group, page);
    if (in_use && !hot_pages_)
        pages(group).quarantine(page);
    else
        pages(group).set_free(page);
}

void Pool::poison(uint32_t group, pkv_page page) {
    if (device_ != nullptr)
        poison_on_device(group, page);
    else
        groups_[group].memory.fill_page(page, 0xFF);
}

pkv_status Pool::page_info(uint32_t group, pkv_page page, pkv_page_info &info) {
    const Lock lock(mutex_);
    expire();
    const PageSet &set = pages(group);
    if (!set.in_range(page)) return no_such_page(group, page);
    info.count = set.count(page);
    info.published = set.published(page) ? 1 : 0;
    if (info.published != 0) {
        const prefix::Node &node = index_.node(set.node(page));
        info.block = node.block;
        info.priority = node.priority;
        info.pinned = node.pins > 0 ? 1 : 0;
    }
    info.state = info.count > 0 ? PKV_PAGE_HELD : info.published != 0 ? PKV_PAGE_CACHED : PKV_PAGE_FREE;
    return PKV_OK;
}

// ---- statistics ----------------------------------------------------------------------------------------------------

void Pool::stats(uint32_t group, pkv_pool_stats &out) {
    const Lock lock(mutex_);
    expire();
    const PageSet &set = pages(group);
    out = counters_;
    out.num_pages = set.size();
    out.free_pages = set.free_count();
    out.held_pages = set.held_count();
    out.cached_pages = set.cached_count();
    out.quarantined_pages = set.quarantined_count();
    out.pinned_pages = set.pinned_count();
    out.unstored_pages = set.dirty_count();
    if (tiers_ != nullptr) out.image_bytes = groups_[group].image.image_bytes();
    out.tables = tables_.load(std::memory_order_relaxed);
    out.namespaces = index_.num_roots();
    out.index_blocks = index_.size();
    out.page_bytes = geometry(group).page_bytes();
    out.metadata_bytes = index_.bytes();
    for (uint32_t i = 0; i < num_groups_; ++i) out.metadata_bytes += pages(i).bytes();
    out.usage = static_cast<double>(out.held_pages) / static_cast<double>(out.num_pages);
    out.memory_kind = memory(group).kind();
    out.key_seed = key_seed_;
    out.events = events_.recorded();
}

void Pool::count_copies(uint64_t count) {
    const Lock lock(mutex_);
    counters_.copied_pages += count;
}

pkv_status Pool::events(uint64_t after, pkv_event *out, uint64_t capacity, uint64_t &count, uint64_t &missed) {
    const Lock lock(mutex_);
    if (!events_.enabled()) return fail(PKV_ERR_STATE, "the pool was made with event_capacity 0");
    if (after > events_.recorded())
        return fail(PKV_ERR_INVALID, "after is %" PRIu64 ", but only %" PRIu64 " events were recorded", after,
                    events_.recorded());
    count = events_.read(after, out, capacity, missed);
    return PKV_OK;
}

} // namespace pkv
