// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include "device/plugin.h"

#include <pagedkv/device.h>

#include <algorithm>
#include <cinttypes>

namespace pkv {
namespace {

pkv_status check_kind(int32_t kind, int32_t index) {
    if (kind != PKV_DEVICE_HOST && kind != PKV_DEVICE_CUDA)
        return fail(PKV_ERR_INVALID, "device is %d, none of PKV_DEVICE_*", kind);
    if (index < 0) return fail(PKV_ERR_INVALID, "the device's index is %d, less than 0", index);
    return PKV_OK;
}

/// Devices in use. An entry is stale once the last pool on its device has gone.
struct OpenDevices {
    std::mutex mutex;
    std::vector<std::weak_ptr<Device>> list;
};

OpenDevices &open_devices() {
    static OpenDevices *const devices = new OpenDevices; // outlives every static object that has a pool
    return *devices;
}

} // namespace

pkv_status Device::available(int32_t kind, int32_t index) {
    PKV_TRY(check_kind(kind, index));
    if (kind == PKV_DEVICE_HOST)
        return index == 0 ? PKV_OK : fail(PKV_ERR_UNSUPPORTED, "host device %d: there is one, of index 0", index);
    const pkv_device_table *table = nullptr;
    PKV_TRY(cuda_table(table));
    char why[256] = "";
    const pkv_status status = table->available(index, why, sizeof why);
    return status == PKV_OK ? PKV_OK : fail(status, "CUDA device %d: %s", index, why);
}

pkv_status Device::open(int32_t kind, int32_t index, std::shared_ptr<Device> &device) {
    PKV_TRY(available(kind, index));
    device = nullptr;
    if (kind == PKV_DEVICE_HOST) return PKV_OK;
    const pkv_device_table *table = nullptr;
    PKV_TRY(cuda_table(table));
    OpenDevices &devices = open_devices();
    const std::lock_guard lock(devices.mutex);
    std::erase_if(devices.list, [](const auto &item) { return item.expired(); });
    for (const auto &item : devices.list)
        if (auto known = item.lock(); known != nullptr && known->index() == index) {
            device = std::move(known);
            return PKV_OK;
        }
    devices.list.reserve(devices.list.size() + 1);
    pkv_device_context *context = nullptr;
    char why[256] = "";
    pkv_status status = table->open(index, &context, why, sizeof why);
    if (status != PKV_OK) return fail(status, "CUDA device %d: %s", index, why);
    std::shared_ptr<Device> fresh;
    try {
        fresh = std::make_shared<Device>(*table, context, index);
    } catch (...) {
        table->close(context);
        throw;
    }
    fresh->facts_.struct_size = sizeof fresh->facts_;
    PKV_TRY(fresh->call("the device's properties", &pkv_device_table::facts, &fresh->facts_));
    devices.list.push_back(fresh);
    device = std::move(fresh);
    return PKV_OK;
}

Device::Device(const pkv_device_table &table, pkv_device_context *context, int32_t index)
    : table_(table), context_(context), index_(index), order_(table, context) {}

Device::~Device() {
    for (const Kept &item : kept_) {
        (void)order_.wait(item.until);
        table_.free_pinned(context_, item.memory);
    }
    for (const auto &streams : idle_streams_)
        for (void *stream : streams) table_.end_stream(context_, stream);
    order_.end();
    table_.close(context_);
}

pkv_status Device::take_stream(bool empty, void *&stream) {
    const std::lock_guard lock(mutex_);
    for (const bool kind : {empty, true}) {
        if (idle_streams_[kind].empty()) continue;
        stream = idle_streams_[kind].back();
        idle_streams_[kind].pop_back();
        return PKV_OK;
    }
    for (auto &streams : idle_streams_) streams.reserve(num_streams_ + 1); // giving one back never fails
    PKV_TRY(call("a stream", &pkv_device_table::make_stream, 1, &stream));
    ++num_streams_;
    return PKV_OK;
}

void Device::give_stream(bool empty, void *stream) noexcept {
    const std::lock_guard lock(mutex_);
    idle_streams_[empty].push_back(stream);
}

pkv_status Device::take_pinned(uint64_t bytes, const char *what, PinnedMemory &memory) {
    memory.reset();
    for (const bool looked : {false, true}) {
        if (looked) order_.look();
        const std::lock_guard lock(mutex_);
        auto best = kept_.end();
        for (auto at = kept_.begin(); at != kept_.end(); ++at)
            if (at->bytes >= bytes && at->bytes / 4 <= bytes && (best == kept_.end() || at->bytes < best->bytes) &&
                order_.passed(at->until))
                best = at;
        if (best == kept_.end()) continue;
        memory.device_ = shared_from_this();
        memory.data_ = best->memory;
        memory.bytes_ = best->bytes;
        kept_.erase(best);
        return PKV_OK;
    }
    return memory.create(shared_from_this(), bytes, what);
}

void Device::keep_pinned(PinnedMemory &memory, const Fences &until) noexcept {
    if (memory.data_ == nullptr) return;
    try {
        const std::lock_guard lock(mutex_);
        kept_.push_back({memory.data_, memory.bytes_, until});
        memory.data_ = nullptr;
    } catch (const std::bad_alloc &) {
        (void)order_.wait(until);
    } // and frees it
    memory.reset();
}

pkv_status Device::kind_of(const void *address, int32_t &kind) const {
    return call("an address", &pkv_device_table::address_kind, address, &kind);
}

pkv_status Device::check_readable(const void *address, const char *what) const {
    int32_t kind = 0;
    PKV_TRY(kind_of(address, kind));
    if (kind == PKV_ADDRESS_HOST)
        return fail(PKV_ERR_INVALID,
                    "%s: %p is ordinary host memory, which device %d cannot read (pinned memory it can)", what, address,
                    index_);
    if (kind == PKV_ADDRESS_OTHER)
        return fail(PKV_ERR_INVALID, "%s: %p is memory of another device than %d", what, address, index_);
    return PKV_OK;
}

// ---- memory --------------------------------------------------------------------------------------------------------

pkv_status DeviceMemory::create(std::shared_ptr<Device> device, uint64_t bytes, const char *what) {
    reset();
    if (bytes == 0) return PKV_OK;
    PKV_TRY(device->call(what, &pkv_device_table::alloc, bytes, &data_));
    device_ = std::move(device);
    bytes_ = bytes;
    return PKV_OK;
}

void DeviceMemory::reset() {
    if (data_ != nullptr) device_->table_.free(device_->context_, data_);
    data_ = nullptr;
    bytes_ = 0;
    device_ = nullptr;
}

pkv_status PinnedMemory::create(std::shared_ptr<Device> device, uint64_t bytes, const char *what) {
    reset();
    if (bytes == 0) return PKV_OK;
    PKV_TRY(device->call(what, &pkv_device_table::alloc_pinned, bytes, &data_));
    device_ = std::move(device);
    bytes_ = bytes;
    return PKV_OK;
}

void PinnedMemory::reset() {
    if (data_ != nullptr) device_->table_.free_pinned(device_->context_, data_);
    data_ = nullptr;
    bytes_ = 0;
    device_ = nullptr;
}

// ---- times ---------------------------------------------------------------------------------------------------------

pkv_status StreamTimer::begin(const std::shared_ptr<Device> &device, void *stream) {
    device_ = device;
    runs_ = false;
    for (pkv_device_event **event : {&from_, &to_})
        if (*event == nullptr) PKV_TRY(device_->call("a timed event", &pkv_device_table::make_event, 1, event));
    return device_->call("a timed event", &pkv_device_table::record, from_, stream);
}

pkv_status StreamTimer::end(void *stream) {
    if (to_ == nullptr) return PKV_OK;
    PKV_TRY(device_->call("a timed event", &pkv_device_table::record, to_, stream));
    runs_ = true;
    return PKV_OK;
}

bool StreamTimer::take(uint64_t &ns) {
    char why[1];
    if (!runs_ || device_->table_.query(device_->context_, to_, why, sizeof why) != PKV_OK) return false;
    runs_ = false;
    return device_->table_.elapsed_ns(device_->context_, from_, to_, &ns, why, sizeof why) == PKV_OK;
}

StreamTimer::~StreamTimer() {
    for (pkv_device_event *event : {from_, to_})
        if (event != nullptr) device_->table_.end_event(device_->context_, event);
}

// ---- pinned ranges -------------------------------------------------------------------------------------------------

pkv_status PinnedRange::create(std::shared_ptr<Device> device, void *base, uint64_t bytes) {
    reset();
    const std::lock_guard lock(device->pins_mutex_);
    const auto known = std::find_if(device->pinned_.begin(), device->pinned_.end(),
                                    [&](const Device::Pinned &at) { return at.base == base && at.bytes == bytes; });
    if (known != device->pinned_.end()) {
        ++known->users;
    } else {
        device->pinned_.reserve(device->pinned_.size() + 1);
        PKV_TRY(device->call("pinning memory", &pkv_device_table::pin, base, bytes));
        device->pinned_.push_back({base, bytes, 1});
    }
    device_ = std::move(device);
    base_ = base;
    return PKV_OK;
}

void PinnedRange::reset() {
    if (base_ == nullptr) return;
    {
        const std::lock_guard lock(device_->pins_mutex_);
        const auto at = std::find_if(device_->pinned_.begin(), device_->pinned_.end(),
                                     [&](const Device::Pinned &item) { return item.base == base_; });
        if (at != device_->pinned_.end() && --at->users == 0) {
            device_->table_.unpin(device_->context_, base_);
            device_->pinned_.erase(at);
        }
    }
    base_ = nullptr;
    device_ = nullptr;
}

} // namespace pkv
