// SPDX-License-Identifier: Apache-2.0
// Devices: whether they can be used, what they are, and one that is in use.
#pragma once

#include "tensor/cuda/kernel.h"
#include "tensor/cuda/staging.h"
#include "tensor/device_table.h"

#include <array>
#include <mutex>
#include <vector>

namespace pkv::cuda {

/// Without a context.
pkv_status device_available(int32_t index, const Why &why);
int32_t device_count();

/// The place of a kernel among all that there may be.
uint32_t kernel_number(const Kernel &kernel);
inline constexpr uint32_t num_kernels = 4 * 5 + 2 * 2 * 7 * 7;

} // namespace pkv::cuda

/// The table's handle of a device.
struct pkv_device_context {
    /// With `open`, in the scope of the context: all kernels are loaded, so that no call has to, least of all a
    /// captured one.
    pkv_status open(int32_t device_index, const pkv::cuda::Why &why);
    /// Waits for its own streams.
    void close();

    int32_t index = 0;
    CUdevice device = 0;
    CUcontext primary = nullptr;
    pkv_device_facts facts{};
    std::array<uint32_t, pkv::cuda::num_kernels> blocks_at_once{}; ///< on the whole device
    pkv::cuda::Staging staging;

    void add_stream(cudaStream_t stream);
    void remove_stream(cudaStream_t stream);
    /// Made by make_stream().
    bool owns(cudaStream_t stream);

  private:
    pkv_status read_facts(const pkv::cuda::Why &why);
    pkv_status load_kernels(const pkv::cuda::Why &why);

    std::mutex mutex_;
    std::vector<cudaStream_t> streams_;
};
