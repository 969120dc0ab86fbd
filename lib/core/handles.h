// SPDX-License-Identifier: Apache-2.0
// Handles: values that name an object, checked at each use. A handle is
//
//   bits 60..63 kind   56..59 epoch   32..55 slot   0..31 generation
//
// Slots live in a table that is never freed, so that a stale handle meets a slot with another generation, never freed
// memory. The kind in the top bits makes every handle a non-canonical address: dereferencing one faults at once. The epoch
// tells handles of a parent process from those of a child after fork().
#pragma once

#include "core/status.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace pkv {

enum class HandleKind : uint64_t {
    pool = 1,
    table = 2,
    batch = 3,
    tier = 4,
    queue = 5,
    op = 6,
    request = 7,
    prefetch = 8,
    node = 9,
    offer = 10
};

class HandleSlot;

/// Registers `object` (an owner of one T) and returns its handle value; 0 when 2^24 handles live. Throws std::bad_alloc.
uint64_t open_handle(HandleKind kind, std::shared_ptr<void> object);

/// Finds the object of a handle and keeps it alive until unpin_handle.
pkv_status pin_handle(HandleKind kind, uint64_t handle, HandleSlot **slot, void **object);
void unpin_handle(HandleSlot *slot);
/// The same, unless the object would go with that: false, and nothing changed.
bool unpin_unless_last(HandleSlot *slot);

/// Closes a pinned handle: no later pin succeeds; the object goes with the last pin. PKV_ERR_HANDLE if it is closed already.
pkv_status close_handle(HandleSlot *slot);

/// A pinned handle, released at the end of the scope.
template <class T> class Pin {
  public:
    Pin() = default;
    ~Pin() { reset(); }
    Pin(const Pin &) = delete;
    Pin &operator=(const Pin &) = delete;

    pkv_status acquire(const void *handle) {
        void *object = nullptr;
        PKV_TRY(pin_handle(T::handle_kind, reinterpret_cast<uint64_t>(handle), &slot_, &object));
        object_ = static_cast<T *>(object);
        return PKV_OK;
    }
    void reset() {
        if (slot_ != nullptr) unpin_handle(slot_);
        slot_ = nullptr;
        object_ = nullptr;
    }
    /// Lets go of it, unless the object, closed meanwhile, would go with that.
    void reset_unless_last() {
        if (slot_ == nullptr || !unpin_unless_last(slot_)) return;
        slot_ = nullptr;
        object_ = nullptr;
    }
    pkv_status close() { return close_handle(slot_); }

    T *operator->() const { return object_; }
    T &operator*() const { return *object_; }

  private:
    HandleSlot *slot_ = nullptr;
    T *object_ = nullptr;
};

} // namespace pkv
