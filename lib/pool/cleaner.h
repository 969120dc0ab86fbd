// SPDX-License-Identifier: Apache-2.0
// The thread that stores pages of one pool in its tiers, as their policies ask for it, so that an eviction finds the image
// where it has to be. It also drains a host tier into the tier below.
#pragma once

#include "pool/pool.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace pkv {

class Cleaner {
  public:
    /// Starts the thread; throws std::system_error. `pool` outlives it.
    explicit Cleaner(Pool &pool);
    ~Cleaner();
    Cleaner(const Cleaner &) = delete;
    Cleaner &operator=(const Cleaner &) = delete;

    void stop(); ///< ends the thread
    /// There may be work. Cheap, also with the pool's lock held.
    void wake() {
        if (asleep_.load(std::memory_order_relaxed)) wake_sleeper();
    }
    /// Pages that are being stored.
    uint64_t open_stores() const { return open_.load(std::memory_order_acquire); }
    /// Stores all that is missing in tiers, also what is far from eviction.
    pkv_status flush(uint64_t timeout_ns);

  private:
    /// What ended in a tier; outlives the cleaner, for requests that do.
    struct Inbox;
    /// A page whose stores are under way.
    struct Store {
        StoreWork work;
        uint32_t open = 0; // requests
        uint32_t stored = 0;
        uint32_t failed = 0;
    };

    void run();
    bool begin_one();
    bool take_ended();
    void end(Store &store);
    bool tell_used();
    bool demote();
    bool demote_one(uint32_t below, const pkv_tier_victim &victim);
    void sleep();
    void wake_sleeper();

    Pool &pool_;
    std::shared_ptr<Inbox> inbox_;
    std::vector<std::unique_ptr<Store>> stores_; // by number; empty ones are free
    std::vector<size_t> free_stores_;
    uint64_t demotions_ = 0;       // under way
    bool demotion_failed_ = false; // of those that ended last
    bool postponed_ = false;       // there is a page to store, which a device still writes
    std::atomic<uint64_t> open_{0};
    std::atomic<bool> asleep_{false};
    std::atomic<uint32_t> flushes_{0};
    bool stop_ = false; // guarded by the inbox's mutex
    std::thread thread_;
};

} // namespace pkv
