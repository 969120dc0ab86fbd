// SPDX-License-Identifier: Apache-2.0
// Rows of the caller's into slots of the pages.
#include "tensor/cpu/rows.h"
#include "tensor/cpu/slot_runs.h"
#include "tensor/kernels.h"

namespace pkv::tensor {
namespace {

using cpu::Kernels;
using cpu::Part;
using cpu::RowNest;
using cpu::Shape;
using cpu::SlotRun;
using cpu::Units;

/// K or V of one write.
struct Side {
    const PagedRows &rows;
    const FlatRows &flat;
    Units units;
    Shape shape;

    Side(const PagedRows &paged, const FlatRows &given, uint64_t linear_tokens)
        : rows(paged), flat(given),
          units(paged, linear_tokens), shape{.row_bytes = paged.row_bytes,
                                             .heads = paged.heads,
                                             .dst_token = paged.strides.token,
                                             .dst_head = paged.strides.head,
                                             .src_token = given.token_stride,
                                             .src_head = given.head_stride,
                                             .heads_inside = given.head_stride <= given.token_stride} {}

    void write(std::span<const int64_t> slots, Part part, void (*copy)(const RowNest &)) const {
        RowNest nest;
        uint64_t nest_tokens = 0;
        for (SlotRun run = find_run(units, slots, 0, part); run.tokens != 0;) {
            std::byte *const dst = rows.base + units.offset(run.unit, run.token);
            const std::byte *const src = flat.base + run.first * flat.token_stride;
            if (run.tokens != nest_tokens) {
                nest = shape.nest(dst, src, run.tokens);
                nest_tokens = run.tokens;
            }
            nest.dst = dst;
            nest.src = src;
            run = find_run(units, slots, run.first + run.tokens, part);
            copy(nest);
        }
    }
};

} // namespace

void write_slots(const LayerRows &layer, std::span<const int64_t> slots, const FlatRows &k, const FlatRows &v,
                 Workers *workers) {
    const bool with_k = layer.k.row_bytes != 0 && k.base != nullptr;
    const bool with_v = layer.v.row_bytes != 0 && v.base != nullptr;
    const uint64_t token_bytes =
        (with_k ? layer.k.heads * layer.k.row_bytes : 0) + (with_v ? layer.v.heads * layer.v.row_bytes : 0);
    const uint64_t payload = slots.size() * token_bytes;
    if (payload == 0) {
        return;
    }
    const Kernels &kernels = cpu::kernels();
    const bool stream = payload >= cpu::kStreamWritesFrom;
    const auto copy = stream ? kernels.stream : kernels.copy;
    const bool shared = workers != nullptr && workers->threads() != 0 && payload >= cpu::kShareFrom;

    const uint64_t linear_tokens = shared ? 64 : 65536;
    const Side side_k(layer.k, k, linear_tokens);
    const Side side_v(layer.v, v, linear_tokens);
    const auto write = [&](Part part) {
        if (with_k) {
            side_k.write(slots, part, copy);
        }
        if (with_v) {
            side_v.write(slots, part, copy);
        }
        if (stream) {
            kernels.drain(); // each thread its own stores
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
