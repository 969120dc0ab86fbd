// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda/plan.h"

#include "tensor/cuda/convert.cuh"

#include <algorithm>
#include <cinttypes>
#include <pagedkv/pool.h>

namespace pkv::cuda {
namespace {

class GatherPlan {
  public:
    GatherPlan(const pkv_device_gather &gather, Runner &runner, const Why &why)
        : gather_(gather), runner_(runner), why_(why) {}

    pkv_status run() {
        if (gather_.arrays_on_host != 0) {
            const uint64_t n = gather_.num_sequences;
            pages_ = arrays_.add(gather_.pages, gather_.num_pages * sizeof(int32_t));
            if (gather_.indptr != nullptr) indptr_ = arrays_.add(gather_.indptr, (n + 1) * sizeof(int32_t));
            if (gather_.first != nullptr) first_ = arrays_.add(gather_.first, n * sizeof(uint64_t));
            if (gather_.counts != nullptr) counts_ = arrays_.add(gather_.counts, n * sizeof(uint64_t));
            if (gather_.out_first != nullptr) out_first_ = arrays_.add(gather_.out_first, n * sizeof(uint64_t));
        }
        for (uint32_t begin = 0; begin < gather_.num_layers;) {
            uint32_t end = begin + 1;
            while (end < gather_.num_layers && together(begin, end)) ++end;
            if (const pkv_status status = run_layers(begin, end); status != PKV_OK) return status;
            begin = end;
        }
        return PKV_OK;
    }

  private:
    const pkv_device_flat *flat(int side, uint32_t layer) const {
        const pkv_device_flat *const list = side == 0 ? gather_.k : gather_.v;
        const pkv_device_paged &paged = side == 0 ? gather_.layers[layer].k : gather_.layers[layer].v;
        return list == nullptr || list[layer].base == nullptr || paged.row_bytes == 0 ? nullptr : &list[layer];
    }

    bool together(uint32_t a, uint32_t b) const {
        if (!same_shape(gather_.layers[a], gather_.layers[b])) return false;
        for (int side = 0; side < 2; ++side) {
            const pkv_device_flat *const x = flat(side, a);
            const pkv_device_flat *const y = flat(side, b);
            if ((x == nullptr) != (y == nullptr)) return false;
            if (x != nullptr && (x->token_stride != y->token_stride || x->head_stride != y->head_stride)) return false;
        }
        return true;
    }

    uint64_t most_rows() const { return std::max(gather_.max_count, gather_.padded); }

    /// Blocks that `rows` rows touch when the first of them stands at `begin` of its block.
    static uint64_t blocks_of(uint64_t begin, uint64_t rows, uint64_t page_tokens) {
        return rows == 0 ? 0 : (begin + rows - 1) / page_tokens + 1;
    }

    /// All layers of one shape: the access width and the tiles are chosen once, then launches take as many as they
    /// hold.
    pkv_status run_layers(uint32_t begin, uint32_t end) {
        const pkv_device_layer &layer = gather_.layers[begin];
        const bool convert = layer.dtype != gather_.flat_dtype;
        const uint64_t stored_size = element_size(layer.dtype);
        const uint64_t flat_size = convert ? element_size(gather_.flat_dtype) : stored_size;
        const bool by_head = convert && (layer.scales == PKV_SCALES_HEAD || layer.scales == PKV_SCALES_TOKEN_HEAD);
        TileSides sides[2];
        Alignment stored_at;
        Alignment flat_at;
        uint64_t elements = 0; // of all rows, as bits
        uint64_t token_elements = 0;
        uint64_t planes_of_layer = 0;
        for (int number = 0; number < 2; ++number) {
            const pkv_device_flat *const rows = flat(number, begin);
            if (rows == nullptr) continue;
            const pkv_device_paged &paged = number == 0 ? layer.k : layer.v;
            const uint64_t row_elements = paged.row_bytes / stored_size;
            sides[number] = {layer.heads,       paged.row_bytes,    row_elements * flat_size, paged.token_stride,
                             paged.head_stride, rows->token_stride, rows->head_stride,        by_head};
            const bool merged = heads_merge(sides[number]);
            const uint64_t run = row_elements * (merged ? layer.heads : 1);
            elements |= run;
            token_elements = std::max(token_elements, row_elements * layer.heads);
            stored_at.add(run * stored_size);
            stored_at.add(paged.page_stride, layer.num_pages);
            stored_at.add(paged.token_stride, layer.page_tokens);
            stored_at.add(paged.head_stride, merged ? 1 : layer.heads);
            flat_at.add(run * flat_size);
            flat_at.add(rows->token_stride, 2);
            flat_at.add(rows->head_stride, merged ? 1 : layer.heads);
            for (uint32_t i = begin; i < end; ++i) {
                stored_at.add(number == 0 ? gather_.layers[i].k.base : gather_.layers[i].v.base);
                flat_at.add(flat(number, i)->base);
            }
            ++planes_of_layer;
        }
        if (planes_of_layer == 0) return PKV_OK;

        Kernel kernel{Kernel::Op::gather, 0, 0, 0, false};
        uint64_t unit = 0; // bytes on the pages' side
        if (convert) {
            const uint64_t at_once = static_cast<uint64_t>(elements_at_once(layer.dtype, gather_.flat_dtype));
            kernel.from = static_cast<uint8_t>(layer.dtype), kernel.to = static_cast<uint8_t>(gather_.flat_dtype);
            kernel.vector = elements % at_once == 0 && stored_at.unit() >= at_once * stored_size &&
                            flat_at.unit() >= at_once * flat_size;
            unit = (kernel.vector ? at_once : 1) * stored_size;
        } else {
            kernel.unit = static_cast<uint8_t>(std::min(stored_at.unit(), flat_at.unit()));
            unit = kernel.unit;
        }
        const uint64_t pages = product_of(planes_of_layer * (end - begin), gather_.num_sequences,
                                          blocks_of(0, most_rows(), layer.page_tokens));
        const Tiling tiling = tile_pages(layer.page_tokens, token_elements * stored_size / unit, pages, runner_,
                                         runner_.blocks_at_once(kernel));

        HostArrays arrays = arrays_;
        const uint64_t tiles = count_tiles(layer.page_tokens, tiling.cut, arrays);
        if (const pkv_status status = arrays.stage(runner_, why_); status != PKV_OK) return status;
        const uint64_t most = planes_that_fit(arrays) / 2;
        for (uint32_t at = begin; at < end;) {
            const uint32_t stop = static_cast<uint32_t>(std::min<uint64_t>(end, at + most));
            GatherParams params;
            std::memset(static_cast<void *>(&params), 0, offsetof(GatherParams, rest));
            std::vector<Plane> planes;
            for (int number = 0; number < 2; ++number) {
                if (flat(number, at) == nullptr) continue;
                GatherSide &side = params.side[number];
                side.items = product_of(stop - at, tiles, exact_ ? 1 : gather_.num_sequences);
                side.page = number == 0 ? layer.k.page_stride : layer.v.page_stride;
                side.tile = tile_shape(sides[number], static_cast<uint32_t>(unit));
                side.planes = static_cast<uint32_t>(planes.size());
                for (uint32_t i = at; i < stop; ++i) {
                    const pkv_device_paged &from = number == 0 ? gather_.layers[i].k : gather_.layers[i].v;
                    planes.push_back({static_cast<unsigned char *>(from.base),
                                      static_cast<unsigned char *>(flat(number, i)->base), from.scales});
                }
            }
            const uint64_t items = params.side[0].items + params.side[1].items;
            if (items == 0) return PKV_OK;
            if (items >= uint64_t{1} << 60) return why_.fail(PKV_ERR_LIMIT, "gather: %" PRIu64 " tiles", items);
            params.cut = tiling.cut;
            params.tiles = divider64(tiles);
            params.sequences = divider64(gather_.num_sequences);
            params.page_tokens = divider64(layer.page_tokens);
            params.num_pages = layer.num_pages;
            params.entries = gather_.num_pages;
            params.pages_stride = gather_.pages_stride;
            params.max_count = gather_.max_count;
            params.padded = gather_.padded;
            params.num_sequences = gather_.num_sequences;
            params.scales = {convert ? layer.scales : PKV_SCALES_NONE, layer.heads, layer.scale_page_stride};
            params.first_token = gather_.first_token;
            params.out_stride = gather_.padded != 0 ? gather_.padded : gather_.max_count;
            params.has = (gather_.indptr != nullptr ? has_indptr : 0) | (gather_.first != nullptr ? has_first : 0) |
                         (gather_.counts != nullptr ? has_counts : 0) |
                         (gather_.out_first != nullptr ? has_out_first : 0) |
                         (exact_ && gather_.num_sequences > 1 ? has_tiles : 0);
            params.sequences = exact_ ? divider64(1) : params.sequences;
            params.lanes_log2 = tiling.lanes_log2;
            const bool on_host = gather_.arrays_on_host != 0;
            params.pages = on_host ? arrays.array(pages_) : device_array(gather_.pages);
            params.indptr = on_host ? arrays.array(indptr_) : device_array(gather_.indptr);
            params.first = on_host ? arrays.array(first_) : device_array(gather_.first);
            params.counts = on_host ? arrays.array(counts_) : device_array(gather_.counts);
            params.out_first = on_host ? arrays.array(out_first_) : device_array(gather_.out_first);
            if ((params.has & has_tiles) != 0) params.tile_first = arrays.array(tile_first_);
            arrays.put(params.rest);
            params.planes_at = put_planes(params.rest, arrays, planes);
            const pkv_status status =
                launch(runner_, kernel, &params, sizeof params, items, tiling.lanes_log2, gather_.max_blocks, why_);
            if (status != PKV_OK) return status;
            at = stop;
        }
        return PKV_OK;
    }

    /// Tiles of all sequences, exactly, where the arrays can be read here; else those that any sequence may have.
    uint64_t count_tiles(uint32_t page_tokens, const Cut &cut, HostArrays &arrays) {
        exact_ = gather_.arrays_on_host != 0;
        if (!exact_) return product_of(blocks_of(page_tokens - 1, most_rows(), page_tokens), cut.of_page.by);
        std::vector<uint64_t> before(gather_.num_sequences + 1);
        for (uint64_t i = 0; i < gather_.num_sequences; ++i) {
            const uint64_t rows =
                std::max(gather_.counts != nullptr ? gather_.counts[i] : gather_.max_count, gather_.padded);
            const uint64_t first = gather_.first != nullptr ? gather_.first[i] : gather_.first_token;
            before[i + 1] = before[i] + blocks_of(first % page_tokens, rows, page_tokens) * cut.of_page.by;
        }
        if (gather_.num_sequences > 1) tile_first_ = arrays.add(before.data(), before.size() * sizeof(uint64_t));
        return before.back();
    }

    const pkv_device_gather &gather_;
    Runner &runner_;
    const Why &why_;
    HostArrays arrays_;
    bool exact_ = false;
    uint64_t pages_ = 0, indptr_ = 0, first_ = 0, counts_ = 0, out_first_ = 0, tile_first_ = 0;
};

pkv_status check(const pkv_device_gather &gather, const Why &why) {
    if (gather.struct_size < sizeof(pkv_device_gather))
        return why.fail(PKV_ERR_INVALID, "gather: struct_size is %zu, not %zu", gather.struct_size,
                        sizeof(pkv_device_gather));
    if (gather.num_layers == 0 || gather.num_sequences == 0) return PKV_OK;
    if (gather.layers == nullptr) return why.fail(PKV_ERR_INVALID, "gather: layers is NULL");
    if (gather.pages == nullptr && gather.num_pages != 0) return why.fail(PKV_ERR_INVALID, "gather: pages is NULL");
    if (gather.num_sequences > uint64_t{1} << 32 || gather.max_count > uint64_t{1} << 40 ||
        gather.padded > uint64_t{1} << 40)
        return why.fail(PKV_ERR_LIMIT, "gather: %" PRIu64 " sequences of %" PRIu64 " tokens, padded to %" PRIu64,
                        gather.num_sequences, gather.max_count, gather.padded);
    for (uint32_t i = 0; i < gather.num_layers; ++i) {
        const pkv_device_layer &layer = gather.layers[i];
        if (const pkv_status status = check_layer(layer, i, why); status != PKV_OK) return status;
        if (layer.dtype != gather.flat_dtype && !converts(layer.dtype, gather.flat_dtype))
            return why.fail(PKV_ERR_UNSUPPORTED, "gather: rows of dtype %d do not become dtype %d (layer %u)",
                            layer.dtype, gather.flat_dtype, i);
    }
    if (gather.arrays_on_host == 0 || gather.counts == nullptr) return PKV_OK;
    for (uint64_t i = 0; i < gather.num_sequences; ++i) {
        if (gather.counts[i] > gather.max_count)
            return why.fail(PKV_ERR_INVALID, "gather: counts[%" PRIu64 "] is %" PRIu64 ", above max_count %" PRIu64, i,
                            gather.counts[i], gather.max_count);
    }
    return PKV_OK;
}

} // namespace

pkv_status plan_gather(const pkv_device_gather &gather, Runner &runner, const Why &why) {
    if (const pkv_status status = check(gather, why); status != PKV_OK) return status;
    if (gather.num_layers == 0 || gather.num_sequences == 0 || (gather.max_count == 0 && gather.padded == 0))
        return PKV_OK;
    Deferred deferred(runner);
    return deferred.finish(GatherPlan(gather, deferred, why).run(), why);
}

} // namespace pkv::cuda
