// SPDX-License-Identifier: Apache-2.0
// tensor.h
#include "layout/geometry.h"
#include "tensor/kernels.h"

#include <pagedkv/tensor.h>

extern "C" {

uint64_t pkv_dtype_bytes(int32_t dtype) { return pkv::dtype_bytes(dtype); }

const char *pkv_cpu_kernels(void) { return pkv::tensor::kernel_name(); }

} // extern "C"
