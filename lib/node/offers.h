// SPDX-License-Identifier: Apache-2.0
// What this node offers to others, to be pulled once or a few times: found by an id that nobody can guess, until it ends.
// What it is that is offered, a node does not know: see handover/offer.h.
#pragma once

#include "core/status.h"
#include "node/messages.h"

#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace pkv::node {

class Offered {
  public:
    struct Terms {
        uint64_t num_tokens = 0;
        uint64_t front_bytes = 0;
        Digest geometry{};
        uint64_t until_ns = 0; ///< when it ends
    };
    using Answer = std::function<void(pkv_status status, const Progress &progress)>;

    virtual ~Offered() = default;
    virtual Terms terms() const = 0;
    /// A peer begins to pull; why not, once the offer has ended.
    virtual pkv_status begin_pull() = 0;
    virtual void end_pull(pkv_status status) = 0; ///< once for each that began
    /// Bytes that a piece takes. PKV_ERR_INVALID: it is none; PKV_ERR_AGAIN: its rows are not complete; or why the offer ended.
    virtual pkv_status measure(const Piece &piece, uint64_t &bytes) const = 0;
    /// Writes a piece that was measured.
    virtual pkv_status pack(const Piece &piece, std::byte *out) const = 0;
    /// `answer` is called once, with no lock held and maybe at once: when there is other progress than that of `version`, at
    /// `until_ns`, or when the offer ends.
    virtual void watch(uint64_t version, uint64_t until_ns, Answer answer) = 0;
    virtual void tick(uint64_t now_ns) = 0;  ///< time has passed: now and then
    virtual void end(pkv_status status) = 0; ///< nothing more is given; a second time changes nothing
};

class OfferBook {
  public:
    pkv_status add(const OfferId &id, std::shared_ptr<Offered> offered);
    std::shared_ptr<Offered> find(const OfferId &id) const; ///< nullptr: none, or it has ended
    void remove(const OfferId &id);
    uint64_t size() const;
    void tick(uint64_t now_ns);
    void close(); ///< ends all of them; none can be added afterwards

  private:
    static constexpr size_t most_offers = 65536;
    struct IdHash {
        size_t operator()(const OfferId &id) const {
            size_t value; // they are random
            std::memcpy(&value, id.data(), sizeof value);
            return value;
        }
    };
    std::vector<std::shared_ptr<Offered>> all() const;

    mutable std::mutex mutex_;
    std::unordered_map<OfferId, std::shared_ptr<Offered>, IdHash> offers_;
    bool closed_ = false;
};

} // namespace pkv::node
