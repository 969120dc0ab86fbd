// SPDX-License-Identifier: Apache-2.0
// A body as a kernel.
#pragma once

#include "tensor/cuda/kernel_list.h"
#include "tensor/cuda/kernels.h"

namespace pkv::cuda {

template <class Body>
__global__ void __launch_bounds__(block_threads) run_body(const __grid_constant__ typename Body::Params params) {
    Body::work(params, Grid{gridDim.x, blockDim.x, blockIdx.x, threadIdx.x});
}

template <class Body> struct KernelOf {
    static const void *value() { return reinterpret_cast<const void *>(&run_body<Body>); }
};

} // namespace pkv::cuda
