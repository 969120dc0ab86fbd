// SPDX-License-Identifier: Apache-2.0
// What the converting host kernels of every instruction set have in common: a nest of runs of elements, and the table
// that a set fills.
#pragma once

#include "layout/scales.h"

#include <pagedkv/tensor.h>

#include <cstddef>
#include <cstdint>

namespace pkv::tensor::cpu {

/// outer x inner runs of `elements` neighbouring elements each. Runs do not overlap between the two sides. A run has
/// one scale: read from `scale`, or found and stored at `found`; with neither it is 1.
struct ConvertNest {
    std::byte *dst = nullptr;
    const std::byte *src = nullptr;
    const std::byte *scale = nullptr;
    std::byte *found = nullptr;
    uint64_t elements = 0;
    uint64_t inner = 1;
    uint64_t inner_dst = 0;
    uint64_t inner_src = 0;
    uint64_t inner_scale = 0; ///< of `scale` and of `found`
    uint64_t outer = 1;
    uint64_t outer_dst = 0;
    uint64_t outer_src = 0;
    uint64_t outer_scale = 0;
    const std::byte *next_src = nullptr;   ///< where the next nest will read, if that is no neighbour: a hint
    const std::byte *next_scale = nullptr; ///< the same of its scales, where each run has one
    bool stream = false;                   ///< full cache lines bypass the caches; drain() before others may read
};

using ConvertFn = void (*)(const ConvertNest &nest);

/// Types that convert are numbered 1 to 6.
inline constexpr int32_t kConvertTypes = PKV_DTYPE_I8 + 1;

/// One instruction set's conversions.
struct Converters {
    ConvertFn from_to[kConvertTypes][kConvertTypes]; ///< nullptr: no such conversion
    void (*drain)();
};

/// The conversions in use: those of kernels(), or the next best where the machine lacks an instruction they need.
const Converters &converters();

extern const Converters kConvertPortable;
#if defined(__x86_64__)
extern const Converters kConvertAvx2;
extern const Converters kConvertAvx512;
#endif

constexpr bool is_flat(int32_t dtype) { return dtype >= PKV_DTYPE_F32 && dtype <= PKV_DTYPE_BF16; }
constexpr bool is_byte(int32_t dtype) { return dtype >= PKV_DTYPE_F8_E4M3 && dtype <= PKV_DTYPE_I8; }
constexpr uint64_t size_of(int32_t dtype) { return dtype == PKV_DTYPE_F32 ? 4 : is_byte(dtype) ? 1 : 2; }

/// Whether rows of `from` become rows of `to`: two different types, at least one of them flat.
constexpr bool has_conversion(int32_t from, int32_t to) {
    return from != to && (is_flat(from) || is_flat(to)) && (is_flat(from) || is_byte(from)) &&
           (is_flat(to) || is_byte(to));
}

/// The scales of K or V of one layer, as the loops over rows see them.
struct ScaleSteps {
    const RowScales &scales;
    uint64_t token = 0; ///< bytes from token to token of a page
    uint64_t head = 0;

    ScaleSteps(const RowScales &given, int32_t stored) : scales(given), kind_(is_byte(stored) ? given.kind : 0) {
        if (kind_ == PKV_SCALES_HEAD) {
            head = sizeof(float);
        } else if (kind_ == PKV_SCALES_TOKEN_HEAD) {
            token = scales.heads * sizeof(float);
            head = sizeof(float);
        }
    }

    bool by_row() const { return kind_ == PKV_SCALES_TOKEN_HEAD; }
    /// PKV_SCALES_TENSOR and HEAD.
    const std::byte *fixed() const {
        return kind_ == PKV_SCALES_NONE ? nullptr : reinterpret_cast<const std::byte *>(scales.fixed);
    }
    /// PKV_SCALES_TOKEN_HEAD.
    std::byte *row(uint64_t page, uint64_t offset) const {
        return reinterpret_cast<std::byte *>(scales.row(page, offset, 0));
    }

  private:
    int32_t kind_;
};

/// The tokens and heads of one block of rows: what differs between the two sides of a conversion.
struct ConvertShape {
    uint64_t elements = 0; ///< of a row
    uint64_t heads = 0;
    uint64_t dst_size = 0; ///< bytes of an element
    uint64_t src_size = 0;
    uint64_t dst_token = 0;
    uint64_t dst_head = 0;
    uint64_t src_token = 0;
    uint64_t src_head = 0;
    uint64_t scale_token = 0;
    uint64_t scale_head = 0;
    bool heads_inside = true; ///< the inner loop goes over the heads: where the caller's side takes its shorter steps

    /// The rows of `tokens` neighbouring tokens, merged into runs as long as both sides and the scales allow. Pointers
    /// are the caller's to set.
    ConvertNest nest(uint64_t tokens) const {
        ConvertNest n;
        n.elements = elements;
        uint64_t h = heads;
        uint64_t t = tokens;
        const auto merge_heads = [&] {
            if (h == 1 || continues(n.elements, dst_head, src_head, scale_head)) {
                n.elements *= h;
                h = 1;
            }
        };
        merge_heads();
        if (t == 1 || continues(n.elements, dst_token, src_token, scale_token)) {
            n.elements *= t;
            t = 1;
            merge_heads(); // heads outside tokens: full pages of HND on both sides
        }
        if (h == 1 || (t != 1 && !heads_inside)) {
            n.inner = t, n.inner_dst = dst_token, n.inner_src = src_token, n.inner_scale = scale_token;
            n.outer = h, n.outer_dst = dst_head, n.outer_src = src_head, n.outer_scale = scale_head;
        } else {
            n.inner = h, n.inner_dst = dst_head, n.inner_src = src_head, n.inner_scale = scale_head;
            n.outer = t, n.outer_dst = dst_token, n.outer_src = src_token, n.outer_scale = scale_token;
        }
        return n;
    }

    /// Whether the next token's rows continue this token's on both sides, with the same scale.
    bool tokens_merge() const {
        const bool all_heads = heads == 1 || continues(elements, dst_head, src_head, scale_head);
        return continues(all_heads ? heads * elements : elements, dst_token, src_token, scale_token);
    }

  private:
    bool continues(uint64_t run, uint64_t dst, uint64_t src, uint64_t scale) const {
        return dst == run * dst_size && src == run * src_size && scale == 0;
    }
};

} // namespace pkv::tensor::cpu
