// SPDX-License-Identifier: Apache-2.0
// The converting kernels for every machine: integer arithmetic on vectors of four, which compilers turn into SSE2, NEON
// or what else there is.
#include <pagedkv/tensor.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define PKV_ISA
#define PKV_INLINE __attribute__((always_inline)) inline

namespace pkv::tensor::cpu {
namespace {

constexpr uint64_t kUnit = 16;
constexpr bool kStreams = false;

constexpr int kFours = 4;
typedef float Floats __attribute__((vector_size(16)));
typedef uint32_t Bits __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(16))); // magnitudes; comparisons of these give -1 or 0

struct Lanes {
    Floats f[kFours];
};

PKV_INLINE Bits all(uint32_t bits) { return Bits{bits, bits, bits, bits}; }
PKV_INLINE Bits bits_of(Floats f) { return reinterpret_cast<Bits>(f); }
PKV_INLINE Floats floats_of(Bits bits) { return reinterpret_cast<Floats>(bits); }
constexpr uint32_t bits_of(float f) { return std::bit_cast<uint32_t>(f); }

/// a > b ? yes : no, of numbers below 2^31.
PKV_INLINE Bits pick_above(Bits a, uint32_t b, Bits yes, Bits no) {
    const Bits mask = reinterpret_cast<Bits>(reinterpret_cast<Ints>(a) > reinterpret_cast<Ints>(all(b)));
    return (yes & mask) | (no & ~mask);
}

PKV_INLINE Bits at_most(Bits a, uint32_t most) { return pick_above(a, most, all(most), a); }
PKV_INLINE Bits at_least(Bits a, uint32_t least) { return pick_above(a, least, a, all(least)); }

PKV_INLINE Floats from_f16(Bits half) {
    const Bits magnitude = (half & 0x7FFF) << 13;
    // Subnormal: as the fraction of the smallest normal number, which is then taken off.
    const Bits small = bits_of(floats_of(magnitude + (113u << 23)) - floats_of(all(113u << 23)));
    const Bits normal = magnitude + (112u << 23);
    const Bits infinity = magnitude + (224u << 23); // or NaN, which becomes a quiet one
    const Bits large = pick_above(magnitude, 0x0F800000u, infinity | 0x400000u, infinity);
    const Bits finite = pick_above(magnitude, (1u << 23) - 1, normal, small);
    return floats_of(pick_above(magnitude, 0x0F7FFFFFu, large, finite) | (half & 0x8000) << 16);
}

/// 1 / 256 of the value.
PKV_INLINE Floats from_e4m3(Bits code) {
    // As the upper part of an f16: the value / 256, as the exponents' biases are 7 and 15.
    const Bits half = (code & 0x80) << 8 | (code & 0x7F) << 7;
    return from_f16(half + pick_above(code & 0x7F, 0x7E, all(0x4000), all(0)));
}

PKV_INLINE Floats from_int8(Bits code) {
    return __builtin_convertvector(reinterpret_cast<Ints>(code << 24) >> 24, Floats);
}

/// The code of a magnitude that is a number: kMantissa bits of fraction; kLeast is the exponent, as a float's, of the
/// smallest normal number.
template <int kMantissa, uint32_t kLeast> PKV_INLINE Bits round_magnitude(Bits bits) {
    constexpr uint32_t kDrop = 23 - kMantissa;
    // The sum of the magnitude and 2^kDrop times its power of two has the mantissa that is wanted, rounded, in its
    // lowest bits; of a magnitude in the subnormal range, the power of two is that of the smallest normal number. A
    // mantissa that carries over counts the exponent up, as it should.
    const Bits power = at_least(bits & 0x7F800000u, kLeast << 23);
    const Bits magic = power + (kDrop << 23);
    const Bits mantissa = bits_of(floats_of(bits) + floats_of(magic)) - magic;
    return mantissa + ((power - (kLeast << 23)) >> kDrop);
}

PKV_INLINE Bits to_f16(Bits bits) {
    const Bits magnitude = bits & 0x7FFFFFFFu;
    // 65536, whose code is that of infinity.
    const Bits code = round_magnitude<10, 113>(at_most(magnitude, 143u << 23));
    const Bits nan = ((magnitude >> 13) & 0x3FF) | 0x7E00;
    return pick_above(magnitude, 0x7F800000u, nan, code) | (bits >> 31) << 15;
}

PKV_INLINE Bits to_bf16(Bits bits) {
    const Bits up = bits + 0x7FFF + ((bits >> 16) & 1);
    return pick_above(bits & 0x7FFFFFFFu, 0x7F800000u, bits | 0x400000u, up) >> 16;
}

template <int kMantissa, uint32_t kLeast> PKV_INLINE Bits to_fp8(Bits bits, float most) {
    const Bits magnitude = bits & 0x7FFFFFFFu;
    const Bits code = round_magnitude<kMantissa, kLeast>(at_most(magnitude, bits_of(most)));
    return pick_above(magnitude, 0x7F800000u, all(0x7F), code) | (bits >> 31) << 7;
}

PKV_INLINE Bits to_int8(Bits bits) {
    const Bits magnitude = bits & 0x7FFFFFFFu;
    const Floats clamped = floats_of(at_most(magnitude, bits_of(127.0f)));
    const Bits rounded = bits_of(clamped + floats_of(all(bits_of(8388608.0f)))) & 0x7F;
    const Bits number = pick_above(magnitude, 0x7F800000u, all(0), rounded);
    const Bits sign = all(0) - (bits >> 31);
    return ((number ^ sign) - sign) & 0xFF;
}

/// Four elements, each in the low bits of 32.
template <class Element> PKV_INLINE Bits get_four(const std::byte *src) {
    typedef Element Four __attribute__((vector_size(4 * sizeof(Element))));
    Four four;
    std::memcpy(&four, src, sizeof(four));
    return __builtin_convertvector(four, Bits);
}

template <class Element> PKV_INLINE void put_four(std::byte *dst, Bits bits) {
    typedef Element Four __attribute__((vector_size(4 * sizeof(Element))));
    const Four four = __builtin_convertvector(bits, Four);
    std::memcpy(dst, &four, sizeof(four));
}

template <int32_t kType> PKV_INLINE Floats load_four(const std::byte *src) {
    if constexpr (kType == PKV_DTYPE_F32) {
        return floats_of(get_four<uint32_t>(src));
    } else if constexpr (kType == PKV_DTYPE_F16) {
        return from_f16(get_four<uint16_t>(src));
    } else if constexpr (kType == PKV_DTYPE_BF16) {
        return floats_of(get_four<uint16_t>(src) << 16);
    } else if constexpr (kType == PKV_DTYPE_F8_E4M3) {
        return from_e4m3(get_four<uint8_t>(src));
    } else if constexpr (kType == PKV_DTYPE_F8_E5M2) {
        return from_f16(get_four<uint8_t>(src) << 8); // the upper half of an f16
    } else {
        return from_int8(get_four<uint8_t>(src));
    }
}

template <int32_t kType> PKV_INLINE void store_four(std::byte *dst, Bits v) {
    if constexpr (kType == PKV_DTYPE_F32) {
        put_four<uint32_t>(dst, v);
    } else if constexpr (kType == PKV_DTYPE_F16) {
        put_four<uint16_t>(dst, to_f16(v));
    } else if constexpr (kType == PKV_DTYPE_BF16) {
        put_four<uint16_t>(dst, to_bf16(v));
    } else if constexpr (kType == PKV_DTYPE_F8_E4M3) {
        put_four<uint8_t>(dst, to_fp8<3, 121>(v, 448.0f));
    } else if constexpr (kType == PKV_DTYPE_F8_E5M2) {
        put_four<uint8_t>(dst, to_fp8<2, 113>(v, 57344.0f));
    } else {
        put_four<uint8_t>(dst, to_int8(v));
    }
}

constexpr uint64_t four_bytes(int32_t type) {
    return type == PKV_DTYPE_F32 ? 16 : type == PKV_DTYPE_F16 || type == PKV_DTYPE_BF16 ? 8 : 4;
}

template <int32_t kType> PKV_INLINE Lanes load(const std::byte *src) {
    Lanes lanes;
    for (Floats &f : lanes.f) {
        f = load_four<kType>(src);
        src += four_bytes(kType);
    }
    return lanes;
}

template <int32_t kType, bool kStream, bool kBytes> PKV_INLINE void store(std::byte *dst, const Lanes &lanes) {
    for (const Floats &f : lanes.f) {
        store_four<kType>(dst, bits_of(f));
        dst += four_bytes(kType);
    }
}

PKV_INLINE Lanes splat(float f) {
    const Floats four = {f, f, f, f};
    return {{four, four, four, four}};
}

PKV_INLINE Lanes times(const Lanes &a, const Lanes &b) {
    return {{a.f[0] * b.f[0], a.f[1] * b.f[1], a.f[2] * b.f[2], a.f[3] * b.f[3]}};
}

PKV_INLINE Lanes over(const Lanes &a, const Lanes &b) {
    return {{a.f[0] / b.f[0], a.f[1] / b.f[1], a.f[2] / b.f[2], a.f[3] / b.f[3]}};
}

/// Magnitudes are ordered as integers.
struct Peak {
    Ints most;
};

template <int32_t kType> PKV_INLINE Peak peak(const Peak &before, const std::byte *src) {
    Ints most = before.most;
    for (int i = 0; i < kFours; ++i, src += four_bytes(kType)) {
        const Bits magnitude = bits_of(load_four<kType>(src)) & 0x7FFFFFFFu;
        const Ints finite = reinterpret_cast<Ints>(pick_above(magnitude, 0x7F7FFFFFu, all(0), magnitude));
        const Ints larger = finite > most;
        most = (finite & larger) | (most & ~larger);
    }
    return {most};
}

template <int32_t kType> PKV_INLINE float top(const Peak &peak) {
    int32_t most = 0;
    for (int i = 0; i < 4; ++i) {
        most = peak.most[i] > most ? peak.most[i] : most;
    }
    return std::bit_cast<float>(most);
}

} // namespace
} // namespace pkv::tensor::cpu

#include "tensor/cpu/convert_runs.h"

namespace pkv::tensor::cpu {

const Converters kConvertPortable = make_converters([] {});

} // namespace pkv::tensor::cpu
