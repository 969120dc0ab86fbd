// SPDX-License-Identifier: Apache-2.0
// Which conversions there are, and which instruction set does them.
#include "tensor/cpu/convert.h"
#include "tensor/convert.h"
#include "tensor/cpu/rows.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace pkv::tensor {
namespace cpu {
namespace {

const Converters &choose() {
#if defined(__x86_64__)
    const Kernels *const wish = &kernels();
    __builtin_cpu_init();
    if (wish == &kAvx512 && __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
        __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512vbmi") != 0) {
        return kConvertAvx512;
    }
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
    if (wish != &kPortable && f16c && __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) {
        return kConvertAvx2;
    }
#endif
    return kConvertPortable;
}

} // namespace

const Converters &converters() {
    static const Converters &chosen = choose();
    return chosen;
}

} // namespace cpu

bool converts(int32_t stored, int32_t flat) { return cpu::is_flat(flat) && cpu::has_conversion(flat, stored); }

} // namespace pkv::tensor
