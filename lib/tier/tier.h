// SPDX-License-Identifier: Apache-2.0
// A tier as pools see it: a table of functions, its numbers, and a breaker that lets it rest after repeated failures.
#pragma once

#include "core/handles.h"
#include "tier/request.h"
#include "tier/watch.h"

#include <pagedkv/tier.h>

#include <atomic>
#include <functional>
#include <memory>

namespace pkv {

class Tier : public std::enable_shared_from_this<Tier> {
  public:
    static constexpr HandleKind handle_kind = HandleKind::tier;

    /// The context goes with the tier: ops.close is called by the destructor, or, when that runs inside a completion, by a
    /// thread of its own soon after (see InCompletion). `inside`, for tiers of this library: must stay.
    Tier(const pkv_tier_ops &ops, void *context, const TierInside *inside = nullptr);
    ~Tier();
    Tier(const Tier &) = delete;
    Tier &operator=(const Tier &) = delete;

    /// Sets ops.close later: a tier that could not be handed out leaves the context to its maker.
    void close_with(void (*close)(void *context)) { ops_.close = close; }

    const char *name() const { return ops_.name; }

    /// Begins a request. It always ends: when the tier refuses it, at once. May throw std::bad_alloc, with nothing begun.
    std::shared_ptr<Request> submit(RequestItems items, std::function<void(Request &)> on_end = {});
    void cancel(Request &request);

    bool has_address() const { return ops_.address != nullptr; }
    const void *address(const pkv_tier_key &key) const {
        return ops_.address != nullptr ? ops_.address(context_, &key) : nullptr;
    }
    /// An image that is read where it lies. While one lives nothing else is put in its place, if the tier is this library's;
    /// in a tier of somebody else's that may happen once the image was taken away.
    class InPlace {
      public:
        InPlace(const Tier &tier, const pkv_tier_key &key);
        ~InPlace();
        InPlace(const InPlace &) = delete;
        InPlace &operator=(const InPlace &) = delete;

        const std::byte *data() const { return data_; } ///< nullptr: there is no such image
        /// Whether it is still the tier's: a clear takes images away although they are pinned.
        bool holds() const { return tier_.address(key_) == data_; }

      private:
        const Tier &tier_;
        const pkv_tier_key key_;
        const std::byte *data_;
        uint32_t number_ = 0;
    };
    /// What all addresses point into, as long as the tier lives; empty for a tier that keeps its images elsewhere.
    std::span<std::byte> image_memory() const {
        return inside_ != nullptr && inside_->memory != nullptr ? inside_->memory(context_) : std::span<std::byte>();
    }
    bool has_victims() const { return ops_.victims != nullptr; }
    uint64_t victims(std::span<pkv_tier_victim> list) const {
        return ops_.victims != nullptr ? ops_.victims(context_, list.data(), list.size()) : 0;
    }
    void memory(void *base, uint64_t bytes, bool add) const {
        if (ops_.memory != nullptr) ops_.memory(context_, base, bytes, add);
    }
    pkv_tier_usage usage() const;

    // Which images can be found, private ones left out. Of a tier that is not this library's: those that were stored in it while
    // it was watched.

    TierWatches &watches() { return inside_ != nullptr ? inside_->watches(context_) : seen_->watches(); }
    bool has(const pkv_tier_key &key) { return inside_ != nullptr ? inside_->has(context_, key) : seen_->has(key); }
    /// Some of them, from a cursor on: 0 to begin with, and 0 again after the last. Returns how many, which may be none before
    /// the last, too. What comes and goes meanwhile may be in it or not; what stays is in it (with rare exceptions in tiers of
    /// others). May wait: those of others are asked, for up to a second, whether they have what is listed.
    uint64_t list(uint64_t &cursor, std::span<pkv_tier_key> keys);

    /// False while the tier rests after repeated failures; of those who ask when the rest is over one is told true, as a
    /// trial. Blocks of live sequences are asked for in any case.
    bool available();
    /// What became of a load or a store of whole images: for the breaker and the numbers. PKV_ERR_NOT_FOUND and
    /// PKV_ERR_NO_SPACE are no failures of the tier, nor is PKV_ERR_CANCELLED. They may call the log: with no lock held.
    void note_load(pkv_status status, uint64_t bytes);
    void note_store(pkv_status status, uint64_t bytes);
    void note_bad_image() { checksum_failures_.fetch_add(1, std::memory_order_relaxed); }
    void note_timeout() { timeouts_.fetch_add(1, std::memory_order_relaxed); }
    /// A lookup was not answered within the tier's own time: a failure for the breaker, so that not everybody waits as long.
    void note_no_answer() {
        note_timeout();
        note_result(false);
    }
    void note_lookup(uint64_t asked, uint64_t found);

    void stats(pkv_tier_stats &out) const;

    /// Closes tiers that ended inside a completion (see InCompletion); more than one thread may.
    static void close_remains();

  private:
    friend class Request;
    struct Remains;
    void note_result(bool good);

    static constexpr uint32_t failures_to_rest = 8;    // in a row
    static constexpr uint64_t rest_ns = 2'000'000'000; // doubled with each trial that fails
    static constexpr uint64_t longest_rest_ns = 64'000'000'000;
    static Remains *first_remains_;

    pkv_tier_ops ops_;
    void *context_;
    const TierInside *inside_;
    std::unique_ptr<SeenImages> seen_; // without `inside`
    std::unique_ptr<Remains> remains_; // made beforehand: what it is for must not fail
    std::atomic<uint64_t> lookups_{0}, hits_{0}, loads_{0}, failed_loads_{0}, stores_{0}, failed_stores_{0};
    std::atomic<uint64_t> bytes_loaded_{0}, bytes_stored_{0}, checksum_failures_{0}, timeouts_{0};
    std::atomic<uint64_t> double_completions_{0}, open_requests_{0}, breaker_trips_{0};
    std::atomic<uint32_t> failures_{0};       // in a row
    std::atomic<uint64_t> rests_until_ns_{0}; // 0 = at work
    std::atomic<uint64_t> rest_length_ns_{rest_ns};
    std::atomic<bool> trial_{false}; // one was let through, and has not reported
};

} // namespace pkv
