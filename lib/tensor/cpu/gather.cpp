// SPDX-License-Identifier: Apache-2.0
// Rows out of pages into the caller's, and from page to page.
#include "tensor/cpu/rows.h"
#include "tensor/kernels.h"

#include <algorithm>

namespace pkv::tensor {
namespace {

using cpu::Kernels;
using cpu::RowNest;
using cpu::Shape;

/// K or V of one gather.
struct Side {
    const PagedRows &rows;
    const FlatRows &flat;
    Shape shape;
    bool linear; ///< a run may go on in the next page, if that is the next in memory too

    Side(const PagedRows &paged, const FlatRows &given)
        : rows(paged), flat(given), shape{.row_bytes = paged.row_bytes,
                                          .heads = paged.heads,
                                          .dst_token = given.token_stride,
                                          .dst_head = given.head_stride,
                                          .src_token = paged.strides.token,
                                          .src_head = paged.strides.head,
                                          .heads_inside = given.head_stride <= given.token_stride},
          linear(paged.strides.page == paged.page_tokens * paged.strides.token && shape.tokens_merge()) {}

    /// Tokens [begin, end) of the sequence; row 0 is token `first`.
    void gather(const int32_t *pages, uint64_t first, uint64_t begin, uint64_t end,
                void (*copy)(const RowNest &)) const {
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
            RowNest nest = shape.nest(flat.base + (t - first) * flat.token_stride, rows.row(page, token, 0), stop - t);
            if (stop < end) {
                nest.next_src = rows.row(page_of(pages, block + 1), 0, 0);
            }
            copy(nest);
            t = stop;
        }
    }

    static uint64_t page_of(const int32_t *pages, uint64_t block) { return static_cast<uint64_t>(pages[block]); }
};

} // namespace

void gather_pages(const LayerRows &layer, const int32_t *pages, uint64_t first, uint64_t count, const FlatRows &k,
                  const FlatRows &v, Workers *workers) {
    const bool with_k = layer.k.row_bytes != 0 && k.base != nullptr;
    const bool with_v = layer.v.row_bytes != 0 && v.base != nullptr;
    const uint64_t token_bytes =
        (with_k ? layer.k.heads * layer.k.row_bytes : 0) + (with_v ? layer.v.heads * layer.v.row_bytes : 0);
    const uint64_t payload = count * token_bytes;
    if (payload == 0) {
        return;
    }
    const Kernels &kernels = cpu::kernels();
    const bool stream = payload >= cpu::kStreamGathersFrom;
    const auto copy = stream ? kernels.stream : kernels.copy;
    const Side side_k(layer.k, k);
    const Side side_v(layer.v, v);
    const auto gather = [&](uint64_t begin, uint64_t end) {
        if (with_k) {
            side_k.gather(pages, first, begin, end, copy);
        }
        if (with_v) {
            side_v.gather(pages, first, begin, end, copy);
        }
        if (stream) {
            kernels.drain(); // each thread its own stores
        }
    };
    if (workers == nullptr || workers->threads() == 0 || payload < cpu::kShareFrom) {
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

void copy_page(const LayerRows &layer, int32_t src, int32_t dst, uint32_t tokens) {
    if (src == dst || tokens == 0) {
        return;
    }
    const Kernels &kernels = cpu::kernels();
    for (const PagedRows *rows : {&layer.k, &layer.v}) {
        if (rows->row_bytes == 0) {
            continue;
        }
        const Strides &s = rows->strides;
        const Shape shape{rows->row_bytes, rows->heads, s.token, s.head, s.token, s.head, s.head <= s.token};
        // A copy on write is written again at once: ordinary stores leave it in the caches.
        kernels.copy(shape.nest(rows->row(static_cast<uint64_t>(dst), 0, 0),
                                rows->row(static_cast<uint64_t>(src), 0, 0), tokens));
    }
}

} // namespace pkv::tensor
