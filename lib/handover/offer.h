// SPDX-License-Identifier: Apache-2.0
// A sequence that is offered: its pages, held until the offer ends, and how far each layer is.
//
// The offer has counts of its own on the pages, so that the table may go on, be cut or go. A page at the end of what is
// committed may be copied by the table before it writes on (copy-on-write); ready() then takes over the copy, which has all
// rows of the first. Rows that were called ready never change where they are, so that they are read without a lock.
#pragma once

#include "core/handles.h"
#include "core/op.h"
#include "handover/front.h"
#include "handover/rows.h"
#include "node/counters.h"
#include "node/node.h"
#include "node/offers.h"
#include "table/table.h"

#include <pagedkv/node.h>

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace pkv::handover {

struct OfferTerms {
    uint64_t num_tokens = 0; ///< 0: what is committed
    uint64_t lifetime_ns = 0;
    uint32_t max_pulls = 0; ///< PKV_PULLS_UNLIMITED: until it is withdrawn or expires
};

class Offer : public node::Offered, public std::enable_shared_from_this<Offer> {
  public:
    static constexpr HandleKind handle_kind = HandleKind::offer;

    /// Takes what is to be offered of a table; `op`, which may be nullptr, ends with the offer.
    static pkv_status make(Table &table, const OfferTerms &terms, std::shared_ptr<Op> op,
                           std::shared_ptr<node::Counters> counters, std::shared_ptr<Offer> &offer);
    Offer(std::shared_ptr<Pool> pool, std::shared_ptr<Op> op, std::shared_ptr<node::Counters> counters);
    ~Offer() override;
    Offer(const Offer &) = delete;
    Offer &operator=(const Offer &) = delete;

    /// Says that rows [0, num_tokens) of layer `layer` of a group (UINT32_MAX: of all) are complete.
    pkv_status check_layer(uint32_t group, uint32_t layer) const;
    pkv_status ready(uint32_t group, uint32_t layer, uint64_t num_tokens);
    void info(pkv_offer_info &out) const;
    /// Makes its ticket, and makes it known at a node, which listens; once. `address`: where pullers reach it; empty: the node's.
    pkv_status publish(node::Node &node, const std::string &address);
    const std::vector<std::byte> &ticket() const { return ticket_; } ///< after that

    // node::Offered
    Terms terms() const override { return terms_; }
    pkv_status begin_pull() override;
    void end_pull(pkv_status status) override;
    pkv_status measure(const node::Piece &piece, uint64_t &bytes) const override;
    pkv_status pack(const node::Piece &piece, std::byte *out) const override;
    void watch(uint64_t version, uint64_t until_ns, Answer answer) override;
    void tick(uint64_t now_ns) override;
    void end(pkv_status status) override;

  private:
    /// Pages, each with a count that goes with this.
    struct Held {
        std::shared_ptr<Pool> pool;
        BlockLists lists;
        std::array<std::vector<pkv_page>, PKV_MAX_GROUPS> replaced;
        ~Held();
    };
    /// Its pages are being read; begun under the lock.
    class Packing {
      public:
        explicit Packing(const Offer &offer) : offer_(offer) { ++offer.packing_; }
        ~Packing();
        Packing(const Packing &) = delete;
        Packing &operator=(const Packing &) = delete;

      private:
        const Offer &offer_;
    };
    struct Watcher {
        uint64_t version;
        uint64_t until_ns;
        Answer answer;
    };
    static constexpr size_t most_watchers = 1024;

    pkv_status take(const Table &table, const OfferTerms &terms);
    pkv_status take_pages(const Table &table, uint32_t group, uint64_t first, uint64_t end, uint64_t length);
    void set_range(uint32_t group, FrontGroup &described) const;
    pkv_status check_piece(const node::Piece &piece) const;
    pkv_status ended() const; // under the lock
    bool has_rows(const FrontGroup &group, uint64_t first, uint64_t count) const;
    std::vector<Watcher> due(uint64_t now_ns);
    uint64_t &tokens_of(uint32_t group, uint32_t layer) { return progress_.tokens[first_layer_[group] + layer]; }
    uint64_t tokens_of(uint32_t group, uint32_t layer) const { return progress_.tokens[first_layer_[group] + layer]; }

    const std::shared_ptr<Pool> pool_;
    const std::shared_ptr<Op> op_;
    const std::shared_ptr<node::Counters> counters_;
    std::weak_ptr<Table> table_;
    uint64_t sequence_ = 0;
    Terms terms_;
    uint32_t max_pulls_ = 1;
    std::vector<FrontGroup> groups_;
    std::vector<pkv_token> tokens_;
    std::vector<std::byte> front_;
    std::vector<std::byte> ticket_;
    std::array<uint32_t, PKV_MAX_GROUPS> first_layer_{};
    std::weak_ptr<node::Service> service_; // that has it in its book
    node::OfferId id_{};

    mutable std::mutex mutex_;               // guards what follows
    mutable std::condition_variable let_go_; // packing_ or held_ has changed
    mutable uint32_t packing_ = 0;
    std::unique_ptr<Held> held_;
    node::Progress progress_;
    uint64_t compared_ = 0; // tokens of the table that are known to be those offered
    std::vector<Watcher> watchers_;
    pkv_status status_ = PKV_ERR_BUSY; // until the end
    uint32_t pulls_ = 0;               // to the end
    uint32_t failed_pulls_ = 0;
    uint32_t open_pulls_ = 0;
};

} // namespace pkv::handover
