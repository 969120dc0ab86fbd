// SPDX-License-Identifier: Apache-2.0
#include "pool/cleaner.h"

#include "core/clock.h"
#include "core/status.h"
#include "core/wait.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cinttypes>
#include <deque>
#include <utility>

namespace pkv {
namespace {

constexpr auto longest_sleep = std::chrono::milliseconds(20);
constexpr auto postponed_sleep = std::chrono::milliseconds(1); // while a device is at work on pages that wait
constexpr size_t demotion_batch = 8;
constexpr size_t used_batch = 64;

} // namespace

struct Cleaner::Inbox {
    struct Ended {
        size_t store; // number; SIZE_MAX for a demotion
        uint32_t tier;
        pkv_status status;
        pkv_tier_key key; // of a demotion
    };
    std::mutex mutex;
    std::condition_variable filled;
    std::vector<Ended> ended; // room is made before a request begins
    uint64_t expected = 0;
    bool work = false; // somebody called wake()
};

Cleaner::Cleaner(Pool &pool) : pool_(pool), inbox_(std::make_shared<Inbox>()) {
    // Half of the staging memory: the rest is for those who wait for a load.
    const uint64_t most = std::max<uint64_t>(pool.tiers()->staging().slots() / 2, 1);
    stores_.resize(most);
    for (size_t i = 0; i < most; ++i) {
        stores_[i] = std::make_unique<Store>();
        free_stores_.push_back(i);
    }
    thread_ = std::thread([this] { run(); });
}

Cleaner::~Cleaner() { stop(); }

void Cleaner::stop() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(inbox_->mutex);
        stop_ = true;
    }
    inbox_->filled.notify_one();
    thread_.join();
}

void Cleaner::wake_sleeper() {
    {
        const std::lock_guard lock(inbox_->mutex);
        inbox_->work = true;
    }
    inbox_->filled.notify_one();
}

void Cleaner::run() {
    for (;;) {
        {
            const std::lock_guard lock(inbox_->mutex);
            if (stop_) return;
        }
        pool_.expire_moves();
        bool worked = false;
        try {
            worked = take_ended();
            worked = begin_one() || worked;
            worked = tell_used() || worked;
            if (!worked) worked = demote();
        } catch (const std::bad_alloc &) {
            log_message(PKV_LOG_WARNING, "no memory to store pages in tiers: waiting");
            worked = false;
        }
        if (!worked) sleep();
    }
}

void Cleaner::sleep() {
    std::unique_lock lock(inbox_->mutex);
    asleep_.store(true, std::memory_order_relaxed);
    const auto longest = std::exchange(postponed_, false) ? postponed_sleep : longest_sleep;
    inbox_->filled.wait_for(lock, longest, [this] { return stop_ || inbox_->work || !inbox_->ended.empty(); });
    asleep_.store(false, std::memory_order_relaxed);
    inbox_->work = false;
}

/// Packs one page and sends it to the tiers that want it.
bool Cleaner::begin_one() {
    if (free_stores_.empty()) return false;
    const bool all = flushes_.load(std::memory_order_relaxed) != 0;
    if (!pool_.pages_wait(all)) return false; // a look that finds nothing must not make the pool's bytes busy
    TierStack &tiers = *pool_.tiers();
    auto slot = tiers.staging().acquire(0);
    if (slot == nullptr) return false;
    Store &store = *stores_[free_stores_.back()];
    StoreWork &work = store.work;
    work.tokens.reserve(pool_.page_tokens()); // nothing throws under the lock
    {
        const std::lock_guard lock(inbox_->mutex);
        inbox_->ended.reserve(inbox_->expected + PKV_MAX_TIERS);
        inbox_->expected += PKV_MAX_TIERS;
    }
    const Pool::BytesInUse in_use(pool_); // memory of the caller's is not read once the pool is closed
    if (pool_.closed() || !pool_.next_store(work, all, postponed_)) {
        const std::lock_guard lock(inbox_->mutex);
        inbox_->expected -= PKV_MAX_TIERS;
        return false;
    }
    open_.fetch_add(1, std::memory_order_release);
    const pkv_status packed = pool_.pack(work.group, work.page, {work.key, work.block, work.tokens}, slot.get(), {});
    store.stored = 0;
    store.failed = packed == PKV_OK ? 0 : work.tiers;
    if (!pool_.end_read(work) || packed != PKV_OK) {
        end(store); // what was packed may be torn
        return true;
    }
    const size_t number = free_stores_.back();
    free_stores_.pop_back();
    store.open = static_cast<uint32_t>(std::popcount(work.tiers));
    const uint64_t bytes = pool_.group(work.group).image.image_bytes();
    for (uint32_t tier = 0; tier < tiers.size(); ++tier) {
        if ((work.tiers >> tier & 1) == 0) continue;
        pkv_status refused = PKV_ERR_BUSY; // it rests
        try {
            if (tiers[tier].tier->available()) {
                tiers.store(tier, work.key, slot, bytes, work.retention, work.tag, false,
                            [inbox = inbox_, number, tier](Request &request) {
                                {
                                    const std::lock_guard lock(inbox->mutex);
                                    inbox->ended.push_back({number, tier, request.status(0), {}});
                                }
                                inbox->filled.notify_one();
                            });
                refused = PKV_OK;
            }
        } catch (const std::bad_alloc &) {
            refused = PKV_ERR_NO_MEMORY;
        }
        if (refused == PKV_OK) continue;
        const std::lock_guard lock(inbox_->mutex);
        inbox_->ended.push_back({number, tier, refused, {}});
    }
    return true;
}

bool Cleaner::take_ended() {
    std::vector<Inbox::Ended> ended;
    {
        const std::lock_guard lock(inbox_->mutex);
        if (inbox_->ended.empty()) return false;
        ended.reserve(inbox_->expected);
        ended.swap(inbox_->ended);
    }
    for (const Inbox::Ended &item : ended) {
        if (item.store == SIZE_MAX) {
            // Demoted: the tier above can let go of it.
            if (item.status == PKV_OK) pool_.tiers()->remove(item.tier - 1, {&item.key, 1}, 0);
            demotion_failed_ = demotion_failed_ || item.status != PKV_OK;
            --demotions_;
            const std::lock_guard lock(inbox_->mutex);
            --inbox_->expected;
            continue;
        }
        Store &store = *stores_[item.store];
        (item.status == PKV_OK ? store.stored : store.failed) |= 1u << item.tier;
        if (--store.open > 0) continue;
        end(store);
        free_stores_.push_back(item.store);
    }
    return true;
}

void Cleaner::end(Store &store) {
    const StoreWork &work = store.work;
    TierStack &tiers = *pool_.tiers();
    if (pool_.end_store(work, store.stored, store.failed))
        for (uint32_t tier = 0; tier < tiers.size(); ++tier)
            if ((store.stored >> tier & 1) != 0)
                tiers.remove(tier, {&work.key, 1}, PKV_TIER_FORCE)->wait_until(deadline_after(tiers[tier].timeout_ns));
    pool_.forget_store(work);
    open_.fetch_sub(1, std::memory_order_release);
    const std::lock_guard lock(inbox_->mutex);
    inbox_->expected -= PKV_MAX_TIERS;
}

/// Tells tiers that images of theirs were in use, though in the pool: else what everybody shares would look idle there, and go
/// first. An image that is gone all the same is wanted again.
bool Cleaner::tell_used() {
    UsedPage used[used_batch];
    const size_t count = pool_.next_used(used);
    if (count == 0) return false;
    TierStack &tiers = *pool_.tiers();
    bool lost = false;
    for (uint32_t tier = 0; tier < tiers.size(); ++tier) {
        RequestItems items;
        items.kind = PKV_TIER_LOOKUP;
        std::vector<size_t> asked;
        for (size_t i = 0; i < count; ++i)
            if ((used[i].tiers >> tier & 1) != 0) {
                items.keys.push_back(used[i].key);
                asked.push_back(i);
            }
        if (asked.empty() || !tiers[tier].tier->available()) continue;
        const auto request = tiers[tier].tier->submit(std::move(items));
        if (!request->wait_until(deadline_after(tiers[tier].timeout_ns))) {
            tiers[tier].tier->note_timeout();
            continue;
        }
        for (size_t i = 0; i < asked.size(); ++i)
            if (request->status(i) == PKV_ERR_NOT_FOUND) {
                used[asked[i]].missing |= 1u << tier;
                lost = true;
            }
    }
    if (lost) pool_.end_used({used, count});
    return true;
}

/// Keeps a part of each tier that others demote from free: what would be evicted there next goes one tier down.
bool Cleaner::demote() {
    TierStack &tiers = *pool_.tiers();
    bool worked = false;
    if (std::exchange(demotion_failed_, false)) return false; // not at once again
    for (uint32_t below = 1; below < tiers.size(); ++below) {
        Tier &above = *tiers[below - 1].tier;
        if (tiers[below].policy != PKV_TIER_DEMOTE || !above.has_victims() || !above.has_address()) continue;
        if (!tiers[below].tier->available()) continue;
        const pkv_tier_usage usage = above.usage();
        const uint64_t limit = usage.capacity_bytes - usage.capacity_bytes / 8;
        if (demotions_ != 0 || usage.used_bytes < limit) continue;
        uint64_t excess = usage.used_bytes - limit + 1;
        pkv_tier_victim victims[demotion_batch];
        const uint64_t found = above.victims(victims);
        for (uint64_t i = 0; i < found && excess > 0; ++i) {
            worked = demote_one(below, victims[i]) || worked;
            excess -= std::min(excess, victims[i].bytes);
        }
    }
    return worked;
}

/// Copies an image from the memory of the tier above into staging, and stores it below.
bool Cleaner::demote_one(uint32_t below, const pkv_tier_victim &victim) {
    TierStack &tiers = *pool_.tiers();
    if (victim.bytes > tiers.staging().slot_bytes()) return false; // of another pool
    auto slot = tiers.staging().acquire(0);
    if (slot == nullptr) return false;
    RequestItems items;
    items.kind = PKV_TIER_LOAD;
    items.keys.push_back(victim.key);
    items.data.push_back(slot.get());
    items.offsets.push_back(0);
    items.sizes.push_back(victim.bytes);
    items.buffers = slot;
    const auto load = tiers[below - 1].tier->submit(std::move(items)); // from memory: ends at once
    if (!load->ended() || load->status(0) != PKV_OK) return false;
    {
        const std::lock_guard lock(inbox_->mutex);
        inbox_->ended.reserve(++inbox_->expected);
    }
    ++demotions_;
    tiers.store(below, victim.key, std::move(slot), victim.bytes, victim.retention, victim.tag, false,
                [inbox = inbox_, below, key = victim.key](Request &request) {
                    {
                        const std::lock_guard lock(inbox->mutex);
                        inbox->ended.push_back({SIZE_MAX, below, request.status(0), key});
                    }
                    inbox->filled.notify_one();
                });
    return true;
}

pkv_status Cleaner::flush(uint64_t timeout_ns) {
    const uint64_t start = monotonic_ns();
    flushes_.fetch_add(1, std::memory_order_relaxed);
    pkv_status status = PKV_OK;
    while (pool_.stores_wait(true) || open_stores() != 0) {
        wake();
        if (pool_.closed()) break;
        if (monotonic_ns() - start >= timeout_ns) {
            status = fail(PKV_ERR_TIMEOUT, "pages are still to be stored after %" PRIu64 " ns", timeout_ns);
            break;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    flushes_.fetch_sub(1, std::memory_order_relaxed);
    return status;
}

} // namespace pkv
