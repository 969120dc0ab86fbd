// SPDX-License-Identifier: Apache-2.0
// One batch on its way through a tier. Each item ends once, whatever the tier does: completions that come twice, or after
// the end, are counted and change nothing. A request owns all that the tier may touch (keys, sizes, buffers) until its last
// item has ended, also when nobody waits for it any more: so a late writer writes into memory that is still its own.
#pragma once

#include "core/handles.h"
#include "core/status.h"

#include <pagedkv/tier_ops.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace pkv {

class Tier;

/// What a request is about; the lists are moved into it.
struct RequestItems {
    int32_t kind = 0;
    uint32_t flags = 0;
    bool urgent = false;
    uint64_t deadline_ns = 0; ///< monotonic_ns(); 0 = none
    std::vector<pkv_tier_key> keys;
    std::vector<void *> data;
    std::vector<uint64_t> offsets;
    std::vector<uint64_t> sizes;
    std::vector<pkv_retention> retention;
    std::vector<uint64_t> tags;
    std::shared_ptr<void> buffers; ///< what `data` points into: kept until the last item has ended
};

class Request {
  public:
    static constexpr HandleKind handle_kind = HandleKind::request;

    /// `on_end` is called once, when the last item has ended, on the thread that ended it (also inside submit()), with no
    /// lock held; it must not throw. Those who wait are woken after it.
    Request(std::shared_ptr<Tier> tier, RequestItems items, std::function<void(Request &)> on_end);

    const RequestItems &items() const { return items_; }
    uint64_t num_items() const { return items_.kind == PKV_TIER_CLEAR ? items_.tags.size() : items_.keys.size(); }
    /// After the end as long as somebody else keeps it.
    Tier &tier() const { return *tier_; }

    /// pkv_tier_complete(). PKV_ERR_STATE for an item that has ended (counted by the tier).
    pkv_status complete(uint64_t item, pkv_status status, uint64_t value);
    /// Ends all items that have not ended: the tier took none of them.
    void fail_all(pkv_status status);

    /// All items have ended, their results can be read; `on_end` may still be running.
    bool ended() const { return open_.load(std::memory_order_acquire) == 0; }
    /// Waits for the end, and for `on_end`; false when deadline_ns (monotonic; UINT64_MAX = none) came first.
    bool wait_until(uint64_t deadline_ns);
    /// After the end; before it PKV_ERR_BUSY.
    pkv_status status(uint64_t item) const;
    uint64_t value(uint64_t item) const { return results_[item].value; }

  private:
    friend class Tier;
    void end();

    struct Result {
        std::atomic<int32_t> state{0}; // 0 open, 1 being ended, 2 ended
        pkv_status status = PKV_ERR_BUSY;
        uint64_t value = 0;
    };

    Tier *tier_;
    std::shared_ptr<Tier> keeps_tier_; // until the end, guarded by mutex_
    RequestItems items_;
    std::function<void(Request &)> on_end_;
    std::unique_ptr<Result[]> results_;
    std::atomic<uint64_t> open_; // items that have not ended
    pkv_tier_batch batch_{};
    std::mutex mutex_; // for the waiters
    std::condition_variable woken_;
    bool over_ = false; // `on_end` has returned
    pkv_tier_request *handle_ = nullptr;
};

/// While one lives, this thread is inside a completion, and may be one of a tier's own: a Tier whose last owner lets go of it
/// then is closed on another thread, since its close function may wait for this one.
class InCompletion {
  public:
    InCompletion();
    ~InCompletion();
    InCompletion(const InCompletion &) = delete;
    InCompletion &operator=(const InCompletion &) = delete;

    static bool active(); ///< on this thread
};

} // namespace pkv
