// SPDX-License-Identifier: Apache-2.0
// Rows of the caller's into slots of the pages.
#include "tensor/cpu/rows.h"
#include "tensor/kernels.h"

#include <algorithm>
#include <bit>

namespace pkv::tensor {
namespace {

using cpu::Kernels;
using cpu::RowNest;
using cpu::Shape;

/// Slots in units of neighbouring tokens: a page, or more where pages follow each other without a gap.
class Units {
  public:
    Units(const PagedRows &rows, uint64_t linear_tokens)
        : strides_(rows.strides), tokens_(rows.page_tokens) {
        if (rows.strides.page == rows.page_tokens * rows.strides.token) {
            tokens_ = linear_tokens;
            strides_.page = linear_tokens * rows.strides.token;
        }
        shift_ = std::has_single_bit(tokens_) ? std::countr_zero(tokens_) : -1;
    }

    uint64_t tokens() const { return tokens_; }
    uint64_t unit(uint64_t slot) const { return shift_ >= 0 ? slot >> shift_ : slot / tokens_; }
    uint64_t offset(uint64_t unit, uint64_t token) const { return row_offset(strides_, unit, token, 0); }

  private:
    Strides strides_;
    uint64_t tokens_;
    int shift_;
};

/// The part of the units that one task writes. Rows with equal slots fall to one task, which keeps their order.
struct Part {
    uint64_t index = 0;
    uint64_t parts = 1;

    bool has(uint64_t unit) const {
        // Multiplicative hashing: page ids in use may well share their low bits.
        const uint64_t hash = (unit * 0x9E3779B97F4A7C15u) >> 32;
        return parts == 1 || ((hash * parts) >> 32) == index;
    }
};

/// K or V of one write.
struct Side {
    const PagedRows &rows;
    const FlatRows &flat;
    Units units;
    Shape shape;

    Side(const PagedRows &paged, const FlatRows &given, uint64_t linear_tokens)
        : rows(paged), flat(given), units(paged, linear_tokens),
          shape{.row_bytes = paged.row_bytes,
                .heads = paged.heads,
                .dst_token = paged.strides.token,
                .dst_head = paged.strides.head,
                .src_token = given.token_stride,
                .src_head = given.head_stride,
                .heads_inside = given.head_stride <= given.token_stride} {}

    /// Rows [first, first + tokens) go to neighbouring slots; dst is the first one's row. No tokens: the end.
    struct Run {
        uint64_t first = 0;
        uint64_t tokens = 0;
        std::byte *dst = nullptr;
    };

    /// The first run at or after row i that falls to `part`.
    Run find(std::span<const int64_t> slots, uint64_t i, Part part) const {
        for (const uint64_t n = slots.size(); i < n; ++i) {
            if (slots[i] < 0) {
                continue;
            }
            const uint64_t slot = static_cast<uint64_t>(slots[i]);
            const uint64_t unit = units.unit(slot);
            if (!part.has(unit)) {
                continue;
            }
            const uint64_t token = slot - unit * units.tokens();
            const uint64_t most = std::min(n - i, units.tokens() - token);
            uint64_t run = 1;
            while (run < most && static_cast<uint64_t>(slots[i + run]) == slot + run) {
                ++run;
            }
            return {i, run, rows.base + units.offset(unit, token)};
        }
        return {};
    }

    void write(std::span<const int64_t> slots, Part part, void (*copy)(const RowNest &)) const {
        RowNest nest;
        uint64_t nest_tokens = 0;
        for (Run run = find(slots, 0, part); run.tokens != 0;) {
            const std::byte *const src = flat.base + run.first * flat.token_stride;
            if (run.tokens != nest_tokens) {
                nest = shape.nest(run.dst, src, run.tokens);
                nest_tokens = run.tokens;
            }
            nest.dst = run.dst;
            nest.src = src;
            run = find(slots, run.first + run.tokens, part);
            copy(nest);
        }
    }
};

} // namespace

void write_slots(const LayerRows &layer, std::span<const int64_t> slots, const FlatRows &k, const FlatRows &v,
                 Workers *workers) {
    const bool with_k = layer.k.row_bytes != 0 && k.base != nullptr;
    const bool with_v = layer.v.row_bytes != 0 && v.base != nullptr;
    const uint64_t token_bytes = (with_k ? layer.k.heads * layer.k.row_bytes : 0) +
                                 (with_v ? layer.v.heads * layer.v.row_bytes : 0);
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
