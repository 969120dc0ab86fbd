// SPDX-License-Identifier: Apache-2.0
// Memory for images on their way between pages and tiers: aligned slots of one size, a bounded number of them.
#pragma once

#include "core/status.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace pkv {

class Staging {
  public:
    Staging() = default;
    Staging(const Staging &) = delete;
    Staging &operator=(const Staging &) = delete;

    /// Where the memory comes from, if it has to be special: aligned to 4096.
    using Supply = std::function<pkv_status(uint64_t bytes, std::shared_ptr<std::byte> &memory)>;

    /// `on_gone` is called when the memory is about to go, after the last slot came back: by then this object may be gone, too.
    pkv_status create(uint64_t slot_bytes, uint64_t slots, const Supply &supply,
                      std::function<void(void *memory, uint64_t bytes)> on_gone);

    uint64_t slot_bytes() const;
    uint64_t slots() const;
    std::byte *memory() const;
    uint64_t memory_bytes() const;
    uint64_t in_use() const;

    /// A slot, or nullptr when none came free before the deadline (monotonic_ns()). It goes back with its last owner, which
    /// may be a late request that outlives this object.
    std::shared_ptr<std::byte> acquire(uint64_t deadline_ns);

  private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace pkv
