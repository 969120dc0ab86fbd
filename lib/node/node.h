// SPDX-License-Identifier: Apache-2.0
// A node (node.h, public): what it serves, and from whom it reads.
//
//   channel.cpp   the encrypted connection;  messages.cpp, wire.h: what is said on it
//   guest.cpp     a peer that reads from us;  exports.h: memory that it reads;  promotion.cpp: copies in the first tier
//   peer.cpp      a peer that we read from;  remote_tier.cpp: all of them as a tier
//   fabric.cpp    libfabric, behind the plug-in's table (fabric_table.h)
#pragma once

#include "core/handles.h"
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
    uint32_t flags = 0; ///< PKV_NODE_*
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
    std::vector<std::shared_ptr<Peer>> peers() const { return remote_->peers(); }
    const std::shared_ptr<Tier> &tier() const { return tier_; }
    void stats(pkv_node_stats &out) const;

  private:
    pkv_status listen();
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
