// SPDX-License-Identifier: Apache-2.0
#include "device/turn.h"

#include "core/options.h"
#include "core/sync.h"

namespace pkv {

Turn::~Turn() {
    if (device_ == nullptr || !own_) return;
    // A call that failed on its way: what it has put into the stream may still read the caller's memory.
    if (used_ && waits()) (void)device_->call("a stream", &pkv_device_table::wait_stream, stream_);
    give_back(waits());
}

void Turn::give_back(bool empty) {
    device_->give_stream(empty, stream_);
    own_ = used_ = false;
    stream_ = nullptr;
}

pkv_status Turn::begin(const std::shared_ptr<Device> &device, const pkv_sync *sync, bool may_be_captured) {
    if (device == nullptr) return wait_sync(sync);
    pkv_sync known = PKV_SYNC_INIT;
    if (sync != nullptr) PKV_TRY(read_struct(sync, known, "sync"));
    if (known.reserved != 0) return fail(PKV_ERR_UNSUPPORTED, "sync: reserved is %d, not 0", known.reserved);
    kind_ = Kind::now;
    if (known.kind == PKV_SYNC_CUDA_STREAM) {
        int32_t capturing = 0;
        PKV_TRY(device->call("sync: the stream", &pkv_device_table::capturing, known.handle, &capturing));
        if (capturing != 0 && !may_be_captured)
            return fail(PKV_ERR_CAPTURE,
                        "sync: stream %p is being captured, and a graph would repeat this call's work, not the call",
                        known.handle);
        captured_ = capturing != 0;
        stream_ = known.handle;
        kind_ = Kind::stream;
    } else if (known.kind == PKV_SYNC_CUDA_EVENT) {
        if (known.handle == nullptr) return fail(PKV_ERR_INVALID, "sync: the event is NULL");
        event_ = known.handle;
        kind_ = Kind::event;
    } else {
        PKV_TRY(wait_sync(&known));
    }
    device_ = device;
    return PKV_OK;
}

void Turn::begin_unasked(const std::shared_ptr<Device> &device, void *const *given) {
    if (device == nullptr) return;
    device_ = device;
    kind_ = Kind::unasked;
    int32_t capturing = 1;
    if (given == nullptr ||
        device->call("the pool's stream", &pkv_device_table::capturing, *given, &capturing) != PKV_OK || capturing != 0)
        return; // a stream of the library's, then
    stream_ = *given;
    kind_ = Kind::stream;
}

pkv_status Turn::take_own() {
    PKV_TRY(device_->take_stream(waits(), stream_));
    own_ = true;
    if (kind_ == Kind::event) {
        Fences point;
        PKV_TRY(named(point));
        used_ = true;
        PKV_TRY(device_->order().order(stream_, point));
    }
    return PKV_OK;
}

pkv_status Turn::stream(void *&stream) {
    if (kind_ != Kind::stream) {
        if (!own_) PKV_TRY(take_own());
        used_ = true;
    } else {
        marked_ = false; // a point that was marked before stands before this work
    }
    stream = stream_;
    return PKV_OK;
}

pkv_status Turn::after(const Fences &fences) {
    if (captured_ || fences.none() || device_->order().passed(fences)) return PKV_OK;
    if (kind_ != Kind::stream && !own_) PKV_TRY(take_own());
    used_ = true;
    return device_->order().order(stream_, fences);
}

pkv_status Turn::point(Fences &fences) {
    if (kind_ == Kind::stream) return named(fences);
    if (!own_) return PKV_OK; // no work so far
    return device_->order().mark(stream_, fences);
}

pkv_status Turn::named(Fences &fences) {
    if (kind_ != Kind::stream && kind_ != Kind::event) {
        fences = {};
        return PKV_OK;
    }
    if (!marked_)
        PKV_TRY(kind_ == Kind::stream ? device_->order().mark(stream_, named_)
                                      : device_->order().mark_event(event_, named_));
    marked_ = true;
    fences = named_;
    return PKV_OK;
}

pkv_status Turn::finish() {
    if (device_ == nullptr || (kind_ != Kind::stream && !own_)) return PKV_OK;
    return device_->call("the device", &pkv_device_table::wait_stream, stream_);
}

pkv_status Turn::end() {
    if (device_ == nullptr || !own_) return PKV_OK;
    const pkv_status status = used_ && waits() ? finish() : PKV_OK;
    give_back(waits());
    return status;
}

} // namespace pkv
