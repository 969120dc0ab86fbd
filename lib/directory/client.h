// SPDX-License-Identifier: Apache-2.0
// A directory as a node uses it: who has which image, and where each node is. It consists of one server or several,
// each of which knows of a part of all keys (rendezvous hashing).
//
//   server.cpp     addresses;  names.cpp: what stands where
//   redis.cpp      connections, behind the plug-in's table (redis_table.h)
//   asker.cpp      questions to one server;  publisher.cpp: what one server is told
//
// A server that is down costs what it is to know, and nothing else: its keys are told to no other one, which would have
// to be moved back when it returns, and in the meantime be looked for in both.
//
// Nothing that a directory says is believed. A record was written by a node of this cluster or is none; where it leads,
// the other side has to show that it has the cluster's key; what it has it is asked itself; and the bytes of an image
// are checked in full.
#pragma once

#include "directory/asker.h"
#include "directory/publisher.h"

#include <memory>
#include <string>
#include <vector>

namespace pkv::directory {

struct Options {
    Servers servers;
    std::string prefix;
    Scope scope;
    NodeId self{};
    std::string address;                      ///< empty: this node serves nothing, and is told of to nobody
    std::vector<std::shared_ptr<Tier>> tiers; ///< what it serves
    uint64_t heartbeat_ns = 0;
    uint64_t entry_ttl_ns = 0;
    uint64_t timeout_ns = 0; ///< of connecting; an answer takes a second at most
};

class Client final : public TierWatch {
  public:
    /// Returns at once: servers are connected to in the background. PKV_ERR_UNSUPPORTED without the plug-in, or TLS in
    /// it.
    static pkv_status open(Options options, std::unique_ptr<Client> &client);
    explicit Client(Options options);
    ~Client() override; ///< close()
    Client(const Client &) = delete;
    Client &operator=(const Client &) = delete;

    /// Takes back what was told, and ends all questions; a few seconds at most.
    void close();

    size_t size() const { return askers_.size(); } ///< servers
    uint64_t up() const;                           ///< of them connected
    /// The server that is to know of a key: the same one in every node that was given the same servers, in any order.
    size_t server_of(const pkv_tier_key &key) const;
    /// As Asker::ask(), of keys that this server is to know of.
    bool ask(size_t server, std::vector<pkv_tier_key> keys, Asker::Done done) {
        return askers_[server]->ask(std::move(keys), std::move(done));
    }
    Counters &counters() const { return *counters_; }
    void changed(const pkv_tier_key &key) noexcept override;

  private:
    pkv_status start();

    Options options_;
    std::shared_ptr<Counters> counters_;
    std::vector<uint64_t> seeds_; // of the servers
    std::vector<std::unique_ptr<Asker>> askers_;
    std::vector<std::unique_ptr<Publisher>> publishers_; // none, or as many
    bool open_ = false;
};

} // namespace pkv::directory
