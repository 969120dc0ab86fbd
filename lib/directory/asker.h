// SPDX-License-Identifier: Apache-2.0
// Questions to one server: which nodes have these images? Those that come while it is busy are asked together with the
// next ones, in one round trip; addresses of nodes that are not known yet take a second one. A thread of its own does
// it, and keeps up the connection.
#pragma once

#include "core/status.h"
#include "directory/counters.h"
#include "directory/names.h"
#include "directory/redis.h"
#include "tier/watch.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace pkv::directory {

/// A node that lives, or did a moment ago.
struct NodeAt {
    NodeId id{};
    std::string address;
};

/// What one server says.
struct Answer {
    struct Named {
        uint32_t key; ///< its number in the question
        std::shared_ptr<const NodeAt> node;
    };
    std::vector<Named> named;         ///< in no order; a key may have several
    std::vector<uint32_t> unanswered; ///< keys of which it has said nothing
    bool silent = false;              ///< it has said nothing at all
};

struct AskerOptions {
    std::shared_ptr<const Server> server;
    std::shared_ptr<const Names> names;
    std::shared_ptr<Counters> counters;
    NodeId self{};        ///< is not named
    uint64_t keep_ns = 0; ///< for so long an address is believed
    uint64_t idle_ns = 0; ///< after so long without a question the server is asked whether it is there
    uint64_t connect_ns = 0;
    uint64_t answer_ns = 0;
};

class Asker {
  public:
    using Done = std::function<void(Answer)>;

    explicit Asker(AskerOptions options);
    ~Asker(); ///< stop() before
    Asker(const Asker &) = delete;
    Asker &operator=(const Asker &) = delete;

    pkv_status start();
    void stop(); ///< ends all questions, as not answered; waits for the thread
    bool up() const { return up_.load(std::memory_order_acquire); }
    /// False, and nothing will be called: the server is not there, or has too much to answer already. `done` is called
    /// once, on the asker's thread; it must be quick, and not throw.
    bool ask(std::vector<pkv_tier_key> keys, Done done);

  private:
    struct Question {
        std::vector<pkv_tier_key> keys;
        Done done;
        Answer answer;
    };
    struct Known {
        std::shared_ptr<const NodeAt> node; ///< nullptr: none that lives
        uint64_t until_ns = 0;
    };
    struct IdHash {
        size_t operator()(const NodeId &id) const {
            size_t value;
            std::memcpy(&value, id.data(), sizeof value);
            return value;
        }
    };
    /// Who was named for a key, before addresses are known.
    struct Member {
        Question *question;
        uint32_t key;
        NodeId id;
    };

    void run();
    pkv_status serve(Line &line);
    pkv_status answer(Line &line, std::deque<Question> &questions);
    pkv_status ask_members(Line &line, std::deque<Question> &questions, std::vector<Member> &members);
    pkv_status ask_addresses(Line &line, const std::vector<Member> &members);
    void forget_old(uint64_t now);
    void give_up(std::deque<Question> &questions);
    bool note(pkv_status status);

    AskerOptions options_;
    std::unordered_map<NodeId, Known, IdHash> known_; // the thread's
    std::string trouble_;                             // the thread's: what the log has been told
    int wake_ = -1;                                   // eventfd
    std::atomic<bool> up_{false};
    std::mutex mutex_; // guards what follows
    std::condition_variable changed_;
    bool open_ = false; // takes questions
    bool stop_ = false;
    std::deque<Question> questions_;
    std::thread thread_;
};

} // namespace pkv::directory
