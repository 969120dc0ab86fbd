// SPDX-License-Identifier: Apache-2.0
// Page bytes of a pool on a device: the checks that a device asks for, then launches.
#include "core/status.h"
#include "pool/pool.h"

#include <algorithm>
#include <cstring>

namespace pkv {
namespace {

constexpr uint64_t bounce_bytes = uint64_t{4} << 20;
constexpr uint64_t least_scratch = uint64_t{1} << 20;

pkv_device_flat flat_of(const CallerRows &side) {
    return {side.rows.base, side.rows.token_stride, side.rows.head_stride};
}

/// launch(dtype, k, v): at once when both sides have one type.
template <class Launch> pkv_status each_dtype(const CallerTensors &rows, Launch &&launch) {
    const pkv_device_flat none{};
    const bool k = rows.k.rows.base != nullptr, v = rows.v.rows.base != nullptr;
    if (k && v && rows.k.dtype != rows.v.dtype) {
        PKV_TRY(launch(rows.k.dtype, flat_of(rows.k), none));
        return launch(rows.v.dtype, none, flat_of(rows.v));
    }
    if (!k && !v) return PKV_OK;
    return launch(k ? rows.k.dtype : rows.v.dtype, flat_of(rows.k), flat_of(rows.v));
}

} // namespace

pkv_status Pool::check_rows_on_device(const CallerTensors &rows) const {
    if (rows.k.rows.base != nullptr) PKV_TRY(device_->check_readable(rows.k.rows.base, "k"));
    if (rows.v.rows.base != nullptr) PKV_TRY(device_->check_readable(rows.v.rows.base, "v"));
    return PKV_OK;
}

/// Ids in memory that only the device reads are read by kernels. So are those in pinned memory by a graph, each time that it
/// runs; a call that is not captured reads these at once.
pkv_status Pool::is_on_host(const void *list, const Turn &turn, bool &on_host) const {
    int32_t kind = 0;
    PKV_TRY(device_->kind_of(list, kind));
    if (kind == PKV_ADDRESS_OTHER) return fail(PKV_ERR_INVALID, "the ids at %p are in memory of another device", list);
    on_host = kind == PKV_ADDRESS_HOST || (kind == PKV_ADDRESS_PINNED && !turn.captured());
    return PKV_OK;
}

// ---- write ---------------------------------------------------------------------------------------------------------

pkv_status Pool::write_on_device(uint32_t group, uint32_t layer, const pkv_slot *slots, uint64_t count, bool on_host,
                                 const CallerTensors &rows, Turn &turn) const {
    PKV_TRY(check_rows_on_device(rows));
    void *stream = nullptr;
    PKV_TRY(turn.stream(stream));
    return each_dtype(rows, [&](int32_t dtype, const pkv_device_flat &k, const pkv_device_flat &v) {
        pkv_device_write write{};
        write.struct_size = sizeof write;
        write.num_layers = 1;
        write.flat_dtype = dtype;
        write.layers =
            dtype == geometry(group).dtype ? &groups_[group].bare_layers[layer] : &groups_[group].layers[layer];
        write.k = &k;
        write.v = &v;
        write.slots = slots;
        write.num_slots = count;
        write.slot_bytes = sizeof *slots;
        write.slots_on_host = on_host ? 1 : 0;
        return device_->call("a write", &pkv_device_table::write, stream, &write);
    });
}

/// pkv_pool_write(): nobody else says what comes before these pages, nor what others come after.
pkv_status Pool::write_slots_on_device(uint32_t group, uint32_t layer, std::span<const pkv_slot> slots,
                                       const CallerTensors &rows, Turn &turn) {
    if (slots.empty()) return PKV_OK;
    bool on_host = true;
    PKV_TRY(is_on_host(slots.data(), turn, on_host));
    Fences waits;
    if (on_host) PKV_TRY(check_slots(group, slots, waits));
    PKV_TRY(check_rows_on_device(rows));
    PKV_TRY(turn.after(waits));
    PKV_TRY(write_on_device(group, layer, slots.data(), slots.size(), on_host, rows, turn));
    if (!on_host || turn.captured() || turn.waits()) return PKV_OK;
    Fences point;
    PKV_TRY(turn.point(point));
    const Lock lock(mutex_);
    pkv_page last = PKV_NO_PAGE;
    for (const pkv_slot slot : slots) {
        const pkv_page page = slot < 0 ? last : static_cast<pkv_page>(slot / page_tokens_);
        if (page != last) groups_[group].order.wrote(page, point);
        last = page;
    }
    return PKV_OK;
}

// ---- gather --------------------------------------------------------------------------------------------------------

pkv_status Pool::read_on_device(uint32_t group, uint32_t layer, pkv_device_gather gather, const CallerTensors &rows,
                                Turn &turn) const {
    PKV_TRY(check_rows_on_device(rows));
    void *stream = nullptr;
    PKV_TRY(turn.stream(stream));
    gather.struct_size = sizeof gather;
    gather.num_layers = 1;
    gather.layers = &groups_[group].layers[layer];
    return each_dtype(rows, [&](int32_t dtype, const pkv_device_flat &k, const pkv_device_flat &v) {
        gather.flat_dtype = dtype;
        gather.k = &k;
        gather.v = &v;
        return device_->call("a gather", &pkv_device_table::gather, stream, &gather);
    });
}

/// Through a block table in memory of the device, which only its kernels can check.
pkv_status Pool::gather_by_device_list(uint32_t group, uint32_t layer, std::span<const pkv_page> list, uint64_t first,
                                       uint64_t count, const CallerTensors &rows, Turn &turn) const {
    pkv_device_gather gather{};
    gather.pages = list.data();
    gather.pages_stride = list.size();
    gather.num_pages = list.size();
    gather.num_sequences = 1;
    gather.max_count = count;
    gather.first_token = first;
    return read_on_device(group, layer, gather, rows, turn);
}

// ---- copies --------------------------------------------------------------------------------------------------------

pkv_status Pool::copy_on_device(uint32_t group, std::span<const pkv_page> src, std::span<const pkv_page> dst,
                                uint32_t tokens, Turn &turn) const {
    const Group &at = groups_[group];
    const std::vector<uint32_t> all(src.size(), tokens);
    void *stream = nullptr;
    PKV_TRY(turn.stream(stream));
    return device_->call("a copy of pages", &pkv_device_table::copy_pages, stream, at.layers.data(),
                         static_cast<uint32_t>(at.layers.size()), static_cast<uint64_t>(src.size()), src.data(),
                         dst.data(), all.data(), uint32_t{0});
}

pkv_status Pool::copy_pages_on_device(uint32_t group, std::span<const pkv_page> src, std::span<const pkv_page> dst,
                                      const Fences &waits, Turn &turn) {
    if (src.empty()) return PKV_OK;
    PKV_TRY(turn.after(waits));
    PKV_TRY(copy_on_device(group, src, dst, page_tokens_, turn));
    for (size_t i = 0; i < src.size(); ++i) memory(group).copy_aux(src[i], dst[i], page_tokens_);
    if (turn.waits()) return PKV_OK;
    Fences point;
    PKV_TRY(turn.point(point));
    const Lock lock(mutex_);
    for (size_t i = 0; i < src.size(); ++i) {
        groups_[group].order.used(src[i], point);
        groups_[group].order.wrote(dst[i], point);
    }
    return PKV_OK;
}

/// Out of the pages, and in again: the lists may overlap, and a device keeps no order inside a launch.
pkv_status Pool::move_rows_on_device(uint32_t group, std::span<const pkv_slot> src, std::span<const pkv_slot> dst,
                                     Turn &turn) const {
    const Group &at = groups_[group];
    const Geometry &shape = at.geometry;
    const uint64_t count = src.size();
    const uint64_t k_bytes = count * shape.heads * shape.k_row_bytes, v_bytes = count * shape.heads * shape.v_row_bytes;
    const uint64_t scale_bytes = shape.scales == PKV_SCALES_TOKEN_HEAD ? shape.heads * sizeof(float) : 0;
    const uint64_t sides = shape.v_row_bytes != 0 ? 2 : 1;
    Scratch room;
    PKV_TRY(take_scratch(shape.num_layers * (k_bytes + v_bytes + count * sides * scale_bytes), room));
    std::vector<pkv_device_flat> k, v;
    for (uint32_t layer = 0; layer < shape.num_layers; ++layer) {
        std::byte *base = room.memory->data() + layer * (k_bytes + v_bytes);
        k.push_back({base, shape.heads * shape.k_row_bytes, shape.k_row_bytes});
        v.push_back({v_bytes != 0 ? base + k_bytes : nullptr, shape.heads * shape.v_row_bytes, shape.v_row_bytes});
    }
    std::byte *scale_room = room.memory->data() + shape.num_layers * (k_bytes + v_bytes);
    std::vector<pkv_device_copy> out, in; // of scales
    for (uint32_t layer = 0; layer < shape.num_layers && scale_bytes != 0; ++layer)
        for (const RowScales *side : {&at.memory.scales(layer).k, &at.memory.scales(layer).v})
            for (uint64_t i = 0; i < count && side->rows != nullptr; ++i) {
                const auto from = static_cast<uint64_t>(src[i]), to = static_cast<uint64_t>(dst[i]);
                out.push_back({scale_room, side->row(from / page_tokens_, from % page_tokens_, 0), scale_bytes});
                in.push_back({side->row(to / page_tokens_, to % page_tokens_, 0), scale_room, scale_bytes});
                scale_room += scale_bytes;
            }
    std::vector<pkv_page> pages;
    std::vector<uint64_t> first, rows;
    const std::vector<uint64_t> ones(count, 1);
    for (uint64_t i = 0; i < count; ++i) {
        pages.push_back(static_cast<pkv_page>(src[i] / page_tokens_));
        first.push_back(static_cast<uint64_t>(src[i]) % page_tokens_);
        rows.push_back(i);
    }
    pkv_device_gather gather{};
    gather.struct_size = sizeof gather;
    gather.num_layers = shape.num_layers;
    gather.flat_dtype = shape.dtype;
    gather.layers = at.layers.data();
    gather.k = k.data();
    gather.v = v.data();
    gather.pages = pages.data();
    gather.pages_stride = 1;
    gather.num_pages = count;
    gather.first = first.data();
    gather.counts = ones.data();
    gather.out_first = rows.data();
    gather.num_sequences = count;
    gather.max_count = 1;
    gather.arrays_on_host = 1;
    pkv_device_write write{};
    write.struct_size = sizeof write;
    write.num_layers = shape.num_layers;
    write.flat_dtype = shape.dtype;
    write.layers = at.bare_layers.data();
    write.k = k.data();
    write.v = v.data();
    write.slots = dst.data();
    write.num_slots = count;
    write.slot_bytes = sizeof(pkv_slot);
    write.slots_on_host = 1;
    void *stream = nullptr;
    PKV_TRY(turn.after(room.used));
    PKV_TRY(turn.stream(stream));
    PKV_TRY(device_->call("moving rows", &pkv_device_table::gather, stream, &gather));
    PKV_TRY(device_->call("moving rows", &pkv_device_table::write, stream, &write));
    for (const auto *list : {&out, &in})
        if (!list->empty())
            PKV_TRY(device_->call("moving scales", &pkv_device_table::copy, stream, PKV_DEVICE_TO_DEVICE, list->data(),
                                  static_cast<uint64_t>(list->size())));
    PKV_TRY(turn.point(room.used));
    const std::lock_guard lock(scratch_mutex_);
    scratch_.push_back(std::move(room));
    return PKV_OK;
}

/// Memory that nobody has now; what is done with it comes after `used`.
pkv_status Pool::take_scratch(uint64_t bytes, Scratch &out) const {
    {
        const std::lock_guard lock(scratch_mutex_);
        const auto found = std::find_if(scratch_.begin(), scratch_.end(),
                                        [&](const Scratch &item) { return item.memory->bytes() >= bytes; });
        if (found != scratch_.end()) {
            out = std::move(*found);
            scratch_.erase(found);
            return PKV_OK;
        }
        // Smaller ones are not needed any more, once they have been used.
        std::erase_if(scratch_, [&](const Scratch &item) { return device_->order().passed_by_now(item.used); });
        scratch_.reserve(scratch_.size() + 1);
    }
    out.used = {};
    out.memory = std::make_unique<DeviceMemory>();
    return out.memory->create(device_, std::max(bytes, least_scratch), "memory to move rows");
}

// ---- to and from host memory ---------------------------------------------------------------------------------------

pkv_status Pool::take_bounce(uint64_t token_bytes) const {
    if (bounce_.bytes() >= token_bytes && bounce_.data() != nullptr) return PKV_OK;
    return bounce_.create(device_, std::max(bounce_bytes, token_bytes), "memory for a transfer");
}

pkv_status Pool::move_device_scales(uint32_t group, uint32_t layer, bool is_k, const pkv_page *list, uint64_t first,
                                    uint64_t count, std::byte *pinned, bool to_pages, Turn &turn) const {
    const LayerScales &both = memory(group).scales(layer);
    const RowScales &scales = is_k ? both.k : both.v;
    const uint64_t bytes = scales.heads * sizeof(float);
    std::vector<pkv_device_copy> copies;
    for (uint64_t i = 0; i < count;) { // tokens of a page lie behind each other
        const uint64_t token = (first + i) % page_tokens_;
        const uint64_t run = std::min(count - i, page_tokens_ - token);
        void *const row = scales.row(static_cast<uint64_t>(list[(first + i) / page_tokens_]), token, 0);
        void *const flat = pinned + i * bytes;
        copies.push_back({to_pages ? row : flat, to_pages ? flat : row, run * bytes});
        i += run;
    }
    void *stream = nullptr;
    PKV_TRY(turn.stream(stream));
    return device_->call("a copy of scales", &pkv_device_table::copy, stream,
                         to_pages ? PKV_HOST_TO_DEVICE : PKV_DEVICE_TO_HOST, copies.data(),
                         static_cast<uint64_t>(copies.size()));
}

namespace {

/// Pieces of a range of tokens whose rows and scales fit the bounce memory. piece(first row, rows).
template <class Piece> pkv_status each_piece(uint64_t count, uint64_t token_bytes, Piece &&piece) {
    const uint64_t most = std::max<uint64_t>(bounce_bytes / token_bytes, 1);
    for (uint64_t at = 0; at < count; at += most) PKV_TRY(piece(at, std::min(most, count - at)));
    return PKV_OK;
}

} // namespace

pkv_status Pool::take_out_of_device(uint32_t group, uint32_t layer, bool is_k, const pkv_page *list, uint64_t first,
                                    uint64_t count, std::byte *rows, std::byte *scales, Turn &turn) const {
    const Geometry &shape = geometry(group);
    const uint64_t row_bytes = shape.heads * (is_k ? shape.k_row_bytes : shape.v_row_bytes);
    const uint64_t scale_bytes = scales != nullptr ? shape.heads * sizeof(float) : 0;
    const std::lock_guard lock(bounce_mutex_);
    PKV_TRY(take_bounce(row_bytes + scale_bytes));
    return each_piece(count, row_bytes + scale_bytes, [&](uint64_t at, uint64_t num) {
        CallerTensors flat;
        CallerRows &side = is_k ? flat.k : flat.v;
        side = {FlatRows{bounce_.data(), row_bytes, row_bytes / shape.heads}, shape.dtype};
        PKV_TRY(read_rows(group, layer, list, first + at, num, flat, turn));
        std::byte *const beside = bounce_.data() + num * row_bytes;
        if (scales != nullptr)
            PKV_TRY(move_device_scales(group, layer, is_k, list, first + at, num, beside, false, turn));
        PKV_TRY(turn.finish());
        std::memcpy(rows + at * row_bytes, bounce_.data(), num * row_bytes);
        if (scales != nullptr) std::memcpy(scales + at * scale_bytes, beside, num * scale_bytes);
        return PKV_OK;
    });
}

pkv_status Pool::put_into_device(uint32_t group, uint32_t layer, bool is_k, const pkv_page *list, uint64_t first,
                                 uint64_t count, const std::byte *rows, const std::byte *scales,
                                 std::span<pkv_slot> slots, Turn &turn) const {
    const Geometry &shape = geometry(group);
    const uint64_t row_bytes = shape.heads * (is_k ? shape.k_row_bytes : shape.v_row_bytes);
    const uint64_t scale_bytes = scales != nullptr ? shape.heads * sizeof(float) : 0;
    const std::lock_guard lock(bounce_mutex_);
    PKV_TRY(take_bounce(row_bytes + scale_bytes));
    return each_piece(count, row_bytes + scale_bytes, [&](uint64_t at, uint64_t num) {
        CallerTensors flat;
        CallerRows &side = is_k ? flat.k : flat.v;
        side = {FlatRows{bounce_.data(), row_bytes, row_bytes / shape.heads}, shape.dtype};
        std::byte *const beside = bounce_.data() + num * row_bytes;
        std::memcpy(bounce_.data(), rows + at * row_bytes, num * row_bytes);
        if (scales != nullptr) std::memcpy(beside, scales + at * scale_bytes, num * scale_bytes);
        fill_slots(list, first + at, slots.first(num));
        PKV_TRY(write_rows(group, layer, slots.first(num), flat, turn));
        if (scales != nullptr)
            PKV_TRY(move_device_scales(group, layer, is_k, list, first + at, num, beside, true, turn));
        return turn.finish();
    });
}

} // namespace pkv
