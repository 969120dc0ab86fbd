// SPDX-License-Identifier: Apache-2.0
// The lanes of one pool in a trace, for what happens outside of prefetch sessions: calls that wait for loads, and for each tier
// the times in which loads from it were outstanding.
//
// Several calls may do so at once, and spans of a lane must not overlap: each call takes a place, the lowest that is free, for as
// long as it lasts, and each place has lanes of its own. One call at a time always uses the first.
#pragma once

#include "core/mutex.h"
#include "telemetry/trace.h"

#include <pagedkv/pool.h>

#include <array>
#include <cstdint>

namespace pkv::trace {

class PoolLanes {
  public:
    static constexpr uint32_t places = 64;
    static constexpr uint32_t rows = 1 + PKV_MAX_TIERS; ///< waits, then the tiers

    PoolLanes() = default;
    PoolLanes(const PoolLanes &) = delete;
    PoolLanes &operator=(const PoolLanes &) = delete;

  private:
    friend class PoolWait;
    friend class PoolLoads;

    static constexpr uint32_t no_place = UINT32_MAX;
    enum Kind { waits, loads, kinds };

    /// A place of a call, until the end of the scope. Without a trace, or when all are taken, there is none.
    class Place {
      public:
        Place(PoolLanes &lanes, Kind kind);
        ~Place();
        Place(const Place &) = delete;
        Place &operator=(const Place &) = delete;

        explicit operator bool() const { return place_ != no_place; }
        /// Names a lane when it is used for the first time.
        void name(uint32_t row, const char *tier_name) const;
        void record(uint32_t row, const char *what, uint64_t begin_ns, uint64_t end_ns, const Args &args) const {
            span(process_, lane_of(row), what, begin_ns, end_ns, args);
        }

      private:
        uint32_t lane_of(uint32_t row) const { return row * places + place_; }

        PoolLanes &lanes_;
        const Kind kind_;
        uint32_t place_ = no_place;
        uint32_t process_ = 0;
    };

    Mutex mutex_;                                                // taken before the recorder's
    uint32_t process_ PKV_GUARDED_BY(mutex_) = 0;                // made with the first place
    std::array<uint64_t, kinds> taken_ PKV_GUARDED_BY(mutex_){}; // bit masks of places
    std::array<uint64_t, rows> named_ PKV_GUARDED_BY(mutex_){};
};

/// While one lives, a call waits for loads.
class PoolWait {
  public:
    /// `name` is a static string; `blocks` is looked at when the wait is over.
    PoolWait(PoolLanes &lanes, const char *name, const uint64_t &blocks);
    ~PoolWait();
    PoolWait(const PoolWait &) = delete;
    PoolWait &operator=(const PoolWait &) = delete;

  private:
    const PoolLanes::Place place_;
    const char *name_;
    const uint64_t &blocks_;
    uint64_t begin_ns_ = 0;
};

/// The loads of one call, from several tiers: for each tier a span from when the first begins until none is outstanding. Loads
/// that follow each other closely share one.
class PoolLoads {
  public:
    explicit PoolLoads(PoolLanes &lanes);
    ~PoolLoads(); ///< loads that have not ended are given up
    PoolLoads(const PoolLoads &) = delete;
    PoolLoads &operator=(const PoolLoads &) = delete;

    void begin(uint32_t tier, const char *tier_name);
    void end(uint32_t tier, uint64_t bytes); ///< good ones

  private:
    struct Run {
        uint64_t begin_ns = 0;
        uint64_t end_ns = 0;
        uint64_t open = 0;
        uint64_t loads = 0; // 0: there is none
        uint64_t bytes = 0;
    };
    static constexpr uint64_t close_ns = 10'000;
    void record(uint32_t tier);

    const PoolLanes::Place place_;
    std::array<Run, PKV_MAX_TIERS> runs_;
};

} // namespace pkv::trace
