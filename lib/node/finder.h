// SPDX-License-Identifier: Apache-2.0
// Nodes that a directory names: a lookup of keys asks it which nodes have them, connects to those, and lets them be
// asked. All of that has an end: half of the lookup's time, and half a second, for the directory, most of the rest for
// a node that is connected to for the first time. Keys of which the directory says nothing in time (a server is down)
// are asked of all nodes that were found before.
#pragma once

#include "directory/client.h"
#include "node/peer.h"

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace pkv::node {

struct FinderOptions {
    std::shared_ptr<directory::Client> client;
    std::shared_ptr<Reader> reader;
    std::string address; ///< this node's own, or empty
    uint32_t most_peers = 0;
    uint64_t heartbeat_ns = 0;
};

class Finder : public std::enable_shared_from_this<Finder> {
  public:
    using Peers = std::vector<std::shared_ptr<Peer>>;
    /// A node that is to be asked for these of the keys, by number.
    using OnPeer = std::function<void(const std::shared_ptr<Peer> &peer, std::vector<uint32_t> keys)>;
    using OnEnd = std::function<void()>;

    explicit Finder(FinderOptions options) : options_(std::move(options)) {}
    ~Finder();
    Finder(const Finder &) = delete;
    Finder &operator=(const Finder &) = delete;

    pkv_status start();
    void stop(); ///< ends all searches, and all peers

    /// Calls `on_peer` any number of times, then `on_end` once, on other threads; neither may throw. Nodes among
    /// `asked`, who were asked for all the keys, are not called.
    void find(std::span<const pkv_tier_key> keys, uint64_t deadline_ns, Peers asked, OnPeer on_peer, OnEnd on_end);

    Peers peers() const;
    /// Takes a peer out, for somebody else to keep; nullptr: there is none at this address.
    std::shared_ptr<Peer> take(const std::string &address);

  private:
    struct Search;
    struct Found {
        std::shared_ptr<Peer> peer;
        uint64_t named_ns = 0; ///< by the directory, the last time
    };

    void run();
    bool step(Search &search, uint64_t now, uint64_t &next_ns);
    void follow(Search &search, uint64_t now);
    bool is_asked(const Search &search, const directory::NodeAt &node) const;
    std::shared_ptr<Peer> peer_at(const directory::NodeAt &node, uint64_t now);
    bool make_room(uint64_t now);
    void retire(std::list<Found>::iterator at);
    void sweep(uint64_t now);
    void wake();

    FinderOptions options_;
    mutable std::mutex mutex_; // guards what follows
    std::condition_variable woken_;
    bool wake_ = false;
    bool stop_ = true;                            // before start()
    std::list<std::shared_ptr<Search>> searches_; // that the thread has not seen
    std::list<Found> found_;
    Peers retired_; // being stopped
    uint64_t sweep_at_ns_ = 0;
    std::thread thread_;
};

} // namespace pkv::node
