// SPDX-License-Identifier: Apache-2.0
// Memory that pieces are read into: slots of one size, shared by all pulls of a node. A slot goes back with its last owner,
// which may be a late read; the memory is registered for as long as there are slots and reads.
#pragma once

#include "core/status.h"
#include "node/fabric.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace pkv::handover {

class Slots {
  public:
    static constexpr uint64_t slot_bytes = uint64_t{1} << 20;
    static constexpr uint64_t slots = 32;

    pkv_status create(std::shared_ptr<node::Fabric> fabric);
    bool exists() const { return state_ != nullptr; }
    /// nullptr when none came free before `deadline_ns` (0: at once).
    std::shared_ptr<std::byte> take(uint64_t deadline_ns);
    std::shared_ptr<node::Region> target() const;

  private:
    struct State;
    std::shared_ptr<State> state_;
};

} // namespace pkv::handover
