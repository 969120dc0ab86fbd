// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda/global.cuh"

namespace pkv::cuda {

const void *gathering_kernel(const Kernel &kernel) { return gathering<KernelOf, const void *>(kernel); }

} // namespace pkv::cuda
