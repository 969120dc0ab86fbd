// SPDX-License-Identifier: Apache-2.0
// Pages to pages, of one pool or of two: a team takes a tile of one page of one layer at a time.
#pragma once

#include "tensor/cuda/tile.cuh"

namespace pkv::cuda {

template <int bytes> PKV_HD void copy_body(const CopyParams &p, const Grid &grid) {
    const Team team(grid, p.lanes_log2);
    const uint64_t items = p.side[0].items + p.side[1].items;
    for (uint64_t item = team.first; item < items; item += team.step) {
        const bool is_v = item >= p.side[0].items;
        const CopySide &side = p.side[is_v ? 1 : 0];
        uint64_t part = 0;
        uint64_t pair = 0;
        const uint64_t layer = p.pairs.divide(p.cut.of_page.divide(is_v ? item - p.side[0].items : item, part), pair);
        const uint64_t begin = part * p.cut.tokens;
        uint64_t end = begin + p.cut.tokens;
        const uint64_t tokens = p.rest.read<uint32_t>(p.tokens, pair);
        if (end > tokens) end = tokens;
        if (begin >= end) continue;
        const Plane plane = p.rest.plane(p.planes_at, side.planes + layer);
        const uint64_t src = static_cast<uint64_t>(p.rest.read<int32_t>(p.src, pair));
        const uint64_t dst = static_cast<uint64_t>(p.rest.read<int32_t>(p.dst, pair));
        move_tile<bytes>(side.tile, plane.flat + src * side.src_page + begin * side.tile.src_token,
                         plane.pages + dst * side.dst_page + begin * side.tile.dst_token,
                         static_cast<uint32_t>(end - begin), team.lane, team.lanes);
    }
}

} // namespace pkv::cuda
