// SPDX-License-Identifier: Apache-2.0
// How page images are moved fastest on a device, as this process has measured it.
#pragma once

#include "core/status.h"

#include <cstdint>
#include <mutex>
#include <vector>

namespace pkv {

/// What decides how fast images of a group are moved: groups of one shape are moved alike.
struct TransferShape {
    int32_t dtype = 0;
    int32_t layout = 0;
    int32_t arrangement = 0;
    int32_t scales = 0;
    uint32_t num_layers = 0;
    uint32_t page_tokens = 0;
    uint32_t heads = 0;
    uint64_t k_row_bytes = 0;
    uint64_t v_row_bytes = 0;

    bool operator==(const TransferShape &) const = default;
};

/// Of one device. A shape is measured once in the life of the process: by the first pool that has it, however many are made at
/// once, and also when the last pool on the device goes in between.
class Transfers {
  public:
    static Transfers &of_device(int32_t index);

    /// Whether copies are faster than a kernel. measure(by_copies) is called if that is not known; when it fails, its failure is
    /// returned, and who asks next measures. Others who ask meanwhile wait.
    template <class Measure> pkv_status choose(const TransferShape &shape, bool &by_copies, Measure &&measure) {
        const std::lock_guard lock(mutex_);
        for (const Known &known : known_)
            if (known.shape == shape) {
                by_copies = known.by_copies;
                return PKV_OK;
            }
        known_.reserve(known_.size() + 1);
        PKV_TRY(measure(by_copies));
        known_.push_back({shape, by_copies});
        return PKV_OK;
    }

  private:
    struct Known {
        TransferShape shape;
        bool by_copies;
    };
    std::mutex mutex_; // held while the device is measured, and so that nobody else measures it then
    std::vector<Known> known_;
};

} // namespace pkv
