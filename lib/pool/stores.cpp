// SPDX-License-Identifier: Apache-2.0
// Pages on their way down: which ones the cleaner is to store, what became of them, and pages that a caller holds.
#include "core/clock.h"
#include "core/status.h"
#include "pool/cleaner.h"
#include "pool/pool.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>

namespace pkv {

using prefix::NodeId;

namespace {

constexpr uint64_t cancel_poll_ns = 2'000'000;

} // namespace

// ---- for the cleaner -----------------------------------------------------------------------------------------------

void Pool::note_hit(uint32_t group, pkv_page page) {
    const uint32_t hits = pages(group).count_hit(page);
    for (uint32_t tier = 0; tier < tiers_->size(); ++tier)
        if ((*tiers_)[tier].policy == PKV_TIER_WRITE_ON_HITS && (*tiers_)[tier].hits == hits &&
            (pages(group).images(page) >> tier & 1) == 0) {
            pages(group).want_store(page);
            cleaner_->wake();
        }
}

bool Pool::wants_cleaning(uint32_t group, bool all) {
    const PageSet &set = pages(group);
    if (set.dirty_count() == 0) return false;
    const uint64_t target = clean_pages_ != 0 ? clean_pages_ : std::max<uint64_t>(set.size() / 4, 1);
    return all || keep_unstored_ || set.size() - set.held_count() - set.dirty_count() < target;
}

bool Pool::page_waits(uint32_t group, bool all) {
    return pages(group).urgent_count() != 0 || wants_cleaning(group, all);
}

bool Pool::pages_wait(bool all) {
    const Lock lock(mutex_);
    for (uint32_t group = 0; group < num_groups_; ++group)
        if (page_waits(group, all)) return true;
    return false;
}

bool Pool::stores_wait(bool all) {
    const Lock lock(mutex_);
    if (!open_stores_.empty()) return true;
    for (uint32_t group = 0; group < num_groups_; ++group)
        if (page_waits(group, all) || pages(group).used_count() != 0) return true;
    return false;
}

size_t Pool::next_used(std::span<UsedPage> out) {
    const Lock lock(mutex_);
    size_t count = 0;
    for (uint32_t group = 0; group < num_groups_; ++group)
        while (count < out.size()) {
            const pkv_page page = pages(group).take_used();
            if (page == PKV_NO_PAGE) break;
            const NodeId node = pages(group).node(page);
            out[count++] = {group,
                            page,
                            node,
                            index_.node(node).generation,
                            image_key(group, index_.digest(node)),
                            pages(group).images(page),
                            0};
        }
    return count;
}

void Pool::end_used(std::span<const UsedPage> list) {
    const Lock lock(mutex_);
    for (const UsedPage &item : list) {
        if (!is_same(item)) continue;
        for (uint32_t tier = 0; tier < tiers_->size(); ++tier)
            if ((item.missing >> tier & 1) != 0) pages(item.group).drop_image(item.page, tier);
    }
}

bool Pool::next_store(StoreWork &work, bool all, bool &postponed) {
    constexpr uint64_t most_postponed = 16; // pages of a group, in one call
    postponed = false;
    if (device_ != nullptr) device_->order().look();
    const Lock lock(mutex_);
    if (borrow_waiters_ != 0) return false;
    if (clears_ != 0) return false; // it would come behind the clear of its tier
    for (uint32_t group = 0; group < num_groups_; ++group) {
        PageSet &set = pages(group);
        for (uint64_t passed_over = 0;;) {
            const bool cleaning = wants_cleaning(group, all);
            const pkv_page page = set.take_store(cleaning);
            if (page == PKV_NO_PAGE) break;
            if (device_ != nullptr && !device_->order().passed(groups_[group].order.before_reading(page))) {
                // Whoever wants its room has to wait while it is read: so that does not begin before it can be.
                set.put_back(page);
                postponed = true;
                if (++passed_over >= std::min(most_postponed, set.urgent_count() + set.dirty_count())) break;
                continue;
            }
            const NodeId node = set.node(page);
            uint32_t wanted = through_ | (set.count(page) == 0 ? set.wanted_images() : 0);
            for (uint32_t tier = 0; tier < tiers_->size(); ++tier)
                if ((on_hits_ >> tier & 1) != 0 && set.hits(page) >= (*tiers_)[tier].hits) wanted |= 1u << tier;
            work.tiers = wanted & ~set.images(page);
            if (work.tiers == 0) {
                set.end_store(page);
                continue;
            }
            const prefix::Node &item = index_.node(node);
            work.group = group;
            work.page = page;
            work.node = node;
            work.generation = item.generation;
            work.clear_generation = clear_generation_;
            work.key = image_key(group, index_.digest(node));
            work.block = item.block;
            work.tokens.assign(index_.tokens(node).begin(), index_.tokens(node).end());
            work.tag = index_.tag(node);
            work.retention = PKV_RETENTION_INIT;
            work.retention.priority = item.priority;
            work.retention.pin = item.pinned ? 1 : 0;
            if (const uint64_t deadline = index_.deadline(node); deadline != 0) {
                const uint64_t now = monotonic_ns();
                work.retention.ttl_ns = deadline > now ? deadline - now : 1;
            }
            open_stores_.push_back({work.key, clear_generation_}); // there is room
            set.set_borrowed(page);
            return true;
        }
    }
    return false;
}

bool Pool::end_read(const StoreWork &work) {
    const Lock lock(mutex_);
    const bool same = is_same(work);
    pages(work.group).set_borrowed(PKV_NO_PAGE);
    if (condemned_) {
        condemned_ = false;
        release_one(work.group, work.page);
    }
    trim_cached(work.group);
    return same;
}

bool Pool::end_store(const StoreWork &work, uint32_t stored, uint32_t failed) {
    const Lock lock(mutex_);
    // A clear under way has been to the tiers, but maybe not yet to the index: only after it the node says what is wanted.
    while (clears_ != 0) {
        mutex_.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        mutex_.lock();
    }
    counters_.stored_images += static_cast<uint64_t>(std::popcount(stored));
    counters_.failed_stores += static_cast<uint64_t>(std::popcount(failed));
    const bool same = is_same(work);
    if (same) {
        pages(work.group).end_store(work.page);
        pages(work.group).add_images(work.page, stored);
    }
    // Evicted on its way, and not stored after all.
    if (!same && stored == 0 && clear_generation_ == work.clear_generation) ++counters_.dropped_images;
    // Its namespace may have been cleared while it was on its way.
    return !same && stored != 0 && clear_generation_ != work.clear_generation;
}

void Pool::forget_store(const StoreWork &work) {
    const Lock lock(mutex_);
    std::erase_if(open_stores_, [&](const OpenStore &store) {
        return std::memcmp(store.key.bytes, work.key.bytes, sizeof work.key.bytes) == 0;
    });
}

pkv_status Pool::flush(uint64_t timeout_ns) { return cleaner_ != nullptr ? cleaner_->flush(timeout_ns) : PKV_OK; }

// ---- pages that a caller holds -------------------------------------------------------------------------------------

/// Stores pages that the caller holds; several at once, as far as there is staging memory.
void Pool::store_pages(std::span<PageStore> stores, uint64_t deadline_ns, const std::function<bool()> &cancelled) {
    // A pinned image that arrives when nobody waits for it any more is nobody's: it goes again.
    enum : int { under_way, ended, abandoned };
    struct Open {
        size_t item;
        std::array<std::shared_ptr<Request>, PKV_MAX_TIERS> requests;
        std::shared_ptr<std::atomic<int>> state;
    };
    std::deque<Open> open;
    const uint64_t most = std::max<uint64_t>(tiers_->staging().slots() / 4, 1);
    /// Waits for `done` (given a time until which it may take); why it gave up, or PKV_OK.
    auto wait_for = [&](auto &&done) -> pkv_status {
        for (;;) {
            const uint64_t now = monotonic_ns();
            if (done(cancelled ? std::min(deadline_ns, now + cancel_poll_ns) : deadline_ns)) return PKV_OK;
            if (cancelled && cancelled()) return PKV_ERR_CANCELLED;
            if (now >= deadline_ns) return PKV_ERR_TIMEOUT;
        }
    };
    auto finish = [&](const Open &one) {
        PageStore &store = stores[one.item];
        store.status = PKV_ERR_NO_SPACE;
        for (uint32_t tier = 0; tier < tiers_->size(); ++tier) {
            const auto &request = one.requests[tier];
            if (request == nullptr) continue;
            pkv_status status = wait_for([&](uint64_t until) { return request->wait_until(until); });
            if (status != PKV_OK && one.state != nullptr && one.state->exchange(abandoned) == ended) status = PKV_OK;
            if (status == PKV_OK) {
                status = request->status(0);
            } else {
                if (status == PKV_ERR_TIMEOUT) request->tier().note_timeout();
                request->tier().cancel(*request);
            }
            if (status == PKV_OK) store.stored |= 1u << tier;
            if (store.status != PKV_OK) store.status = status;
        }
    };
    for (size_t i = 0; i < stores.size(); ++i) {
        PageStore &store = stores[i];
        store.status = cancelled && cancelled() ? PKV_ERR_CANCELLED : PKV_OK;
        if (store.status != PKV_OK) continue;
        while (open.size() >= most) {
            finish(open.front());
            open.pop_front();
        }
        Fences after;
        if (device_ != nullptr) { // waits before it has a slot: others need those meanwhile
            after = before_reading(store.group, store.page);
            after |= store.after;
            store.status = device_->order().wait(after);
            if (store.status != PKV_OK) continue;
        }
        std::shared_ptr<std::byte> slot;
        store.status = wait_for([&](uint64_t until) {
            slot = tiers_->staging().acquire(until);
            return slot != nullptr;
        });
        if (store.status != PKV_OK) continue;
        store.status =
            pack(store.group, store.page, {store.key, store.block, store.tokens, store.rows}, slot.get(), after);
        if (store.status != PKV_OK) continue;
        Open one{i, {}, nullptr};
        std::function<void(Request &)> on_end;
        if (store.pin) {
            one.state = std::make_shared<std::atomic<int>>(under_way);
            on_end = [state = one.state](Request &request) {
                if (state->exchange(ended) != abandoned || request.status(0) != PKV_OK) return;
                RequestItems items;
                items.kind = PKV_TIER_REMOVE;
                items.flags = PKV_TIER_FORCE;
                items.keys = request.items().keys;
                request.tier().submit(std::move(items));
            };
        }
        for (uint32_t tier = 0; tier < tiers_->size(); ++tier) {
            if ((store.tiers >> tier & 1) == 0 || (!store.pin && !(*tiers_)[tier].tier->available())) continue;
            one.requests[tier] = tiers_->store(tier, store.key, slot, groups_[store.group].image.image_bytes(),
                                               store.retention, store.tag, store.pin, on_end);
        }
        open.push_back(std::move(one));
    }
    for (const Open &one : open) finish(one);
}

} // namespace pkv
