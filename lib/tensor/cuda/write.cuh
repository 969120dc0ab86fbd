// SPDX-License-Identifier: Apache-2.0
// Rows of the caller's into slots: a team takes a run of one token at a time.
#pragma once

#include "tensor/cuda/convert.cuh"
#include "tensor/cuda/params.cuh"

#include <pagedkv/pool.h>

namespace pkv::cuda {

/// Where one run comes from and goes to.
struct WriteRun {
    const unsigned char *src;
    unsigned char *dst; ///< nullptr: the slot is skipped
    float *scales;
    uint64_t page, token, head;

    PKV_HD WriteRun(const WriteParams &p, const WriteSide &side, uint64_t run) {
        uint64_t row = 0;
        const uint64_t layer = p.tokens.divide(side.of_token.divide(run, head), row);
        const Plane plane = p.rest.plane(p.planes_at, side.planes + layer);
        scales = plane.scales;
        src = plane.flat + row * side.flat_token + head * side.flat_head;
        const int64_t slot =
            p.slot_bytes == 8 ? p.rest.read<int64_t>(p.slots, row) : p.rest.read<int32_t>(p.slots, row);
        page = p.page_tokens.divide(static_cast<uint64_t>(slot), token);
        dst = slot >= 0 && page < p.num_pages ? plane.pages + page * side.page + token * side.token + head * side.head
                                              : nullptr;
    }
};

PKV_HD float *scale_at(const ScaleShape &shape, float *scales, uint64_t page, uint64_t token, uint64_t head) {
    if (shape.kind == PKV_SCALES_TOKEN_HEAD) {
        unsigned char *const of_page = reinterpret_cast<unsigned char *>(scales) + page * shape.page_stride;
        return reinterpret_cast<float *>(of_page) + token * shape.heads + head;
    }
    return scales + (shape.kind == PKV_SCALES_HEAD ? head : 0);
}

/// Rows of the stored type. The source is read before the slot is known to be one: the two loads are under way
/// together.
template <int bytes> PKV_HD void write_body(const WriteParams &p, const Grid &grid) {
    const Team team(grid, p.lanes_log2);
    const uint64_t runs = p.side[0].runs + p.side[1].runs;
    for (uint64_t item = team.first; item < runs; item += team.step) {
        const bool is_v = item >= p.side[0].runs;
        const WriteSide &side = p.side[is_v ? 1 : 0];
        const WriteRun run(p, side, is_v ? item - p.side[0].runs : item);
        for (uint32_t begin = team.lane; begin < side.units; begin += batch_units * team.lanes) {
            Unit<bytes> values[batch_units];
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
            for (uint32_t i = 0; i < batch_units; ++i) {
                const uint32_t unit = begin + i * team.lanes;
                if (unit < side.units) values[i] = load<bytes>(run.src + static_cast<uint64_t>(unit) * bytes);
            }
            if (run.dst == nullptr) break;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
            for (uint32_t i = 0; i < batch_units; ++i) {
                const uint32_t unit = begin + i * team.lanes;
                if (unit < side.units) store<bytes>(run.dst + static_cast<uint64_t>(unit) * bytes, values[i]);
            }
        }
    }
}

/// The largest finite magnitude of what one lane reads of a run.
template <int from, int count>
PKV_HD uint32_t peak_of_lane(const unsigned char *src, uint32_t units, uint32_t lane, uint32_t lanes) {
    uint32_t most = 0;
    for (uint32_t unit = lane; unit < units; unit += lanes) {
        uint32_t floats[count];
        load_floats<from, count>(src + static_cast<uint64_t>(unit) * (count * element_bytes(from)), floats);
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
        for (int i = 0; i < count; ++i) {
            const uint32_t magnitude = floats[i] & ~sign_bit;
            if (magnitude < infinity_bits && magnitude > most) most = magnitude;
        }
    }
    return most;
}

/// Rows of another type, `count` elements at a time.
template <int from, int to, int count> PKV_HD void write_converted_body(const WriteParams &p, const Grid &grid) {
    const Team team(grid, p.lanes_log2);
    const uint64_t runs = p.side[0].runs + p.side[1].runs;
    for (uint64_t item = team.first; item < runs; item += team.step) {
        const bool is_v = item >= p.side[0].runs;
        const WriteSide &side = p.side[is_v ? 1 : 0];
        const WriteRun run(p, side, is_v ? item - p.side[0].runs : item);
        if (run.dst == nullptr) continue; // the whole team
        float scale = 1.0f;
        if constexpr (is_byte(to)) {
            if (p.scales.kind == PKV_SCALES_TOKEN_HEAD) {
                const uint32_t most = max_of_team(team.lane, team.lanes, [&](uint32_t lane) {
                    return peak_of_lane<from, count>(run.src, side.units, lane, team.lanes);
                });
                scale = scale_for<to>(most);
                if (team.lane == 0) {
                    store<4>(scale_at(p.scales, run.scales, run.page, run.token, run.head), Unit<4>{bits_of(scale)});
                }
            } else if (p.scales.kind != PKV_SCALES_NONE) {
                scale = float_of(load<4>(scale_at(p.scales, run.scales, run.page, run.token, run.head)).x);
            }
        }
        for (uint32_t unit = team.lane; unit < side.units; unit += team.lanes) {
            const uint64_t element = static_cast<uint64_t>(unit) * count;
            convert<from, to, count>(run.dst + element * element_bytes(to), run.src + element * element_bytes(from),
                                     scale);
        }
    }
}

} // namespace pkv::cuda
