// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda/global.cuh"

namespace pkv::cuda {

const void *moving_kernel(const Kernel &kernel) {
    switch (kernel.op) {
    case Kernel::Op::write: return moving<KernelOf, WriteOf, const void *>(kernel.unit);
    case Kernel::Op::gather: return moving<KernelOf, GatherOf, const void *>(kernel.unit);
    case Kernel::Op::copy: return moving<KernelOf, CopyOf, const void *>(kernel.unit);
    case Kernel::Op::slices: return moving<KernelOf, SlicesOf, const void *>(kernel.unit);
    }
    return nullptr;
}

} // namespace pkv::cuda
