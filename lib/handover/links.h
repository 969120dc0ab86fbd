// SPDX-License-Identifier: Apache-2.0
// Connections to nodes that sequences are pulled from: made when they are needed, kept while they are used and a while longer.
// They are none of the node's peers, whose images are looked up: the other side may hold another shard of the model.
#pragma once

#include "node/peer.h"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace pkv::handover {

/// A connection in use.
class Link {
  public:
    Link() = default;
    explicit Link(std::shared_ptr<node::Peer> peer) : peer_(std::move(peer)) { peer_->use(1); }
    ~Link() { reset(); }
    Link(Link &&other) noexcept : peer_(std::move(other.peer_)) {}
    Link &operator=(Link &&other) noexcept {
        std::swap(peer_, other.peer_);
        return *this;
    }
    void reset() {
        if (peer_ != nullptr) peer_->use(-1);
        peer_ = nullptr;
    }
    node::Peer *operator->() const { return peer_.get(); }
    const std::shared_ptr<node::Peer> &peer() const { return peer_; }

  private:
    std::shared_ptr<node::Peer> peer_;
};

class Links {
  public:
    explicit Links(const node::Reader &reader);
    ~Links() { close(); }
    Links(const Links &) = delete;
    Links &operator=(const Links &) = delete;

    /// A connection to a node. Waits until `deadline_ns`, or until `stopped` says so (PKV_ERR_TIMEOUT).
    pkv_status get(const std::string &address, uint64_t deadline_ns, const std::function<bool()> &stopped, Link &link);
    void close();

  private:
    std::shared_ptr<node::Reader> reader_;
    std::mutex mutex_; // guards what follows
    std::map<std::string, std::shared_ptr<node::Peer>> peers_;
    bool closed_ = false;
};

} // namespace pkv::handover
