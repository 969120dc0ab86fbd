// SPDX-License-Identifier: Apache-2.0
// The converting kernels for x86-64 with AVX2, F16C and FMA. convert_avx512.cpp explains the arithmetic; here each step
// is done on 8 floats.
#if defined(__x86_64__)

#include <pagedkv/tensor.h>

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#define PKV_ISA __attribute__((target("avx2,f16c,fma")))
#define PKV_INLINE PKV_ISA __attribute__((always_inline)) inline

namespace pkv::tensor::cpu {
namespace {

constexpr uint64_t kUnit = 16;
constexpr bool kStreams = true;

struct Lanes {
    __m256 lo;
    __m256 hi;
};

PKV_INLINE __m128i get16(const std::byte *src) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(src)); }

PKV_INLINE __m256i get32(const std::byte *src) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(src)); }

PKV_INLINE Lanes halves(__m128i lo, __m128i hi) { return {_mm256_cvtph_ps(lo), _mm256_cvtph_ps(hi)}; }
PKV_INLINE Lanes halves(__m256i v) { return halves(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)); }

PKV_INLINE __m256 upper(__m128i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16)); }

PKV_INLINE __m256 integers(__m128i v) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)); }

template <int32_t kType> PKV_INLINE Lanes load(const std::byte *src) {
    if constexpr (kType == PKV_DTYPE_F32) {
        const auto *const f = reinterpret_cast<const float *>(src);
        return {_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)};
    } else if constexpr (kType == PKV_DTYPE_F16) {
        return halves(get16(src), get16(src + 16));
    } else if constexpr (kType == PKV_DTYPE_BF16) {
        return {upper(get16(src)), upper(get16(src + 16))};
    } else if constexpr (kType == PKV_DTYPE_F8_E4M3) {
        const __m256i half = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(get16(src)), 7),
                                              _mm256_set1_epi16(static_cast<int16_t>(0xBF80)));
        const __m256i nan = _mm256_cmpeq_epi16(_mm256_slli_epi16(half, 1), _mm256_set1_epi16(0x7F00));
        return halves(_mm256_add_epi16(half, _mm256_and_si256(nan, _mm256_set1_epi16(0x4000))));
    } else if constexpr (kType == PKV_DTYPE_F8_E5M2) {
        return halves(_mm256_slli_epi16(_mm256_cvtepu8_epi16(get16(src)), 8));
    } else {
        const __m128i v = get16(src);
        return {integers(v), integers(_mm_srli_si128(v, 8))};
    }
}

template <bool kStream> PKV_INLINE void put(std::byte *dst, __m128i v) {
    kStream ? _mm_stream_si128(reinterpret_cast<__m128i *>(dst), v)
            : _mm_storeu_si128(reinterpret_cast<__m128i *>(dst), v);
}

template <bool kStream> PKV_INLINE void put(std::byte *dst, __m256 v) {
    kStream ? _mm256_stream_ps(reinterpret_cast<float *>(dst), v) : _mm256_storeu_ps(reinterpret_cast<float *>(dst), v);
}

PKV_INLINE __m256 magnitudes(__m256 v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }

PKV_INLINE __m256 clamp(__m256 v, float most) {
    return _mm256_max_ps(_mm256_set1_ps(-most), _mm256_min_ps(_mm256_set1_ps(most), v));
}

template <bool kBytes> PKV_INLINE __m256i to_bf16(__m256 v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    if constexpr (kBytes) {
        return _mm256_srli_epi32(up, 16);
    }
    const __m256 quiet = _mm256_or_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(0x400000)));
    const __m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    return _mm256_srli_epi32(_mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(up), quiet, nan)), 16);
}

template <int32_t kMantissa, int32_t kLeast> PKV_INLINE __m256i to_fp8(__m256 v, float most) {
    constexpr int32_t kDrop = 23 - kMantissa;
    const __m256 magnitude = _mm256_min_ps(_mm256_set1_ps(most), magnitudes(v));
    const __m256i bits = _mm256_castps_si256(magnitude);
    const __m256i power =
        _mm256_max_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x7F800000)), _mm256_set1_epi32(kLeast << 23));
    constexpr float kOffset = static_cast<float>(-(kLeast << kMantissa) & 0xFF) / float{1 << kMantissa};
    constexpr float kMagic = float{1 << kDrop} + kOffset;
    const __m256 sum = _mm256_fmadd_ps(_mm256_castsi256_ps(power), _mm256_set1_ps(kMagic), magnitude);
    constexpr int32_t kNan = 0x7F000000 | ((0x7F - (0x7F800000 >> kDrop)) & 0xFF);
    const __m256 number = _mm256_min_ps(sum, _mm256_castsi256_ps(_mm256_set1_epi32(kNan)));
    const __m256i code = _mm256_add_epi32(_mm256_castps_si256(number), _mm256_srli_epi32(power, kDrop));
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(v), 24), _mm256_set1_epi32(0x80));
    return _mm256_or_si256(_mm256_and_si256(code, _mm256_set1_epi32(0x7F)), sign);
}

/// NaN gives 0.
PKV_INLINE __m256i to_int8(__m256 v) {
    return _mm256_cvtps_epi32(_mm256_and_ps(clamp(v, 127.0f), _mm256_cmp_ps(v, v, _CMP_ORD_Q)));
}

/// 16 integers of 0 to 65535, in order.
PKV_INLINE __m256i pack16(__m256i lo, __m256i hi) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xD8);
}

/// 16 integers, the low bytes of which are wanted: 0 to 255.
PKV_INLINE __m128i pack8(__m256i lo, __m256i hi) {
    const __m256i v = pack16(lo, hi);
    return _mm_packus_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

template <int32_t kType, bool kStream, bool kBytes> PKV_INLINE void store(std::byte *dst, const Lanes &v) {
    if constexpr (kType == PKV_DTYPE_F32) {
        put<kStream>(dst, v.lo);
        put<kStream>(dst + 32, v.hi);
    } else if constexpr (kType == PKV_DTYPE_F16) {
        constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT;
        put<kStream>(dst, _mm256_cvtps_ph(v.lo, kNearest));
        put<kStream>(dst + 16, _mm256_cvtps_ph(v.hi, kNearest));
    } else if constexpr (kType == PKV_DTYPE_BF16) {
        put<kStream>(dst, _mm256_castsi256_ps(pack16(to_bf16<kBytes>(v.lo), to_bf16<kBytes>(v.hi))));
    } else if constexpr (kType == PKV_DTYPE_F8_E4M3) {
        put<kStream>(dst, pack8(to_fp8<3, 121>(v.lo, 448.0f), to_fp8<3, 121>(v.hi, 448.0f)));
    } else if constexpr (kType == PKV_DTYPE_F8_E5M2) {
        put<kStream>(dst, pack8(to_fp8<2, 113>(v.lo, 57344.0f), to_fp8<2, 113>(v.hi, 57344.0f)));
    } else {
        const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(to_int8(v.lo), to_int8(v.hi)), 0xD8);
        put<kStream>(dst, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
    }
}

PKV_INLINE Lanes splat(float f) { return {_mm256_set1_ps(f), _mm256_set1_ps(f)}; }
PKV_INLINE Lanes times(const Lanes &a, const Lanes &b) {
    return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
PKV_INLINE Lanes over(const Lanes &a, const Lanes &b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }

struct Peak {
    __m256i v;
};

template <int32_t kType> PKV_INLINE Peak peak(const Peak &most, const std::byte *src) {
    if constexpr (kType == PKV_DTYPE_F32) {
        const __m256i infinity = _mm256_set1_epi32(0x7F800000);
        const Lanes v = load<kType>(src);
        const __m256i lo = _mm256_castps_si256(magnitudes(v.lo));
        const __m256i hi = _mm256_castps_si256(magnitudes(v.hi));
        const __m256i finite_lo = _mm256_and_si256(lo, _mm256_cmpgt_epi32(infinity, lo));
        const __m256i finite_hi = _mm256_and_si256(hi, _mm256_cmpgt_epi32(infinity, hi));
        return {_mm256_max_epi32(most.v, _mm256_max_epi32(finite_lo, finite_hi))};
    } else {
        const __m256i infinity = _mm256_set1_epi16(kType == PKV_DTYPE_F16 ? 0x7C00 : 0x7F80);
        const __m256i v = _mm256_and_si256(get32(src), _mm256_set1_epi16(0x7FFF));
        return {_mm256_max_epi16(most.v, _mm256_and_si256(v, _mm256_cmpgt_epi16(infinity, v)))};
    }
}

template <int32_t kType> PKV_INLINE float top(const Peak &most) {
    const __m128i lo = _mm256_castsi256_si128(most.v);
    const __m128i hi = _mm256_extracti128_si256(most.v, 1);
    if constexpr (kType == PKV_DTYPE_F32) {
        __m128i v = _mm_max_epi32(lo, hi);
        v = _mm_max_epi32(v, _mm_unpackhi_epi64(v, v));
        v = _mm_max_epi32(v, _mm_srli_epi64(v, 32));
        return _mm_cvtss_f32(_mm_castsi128_ps(v));
    } else {
        // The largest word is the smallest of the complements.
        const __m128i ones = _mm_set1_epi32(-1);
        const __m128i word = _mm_xor_si128(_mm_minpos_epu16(_mm_xor_si128(_mm_max_epi16(lo, hi), ones)), ones);
        return kType == PKV_DTYPE_F16 ? _mm_cvtss_f32(_mm_cvtph_ps(word))
                                      : _mm_cvtss_f32(_mm_castsi128_ps(_mm_slli_epi32(word, 16)));
    }
}

} // namespace
} // namespace pkv::tensor::cpu

#include "tensor/cpu/convert_runs.h"

namespace pkv::tensor::cpu {

const Converters kConvertAvx2 = make_converters([] { _mm_sfence(); });

} // namespace pkv::tensor::cpu

#endif
