// SPDX-License-Identifier: Apache-2.0
// Rows of the caller's into slots of pages of another type.
#include "tensor/convert.h"
#include "tensor/cpu/convert.h"
#include "tensor/cpu/rows.h"
#include "tensor/cpu/slot_runs.h"

#include <algorithm>

namespace pkv::tensor {
namespace {

using cpu::ConvertFn;
using cpu::ConvertNest;
using cpu::ConvertShape;
using cpu::Part;
using cpu::ScaleSteps;
using cpu::SlotRun;
using cpu::Units;

/// K or V of one write.
struct Side {
    const PagedRows &rows;
    const FlatRows &flat;
    ScaleSteps scales;
    Units units; ///< pages, where each has its own scales
    ConvertShape shape;

    Side(const PagedRows &paged, const FlatRows &given, const RowScales &row_scales, uint64_t elements,
         const Conversion &types, uint64_t linear_tokens)
        : rows(paged), flat(given), scales(row_scales, types.stored),
          units(paged, scales.by_row() ? paged.page_tokens : linear_tokens), shape{.elements = elements,
                                                                                   .heads = paged.heads,
                                                                                   .dst_size =
                                                                                       cpu::size_of(types.stored),
                                                                                   .src_size = cpu::size_of(types.flat),
                                                                                   .dst_token = paged.strides.token,
                                                                                   .dst_head = paged.strides.head,
                                                                                   .src_token = given.token_stride,
                                                                                   .src_head = given.head_stride,
                                                                                   .scale_token = scales.token,
                                                                                   .scale_head = scales.head,
                                                                                   .heads_inside = given.head_stride <=
                                                                                                   given.token_stride} {
    }

    void write(std::span<const int64_t> slots, Part part, ConvertFn convert, bool stream) const {
        ConvertNest nest;
        uint64_t nest_tokens = 0;
        for (SlotRun run = find_run(units, slots, 0, part); run.tokens != 0;) {
            if (run.tokens != nest_tokens) {
                nest = shape.nest(run.tokens);
                nest.stream = stream;
                nest.scale = scales.by_row() ? nullptr : scales.fixed();
                nest_tokens = run.tokens;
            }
            nest.dst = rows.base + units.offset(run.unit, run.token);
            nest.src = flat.base + run.first * flat.token_stride;
            if (scales.by_row()) {
                nest.found = scales.row(run.unit, run.token);
            }
            run = find_run(units, slots, run.first + run.tokens, part);
            nest.next_scale = scales.by_row() && run.tokens != 0 ? scales.row(run.unit, run.token) : nullptr;
            convert(nest);
        }
    }
};

} // namespace

void write_converted(const LayerRows &layer, const Conversion &conversion, std::span<const int64_t> slots,
                     const FlatRows &k, const FlatRows &v, Workers *workers) {
    const bool with_k = conversion.k_elements != 0 && k.base != nullptr;
    const bool with_v = conversion.v_elements != 0 && v.base != nullptr;
    const uint64_t elements = slots.size() * ((with_k ? layer.k.heads * conversion.k_elements : 0) +
                                              (with_v ? layer.v.heads * conversion.v_elements : 0));
    if (elements == 0) {
        return;
    }
    const uint64_t stored_size = cpu::size_of(conversion.stored);
    const cpu::Converters &converters = cpu::converters();
    const ConvertFn convert = converters.from_to[conversion.flat][conversion.stored];
    const bool stream = elements * stored_size >= cpu::kStreamWritesFrom;
    const bool shared = workers != nullptr && workers->threads() != 0 &&
                        elements * std::max(stored_size, cpu::size_of(conversion.flat)) >= cpu::kShareFrom;

    const uint64_t linear_tokens = shared ? 64 : 65536;
    const Side side_k(layer.k, k, conversion.scales.k, conversion.k_elements, conversion, linear_tokens);
    const Side side_v(layer.v, v, conversion.scales.v, conversion.v_elements, conversion, linear_tokens);
    const auto write = [&](Part part) {
        if (with_k) {
            side_k.write(slots, part, convert, stream);
        }
        if (with_v) {
            side_v.write(slots, part, convert, stream);
        }
        if (stream) {
            converters.drain(); // each thread its own stores
        }
    };
    if (!shared) {
        write(Part{});
        return;
    }
    const uint64_t parts = 4 * (uint64_t{workers->threads()} + 1); // a few for each thread: they are not equal
    const auto task = [&](uint64_t i) { write(Part{i, parts}); };
    workers->run(parts, [&task](uint64_t i) { task(i); });
}

} // namespace pkv::tensor
