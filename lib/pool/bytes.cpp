// SPDX-License-Identifier: Apache-2.0
// Page bytes through a pool: checks of the caller's rows and slots, then the kernels.
#include "pool/pool.h"

#include "core/options.h"
#include "core/status.h"
#include "tensor/convert.h"
#include "tensor/kernels.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace pkv {
namespace {

/// K or V: what the checks need to know of the stored rows.
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
                     CallerRows &out) {
    pkv_tensor known;
    PKV_TRY(read_struct(&tensor, known, side.name));
    out.dtype = known.dtype;
    if (known.dtype < PKV_DTYPE_F32 || known.dtype > PKV_DTYPE_OPAQUE)
        return fail(PKV_ERR_INVALID, "%s: dtype %d is none of PKV_DTYPE_*", side.name, known.dtype);
    if (known.dtype != geometry.dtype && !tensor::converts(geometry.dtype, known.dtype))
        return fail(PKV_ERR_UNSUPPORTED, "%s: dtype %d does not convert to the group's %d", side.name, known.dtype,
                    geometry.dtype);
    if (!target && known.dtype == geometry.dtype && geometry.scales == PKV_SCALES_TOKEN_HEAD)
        return fail(PKV_ERR_UNSUPPORTED,
                    "%s: rows of the group's own dtype %d come without the scales that it keeps for each", side.name,
                    known.dtype);
    if (known.reserved != 0) return fail(PKV_ERR_UNSUPPORTED, "%s: reserved is not 0", side.name);
    if (known.num_tokens < count)
        return fail(PKV_ERR_INVALID, "%s: %" PRIu64 " rows are needed, num_tokens is %" PRIu64, side.name, count,
                    known.num_tokens);
    if (count == 0) return PKV_OK;
    if (known.data == nullptr) return fail(PKV_ERR_INVALID, "%s: data is NULL", side.name);
    const uint64_t row_bytes = flat_row_bytes(geometry, known.dtype, side.row_bytes);
    FlatRows &rows = out.rows;
    rows.base = static_cast<std::byte *>(known.data);
    rows.head_stride = known.head_stride != 0 ? known.head_stride : row_bytes;
    rows.token_stride = known.token_stride != 0 ? known.token_stride : geometry.heads * row_bytes;
    uint64_t heads_reach = 0;
    uint64_t reach = 0;
    if (!reaches(rows.head_stride, geometry.heads, row_bytes, heads_reach) ||
        !reaches(rows.token_stride, count, heads_reach, reach) || reach > uint64_t{1} << 56)
        return fail(PKV_ERR_INVALID,
                    "%s: %" PRIu64 " tokens at stride %" PRIu64 ", heads at %" PRIu64 " pass 2^56 bytes", side.name,
                    count, rows.token_stride, rows.head_stride);
    if (target && overlaps(rows, row_bytes, geometry.heads, count))
        return fail(PKV_ERR_INVALID,
                    "%s: rows of %" PRIu64 " bytes at token stride %" PRIu64 " and head stride %" PRIu64 " overlap",
                    side.name, row_bytes, rows.token_stride, rows.head_stride);
    return PKV_OK;
}

} // namespace

pkv_layer_layout Pool::layer_layout(uint32_t group, uint32_t layer) const {
    const Geometry &geometry = groups_[group].geometry;
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    if (const PageMemory &memory = groups_[group].memory; memory.exists()) {
        layout.k_base = memory.layer(layer).k.base;
        layout.v_base = memory.layer(layer).v.base;
        layout.k_scales = memory.scales(layer).k.address();
        layout.v_scales = memory.scales(layer).v.address();
        layout.scale_page_stride = memory.scales(layer).k.page_stride;
    }
    layout.scales = geometry.scales;
    layout.k = {geometry.k_strides.page, geometry.k_strides.token, geometry.k_strides.head};
    if (geometry.v_row_bytes != 0)
        layout.v = {geometry.v_strides.page, geometry.v_strides.token, geometry.v_strides.head};
    layout.k_row_bytes = geometry.k_row_bytes;
    layout.v_row_bytes = geometry.v_row_bytes;
    layout.num_kv_heads = geometry.heads;
    layout.page_tokens = geometry.page_tokens;
    layout.dtype = geometry.dtype;
    return layout;
}

pkv_status Pool::need_memory(uint32_t group) const {
    if (!memory(group).exists())
        return fail(PKV_ERR_UNSUPPORTED, "group %u has ids only (PKV_MEMORY_NONE), no bytes", group);
    return PKV_OK;
}

pkv_status Pool::need_host_memory(uint32_t group) const {
    PKV_TRY(need_memory(group));
    if (device_ != nullptr)
        return fail(PKV_ERR_UNSUPPORTED, "group %u is in memory of device %d, and only host memory is handed over",
                    group, device_->index());
    return PKV_OK;
}

pkv_status Pool::source_rows(uint32_t group, const pkv_tensor *k, const pkv_tensor *v, uint64_t count,
                             CallerTensors &out) const {
    const Geometry &shape = geometry(group);
    if (count == 0) return PKV_OK;
    if (k == nullptr) return fail(PKV_ERR_INVALID, "k is NULL");
    if ((v == nullptr) != (shape.v_row_bytes == 0))
        return fail(PKV_ERR_INVALID,
                    v == nullptr ? "v is NULL, but the group has V" : "v is given, but the group has no V");
    PKV_TRY(flat_rows(*k, shape, {"k", shape.k_row_bytes}, count, false, out.k));
    out.v.dtype = out.k.dtype;
    if (v != nullptr) PKV_TRY(flat_rows(*v, shape, {"v", shape.v_row_bytes}, count, false, out.v));
    return PKV_OK;
}

pkv_status Pool::target_rows(uint32_t group, const pkv_tensor *k, const pkv_tensor *v, uint64_t count,
                             CallerTensors &out) const {
    const Geometry &shape = geometry(group);
    if (v != nullptr && shape.v_row_bytes == 0) return fail(PKV_ERR_INVALID, "v is given, but the group has no V");
    if (k != nullptr) PKV_TRY(flat_rows(*k, shape, {"k", shape.k_row_bytes}, count, true, out.k));
    if (v != nullptr) PKV_TRY(flat_rows(*v, shape, {"v", shape.v_row_bytes}, count, true, out.v));
    return PKV_OK;
}

tensor::Conversion Pool::conversion(uint32_t group, uint32_t layer, int32_t flat_dtype) const {
    const Geometry &shape = geometry(group);
    const uint64_t element = dtype_bytes(shape.dtype);
    return {shape.dtype, flat_dtype, shape.k_row_bytes / element, shape.v_row_bytes / element,
            memory(group).scales(layer)};
}

namespace {

/// The caller's rows from row `first` on.
CallerTensors rows_from(CallerTensors rows, uint64_t first) {
    for (CallerRows *side : {&rows.k, &rows.v})
        if (side->rows.base != nullptr) side->rows.base += first * side->rows.token_stride;
    return rows;
}

/// Runs `move` for the sides that have the stored type and `convert` for those that have another: once when both agree.
template <class Move, class Convert>
void by_dtype(const CallerTensors &rows, int32_t stored, Move &&move, Convert &&convert) {
    const FlatRows none{};
    const bool k_equal = rows.k.rows.base == nullptr || rows.k.dtype == stored;
    const bool v_equal = rows.v.rows.base == nullptr || rows.v.dtype == stored;
    if (k_equal && v_equal) {
        move(rows.k.rows, rows.v.rows);
    } else if (!k_equal && !v_equal && rows.k.dtype == rows.v.dtype) {
        convert(rows.k.dtype, rows.k.rows, rows.v.rows);
    } else {
        k_equal ? move(rows.k.rows, none) : convert(rows.k.dtype, rows.k.rows, none);
        v_equal ? move(none, rows.v.rows) : convert(rows.v.dtype, none, rows.v.rows);
    }
}

} // namespace

pkv_status Pool::write_rows(uint32_t group, uint32_t layer, std::span<const pkv_slot> slots, const CallerTensors &rows,
                            Turn &turn) const {
    if (slots.empty()) return PKV_OK;
    if (device_ != nullptr) return write_on_device(group, layer, slots.data(), slots.size(), true, rows, turn);
    const LayerRows &stored = memory(group).layer(layer);
    by_dtype(
        rows, geometry(group).dtype,
        [&](const FlatRows &k, const FlatRows &v) { tensor::write_slots(stored, slots, k, v, workers()); },
        [&](int32_t dtype, const FlatRows &k, const FlatRows &v) {
            tensor::write_converted(stored, conversion(group, layer, dtype), slots, k, v, workers());
        });
    return PKV_OK;
}

pkv_status Pool::read_rows(uint32_t group, uint32_t layer, const pkv_page *list, uint64_t first, uint64_t count,
                           const CallerTensors &rows, Turn &turn) const {
    if (count == 0) return PKV_OK;
    if (device_ != nullptr) {
        const SequenceRows one{list, first, count, 0};
        return read_sequences(group, layer, {&one, 1}, 0, rows, turn);
    }
    const LayerRows &stored = memory(group).layer(layer);
    by_dtype(
        rows, geometry(group).dtype,
        [&](const FlatRows &k, const FlatRows &v) {
            tensor::gather_pages(stored, list, first, count, k, v, workers());
        },
        [&](int32_t dtype, const FlatRows &k, const FlatRows &v) {
            tensor::gather_converted(stored, conversion(group, layer, dtype), list, first, count, k, v, workers());
        });
    return PKV_OK;
}

void Pool::zero_rows(uint32_t group, const CallerTensors &rows, uint64_t first, uint64_t end) const {
    const Geometry &shape = geometry(group);
    for (const CallerRows *side : {&rows.k, &rows.v}) {
        if (side->rows.base == nullptr) continue;
        const uint64_t stored = side == &rows.k ? shape.k_row_bytes : shape.v_row_bytes;
        const uint64_t row_bytes = flat_row_bytes(shape, side->dtype, stored);
        for (uint64_t token = first; token < end; ++token)
            for (uint32_t head = 0; head < shape.heads; ++head)
                std::memset(side->rows.base + token * side->rows.token_stride + head * side->rows.head_stride, 0,
                            row_bytes);
    }
}

pkv_status Pool::read_sequences(uint32_t group, uint32_t layer, std::span<const SequenceRows> sequences,
                                uint64_t padded, const CallerTensors &rows, Turn &turn) const {
    if (device_ == nullptr) {
        for (const SequenceRows &at : sequences) {
            PKV_TRY(read_rows(group, layer, at.pages, at.first, at.count, rows_from(rows, at.row), turn));
            if (padded != 0) zero_rows(group, rows, at.row + at.count, at.row + padded);
        }
        return PKV_OK;
    }
    // One launch: only the blocks that are read, one list behind the other.
    std::vector<pkv_page> pages;
    std::vector<int32_t> indptr;
    std::vector<uint64_t> first, counts, out;
    pkv_device_gather gather{};
    for (const SequenceRows &at : sequences) {
        const uint64_t begin = at.first / page_tokens_;
        indptr.push_back(static_cast<int32_t>(pages.size()));
        pages.insert(pages.end(), at.pages + begin,
                     at.pages + (at.count == 0 ? begin : blocks_for(at.first + at.count, page_tokens_)));
        if (pages.size() > INT32_MAX)
            return fail(PKV_ERR_LIMIT, "%zu blocks in one gather, more than 2^31-1", pages.size());
        first.push_back(at.first - begin * page_tokens_);
        counts.push_back(at.count);
        out.push_back(at.row);
        gather.max_count = std::max(gather.max_count, at.count);
    }
    indptr.push_back(static_cast<int32_t>(pages.size()));
    gather.pages = pages.data();
    gather.indptr = indptr.data();
    gather.num_pages = pages.size();
    gather.first = first.data();
    gather.counts = counts.data();
    gather.out_first = out.data();
    gather.num_sequences = sequences.size();
    gather.padded = padded;
    gather.arrays_on_host = 1;
    return read_on_device(group, layer, gather, rows, turn);
}

pkv_status Pool::write(uint32_t group, uint32_t layer, std::span<const pkv_slot> slots, const pkv_tensor *k,
                       const pkv_tensor *v, Turn &turn) {
    PKV_TRY(need_memory(group));
    CallerTensors rows;
    PKV_TRY(source_rows(group, k, v, slots.size(), rows));
    if (device_ != nullptr) return write_slots_on_device(group, layer, slots, rows, turn);
    Fences waits;
    PKV_TRY(check_slots(group, slots, waits));
    return write_rows(group, layer, slots, rows, turn);
}

pkv_status Pool::check_slots(uint32_t group, std::span<const pkv_slot> slots, Fences &waits) {
    const Lock lock(mutex_);
    const PageSet &set = pages(group);
    const PageOrder &order = groups_[group].order;
    const uint64_t num_slots = set.size() * page_tokens_;
    uint64_t page_begin = 0; // the page that was checked last: slots mostly come in runs
    uint64_t page_end = 0;
    for (uint64_t i = 0; i < slots.size(); ++i) {
        if (slots[i] < 0) continue;
        const auto slot = static_cast<uint64_t>(slots[i]);
        if (slot >= page_begin && slot < page_end) continue;
        if (slot >= num_slots)
            return fail(PKV_ERR_INVALID, "slots[%" PRIu64 "] is %" PRIu64 ", not below %" PRIu64, i, slot, num_slots);
        const auto page = static_cast<pkv_page>(slot / page_tokens_);
        if (set.count(page) == 0 || set.published(page))
            return fail(PKV_ERR_STATE, "slots[%" PRIu64 "] is in page %d, which %s", i, page,
                        set.count(page) == 0 ? "nobody holds" : "is published");
        if (order.exists()) waits |= order.before_writing(page);
        page_begin = static_cast<uint64_t>(page) * page_tokens_;
        page_end = page_begin + page_tokens_;
    }
    return PKV_OK;
}

pkv_status Pool::gather(uint32_t group, uint32_t layer, std::span<const pkv_page> list, uint64_t first, uint64_t count,
                        const pkv_tensor *k, const pkv_tensor *v, Turn &turn) {
    PKV_TRY(need_memory(group));
    uint64_t end = 0;
    if (__builtin_add_overflow(first, count, &end) || blocks_for(end, page_tokens_) > list.size())
        return fail(PKV_ERR_INVALID, "tokens %" PRIu64 " + %" PRIu64 " are not inside %zu pages of %u", first, count,
                    list.size(), uint32_t{page_tokens_});
    CallerTensors rows;
    PKV_TRY(target_rows(group, k, v, count, rows));
    if (count == 0) return PKV_OK;
    if (device_ != nullptr) {
        bool on_host = true;
        PKV_TRY(is_on_host(list.data(), turn, on_host));
        if (!on_host) return gather_by_device_list(group, layer, list, first, count, rows, turn);
    }
    Fences waits;
    {
        const Lock lock(mutex_);
        const PageSet &set = pages(group);
        const PageOrder &order = groups_[group].order;
        for (uint64_t block = first / page_tokens_; block <= (end - 1) / page_tokens_; ++block) {
            if (!set.in_range(list[block])) return no_such_page(group, list[block]);
            if (set.count(list[block]) == 0) return fail(PKV_ERR_STATE, "page %d is held by nobody", list[block]);
            if (order.exists()) waits |= order.before_reading(list[block]);
        }
    }
    if (device_ != nullptr) PKV_TRY(turn.after(waits));
    return read_rows(group, layer, list.data(), first, count, rows, turn);
}

pkv_status Pool::copy_pages(uint32_t group, std::span<const pkv_page> src, std::span<const pkv_page> dst, Turn &turn) {
    PKV_TRY(need_memory(group));
    std::vector<pkv_page> targets(dst.begin(), dst.end());
    std::sort(targets.begin(), targets.end());
    if (const auto twice = std::adjacent_find(targets.begin(), targets.end()); twice != targets.end())
        return fail(PKV_ERR_INVALID, "page %d is a destination twice", *twice);
    for (const pkv_page page : src)
        if (std::binary_search(targets.begin(), targets.end(), page))
            return fail(PKV_ERR_INVALID, "page %d is both source and destination", page);
    Fences waits;
    {
        const Lock lock(mutex_);
        const PageSet &set = pages(group);
        const PageOrder &order = groups_[group].order;
        for (uint64_t i = 0; i < src.size(); ++i) {
            if (!set.in_range(src[i])) return no_such_page(group, src[i]);
            if (!set.in_range(dst[i])) return no_such_page(group, dst[i]);
            if (set.count(src[i]) == 0) return fail(PKV_ERR_STATE, "page %d is held by nobody", src[i]);
            if (set.count(dst[i]) == 0 || set.published(dst[i]))
                return fail(PKV_ERR_STATE, "page %d, a destination, %s", dst[i],
                            set.count(dst[i]) == 0 ? "is held by nobody" : "is published");
            if (!order.exists()) continue;
            waits |= order.before_reading(src[i]);
            waits |= order.before_writing(dst[i]);
        }
    }
    if (device_ != nullptr) return copy_pages_on_device(group, src, dst, waits, turn);
    for (uint64_t i = 0; i < src.size(); ++i) PKV_TRY(copy_page_bytes(group, src[i], dst[i], page_tokens_, turn));
    return PKV_OK;
}

void Pool::move_row(uint32_t group, pkv_slot src, pkv_slot dst) const {
    const PageMemory &bytes = memory(group);
    const uint64_t src_page = static_cast<uint64_t>(src) / page_tokens_;
    const uint64_t dst_page = static_cast<uint64_t>(dst) / page_tokens_;
    const uint64_t src_token = static_cast<uint64_t>(src) % page_tokens_;
    const uint64_t dst_token = static_cast<uint64_t>(dst) % page_tokens_;
    for (uint32_t layer = 0; layer < bytes.num_layers(); ++layer) {
        for (const PagedRows *rows : {&bytes.layer(layer).k, &bytes.layer(layer).v})
            for (uint32_t head = 0; rows->row_bytes != 0 && head < rows->heads; ++head)
                std::memcpy(rows->row(dst_page, dst_token, head), rows->row(src_page, src_token, head),
                            rows->row_bytes);
        for (const RowScales *scales : {&bytes.scales(layer).k, &bytes.scales(layer).v})
            if (scales->rows != nullptr)
                std::memcpy(scales->row(dst_page, dst_token, 0), scales->row(src_page, src_token, 0),
                            scales->heads * sizeof(float));
    }
}

pkv_status Pool::move_rows(uint32_t group, std::span<const pkv_slot> src, std::span<const pkv_slot> dst,
                           Turn &turn) const {
    if (device_ != nullptr) return src.empty() ? PKV_OK : move_rows_on_device(group, src, dst, turn);
    for (size_t i = 0; i < src.size(); ++i)
        move_row(group, src[i], dst[i]); // in order: nothing is overwritten that is still wanted
    return PKV_OK;
}

pkv_status Pool::copy_page_bytes(uint32_t group, pkv_page src, pkv_page dst, uint32_t tokens, Turn &turn) const {
    PageMemory &bytes = groups_[group].memory;
    if (device_ != nullptr) {
        PKV_TRY(copy_on_device(group, {&src, 1}, {&dst, 1}, tokens, turn));
        bytes.copy_aux(src, dst, tokens);
        return PKV_OK;
    }
    for (uint32_t layer = 0; layer < bytes.num_layers(); ++layer)
        tensor::copy_page(bytes.layer(layer), src, dst, tokens);
    bytes.copy_beside(src, dst, tokens);
    return PKV_OK;
}

// ---- to and from host memory ---------------------------------------------------------------------------------------

namespace {

/// One side's rows in host memory, as a caller's tensor of the stored type.
CallerTensors dense_rows(const Geometry &geometry, bool is_k, const std::byte *rows) {
    CallerTensors both;
    const uint64_t row_bytes = is_k ? geometry.k_row_bytes : geometry.v_row_bytes;
    CallerRows &side = is_k ? both.k : both.v;
    side.rows = FlatRows{const_cast<std::byte *>(rows), row_bytes * geometry.heads, row_bytes};
    side.dtype = geometry.dtype;
    return both;
}

} // namespace

/// Copies a scale for each row of a range from the pages to a buffer, or the other way.
void Pool::move_host_scales(uint32_t group, uint32_t layer, bool is_k, const pkv_page *list, uint64_t first,
                            uint64_t count, std::byte *flat, bool to_pages) const {
    const LayerScales &both = memory(group).scales(layer);
    const RowScales &scales = is_k ? both.k : both.v;
    const uint64_t bytes = scales.heads * sizeof(float);
    for (uint64_t i = 0; i < count; ++i) {
        const auto page = static_cast<uint64_t>(list[(first + i) / page_tokens_]);
        float *row = scales.row(page, (first + i) % page_tokens_, 0);
        to_pages ? std::memcpy(row, flat + i * bytes, bytes) : std::memcpy(flat + i * bytes, row, bytes);
    }
}

pkv_status Pool::take_out(uint32_t group, uint32_t layer, bool is_k, const pkv_page *list, uint64_t first,
                          uint64_t count, std::byte *rows, std::byte *scales, Turn &turn) const {
    if (device_ != nullptr) return take_out_of_device(group, layer, is_k, list, first, count, rows, scales, turn);
    PKV_TRY(read_rows(group, layer, list, first, count, dense_rows(geometry(group), is_k, rows), turn));
    if (scales != nullptr) move_host_scales(group, layer, is_k, list, first, count, scales, false);
    return PKV_OK;
}

pkv_status Pool::put_in(uint32_t group, uint32_t layer, bool is_k, const pkv_page *list, uint64_t first, uint64_t count,
                        const std::byte *rows, const std::byte *scales, std::span<pkv_slot> slots, Turn &turn) const {
    if (device_ != nullptr) return put_into_device(group, layer, is_k, list, first, count, rows, scales, slots, turn);
    fill_slots(list, first, slots.first(count));
    PKV_TRY(write_rows(group, layer, slots.first(count), dense_rows(geometry(group), is_k, rows), turn));
    if (scales != nullptr)
        move_host_scales(group, layer, is_k, list, first, count, const_cast<std::byte *>(scales), true);
    return PKV_OK;
}

void Pool::fill_slots(const pkv_page *list, uint64_t first, std::span<pkv_slot> slots) const {
    for (uint64_t i = 0; i < slots.size(); ++i) {
        const auto page = static_cast<pkv_slot>(list[(first + i) / page_tokens_]);
        slots[i] = page * page_tokens_ + static_cast<pkv_slot>((first + i) % page_tokens_);
    }
}

} // namespace pkv
