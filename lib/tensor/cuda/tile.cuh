// SPDX-License-Identifier: Apache-2.0
// A team moves a tile: a few tokens of all heads, from one order and its strides to another.
#pragma once

#include "tensor/cuda/params.cuh"

namespace pkv::cuda {

/// The units of a tile of so many tokens, numbered so that neighbours are neighbours in memory as far as there are any.
struct TileUnits {
    const TileShape &shape;
    Divider32 inner;
    uint32_t count;

    PKV_HD TileUnits(const TileShape &tile, uint32_t tokens) : shape(tile), inner(tile.runs) {
        count = tokens * tile.runs.by * tile.units.by;
        if (tile.tokens_inside != 0) inner = divider32(tokens);
    }

    /// Which token and head, and which unit of the run.
    PKV_HD void find(uint32_t number, uint32_t &token, uint32_t &head, uint32_t &unit) const {
        token = head = 0;
        unit = number;
        if (shape.one_run != 0) return;
        token = shape.units.divide(number, unit);
        if (shape.runs.by == 1) return;
        if (shape.tokens_inside != 0) {
            head = inner.divide(token, token);
        } else {
            token = inner.divide(token, head);
        }
    }

    PKV_HD uint64_t src(uint32_t token, uint32_t head) const { return token * shape.src_token + head * shape.src_head; }
    PKV_HD uint64_t dst(uint32_t token, uint32_t head) const { return token * shape.dst_token + head * shape.dst_head; }
};

/// `tokens` tokens as they are.
template <int bytes>
PKV_HD void move_tile(const TileShape &shape, const unsigned char *src, unsigned char *dst, uint32_t tokens,
                      uint32_t lane, uint32_t lanes) {
    const TileUnits units(shape, tokens);
    for (uint32_t begin = lane; begin < units.count; begin += batch_units * lanes) {
        Unit<bytes> values[batch_units];
        unsigned char *to[batch_units];
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
        for (uint32_t i = 0; i < batch_units; ++i) {
            const uint32_t number = begin + i * lanes;
            if (number >= units.count) continue;
            uint32_t token, head, unit;
            units.find(number, token, head, unit);
            const uint64_t at = static_cast<uint64_t>(unit) * bytes;
            values[i] = load<bytes>(src + units.src(token, head) + at);
            to[i] = dst + units.dst(token, head) + at;
        }
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
        for (uint32_t i = 0; i < batch_units; ++i) {
            if (begin + i * lanes < units.count) store<bytes>(to[i], values[i]);
        }
    }
}

/// Zeros for `tokens` tokens. Units of `bytes` bytes on the destination's side.
template <int bytes>
PKV_HD void zero_tile(const TileShape &shape, unsigned char *dst, uint32_t tokens, uint32_t lane, uint32_t lanes) {
    const TileUnits units(shape, tokens);
    for (uint32_t number = lane; number < units.count; number += lanes) {
        uint32_t token, head, unit;
        units.find(number, token, head, unit);
        const uint64_t at = units.dst(token, head) + static_cast<uint64_t>(unit) * bytes;
        if constexpr (bytes <= 4) {
            store_any<bytes>(dst + at, Unit<bytes>{});
        } else {
            store<bytes>(dst + at, Unit<bytes>{});
        }
    }
}

} // namespace pkv::cuda
