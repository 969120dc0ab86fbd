// SPDX-License-Identifier: Apache-2.0
// When a call may touch page bytes: what its pkv_sync says. On a host pool it waits, and is done. On a device pool it is the
// stream into which the call's work goes.
//
//   the caller's stream      work is put into it; the call does not wait
//   the caller's event       work comes after it, in a stream of the library's; the call waits for the work
//   none, a host counter     (after the counter) the same without an event
//   a call without a sync    the stream that the pool was made with, or one of the library's; the call does not wait
#pragma once

#include "device/device.h"

#include <pagedkv/types.h>

namespace pkv {

class Turn {
  public:
    Turn() = default;
    ~Turn(); ///< work in a stream of the library's own that belongs to a waiting call has ended
    Turn(const Turn &) = delete;
    Turn &operator=(const Turn &) = delete;

    /// For a call that frees pages, says that they are complete, or keeps an eye on work: PKV_ERR_CAPTURE while the stream is
    /// being captured. `device` is nullptr for a host pool.
    pkv_status begin(const std::shared_ptr<Device> &device, const pkv_sync *sync) { return begin(device, sync, false); }
    /// For a call whose work may be captured.
    pkv_status begin_work(const std::shared_ptr<Device> &device, const pkv_sync *sync) {
        return begin(device, sync, true);
    }
    /// For a call without a sync. `given`: the stream for it, or nullptr.
    void begin_unasked(const std::shared_ptr<Device> &device, void *const *given);

    bool on_device() const { return device_ != nullptr; }
    bool captured() const { return captured_; }
    /// Whether the call waits for its work.
    bool waits() const { return kind_ == Kind::now || kind_ == Kind::event; }

    /// The caller's stream, of a call that does not wait.
    void *given() const { return stream_; }

    /// Where work of this call goes.
    pkv_status stream(void *&stream);
    /// Work of this call comes after these points. Nothing while it is captured: see pkv_pool_order().
    pkv_status after(const Fences &fences);
    /// Behind the work that this call has put into the stream so far. Not while it is captured.
    pkv_status point(Fences &fences);
    /// What the caller's sync names: nothing, if that has passed already.
    pkv_status named(Fences &fences);
    /// Waits for the work so far; more may follow.
    pkv_status finish();
    /// Ends the call: waits for its work, if there was any, where that was not put into the caller's stream.
    pkv_status end();

  private:
    enum class Kind { host, now, stream, event, unasked };
    pkv_status begin(const std::shared_ptr<Device> &device, const pkv_sync *sync, bool may_be_captured);
    pkv_status take_own();
    void give_back(bool empty);

    Kind kind_ = Kind::host;
    bool captured_ = false;
    bool own_ = false;    // stream_ is the library's
    bool used_ = false;   // and something of this call's is in it
    bool marked_ = false; // named_ is known
    void *stream_ = nullptr;
    void *event_ = nullptr;
    Fences named_;
    std::shared_ptr<Device> device_;
};

} // namespace pkv
