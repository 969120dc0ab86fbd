// SPDX-License-Identifier: Apache-2.0
// A node (node.h, public): what it serves, and from whom it reads.
//
//   channel.cpp   the encrypted connection;  messages.cpp, wire.h: what is said on it
//   guest.cpp     a peer that reads from us;  exports.h: memory that it reads;  promotion.cpp: copies in the first tier
//   peer.cpp      a peer that we read from;  remote_tier.cpp: all of them as a tier
//   finder.cpp    peers that a directory names (directory/client.h)
//   fabric.cpp    libfabric, behind the plug-in's table (fabric_table.h)
#pragma once

#include "core/handles.h"
#include "directory/client.h"
#include "node/guest.h"
#include "node/peer.h"
#include "node/remote_tier.h"

#include <pagedkv/node.h>

#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace pkv::node {

/// pkv_node_options, checked.
struct NodeOptions {
    ClusterKey key{};
    std::string name;
    std::string listen; ///< empty: serves nothing
    std::string provider;
    std::string fabric_host;
    std::vector<std::shared_ptr<Tier>> tiers;
    std::vector<Digest> shapes;
    Digest identity{};
    uint64_t export_bytes = 0;
    uint32_t max_guests = 0;
    uint32_t max_leases = 0;
    uint64_t lease_ns = 0;
    uint64_t timeout_ns = 0;
    uint32_t flags = 0;           ///< PKV_NODE_*
    directory::Servers directory; ///< none: no directory
    std::string directory_prefix;
    std::string advertise;
    uint64_t heartbeat_ns = 0;
    uint64_t entry_ttl_ns = 0;
    uint32_t max_found_peers = 0;
};

/// Something that works over a node, and ends before it does.
class NodeWork {
  public:
    virtual ~NodeWork() = default;
    virtual void close() = 0;
};

class Node {
  public:
    static constexpr HandleKind handle_kind = HandleKind::node;

    static pkv_status open(NodeOptions options, std::shared_ptr<Node> &node);
    explicit Node(NodeOptions options) : options_(std::move(options)) {}
    ~Node();
    Node(const Node &) = delete;
    Node &operator=(const Node &) = delete;

    void close();
    const std::string &address() const { return address_; } ///< empty: does not listen
    pkv_status connect(const std::string &address, uint64_t timeout_ns);
    pkv_status disconnect(const std::string &address);
    std::vector<std::shared_ptr<Peer>> peers() const { return remote_->peers(); } ///< those that were found, too
    const std::shared_ptr<Tier> &tier() const { return tier_; }
    void stats(pkv_node_stats &out) const;

    // For hand-overs.
    const std::shared_ptr<Reader> &reader() const { return reader_; }
    const std::shared_ptr<Service> &service() const { return service_; } ///< nullptr: it does not listen
    const std::shared_ptr<Counters> &counters() const { return counters_; }
    std::string reached_at() const; ///< the address that it advertises, or listens at
    /// What works over it: one thing, made at the first call. One that is closed already is closed at once.
    std::shared_ptr<NodeWork> work(const std::function<std::shared_ptr<NodeWork>()> &make);

  private:
    pkv_status listen();
    pkv_status open_directory(const Hello &hello, std::vector<std::shared_ptr<Tier>> tiers);
    void accept_all();
    void sweep_guests(bool all);

    NodeOptions options_;
    std::shared_ptr<Counters> counters_ = std::make_shared<Counters>(); // fetches may end after the node
    std::shared_ptr<Fabric> fabric_;
    std::shared_ptr<Reader> reader_;
    std::shared_ptr<Service> service_;
    std::shared_ptr<RemoteTier> remote_;
    std::shared_ptr<Tier> tier_; // over remote_
    std::mutex connecting_;      // one connect or disconnect at a time
    std::mutex work_mutex_;
    std::shared_ptr<NodeWork> work_;
    std::shared_ptr<directory::Client> directory_; // nullptr without one, as finder_
    std::shared_ptr<Finder> finder_;

    int socket_ = -1;
    std::string address_;
    std::atomic<bool> stop_{false};
    std::thread listener_;
    struct Serving {
        std::shared_ptr<std::atomic<bool>> over;
        std::thread thread;
    };
    std::list<Serving> guests_; // the listener's alone, and close()'s after it
};

} // namespace pkv::node
