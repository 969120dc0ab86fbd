// SPDX-License-Identifier: Apache-2.0
// Which images can be found in a tier, for those who tell others (the directory of nodes): a list of them, and a word
// whenever it changes. Private images are none of it: nobody else asks for them.
#pragma once

#include "core/mutex.h"
#include "tier/request.h"

#include <pagedkv/tier_ops.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace pkv {

struct TierKeyHash {
    size_t operator()(const pkv_tier_key &key) const {
        size_t value; // any 8 bytes of a digest are a good hash
        std::memcpy(&value, key.bytes, sizeof value);
        return value;
    }
};
struct TierKeyEqual {
    bool operator()(const pkv_tier_key &a, const pkv_tier_key &b) const {
        return std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
    }
};

class TierWatch {
  public:
    virtual ~TierWatch() = default;
    /// An image of this key became findable in a tier, or ceased to be: Tier::has() says which, by then. With the
    /// tier's lock held: it must be quick, and call nothing of the tier's.
    virtual void changed(const pkv_tier_key &key) noexcept = 0;
};

/// Those who watch one tier.
class TierWatches {
  public:
    void add(TierWatch *watch) {
        const Lock lock(mutex_);
        watches_.push_back(watch);
        any_.store(true, std::memory_order_release);
    }
    /// After it nothing is called any more.
    void remove(TierWatch *watch) {
        const Lock lock(mutex_);
        std::erase(watches_, watch);
        any_.store(!watches_.empty(), std::memory_order_release);
    }
    bool any() const { return any_.load(std::memory_order_acquire); }
    void changed(const pkv_tier_key &key) {
        if (!any()) return;
        const Lock lock(mutex_);
        for (TierWatch *const watch : watches_) watch->changed(key);
    }

  private:
    std::atomic<bool> any_{false};
    Mutex mutex_;
    std::vector<TierWatch *> watches_ PKV_GUARDED_BY(mutex_);
};

/// What a tier of this library can do besides its public table.
struct TierInside {
    TierWatches &(*watches)(void *context);
    bool (*has)(void *context, const pkv_tier_key &key);
    /// As Tier::list().
    uint64_t (*list)(void *context, uint64_t &cursor, std::span<pkv_tier_key> keys);
    /// NULL, or: as Tier::image_memory().
    std::span<std::byte> (*memory)(void *context);
    /// NULL, or: where an image lies, which nothing else is put in place of until give_back() of the number; NULL: there is none.
    const void *(*lend)(void *context, const pkv_tier_key &key, uint32_t &number);
    void (*give_back)(void *context, uint32_t number);
};

/// What is known of a tier of somebody else's: images that were stored in it while somebody watched. It may have
/// forgotten any of them since, without a word.
class SeenImages {
  public:
    TierWatches &watches() { return watches_; }
    bool has(const pkv_tier_key &key);
    void forget(const pkv_tier_key &key);
    uint64_t list(uint64_t &cursor, std::span<pkv_tier_key> keys);
    /// A request of the kinds STORE, REMOVE and CLEAR has ended.
    void note(const Request &request);

  private:
    static constexpr size_t most_seen = 1u << 20; // more are not told of
    struct Seen {
        pkv_tier_key key;
        uint64_t tag;
    };
    void add(const pkv_tier_key &key, uint64_t tag) PKV_REQUIRES(mutex_);
    bool erase(const pkv_tier_key &key) PKV_REQUIRES(mutex_);

    TierWatches watches_;
    Mutex mutex_;
    std::vector<Seen> seen_ PKV_GUARDED_BY(mutex_);
    std::unordered_map<pkv_tier_key, size_t, TierKeyHash, TierKeyEqual> places_ PKV_GUARDED_BY(mutex_); // in seen_
};

} // namespace pkv
