// SPDX-License-Identifier: Apache-2.0
// A device in use: its context, which all pools on it share, memory, streams of the library's own, and the order of streams.
#pragma once

#include "core/status.h"
#include "device/order.h"
#include "tensor/device_table.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace pkv {

class Device : public std::enable_shared_from_this<Device> {
  public:
    /// Whether it could be opened: PKV_OK, or PKV_ERR_UNSUPPORTED with the reason. Opens nothing.
    static pkv_status available(int32_t kind, int32_t index);
    /// The context of a device that is in use already, or a new one. PKV_DEVICE_HOST is none.
    static pkv_status open(int32_t kind, int32_t index, std::shared_ptr<Device> &device);
    Device(const pkv_device_table &table, pkv_device_context *context, int32_t index);
    ~Device();
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    int32_t index() const { return index_; }
    const pkv_device_facts &facts() const { return facts_; }
    Order &order() { return order_; }

    /// Calls a function of the table; a failure has its reason, after `what`, in the last error.
    template <class Function, class... Arguments>
    pkv_status call(const char *what, Function pkv_device_table::*function, Arguments... arguments) const {
        char why[256] = "";
        const pkv_status status = (table_.*function)(context_, arguments..., why, sizeof why);
        return status == PKV_OK ? PKV_OK : fail(status, "%s: %s", what, why);
    }

    /// A stream of the library's own, for one user at a time. An empty one has nothing in it: it waits for no stream of a
    /// caller's. In others comes first what earlier users have left in them.
    pkv_status take_stream(bool empty, void *&stream);
    void give_stream(bool empty, void *stream) noexcept;

    /// Pinned memory that was kept, or new one: `bytes` at least, of unknown content.
    pkv_status take_pinned(uint64_t bytes, const char *what, class PinnedMemory &memory);
    /// Keeps pinned memory, which is used again once some work has passed: to free it would be to wait for all streams, of which
    /// some may wait for the very thread that frees it.
    void keep_pinned(class PinnedMemory &memory, const Fences &until) noexcept;

    pkv_status kind_of(const void *address, int32_t &kind) const;
    /// PKV_ERR_INVALID for an address that kernels of the device cannot read; `what` names it.
    pkv_status check_readable(const void *address, const char *what) const;

  private:
    friend class DeviceMemory;
    friend class StreamTimer;
    friend class PinnedMemory;
    friend class PinnedRange;
    const pkv_device_table &table_;
    pkv_device_context *context_;
    int32_t index_;
    pkv_device_facts facts_{};
    Order order_;
    std::mutex mutex_;                    // taken alone
    std::vector<void *> idle_streams_[2]; // [1]: empty ones
    size_t num_streams_ = 0;
    struct Kept {
        void *memory;
        uint64_t bytes;
        Fences until;
    };
    std::vector<Kept> kept_; // pinned memory
    struct Pinned {
        void *base;
        uint64_t bytes;
        uint32_t users;
    };
    std::mutex pins_mutex_;      // taken alone; the device may be waited for meanwhile
    std::vector<Pinned> pinned_; // memory of others', see PinnedRange
};

/// Memory of a device.
class DeviceMemory {
  public:
    DeviceMemory() = default;
    ~DeviceMemory() { reset(); }
    DeviceMemory(const DeviceMemory &) = delete;
    DeviceMemory &operator=(const DeviceMemory &) = delete;

    pkv_status create(std::shared_ptr<Device> device, uint64_t bytes, const char *what);
    void reset();
    std::byte *data() const { return static_cast<std::byte *>(data_); }
    uint64_t bytes() const { return bytes_; }

  private:
    std::shared_ptr<Device> device_;
    void *data_ = nullptr;
    uint64_t bytes_ = 0;
};

/// Host memory that kernels of the device read at the same address.
class PinnedMemory {
  public:
    PinnedMemory() = default;
    ~PinnedMemory() { reset(); }
    PinnedMemory(const PinnedMemory &) = delete;
    PinnedMemory &operator=(const PinnedMemory &) = delete;

    pkv_status create(std::shared_ptr<Device> device, uint64_t bytes, const char *what);
    void reset();
    std::byte *data() const { return static_cast<std::byte *>(data_); }
    uint64_t bytes() const { return bytes_; }

  private:
    friend class Device;
    std::shared_ptr<Device> device_;
    void *data_ = nullptr;
    uint64_t bytes_ = 0;
};

/// How long a stream takes from one point to another.
class StreamTimer {
  public:
    StreamTimer() = default;
    ~StreamTimer();
    StreamTimer(const StreamTimer &) = delete;
    StreamTimer &operator=(const StreamTimer &) = delete;

    pkv_status begin(const std::shared_ptr<Device> &device, void *stream);
    pkv_status end(void *stream);
    /// Once, when the stream has passed both points.
    bool take(uint64_t &ns);

  private:
    std::shared_ptr<Device> device_;
    pkv_device_event *from_ = nullptr;
    pkv_device_event *to_ = nullptr;
    bool runs_ = false;
};

/// Memory that exists, pinned for as long as somebody wants it so.
class PinnedRange {
  public:
    PinnedRange() = default;
    ~PinnedRange() { reset(); }
    PinnedRange(const PinnedRange &) = delete;
    PinnedRange &operator=(const PinnedRange &) = delete;
    PinnedRange(PinnedRange &&other) noexcept
        : device_(std::move(other.device_)), base_(std::exchange(other.base_, nullptr)) {}
    PinnedRange &operator=(PinnedRange &&) = delete;

    pkv_status create(std::shared_ptr<Device> device, void *base, uint64_t bytes);
    void reset();

  private:
    std::shared_ptr<Device> device_;
    void *base_ = nullptr;
};

} // namespace pkv
