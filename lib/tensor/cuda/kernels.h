// SPDX-License-Identifier: Apache-2.0
// The kernels of the device: every body's instances, each as what cudaLaunchKernel takes. They are compiled in three
// parts, which share nothing.
#pragma once

#include "tensor/cuda/kernel.h"

namespace pkv::cuda {

/// Threads of a block. The bodies are made for any number; registers are given out for this one.
inline constexpr uint32_t block_threads = 256;

/// nullptr: there is no such kernel.
const void *moving_kernel(const Kernel &kernel);    // kernels_move.cu
const void *writing_kernel(const Kernel &kernel);   // kernels_write.cu
const void *gathering_kernel(const Kernel &kernel); // kernels_gather.cu

inline const void *kernel_of(const Kernel &kernel) {
    if (kernel.unit != 0) return moving_kernel(kernel);
    return kernel.op == Kernel::Op::write ? writing_kernel(kernel) : gathering_kernel(kernel);
}

} // namespace pkv::cuda
