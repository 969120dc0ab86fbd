// SPDX-License-Identifier: Apache-2.0
// The host kernels with 32-byte vectors, for any x86-64 with AVX2.
#if defined(__x86_64__)

#include <cstddef>
#include <immintrin.h>

#define PKV_ISA __attribute__((target("avx2")))
#define PKV_VEC_BYTES 32

namespace pkv::tensor::cpu {
namespace {

/// One line to line-aligned dst, past the caches.
PKV_ISA inline void stream_line(std::byte *dst, const std::byte *src) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(src));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(src + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i *>(dst), a);
    _mm256_stream_si256(reinterpret_cast<__m256i *>(dst + 32), b);
}

} // namespace
} // namespace pkv::tensor::cpu

#include "tensor/cpu/copy_runs.h"

namespace pkv::tensor::cpu {

const Kernels kAvx2 = {"avx2", copy_nest, stream_nest, [] { _mm_sfence(); }};

} // namespace pkv::tensor::cpu

#endif
