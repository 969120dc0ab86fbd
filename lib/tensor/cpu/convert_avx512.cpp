// SPDX-License-Identifier: Apache-2.0
// The converting kernels for x86-64 with AVX-512 F, BW, DQ and VL.
#if defined(__x86_64__)

#include <pagedkv/tensor.h>

#include <cstddef>
#include <cstdint>
// GCC takes the undefined operands in its own intrinsics for uninitialised variables (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#define PKV_ISA __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c")))
#define PKV_INLINE PKV_ISA __attribute__((always_inline)) inline

namespace pkv::tensor::cpu {
namespace {

constexpr bool kStreams = true;

struct Lanes {
    __m512 f;
};

PKV_INLINE __m128i get16(const std::byte *src) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(src)); }
PKV_INLINE __m256i get32(const std::byte *src) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(src)); }

/// All are exact, whatever the processor does with subnormal numbers in its arithmetic.
template <int32_t kType> PKV_INLINE Lanes load(const std::byte *src) {
    if constexpr (kType == PKV_DTYPE_F32) {
        return {_mm512_loadu_ps(src)};
    } else if constexpr (kType == PKV_DTYPE_F16) {
        return {_mm512_cvtph_ps(get32(src))};
    } else if constexpr (kType == PKV_DTYPE_BF16) {
        return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(get32(src)), 16))};
    } else if constexpr (kType == PKV_DTYPE_F8_E4M3) {
        // Sign and magnitude as the upper part of an f16: the value / 256, as the exponents' biases are 7 and 15.
        const __m256i half = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(get16(src)), 7),
                                              _mm256_set1_epi16(static_cast<int16_t>(0xBF80)));
        const __mmask16 nan = _mm256_cmpeq_epi16_mask(_mm256_slli_epi16(half, 1), _mm256_set1_epi16(0x7F00));
        const __m256i with_nan =
            _mm256_mask_mov_epi16(half, nan, _mm256_or_si256(half, _mm256_set1_epi16(0x7E00)));
        return {_mm512_mul_ps(_mm512_cvtph_ps(with_nan), _mm512_set1_ps(256.0f))};
    } else if constexpr (kType == PKV_DTYPE_F8_E5M2) {
        return {_mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(get16(src)), 8))}; // the upper half of an f16
    } else {
        return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(get16(src)))};
    }
}

template <bool kStream> PKV_INLINE void put(std::byte *dst, __m128i v) {
    kStream ? _mm_stream_si128(reinterpret_cast<__m128i *>(dst), v)
            : _mm_storeu_si128(reinterpret_cast<__m128i *>(dst), v);
}

template <bool kStream> PKV_INLINE void put(std::byte *dst, __m256i v) {
    kStream ? _mm256_stream_si256(reinterpret_cast<__m256i *>(dst), v)
            : _mm256_storeu_si256(reinterpret_cast<__m256i *>(dst), v);
}

/// Between -most and most; NaN stays.
PKV_INLINE __m512 clamp(__m512 v, float most) {
    return _mm512_max_ps(_mm512_set1_ps(-most), _mm512_min_ps(_mm512_set1_ps(most), v));
}

/// The upper 16 bits, rounded.
PKV_INLINE __m512i to_bf16(__m512 v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    return _mm512_srli_epi32(_mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000)), 16);
}

/// fp8 with kMantissa bits of fraction, of values that are less than half a step above the largest.
template <int32_t kMantissa, int32_t kLeast> PKV_INLINE __m512i to_fp8(__m512 v) {
    constexpr int32_t kDrop = 23 - kMantissa;
    // The sum of the magnitude and 2^kDrop times its power of two has the mantissa that is wanted, rounded, in its
    // lowest bits; of a magnitude in the subnormal range, the power of two is that of the smallest normal number. A
    // mantissa that carries over counts the exponent up, as it should.
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i power = _mm512_max_epi32(_mm512_and_si512(bits, _mm512_set1_epi32(0x7F800000)),
                                           _mm512_set1_epi32(kLeast << 23));
    const __m512i magic = _mm512_add_epi32(
        power, _mm512_set1_epi32((kDrop << 23) + ((-(kLeast << kMantissa)) & 0xFF)));
    const __m512 sum = _mm512_add_ps(_mm512_abs_ps(v), _mm512_castsi512_ps(magic));
    __m512i code = _mm512_add_epi32(_mm512_castps_si512(sum), _mm512_srli_epi32(power, kDrop));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    code = _mm512_mask_mov_epi32(code, nan, _mm512_set1_epi32(0x7F));
    // Seven bits of the code, the others from the sign: 0x7F ? code : bits >> 24.
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32(0x7F), code, _mm512_srli_epi32(bits, 24), 0xCA);
}

template <int32_t kType, bool kStream> PKV_INLINE void store(std::byte *dst, const Lanes &lanes) {
    const __m512 v = lanes.f;
    if constexpr (kType == PKV_DTYPE_F32) {
        kStream ? _mm512_stream_ps(reinterpret_cast<float *>(dst), v) : _mm512_storeu_ps(dst, v);
    } else if constexpr (kType == PKV_DTYPE_F16) {
        put<kStream>(dst, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    } else if constexpr (kType == PKV_DTYPE_BF16) {
        put<kStream>(dst, _mm512_cvtepi32_epi16(to_bf16(v)));
    } else if constexpr (kType == PKV_DTYPE_F8_E4M3) {
        put<kStream>(dst, _mm512_cvtepi32_epi8(to_fp8<3, 121>(clamp(v, 448.0f))));
    } else if constexpr (kType == PKV_DTYPE_F8_E5M2) {
        put<kStream>(dst, _mm512_cvtepi32_epi8(to_fp8<2, 113>(clamp(v, 57344.0f))));
    } else {
        const __mmask16 number = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q);
        put<kStream>(dst, _mm512_cvtepi32_epi8(_mm512_maskz_cvtps_epi32(number, clamp(v, 127.0f))));
    }
}

PKV_INLINE Lanes splat(float f) { return {_mm512_set1_ps(f)}; }
PKV_INLINE Lanes times(const Lanes &a, const Lanes &b) { return {_mm512_mul_ps(a.f, b.f)}; }
PKV_INLINE Lanes over(const Lanes &a, const Lanes &b) { return {_mm512_div_ps(a.f, b.f)}; }

PKV_INLINE Lanes peak(const Lanes &most, const Lanes &lanes) {
    // Magnitudes are ordered as integers.
    const __m512i magnitude = _mm512_castps_si512(_mm512_abs_ps(lanes.f));
    const __mmask16 finite = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x7F800000));
    const __m512i before = _mm512_castps_si512(most.f);
    return {_mm512_castsi512_ps(_mm512_mask_max_epi32(before, finite, before, magnitude))};
}

PKV_INLINE float top(const Lanes &lanes) { return _mm512_reduce_max_ps(lanes.f); }

} // namespace
} // namespace pkv::tensor::cpu

#include "tensor/cpu/convert_runs.h"

namespace pkv::tensor::cpu {

const Converters kConvertAvx512 = make_converters([] { _mm_sfence(); });

} // namespace pkv::tensor::cpu

#endif
