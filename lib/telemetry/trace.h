// SPDX-License-Identifier: Apache-2.0
// Recording of what happens in time, for the whole process: pkv_trace_start and pkv_trace_stop (stats.h).
//
// What is recorded stands in lanes, those of one pool or session together in a "process" of the trace's. A lane shows spans
// one after another: whoever records into it sees to it that they do not overlap. Nothing here costs more than a look at on()
// while no trace is recorded.
#pragma once

#include "core/status.h"

#include <atomic>
#include <cstdint>
#include <string>

namespace pkv::trace {

constexpr uint32_t max_processes = 16384;
constexpr uint32_t max_lanes = 1024; // with names, of one process
constexpr uint64_t default_events = uint64_t{1} << 20;
constexpr uint64_t most_events = uint64_t{1} << 24;

namespace detail {
extern std::atomic<bool> recording;
}

/// Whether a trace is being recorded.
inline bool on() { return detail::recording.load(std::memory_order_relaxed); }

/// A group of lanes, for as long as this process lives: make it when there is something to record. Those that come after
/// max_processes - 1 others share one. Throws std::bad_alloc.
uint32_t new_process(std::string name);

/// Names a lane, for all later traces; viewers show lanes in the order of their numbers. Throws std::bad_alloc.
void name_lane(uint32_t process, uint32_t lane, std::string name);

/// Numbers that go with a span; keys are static strings.
struct Args {
    const char *key1 = nullptr;
    uint64_t value1 = 0;
    const char *key2 = nullptr;
    uint64_t value2 = 0;
};

/// Records a span, between two values of monotonic_ns(). `name` is a static string. The part of it before the trace began is
/// left out.
void span(uint32_t process, uint32_t lane, const char *name, uint64_t begin_ns, uint64_t end_ns, Args args = {});

/// Records the value that a number of the process has from then on. `name` is a static string.
void counter(uint32_t process, const char *name, uint64_t at_ns, uint64_t value);

/// Counts a span that no lane is free for as one that was dropped.
void drop();

pkv_status start(uint64_t max_events);
pkv_status stop(const char *path, uint64_t *dropped);

} // namespace pkv::trace
