// SPDX-License-Identifier: Apache-2.0
// Pages to slices of page images and back: a team takes a tile of K or V of one slice at a time.
#pragma once

#include "tensor/cuda/tile.cuh"

namespace pkv::cuda {

template <int bytes> PKV_HD void slices_body(const SliceParams &p, const Grid &grid) {
    const Team team(grid, p.lanes_log2);
    for (uint64_t item = team.first; item < p.items; item += team.step) {
        uint64_t part = 0;
        uint64_t number = p.cut.of_page.divide(item, part); // of the slice, K and V counted
        const SliceSide &side = p.side[p.num_sides == 2 ? number & 1 : 0];
        if (p.num_sides == 2) number >>= 1;
        const SliceEntry slice = p.rest.read<SliceEntry>(p.slices, number);
        const TileShape &tile = side.tile[slice.layout];
        const uint64_t begin = part * p.cut.tokens;
        uint64_t end = begin + p.cut.tokens;
        if (end > p.cut.page_tokens) end = p.cut.page_tokens;
        uint64_t stop = end < slice.tokens ? end : slice.tokens; // rows from here on are nobody's
        if (stop < begin) stop = begin;
        unsigned char *const in_page = p.rest.plane(p.planes_at, side.planes + slice.plane).pages +
                                       static_cast<uint64_t>(slice.page) * side.page + begin * side.token;
        unsigned char *const in_slice = slice.bytes + side.offset + begin * side.slice_token[slice.layout];
        const uint32_t tokens = static_cast<uint32_t>(stop - begin);
        if (tokens != 0) {
            move_tile<bytes>(tile, p.pack != 0 ? in_page : in_slice, p.pack != 0 ? in_slice : in_page, tokens,
                             team.lane, team.lanes);
        }
        if (p.pack != 0 && stop < end) {
            zero_tile<bytes>(tile, in_slice + tokens * tile.dst_token, static_cast<uint32_t>(end - stop), team.lane,
                             team.lanes);
        }
    }
}

} // namespace pkv::cuda
