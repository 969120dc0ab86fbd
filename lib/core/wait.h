// SPDX-License-Identifier: Apache-2.0
// Waiting for a condition up to a time on the library's clock.
#pragma once

#include "core/clock.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace pkv {

constexpr uint64_t no_deadline = UINT64_MAX;

/// The time at which a timeout that begins now ends. What is centuries away is no deadline.
inline uint64_t deadline_after(uint64_t timeout_ns) {
    return timeout_ns < UINT64_MAX / 4 ? monotonic_ns() + timeout_ns : no_deadline;
}

/// Waits until `done()`; false when the deadline came first.
template <class Done>
bool wait_until(std::condition_variable &changed, std::unique_lock<std::mutex> &lock, uint64_t deadline_ns, Done done) {
    if (deadline_ns >= UINT64_MAX / 2) { // beyond what the clock's type holds
        changed.wait(lock, done);
        return true;
    }
    using Clock = std::chrono::steady_clock;
    const std::chrono::nanoseconds since(static_cast<int64_t>(deadline_ns));
    return changed.wait_until(lock, Clock::time_point(std::chrono::duration_cast<Clock::duration>(since)), done);
}

} // namespace pkv
