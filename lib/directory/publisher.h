// SPDX-License-Identifier: Apache-2.0
// Tells one server where this node is and which images it has: those of which this server is to know. What changes in
// the tiers is told within moments, many entries at once; all of it is told when the connection is made (a server that
// was started anew knows nothing), and again before the entries end. A thread of its own does it; whoever changes a
// tier waits for nothing.
#pragma once

#include "core/mutex.h"
#include "core/status.h"
#include "directory/counters.h"
#include "directory/names.h"
#include "directory/redis.h"
#include "tier/tier.h"

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace pkv::directory {

struct PublisherOptions {
    std::shared_ptr<const Server> server;
    std::shared_ptr<const Names> names;
    std::shared_ptr<Counters> counters;
    NodeId self{};
    std::string address;
    std::vector<std::shared_ptr<Tier>> tiers;
    std::function<bool(const pkv_tier_key &)> mine; ///< is this server the one that is to know of the key?
    uint64_t heartbeat_ns = 0;
    uint64_t entry_ttl_ns = 0;
    uint64_t connect_ns = 0;
    uint64_t answer_ns = 0;
    uint64_t withdraw_ns = 0; ///< for taking everything back at the end
};

class Publisher {
  public:
    explicit Publisher(PublisherOptions options);
    ~Publisher(); ///< end() before
    Publisher(const Publisher &) = delete;
    Publisher &operator=(const Publisher &) = delete;

    pkv_status start();
    void begin_end();               ///< takes back what was told; no more than withdraw_ns is spent on it
    void end(uint64_t deadline_ns); ///< waits for that, but not longer, and for the thread
    bool up() const { return up_.load(std::memory_order_acquire); }
    /// Something about this key has changed in a tier. Any thread, under a tier's lock.
    void changed(const pkv_tier_key &key) noexcept;

  private:
    /// A walk through all that the tiers have.
    struct Walk {
        size_t tier = 0;
        uint64_t cursor = 0;
        bool over = false;
    };
    /// What is to be said to the server.
    struct Entries {
        std::vector<pkv_tier_key> there, gone;
    };

    void run();
    pkv_status serve(Line &line);
    pkv_status beat(Line &line);
    pkv_status tell_changes(Line &line);
    pkv_status walk_on(Line &line);
    pkv_status tell(Line &line, const Entries &entries, uint64_t deadline_ns);
    void withdraw(Line &line);
    uint64_t next_keys(Walk &walk, std::vector<pkv_tier_key> &keys);
    uint64_t images() const;
    bool there(const pkv_tier_key &key) const;
    void note(pkv_status status);
    void note_refusal(const std::string &word);

    PublisherOptions options_;
    // The thread's:
    Walk walk_;
    bool first_walk_ = true;
    uint64_t walk_begun_ns_ = 0, walk_at_ns_ = 0, beat_at_ns_ = 0;
    std::string trouble_, refusal_;
    std::vector<pkv_tier_key> taken_; // changes, of which those before next_ have been told
    size_t next_ = 0;
    int wake_ = -1; // eventfd
    std::atomic<bool> up_{false};
    std::mutex mutex_; // guards what follows
    std::condition_variable woken_;
    std::vector<pkv_tier_key> changes_;
    bool stop_ = false;
    bool over_ = false;
    std::thread thread_;
};

} // namespace pkv::directory
