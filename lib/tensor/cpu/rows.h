// SPDX-License-Identifier: Apache-2.0
// What the host kernels of every instruction set have in common: a nest of runs, and the table that a set fills.
#pragma once

#include "layout/strides.h"

#include <cstddef>
#include <cstdint>

namespace pkv::tensor::cpu {

/// outer x inner runs of `bytes` contiguous bytes each. Runs do not overlap between the two sides.
struct RowNest {
    std::byte *dst = nullptr;
    const std::byte *src = nullptr;
    uint64_t bytes = 0;
    uint64_t inner = 1;
    uint64_t inner_dst = 0;
    uint64_t inner_src = 0;
    uint64_t outer = 1;
    uint64_t outer_dst = 0;
    uint64_t outer_src = 0;
    const std::byte *next_src = nullptr; ///< where the next nest will read, if that is no neighbour: a hint
};

/// One instruction set's kernels.
struct Kernels {
    const char *name;
    void (*copy)(const RowNest &nest);   ///< ordinary stores
    void (*stream)(const RowNest &nest); ///< full cache lines bypass the caches; drain() before others may read
    void (*drain)();
};

/// The kernels in use, chosen at the first call.
const Kernels &kernels();

/// Payload of one call, in bytes, from which stream() is the better choice. Constants, as the sizes that virtual
/// machines report for shared caches are often wrong. A write is not read back by its caller: it gains as soon as its
/// rows would not stay in a usual L2 (measured: 1.2 to 1.6 times as fast into cold pages). What was gathered is read
/// next: it should stay in L3 where it fits (measured with one read of it all: ordinary stores win up to 16 MiB, at
/// 32 MiB both are equal; the gather alone gains from 16 MiB on).
inline constexpr uint64_t kStreamWritesFrom = uint64_t{1} << 20;
inline constexpr uint64_t kStreamGathersFrom = uint64_t{16} << 20;

/// Payload from which helper threads are worth waking.
inline constexpr uint64_t kShareFrom = uint64_t{1} << 20;

/// Payload of one piece of a shared loop.
inline constexpr uint64_t kPiece = uint64_t{256} << 10;

extern const Kernels kPortable;
#if defined(__x86_64__)
extern const Kernels kAvx2;
extern const Kernels kAvx512;
#endif
#if defined(__aarch64__)
extern const Kernels kNeon;
#endif

/// The tokens and heads of one block of rows, in bytes: what differs between the two sides of a copy.
struct Shape {
    uint64_t row_bytes = 0;
    uint64_t heads = 0;
    uint64_t dst_token = 0;
    uint64_t dst_head = 0;
    uint64_t src_token = 0;
    uint64_t src_head = 0;
    bool heads_inside = true; ///< the inner loop goes over the heads: where the caller's side takes its shorter steps

    /// The rows of `tokens` neighbouring tokens, merged into runs as long as both sides allow.
    RowNest nest(std::byte *dst, const std::byte *src, uint64_t tokens) const {
        RowNest n;
        n.dst = dst;
        n.src = src;
        n.bytes = row_bytes;
        uint64_t h = heads;
        uint64_t t = tokens;
        const auto merge_heads = [&] {
            if (h == 1 || (dst_head == n.bytes && src_head == n.bytes)) {
                n.bytes *= h;
                h = 1;
            }
        };
        merge_heads();
        if (t == 1 || (dst_token == n.bytes && src_token == n.bytes)) {
            n.bytes *= t;
            t = 1;
            merge_heads(); // heads outside tokens: full pages of HND on both sides
        }
        if (h == 1 || (t != 1 && !heads_inside)) {
            n.inner = t, n.inner_dst = dst_token, n.inner_src = src_token;
            n.outer = h, n.outer_dst = dst_head, n.outer_src = src_head;
        } else {
            n.inner = h, n.inner_dst = dst_head, n.inner_src = src_head;
            n.outer = t, n.outer_dst = dst_token, n.outer_src = src_token;
        }
        return n;
    }

    /// Whether the next token's rows continue this token's on both sides.
    bool tokens_merge() const {
        return heads == 1 || (dst_head == row_bytes && src_head == row_bytes)
                   ? dst_token == heads * row_bytes && src_token == heads * row_bytes
                   : dst_token == row_bytes && src_token == row_bytes;
    }
};

} // namespace pkv::tensor::cpu
