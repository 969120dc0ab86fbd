// SPDX-License-Identifier: Apache-2.0
// The images of other nodes as a tier: looked up in all of them at once (those that a directory names: in those of which it
// says that they have them), read from one that has them. It stores nothing.
#pragma once

#include "core/mutex.h"
#include "node/finder.h"
#include "node/peer.h"

#include <memory>
#include <unordered_map>
#include <vector>

namespace pkv::node {

class RemoteTier : public std::enable_shared_from_this<RemoteTier> {
  public:
    RemoteTier(std::shared_ptr<Fabric> fabric, uint64_t timeout_ns)
        : fabric_(std::move(fabric)), timeout_ns_(timeout_ns) {}

    void find_with(std::shared_ptr<Finder> finder); ///< before the first request
    void add(std::shared_ptr<Peer> peer);
    void remove(const std::shared_ptr<Peer> &peer);
    std::vector<std::shared_ptr<Peer>> peers() const; ///< those that were found, too
    void close();                                     ///< from now on it finds nothing

    // pkv_tier_ops
    pkv_status submit(const pkv_tier_batch &batch);
    void cancel(pkv_tier_request *request);
    void memory(void *base, uint64_t bytes, bool add);

  private:
    struct LookupRun;
    struct LoadRun;
    struct KeyHash {
        size_t operator()(const pkv_tier_key &key) const {
            size_t value; // any 8 bytes of a digest are a good hash
            std::memcpy(&value, key.bytes, sizeof value);
            return value;
        }
    };
    struct KeyEqual {
        bool operator()(const pkv_tier_key &a, const pkv_tier_key &b) const {
            return std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
        }
    };
    /// Where an image lies that the peer keeps for us, and until when.
    struct Lease {
        static Lease of(const Peer &peer, uint64_t place, uint64_t asked_ns);
        uint64_t place = no_place;
        uint64_t connection = 0;
        uint64_t until_ns = 0;
        uint64_t length_ns = 0;
        bool renewing = false;
    };
    /// What is known of an image elsewhere.
    struct Known {
        std::weak_ptr<Peer> peer; ///< that has it
        uint32_t pins = 0;
        bool bad = false; ///< its bytes were not the image: nobody shall find it again
        Lease lease;      ///< of pinned ones
    };
    std::vector<std::shared_ptr<Peer>> added() const;
    std::shared_ptr<Finder> finder() const;
    void look_up(const pkv_tier_batch &batch);
    static void ask(const std::shared_ptr<LookupRun> &run, const std::shared_ptr<Peer> &peer,
                    std::span<const uint32_t> items);
    static void leave(const std::shared_ptr<LookupRun> &run);
    void end_lookup(LookupRun &run);
    void load(const pkv_tier_batch &batch);
    void try_next(const std::shared_ptr<LoadRun> &run);
    std::vector<std::shared_ptr<Peer>> in_order(const pkv_tier_key &key) const;
    void renew(const std::shared_ptr<Peer> &peer, const pkv_tier_key &key);
    void change(const pkv_tier_batch &batch);

    std::shared_ptr<Fabric> fabric_;
    uint64_t timeout_ns_;
    mutable Mutex mutex_;
    std::vector<std::shared_ptr<Peer>> peers_ PKV_GUARDED_BY(mutex_); // added
    std::shared_ptr<Finder> finder_ PKV_GUARDED_BY(mutex_);
    std::vector<std::shared_ptr<Region>> regions_ PKV_GUARDED_BY(mutex_);
    std::unordered_map<pkv_tier_key, Known, KeyHash, KeyEqual> known_ PKV_GUARDED_BY(mutex_);
};

} // namespace pkv::node
