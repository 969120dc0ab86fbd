// SPDX-License-Identifier: Apache-2.0
#include "core/sync.h"

#include "core/options.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <thread>

namespace pkv {
namespace {

constexpr uint64_t default_timeout_ns = 1'000'000'000;
constexpr int spins = 2000; // some microseconds: most waits end here, without a sleep

pkv_status wait_counter(const pkv_sync &sync) {
    if (sync.handle == nullptr || reinterpret_cast<uintptr_t>(sync.handle) % sizeof(uint64_t) != 0)
        return fail(PKV_ERR_INVALID, "sync: host counter at %p is not an 8-byte aligned address", sync.handle);
    const std::atomic_ref<uint64_t> counter(*static_cast<uint64_t *>(sync.handle));
    for (int i = 0; i < spins; ++i)
        if (counter.load(std::memory_order_acquire) >= sync.value) return PKV_OK;

    const uint64_t timeout = sync.timeout_ns != 0 ? sync.timeout_ns : default_timeout_ns;
    const auto start = std::chrono::steady_clock::now();
    auto pause = std::chrono::microseconds(20);
    for (;;) {
        const uint64_t reached = counter.load(std::memory_order_acquire);
        if (reached >= sync.value) return PKV_OK;
        const auto waited =
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start);
        if (static_cast<uint64_t>(waited.count()) >= timeout)
            return fail(PKV_ERR_TIMEOUT, "sync: host counter is %" PRIu64 ", not %" PRIu64 ", after %" PRIu64 " ns",
                        reached, sync.value, timeout);
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::microseconds(500));
    }
}

} // namespace

pkv_status wait_sync(const pkv_sync *sync) {
    if (sync == nullptr) return PKV_OK;
    pkv_sync known;
    PKV_TRY(read_struct(sync, known, "sync"));
    if (known.reserved != 0) return fail(PKV_ERR_UNSUPPORTED, "sync: reserved is %d, not 0", known.reserved);
    switch (known.kind) {
    case PKV_SYNC_NONE: return PKV_OK;
    case PKV_SYNC_HOST_COUNTER: return wait_counter(known);
    case PKV_SYNC_CUDA_STREAM:
    case PKV_SYNC_CUDA_EVENT:
        return fail(PKV_ERR_UNSUPPORTED, "sync: kind %d needs a pool on a CUDA device", known.kind);
    default: return fail(PKV_ERR_INVALID, "sync: kind %d is none of PKV_SYNC_*", known.kind);
    }
}

} // namespace pkv
