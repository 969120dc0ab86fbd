// SPDX-License-Identifier: Apache-2.0
#include "handover/rows.h"

#include "layout/strides.h"
#include "tensor/kernels.h"

#include <cstring>
#include <vector>

namespace pkv::handover {
namespace {

/// Where the parts of a piece lie.
struct Parts {
    uint64_t v;
    uint64_t k_scales;
    uint64_t v_scales;
    uint64_t end;

    Parts(const Geometry &geometry, uint32_t heads, uint64_t tokens) {
        const uint64_t rows = tokens * heads;
        const uint64_t scales = geometry.scales == PKV_SCALES_TOKEN_HEAD ? rows * sizeof(float) : 0;
        v = rows * geometry.k_row_bytes;
        k_scales = v + rows * geometry.v_row_bytes;
        v_scales = k_scales + scales;
        end = v_scales + (geometry.v_row_bytes != 0 ? scales : 0);
    }
};

FlatRows flat(std::byte *base, uint64_t row_bytes, uint32_t heads) {
    return row_bytes == 0 ? FlatRows{} : FlatRows{base, row_bytes * heads, row_bytes};
}

/// Calls move(scales of a row's heads in the page, the same in the buffer) for each token.
template <class Move>
void each_scale(const RowScales &scales, const RowRange &range, std::span<const pkv_page> pages, uint32_t page_tokens,
                std::byte *at, Move &&move) {
    if (scales.rows == nullptr) return;
    const uint64_t bytes = range.heads * sizeof(float);
    const uint64_t origin = range.first / page_tokens;
    for (uint64_t i = 0; i < range.count; ++i) {
        const uint64_t token = range.first + i;
        const auto page = static_cast<uint64_t>(pages[token / page_tokens - origin]);
        move(scales.row(page, token % page_tokens, range.first_head), at + i * bytes, bytes);
    }
}

} // namespace

uint64_t row_bytes(const Geometry &geometry, uint32_t heads, uint64_t tokens) {
    return Parts(geometry, heads, tokens).end;
}

void read_rows(const Pool &pool, const RowRange &range, std::span<const pkv_page> pages, std::byte *out) {
    const Geometry &geometry = pool.geometry(range.group);
    const PageMemory &memory = pool.memory(range.group);
    const Parts parts(geometry, range.heads, range.count);
    const LayerRows rows = heads_of(memory.layer(range.layer), range.first_head, range.heads);
    tensor::gather_pages(rows, pages.data(), range.first % geometry.page_tokens, range.count,
                         flat(out, geometry.k_row_bytes, range.heads),
                         flat(out + parts.v, geometry.v_row_bytes, range.heads), nullptr);
    if (geometry.scales != PKV_SCALES_TOKEN_HEAD) return;
    const auto take = [](const float *page, std::byte *buffer, uint64_t bytes) { std::memcpy(buffer, page, bytes); };
    each_scale(memory.scales(range.layer).k, range, pages, geometry.page_tokens, out + parts.k_scales, take);
    each_scale(memory.scales(range.layer).v, range, pages, geometry.page_tokens, out + parts.v_scales, take);
}

void write_rows(const Pool &pool, const RowRange &range, std::span<const pkv_page> pages, const std::byte *in) {
    const Geometry &geometry = pool.geometry(range.group);
    const PageMemory &memory = pool.memory(range.group);
    const Parts parts(geometry, range.heads, range.count);
    const LayerRows rows = heads_of(memory.layer(range.layer), range.first_head, range.heads);
    std::vector<pkv_slot> slots(range.count);
    for (uint64_t i = 0; i < range.count; ++i) {
        const uint64_t token = range.first % geometry.page_tokens + i;
        slots[i] = static_cast<pkv_slot>(pages[token / geometry.page_tokens]) * geometry.page_tokens +
                   static_cast<pkv_slot>(token % geometry.page_tokens);
    }
    auto *const from = const_cast<std::byte *>(in); // kernels take both sides' rows alike, and only read these
    tensor::write_slots(rows, slots, flat(from, geometry.k_row_bytes, range.heads),
                        flat(from + parts.v, geometry.v_row_bytes, range.heads), nullptr);
    if (geometry.scales != PKV_SCALES_TOKEN_HEAD) return;
    const auto put = [](float *page, const std::byte *buffer, uint64_t bytes) { std::memcpy(page, buffer, bytes); };
    each_scale(memory.scales(range.layer).k, range, pages, geometry.page_tokens, from + parts.k_scales, put);
    each_scale(memory.scales(range.layer).v, range, pages, geometry.page_tokens, from + parts.v_scales, put);
}

} // namespace pkv::handover
