// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda/global.cuh"

namespace pkv::cuda {

const void *writing_kernel(const Kernel &kernel) { return writing<KernelOf, const void *>(kernel); }

} // namespace pkv::cuda
