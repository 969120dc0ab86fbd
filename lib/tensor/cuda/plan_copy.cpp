// SPDX-License-Identifier: Apache-2.0
// Pages to pages, and pages to slices of images and back. The scales of token and head are moved as rows of their own.
#include "tensor/cuda/plan.h"

#include <algorithm>
#include <cinttypes>
#include <pagedkv/pool.h>
#include <pagedkv/tensor.h>

namespace pkv::cuda {
namespace {

const pkv_device_paged &side_of(const pkv_device_layer &layer, int number) { return number == 0 ? layer.k : layer.v; }

/// The scales of token and head as a layer of opaque rows: one a token.
pkv_device_layer scale_rows(const pkv_device_layer &layer) {
    pkv_device_layer rows = layer;
    rows.heads = 1;
    rows.dtype = PKV_DTYPE_OPAQUE;
    rows.scales = PKV_SCALES_NONE;
    for (pkv_device_paged *side : {&rows.k, &rows.v}) {
        if (side->row_bytes == 0) continue;
        const uint64_t bytes = layer.heads * sizeof(float);
        *side = {side->scales, layer.scale_page_stride, bytes, bytes, bytes, nullptr};
    }
    return rows;
}

std::vector<pkv_device_layer> scale_layers(const pkv_device_layer *layers, uint32_t count) {
    std::vector<pkv_device_layer> rows;
    for (uint32_t i = 0; i < count; ++i) rows.push_back(scale_rows(layers[i]));
    return rows;
}

bool has_row_scales(const pkv_device_layer *layers, uint32_t count) {
    return std::any_of(layers, layers + count,
                       [](const pkv_device_layer &layer) { return layer.scales == PKV_SCALES_TOKEN_HEAD; });
}

// ---- pages ----------------------------------------------------------------------------------------------------------

pkv_status check(const PagePairs &pairs, const Why &why) {
    if (pairs.from == nullptr || pairs.to == nullptr || pairs.src == nullptr || pairs.dst == nullptr ||
        pairs.tokens == nullptr)
        return why.fail(PKV_ERR_INVALID, "copy: layers, src, dst or tokens is NULL");
    for (uint32_t i = 0; i < pairs.num_layers; ++i) {
        const pkv_device_layer &from = pairs.from[i];
        const pkv_device_layer &to = pairs.to[i];
        if (const pkv_status status = check_layer(from, i, why); status != PKV_OK) return status;
        if (const pkv_status status = check_layer(to, i, why); status != PKV_OK) return status;
        if (from.dtype != to.dtype || from.heads != to.heads || from.page_tokens != to.page_tokens ||
            from.k.row_bytes != to.k.row_bytes || from.v.row_bytes != to.v.row_bytes)
            return why.fail(PKV_ERR_INVALID,
                            "copy: layer %u has dtype %d, %u heads, %u tokens a page, rows of %" PRIu64 " and %" PRIu64
                            " bytes on one side, %d, %u, %u, %" PRIu64 " and %" PRIu64 " on the other",
                            i, from.dtype, from.heads, from.page_tokens, from.k.row_bytes, from.v.row_bytes, to.dtype,
                            to.heads, to.page_tokens, to.k.row_bytes, to.v.row_bytes);
        if ((from.scales == PKV_SCALES_TOKEN_HEAD) != (to.scales == PKV_SCALES_TOKEN_HEAD))
            return why.fail(PKV_ERR_INVALID, "copy: layer %u has scales %d on one side, %d on the other", i,
                            from.scales, to.scales);
        for (uint64_t j = 0; j < pairs.num_pages; ++j) {
            if (pairs.src[j] < 0 || static_cast<uint64_t>(pairs.src[j]) >= from.num_pages || pairs.dst[j] < 0 ||
                static_cast<uint64_t>(pairs.dst[j]) >= to.num_pages || pairs.tokens[j] > from.page_tokens)
                return why.fail(PKV_ERR_INVALID,
                                "copy: %u tokens of page %d of %" PRIu64 " to page %d of %" PRIu64 ", in pages of %u",
                                pairs.tokens[j], pairs.src[j], from.num_pages, pairs.dst[j], to.num_pages,
                                from.page_tokens);
            if (i > 0 && same_shape(from, pairs.from[i - 1]) && same_shape(to, pairs.to[i - 1])) break; // seen already
        }
    }
    return PKV_OK;
}

class CopyPlan {
  public:
    CopyPlan(const PagePairs &pairs, Runner &runner, const Why &why) : pairs_(pairs), runner_(runner), why_(why) {}

    pkv_status run() {
        src_ = arrays_.add(pairs_.src, pairs_.num_pages * sizeof(int32_t));
        dst_ = arrays_.add(pairs_.dst, pairs_.num_pages * sizeof(int32_t));
        tokens_ = arrays_.add(pairs_.tokens, pairs_.num_pages * sizeof(uint32_t));
        if (const pkv_status status = arrays_.stage(runner_, why_); status != PKV_OK) return status;
        if (const pkv_status status = run_all(pairs_.from, pairs_.to, false); status != PKV_OK) return status;
        if (!has_row_scales(pairs_.from, pairs_.num_layers)) return PKV_OK;
        const std::vector<pkv_device_layer> from = scale_layers(pairs_.from, pairs_.num_layers);
        const std::vector<pkv_device_layer> to = scale_layers(pairs_.to, pairs_.num_layers);
        return run_all(from.data(), to.data(), true);
    }

  private:
    pkv_status run_all(const pkv_device_layer *from, const pkv_device_layer *to, bool scales) {
        const uint64_t most = planes_that_fit(arrays_) / 2;
        for (uint32_t begin = 0; begin < pairs_.num_layers;) {
            uint32_t end = begin + 1;
            if (scales && pairs_.from[begin].scales != PKV_SCALES_TOKEN_HEAD) {
                begin = end;
                continue;
            }
            while (end < pairs_.num_layers && end - begin < most && same_shape(from[begin], from[end]) &&
                   same_shape(to[begin], to[end]) && pairs_.from[begin].scales == pairs_.from[end].scales)
                ++end;
            if (const pkv_status status = run_layers(from, to, begin, end); status != PKV_OK) return status;
            begin = end;
        }
        return PKV_OK;
    }

    pkv_status run_layers(const pkv_device_layer *from, const pkv_device_layer *to, uint32_t begin, uint32_t end) {
        const pkv_device_layer &layer = from[begin];
        CopyParams params;
        std::memset(static_cast<void *>(&params), 0, offsetof(CopyParams, rest));
        Alignment at;
        TileSides sides[2];
        std::vector<Plane> planes;
        uint64_t token_bytes = 0;
        uint64_t num_planes = 0;
        for (int number = 0; number < 2; ++number) {
            const pkv_device_paged &src = side_of(layer, number);
            const pkv_device_paged &dst = side_of(to[begin], number);
            if (src.row_bytes == 0) continue;
            sides[number] = {layer.heads,     src.row_bytes,    dst.row_bytes,   src.token_stride,
                             src.head_stride, dst.token_stride, dst.head_stride, false};
            const bool merged = heads_merge(sides[number]);
            token_bytes = std::max(token_bytes, src.row_bytes * layer.heads);
            at.add(src.row_bytes * (merged ? layer.heads : 1));
            at.add(src.page_stride, layer.num_pages);
            at.add(dst.page_stride, to[begin].num_pages);
            at.add(src.token_stride | dst.token_stride, layer.page_tokens);
            at.add(src.head_stride | dst.head_stride, merged ? 1 : layer.heads);
            params.side[number].src_page = src.page_stride, params.side[number].dst_page = dst.page_stride;
            params.side[number].planes = static_cast<uint32_t>(planes.size());
            for (uint32_t i = begin; i < end; ++i, ++num_planes) {
                planes.push_back({static_cast<unsigned char *>(side_of(to[i], number).base),
                                  static_cast<unsigned char *>(side_of(from[i], number).base), nullptr});
                at.add(planes.back().pages);
                at.add(planes.back().flat);
            }
        }
        const Kernel kernel{Kernel::Op::copy, static_cast<uint8_t>(at.unit()), 0, 0, false};
        const Tiling tiling =
            tile_pages(layer.page_tokens, token_bytes / kernel.unit, product_of(num_planes, pairs_.num_pages), runner_,
                       runner_.blocks_at_once(kernel));
        uint64_t items = 0;
        for (int number = 0; number < 2; ++number) {
            if (side_of(layer, number).row_bytes == 0) continue;
            params.side[number].tile = tile_shape(sides[number], kernel.unit);
            params.side[number].items = product_of(end - begin, pairs_.num_pages, tiling.cut.of_page.by);
            items += params.side[number].items;
        }
        params.cut = tiling.cut;
        params.lanes_log2 = tiling.lanes_log2;
        params.pairs = divider64(pairs_.num_pages);
        params.src = arrays_.array(src_), params.dst = arrays_.array(dst_), params.tokens = arrays_.array(tokens_);
        arrays_.put(params.rest);
        params.planes_at = put_planes(params.rest, arrays_, planes);
        return launch(runner_, kernel, &params, sizeof params, items, tiling.lanes_log2, pairs_.max_blocks, why_);
    }

    const PagePairs &pairs_;
    Runner &runner_;
    const Why &why_;
    HostArrays arrays_;
    uint64_t src_ = 0, dst_ = 0, tokens_ = 0;
};

// ---- slices ---------------------------------------------------------------------------------------------------------

pkv_status check(const SliceList &list, const Why &why) {
    if (list.layers == nullptr || list.slices == nullptr)
        return why.fail(PKV_ERR_INVALID, "slices: layers or slices is NULL");
    for (uint32_t i = 0; i < list.num_layers; ++i)
        if (const pkv_status status = check_layer(list.layers[i], i, why); status != PKV_OK) return status;
    for (uint64_t i = 0; i < list.num_slices; ++i) {
        const pkv_device_slice &slice = list.slices[i];
        if (slice.layer >= list.num_layers)
            return why.fail(PKV_ERR_INVALID, "slices[%" PRIu64 "]: layer %u of %u", i, slice.layer, list.num_layers);
        const pkv_device_layer &layer = list.layers[slice.layer];
        if (slice.page < 0 || static_cast<uint64_t>(slice.page) >= layer.num_pages || slice.tokens > layer.page_tokens)
            return why.fail(PKV_ERR_INVALID, "slices[%" PRIu64 "]: %u tokens of page %d, in %" PRIu64 " pages of %u", i,
                            slice.tokens, slice.page, layer.num_pages, layer.page_tokens);
        if (slice.layout != PKV_LAYOUT_NHD && slice.layout != PKV_LAYOUT_HND)
            return why.fail(PKV_ERR_INVALID, "slices[%" PRIu64 "]: layout %d is none of PKV_LAYOUT_*", i, slice.layout);
        if (slice.bytes == nullptr) return why.fail(PKV_ERR_INVALID, "slices[%" PRIu64 "]: bytes is NULL", i);
        if (slice.scales == nullptr && layer.scales == PKV_SCALES_TOKEN_HEAD)
            return why.fail(PKV_ERR_INVALID, "slices[%" PRIu64 "]: scales is NULL, and its rows have some", i);
    }
    return PKV_OK;
}

class SlicePlan {
  public:
    SlicePlan(const SliceList &list, bool pack, Runner &runner, const Why &why)
        : list_(list), pack_(pack), runner_(runner), why_(why) {}

    pkv_status run() {
        if (const pkv_status status = run_all(list_.layers, false); status != PKV_OK) return status;
        if (!has_row_scales(list_.layers, list_.num_layers)) return PKV_OK;
        return run_all(scale_layers(list_.layers, list_.num_layers).data(), true);
    }

  private:
    /// The most layers of a launch, whatever else is in its parameters.
    static constexpr uint32_t most = (inline_bytes - HostArrays::small) / sizeof(Plane) / 2;

    pkv_status run_all(const pkv_device_layer *layers, bool scales) {
        for (uint32_t begin = 0; begin < list_.num_layers;) {
            uint32_t end = begin + 1;
            while (end < list_.num_layers && end - begin < most && same_shape(layers[begin], layers[end]) &&
                   list_.layers[begin].scales == list_.layers[end].scales)
                ++end;
            if (!scales || list_.layers[begin].scales == PKV_SCALES_TOKEN_HEAD) {
                if (const pkv_status status = run_layers(layers, begin, end, scales); status != PKV_OK) return status;
            }
            begin = end;
        }
        return PKV_OK;
    }

    pkv_status run_layers(const pkv_device_layer *layers, uint32_t begin, uint32_t end, bool scales) {
        const pkv_device_layer &layer = layers[begin];
        Alignment at;
        std::vector<SliceEntry> entries;
        for (uint64_t i = 0; i < list_.num_slices; ++i) {
            const pkv_device_slice &slice = list_.slices[i];
            if (slice.layer < begin || slice.layer >= end) continue;
            void *const bytes = scales ? slice.scales : slice.bytes;
            at.add(bytes);
            entries.push_back({static_cast<unsigned char *>(bytes), slice.page, slice.layer - begin, slice.tokens,
                               scales ? PKV_LAYOUT_NHD : slice.layout});
        }
        if (entries.empty()) return PKV_OK;
        HostArrays arrays;
        const uint64_t entries_at = arrays.add(entries.data(), entries.size() * sizeof(SliceEntry));
        if (const pkv_status status = arrays.stage(runner_, why_); status != PKV_OK) return status;

        SliceParams params;
        std::memset(static_cast<void *>(&params), 0, offsetof(SliceParams, rest));
        TileSides sides[2][2];
        std::vector<Plane> planes;
        uint64_t offset = 0;
        uint64_t token_bytes = 0;
        for (int number = 0; number < 2; ++number) {
            const pkv_device_paged &paged = side_of(layer, number);
            if (paged.row_bytes == 0) continue;
            SliceSide &side = params.side[params.num_sides++];
            const uint64_t row = paged.row_bytes;
            side.offset = offset;
            offset += product_of(layer.page_tokens, layer.heads, row);
            token_bytes = std::max(token_bytes, row * layer.heads);
            side.page = paged.page_stride, side.token = paged.token_stride;
            side.planes = static_cast<uint32_t>(planes.size());
            at.add(row);
            at.add(paged.page_stride, layer.num_pages);
            at.add(paged.token_stride, layer.page_tokens);
            at.add(paged.head_stride, layer.heads);
            for (int layout = PKV_LAYOUT_NHD; layout <= PKV_LAYOUT_HND; ++layout) {
                const bool by_token = layout == PKV_LAYOUT_NHD;
                const uint64_t token = by_token ? layer.heads * row : row;
                const uint64_t head = by_token ? row : layer.page_tokens * row;
                side.slice_token[layout] = token;
                sides[number][layout] =
                    pack_ ? TileSides{layer.heads, row, row, paged.token_stride, paged.head_stride, token, head, false}
                          : TileSides{layer.heads, row, row, token, head, paged.token_stride, paged.head_stride, false};
            }
            for (uint32_t i = begin; i < end; ++i) {
                planes.push_back({static_cast<unsigned char *>(side_of(layers[i], number).base), nullptr, nullptr});
                at.add(planes.back().pages);
            }
        }
        const Kernel kernel{Kernel::Op::slices, static_cast<uint8_t>(at.unit()), 0, 0, false};
        const Tiling tiling =
            tile_pages(layer.page_tokens, token_bytes / kernel.unit, product_of(entries.size(), params.num_sides),
                       runner_, runner_.blocks_at_once(kernel));
        for (int number = 0, side = 0; number < 2; ++number) {
            if (side_of(layer, number).row_bytes == 0) continue;
            for (int layout = 0; layout < 2; ++layout)
                params.side[side].tile[layout] = tile_shape(sides[number][layout], kernel.unit);
            ++side;
        }
        params.items = product_of(entries.size(), params.num_sides, tiling.cut.of_page.by);
        params.cut = tiling.cut;
        params.pack = pack_ ? 1 : 0;
        params.lanes_log2 = tiling.lanes_log2;
        params.slices = arrays.array(entries_at);
        arrays.put(params.rest);
        params.planes_at = put_planes(params.rest, arrays, planes);
        return launch(runner_, kernel, &params, sizeof params, params.items, tiling.lanes_log2, list_.max_blocks, why_);
    }

    const SliceList &list_;
    const bool pack_;
    Runner &runner_;
    const Why &why_;
};

} // namespace

pkv_status plan_copy(const PagePairs &pairs, Runner &runner, const Why &why) {
    if (pairs.num_layers == 0 || pairs.num_pages == 0) return PKV_OK;
    if (const pkv_status status = check(pairs, why); status != PKV_OK) return status;
    return CopyPlan(pairs, runner, why).run();
}

pkv_status plan_slices(const SliceList &list, bool pack, Runner &runner, const Why &why) {
    if (list.num_slices == 0) return PKV_OK;
    if (const pkv_status status = check(list, why); status != PKV_OK) return status;
    Deferred deferred(runner);
    return deferred.finish(SlicePlan(list, pack, deferred, why).run(), why);
}

} // namespace pkv::cuda
