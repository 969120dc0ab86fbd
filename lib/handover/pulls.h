// SPDX-License-Identifier: Apache-2.0
// The pulls of a node that are under way, each on a thread of its own.
#pragma once

#include "handover/pull.h"
#include "node/node.h"

#include <list>
#include <memory>
#include <mutex>
#include <thread>

namespace pkv::handover {

class Pulls : public node::NodeWork {
  public:
    /// Those of a node; made at the first call.
    static std::shared_ptr<Pulls> of(node::Node &node);
    explicit Pulls(std::shared_ptr<node::Reader> reader) : reader_(std::move(reader)) {}
    ~Pulls() override { close(); }
    Pulls(const Pulls &) = delete;
    Pulls &operator=(const Pulls &) = delete;

    /// PKV_ERR_BUSY: too many are under way.
    pkv_status begin(PullRequest request, const std::shared_ptr<Op> &op);
    void close() override; ///< ends all of them, with PKV_ERR_CLOSED

  private:
    static constexpr size_t most_pulls = 256;
    struct Running {
        std::weak_ptr<Pull> pull; // its thread's: what it has goes when it ends
        std::shared_ptr<std::atomic<bool>> over;
        std::thread thread;
        Running() = default;
        ~Running() {
            if (thread.joinable()) thread.join();
        }
        Running(const Running &) = delete;
        Running &operator=(const Running &) = delete;
    };

    std::shared_ptr<node::Reader> reader_;
    std::mutex mutex_; // guards what follows
    std::shared_ptr<PullTools> tools_;
    std::list<Running> running_;
    bool closed_ = false;
};

} // namespace pkv::handover
