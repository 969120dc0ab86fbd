// SPDX-License-Identifier: Apache-2.0
// The body of the vector kernels, compiled once for each instruction set. The file that includes it defines PKV_ISA
// (the function attribute of its instruction set, on every function here: no compiler flags are needed, and no code
// for one machine leaks to another), PKV_VEC_BYTES and stream_line(). All of it has internal linkage: the linker must
// never merge the instances of two sets.
#pragma once

#include "tensor/cpu/rows.h"

#include <cstring>

namespace pkv::tensor::cpu {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kVec = PKV_VEC_BYTES;
/// How far ahead of the copy the source is fetched: about what memory delivers during one miss.
constexpr uint64_t kAhead = 1024;
/// The same where runs are short: hardware prefetchers do not follow sources that jump every few lines.
constexpr uint64_t kRunsAhead = 4;

typedef uint8_t Bytes16 __attribute__((vector_size(16)));
typedef uint8_t BytesVec __attribute__((vector_size(PKV_VEC_BYTES)));

/// Loads and stores at any alignment: memcpy of a constant size is one move instruction.
template <class T> PKV_ISA inline T get(const std::byte *p) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    return value;
}

template <class T> PKV_ISA inline void put(std::byte *p, T value) { std::memcpy(p, &value, sizeof(T)); }

/// sizeof(T) to 2 * sizeof(T) bytes: the first and the last, which may overlap.
template <class T> PKV_ISA inline void copy_ends(std::byte *dst, const std::byte *src, uint64_t bytes) {
    const T first = get<T>(src);
    const T last = get<T>(src + bytes - sizeof(T));
    put<T>(dst, first);
    put<T>(dst + bytes - sizeof(T), last);
}

/// 0 to 2 * kVec bytes.
PKV_ISA inline void copy_short(std::byte *dst, const std::byte *src, uint64_t bytes) {
    if (bytes >= kVec) {
        copy_ends<BytesVec>(dst, src, bytes);
        return;
    }
    if constexpr (kVec > 32) {
        if (bytes >= 32) {
            copy_ends<Bytes16>(dst, src, 32);
            copy_ends<Bytes16>(dst + bytes - 32, src + bytes - 32, 32);
            return;
        }
    }
    if (bytes >= 16) {
        copy_ends<Bytes16>(dst, src, bytes);
    } else if (bytes >= 8) {
        copy_ends<uint64_t>(dst, src, bytes);
    } else if (bytes >= 4) {
        copy_ends<uint32_t>(dst, src, bytes);
    } else if (bytes >= 2) {
        copy_ends<uint16_t>(dst, src, bytes);
    } else if (bytes == 1) {
        *dst = *src;
    }
}

/// Any number of bytes with ordinary stores.
PKV_ISA inline void copy_run(std::byte *dst, const std::byte *src, uint64_t bytes) {
    if (bytes <= 2 * kVec) {
        copy_short(dst, src, bytes);
        return;
    }
    // The first vector as it lies, then from the destination's next vector boundary: no later store crosses a line.
    put<BytesVec>(dst, get<BytesVec>(src));
    uint64_t at = kVec - (reinterpret_cast<uintptr_t>(dst) & (kVec - 1));
    for (; at + 4 * kVec <= bytes; at += 4 * kVec) {
        const BytesVec a = get<BytesVec>(src + at);
        const BytesVec b = get<BytesVec>(src + at + kVec);
        const BytesVec c = get<BytesVec>(src + at + 2 * kVec);
        const BytesVec d = get<BytesVec>(src + at + 3 * kVec);
        put<BytesVec>(dst + at, a);
        put<BytesVec>(dst + at + kVec, b);
        put<BytesVec>(dst + at + 2 * kVec, c);
        put<BytesVec>(dst + at + 3 * kVec, d);
    }
    for (; at + kVec < bytes; at += kVec) {
        put<BytesVec>(dst + at, get<BytesVec>(src + at));
    }
    put<BytesVec>(dst + bytes - kVec, get<BytesVec>(src + bytes - kVec));
}

/// Four lines starting at line-aligned dst, past the caches.
PKV_ISA inline void stream_lines(std::byte *dst, const std::byte *src) {
    for (uint64_t at = 0; at < 4 * kLine; at += 2 * kLine) {
        stream_line(dst + at, src + at);
        stream_line(dst + at + kLine, src + at + kLine);
    }
}

PKV_ISA inline void prefetch_lines(const std::byte *src) {
    for (uint64_t at = 0; at < 4 * kLine; at += kLine) {
        __builtin_prefetch(src + at);
    }
}

/// Whole lines bypass the caches; what does not fill one goes by ordinary stores. `next` is read soon after, or null.
PKV_ISA inline void stream_run(std::byte *dst, const std::byte *src, uint64_t bytes, const std::byte *next) {
    const uint64_t head = (0 - reinterpret_cast<uintptr_t>(dst)) & (kLine - 1);
    if (bytes < head + kLine || (bytes < 2 * kLine && (head | (bytes & (kLine - 1))) != 0)) {
        copy_run(dst, src, bytes); // no whole line, or one between two parts of lines, which is no gain
        return;
    }
    copy_run(dst, src, head);
    uint64_t at = head;
    for (; at + 4 * kLine + kAhead <= bytes; at += 4 * kLine) {
        prefetch_lines(src + at + kAhead);
        stream_lines(dst + at, src + at);
    }
    for (; at + 4 * kLine <= bytes; at += 4 * kLine) {
        if (next != nullptr) {
            prefetch_lines(next);
            next += 4 * kLine;
        }
        stream_lines(dst + at, src + at);
    }
    for (; at + kLine <= bytes; at += kLine) {
        stream_line(dst + at, src + at);
    }
    copy_run(dst + at, src + at, bytes - at);
}

/// Ordinary stores. Inside a run the hardware's prefetchers are enough (more was measured to cost); only the jump to
/// the next nest is announced.
PKV_ISA void copy_nest(const RowNest &given) {
    const RowNest nest = given; // the stores below could change `given`, for all that the compiler knows
    if (nest.next_src != nullptr) {
        for (uint64_t at = 0; at < nest.bytes && at < kAhead; at += kLine) {
            __builtin_prefetch(nest.next_src + at);
        }
    }
    for (uint64_t o = 0; o < nest.outer; ++o) {
        std::byte *const dst = nest.dst + o * nest.outer_dst;
        const std::byte *const src = nest.src + o * nest.outer_src;
        for (uint64_t i = 0; i < nest.inner; ++i) {
            copy_run(dst + i * nest.inner_dst, src + i * nest.inner_src, nest.bytes);
        }
    }
}

/// Fetches the run that comes kRunsAhead after run i of outer step o, unless that is past the next outer step.
PKV_ISA inline void prefetch_run(const RowNest &nest, uint64_t o, uint64_t i) {
    i += kRunsAhead;
    if (i >= nest.inner) {
        i -= nest.inner;
        ++o;
    }
    if (i < nest.inner && o < nest.outer) {
        const std::byte *const src = nest.src + o * nest.outer_src + i * nest.inner_src;
        for (uint64_t at = 0; at < nest.bytes && at < kAhead; at += kLine) {
            __builtin_prefetch(src + at);
        }
    }
}

/// Streaming stores; these leave room for more loads under way, so the source is fetched ahead everywhere.
PKV_ISA void stream_nest(const RowNest &given) {
    const RowNest nest = given;
    for (uint64_t o = 0; o < nest.outer; ++o) {
        std::byte *const dst = nest.dst + o * nest.outer_dst;
        const std::byte *const src = nest.src + o * nest.outer_src;
        for (uint64_t i = 0; i < nest.inner; ++i) {
            prefetch_run(nest, o, i);
            stream_run(dst + i * nest.inner_dst, src + i * nest.inner_src, nest.bytes, nest.next_src);
        }
    }
}

} // namespace
} // namespace pkv::tensor::cpu
