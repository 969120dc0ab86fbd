// SPDX-License-Identifier: Apache-2.0
// The body of the converting kernels, compiled once for each instruction set. The file that includes it defines
// PKV_INLINE (always inlined, with the attribute of its instruction set), PKV_ISA (the attribute alone) and the arithmetic
// on 16 floats at a time:
//   Lanes                            16 floats
//   load<type>(src)                  16 elements as floats, exactly
//   store<type, stream>(dst, lanes)  rounded as tensor.h says; stream: past the caches, dst aligned to the bytes stored
//   splat(f)  times(a, b)  over(a, b)
//   peak(most, lanes)                of each lane the larger magnitude; infinities and NaN do not count
//   top(lanes)                       the largest lane
//   kStreams                         whether there are stores past the caches
// All of it has internal linkage: the linker must never merge the instances of two sets.
#pragma once

#include "tensor/cpu/convert.h"

#include <algorithm>
#include <cfloat>
#include <cstring>

namespace pkv::tensor::cpu {
namespace {

constexpr uint64_t kLine = 64;
/// Elements in one load or store.
constexpr uint64_t kUnit = 16;
/// Elements in one step past the caches: whole lines of every type.
constexpr uint64_t kStep = 64;
/// How far ahead the source is fetched, in bytes and, where runs are short, in runs; as in copy_runs.h.
constexpr uint64_t kAhead = 1024;
constexpr uint64_t kRunsAhead = 4;

/// What happens to a value between its load and its store.
enum class Scaling { none, times, over };

template <Scaling kScaling> PKV_INLINE Lanes scaled(const Lanes &value, const Lanes &scale) {
    if constexpr (kScaling == Scaling::times) {
        return times(value, scale);
    } else if constexpr (kScaling == Scaling::over) {
        return over(value, scale);
    } else {
        return value;
    }
}

template <int32_t kFrom, int32_t kTo, Scaling kScaling, bool kStream>
PKV_INLINE void convert_unit(std::byte *dst, const std::byte *src, const Lanes &scale) {
    store<kTo, kStream>(dst, scaled<kScaling>(load<kFrom>(src), scale));
}

/// Any number of elements with ordinary stores. The last ones, fewer than a unit, go through the stack: nothing is read
/// or written past them.
template <int32_t kFrom, int32_t kTo, Scaling kScaling>
PKV_ISA void convert_some(std::byte *dst, const std::byte *src, uint64_t n, const Lanes &given) {
    const Lanes scale = given;
    uint64_t at = 0;
    for (; at + kUnit <= n; at += kUnit) {
        convert_unit<kFrom, kTo, kScaling, false>(dst + at * size_of(kTo), src + at * size_of(kFrom), scale);
    }
    if (at == n) {
        return;
    }
    alignas(kLine) std::byte in[kUnit * sizeof(float)] = {};
    alignas(kLine) std::byte out[kUnit * sizeof(float)];
    std::memcpy(in, src + at * size_of(kFrom), (n - at) * size_of(kFrom));
    convert_unit<kFrom, kTo, kScaling, false>(out, in, scale);
    std::memcpy(dst + at * size_of(kTo), out, (n - at) * size_of(kTo));
}

/// Whole steps past the caches, to line-aligned dst; returns the number of elements done.
template <int32_t kFrom, int32_t kTo, Scaling kScaling>
PKV_INLINE uint64_t stream_steps(std::byte *dst, const std::byte *src, uint64_t n, const Lanes &scale) {
    uint64_t at = 0;
    for (; at + kStep <= n; at += kStep) {
        const std::byte *const from = src + at * size_of(kFrom);
        std::byte *const to = dst + at * size_of(kTo);
        for (uint64_t line = 0; line < kStep * size_of(kFrom); line += kLine) {
            __builtin_prefetch(from + kAhead + line);
        }
        for (uint64_t i = 0; i < kStep; i += kUnit) {
            convert_unit<kFrom, kTo, kScaling, true>(to + i * size_of(kTo), from + i * size_of(kFrom), scale);
        }
    }
    return at;
}

/// Any number of elements; with `stream`, whole lines bypass the caches where they are many enough to outweigh the parts
/// of lines around them.
template <int32_t kFrom, int32_t kTo, Scaling kScaling>
PKV_INLINE void convert_run(std::byte *dst, const std::byte *src, uint64_t n, const Lanes &scale, bool stream) {
    if constexpr (kStreams) {
        const uint64_t skew = (0 - reinterpret_cast<uintptr_t>(dst)) & (kLine - 1);
        const uint64_t head = skew / size_of(kTo);
        if (stream && skew % size_of(kTo) == 0 && n >= head + (head == 0 ? kStep : 4 * kStep)) {
            if (head != 0) {
                convert_some<kFrom, kTo, kScaling>(dst, src, head, scale);
            }
            const uint64_t done =
                head + stream_steps<kFrom, kTo, kScaling>(dst + skew, src + head * size_of(kFrom), n - head, scale);
            if (done == n) {
                return;
            }
            dst += done * size_of(kTo);
            src += done * size_of(kFrom);
            n -= done;
        }
    }
    convert_some<kFrom, kTo, kScaling>(dst, src, n, scale);
}

/// The largest finite magnitude.
template <int32_t kFrom> PKV_ISA float find_peak(const std::byte *src, uint64_t n) {
    Lanes a = splat(0.0f);
    Lanes b = a;
    uint64_t at = 0;
    for (; at + 2 * kUnit <= n; at += 2 * kUnit) {
        a = peak(a, load<kFrom>(src + at * size_of(kFrom)));
        b = peak(b, load<kFrom>(src + (at + kUnit) * size_of(kFrom)));
    }
    for (; at < n; at += kUnit) {
        alignas(kLine) std::byte in[kUnit * sizeof(float)] = {};
        std::memcpy(in, src + at * size_of(kFrom), std::min(n - at, kUnit) * size_of(kFrom));
        a = peak(a, load<kFrom>(in));
    }
    return top(peak(a, b));
}

/// The scale that maps a row's largest magnitude to the type's. Not below the smallest normal number.
template <int32_t kTo> PKV_INLINE float scale_for(float most) {
    constexpr float kMax = kTo == PKV_DTYPE_F8_E4M3 ? 448.0f : kTo == PKV_DTYPE_F8_E5M2 ? 57344.0f : 127.0f;
    return most == 0.0f ? 1.0f : std::max(most / kMax, FLT_MIN);
}

/// Fetches the run that comes kRunsAhead after run i of outer step o, unless that is past the next outer step.
PKV_INLINE void prefetch_run(const ConvertNest &nest, uint64_t bytes, uint64_t o, uint64_t i) {
    i += kRunsAhead;
    if (i >= nest.inner) {
        i -= nest.inner;
        ++o;
    }
    if (i < nest.inner && o < nest.outer) {
        const std::byte *const src = nest.src + o * nest.outer_src + i * nest.inner_src;
        for (uint64_t at = 0; at < bytes; at += kLine) {
            __builtin_prefetch(src + at);
        }
    }
}

template <int32_t kFrom, int32_t kTo> PKV_ISA void convert_nest(const ConvertNest &given) {
    const ConvertNest nest = given; // the stores below could change `given`, for all that the compiler knows
    const uint64_t ahead = std::min(nest.elements * size_of(kFrom), kAhead);
    if (nest.next_src != nullptr) {
        for (uint64_t at = 0; at < ahead; at += kLine) {
            __builtin_prefetch(nest.next_src + at);
        }
    }
    const Lanes one = splat(1.0f);
    for (uint64_t o = 0; o < nest.outer; ++o) {
        for (uint64_t i = 0; i < nest.inner; ++i) {
            std::byte *const dst = nest.dst + o * nest.outer_dst + i * nest.inner_dst;
            const std::byte *const src = nest.src + o * nest.outer_src + i * nest.inner_src;
            prefetch_run(nest, ahead, o, i);
            if constexpr (is_flat(kFrom) && is_flat(kTo)) {
                convert_run<kFrom, kTo, Scaling::none>(dst, src, nest.elements, one, nest.stream);
            } else {
                const uint64_t scale_at = o * nest.outer_scale + i * nest.inner_scale;
                float scale = 1.0f;
                if (is_byte(kTo) && nest.found != nullptr) {
                    scale = scale_for<kTo>(find_peak<kFrom>(src, nest.elements));
                    std::memcpy(nest.found + scale_at, &scale, sizeof(scale));
                } else if (nest.scale != nullptr) {
                    std::memcpy(&scale, nest.scale + scale_at, sizeof(scale));
                }
                constexpr Scaling kScaling = is_byte(kTo) ? Scaling::over : Scaling::times;
                if (scale == 1.0f) {
                    convert_run<kFrom, kTo, Scaling::none>(dst, src, nest.elements, one, nest.stream);
                } else {
                    convert_run<kFrom, kTo, kScaling>(dst, src, nest.elements, splat(scale), nest.stream);
                }
            }
        }
    }
}

template <int32_t kFrom, int32_t kTo> constexpr ConvertFn convert_fn() {
    if constexpr (has_conversion(kFrom, kTo)) {
        return convert_nest<kFrom, kTo>;
    } else {
        return nullptr;
    }
}

template <int32_t kFrom> constexpr void fill_converters(Converters &converters) {
    ConvertFn *const to = converters.from_to[kFrom];
    to[PKV_DTYPE_F32] = convert_fn<kFrom, PKV_DTYPE_F32>();
    to[PKV_DTYPE_F16] = convert_fn<kFrom, PKV_DTYPE_F16>();
    to[PKV_DTYPE_BF16] = convert_fn<kFrom, PKV_DTYPE_BF16>();
    to[PKV_DTYPE_F8_E4M3] = convert_fn<kFrom, PKV_DTYPE_F8_E4M3>();
    to[PKV_DTYPE_F8_E5M2] = convert_fn<kFrom, PKV_DTYPE_F8_E5M2>();
    to[PKV_DTYPE_I8] = convert_fn<kFrom, PKV_DTYPE_I8>();
}

constexpr Converters make_converters(void (*drain)()) {
    Converters converters{};
    fill_converters<PKV_DTYPE_F32>(converters);
    fill_converters<PKV_DTYPE_F16>(converters);
    fill_converters<PKV_DTYPE_BF16>(converters);
    fill_converters<PKV_DTYPE_F8_E4M3>(converters);
    fill_converters<PKV_DTYPE_F8_E5M2>(converters);
    fill_converters<PKV_DTYPE_I8>(converters);
    converters.drain = drain;
    return converters;
}

} // namespace
} // namespace pkv::tensor::cpu
