// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda/plan.h"

#include "tensor/cuda/convert.cuh"

#include <algorithm>
#include <cinttypes>
#include <pagedkv/pool.h>

namespace pkv::cuda {
namespace {

/// Slots of a host array: of equal ones the last is kept, as on the host; the others become -1.
template <class Slot> void keep_last_of_equals(std::vector<Slot> &slots) {
    if (std::adjacent_find(slots.begin(), slots.end(), [](Slot a, Slot b) { return a >= b; }) == slots.end()) return;
    // Open addressing, from the last slot to the first.
    const uint64_t size = std::bit_ceil(slots.size() * 2);
    const int shift = std::countl_zero(size) + 1;
    std::vector<Slot> seen(size, Slot{-1});
    for (uint64_t i = slots.size(); i-- > 0;) {
        const Slot slot = slots[i];
        if (slot < 0) continue;
        uint64_t at = (static_cast<uint64_t>(slot) * 0x9E3779B97F4A7C15u) >> (shift & 63);
        while (seen[at] >= 0 && seen[at] != slot) at = (at + 1) & (size - 1);
        if (seen[at] == slot) {
            slots[i] = -1;
        } else {
            seen[at] = slot;
        }
    }
}

template <class Slot> uint64_t add_slots(HostArrays &arrays, const void *given, uint64_t count) {
    std::vector<Slot> slots(count);
    std::memcpy(slots.data(), given, count * sizeof(Slot));
    keep_last_of_equals(slots);
    return arrays.add(slots.data(), count * sizeof(Slot));
}

class WritePlan {
  public:
    WritePlan(const pkv_device_write &write, Runner &runner, const Why &why)
        : write_(write), runner_(runner), why_(why) {}

    pkv_status run() {
        if (write_.slots_on_host != 0) {
            slots_ = write_.slot_bytes == 8 ? add_slots<int64_t>(arrays_, write_.slots, write_.num_slots)
                                            : add_slots<int32_t>(arrays_, write_.slots, write_.num_slots);
            if (const pkv_status status = arrays_.stage(runner_, why_); status != PKV_OK) return status;
        }
        const uint64_t most = planes_that_fit(arrays_) / 2;
        for (uint32_t begin = 0; begin < write_.num_layers;) {
            uint32_t end = begin + 1;
            while (end < write_.num_layers && end - begin < most && together(begin, end)) ++end;
            if (const pkv_status status = run_layers(begin, end); status != PKV_OK) return status;
            begin = end;
        }
        return PKV_OK;
    }

  private:
    const pkv_device_flat *flat(int side, uint32_t layer) const {
        const pkv_device_flat *const list = side == 0 ? write_.k : write_.v;
        const pkv_device_paged &paged = side == 0 ? write_.layers[layer].k : write_.layers[layer].v;
        return list == nullptr || list[layer].base == nullptr || paged.row_bytes == 0 ? nullptr : &list[layer];
    }

    bool together(uint32_t a, uint32_t b) const {
        if (!same_shape(write_.layers[a], write_.layers[b])) return false;
        for (int side = 0; side < 2; ++side) {
            const pkv_device_flat *const x = flat(side, a);
            const pkv_device_flat *const y = flat(side, b);
            if ((x == nullptr) != (y == nullptr)) return false;
            if (x != nullptr && (x->token_stride != y->token_stride || x->head_stride != y->head_stride)) return false;
        }
        return true;
    }

    pkv_status run_layers(uint32_t begin, uint32_t end) {
        const pkv_device_layer &layer = write_.layers[begin];
        const bool convert = layer.dtype != write_.flat_dtype;
        const bool by_row = convert && layer.scales == PKV_SCALES_TOKEN_HEAD;
        const uint64_t stored_size = element_size(layer.dtype);
        const uint64_t flat_size = convert ? element_size(write_.flat_dtype) : stored_size;
        WriteParams params;
        std::memset(static_cast<void *>(&params), 0, offsetof(WriteParams, rest));
        Alignment stored_at;
        Alignment flat_at;
        uint64_t elements = 0; // of all runs, as bits
        std::vector<Plane> planes;
        for (int number = 0; number < 2; ++number) {
            WriteSide &side = params.side[number];
            side.of_token = divider64(1);
            const pkv_device_flat *const rows = flat(number, begin);
            if (rows == nullptr) continue;
            const pkv_device_paged &paged = number == 0 ? layer.k : layer.v;
            const uint64_t row_elements = paged.row_bytes / stored_size;
            const bool merged = layer.heads == 1 || (paged.head_stride == paged.row_bytes &&
                                                     rows->head_stride == row_elements * flat_size && !by_row &&
                                                     !(convert && layer.scales == PKV_SCALES_HEAD));
            const uint64_t runs = merged ? 1 : layer.heads;
            side.elements = row_elements * (merged ? layer.heads : 1);
            elements |= side.elements;
            side.of_token = divider64(runs);
            side.runs = product_of(product_of(end - begin, write_.num_slots), runs);
            side.page = paged.page_stride, side.token = paged.token_stride, side.head = paged.head_stride;
            side.flat_token = rows->token_stride, side.flat_head = rows->head_stride;
            side.planes = static_cast<uint32_t>(planes.size());
            stored_at.add(side.elements * stored_size);
            stored_at.add(side.page, layer.num_pages);
            stored_at.add(side.token, layer.page_tokens);
            stored_at.add(side.head, runs);
            flat_at.add(side.elements * flat_size);
            flat_at.add(side.flat_token, write_.num_slots);
            flat_at.add(side.flat_head, runs);
            for (uint32_t i = begin; i < end; ++i) {
                const pkv_device_paged &at = number == 0 ? write_.layers[i].k : write_.layers[i].v;
                const pkv_device_flat &from = *flat(number, i);
                planes.push_back(
                    {static_cast<unsigned char *>(at.base), static_cast<unsigned char *>(from.base), at.scales});
                stored_at.add(at.base);
                flat_at.add(from.base);
            }
        }
        const uint64_t runs = params.side[0].runs + params.side[1].runs;
        if (runs == 0) return PKV_OK;

        Kernel kernel{Kernel::Op::write, 0, 0, 0, false};
        uint64_t unit_elements = 1;
        if (convert) {
            const uint64_t at_once = static_cast<uint64_t>(elements_at_once(layer.dtype, write_.flat_dtype));
            kernel.from = static_cast<uint8_t>(write_.flat_dtype), kernel.to = static_cast<uint8_t>(layer.dtype);
            kernel.vector = elements % at_once == 0 && stored_at.unit() >= at_once * stored_size &&
                            flat_at.unit() >= at_once * flat_size;
            if (kernel.vector) unit_elements = at_once;
        } else {
            kernel.unit = static_cast<uint8_t>(std::min(stored_at.unit(), flat_at.unit()));
            unit_elements = 0;
        }
        uint64_t units = 0;
        for (WriteSide &side : params.side) {
            side.units = static_cast<uint32_t>(unit_elements != 0 ? side.elements / unit_elements
                                                                  : side.elements * stored_size / kernel.unit);
            units = std::max<uint64_t>(units, side.units);
        }
        params.lanes_log2 = team_lanes_log2(units, runs, by_row ? 32 : 256, runner_, runner_.blocks_at_once(kernel));
        params.tokens = divider64(write_.num_slots);
        params.page_tokens = divider64(layer.page_tokens);
        params.num_pages = layer.num_pages;
        params.scales = {convert ? layer.scales : PKV_SCALES_NONE, layer.heads, layer.scale_page_stride};
        params.slot_bytes = write_.slot_bytes;
        params.slots = write_.slots_on_host != 0 ? arrays_.array(slots_) : device_array(write_.slots);
        arrays_.put(params.rest);
        params.planes_at = put_planes(params.rest, arrays_, planes);
        return launch(runner_, kernel, &params, sizeof params, runs, params.lanes_log2, write_.max_blocks, why_);
    }

    const pkv_device_write &write_;
    Runner &runner_;
    const Why &why_;
    HostArrays arrays_;
    uint64_t slots_ = 0;
};

pkv_status check(const pkv_device_write &write, const Why &why) {
    if (write.struct_size < sizeof(pkv_device_write))
        return why.fail(PKV_ERR_INVALID, "write: struct_size is %zu, not %zu", write.struct_size,
                        sizeof(pkv_device_write));
    if (write.num_layers == 0 || write.num_slots == 0) return PKV_OK;
    if (write.layers == nullptr || write.slots == nullptr)
        return why.fail(PKV_ERR_INVALID, "write: layers or slots is NULL");
    if (write.slot_bytes != 4 && write.slot_bytes != 8)
        return why.fail(PKV_ERR_INVALID, "write: slot_bytes is %u, neither 4 nor 8", write.slot_bytes);
    if (write.num_slots > uint64_t{1} << 40)
        return why.fail(PKV_ERR_LIMIT, "write: %" PRIu64 " slots", write.num_slots);
    for (uint32_t i = 0; i < write.num_layers; ++i) {
        const pkv_device_layer &layer = write.layers[i];
        if (const pkv_status status = check_layer(layer, i, why); status != PKV_OK) return status;
        if (layer.dtype != write.flat_dtype && !converts(layer.dtype, write.flat_dtype))
            return why.fail(PKV_ERR_UNSUPPORTED, "write: rows of dtype %d do not become dtype %d (layer %u)",
                            write.flat_dtype, layer.dtype, i);
        if (layer.dtype == write.flat_dtype && layer.scales == PKV_SCALES_TOKEN_HEAD)
            return why.fail(PKV_ERR_UNSUPPORTED,
                            "write: rows of dtype %d come without the scales that are kept for each (layer %u)",
                            write.flat_dtype, i);
    }
    return PKV_OK;
}

} // namespace

pkv_status plan_write(const pkv_device_write &write, Runner &runner, const Why &why) {
    if (const pkv_status status = check(write, why); status != PKV_OK) return status;
    if (write.num_layers == 0 || write.num_slots == 0) return PKV_OK;
    return WritePlan(write, runner, why).run();
}

} // namespace pkv::cuda
