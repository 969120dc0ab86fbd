// SPDX-License-Identifier: Apache-2.0
// The host kernels with 64-byte vectors, for x86-64 with AVX-512F: a vector is a line.
#if defined(__x86_64__)

#include <cstddef>
#include <immintrin.h>

#define PKV_ISA __attribute__((target("avx512f")))
#define PKV_VEC_BYTES 64

namespace pkv::tensor::cpu {
namespace {

/// One line to line-aligned dst, past the caches.
PKV_ISA inline void stream_line(std::byte *dst, const std::byte *src) {
    _mm512_stream_si512(reinterpret_cast<__m512i *>(dst), _mm512_loadu_si512(src));
}

} // namespace
} // namespace pkv::tensor::cpu

#include "tensor/cpu/copy_runs.h"

namespace pkv::tensor::cpu {

const Kernels kAvx512 = {"avx512", copy_nest, stream_nest, [] { _mm_sfence(); }};

} // namespace pkv::tensor::cpu

#endif
