// SPDX-License-Identifier: Apache-2.0
#include "tier/staging.h"

#include "core/clock.h"
#include "tier/request.h"

#include <chrono>
#include <cinttypes>
#include <condition_variable>
#include <mutex>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace pkv {

struct Staging::State {
    std::mutex mutex;
    std::condition_variable freed;
    std::vector<std::byte *> free;
    std::shared_ptr<std::byte> memory;
    uint64_t slot_bytes = 0;
    uint64_t slots = 0;

    std::function<void(void *, uint64_t)> on_gone;

    State() = default;
    ~State();
    State(const State &) = delete;
    State &operator=(const State &) = delete;
};

/// The last slot may come back on a thread of a tier's, inside a completion: nothing that may wait for another tier belongs
/// there, and so it is left to a thread of its own.
Staging::State::~State() {
    if (memory == nullptr) return;
    if (InCompletion::active()) {
        std::shared_ptr<std::shared_ptr<std::byte>> left;
        try {
            left = std::make_shared<std::shared_ptr<std::byte>>();
            left->swap(memory);
            std::thread([left, end = on_gone, bytes = slot_bytes * slots] {
                if (end) end(left->get(), bytes);
                *left = nullptr;
            }).detach();
            return;
        } catch (const std::exception &) { // no thread: here, then
            if (left != nullptr) left->swap(memory);
        }
    }
    if (on_gone) on_gone(memory.get(), slot_bytes * slots);
}

namespace {

pkv_status map_memory(uint64_t bytes, std::shared_ptr<std::byte> &memory) {
    void *base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return fail(PKV_ERR_NO_MEMORY, "%" PRIu64 " bytes of staging memory", bytes);
    madvise(base, bytes, MADV_HUGEPAGE);
    memory.reset(static_cast<std::byte *>(base), [bytes](std::byte *mapped) { munmap(mapped, bytes); });
    return PKV_OK;
}

} // namespace

pkv_status Staging::create(uint64_t slot_bytes, uint64_t slots, const Supply &supply,
                           std::function<void(void *, uint64_t)> on_gone) {
    auto state = std::make_shared<State>();
    state->free.reserve(slots); // so that giving back never throws
    PKV_TRY(supply ? supply(slot_bytes * slots, state->memory) : map_memory(slot_bytes * slots, state->memory));
    state->slot_bytes = slot_bytes;
    state->slots = slots;
    state->on_gone = std::move(on_gone);
    for (uint64_t i = slots; i-- > 0;) state->free.push_back(state->memory.get() + i * slot_bytes);
    state_ = std::move(state);
    return PKV_OK;
}

uint64_t Staging::slot_bytes() const { return state_->slot_bytes; }
uint64_t Staging::slots() const { return state_->slots; }
std::byte *Staging::memory() const { return state_->memory.get(); }
uint64_t Staging::memory_bytes() const { return state_->slot_bytes * state_->slots; }

uint64_t Staging::in_use() const {
    const std::lock_guard lock(state_->mutex);
    return state_->slots - state_->free.size();
}

std::shared_ptr<std::byte> Staging::acquire(uint64_t deadline_ns) {
    std::unique_lock lock(state_->mutex);
    while (state_->free.empty()) {
        const uint64_t now = monotonic_ns();
        if (now >= deadline_ns) return nullptr;
        const uint64_t wait = std::min<uint64_t>(deadline_ns - now, 1'000'000'000);
        state_->freed.wait_for(lock, std::chrono::nanoseconds(wait));
    }
    std::byte *slot = state_->free.back();
    // The deleter runs also when the owner cannot be allocated: the slot is taken only after that went well.
    std::shared_ptr<std::byte> owner(slot, [state = state_](std::byte *used) {
        if (used == nullptr) return;
        {
            const std::lock_guard guard(state->mutex);
            state->free.push_back(used);
        }
        state->freed.notify_one();
    });
    state_->free.pop_back();
    return owner;
}

} // namespace pkv
