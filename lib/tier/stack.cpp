// SPDX-License-Identifier: Apache-2.0
#include "tier/stack.h"

#include "core/clock.h"
#include "core/wait.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

namespace pkv {
namespace {

constexpr uint64_t min_slots = 8;
constexpr uint64_t max_slots = 1024;
constexpr uint64_t cancel_poll_ns = 2'000'000;

std::vector<pkv_tier_key> list_of(std::span<const pkv_tier_key> keys) { return {keys.begin(), keys.end()}; }

/// A lookup that somebody waits for; nullptr when the answer is not there in time. Nobody takes over the pins of an answer that
/// comes later: they go back then.
std::shared_ptr<Request> look_up(Tier &tier, RequestItems items, uint64_t deadline_ns) {
    struct Late {
        std::mutex mutex;
        bool ended = false;
        bool abandoned = false;
    };
    items.kind = PKV_TIER_LOOKUP;
    items.urgent = true;
    items.deadline_ns = deadline_ns;
    auto late = std::make_shared<Late>();
    const auto request = tier.submit(std::move(items), [late](Request &ended) {
        {
            const std::lock_guard lock(late->mutex);
            late->ended = true;
            if (!late->abandoned) return;
        }
        RequestItems pins;
        pins.kind = PKV_TIER_UNPIN;
        for (uint64_t i = 0; (ended.items().flags & PKV_TIER_PIN) != 0 && i < ended.num_items(); ++i)
            if (ended.status(i) == PKV_OK) pins.keys.push_back(ended.items().keys[i]);
        if (!pins.keys.empty()) ended.tier().submit(std::move(pins));
    });
    if (request->wait_until(deadline_ns)) return request;
    {
        const std::lock_guard lock(late->mutex);
        late->abandoned = !late->ended;
        if (!late->abandoned) return request;
    }
    tier.note_no_answer();
    tier.cancel(*request);
    return nullptr;
}

} // namespace

pkv_status TierStack::create(std::vector<Attachment> tiers, uint64_t image_bytes, uint64_t staging_bytes,
                             const Staging::Supply &supply) {
    // Tiers hear of the memory before the first request and when it goes; by then they may be gone themselves.
    std::vector<std::weak_ptr<Tier>> told;
    for (const Attachment &item : tiers) told.push_back(item.tier);
    auto on_gone = [told](void *memory, uint64_t bytes) {
        for (const auto &tier : told)
            if (const auto alive = tier.lock()) alive->memory(memory, bytes, false);
    };
    PKV_TRY(
        staging_.create(image_bytes, std::clamp(staging_bytes / image_bytes, min_slots, max_slots), supply, on_gone));
    tiers_ = std::move(tiers);
    for (const Attachment &item : tiers_) item.tier->memory(staging_.memory(), staging_.memory_bytes(), true);
    return PKV_OK;
}

// ---- lookups -------------------------------------------------------------------------------------------------------

void TierStack::locate(std::span<const pkv_tier_key> keys, bool pin, std::span<int8_t> where,
                       std::span<uint64_t> bytes) {
    std::fill(where.begin(), where.end(), no_tier);
    for (uint32_t t = 0; t < size(); ++t) {
        Tier &tier = *tiers_[t].tier;
        std::vector<size_t> asked;
        RequestItems items;
        items.flags = pin ? PKV_TIER_PIN : 0;
        for (size_t i = 0; i < keys.size(); ++i)
            if (where[i] == no_tier) {
                asked.push_back(i);
                items.keys.push_back(keys[i]);
            }
        if (asked.empty()) return;
        if (!tier.available()) continue;
        const auto request = look_up(tier, std::move(items), deadline_after(tiers_[t].timeout_ns));
        if (request == nullptr) continue;
        uint64_t found = 0;
        for (size_t i = 0; i < asked.size(); ++i)
            if (request->status(i) == PKV_OK) {
                where[asked[i]] = static_cast<int8_t>(t);
                if (!bytes.empty()) bytes[asked[i]] = request->value(i);
                ++found;
            }
        tier.note_lookup(asked.size(), found);
    }
}

void TierStack::unpin(uint32_t tier, std::span<const pkv_tier_key> keys) {
    if (keys.empty()) return;
    RequestItems items;
    items.kind = PKV_TIER_UNPIN;
    items.keys = list_of(keys);
    tiers_[tier].tier->submit(std::move(items));
}

std::shared_ptr<Request> TierStack::remove(uint32_t tier, std::span<const pkv_tier_key> keys, uint32_t flags) {
    if (keys.empty()) return nullptr;
    RequestItems items;
    items.kind = PKV_TIER_REMOVE;
    items.flags = flags;
    items.keys = list_of(keys);
    return tiers_[tier].tier->submit(std::move(items));
}

void TierStack::retain(std::span<const pkv_tier_key> keys, const pkv_retention &retention) {
    if (keys.empty()) return;
    for (const Attachment &at : tiers_) {
        RequestItems items;
        items.kind = PKV_TIER_RETAIN;
        items.keys = list_of(keys);
        items.retention.assign(keys.size(), retention);
        at.tier->submit(std::move(items));
    }
}

void TierStack::clear(const std::vector<uint64_t> &tags) {
    for (const Attachment &at : tiers_) {
        RequestItems items;
        items.kind = PKV_TIER_CLEAR;
        items.tags = tags;
        const uint64_t deadline = deadline_after(at.timeout_ns);
        at.tier->submit(std::move(items))->wait_until(deadline);
    }
}

// ---- loads ---------------------------------------------------------------------------------------------------------

pkv_status TierStack::note_load(uint32_t tier, const pkv_tier_key &key, pkv_status status, bool good, uint64_t bytes) {
    Tier &from = *tiers_[tier].tier;
    if (status == PKV_OK && good) {
        from.note_load(PKV_OK, bytes);
        return PKV_OK;
    }
    if (status == PKV_OK) {
        from.note_bad_image();
        status = PKV_ERR_IO;
    }
    // Not the image, or none that can be read: nobody shall find it again.
    if (status == PKV_ERR_IO) remove(tier, {&key, 1}, PKV_TIER_FORCE);
    from.note_load(status, 0);
    return status;
}

/// What happened to one load from one tier.
void TierStack::take_arrival(LoadItem &item, int8_t tier, pkv_status status, bool good, uint64_t bytes) {
    status = note_load(static_cast<uint32_t>(tier), item.key, status, good, bytes);
    if (status == PKV_OK) {
        item.status = PKV_OK;
        item.from = tier;
    } else if (item.status == PKV_ERR_NOT_FOUND || status != PKV_ERR_NOT_FOUND) {
        // What failed with an error is lost; another tier may still have it. "Not found" says the least.
        item.status = status;
    }
}

void TierStack::load_in_place(LoadItem &item, size_t index, int8_t tier, const Consumer &consume,
                              uint64_t deadline_ns) {
    Tier &from = *tiers_[static_cast<uint32_t>(tier)].tier;
    RequestItems items;
    items.flags = PKV_TIER_PIN;
    items.keys.push_back(item.key);
    const uint64_t answer_by = deadline_after(tiers_[static_cast<uint32_t>(tier)].timeout_ns);
    const auto request = look_up(from, std::move(items), std::min(answer_by, deadline_ns));
    pkv_status status = request != nullptr ? request->status(0) : PKV_ERR_TIMEOUT;
    bool good = false;
    if (status == PKV_OK) {
        const Tier::InPlace image(from, item.key);
        good = image.data() != nullptr && request->value(0) == item.bytes &&
               consume(index, image.data(), item.bytes, nullptr);
        // A clear ends pins, too: what was read then may have been something else in part.
        if (good && !image.holds()) {
            good = false;
            status = PKV_ERR_NOT_FOUND;
        }
        unpin(static_cast<uint32_t>(tier), {&item.key, 1});
    }
    take_arrival(item, tier, status, good, item.bytes);
}

/// Where the requests of one load() report, also when that has returned.
struct TierStack::LoadRun {
    std::mutex mutex;
    std::condition_variable arrived;
    std::vector<size_t> done;     // numbers of requests that have ended; room is made before a request begins
    std::atomic<bool> any{false}; // of those
};

void TierStack::load(std::span<LoadItem> items, const Consumer &consume, uint64_t deadline_ns,
                     const std::function<bool()> &cancelled, const std::function<void()> &let_go) {
    struct Begun {
        size_t item;
        int8_t tier;
        std::shared_ptr<std::byte> slot;
        std::shared_ptr<Request> request;
    };
    std::vector<Begun> begun; // requests by number; freed entries are empty
    trace::PoolLoads traced(lanes_);
    auto run = std::make_shared<LoadRun>();
    std::deque<std::pair<size_t, int8_t>> todo; // item, tier to try next
    std::vector<bool> finished(items.size(), false);
    for (size_t i = 0; i < items.size(); ++i) {
        items[i].status = PKV_ERR_NOT_FOUND;
        todo.emplace_back(i, items[i].tier == no_tier ? int8_t{0} : items[i].tier);
    }
    uint64_t open = 0;
    pkv_status stop = PKV_OK;
    // After a tier gave no good image the next one is asked.
    auto settle = [&](size_t index, int8_t tier) {
        if (items[index].status == PKV_OK || tier + 1 >= static_cast<int>(size()))
            finished[index] = true;
        else
            todo.emplace_front(index, static_cast<int8_t>(tier + 1));
    };
    while (!todo.empty() || open > 0) {
        const uint64_t now = monotonic_ns();
        if (cancelled && cancelled()) stop = PKV_ERR_CANCELLED;
        if (now >= deadline_ns && stop == PKV_OK) stop = PKV_ERR_TIMEOUT;
        if (stop != PKV_OK) break;

        while (!todo.empty()) {
            const auto [index, tier] = todo.front();
            LoadItem &item = items[index];
            const Attachment &at = tiers_[static_cast<uint32_t>(tier)];
            if (!item.needed && item.tier != tier && !at.tier->available()) {
                todo.pop_front();
                settle(index, tier);
                continue;
            }
            if (at.tier->has_address()) {
                todo.pop_front();
                traced.begin(static_cast<uint32_t>(tier), at.tier->name());
                load_in_place(item, index, tier, consume, deadline_ns);
                traced.end(static_cast<uint32_t>(tier), item.status == PKV_OK ? item.bytes : 0);
                settle(index, tier);
                continue;
            }
            std::shared_ptr<std::byte> slot = staging_.acquire(0);
            if (slot == nullptr && open == 0) {
                if (let_go) let_go();
                slot = staging_.acquire(std::min(deadline_ns, now + cancel_poll_ns));
            }
            if (slot == nullptr) break;
            todo.pop_front();
            const size_t number = begun.size();
            {
                const std::lock_guard lock(run->mutex);
                run->done.reserve(number + 1);
            }
            begun.push_back({index, tier, slot, nullptr});
            traced.begin(static_cast<uint32_t>(tier), at.tier->name());
            begun[number].request = begin_load(static_cast<uint32_t>(tier), item.key, 0, item.bytes, std::move(slot),
                                               true, deadline_ns, [run, number](Request &) {
                                                   {
                                                       const std::lock_guard lock(run->mutex);
                                                       run->done.push_back(number);
                                                       run->any.store(true, std::memory_order_relaxed);
                                                   }
                                                   run->arrived.notify_one();
                                               });
            ++open;
            if (run->any.load(std::memory_order_relaxed)) break; // it is there, and maybe in the cache
        }

        std::vector<size_t> done;
        {
            std::unique_lock lock(run->mutex);
            if (run->done.empty() && open > 0) {
                const uint64_t left = deadline_ns - std::min(deadline_ns, monotonic_ns());
                const uint64_t wait = std::min<uint64_t>(left, cancelled ? cancel_poll_ns : 1'000'000'000);
                run->arrived.wait_for(lock, std::chrono::nanoseconds(wait), [&] { return !run->done.empty(); });
            }
            done.swap(run->done);
            run->any.store(false, std::memory_order_relaxed);
            run->done.reserve(begun.size() + 1);
        }
        for (const size_t number : done) {
            Begun &load = begun[number];
            LoadItem &item = items[load.item];
            --open;
            pkv_status status = load.request->status(0);
            if (status == PKV_OK && load.request->value(0) != item.bytes) status = PKV_ERR_IO; // came short
            const bool good = status == PKV_OK && consume(load.item, load.slot.get(), item.bytes, load.slot);
            take_arrival(item, load.tier, status, good, item.bytes);
            traced.end(static_cast<uint32_t>(load.tier), good ? item.bytes : 0);
            const size_t index = load.item;
            const int8_t tier = load.tier;
            load = {};
            settle(index, tier);
        }
    }
    if (stop == PKV_OK) return;
    for (size_t i = 0; i < items.size(); ++i)
        if (!finished[i]) items[i].status = stop;
    for (Begun &load : begun)
        if (load.request != nullptr && !load.request->ended()) {
            if (stop == PKV_ERR_TIMEOUT) load.request->tier().note_timeout();
            load.request->tier().cancel(*load.request);
        }
}

std::shared_ptr<Request> TierStack::begin_load(uint32_t tier, const pkv_tier_key &key, uint64_t offset, uint64_t bytes,
                                               std::shared_ptr<std::byte> slot, bool urgent, uint64_t deadline_ns,
                                               std::function<void(Request &)> on_end) {
    RequestItems items;
    items.kind = PKV_TIER_LOAD;
    items.urgent = urgent;
    items.deadline_ns = deadline_ns == UINT64_MAX ? 0 : deadline_ns;
    items.keys.push_back(key);
    items.data.push_back(slot.get());
    items.offsets.push_back(offset);
    items.sizes.push_back(bytes);
    items.buffers = std::move(slot);
    return tiers_[tier].tier->submit(std::move(items), std::move(on_end));
}

std::shared_ptr<Request> TierStack::store(uint32_t tier, const pkv_tier_key &key, std::shared_ptr<std::byte> slot,
                                          uint64_t bytes, const pkv_retention &retention, uint64_t tag, bool pin,
                                          std::function<void(Request &)> on_end) {
    RequestItems items;
    items.kind = PKV_TIER_STORE;
    items.flags = pin ? PKV_TIER_PIN : 0;
    items.urgent = pin;
    items.keys.push_back(key);
    items.data.push_back(slot.get());
    items.sizes.push_back(bytes);
    items.retention.push_back(retention);
    items.tags.push_back(tag);
    items.buffers = std::move(slot);
    return tiers_[tier].tier->submit(std::move(items), [bytes, end = std::move(on_end)](Request &request) {
        request.tier().note_store(request.status(0), bytes);
        if (end) end(request);
    });
}

} // namespace pkv
