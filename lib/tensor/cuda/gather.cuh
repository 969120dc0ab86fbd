// SPDX-License-Identifier: Apache-2.0
// Rows out of pages: a team takes a tile at a time, the tokens of one sequence that lie in one page, or a part of them.
#pragma once

#include "tensor/cuda/tile.cuh"
#include "tensor/cuda/write.cuh"

namespace pkv::cuda {

/// Which tokens of which sequence, and where they lie.
struct GatherTile {
    Plane plane;
    const unsigned char *src; ///< of the first token; nothing to be read when no token is valid
    uint64_t row;             ///< of the caller's
    uint64_t page, token;     ///< of the first token
    uint32_t tokens;          ///< rows of the caller's
    uint32_t valid;           ///< of these so many are tokens of the sequence in a page: the others are zeros

    PKV_HD GatherTile(const GatherParams &p, const GatherSide &side, uint64_t item) {
        uint64_t tile = 0;
        uint64_t sequence = 0;
        uint64_t layer = p.tiles.divide(item, tile);
        if ((p.has & has_tiles) != 0) {
            uint64_t end = p.num_sequences; // the last one that begins at or before the tile, in [sequence, end)
            while (end - sequence > 1) {
                const uint64_t middle = sequence + (end - sequence) / 2;
                if (p.rest.read<uint64_t>(p.tile_first, middle) <= tile) {
                    sequence = middle;
                } else {
                    end = middle;
                }
            }
            tile -= p.rest.read<uint64_t>(p.tile_first, sequence);
        } else {
            layer = p.sequences.divide(layer, sequence);
        }
        plane = p.rest.plane(p.planes_at, side.planes + layer);
        src = plane.pages;
        tokens = valid = 0;
        row = page = token = 0;

        uint64_t count = (p.has & has_counts) != 0 ? p.rest.read<uint64_t>(p.counts, sequence) : p.max_count;
        if (count > p.max_count) count = p.max_count;
        const uint64_t rows = count > p.padded ? count : p.padded;
        // Tokens are counted from the start of the first block.
        uint64_t begin = 0;
        const uint64_t first = (p.has & has_first) != 0 ? p.rest.read<uint64_t>(p.first, sequence) : p.first_token;
        const uint64_t block = p.page_tokens.divide(first, begin);
        uint64_t part = 0;
        const uint64_t ahead = p.cut.of_page.divide(tile, part);
        const uint64_t page_begin = ahead * p.cut.page_tokens;
        uint64_t low = page_begin + part * p.cut.tokens;
        uint64_t high = low + p.cut.tokens;
        if (high > page_begin + p.cut.page_tokens) high = page_begin + p.cut.page_tokens;
        if (low < begin) low = begin;
        if (high > begin + rows) high = begin + rows;
        if (low >= high) return;
        tokens = static_cast<uint32_t>(high - low);
        row = (p.has & has_out_first) != 0 ? p.rest.read<uint64_t>(p.out_first, sequence) : sequence * p.out_stride;
        row += low - begin;
        token = low - page_begin;

        const uint64_t end = begin + count;
        if (low >= end) return;
        uint64_t entry = block + ahead;
        uint64_t entries = p.entries;
        if ((p.has & has_indptr) != 0) {
            const uint64_t first_entry = p.rest.read<uint32_t>(p.indptr, sequence);
            const uint64_t end_entry = p.rest.read<uint32_t>(p.indptr, sequence + 1);
            entries = end_entry < entries ? end_entry : entries;
            if (entry < entries) entry += first_entry;
        } else if (entry < entries) {
            entry += sequence * p.pages_stride;
        }
        if (entry >= entries) return;
        const int32_t id = p.rest.read<int32_t>(p.pages, entry);
        if (static_cast<uint64_t>(id) >= p.num_pages) return; // below 0 as well
        page = static_cast<uint64_t>(id);
        valid = static_cast<uint32_t>((high < end ? high : end) - low);
        src = plane.pages + page * side.page + token * side.tile.src_token;
    }
};

/// Rows of the stored type.
template <int bytes> PKV_HD void gather_body(const GatherParams &p, const Grid &grid) {
    const Team team(grid, p.lanes_log2);
    const uint64_t items = p.side[0].items + p.side[1].items;
    for (uint64_t item = team.first; item < items; item += team.step) {
        const bool is_v = item >= p.side[0].items;
        const GatherSide &side = p.side[is_v ? 1 : 0];
        const GatherTile tile(p, side, is_v ? item - p.side[0].items : item);
        if (tile.tokens == 0) continue;
        unsigned char *const dst = tile.plane.flat + tile.row * side.tile.dst_token;
        if (tile.valid != 0) move_tile<bytes>(side.tile, tile.src, dst, tile.valid, team.lane, team.lanes);
        if (tile.valid < tile.tokens) {
            zero_tile<bytes>(side.tile, dst + tile.valid * side.tile.dst_token, tile.tokens - tile.valid, team.lane,
                             team.lanes);
        }
    }
}

/// Rows of another type, `count` elements at a time.
template <int from, int to, int count> PKV_HD void gather_converted_body(const GatherParams &p, const Grid &grid) {
    const Team team(grid, p.lanes_log2);
    const uint64_t items = p.side[0].items + p.side[1].items;
    for (uint64_t item = team.first; item < items; item += team.step) {
        const bool is_v = item >= p.side[0].items;
        const GatherSide &side = p.side[is_v ? 1 : 0];
        const GatherTile tile(p, side, is_v ? item - p.side[0].items : item);
        if (tile.tokens == 0) continue;
        unsigned char *const dst = tile.plane.flat + tile.row * side.tile.dst_token;
        if (tile.valid != 0) {
            const TileUnits units(side.tile, tile.valid);
            for (uint32_t number = team.lane; number < units.count; number += team.lanes) {
                uint32_t token, head, unit;
                units.find(number, token, head, unit);
                float scale = 1.0f;
                if constexpr (is_byte(from)) {
                    if (p.scales.kind != PKV_SCALES_NONE) {
                        scale = float_of(
                            load<4>(scale_at(p.scales, tile.plane.scales, tile.page, tile.token + token, head)).x);
                    }
                }
                const uint64_t element = static_cast<uint64_t>(unit) * count;
                convert<from, to, count>(dst + units.dst(token, head) + element * element_bytes(to),
                                         tile.src + units.src(token, head) + element * element_bytes(from), scale);
            }
        }
        if (tile.valid < tile.tokens) {
            zero_tile<count * element_bytes(to)>(side.tile, dst + tile.valid * side.tile.dst_token,
                                                 tile.tokens - tile.valid, team.lane, team.lanes);
        }
    }
}

} // namespace pkv::cuda
