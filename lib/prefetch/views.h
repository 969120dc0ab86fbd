// SPDX-License-Identifier: Apache-2.0
// Where the views of a session on a device lie: in host memory that kernels read. Streams of the caller's may be behind the
// calling thread, so that one is not filled anew before the device has done with it; there are more of them than buffers.
#pragma once

#include "device/device.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace pkv {

class Views {
  public:
    struct View {
        PinnedMemory memory;
        uint64_t capacity = 0; ///< slices
        uint64_t *first_block = nullptr;
        int32_t *indptr = nullptr;
        int32_t *slices = nullptr;
        uint64_t *word = nullptr; ///< streams wait until it is
        uint64_t turn = 0;        ///< this, of the last one who waited
        StreamTimer timer;        ///< of such a wait
        uint64_t late = 0;        ///< parts that it was for: those whose loads had begun by the call,
        uint64_t on_demand = 0;   ///< and others
        Fences until;             ///< work that may read it
        bool taken = false;
    };

    ~Views() { end({}); }

    void create(std::shared_ptr<Device> device, uint32_t num_buffers, uint32_t max_tables);
    /// One that is not taken, with room for so many slices. Waits for the device where very many are in use.
    pkv_status find(uint64_t slices, View *&view);
    /// All are given back, and used no longer than this.
    void end(const Fences &until);
    const std::vector<std::unique_ptr<View>> &all() const { return views_; }

  private:
    pkv_status make(uint64_t slices, View &view) const;

    std::shared_ptr<Device> device_;
    uint32_t max_tables_ = 0;
    std::vector<std::unique_ptr<View>> views_; // those that were never needed have no memory
};

} // namespace pkv
