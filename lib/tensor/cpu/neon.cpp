// SPDX-License-Identifier: Apache-2.0
// The host kernels for aarch64. Ordinary stores only: cores notice writes of whole lines by themselves, and STNP is but
// a hint.
#if defined(__aarch64__)

#include <arm_neon.h>
#include <cstddef>
#include <cstdint>

#define PKV_ISA
#define PKV_VEC_BYTES 16

namespace pkv::tensor::cpu {
namespace {

/// One line; all four loads first, so that pairs of them become LDP and STP.
inline void stream_line(std::byte *dst, const std::byte *src) {
    const uint8x16x4_t line = vld1q_u8_x4(reinterpret_cast<const uint8_t *>(src));
    vst1q_u8_x4(reinterpret_cast<uint8_t *>(dst), line);
}

} // namespace
} // namespace pkv::tensor::cpu

#include "tensor/cpu/copy_runs.h"

namespace pkv::tensor::cpu {

const Kernels kNeon = {"neon", copy_nest, stream_nest, [] {}};

} // namespace pkv::tensor::cpu

#endif
