// SPDX-License-Identifier: Apache-2.0
#include "telemetry/pool_lanes.h"

#include "core/clock.h"

#include <atomic>
#include <bit>
#include <string>
#include <utility>

namespace pkv::trace {
namespace {

std::string pool_name() {
    static std::atomic<uint32_t> number{0}; // pools have no names: in the order in which they first wait
    return "pool " + std::to_string(number.fetch_add(1, std::memory_order_relaxed));
}

} // namespace

PoolLanes::Place::Place(PoolLanes &lanes, Kind kind) : lanes_(lanes), kind_(kind) {
    if (!on()) return;
    const Lock lock(lanes.mutex_);
    if (lanes.process_ == 0) lanes.process_ = new_process(pool_name());
    process_ = lanes.process_;
    uint64_t &taken = lanes.taken_[kind];
    if (taken == UINT64_MAX) {
        drop();
        return;
    }
    place_ = static_cast<uint32_t>(std::countr_one(taken));
    taken |= uint64_t{1} << place_;
}

PoolLanes::Place::~Place() {
    if (place_ == no_place) return;
    const Lock lock(lanes_.mutex_);
    lanes_.taken_[kind_] &= ~(uint64_t{1} << place_);
}

void PoolLanes::Place::name(uint32_t row, const char *tier_name) const {
    const Lock lock(lanes_.mutex_);
    if ((lanes_.named_[row] >> place_ & 1) != 0) return;
    std::string text = row == 0 ? "waits" : "tier " + std::to_string(row - 1);
    if (row != 0 && tier_name != nullptr) text += std::string(": ") + tier_name;
    if (place_ != 0) text += " (" + std::to_string(place_ + 1) + ")";
    name_lane(process_, lane_of(row), std::move(text));
    lanes_.named_[row] |= uint64_t{1} << place_;
}

// ---- waits ---------------------------------------------------------------------------------------------------------

PoolWait::PoolWait(PoolLanes &lanes, const char *name, const uint64_t &blocks)
    : place_(lanes, PoolLanes::waits), name_(name), blocks_(blocks) {
    if (!place_) return;
    place_.name(0, nullptr);
    begin_ns_ = monotonic_ns(); // with the place: it may have been another call's until now
}

PoolWait::~PoolWait() {
    if (place_) place_.record(0, name_, begin_ns_, monotonic_ns(), {"blocks", blocks_});
}

// ---- loads ---------------------------------------------------------------------------------------------------------

PoolLoads::PoolLoads(PoolLanes &lanes) : place_(lanes, PoolLanes::loads) {}

PoolLoads::~PoolLoads() {
    if (!place_) return;
    for (uint32_t tier = 0; tier < runs_.size(); ++tier) {
        if (runs_[tier].open > 0) runs_[tier].end_ns = monotonic_ns();
        record(tier);
    }
}

void PoolLoads::begin(uint32_t tier, const char *tier_name) {
    if (!place_) return;
    place_.name(1 + tier, tier_name);
    Run &run = runs_[tier];
    const uint64_t now = monotonic_ns();
    if (run.open == 0 && now - run.end_ns > close_ns) record(tier);
    if (run.loads == 0) run.begin_ns = now;
    ++run.open;
    ++run.loads;
}

void PoolLoads::end(uint32_t tier, uint64_t bytes) {
    if (!place_) return;
    Run &run = runs_[tier];
    --run.open;
    run.bytes += bytes;
    run.end_ns = monotonic_ns();
}

void PoolLoads::record(uint32_t tier) {
    Run &run = runs_[tier];
    if (run.loads > 0)
        place_.record(1 + tier, "load", run.begin_ns, run.end_ns, {"loads", run.loads, "bytes", run.bytes});
    run = {};
}

} // namespace pkv::trace
