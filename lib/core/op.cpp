// SPDX-License-Identifier: Apache-2.0
#include "core/op.h"

#include "core/wait.h"

#include <algorithm>
#include <cinttypes>
#include <utility>

namespace pkv {

Op::Op(uint64_t num_items, std::shared_ptr<Queue> queue, uint64_t user)
    : statuses_(num_items, PKV_ERR_BUSY), queue_(std::move(queue)), user_(user) {
    if (queue_ != nullptr) queue_->reserve(); // last: nothing after it throws
}

Op::~Op() {
    if (queue_ != nullptr) queue_->unreserve(); // it never ended
}

void Op::set_handle(pkv_op *handle) {
    const std::lock_guard lock(mutex_);
    handle_ = handle;
    if (ended()) end(); // without items it ends as it begins
}

/// The last item has ended. The result is queued under the lock, so that whoever takes it out finds the operation ended.
void Op::end() {
    if (const auto queue = std::exchange(queue_, nullptr); queue != nullptr) queue->push({user_, handle_, result(), 0});
    changed_.notify_all();
}

pkv_status Op::result() const {
    if (cancelled()) return PKV_ERR_CANCELLED;
    for (const pkv_status status : statuses_)
        if (status != PKV_OK) return status;
    return PKV_OK;
}

void Op::on_cancel(std::function<void()> function) {
    {
        const std::lock_guard lock(mutex_);
        if (!cancelled()) {
            if (!ended()) on_cancel_.swap(function); // the former one goes after the lock
            return;
        }
        if (ended()) return;
    }
    if (function) function();
}

bool Op::end_item(uint64_t item, pkv_status status) {
    std::function<void()> unused; // what it captured goes after the lock
    const std::lock_guard lock(mutex_);
    if (item >= statuses_.size() || statuses_[item] != PKV_ERR_BUSY) return false;
    statuses_[item] =
        status != PKV_ERR_BUSY ? status : PKV_ERR_INTERNAL; // an item that is busy for ever would end twice
    ++done_;
    if (status == PKV_OK) ++good_;
    if (!ended()) return true;
    unused.swap(on_cancel_);
    end();
    return true;
}

void Op::free_buffers() {
    const std::lock_guard lock(mutex_);
    buffers_free_ = true;
}

void Op::explain(std::string why) {
    const std::lock_guard lock(mutex_);
    why_ = std::move(why);
}

void Op::leave(std::shared_ptr<OpResult> result) {
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
}

pkv_status Op::take_result(std::shared_ptr<OpResult> &result) {
    const std::lock_guard lock(mutex_);
    if (!ended()) return fail(PKV_ERR_BUSY, "%" PRIu64 " of %zu items have ended", done_, statuses_.size());
    if (const pkv_status status = this->result(); status != PKV_OK) return failure(status);
    result = std::move(result_);
    return PKV_OK;
}

pkv_status Op::failure(pkv_status status) const {
    return fail(status, "%" PRIu64 " of %zu items failed: %s", done_ - good_, statuses_.size(),
                why_.empty() ? status_name(status) : why_.c_str());
}

void Op::info(pkv_op_info &out, std::span<pkv_status> statuses) {
    const std::lock_guard lock(mutex_);
    out = pkv_op_info PKV_OP_INFO_INIT;
    out.state = ended() ? PKV_OP_ENDED : PKV_OP_RUNNING;
    out.status = ended() ? result() : PKV_OK;
    out.num_items = statuses_.size();
    out.done_items = done_;
    out.good_items = good_;
    out.buffers_free = buffers_free_ ? 1 : 0;
    std::copy_n(statuses_.begin(), std::min(statuses.size(), statuses_.size()), statuses.begin());
}

pkv_status Op::wait(uint64_t timeout_ns) {
    const uint64_t deadline = deadline_after(timeout_ns);
    std::unique_lock lock(mutex_);
    if (!ended() && (timeout_ns == 0 || !wait_until(changed_, lock, deadline, [this] { return ended(); })))
        return fail(PKV_ERR_TIMEOUT, "%" PRIu64 " of %zu items have ended", done_, statuses_.size());
    const pkv_status status = result();
    if (status == PKV_OK) return PKV_OK;
    return failure(status);
}

void Op::cancel() {
    std::function<void()> function;
    {
        const std::lock_guard lock(mutex_);
        if (ended() || cancelled()) return;
        cancelled_.store(true, std::memory_order_release);
        function.swap(on_cancel_);
    }
    if (function) function();
}

} // namespace pkv
