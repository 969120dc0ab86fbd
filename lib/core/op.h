// SPDX-License-Identifier: Apache-2.0
// One asynchronous operation: items that end one by one, each once; the operation ends with the last of them, once.
#pragma once

#include "core/handles.h"
#include "core/queue.h"
#include "core/status.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace pkv {

/// What an operation leaves behind when it has ended well.
class OpResult {
  public:
    virtual ~OpResult() = default;
};

class Op {
  public:
    static constexpr HandleKind handle_kind = HandleKind::op;

    /// `queue` may be nullptr. Throws std::bad_alloc.
    Op(uint64_t num_items, std::shared_ptr<Queue> queue, uint64_t user);
    ~Op();
    Op(const Op &) = delete;
    Op &operator=(const Op &) = delete;

    /// The handle under which the end is queued; before the first item ends. An operation without items ends here.
    void set_handle(pkv_op *handle);
    /// Called, with no lock held, when a cancel comes while the operation is under way; also at once if it came before. There
    /// is one such function at a time; it is dropped when the operation ends, but may be running then.
    void on_cancel(std::function<void()> function);
    bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

    /// Ends an item; a second time changes nothing and gives false.
    bool end_item(uint64_t item, pkv_status status);
    /// Nothing of the operation touches pages or buffers any more. Comes after the last item, or with it.
    void free_buffers();
    /// Why items fail, for those who wait; before the last item ends.
    void explain(std::string why);
    /// Left for whoever asks, once; before the last item ends. It goes with the operation.
    void leave(std::shared_ptr<OpResult> result);
    /// What was left; nullptr if nothing was, or somebody has it already. PKV_ERR_BUSY while the operation is under way, and
    /// then its status.
    pkv_status take_result(std::shared_ptr<OpResult> &result);

    void info(pkv_op_info &out, std::span<pkv_status> statuses);
    pkv_status wait(uint64_t timeout_ns); ///< PKV_ERR_TIMEOUT while under way
    void cancel();

  private:
    // Under the lock:
    bool ended() const { return done_ == statuses_.size(); }
    pkv_status result() const; // after the end
    void end();
    pkv_status failure(pkv_status status) const;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<pkv_status> statuses_; // PKV_ERR_BUSY: under way
    uint64_t done_ = 0;
    uint64_t good_ = 0;
    bool buffers_free_ = false;
    std::atomic<bool> cancelled_{false};
    std::function<void()> on_cancel_;
    std::string why_;
    std::shared_ptr<OpResult> result_;
    std::shared_ptr<Queue> queue_; // until the end was queued
    uint64_t user_;
    pkv_op *handle_ = nullptr;
};

} // namespace pkv
