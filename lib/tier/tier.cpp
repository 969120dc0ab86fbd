// SPDX-License-Identifier: Apache-2.0
#include "tier/tier.h"

#include "core/clock.h"

#include <algorithm>
#include <cinttypes>
#include <csignal>
#include <pthread.h>
#include <utility>

namespace pkv {

/// What is left of a tier that is to be closed on another thread.
struct Tier::Remains {
    void (*close)(void *context);
    void *context;
    Remains *next = nullptr;
};

namespace {

constexpr uint64_t probe_ns = 1'000'000'000;

std::mutex remains_mutex;

void *close_all(void *) {
    Tier::close_remains();
    return nullptr;
}

/// Starts a thread that nobody waits for. Signals are the host's: none is handled on it.
bool start_closing() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_attr_t detached;
    if (pthread_attr_init(&detached) != 0) return false;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    const int error = pthread_create(&thread, &detached, close_all, nullptr);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&detached);
    return error == 0;
}

template <class T> const T *or_null(const std::vector<T> &list) { return list.empty() ? nullptr : list.data(); }

} // namespace

Tier::Remains *Tier::first_remains_ = nullptr;

Tier::Tier(const pkv_tier_ops &ops, void *context, const TierInside *inside)
    : ops_(ops), context_(context), inside_(inside),
      seen_(inside == nullptr ? std::make_unique<SeenImages>() : nullptr), remains_(std::make_unique<Remains>()) {
    if (ops_.name == nullptr) ops_.name = "tier";
    close_remains(); // of an earlier one for which no thread could be started
}

Tier::~Tier() {
    if (ops_.close == nullptr) return;
    if (!InCompletion::active()) {
        ops_.close(context_);
        return;
    }
    *remains_ = {ops_.close, context_};
    {
        const std::lock_guard lock(remains_mutex);
        remains_->next = first_remains_;
        first_remains_ = remains_.release();
    }
    start_closing(); // or else the next tier that is made does it
}

void Tier::close_remains() {
    for (;;) {
        std::unique_ptr<Remains> next;
        {
            const std::lock_guard lock(remains_mutex);
            if (first_remains_ == nullptr) return;
            next.reset(std::exchange(first_remains_, first_remains_->next));
        }
        next->close(next->context);
    }
}

std::shared_ptr<Request> Tier::submit(RequestItems items, std::function<void(Request &)> on_end) {
    // Kept until submit() of the tier has returned, also when the request ends inside it and everybody lets go of the tier.
    const std::shared_ptr<Tier> self = shared_from_this();
    const bool changes = items.kind == PKV_TIER_STORE || items.kind == PKV_TIER_REMOVE || items.kind == PKV_TIER_CLEAR;
    if (seen_ != nullptr && changes && seen_->watches().any())
        on_end = [next = std::move(on_end)](Request &ended) {
            ended.tier().seen_->note(ended);
            if (next) next(ended);
        };
    const auto request = std::make_shared<Request>(self, std::move(items), std::move(on_end));
    request->handle_ = reinterpret_cast<pkv_tier_request *>(open_handle(Request::handle_kind, request));
    open_requests_.fetch_add(1, std::memory_order_relaxed);
    if (request->num_items() == 0) {
        request->end();
        return request;
    }
    const RequestItems &list = request->items();
    pkv_tier_batch &batch = request->batch_;
    batch.struct_size = sizeof batch;
    batch.kind = list.kind;
    batch.flags = list.flags;
    batch.num_items = request->num_items();
    batch.keys = or_null(list.keys);
    batch.data = or_null(list.data);
    batch.offsets = or_null(list.offsets);
    batch.sizes = or_null(list.sizes);
    batch.retention = or_null(list.retention);
    batch.tags = or_null(list.tags);
    batch.deadline_ns = list.deadline_ns;
    batch.urgent = list.urgent ? 1 : 0;
    batch.request = request->handle_;
    pkv_status status = PKV_ERR_LIMIT; // no handle was left
    if (request->handle_ != nullptr) status = ops_.submit(context_, &batch);
    if (status != PKV_OK) request->fail_all(status);
    return request;
}

void Tier::cancel(Request &request) {
    if (ops_.cancel != nullptr && request.handle_ != nullptr && !request.ended())
        ops_.cancel(context_, request.handle_);
}

Tier::InPlace::InPlace(const Tier &tier, const pkv_tier_key &key) : tier_(tier), key_(key) {
    const bool lends = tier.inside_ != nullptr && tier.inside_->lend != nullptr;
    data_ = static_cast<const std::byte *>(lends ? tier.inside_->lend(tier.context_, key, number_) : tier.address(key));
}

Tier::InPlace::~InPlace() {
    if (data_ != nullptr && tier_.inside_ != nullptr && tier_.inside_->give_back != nullptr)
        tier_.inside_->give_back(tier_.context_, number_);
}

pkv_tier_usage Tier::usage() const {
    pkv_tier_usage usage = PKV_TIER_USAGE_INIT;
    if (ops_.usage != nullptr) ops_.usage(context_, &usage);
    return usage;
}

uint64_t Tier::list(uint64_t &cursor, std::span<pkv_tier_key> keys) {
    if (inside_ != nullptr) return inside_->list(context_, cursor, keys);
    const uint64_t count = seen_->list(cursor, keys);
    if (count == 0) return 0;
    RequestItems items;
    items.kind = PKV_TIER_PROBE;
    items.deadline_ns = monotonic_ns() + probe_ns;
    items.keys.assign(keys.begin(), keys.begin() + static_cast<ptrdiff_t>(count));
    const auto request = submit(std::move(items));
    if (!request->wait_until(monotonic_ns() + probe_ns)) {
        cancel(*request);
        return 0;
    }
    uint64_t found = 0;
    for (uint64_t i = 0; i < count; ++i) {
        const pkv_tier_key key = keys[i];
        if (request->status(i) == PKV_OK)
            keys[found++] = key;
        else if (request->status(i) == PKV_ERR_NOT_FOUND)
            seen_->forget(key);
    }
    return found;
}

// ---- the breaker

bool Tier::available() {
    uint64_t until = rests_until_ns_.load(std::memory_order_relaxed);
    if (until == 0) return true;
    const uint64_t now = monotonic_ns();
    if (now < until) return false;
    // The rest is over: one may try. If nothing is heard of that trial, there is another one after a short while.
    if (!rests_until_ns_.compare_exchange_strong(until, now + rest_ns, std::memory_order_relaxed)) return until == 0;
    trial_.store(true, std::memory_order_relaxed);
    return true;
}

void Tier::note_result(bool good) {
    uint64_t until = rests_until_ns_.load(std::memory_order_relaxed);
    if (good) {
        if (failures_.load(std::memory_order_relaxed) != 0) failures_.store(0, std::memory_order_relaxed);
        if (until == 0 || rests_until_ns_.exchange(0, std::memory_order_relaxed) == 0) return;
        rest_length_ns_.store(rest_ns, std::memory_order_relaxed);
        trial_.store(false, std::memory_order_relaxed);
        log_message(PKV_LOG_INFO, "tier %s: at work again", name());
        return;
    }
    const uint32_t failures = failures_.fetch_add(1, std::memory_order_relaxed) + 1;
    uint64_t length = rest_length_ns_.load(std::memory_order_relaxed);
    if (until != 0) {
        // Only a trial says something new; others were begun before the rest.
        if (!trial_.exchange(false, std::memory_order_relaxed)) return;
        length = std::min(2 * length, longest_rest_ns);
        rest_length_ns_.store(length, std::memory_order_relaxed);
        rests_until_ns_.store(monotonic_ns() + length, std::memory_order_relaxed);
    } else if (failures < failures_to_rest ||
               !rests_until_ns_.compare_exchange_strong(until, monotonic_ns() + length, std::memory_order_relaxed)) {
        return;
    }
    breaker_trips_.fetch_add(1, std::memory_order_relaxed);
    log_message(PKV_LOG_WARNING, "tier %s: %u failures in a row, it rests for %" PRIu64 " ms", name(), failures,
                length / 1'000'000);
}

namespace {

bool says_nothing(pkv_status status) {
    return status == PKV_ERR_NOT_FOUND || status == PKV_ERR_NO_SPACE || status == PKV_ERR_CANCELLED;
}

} // namespace

void Tier::note_load(pkv_status status, uint64_t bytes) {
    (status == PKV_OK ? loads_ : failed_loads_).fetch_add(1, std::memory_order_relaxed);
    if (status == PKV_OK) bytes_loaded_.fetch_add(bytes, std::memory_order_relaxed);
    if (!says_nothing(status)) note_result(status == PKV_OK);
}

void Tier::note_store(pkv_status status, uint64_t bytes) {
    (status == PKV_OK ? stores_ : failed_stores_).fetch_add(1, std::memory_order_relaxed);
    if (status == PKV_OK) bytes_stored_.fetch_add(bytes, std::memory_order_relaxed);
    if (!says_nothing(status)) note_result(status == PKV_OK);
}

void Tier::note_lookup(uint64_t asked, uint64_t found) {
    lookups_.fetch_add(asked, std::memory_order_relaxed);
    hits_.fetch_add(found, std::memory_order_relaxed);
}

void Tier::stats(pkv_tier_stats &out) const {
    const auto get = [](const std::atomic<uint64_t> &counter) { return counter.load(std::memory_order_relaxed); };
    out = pkv_tier_stats PKV_TIER_STATS_INIT;
    out.usage = usage();
    out.lookups = get(lookups_);
    out.hits = get(hits_);
    out.loads = get(loads_);
    out.failed_loads = get(failed_loads_);
    out.stores = get(stores_);
    out.failed_stores = get(failed_stores_);
    out.bytes_loaded = get(bytes_loaded_);
    out.bytes_stored = get(bytes_stored_);
    out.checksum_failures = get(checksum_failures_);
    out.timeouts = get(timeouts_);
    out.double_completions = get(double_completions_);
    out.open_requests = get(open_requests_);
    out.breaker_trips = get(breaker_trips_);
    out.resting = get(rests_until_ns_) > monotonic_ns() ? 1 : 0;
}

} // namespace pkv
