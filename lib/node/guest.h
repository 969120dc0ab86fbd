// SPDX-License-Identifier: Apache-2.0
// A peer that reads from this node: one connection that was accepted. Its thread answers its messages; another one sends what
// tiers answer later, so that no tier waits for a slow peer. What it pulls of sequences is in guest_pulls.cpp.
#pragma once

#include "node/channel.h"
#include "node/counters.h"
#include "node/exports.h"
#include "node/in_place.h"
#include "node/offers.h"
#include "node/promotion.h"
#include "tier/stack.h"

#include <condition_variable>
#include <deque>
#include <thread>
#include <unordered_map>

namespace pkv::node {

/// What all guests of a node share.
struct Service {
    std::shared_ptr<Fabric> fabric;
    TierStack tiers;
    Exports exports;
    InPlace in_place;
    OfferBook offers;
    Hello hello; ///< but for the endpoint
    uint64_t lease_ns = 0;
    uint64_t timeout_ns = 0;
    uint32_t max_leases = 0; ///< of one guest: pins, and places
    bool promote = false;    ///< PKV_NODE_PROMOTE
    Promotion promotion;
    std::shared_ptr<Counters> counters;
};

/// What has to be equal in two nodes; PKV_ERR_MISMATCH with both sides' values.
pkv_status compare_hellos(const Hello &ours, const Hello &theirs);

class Guest : public std::enable_shared_from_this<Guest> {
  public:
    Guest(std::shared_ptr<Service> service, std::unique_ptr<Channel> channel);
    ~Guest();
    Guest(const Guest &) = delete;
    Guest &operator=(const Guest &) = delete;

    /// Hellos, then messages, until the connection ends, or `stop` is set (looked at now and then).
    void run(const std::atomic<bool> &stop);

  private:
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
    struct PinnedImage {
        int8_t tier = no_tier;
        uint64_t bytes = 0;
        uint32_t count = 0;
        uint64_t until_ns = 0;
    };
    struct Ticket {
        uint64_t offset = 0;
        uint64_t bytes = 0;
        uint64_t until_ns = 0;
        uint64_t pull = 0; ///< that it goes with; 0: of an image
    };
    /// An offer that the guest pulls.
    struct Pull {
        std::shared_ptr<Offered> offered;
        std::shared_ptr<std::atomic<bool>> watched;
    };
    struct FetchRun;

    pkv_status greet();
    pkv_status handle(std::span<const std::byte> message);
    void answer(uint64_t request, const Lookup &lookup);
    void answer(uint64_t request, const Fetch &fetch);
    void take_back(const Release &release);
    void end_fetch(FetchRun &run);
    bool handle_pull(const Head &head, std::span<const std::byte> message);
    void begin_pull(uint64_t request, const Open &open);
    void watch_pull(uint64_t request, const Watch &watch);
    void pack_pieces(uint64_t request, const Pieces &asked);
    void end_pull(uint64_t number, pkv_status status);
    void end_pulls();
    Pull find_pull(uint64_t number) const;
    pkv_status take_place(uint64_t pull, uint64_t bytes, Place &place);
    void refuse(uint64_t request, pkv_status status);
    void post(std::vector<std::byte> message);
    void write();
    void expire(uint64_t now, bool all);

    std::shared_ptr<Service> service_;
    std::unique_ptr<Channel> channel_;
    std::shared_ptr<Endpoint> endpoint_;
    Hello theirs_;
    mutable std::mutex mutex_; // guards what follows
    std::unordered_map<pkv_tier_key, PinnedImage, KeyHash, KeyEqual> pins_;
    std::unordered_map<uint64_t, Ticket> tickets_;
    uint64_t next_ticket_ = 1;
    std::unordered_map<uint64_t, Pull> pulls_;
    uint64_t next_pull_ = 1;
    uint64_t open_fetches_ = 0;
    std::deque<std::vector<std::byte>> outbox_;
    std::condition_variable posted_;
    bool ending_ = false;
};

} // namespace pkv::node
