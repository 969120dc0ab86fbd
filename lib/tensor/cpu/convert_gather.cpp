// SPDX-License-Identifier: Apache-2.0
// Rows out of pages into the caller's of another type.
#include "tensor/convert.h"
#include "tensor/cpu/convert.h"
#include "tensor/cpu/rows.h"

#include <algorithm>

namespace pkv::tensor {
namespace {

using cpu::ConvertFn;
using cpu::ConvertNest;
using cpu::ConvertShape;
using cpu::ScaleSteps;

/// K or V of one gather.
struct Side {
    const PagedRows &rows;
    const FlatRows &flat;
    ScaleSteps scales;
    ConvertShape shape;
    bool linear; ///< a run may go on in the next page, if that is the next in memory too

    Side(const PagedRows &paged, const FlatRows &given, const RowScales &row_scales, uint64_t elements,
         const Conversion &types)
        : rows(paged), flat(given),
          scales(row_scales, types.stored), shape{.elements = elements,
                                                  .heads = paged.heads,
                                                  .dst_size = cpu::size_of(types.flat),
                                                  .src_size = cpu::size_of(types.stored),
                                                  .dst_token = given.token_stride,
                                                  .dst_head = given.head_stride,
                                                  .src_token = paged.strides.token,
                                                  .src_head = paged.strides.head,
                                                  .scale_token = scales.token,
                                                  .scale_head = scales.head,
                                                  .heads_inside = given.head_stride <= given.token_stride},
          linear(paged.strides.page == paged.page_tokens * paged.strides.token && shape.tokens_merge()) {}

    /// Tokens [begin, end) of the sequence; row 0 is token `first`.
    void gather(const int32_t *pages, uint64_t first, uint64_t begin, uint64_t end, ConvertFn convert,
                bool stream) const {
        for (uint64_t t = begin; t < end;) {
            uint64_t block = t / rows.page_tokens;
            const uint64_t token = t - block * rows.page_tokens;
            const uint64_t page = page_of(pages, block);
            uint64_t stop = (block + 1) * rows.page_tokens;
            while (linear && stop < end && page_of(pages, block + 1) == page_of(pages, block) + 1) {
                ++block;
                stop += rows.page_tokens;
            }
            stop = std::min(stop, end);
            ConvertNest nest = shape.nest(stop - t);
            nest.dst = flat.base + (t - first) * flat.token_stride;
            nest.src = rows.row(page, token, 0);
            nest.scale = scales.by_row() ? scales.row(page, token) : scales.fixed();
            nest.stream = stream;
            if (stop < end) {
                nest.next_src = rows.row(page_of(pages, block + 1), 0, 0);
                nest.next_scale = scales.by_row() ? scales.row(page_of(pages, block + 1), 0) : nullptr;
            }
            convert(nest);
            t = stop;
        }
    }

    static uint64_t page_of(const int32_t *pages, uint64_t block) { return static_cast<uint64_t>(pages[block]); }
};

} // namespace

void gather_converted(const LayerRows &layer, const Conversion &conversion, const int32_t *pages, uint64_t first,
                      uint64_t count, const FlatRows &k, const FlatRows &v, Workers *workers) {
    const bool with_k = conversion.k_elements != 0 && k.base != nullptr;
    const bool with_v = conversion.v_elements != 0 && v.base != nullptr;
    const uint64_t token_elements =
        (with_k ? layer.k.heads * conversion.k_elements : 0) + (with_v ? layer.v.heads * conversion.v_elements : 0);
    if (count == 0 || token_elements == 0) {
        return;
    }
    const uint64_t flat_size = cpu::size_of(conversion.flat);
    const uint64_t token_bytes = token_elements * std::max(flat_size, cpu::size_of(conversion.stored));
    const cpu::Converters &converters = cpu::converters();
    const ConvertFn convert = converters.from_to[conversion.stored][conversion.flat];
    const bool stream = count * token_elements * flat_size >= cpu::kStreamGathersFrom;
    const Side side_k(layer.k, k, conversion.scales.k, conversion.k_elements, conversion);
    const Side side_v(layer.v, v, conversion.scales.v, conversion.v_elements, conversion);
    const auto gather = [&](uint64_t begin, uint64_t end) {
        if (with_k) {
            side_k.gather(pages, first, begin, end, convert, stream);
        }
        if (with_v) {
            side_v.gather(pages, first, begin, end, convert, stream);
        }
        if (stream) {
            converters.drain(); // each thread its own stores
        }
    };
    if (workers == nullptr || workers->threads() == 0 || count * token_bytes < cpu::kShareFrom) {
        gather(first, first + count);
        return;
    }
    // Pieces of whole pages, so that no run is cut twice.
    const uint64_t page_tokens = std::max(layer.k.page_tokens, layer.v.page_tokens);
    const uint64_t piece = std::max<uint64_t>(1, cpu::kPiece / (token_bytes * page_tokens)) * page_tokens;
    const uint64_t base = first / piece;
    const uint64_t end = first + count;
    const auto task = [&](uint64_t i) {
        gather(std::max(first, (base + i) * piece), std::min(end, (base + i + 1) * piece));
    };
    workers->run((end - 1) / piece - base + 1, [&task](uint64_t i) { task(i); });
}

} // namespace pkv::tensor
