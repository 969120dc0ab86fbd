// SPDX-License-Identifier: Apache-2.0
#include "handover/slots.h"

#include "core/wait.h"

#include <condition_variable>
#include <mutex>
#include <sys/mman.h>
#include <vector>

namespace pkv::handover {

struct Slots::State {
    std::mutex mutex;
    std::condition_variable freed;
    std::vector<std::byte *> free;
    std::byte *memory = nullptr;
    std::shared_ptr<node::Region> region;

    State() = default;
    ~State() {
        region = nullptr;
        if (memory != nullptr) munmap(memory, slot_bytes * slots);
    }
    State(const State &) = delete;
    State &operator=(const State &) = delete;
};

pkv_status Slots::create(std::shared_ptr<node::Fabric> fabric) {
    auto state = std::make_shared<State>();
    state->free.reserve(slots); // so that giving back never throws
    void *const memory =
        mmap(nullptr, slot_bytes * slots, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return fail(PKV_ERR_NO_MEMORY, "%llu bytes to read into", static_cast<unsigned long long>(slot_bytes * slots));
    state->memory = static_cast<std::byte *>(memory);
    PKV_TRY(node::Region::add(std::move(fabric), memory, slot_bytes * slots, false, state->region));
    for (uint64_t i = slots; i-- > 0;) state->free.push_back(state->memory + i * slot_bytes);
    state_ = std::move(state);
    return PKV_OK;
}

std::shared_ptr<std::byte> Slots::take(uint64_t deadline_ns) {
    std::byte *slot = nullptr;
    {
        std::unique_lock lock(state_->mutex);
        if (state_->free.empty() && deadline_ns != 0)
            wait_until(state_->freed, lock, deadline_ns, [this] { return !state_->free.empty(); });
        if (state_->free.empty()) return nullptr;
        slot = state_->free.back();
        state_->free.pop_back();
    }
    // The deleter runs also when its owner cannot be allocated.
    return {slot, [state = state_](std::byte *used) {
                {
                    const std::lock_guard guard(state->mutex);
                    state->free.push_back(used);
                }
                state->freed.notify_one();
            }};
}

std::shared_ptr<node::Region> Slots::target() const { return {state_, state_->region.get()}; }

} // namespace pkv::handover
