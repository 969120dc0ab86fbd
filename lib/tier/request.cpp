// SPDX-License-Identifier: Apache-2.0
#include "tier/request.h"

#include "core/wait.h"
#include "tier/tier.h"

#include <cinttypes>
#include <utility>

namespace pkv {
namespace {

thread_local uint32_t completions_on_this_thread = 0;

} // namespace

InCompletion::InCompletion() { ++completions_on_this_thread; }
InCompletion::~InCompletion() { --completions_on_this_thread; }
bool InCompletion::active() { return completions_on_this_thread != 0; }

Request::Request(std::shared_ptr<Tier> tier, RequestItems items, std::function<void(Request &)> on_end)
    : tier_(tier.get()), keeps_tier_(std::move(tier)), items_(std::move(items)), on_end_(std::move(on_end)),
      results_(std::make_unique<Result[]>(num_items())), open_(num_items()) {}

pkv_status Request::complete(uint64_t item, pkv_status status, uint64_t value) {
    if (item >= num_items())
        return fail(PKV_ERR_INVALID, "item %" PRIu64 " of a request of %" PRIu64, item, num_items());
    Result &result = results_[item];
    int32_t state = 0;
    if (!result.state.compare_exchange_strong(state, 1, std::memory_order_relaxed)) {
        if (const std::lock_guard lock(mutex_); keeps_tier_ != nullptr)
            tier_->double_completions_.fetch_add(1, std::memory_order_relaxed);
        return fail(PKV_ERR_STATE, "item %" PRIu64 " of the request has ended already", item);
    }
    result.status = status;
    result.value = value;
    result.state.store(2, std::memory_order_release);
    if (open_.fetch_sub(1, std::memory_order_acq_rel) == 1)
        end(); // acquires what the other items' threads have written
    return PKV_OK;
}

void Request::fail_all(pkv_status status) {
    for (uint64_t item = 0; item < num_items(); ++item)
        if (results_[item].state.load(std::memory_order_relaxed) == 0) complete(item, status, 0);
}

/// Called once, by whoever ended the last item. The handle keeps the request alive up to its last line.
void Request::end() {
    tier_->open_requests_.fetch_sub(1, std::memory_order_relaxed);
    if (const auto on_end = std::exchange(on_end_, nullptr); on_end) on_end(*this);
    // The tier is let go of before anybody wakes: so the one who waited has it last, and closes it, rather than this thread.
    std::shared_ptr<Tier> tier;
    {
        const std::lock_guard lock(mutex_);
        tier.swap(keeps_tier_);
    }
    tier.reset();
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
        woken_.notify_all(); // under the lock: a waiter may be the last but the handle to own it
    }
    Pin<Request> pin;
    if (handle_ != nullptr && pin.acquire(handle_) == PKV_OK) pin.close();
}

bool Request::wait_until(uint64_t deadline_ns) {
    std::unique_lock lock(mutex_);
    return pkv::wait_until(woken_, lock, deadline_ns, [this] { return over_; });
}

pkv_status Request::status(uint64_t item) const {
    const Result &result = results_[item];
    return result.state.load(std::memory_order_acquire) == 2 ? result.status : PKV_ERR_BUSY;
}

} // namespace pkv
