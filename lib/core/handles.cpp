// SPDX-License-Identifier: Apache-2.0
#include "core/handles.h"

#include "core/mutex.h"

#include <cinttypes>
#include <cstdlib>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

namespace pkv {

static_assert(sizeof(void *) == 8, "handles need 64-bit pointers");

/// One handle. `state` = generation << 32 | closing << 31 | pins. An open handle has one pin of its own.
class alignas(64) HandleSlot {
  public:
    std::atomic<uint64_t> state{0};
    std::shared_ptr<void> object;
    uint32_t index = 0;
    HandleKind kind{};
};

namespace {

constexpr uint64_t closing_bit = uint64_t{1} << 31;
constexpr uint64_t pins_mask = closing_bit - 1;
constexpr uint32_t chunk_slots = 1024;
constexpr uint32_t max_slots = 1u << 24;
constexpr uint32_t no_slot = UINT32_MAX;

uint32_t generation_of(uint64_t state) { return static_cast<uint32_t>(state >> 32); }

/// All handles of one process. A child after fork() begins a new one, since a lock in the old one may have been held by a
/// thread that does not exist in the child.
struct HandleTable {
    uint32_t epoch = 1;
    HandleTable *previous = nullptr; // keeps the old table reachable for leak checkers
    std::atomic<HandleSlot *> chunks[max_slots / chunk_slots] = {};
    Mutex mutex;
    uint32_t slots PKV_GUARDED_BY(mutex) = 0;
    uint32_t *free_slots PKV_GUARDED_BY(mutex) = nullptr; // stack with room for every slot made
    uint32_t free_count PKV_GUARDED_BY(mutex) = 0;

    HandleSlot *slot(uint32_t index) const {
        HandleSlot *chunk = chunks[index / chunk_slots].load(std::memory_order_acquire);
        return chunk != nullptr ? chunk + index % chunk_slots : nullptr;
    }
    uint32_t take();
    void give_back(uint32_t index);

  private:
    void grow() PKV_REQUIRES(mutex);
};

std::atomic<HandleTable *> current_table{nullptr};
// The epoch of current_table, in a page that the kernel zeroes in a child process: reading it costs one load for each call.
std::atomic<std::atomic<uint32_t> *> epoch_word{nullptr};

void zero_epoch_in_child() { epoch_word.load(std::memory_order_relaxed)->store(0, std::memory_order_relaxed); }

std::atomic<uint32_t> *get_epoch_word() {
    std::atomic<uint32_t> *word = epoch_word.load(std::memory_order_acquire);
    if (word != nullptr) return word;
    const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void *page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::bad_alloc();
    const bool wiped = madvise(page, bytes, MADV_WIPEONFORK) == 0;
    auto *fresh = new (page) std::atomic<uint32_t>(0);
    if (!epoch_word.compare_exchange_strong(word, fresh, std::memory_order_acq_rel)) {
        munmap(page, bytes);
        return word;
    }
    // Kernels before 4.14 do not know MADV_WIPEONFORK.
    if (!wiped && pthread_atfork(nullptr, nullptr, zero_epoch_in_child) != 0) throw std::bad_alloc();
    return fresh;
}

/// The table to open handles in; makes one at first use and after fork().
HandleTable *table_for_open() {
    std::atomic<uint32_t> *word = get_epoch_word();
    HandleTable *table = current_table.load(std::memory_order_acquire);
    if (word->load(std::memory_order_acquire) != 0) return table;
    auto *fresh = new HandleTable;
    fresh->epoch = table != nullptr ? table->epoch + 1 : 1;
    fresh->previous = table;
    if (!current_table.compare_exchange_strong(table, fresh, std::memory_order_acq_rel)) {
        delete fresh;
        fresh = table;
    }
    word->store(fresh->epoch, std::memory_order_release);
    return fresh;
}

void HandleTable::grow() {
    // Without the count that new[] would put before the slots: leak checkers look for pointers to the very beginning.
    auto *chunk = static_cast<HandleSlot *>(
        ::operator new (chunk_slots * sizeof(HandleSlot), std::align_val_t{alignof(HandleSlot)}));
    auto *stack = static_cast<uint32_t *>(std::realloc(free_slots, (slots + chunk_slots) * sizeof(uint32_t)));
    if (stack == nullptr) {
        ::operator delete (chunk, std::align_val_t{alignof(HandleSlot)});
        throw std::bad_alloc();
    }
    free_slots = stack;
    for (uint32_t i = 0; i < chunk_slots; ++i) {
        new (chunk + i) HandleSlot;
        chunk[i].index = slots + i;
        chunk[i].state.store(uint64_t{1} << 32 | closing_bit, std::memory_order_relaxed);
        free_slots[free_count++] = slots + chunk_slots - 1 - i;
    }
    chunks[slots / chunk_slots].store(chunk, std::memory_order_release);
    slots += chunk_slots;
}

uint32_t HandleTable::take() {
    const Lock lock(mutex);
    if (free_count == 0) {
        if (slots == max_slots) return no_slot;
        grow();
    }
    return free_slots[--free_count];
}

void HandleTable::give_back(uint32_t index) {
    const Lock lock(mutex);
    free_slots[free_count++] = index;
}

const char *kind_name(HandleKind kind) {
    switch (kind) {
    case HandleKind::pool: return "pool";
    case HandleKind::table: return "table";
    case HandleKind::batch: return "batch";
    case HandleKind::tier: return "tier";
    case HandleKind::queue: return "queue";
    case HandleKind::op: return "operation";
    case HandleKind::request: return "request";
    case HandleKind::prefetch: return "prefetch session";
    case HandleKind::node: return "node";
    case HandleKind::offer: return "offer";
    }
    return "object";
}

pkv_status no_such_handle(HandleKind kind, uint64_t handle) {
    return fail(PKV_ERR_HANDLE, "0x%" PRIx64 " is not an open %s handle", handle, kind_name(kind));
}

} // namespace

uint64_t open_handle(HandleKind kind, std::shared_ptr<void> object) {
    HandleTable *table = table_for_open();
    const uint32_t index = table->take();
    if (index == no_slot) {
        fail(PKV_ERR_LIMIT, "%u handles are open: no more can be", max_slots);
        return 0;
    }
    HandleSlot *slot = table->slot(index);
    const uint32_t generation = generation_of(slot->state.load(std::memory_order_relaxed));
    slot->object = std::move(object);
    slot->kind = kind;
    slot->state.store(uint64_t{generation} << 32 | 1, std::memory_order_release);
    return static_cast<uint64_t>(kind) << 60 | uint64_t{table->epoch & 15} << 56 | uint64_t{index} << 32 | generation;
}

pkv_status pin_handle(HandleKind kind, uint64_t handle, HandleSlot **slot, void **object) {
    const std::atomic<uint32_t> *word = epoch_word.load(std::memory_order_acquire);
    if (handle >> 60 != static_cast<uint64_t>(kind) || word == nullptr) return no_such_handle(kind, handle);
    const bool forked = word->load(std::memory_order_acquire) == 0; // and no handle was opened since
    const HandleTable *table = current_table.load(std::memory_order_acquire);
    const uint32_t age = (table->epoch - static_cast<uint32_t>(handle >> 56)) & 15;
    if (age < table->epoch && (forked || age > 0))
        return fail(PKV_ERR_FORKED, "%s handle 0x%" PRIx64 " was opened before fork()", kind_name(kind), handle);
    if (age > 0) return no_such_handle(kind, handle);

    HandleSlot *found = table->slot(static_cast<uint32_t>(handle >> 32 & 0xFFFFFF));
    if (found == nullptr) return no_such_handle(kind, handle);
    const auto generation = static_cast<uint32_t>(handle);
    uint64_t state = found->state.load(std::memory_order_relaxed);
    do {
        if (generation_of(state) != generation || (state & closing_bit) != 0) return no_such_handle(kind, handle);
    } while (
        !found->state.compare_exchange_weak(state, state + 1, std::memory_order_acquire, std::memory_order_relaxed));
    if (found->kind != kind) {
        unpin_handle(found);
        return no_such_handle(kind, handle);
    }
    *slot = found;
    *object = found->object.get();
    return PKV_OK;
}

bool unpin_unless_last(HandleSlot *slot) {
    uint64_t state = slot->state.load(std::memory_order_relaxed);
    do {
        if ((state & pins_mask) == 1) return false;
    } while (
        !slot->state.compare_exchange_weak(state, state - 1, std::memory_order_acq_rel, std::memory_order_relaxed));
    return true;
}

void unpin_handle(HandleSlot *slot) {
    const uint64_t before = slot->state.fetch_sub(1, std::memory_order_acq_rel);
    if ((before & pins_mask) != 1) return;
    // The last pin of a closing handle: the object goes, the slot gets its next generation and is free again.
    std::shared_ptr<void> object = std::move(slot->object);
    const uint32_t index = slot->index;
    uint32_t generation = generation_of(before) + 1;
    if (generation == 0) generation = 1;
    slot->state.store(uint64_t{generation} << 32 | closing_bit, std::memory_order_release);
    object.reset();
    current_table.load(std::memory_order_acquire)->give_back(index);
}

pkv_status close_handle(HandleSlot *slot) {
    uint64_t state = slot->state.load(std::memory_order_relaxed);
    do {
        if ((state & closing_bit) != 0) return fail(PKV_ERR_HANDLE, "the handle is closed already");
    } while (!slot->state.compare_exchange_weak(state, state | closing_bit, std::memory_order_acq_rel));
    unpin_handle(slot); // the pin that an open handle has; the caller's own is still there
    return PKV_OK;
}

} // namespace pkv
