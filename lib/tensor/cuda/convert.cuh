// SPDX-License-Identifier: Apache-2.0
// Elements of one type as those of another, bit by bit what the host back end makes of them (tensor.h, public, states
// the rounding). Floats travel as their bits: the device's own arithmetic does not keep a NaN's sign, so what is NaN
// goes around it.
#pragma once

#include "tensor/cuda/grid.cuh"

#include <pagedkv/tensor.h>

namespace pkv::cuda {

PKV_HD float float_of(uint32_t bits) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(bits);
#else
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
#endif
}

PKV_HD uint32_t bits_of(float value) {
#if defined(__CUDA_ARCH__)
    return __float_as_uint(value);
#else
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
#endif
}

// To nearest, and never fused.
PKV_HD uint32_t product(uint32_t a, float b) {
#if defined(__CUDA_ARCH__)
    return bits_of(__fmul_rn(float_of(a), b));
#else
    return bits_of(float_of(a) * b);
#endif
}

PKV_HD uint32_t quotient(uint32_t a, float b) {
#if defined(__CUDA_ARCH__)
    return bits_of(__fdiv_rn(float_of(a), b));
#else
    return bits_of(float_of(a) / b);
#endif
}

PKV_HD uint32_t sum(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    return bits_of(__fadd_rn(float_of(a), float_of(b)));
#else
    return bits_of(float_of(a) + float_of(b));
#endif
}

inline constexpr uint32_t sign_bit = 0x80000000u;
inline constexpr uint32_t infinity_bits = 0x7F800000u; ///< magnitudes above are NaN
inline constexpr uint32_t quiet_bit = 0x00400000u;

PKV_HD bool is_nan(uint32_t bits) { return (bits & ~sign_bit) > infinity_bits; }

// ---- one element ----------------------------------------------------------------------------------------------------

PKV_HD constexpr bool is_byte(int type) {
    return type == PKV_DTYPE_F8_E4M3 || type == PKV_DTYPE_F8_E5M2 || type == PKV_DTYPE_I8;
}
PKV_HD constexpr int element_bytes(int type) { return type == PKV_DTYPE_F32 ? 4 : is_byte(type) ? 1 : 2; }

/// The float of an f16: as a fraction it is a float's upper part, and 2^112 too small.
PKV_HD uint32_t from_f16(uint32_t code) {
    const uint32_t magnitude = (code & 0x7FFF) << 13;
    const uint32_t finite = product(magnitude, 5192296858534827628530496329220096.0f); // 2^112, also of subnormals
    const uint32_t infinite = magnitude + (112u << 23) + (112u << 23);
    const uint32_t value = magnitude < 0x0F800000u ? finite : magnitude > 0x0F800000u ? infinite | quiet_bit : infinite;
    return value | (code & 0x8000) << 16;
}

PKV_HD uint32_t from_e4m3(uint32_t code) {
    const uint32_t magnitude = (code & 0x7F) << 20;
    const uint32_t value = product(magnitude, 1329227995784915872903807060280344576.0f); // 2^120
    return ((code & 0x7F) == 0x7F ? 0x7FF00000u : value) | (code & 0x80) << 24;
}

/// The code of a magnitude that is a number and not above the largest: `fraction` bits of fraction, and `least` the
/// exponent, as a float's, of the smallest normal number. Adding 2^(23 - fraction) times the magnitude's own power of
/// two leaves the fraction, rounded, in the lowest bits; one that carries over counts the exponent up.
template <int fraction, uint32_t least> PKV_HD uint32_t round_magnitude(uint32_t magnitude) {
    const uint32_t dropped = 23 - fraction;
    uint32_t power = magnitude & infinity_bits;
    power = power < (least << 23) ? least << 23 : power;
    const uint32_t magic = power + (dropped << 23);
    return sum(magnitude, magic) - magic + ((power - (least << 23)) >> dropped);
}

PKV_HD uint32_t to_f16(uint32_t bits) {
    const uint32_t magnitude = bits & ~sign_bit;
    const uint32_t past = 143u << 23; // 65536, whose code is that of infinity
    const uint32_t code = round_magnitude<10, 113>(magnitude < past ? magnitude : past);
    const uint32_t nan = ((magnitude >> 13) & 0x3FF) | 0x7E00;
    return (magnitude > infinity_bits ? nan : code) | (bits >> 31) << 15;
}

PKV_HD uint32_t to_bf16(uint32_t bits) {
    const uint32_t up = bits + 0x7FFF + ((bits >> 16) & 1);
    return (is_nan(bits) ? bits | quiet_bit : up) >> 16;
}

template <int fraction, uint32_t least> PKV_HD uint32_t to_fp8(uint32_t bits, uint32_t most) {
    const uint32_t magnitude = bits & ~sign_bit;
    const uint32_t code = round_magnitude<fraction, least>(magnitude < most ? magnitude : most);
    return (magnitude > infinity_bits ? 0x7F : code) | (bits >> 31) << 7;
}

PKV_HD uint32_t to_int8(uint32_t bits) {
    const uint32_t magnitude = bits & ~sign_bit;
    const uint32_t most = 0x42FE0000u;                                                     // 127
    const uint32_t rounded = sum(magnitude < most ? magnitude : most, 0x4B000000u) & 0x7F; // plus 2^23
    const uint32_t number = magnitude > infinity_bits ? 0 : rounded;
    return ((bits & sign_bit) != 0 ? 0 - number : number) & 0xFF;
}

template <int type> PKV_HD uint32_t decode(uint32_t code) {
    if constexpr (type == PKV_DTYPE_F32) {
        return code;
    } else if constexpr (type == PKV_DTYPE_F16) {
        return from_f16(code);
    } else if constexpr (type == PKV_DTYPE_BF16) {
        return code << 16;
    } else if constexpr (type == PKV_DTYPE_F8_E4M3) {
        return from_e4m3(code);
    } else if constexpr (type == PKV_DTYPE_F8_E5M2) {
        return from_f16(code << 8); // the upper half of an f16
    } else {
        return bits_of(static_cast<float>(static_cast<int32_t>(code << 24) >> 24));
    }
}

template <int type> PKV_HD uint32_t encode(uint32_t bits) {
    if constexpr (type == PKV_DTYPE_F32) {
        return bits;
    } else if constexpr (type == PKV_DTYPE_F16) {
        return to_f16(bits);
    } else if constexpr (type == PKV_DTYPE_BF16) {
        return to_bf16(bits);
    } else if constexpr (type == PKV_DTYPE_F8_E4M3) {
        return to_fp8<3, 121>(bits, 0x43E00000u); // 448
    } else if constexpr (type == PKV_DTYPE_F8_E5M2) {
        return to_fp8<2, 113>(bits, 0x47600000u); // 57344
    } else {
        return to_int8(bits);
    }
}

// ---- scales ---------------------------------------------------------------------------------------------------------

/// What the result of arithmetic with a scale is where it is NaN: x86's processors keep the NaN that went in, the
/// value's first, and make a negative one of none.
PKV_HD uint32_t settle_nan(uint32_t value, float scale, uint32_t result) {
    if (!is_nan(result)) return result;
    return is_nan(value) ? value | quiet_bit : is_nan(bits_of(scale)) ? 0x7FC00000u : 0xFFC00000u;
}

template <int from, int to> PKV_HD uint32_t apply_scale(uint32_t value, float scale) {
    if constexpr (is_byte(to)) {
        return scale == 1.0f ? value : settle_nan(value, scale, quotient(value, scale));
    } else if constexpr (is_byte(from)) {
        return settle_nan(value, scale, product(value, scale));
    } else {
        (void)scale;
        return value;
    }
}

/// The scale that maps a row's largest finite magnitude to the type's.
template <int to> PKV_HD float scale_for(uint32_t most) {
    const float largest = to == PKV_DTYPE_F8_E4M3 ? 448.0f : to == PKV_DTYPE_F8_E5M2 ? 57344.0f : 127.0f;
    const float least = 1.17549435e-38f; // FLT_MIN
    if (most == 0) return 1.0f;
    const float scale = float_of(quotient(most, largest));
    return scale < least ? least : scale;
}

// ---- a few elements: one may stand at any address, several stand where one access takes them ------------------------

/// Elements that a thread converts at a time where addresses allow: 16 bytes of the longer type.
PKV_HD constexpr int elements_at_once(int from, int to) {
    return 16 / (element_bytes(from) > element_bytes(to) ? element_bytes(from) : element_bytes(to));
}

template <int type, int count> PKV_HD void load_floats(const void *src, uint32_t (&floats)[count]) {
    constexpr int size = element_bytes(type);
    Unit<size * count> unit;
    if constexpr (count == 1) {
        unit = load_any<size>(src);
    } else {
        unit = load<size * count>(src);
    }
    uint32_t words[(size * count + 3) / 4] = {};
    memcpy(words, &unit, sizeof unit);
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int i = 0; i < count; ++i) {
        const uint32_t word = words[i * size / 4] >> (i * size % 4 * 8);
        floats[i] = decode<type>(size == 4 ? word : size == 2 ? word & 0xFFFF : word & 0xFF);
    }
}

template <int type, int count> PKV_HD void store_floats(void *dst, const uint32_t (&floats)[count]) {
    constexpr int size = element_bytes(type);
    uint32_t words[(size * count + 3) / 4] = {};
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int i = 0; i < count; ++i) words[i * size / 4] |= encode<type>(floats[i]) << (i * size % 4 * 8);
    Unit<size * count> unit;
    memcpy(&unit, words, sizeof unit);
    if constexpr (count == 1) {
        store_any<size>(dst, unit);
    } else {
        store<size * count>(dst, unit);
    }
}

template <int from, int to, int count> PKV_HD void convert(void *dst, const void *src, float scale) {
    uint32_t floats[count];
    load_floats<from, count>(src, floats);
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int i = 0; i < count; ++i) floats[i] = apply_scale<from, to>(floats[i], scale);
    store_floats<to, count>(dst, floats);
}

} // namespace pkv::cuda
