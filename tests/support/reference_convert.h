/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of one element, written from the definitions of the formats and the rules of tensor.h, and sharing nothing
 * with the library: a code is decoded digit by digit, and encoding looks for the nearest code. Slow and plain. */
#ifndef PKV_TESTS_REFERENCE_CONVERT_H
#define PKV_TESTS_REFERENCE_CONVERT_H

#include <float.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <pagedkv/tensor.h>

/* A float format: sign, exponent and fraction from the top bit down. */
typedef struct {
    int bits;
    int fraction_bits;
    int bias;
    uint32_t largest;  /* code of the largest finite magnitude */
    uint32_t infinity; /* code, 0 = none: larger magnitudes become the largest */
    uint32_t nan;      /* the code that NaN becomes */
} reference_format;

static inline reference_format reference_format_of(int32_t dtype) {
    switch (dtype) {
    case PKV_DTYPE_F16: return (reference_format){16, 10, 15, 0x7BFF, 0x7C00, 0x7E00};
    case PKV_DTYPE_BF16: return (reference_format){16, 7, 127, 0x7F7F, 0x7F80, 0x7FC0};
    case PKV_DTYPE_F8_E4M3: return (reference_format){8, 3, 7, 0x7E, 0, 0x7F};
    default: return (reference_format){8, 2, 15, 0x7B, 0, 0x7F}; /* E5M2: 0x7C is infinity, but nothing becomes it */
    }
}

/* 2^exponent. */
static inline double reference_power(int exponent) {
    double power = 1;
    for (; exponent > 0; --exponent) power *= 2;
    for (; exponent < 0; ++exponent) power /= 2;
    return power;
}

/* The value of a code without its sign bit, as if there were no infinity and no NaN. */
static inline double reference_magnitude(reference_format format, uint32_t code) {
    const int exponent = (int)(code >> format.fraction_bits);
    const double one = reference_power(format.fraction_bits);
    const double fraction = (double)(code & ((1u << format.fraction_bits) - 1)) / one;
    return exponent == 0 ? fraction * reference_power(1 - format.bias)
                         : (1 + fraction) * reference_power(exponent - format.bias);
}

static inline float reference_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t reference_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline bool reference_negative(float value) { return reference_bits(value) >> 31 != 0; }

/* The value of an element: the low bits of `code`. */
static inline float reference_decode(int32_t dtype, uint32_t code) {
    if (dtype == PKV_DTYPE_F32) return reference_float(code);
    if (dtype == PKV_DTYPE_I8) return (float)(int8_t)(uint8_t)code;
    const reference_format format = reference_format_of(dtype);
    const uint32_t sign = (code >> (format.bits - 1)) & 1;
    const uint32_t magnitude = code & ((1u << (format.bits - 1)) - 1);
    const uint32_t infinity = dtype == PKV_DTYPE_F8_E5M2 ? 0x7C : format.infinity;
    if (infinity != 0 && magnitude == infinity) return reference_float(sign << 31 | 0x7F800000u);
    if (magnitude > format.largest) return reference_float(sign << 31 | 0x7FC00000u);
    const float value = (float)reference_magnitude(format, magnitude);
    return sign ? -value : value;
}

/* The nearest integer, ties to even, of a magnitude up to 2^31. */
static inline uint32_t reference_round(double magnitude) {
    const uint32_t below = (uint32_t)magnitude;
    const double rest = magnitude - below;
    return below + (rest > 0.5 || (rest == 0.5 && below % 2 != 0) ? 1 : 0);
}

/* The element that a value becomes. NaN payloads are the plainest: compare with reference_same. */
static inline uint32_t reference_encode(int32_t dtype, float value) {
    if (dtype == PKV_DTYPE_F32) return reference_bits(value);
    const bool nan = value != value;
    const double magnitude = nan ? 0 : reference_negative(value) ? -(double)value : (double)value;
    if (dtype == PKV_DTYPE_I8) {
        const int rounded = (int)reference_round(magnitude > 127 ? 127 : magnitude);
        return (uint8_t)(reference_negative(value) ? -rounded : rounded);
    }
    const reference_format format = reference_format_of(dtype);
    const uint32_t sign = reference_negative(value) ? 1u << (format.bits - 1) : 0;
    if (nan) return sign | format.nan;
    /* The last code that is not above the magnitude; codes are in the order of their values. */
    uint32_t below = 0;
    uint32_t above = format.largest + 1;
    while (above - below > 1) {
        const uint32_t middle = below + (above - below) / 2;
        if (reference_magnitude(format, middle) <= magnitude) {
            below = middle;
        } else {
            above = middle;
        }
    }
    const double down = magnitude - reference_magnitude(format, below);
    const double up = reference_magnitude(format, below + 1) - magnitude;
    uint32_t code = up < down || (up == down && below % 2 != 0) ? below + 1 : below;
    if (code > format.largest) code = format.infinity != 0 ? format.infinity : format.largest;
    return sign | code;
}

/* Equal, or NaN both with the same sign. */
static inline bool reference_same(int32_t dtype, uint32_t a, uint32_t b) {
    const float x = reference_decode(dtype, a);
    const float y = reference_decode(dtype, b);
    return a == b || (x != x && y != y && reference_negative(x) == reference_negative(y));
}

/* PKV_SCALES_TOKEN_HEAD: the scale of a row whose largest finite magnitude is `most`. */
static inline float reference_scale(int32_t dtype, float most) {
    const float largest = dtype == PKV_DTYPE_F8_E4M3 ? 448.0f : dtype == PKV_DTYPE_F8_E5M2 ? 57344.0f : 127.0f;
    if (most == 0) return 1;
    const float scale = most / largest;
    return scale < FLT_MIN ? FLT_MIN : scale;
}

/* The element that is stored for an element of the caller's; scale 1 where there are none. */
static inline uint32_t reference_write(int32_t stored, int32_t flat, uint32_t element, float scale) {
    const float value = reference_decode(flat, element);
    return reference_encode(stored, scale == 1 ? value : value / scale);
}

/* The element that a stored one is gathered as. */
static inline uint32_t reference_gather(int32_t flat, int32_t stored, uint32_t element, float scale) {
    const float value = reference_decode(stored, element);
    return reference_encode(flat, scale == 1 ? value : value * scale);
}

#endif
