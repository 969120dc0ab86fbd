// SPDX-License-Identifier: Apache-2.0
// The body of the converting kernels, compiled once for each instruction set. The file that includes it defines
// PKV_INLINE (always inlined, with the attribute of its instruction set), PKV_ISA (the attribute alone), and:
//   kUnit                            elements that are converted at a time
//   kStreams                         whether there are stores past the caches
//   Lanes                            kUnit floats
//   load<type>(src)                  kUnit elements as floats, exactly; of e4m3, 1 / 256 of them
//   store<type, stream, bytes>(dst, lanes)
//                                    rounded as tensor.h says; stream: past the caches, dst aligned to the bytes that
//                                    are stored; bytes: NaN come from 8-bit elements, their lower halves are zeros
//   splat(f)  times(a, b)  over(a, b)
//   Peak                             the largest magnitudes of some elements; infinities and NaN do not count
//   peak<type>(most, src)            those of kUnit elements more; begins with Peak{}
//   top<type>(most)                  the largest of them
// All of it has internal linkage: the linker must never merge the instances of two sets.
#pragma once

#include "tensor/cpu/convert.h"

#include <algorithm>
#include <cfloat>
#include <cstring>
#include <limits>

namespace pkv::tensor::cpu {
namespace {

constexpr uint64_t kLine = 64;
/// Elements in one step past the caches: whole lines of every type.
constexpr uint64_t kStep = 64;
/// How far ahead the source is fetched, in bytes and, where runs are short, in runs; as in copy_runs.h.
constexpr uint64_t kAhead = 1024;
constexpr uint64_t kRunsAhead = 4;
/// Scales that are looked up, or found, at a time.
constexpr uint64_t kScales = 8;

/// What happens to a value between its load and its store: nothing, value * scale, value * 256 * scale, value / scale.
enum class Scaling { none, times, times_twice, over };

/// load() gives the values divided by this.
constexpr float load_divisor(int32_t from) { return from == PKV_DTYPE_F8_E4M3 ? 256.0f : 1.0f; }

template <int32_t kFrom, int32_t kTo, Scaling kScaling, bool kStream>
PKV_INLINE void convert_unit(std::byte *dst, const std::byte *src, const Lanes &scale) {
    Lanes v = load<kFrom>(src);
    if constexpr (kScaling == Scaling::times_twice) {
        v = times(v, splat(load_divisor(kFrom)));
    }
    if constexpr (kScaling == Scaling::times || kScaling == Scaling::times_twice) {
        v = times(v, scale);
    } else if constexpr (kScaling == Scaling::over) {
        v = over(v, scale);
    }
    store<kTo, kStream, is_byte(kFrom)>(dst, v);
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
        if (at + kStep + kAhead / size_of(kFrom) <= n) {
            for (uint64_t line = 0; line < kStep * size_of(kFrom); line += kLine) {
                __builtin_prefetch(from + kAhead + line);
            }
        }
        for (uint64_t i = 0; i < kStep; i += kUnit) {
            convert_unit<kFrom, kTo, kScaling, true>(to + i * size_of(kTo), from + i * size_of(kFrom), scale);
        }
    }
    return at;
}

/// Any number of elements; with `stream`, whole lines bypass the caches where they are many enough to outweigh the
/// parts of lines around them.
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
template <int32_t kFrom> PKV_INLINE float find_peak(const std::byte *src, uint64_t n) {
    Peak most{};
    uint64_t at = 0;
    for (; at + kUnit <= n; at += kUnit) {
        most = peak<kFrom>(most, src + at * size_of(kFrom));
    }
    if (at < n) {
        alignas(kLine) std::byte in[kUnit * sizeof(float)] = {};
        std::memcpy(in, src + at * size_of(kFrom), (n - at) * size_of(kFrom));
        most = peak<kFrom>(most, in);
    }
    return top<kFrom>(most);
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

/// One run with its scale.
template <int32_t kFrom, int32_t kTo>
PKV_INLINE void convert_scaled(std::byte *dst, const std::byte *src, uint64_t n, float scale, bool stream) {
    if constexpr (is_byte(kTo)) {
        if (scale == 1.0f) {
            convert_run<kFrom, kTo, Scaling::none>(dst, src, n, splat(1.0f), stream);
        } else {
            convert_run<kFrom, kTo, Scaling::over>(dst, src, n, splat(scale), stream);
        }
    } else if constexpr (is_byte(kFrom)) {
        constexpr float kDivisor = load_divisor(kFrom);
        if (kDivisor != 1.0f && scale > FLT_MAX / kDivisor) {
            convert_run<kFrom, kTo, Scaling::times_twice>(dst, src, n, splat(scale), stream);
        } else {
            convert_run<kFrom, kTo, Scaling::times>(dst, src, n, splat(scale * kDivisor), stream);
        }
    } else {
        convert_run<kFrom, kTo, Scaling::none>(dst, src, n, splat(1.0f), stream);
    }
}

/// The scales of `count` runs: those that are given, or those that are found, which are stored.
template <int32_t kFrom, int32_t kTo>
PKV_INLINE void get_scales(float *scales, const ConvertNest &nest, const std::byte *src, uint64_t at, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i, src += nest.inner_src, at += nest.inner_scale) {
        scales[i] = 1.0f;
        if constexpr (is_byte(kTo)) {
            if (nest.found != nullptr) {
                scales[i] = scale_for<kTo>(find_peak<kFrom>(src, nest.elements));
                std::memcpy(nest.found + at, &scales[i], sizeof(float));
                continue;
            }
        }
        if (nest.scale != nullptr) {
            std::memcpy(&scales[i], nest.scale + at, sizeof(float));
            // Rows that nobody wrote may have any NaN here. One with a small payload stays NaN in every narrower type.
            if (scales[i] != scales[i]) scales[i] = std::numeric_limits<float>::quiet_NaN();
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
    if (nest.next_scale != nullptr) {
        const uint64_t last = (nest.outer - 1) * nest.outer_scale + (nest.inner - 1) * nest.inner_scale;
        for (uint64_t at = 0; at <= last; at += kLine) {
            __builtin_prefetch(nest.next_scale + at, 1);
        }
    }
    for (uint64_t o = 0; o < nest.outer; ++o) {
        // A few scales at a time, before they are needed: one that is found takes long, but several do at once.
        float scales[kScales];
        for (uint64_t i = 0; i < nest.inner; ++i) {
            std::byte *const dst = nest.dst + o * nest.outer_dst + i * nest.inner_dst;
            const std::byte *const src = nest.src + o * nest.outer_src + i * nest.inner_src;
            if (i % kScales == 0) {
                get_scales<kFrom, kTo>(scales, nest, src, o * nest.outer_scale + i * nest.inner_scale,
                                       std::min(kScales, nest.inner - i));
            }
            prefetch_run(nest, ahead, o, i);
            convert_scaled<kFrom, kTo>(dst, src, nest.elements, scales[i % kScales], nest.stream);
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
