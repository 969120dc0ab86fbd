// SPDX-License-Identifier: Apache-2.0
// A sequence on its way in. A thread of its own opens the offers, makes room in a table that nobody else sees yet, asks for
// pieces as the givers complete them, checks each, writes it into pages, and commits when all are there.
//
//   pull.cpp    the course of a pull
//   stream.cpp  pieces: what is asked for next, and what becomes of it
#pragma once

#include "core/op.h"
#include "handover/inbox.h"
#include "handover/links.h"
#include "handover/plan.h"
#include "handover/slots.h"
#include "handover/source.h"
#include "node/counters.h"
#include "table/table.h"

#include <pagedkv/node.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pkv::handover {

/// What pkv_table_pull was called with, checked.
struct PullRequest {
    std::shared_ptr<Pool> pool;
    std::vector<Ticket> tickets;
    std::optional<prefix::Digest> ns; ///< that the sequence has to be of
    std::vector<uint32_t> groups;
    uint32_t flags = 0; ///< PKV_PULL_*
    uint64_t timeout_ns = 0;
};

/// What all pulls of a node share.
struct PullTools {
    explicit PullTools(const node::Reader &reader)
        : links(reader), counters(reader.counters), timeout_ns(reader.timeout_ns) {}
    Links links;
    Slots slots;
    std::shared_ptr<node::Counters> counters;
    uint64_t timeout_ns; ///< of connecting
};

/// What a pull leaves in its operation.
class PulledTable : public OpResult {
  public:
    explicit PulledTable(std::shared_ptr<Table> table) : table_(std::move(table)) {}
    const std::shared_ptr<Table> &table() const { return table_; }

  private:
    std::shared_ptr<Table> table_;
};

class Pull : public std::enable_shared_from_this<Pull> {
  public:
    Pull(PullRequest request, std::shared_ptr<PullTools> tools, std::shared_ptr<Op> op);
    ~Pull();
    Pull(const Pull &) = delete;
    Pull &operator=(const Pull &) = delete;

    void run();                ///< all of it; the operation has ended then
    void stop(pkv_status why); ///< soon; from any thread

  private:
    /// Tokens of a group that have to come.
    struct TokenRange {
        uint64_t begin, end;
    };
    static constexpr uint64_t full_pause_ns = 2'000'000; // the giver, or this node, had no room
    static constexpr uint32_t most_bad_pieces = 3;
    /// How far a part is.
    struct PartState {
        size_t range = 0; ///< of its group: what is to be asked for next
        uint64_t next = 0;
        uint64_t left = 0; ///< tokens that have not arrived
    };

    pkv_status work();
    void end(pkv_status status, const std::string &why);
    pkv_status check_going() const;
    bool stopped() const { return why_stopped_.load(std::memory_order_acquire) != PKV_OK; }
    pkv_status take_event(uint64_t until_ns);

    pkv_status open(Source &source);
    pkv_status read_front(Source &source);
    pkv_status read_front_piece(Source &source, uint64_t first, uint64_t count, std::byte *out);
    pkv_status ask(Source &source, const std::function<std::vector<std::byte>(uint64_t)> &message, node::Kind kind,
                   const char *what, std::vector<std::byte> &answer);
    pkv_status refused(const Source &source, std::span<const std::byte> message) const;
    pkv_status agree() const;
    pkv_status begin_table();
    pkv_status finish();

    // stream.cpp
    pkv_status pump(Source &source);
    void watch(Source &source);
    bool next_wanted(Source &source, Wanted &wanted);
    void ask_for(Source &source, std::vector<uint64_t> numbers);
    void take_packed(Source &source, const std::vector<uint64_t> &numbers, Event &event);
    void take_arrival(Source &source, uint64_t number, pkv_status status);
    void write(const Flying &piece);
    void part_arrived(const Part &part);
    void put_back(Source &source, Wanted wanted, uint64_t pause_ns);
    void break_off(Source &source);
    pkv_status reopen(Source &source);
    uint64_t next_look() const;
    uint64_t share() const;
    void fault(pkv_status status); ///< with the last error; the first one counts
    uint64_t ready_tokens(const Source &source, const Part &part) const;

    PullRequest request_;
    std::shared_ptr<PullTools> tools_;
    std::shared_ptr<Op> op_;
    std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
    std::atomic<pkv_status> why_stopped_{PKV_OK};
    uint64_t deadline_ns_ = 0;
    std::vector<Source> sources_;
    std::shared_ptr<Table> table_;
    std::vector<Part> parts_;
    std::vector<PartState> states_;
    std::array<std::vector<TokenRange>, PKV_MAX_GROUPS> ranges_;
    std::array<uint32_t, PKV_MAX_GROUPS> first_item_{}; // of a group's layers in the operation
    std::vector<uint32_t> layer_parts_;                 // of each item: parts that have not arrived
    uint64_t parts_left_ = 0;
    uint64_t connections_ = 0;
    bool starved_ = false; // there was no slot
    pkv_status failure_ = PKV_OK;
    std::string why_;
};

} // namespace pkv::handover
