// SPDX-License-Identifier: Apache-2.0
// Images that somebody is loading: a second one who wants the same waits for the first instead of loading it twice.
#pragma once

#include <pagedkv/tier_ops.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <unordered_set>

namespace pkv {

class InFlight {
  public:
    /// True: the caller loads it now, and calls end(). False: somebody else does.
    bool begin(const pkv_tier_key &key) {
        const std::lock_guard lock(mutex_);
        return keys_.insert(key).second;
    }
    void end(const pkv_tier_key &key) {
        {
            const std::lock_guard lock(mutex_);
            keys_.erase(key);
        }
        ended_.notify_all();
    }
    /// Waits until nobody loads it; false when `timeout_ns` passed first.
    bool wait(const pkv_tier_key &key, uint64_t timeout_ns) {
        std::unique_lock lock(mutex_);
        const auto limit = std::chrono::nanoseconds(timeout_ns < 3'600'000'000'000 ? timeout_ns : 3'600'000'000'000);
        return ended_.wait_for(lock, limit, [&] { return !keys_.contains(key); });
    }

  private:
    struct Hash {
        size_t operator()(const pkv_tier_key &key) const {
            size_t value; // any 8 bytes of a digest are a good hash
            std::memcpy(&value, key.bytes, sizeof value);
            return value;
        }
    };
    struct Equal {
        bool operator()(const pkv_tier_key &a, const pkv_tier_key &b) const {
            return std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
        }
    };
    std::mutex mutex_;
    std::condition_variable ended_;
    std::unordered_set<pkv_tier_key, Hash, Equal> keys_;
};

} // namespace pkv
