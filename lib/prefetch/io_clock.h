// SPDX-License-Identifier: Apache-2.0
// How long loads were outstanding, and how much of that somebody waited: every instant is counted once, whatever the number
// of loads, so that masked + exposed = I/O time holds by construction.
#pragma once

#include <cstdint>

namespace pkv {

class IoClock {
  public:
    void begin_load(uint64_t now) {
        advance(now);
        ++loads_;
    }
    void end_load(uint64_t now) {
        advance(now);
        --loads_;
    }
    void begin_wait(uint64_t now) {
        advance(now);
        waiting_ = true;
    }
    void end_wait(uint64_t now) {
        advance(now);
        waiting_ = false;
    }
    /// Counts the time up to now. Times that go back, since threads read the clock before they lock, count as none.
    void advance(uint64_t now) {
        if (now <= last_) return;
        const uint64_t passed = now - last_;
        last_ = now;
        if (loads_ != 0) {
            io_ns_ += passed;
            if (waiting_) exposed_ns_ += passed;
        } else if (waiting_) {
            other_wait_ns_ += passed;
        }
    }

    uint64_t loads() const { return loads_; }
    uint64_t io_ns() const { return io_ns_; }
    uint64_t exposed_ns() const { return exposed_ns_; }
    uint64_t other_wait_ns() const { return other_wait_ns_; }

  private:
    uint64_t last_ = 0;
    uint64_t loads_ = 0;
    bool waiting_ = false;
    uint64_t io_ns_ = 0;
    uint64_t exposed_ns_ = 0;
    uint64_t other_wait_ns_ = 0;
};

} // namespace pkv
