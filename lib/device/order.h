// SPDX-License-Identifier: Apache-2.0
// The order of work in the streams of one device, the caller's streams and the library's own: points are marked in them by
// events, and other streams, or threads, wait for those.
//
// A stream that was heard of has one of 64 numbers, as long as points in it have not passed; then the number may go to another
// stream. Tickets are drawn from one counter, so that what was marked under a number before is known to have passed.
#pragma once

#include "core/mutex.h"
#include "core/status.h"
#include "device/fences.h"
#include "tensor/device_table.h"

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <vector>

namespace pkv {

class Order {
  public:
    Order(const pkv_device_table &table, pkv_device_context *context);
    ~Order();
    Order(const Order &) = delete;
    Order &operator=(const Order &) = delete;

    /// Gives everything back to the context, which is about to be closed.
    void end();

    /// A point behind all that has been put into a stream, which is not being captured. May throw std::bad_alloc.
    pkv_status mark(void *stream, Fences &point);
    /// The same behind an event of the caller's.
    pkv_status mark_event(void *event, Fences &point);
    /// What is put into a stream from now on comes after these points. May throw std::bad_alloc.
    pkv_status order(void *stream, const Fences &after);
    /// The calling thread waits for them.
    pkv_status wait(const Fences &after);

    /// Whether they have passed, as of the last look. Needs no lock.
    bool passed(const Fences &fences) const {
        for (uint64_t left = fences.streams; left != 0; left &= left - 1)
            if (first_open_[static_cast<size_t>(__builtin_ctzll(left))].load(std::memory_order_acquire) <=
                fences.ticket)
                return false;
        return true;
    }
    /// Looks which points have passed.
    void look();
    /// Looks only if the last look says that they have not.
    bool passed_by_now(const Fences &fences) {
        if (passed(fences)) return true;
        look();
        return passed(fences);
    }

  private:
    static constexpr size_t most_streams = 64;
    static constexpr uint64_t nothing_open = UINT64_MAX;

    struct Event; // gives its event back in the end
    struct Point {
        uint64_t ticket;
        std::shared_ptr<Event> event;
    };
    struct Stream {
        uint64_t identity = 0; // 0: the number is free
        uint64_t last_use = 0;
        std::deque<Point> open;                      // not known to have passed
        std::array<uint64_t, most_streams> behind{}; // it comes after these tickets of others
    };

    uint64_t identity_of(void *stream) const;
    pkv_status number_of(void *stream, size_t &number) PKV_REQUIRES(mutex_);
    pkv_status number_of_identity(uint64_t identity, size_t &number) PKV_REQUIRES(mutex_);
    void look_at(size_t number) PKV_REQUIRES(mutex_);
    pkv_status take_event(std::shared_ptr<Event> &event) PKV_REQUIRES(mutex_);
    pkv_status mark_number(size_t number, void *stream, Fences &point) PKV_REQUIRES(mutex_);
    /// The last open point of a stream up to a ticket, or nullptr.
    const Point *last_point(const Stream &stream, uint64_t ticket) const;

    const pkv_device_table &table_;
    pkv_device_context *const context_;
    Mutex mutex_; // taken alone, or under a pool's
    std::array<Stream, most_streams> streams_ PKV_GUARDED_BY(mutex_);
    std::array<std::atomic<uint64_t>, most_streams> first_open_; // ticket of the first open point
    uint64_t last_ticket_ PKV_GUARDED_BY(mutex_) = 0;
    uint64_t uses_ PKV_GUARDED_BY(mutex_) = 0;
    void *marker_ PKV_GUARDED_BY(mutex_) = nullptr; // a stream of the library's, for events of the caller's
    struct FreeEvents;
    std::shared_ptr<FreeEvents> free_events_;
};

} // namespace pkv
