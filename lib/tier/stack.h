// SPDX-License-Identifier: Apache-2.0
// The tiers below one pool, the fastest first: where an image is, and images moved to and from there.
#pragma once

#include "telemetry/pool_lanes.h"
#include "tier/in_flight.h"
#include "tier/staging.h"
#include "tier/tier.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace pkv {

/// No tier.
constexpr int8_t no_tier = -1;

/// One tier of a pool, and what the pool does with it.
struct Attachment {
    std::shared_ptr<Tier> tier;
    int32_t policy = 0; ///< PKV_TIER_WRITE_* ...
    uint32_t hits = 0;  ///< PKV_TIER_WRITE_ON_HITS
    bool exclusive = false;
    uint64_t timeout_ns = 0; ///< of a lookup, and of a store
};

/// An image to load.
struct LoadItem {
    pkv_tier_key key{};
    int8_t tier = no_tier;                 ///< where it is known to be, pinned; no_tier: all are asked in order
    uint64_t bytes = 0;                    ///< of the image
    bool needed = false;                   ///< a live sequence has nothing else: a resting tier is asked, too
    pkv_status status = PKV_ERR_NOT_FOUND; ///< out
    int8_t from = no_tier;                 ///< out: the tier that gave it
};

class TierStack {
  public:
    TierStack() = default;
    TierStack(const TierStack &) = delete;
    TierStack &operator=(const TierStack &) = delete;

    /// `image_bytes` = the largest image of the pool; staging for `staging_bytes`, and for a few images at least.
    pkv_status create(std::vector<Attachment> tiers, uint64_t image_bytes, uint64_t staging_bytes,
                      const Staging::Supply &supply = {});

    uint32_t size() const { return static_cast<uint32_t>(tiers_.size()); }
    const Attachment &operator[](uint32_t index) const { return tiers_[index]; }
    Staging &staging() { return staging_; }
    InFlight &in_flight() { return in_flight_; }
    trace::PoolLanes &lanes() { return lanes_; }

    /// For each key the first tier that has its image, or no_tier. With `pin` it stays there until unpin(). A tier that
    /// does not answer in time has nothing. `bytes`, if it is not empty: the size of each image found.
    void locate(std::span<const pkv_tier_key> keys, bool pin, std::span<int8_t> where, std::span<uint64_t> bytes = {});
    void unpin(uint32_t tier, std::span<const pkv_tier_key> keys);
    std::shared_ptr<Request> remove(uint32_t tier, std::span<const pkv_tier_key> keys,
                                    uint32_t flags); ///< nullptr: no keys
    /// New retention, in every tier that has the images.
    void retain(std::span<const pkv_tier_key> keys, const pkv_retention &retention);
    /// Forgets the images of these namespaces in all tiers; waits for it.
    void clear(const std::vector<uint64_t> &tags);

    /// Is given the bytes of an image that arrived; false: they are not the image that was asked for. They may be kept with
    /// their slot; those without one lie in a tier's memory, and may be something else once this returns.
    using Consumer = std::function<bool(size_t item, const std::byte *image, uint64_t bytes,
                                        const std::shared_ptr<std::byte> &slot)>;

    /// Loads images, each from the first tier that gives a good one, many at once; `consume` runs on this thread, once for
    /// each image that arrives. At the deadline, or when `cancelled` says so, the items that are not done end with
    /// PKV_ERR_TIMEOUT or PKV_ERR_CANCELLED; late writers write into staging slots that are theirs alone. `let_go` is called when
    /// there is nothing to do but to wait for a slot: those that were kept are wanted back.
    void load(std::span<LoadItem> items, const Consumer &consume, uint64_t deadline_ns,
              const std::function<bool()> &cancelled = {}, const std::function<void()> &let_go = {});

    /// Begins to load `bytes` bytes of an image, from `offset` on, from one tier into a slot, which is kept until the request
    /// has ended. note_load() is to be told what became of it.
    std::shared_ptr<Request> begin_load(uint32_t tier, const pkv_tier_key &key, uint64_t offset, uint64_t bytes,
                                        std::shared_ptr<std::byte> slot, bool urgent, uint64_t deadline_ns,
                                        std::function<void(Request &)> on_end);
    /// What came of a load from a tier, for the tier's numbers and breaker. An image that cannot be read, or (`good` false) is
    /// another one, is removed there. Returns PKV_OK, or why there are no bytes. With no lock held.
    pkv_status note_load(uint32_t tier, const pkv_tier_key &key, pkv_status status, bool good, uint64_t bytes);

    /// One image to one tier; the slot is kept until the request has ended.
    std::shared_ptr<Request> store(uint32_t tier, const pkv_tier_key &key, std::shared_ptr<std::byte> slot,
                                   uint64_t bytes, const pkv_retention &retention, uint64_t tag, bool pin,
                                   std::function<void(Request &)> on_end);

  private:
    struct LoadRun;
    /// From a tier whose images lie in memory: at once, without a copy.
    void load_in_place(LoadItem &item, size_t index, int8_t tier, const Consumer &consume, uint64_t deadline_ns);
    void take_arrival(LoadItem &item, int8_t tier, pkv_status status, bool good, uint64_t bytes);

    std::vector<Attachment> tiers_;
    Staging staging_;
    InFlight in_flight_;
    trace::PoolLanes lanes_;
};

} // namespace pkv
