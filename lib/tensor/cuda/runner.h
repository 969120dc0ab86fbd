// SPDX-License-Identifier: Apache-2.0
// Launches into one stream of a device.
#pragma once

#include "tensor/cuda/device.h"
#include "tensor/cuda/plan.h"

namespace pkv::cuda {

/// For one call of the table, in the scope of its context.
class DeviceRunner final : public Runner {
  public:
    DeviceRunner(pkv_device_context &context, cudaStream_t stream) : context_(context), stream_(stream) {}

    uint32_t threads() const override;
    uint64_t blocks_at_once(const Kernel &kernel) const override {
        return context_.blocks_at_once[kernel_number(kernel)];
    }
    pkv_status stage(const void *bytes, uint64_t count, const std::byte *&address, const Why &why) override;
    pkv_status run(const Kernel &kernel, const void *params, size_t params_bytes, uint64_t blocks,
                   const Why &why) override;

    /// Last, whatever the plan came to.
    pkv_status finish(pkv_status plan, const Why &why);

  private:
    pkv_device_context &context_;
    cudaStream_t stream_;
    std::vector<Staging::Piece *> taken_;
};

} // namespace pkv::cuda
