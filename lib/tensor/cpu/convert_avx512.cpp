// SPDX-License-Identifier: Apache-2.0
// The converting kernels for x86-64 with AVX-512 F, BW, DQ, VL and VBMI.
#if defined(__x86_64__)

#include <pagedkv/tensor.h>

#include <array>
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

#define PKV_ISA __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,f16c")))
#define PKV_INLINE PKV_ISA __attribute__((always_inline)) inline

namespace pkv::tensor::cpu {
namespace {

constexpr uint64_t kUnit = 32;
constexpr bool kStreams = true;

struct Lanes {
    __m512 lo;
    __m512 hi;
};

PKV_INLINE __m512i ints(__m512 v) { return _mm512_castps_si512(v); }
PKV_INLINE __m512 floats(__m512i v) { return _mm512_castsi512_ps(v); }
PKV_INLINE __m128i get16(const std::byte *src) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(src)); }
PKV_INLINE __m256i get32(const std::byte *src) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(src)); }

template <bool kStream> PKV_INLINE void put(std::byte *dst, __m256i v) {
    kStream ? _mm256_stream_si256(reinterpret_cast<__m256i *>(dst), v)
            : _mm256_storeu_si256(reinterpret_cast<__m256i *>(dst), v);
}

template <bool kStream> PKV_INLINE void put(std::byte *dst, __m512i v) {
    kStream ? _mm512_stream_si512(reinterpret_cast<__m512i *>(dst), v) : _mm512_storeu_si512(dst, v);
}

/// Indices of one byte of each of 2 x 16 floats, and of the upper words of as many; of words to put into upper halves.
constexpr std::array<uint8_t, 64> bytes_at(int byte) {
    std::array<uint8_t, 64> at{};
    for (int i = 0; i < 64; ++i) {
        at[static_cast<size_t>(i)] = static_cast<uint8_t>((4 * i + byte) & 127);
    }
    return at;
}
template <int kFirst, int kStep16> constexpr std::array<uint16_t, 32> words_at() {
    std::array<uint16_t, 32> at{};
    for (int i = 0; i < 32; ++i) {
        at[static_cast<size_t>(i)] = static_cast<uint16_t>(kFirst + (kStep16 > 0 ? kStep16 * i : i / 2));
    }
    return at;
}
alignas(64) constexpr auto kLowBytes = bytes_at(0);
alignas(64) constexpr auto kTopBytes = bytes_at(3);
alignas(64) constexpr auto kTopWords = words_at<1, 2>();
alignas(64) constexpr auto kRaiseLo = words_at<0, 0>();
alignas(64) constexpr auto kRaiseHi = words_at<16, 0>();

/// Byte `at` of each float, in order.
PKV_INLINE __m256i pick_bytes(const std::array<uint8_t, 64> &at, __m512i lo, __m512i hi) {
    return _mm512_castsi512_si256(_mm512_permutex2var_epi8(lo, _mm512_load_si512(at.data()), hi));
}

PKV_INLINE Lanes halves(__m512i v) {
    return {_mm512_cvtph_ps(_mm512_castsi512_si256(v)), _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1))};
}

template <int32_t kType> PKV_INLINE Lanes load(const std::byte *src) {
    if constexpr (kType == PKV_DTYPE_F32) {
        return {_mm512_loadu_ps(src), _mm512_loadu_ps(src + 64)};
    } else if constexpr (kType == PKV_DTYPE_F16) {
        return {_mm512_cvtph_ps(get32(src)), _mm512_cvtph_ps(get32(src + 32))};
    } else if constexpr (kType == PKV_DTYPE_BF16) {
        constexpr __mmask32 kUpper = 0xAAAAAAAA;
        const __m512i v = _mm512_loadu_si512(src);
        return {floats(_mm512_maskz_permutexvar_epi16(kUpper, _mm512_load_si512(kRaiseLo.data()), v)),
                floats(_mm512_maskz_permutexvar_epi16(kUpper, _mm512_load_si512(kRaiseHi.data()), v))};
    } else if constexpr (kType == PKV_DTYPE_F8_E4M3) {
        // Sign and magnitude as the upper part of an f16: the value / 256, as the exponents' biases are 7 and 15.
        const __m512i half = _mm512_and_si512(_mm512_slli_epi16(_mm512_cvtepi8_epi16(get32(src)), 7),
                                              _mm512_set1_epi16(static_cast<int16_t>(0xBF80)));
        const __mmask32 nan = _mm512_cmpeq_epi16_mask(_mm512_slli_epi16(half, 1), _mm512_set1_epi16(0x7F00));
        return halves(_mm512_mask_add_epi16(half, nan, half, _mm512_set1_epi16(0x4000)));
    } else if constexpr (kType == PKV_DTYPE_F8_E5M2) {
        return halves(_mm512_slli_epi16(_mm512_cvtepu8_epi16(get32(src)), 8)); // the upper half of an f16
    } else {
        return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(get16(src))),
                _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(get16(src + 16)))};
    }
}

/// The upper 16 bits are the bf16; those below are left over.
template <bool kBytes> PKV_INLINE __m512i to_bf16(__m512 v) {
    const __mmask16 odd = _mm512_test_epi32_mask(ints(v), _mm512_set1_epi32(0x10000));
    const __m512i up = _mm512_add_epi32(ints(v), _mm512_set1_epi32(0x7FFF));
    const __m512i even = _mm512_mask_add_epi32(up, odd, ints(v), _mm512_set1_epi32(0x8000));
    if constexpr (kBytes) {
        return even; // no carry out of a lower half of zeros
    }
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(even, nan, ints(v), _mm512_set1_epi32(0x400000));
}

/// fp8 with kMantissa bits of fraction, in the lowest 7 bits, without the sign. kLeast is the exponent, as a float's,
/// of the smallest normal number; `most` is the largest finite one.
template <int32_t kMantissa, int32_t kLeast> PKV_INLINE __m512i to_fp8(__m512 v, float most) {
    constexpr int32_t kDrop = 23 - kMantissa;
    const __m512 magnitude = _mm512_min_ps(_mm512_set1_ps(most), _mm512_abs_ps(v)); // NaN stays
    // The sum of the magnitude and 2^kDrop times its power of two has the mantissa that is wanted, rounded, in its
    // lowest bits; of a magnitude in the subnormal range, the power of two is that of the smallest normal number. A
    // mantissa that carries over counts the exponent up, as it should.
    const __m512i power = _mm512_max_epi32(_mm512_and_si512(ints(magnitude), _mm512_set1_epi32(0x7F800000)),
                                           _mm512_set1_epi32(kLeast << 23));
    // What takes the exponent's bias off the lowest byte, in units of the mantissa that is wanted.
    constexpr float kOffset = static_cast<float>(-(kLeast << kMantissa) & 0xFF) / float{1 << kMantissa};
    constexpr float kMagic = float{1 << kDrop} + kOffset;
    const __m512 sum = _mm512_fmadd_ps(floats(power), _mm512_set1_ps(kMagic), magnitude);
    // NaN becomes a number above all sums whose lowest bits give 0x7F below.
    constexpr int32_t kNan = 0x7F000000 | ((0x7F - (0x7F800000 >> kDrop)) & 0xFF);
    const __m512 number = _mm512_min_ps(sum, floats(_mm512_set1_epi32(kNan)));
    return _mm512_add_epi32(ints(number), _mm512_srli_epi32(power, kDrop));
}

/// Seven bits of each code, and the sign of each value.
PKV_INLINE __m256i join_signs(__m512i lo, __m512i hi, const Lanes &v) {
    const __m256i codes = pick_bytes(kLowBytes, lo, hi);
    const __m256i signs = pick_bytes(kTopBytes, ints(v.lo), ints(v.hi));
    return _mm256_ternarylogic_epi32(_mm256_set1_epi8(0x7F), codes, signs, 0xCA); // 0x7F ? codes : signs
}

/// Nearest, ties to even, as the processor rounds by default; NaN gives 0.
PKV_INLINE __m512i to_int8(__m512 v) {
    const __mmask16 number = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q);
    const __m512 clamped = _mm512_max_ps(_mm512_set1_ps(-127.0f), _mm512_min_ps(_mm512_set1_ps(127.0f), v));
    return _mm512_maskz_cvtps_epi32(number, clamped);
}

template <int32_t kType, bool kStream, bool kBytes> PKV_INLINE void store(std::byte *dst, const Lanes &v) {
    if constexpr (kType == PKV_DTYPE_F32) {
        put<kStream>(dst, ints(v.lo));
        put<kStream>(dst + 64, ints(v.hi));
    } else if constexpr (kType == PKV_DTYPE_F16) {
        constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        put<kStream>(dst, _mm512_cvtps_ph(v.lo, kNearest));
        put<kStream>(dst + 32, _mm512_cvtps_ph(v.hi, kNearest));
    } else if constexpr (kType == PKV_DTYPE_BF16) {
        const __m512i at = _mm512_load_si512(kTopWords.data());
        put<kStream>(dst, _mm512_permutex2var_epi16(to_bf16<kBytes>(v.lo), at, to_bf16<kBytes>(v.hi)));
    } else if constexpr (kType == PKV_DTYPE_F8_E4M3) {
        put<kStream>(dst, join_signs(to_fp8<3, 121>(v.lo, 448.0f), to_fp8<3, 121>(v.hi, 448.0f), v));
    } else if constexpr (kType == PKV_DTYPE_F8_E5M2) {
        put<kStream>(dst, join_signs(to_fp8<2, 113>(v.lo, 57344.0f), to_fp8<2, 113>(v.hi, 57344.0f), v));
    } else {
        put<kStream>(dst, pick_bytes(kLowBytes, to_int8(v.lo), to_int8(v.hi)));
    }
}

PKV_INLINE Lanes splat(float f) { return {_mm512_set1_ps(f), _mm512_set1_ps(f)}; }
PKV_INLINE Lanes times(const Lanes &a, const Lanes &b) {
    return {_mm512_mul_ps(a.lo, b.lo), _mm512_mul_ps(a.hi, b.hi)};
}
PKV_INLINE Lanes over(const Lanes &a, const Lanes &b) { return {_mm512_div_ps(a.lo, b.lo), _mm512_div_ps(a.hi, b.hi)}; }

/// Magnitudes are ordered as integers: of f32 in 16 lanes, of the 16-bit types in 32.
struct Peak {
    __m512i v;
};

PKV_INLINE __m512i peak_floats(__m512i most, const std::byte *src) {
    const __m512i v = _mm512_and_si512(_mm512_loadu_si512(src), _mm512_set1_epi32(0x7FFFFFFF));
    const __mmask16 finite = _mm512_cmplt_epi32_mask(v, _mm512_set1_epi32(0x7F800000));
    return _mm512_mask_max_epi32(most, finite, most, v);
}

template <int32_t kType> PKV_INLINE Peak peak(const Peak &most, const std::byte *src) {
    if constexpr (kType == PKV_DTYPE_F32) {
        return {peak_floats(peak_floats(most.v, src), src + 64)};
    } else {
        const __m512i infinity = _mm512_set1_epi16(kType == PKV_DTYPE_F16 ? 0x7C00 : 0x7F80);
        const __m512i v = _mm512_and_si512(_mm512_loadu_si512(src), _mm512_set1_epi16(0x7FFF));
        return {_mm512_mask_max_epi16(most.v, _mm512_cmplt_epi16_mask(v, infinity), most.v, v)};
    }
}

template <int32_t kType> PKV_INLINE float top(const Peak &most) {
    if constexpr (kType == PKV_DTYPE_F32) {
        return _mm512_reduce_max_ps(floats(most.v));
    } else {
        const __m256i half = _mm256_max_epi16(_mm512_castsi512_si256(most.v), _mm512_extracti64x4_epi64(most.v, 1));
        const __m128i v = _mm_max_epi16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
        // The largest word is the smallest of the complements.
        const __m128i ones = _mm_set1_epi32(-1);
        const __m128i word = _mm_xor_si128(_mm_minpos_epu16(_mm_xor_si128(v, ones)), ones);
        return kType == PKV_DTYPE_F16 ? _mm_cvtss_f32(_mm_cvtph_ps(word))
                                      : _mm_cvtss_f32(_mm_castsi128_ps(_mm_slli_epi32(word, 16)));
    }
}

} // namespace
} // namespace pkv::tensor::cpu

#include "tensor/cpu/convert_runs.h"

namespace pkv::tensor::cpu {

const Converters kConvertAvx512 = make_converters([] { _mm_sfence(); });

} // namespace pkv::tensor::cpu

#endif
