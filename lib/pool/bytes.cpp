// SPDX-License-Identifier: Apache-2.0
// Page bytes through a pool: checks of the caller's rows and slots, then the kernels.
#include "pool/pool.h"

#include "core/options.h"
#include "core/status.h"
#include "tensor/kernels.h"

#include <algorithm>
#include <cinttypes>

namespace pkv {
namespace {

struct Side {
    const char *name;
    uint64_t row_bytes;
};

/// Whether the last of count * stride bytes, plus what lies inside, stays in 64 bits.
bool reaches(uint64_t stride, uint64_t count, uint64_t inner, uint64_t &total) {
    return !__builtin_mul_overflow(stride, count - 1, &total) && !__builtin_add_overflow(total, inner, &total);
}

/// Rows of a target must not overlap: two threads, or two orders of writing, would give other bytes.
bool overlaps(const FlatRows &rows, uint64_t row_bytes, uint64_t heads, uint64_t tokens) {
    const bool head_inside = rows.head_stride <= rows.token_stride;
    const uint64_t small = head_inside ? rows.head_stride : rows.token_stride;
    const uint64_t small_count = head_inside ? heads : tokens;
    const uint64_t large = head_inside ? rows.token_stride : rows.head_stride;
    const uint64_t large_count = head_inside ? tokens : heads;
    if (small_count > 1 && small < row_bytes) return true;
    return large_count > 1 && large < small * (small_count - 1) + row_bytes;
}

pkv_status flat_rows(const pkv_tensor &tensor, const Geometry &geometry, const Side &side, uint64_t count, bool target,
                     FlatRows &rows) {
    pkv_tensor known;
    PKV_TRY(read_struct(&tensor, known, side.name));
    if (known.dtype != geometry.dtype)
        return fail(known.dtype >= PKV_DTYPE_F32 && known.dtype <= PKV_DTYPE_OPAQUE ? PKV_ERR_UNSUPPORTED : PKV_ERR_INVALID,
                    "%s: dtype %d is not the group's %d", side.name, known.dtype, geometry.dtype);
    if (known.reserved != 0) return fail(PKV_ERR_INVALID, "%s: reserved is not 0", side.name);
    if (known.num_tokens < count)
        return fail(PKV_ERR_INVALID, "%s: %" PRIu64 " rows are needed, num_tokens is %" PRIu64, side.name, count,
                    known.num_tokens);
    if (count == 0) return PKV_OK;
    if (known.data == nullptr) return fail(PKV_ERR_INVALID, "%s: data is NULL", side.name);
    rows.base = static_cast<std::byte *>(known.data);
    rows.head_stride = known.head_stride != 0 ? known.head_stride : side.row_bytes;
    rows.token_stride = known.token_stride != 0 ? known.token_stride : geometry.heads * side.row_bytes;
    uint64_t heads_reach = 0;
    uint64_t reach = 0;
    if (!reaches(rows.head_stride, geometry.heads, side.row_bytes, heads_reach) ||
        !reaches(rows.token_stride, count, heads_reach, reach) || reach > uint64_t{1} << 56)
        return fail(PKV_ERR_INVALID, "%s: %" PRIu64 " tokens at stride %" PRIu64 ", heads at %" PRIu64 " pass 2^56 bytes",
                    side.name, count, rows.token_stride, rows.head_stride);
    if (target && overlaps(rows, side.row_bytes, geometry.heads, count))
        return fail(PKV_ERR_INVALID,
                    "%s: rows of %" PRIu64 " bytes at token stride %" PRIu64 " and head stride %" PRIu64 " overlap",
                    side.name, side.row_bytes, rows.token_stride, rows.head_stride);
    return PKV_OK;
}

} // namespace

pkv_status Pool::need_memory() const {
    if (!memory_.exists()) return fail(PKV_ERR_UNSUPPORTED, "the pool has ids only (PKV_MEMORY_NONE), no bytes");
    return PKV_OK;
}

pkv_status Pool::source_rows(const pkv_tensor *k, const pkv_tensor *v, uint64_t count, FlatRows &k_rows,
                             FlatRows &v_rows) const {
    if (k == nullptr) return fail(PKV_ERR_INVALID, "k is NULL");
    if ((v == nullptr) != (geometry_.v_row_bytes == 0))
        return fail(PKV_ERR_INVALID, v == nullptr ? "v is NULL, but the group has V" : "v is given, but the group has no V");
    PKV_TRY(flat_rows(*k, geometry_, {"k", geometry_.k_row_bytes}, count, false, k_rows));
    return v != nullptr ? flat_rows(*v, geometry_, {"v", geometry_.v_row_bytes}, count, false, v_rows) : PKV_OK;
}

pkv_status Pool::target_rows(const pkv_tensor *k, const pkv_tensor *v, uint64_t count, FlatRows &k_rows,
                             FlatRows &v_rows) const {
    if (v != nullptr && geometry_.v_row_bytes == 0) return fail(PKV_ERR_INVALID, "v is given, but the group has no V");
    if (k != nullptr) PKV_TRY(flat_rows(*k, geometry_, {"k", geometry_.k_row_bytes}, count, true, k_rows));
    if (v != nullptr) PKV_TRY(flat_rows(*v, geometry_, {"v", geometry_.v_row_bytes}, count, true, v_rows));
    return PKV_OK;
}

pkv_status Pool::write(uint32_t layer, std::span<const pkv_slot> slots, const pkv_tensor *k, const pkv_tensor *v) {
    PKV_TRY(need_memory());
    FlatRows k_rows;
    FlatRows v_rows;
    PKV_TRY(source_rows(k, v, slots.size(), k_rows, v_rows));
    const uint64_t num_slots = pages_.size() * page_tokens_;
    {
        const Lock lock(mutex_);
        uint64_t page_begin = 0; // the page that was checked last: slots mostly come in runs
        uint64_t page_end = 0;
        for (uint64_t i = 0; i < slots.size(); ++i) {
            if (slots[i] < 0) continue;
            const auto slot = static_cast<uint64_t>(slots[i]);
            if (slot >= page_begin && slot < page_end) continue;
            if (slot >= num_slots)
                return fail(PKV_ERR_INVALID, "slots[%" PRIu64 "] is %" PRIu64 ", not below %" PRIu64, i, slot, num_slots);
            const auto page = static_cast<pkv_page>(slot / page_tokens_);
            if (pages_.count(page) == 0 || pages_.published(page))
                return fail(PKV_ERR_STATE, "slots[%" PRIu64 "] is in page %d, which %s", i, page,
                            pages_.count(page) == 0 ? "nobody holds" : "is published");
            page_begin = static_cast<uint64_t>(page) * page_tokens_;
            page_end = page_begin + page_tokens_;
        }
    }
    if (!slots.empty()) tensor::write_slots(memory_.layer(layer), slots, k_rows, v_rows, workers_.get());
    return PKV_OK;
}

pkv_status Pool::gather(uint32_t layer, std::span<const pkv_page> pages, uint64_t first, uint64_t count,
                        const pkv_tensor *k, const pkv_tensor *v) {
    PKV_TRY(need_memory());
    uint64_t end = 0;
    if (__builtin_add_overflow(first, count, &end) || blocks_for(end, page_tokens_) > pages.size())
        return fail(PKV_ERR_INVALID, "tokens %" PRIu64 " + %" PRIu64 " are not inside %zu pages of %u", first, count,
                    pages.size(), page_tokens_);
    FlatRows k_rows;
    FlatRows v_rows;
    PKV_TRY(target_rows(k, v, count, k_rows, v_rows));
    if (count == 0) return PKV_OK;
    {
        const Lock lock(mutex_);
        for (uint64_t block = first / page_tokens_; block <= (end - 1) / page_tokens_; ++block) {
            if (!in_range(pages[block])) return no_such_page(pages[block]);
            if (pages_.count(pages[block]) == 0)
                return fail(PKV_ERR_STATE, "page %d is held by nobody", pages[block]);
        }
    }
    tensor::gather_pages(memory_.layer(layer), pages.data(), first, count, k_rows, v_rows, workers_.get());
    return PKV_OK;
}

pkv_status Pool::copy_pages(std::span<const pkv_page> src, std::span<const pkv_page> dst) {
    PKV_TRY(need_memory());
    std::vector<pkv_page> targets(dst.begin(), dst.end());
    std::sort(targets.begin(), targets.end());
    if (const auto twice = std::adjacent_find(targets.begin(), targets.end()); twice != targets.end())
        return fail(PKV_ERR_INVALID, "page %d is a destination twice", *twice);
    for (const pkv_page page : src)
        if (std::binary_search(targets.begin(), targets.end(), page))
            return fail(PKV_ERR_INVALID, "page %d is both source and destination", page);
    {
        const Lock lock(mutex_);
        for (uint64_t i = 0; i < src.size(); ++i) {
            if (!in_range(src[i])) return no_such_page(src[i]);
            if (!in_range(dst[i])) return no_such_page(dst[i]);
            if (pages_.count(src[i]) == 0) return fail(PKV_ERR_STATE, "page %d is held by nobody", src[i]);
            if (pages_.count(dst[i]) == 0 || pages_.published(dst[i]))
                return fail(PKV_ERR_STATE, "page %d, a destination, %s", dst[i],
                            pages_.count(dst[i]) == 0 ? "is held by nobody" : "is published");
        }
    }
    for (uint64_t i = 0; i < src.size(); ++i) copy_page_bytes(src[i], dst[i]);
    return PKV_OK;
}

void Pool::copy_page_bytes(pkv_page src, pkv_page dst) const {
    for (uint32_t layer = 0; layer < memory_.num_layers(); ++layer)
        tensor::copy_page(memory_.layer(layer), src, dst, page_tokens_);
}

} // namespace pkv
