// SPDX-License-Identifier: Apache-2.0
// The converting kernels for every machine: integer arithmetic on 16 elements at a time, in loops without branches that
// compilers turn into whatever vectors there are (SSE2, NEON).
#include <pagedkv/tensor.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define PKV_ISA
#define PKV_INLINE __attribute__((always_inline)) inline

namespace pkv::tensor::cpu {
namespace {

constexpr bool kStreams = false;
constexpr int kLanes = 16;

struct Lanes {
    float f[kLanes];
};

PKV_INLINE uint32_t bits_of(float f) { return std::bit_cast<uint32_t>(f); }
PKV_INLINE float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }
/// yes ? a : b, without a branch.
PKV_INLINE uint32_t pick(bool yes, uint32_t a, uint32_t b) {
    const uint32_t mask = 0u - uint32_t{yes};
    return (a & mask) | (b & ~mask);
}

PKV_INLINE float from_f16(uint32_t half) {
    const uint32_t magnitude = (half & 0x7FFF) << 13;
    // Subnormal: as the fraction of the smallest normal number, which is then taken off.
    const uint32_t small = bits_of(float_of(magnitude + (113u << 23)) - float_of(113u << 23));
    const uint32_t normal = magnitude + (112u << 23);
    const uint32_t quiet = pick(magnitude > 0x0F800000u, 0x400000u, 0);
    const uint32_t large = (magnitude + (224u << 23)) | quiet; // infinity and NaN
    const uint32_t finite = pick(magnitude < (1u << 23), small, normal);
    return float_of(pick(magnitude >= 0x0F800000u, large, finite) | (half & 0x8000) << 16);
}

PKV_INLINE float from_e4m3(uint32_t code) {
    // As the upper part of an f16: the value / 256, as the exponents' biases are 7 and 15.
    const uint32_t half = (code & 0x80) << 8 | (code & 0x7F) << 7;
    return from_f16(half | pick((code & 0x7F) == 0x7F, 0x7E00, 0)) * 256.0f;
}

/// The code of a magnitude that is a number: kMantissa bits of fraction; kLeast is the exponent, as a float's, of the
/// smallest normal number.
template <int kMantissa, uint32_t kLeast> PKV_INLINE uint32_t round_magnitude(uint32_t bits) {
    constexpr uint32_t kDrop = 23 - kMantissa;
    // The sum of the magnitude and 2^kDrop times its power of two has the mantissa that is wanted, rounded, in its
    // lowest bits; of a magnitude in the subnormal range, the power of two is that of the smallest normal number. A
    // mantissa that carries over counts the exponent up, as it should.
    const uint32_t exponent = bits & 0x7F800000u;
    const uint32_t power = pick(exponent > kLeast << 23, exponent, kLeast << 23);
    const uint32_t magic = power + (kDrop << 23);
    const uint32_t mantissa = bits_of(float_of(bits) + float_of(magic)) - magic;
    return mantissa + ((power - (kLeast << 23)) >> kDrop);
}

PKV_INLINE uint32_t to_f16(float f) {
    const uint32_t bits = bits_of(f);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    constexpr uint32_t kInfinity = 143u << 23; // 65536, whose code is that of infinity
    const uint32_t code = round_magnitude<10, 113>(pick(magnitude < kInfinity, magnitude, kInfinity));
    const uint32_t nan = 0x7E00 | ((magnitude >> 13) & 0x3FF);
    return pick(magnitude > 0x7F800000u, nan, code) | (bits >> 31) << 15;
}

PKV_INLINE uint32_t to_bf16(float f) {
    const uint32_t bits = bits_of(f);
    const uint32_t up = bits + 0x7FFF + ((bits >> 16) & 1);
    return pick((bits & 0x7FFFFFFFu) > 0x7F800000u, bits | 0x400000u, up) >> 16;
}

template <int kMantissa, uint32_t kLeast> PKV_INLINE uint32_t to_fp8(float f, float most) {
    const uint32_t bits = bits_of(f);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t code = round_magnitude<kMantissa, kLeast>(pick(magnitude < bits_of(most), magnitude, bits_of(most)));
    return pick(magnitude > 0x7F800000u, 0x7F, code) | (bits >> 31) << 7;
}

PKV_INLINE uint32_t to_int8(float f) {
    const uint32_t bits = bits_of(f);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t number = pick(magnitude < bits_of(127.0f), magnitude, bits_of(127.0f));
    const uint32_t rounded = (bits_of(float_of(number) + 8388608.0f) & 0x7F) & pick(magnitude > 0x7F800000u, 0, 0x7F);
    const uint32_t sign = 0u - (bits >> 31);
    return (rounded ^ sign) - sign;
}

template <int32_t kType> PKV_INLINE Lanes load(const std::byte *src) {
    Lanes lanes;
    if constexpr (kType == PKV_DTYPE_F32) {
        std::memcpy(lanes.f, src, sizeof(lanes.f));
    } else if constexpr (kType == PKV_DTYPE_F16 || kType == PKV_DTYPE_BF16) {
        uint16_t in[kLanes];
        std::memcpy(in, src, sizeof(in));
        for (int i = 0; i < kLanes; ++i) {
            lanes.f[i] = kType == PKV_DTYPE_F16 ? from_f16(in[i]) : float_of(uint32_t{in[i]} << 16);
        }
    } else {
        uint8_t in[kLanes];
        std::memcpy(in, src, sizeof(in));
        for (int i = 0; i < kLanes; ++i) {
            if constexpr (kType == PKV_DTYPE_F8_E4M3) {
                lanes.f[i] = from_e4m3(in[i]);
            } else if constexpr (kType == PKV_DTYPE_F8_E5M2) {
                lanes.f[i] = from_f16(uint32_t{in[i]} << 8); // the upper half of an f16
            } else {
                lanes.f[i] = static_cast<float>(static_cast<int8_t>(in[i]));
            }
        }
    }
    return lanes;
}

template <int32_t kType, bool kStream> PKV_INLINE void store(std::byte *dst, const Lanes &lanes) {
    if constexpr (kType == PKV_DTYPE_F32) {
        std::memcpy(dst, lanes.f, sizeof(lanes.f));
    } else if constexpr (kType == PKV_DTYPE_F16 || kType == PKV_DTYPE_BF16) {
        uint16_t out[kLanes];
        for (int i = 0; i < kLanes; ++i) {
            out[i] = static_cast<uint16_t>(kType == PKV_DTYPE_F16 ? to_f16(lanes.f[i]) : to_bf16(lanes.f[i]));
        }
        std::memcpy(dst, out, sizeof(out));
    } else {
        uint8_t out[kLanes];
        for (int i = 0; i < kLanes; ++i) {
            if constexpr (kType == PKV_DTYPE_F8_E4M3) {
                out[i] = static_cast<uint8_t>(to_fp8<3, 121>(lanes.f[i], 448.0f));
            } else if constexpr (kType == PKV_DTYPE_F8_E5M2) {
                out[i] = static_cast<uint8_t>(to_fp8<2, 113>(lanes.f[i], 57344.0f));
            } else {
                out[i] = static_cast<uint8_t>(to_int8(lanes.f[i]));
            }
        }
        std::memcpy(dst, out, sizeof(out));
    }
}

PKV_INLINE Lanes splat(float f) {
    Lanes lanes;
    for (float &lane : lanes.f) {
        lane = f;
    }
    return lanes;
}

PKV_INLINE Lanes times(const Lanes &a, const Lanes &b) {
    Lanes lanes;
    for (int i = 0; i < kLanes; ++i) {
        lanes.f[i] = a.f[i] * b.f[i];
    }
    return lanes;
}

PKV_INLINE Lanes over(const Lanes &a, const Lanes &b) {
    Lanes lanes;
    for (int i = 0; i < kLanes; ++i) {
        lanes.f[i] = a.f[i] / b.f[i];
    }
    return lanes;
}

PKV_INLINE Lanes peak(const Lanes &most, const Lanes &v) {
    Lanes lanes;
    for (int i = 0; i < kLanes; ++i) {
        const uint32_t magnitude = bits_of(v.f[i]) & 0x7FFFFFFFu;
        const uint32_t finite = pick(magnitude < 0x7F800000u, magnitude, 0);
        const uint32_t before = bits_of(most.f[i]);
        lanes.f[i] = float_of(pick(before > finite, before, finite));
    }
    return lanes;
}

PKV_INLINE float top(const Lanes &lanes) {
    float most = 0.0f;
    for (const float f : lanes.f) {
        most = f > most ? f : most;
    }
    return most;
}

} // namespace
} // namespace pkv::tensor::cpu

#include "tensor/cpu/convert_runs.h"

namespace pkv::tensor::cpu {

const Converters kConvertPortable = make_converters([] {});

} // namespace pkv::tensor::cpu
