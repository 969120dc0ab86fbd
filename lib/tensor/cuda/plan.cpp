// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda/plan.h"

#include <algorithm>
#include <cinttypes>
#include <pagedkv/pool.h>
#include <pagedkv/tensor.h>

namespace pkv::cuda {

pkv_status Deferred::run(const Kernel &kernel, const void *params, size_t params_bytes, uint64_t blocks, const Why &) {
    const auto *const bytes = static_cast<const std::byte *>(params);
    launches_.push_back({kernel, blocks, std::vector<std::byte>(bytes, bytes + params_bytes)});
    return PKV_OK;
}

pkv_status Deferred::finish(pkv_status plan, const Why &why) {
    for (const Launch &launch : launches_)
        if (plan == PKV_OK)
            plan = runner_.run(launch.kernel, launch.params.data(), launch.params.size(), launch.blocks, why);
    return plan;
}

uint64_t HostArrays::add(const void *bytes, uint64_t count) {
    const uint64_t begin = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(begin + count);
    if (count != 0) std::memcpy(bytes_.data() + begin, bytes, count);
    return begin;
}

pkv_status HostArrays::stage(Runner &runner, const Why &why) {
    if (bytes_.size() <= small) return PKV_OK;
    return runner.stage(bytes_.data(), bytes_.size(), staged_, why);
}

void HostArrays::put(Inline &rest) const {
    if (staged_ == nullptr && !bytes_.empty()) std::memcpy(rest.bytes, bytes_.data(), bytes_.size());
}

Array HostArrays::array(uint64_t offset) const {
    return staged_ != nullptr ? Array{staged_ + offset, 0} : Array{nullptr, offset};
}

uint32_t put_planes(Inline &rest, const HostArrays &arrays, const std::vector<Plane> &planes) {
    const uint64_t offset = (arrays.inline_bytes_used() + 7) / 8 * 8;
    if (!planes.empty()) std::memcpy(rest.bytes + offset, planes.data(), planes.size() * sizeof(Plane));
    return static_cast<uint32_t>(offset);
}

uint64_t element_size(int32_t dtype) {
    switch (dtype) {
    case PKV_DTYPE_F32: return 4;
    case PKV_DTYPE_F16:
    case PKV_DTYPE_BF16: return 2;
    default: return 1;
    }
}

bool converts(int32_t stored, int32_t flat) {
    return stored != flat && flat >= PKV_DTYPE_F32 && flat <= PKV_DTYPE_BF16 && stored >= PKV_DTYPE_F32 &&
           stored <= PKV_DTYPE_I8;
}

uint64_t product_of(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t result = 0;
    if (__builtin_mul_overflow(a, b, &result) || __builtin_mul_overflow(result, c, &result)) return UINT64_MAX;
    return result;
}

pkv_status check_layer(const pkv_device_layer &layer, uint32_t number, const Why &why) {
    if (layer.page_tokens == 0 || layer.heads == 0 || layer.k.row_bytes == 0)
        return why.fail(PKV_ERR_INVALID, "layer %u: page_tokens %u, heads %u or row_bytes %" PRIu64 " is 0", number,
                        layer.page_tokens, layer.heads, layer.k.row_bytes);
    if (layer.dtype < PKV_DTYPE_F32 || layer.dtype > PKV_DTYPE_OPAQUE)
        return why.fail(PKV_ERR_INVALID, "layer %u: dtype %d is none of PKV_DTYPE_*", number, layer.dtype);
    if (layer.scales < PKV_SCALES_NONE || layer.scales > PKV_SCALES_TOKEN_HEAD)
        return why.fail(PKV_ERR_INVALID, "layer %u: scales %d are none of PKV_SCALES_*", number, layer.scales);
    if (layer.scales != PKV_SCALES_NONE && (layer.dtype < PKV_DTYPE_F8_E4M3 || layer.dtype > PKV_DTYPE_I8))
        return why.fail(PKV_ERR_INVALID, "layer %u: scales, but dtype %d has none", number, layer.dtype);
    if (layer.num_pages > uint64_t{INT32_MAX} + 1)
        return why.fail(PKV_ERR_INVALID, "layer %u: %" PRIu64 " pages", number, layer.num_pages);
    for (const pkv_device_paged *side : {&layer.k, &layer.v}) {
        if (side->row_bytes == 0) continue;
        const char *const name = side == &layer.k ? "k" : "v";
        if (side->base == nullptr) return why.fail(PKV_ERR_INVALID, "layer %u: %s has no address", number, name);
        if (side->row_bytes % element_size(layer.dtype) != 0)
            return why.fail(PKV_ERR_INVALID,
                            "layer %u: rows of %" PRIu64 " bytes of %s are no whole elements of dtype %d", number,
                            side->row_bytes, name, layer.dtype);
        if (product_of(side->row_bytes, layer.heads) > INT32_MAX)
            return why.fail(PKV_ERR_LIMIT, "layer %u: a token has %u rows of %" PRIu64 " bytes in %s", number,
                            layer.heads, side->row_bytes, name);
        if (layer.scales != PKV_SCALES_NONE &&
            (side->scales == nullptr ||
             (reinterpret_cast<uintptr_t>(side->scales) | layer.scale_page_stride) % sizeof(float) != 0))
            return why.fail(PKV_ERR_INVALID, "layer %u: the scales of %s have no address, or one that is no float's",
                            number, name);
    }
    return PKV_OK;
}

namespace {

bool same_side(const pkv_device_paged &a, const pkv_device_paged &b) {
    return a.page_stride == b.page_stride && a.token_stride == b.token_stride && a.head_stride == b.head_stride &&
           a.row_bytes == b.row_bytes;
}

uint32_t log2_up(uint64_t n) { return n <= 1 ? 0 : static_cast<uint32_t>(std::bit_width(n - 1)); }
uint32_t log2_down(uint64_t n) { return static_cast<uint32_t>(std::bit_width(n)) - 1; }

} // namespace

bool same_shape(const pkv_device_layer &a, const pkv_device_layer &b) {
    return same_side(a.k, b.k) && same_side(a.v, b.v) && a.page_tokens == b.page_tokens && a.heads == b.heads &&
           a.dtype == b.dtype && a.scales == b.scales && a.scale_page_stride == b.scale_page_stride &&
           a.num_pages == b.num_pages;
}

uint32_t team_lanes_log2(uint64_t units, uint64_t runs, uint32_t most, const Runner &runner, uint64_t blocks_at_once) {
    const uint32_t limit = log2_down(std::min<uint64_t>(most, runner.threads()));
    const uint32_t one_each = log2_up(units);
    // Little work: the time is that of one access after another, so that each thread should have one.
    if (product_of(runs, uint64_t{1} << one_each) <= product_of(blocks_at_once, runner.threads()))
        return std::min(one_each, limit);
    // Much work: each thread has several under way, and a warp's accesses are still neighbours.
    const uint32_t batch = log2_up((units + batch_units - 1) / batch_units);
    const uint32_t neighbours = std::min(one_each, uint32_t{3});
    return std::min({std::max(batch, neighbours), uint32_t{5}, limit});
}

Tiling tile_pages(uint32_t page_tokens, uint64_t units, uint64_t pages, const Runner &runner, uint64_t blocks_at_once) {
    const uint64_t threads = runner.threads();
    const uint64_t total = product_of(product_of(page_tokens, units), pages);
    const bool little = total <= product_of(blocks_at_once, threads, batch_units);
    // A block's worth of batches; of little work, an equal part for each block.
    const uint64_t wanted =
        little ? std::max<uint64_t>(total / std::max<uint64_t>(blocks_at_once, 1), 1) : threads * batch_units;
    uint64_t tokens = std::clamp<uint64_t>(wanted / std::max<uint64_t>(units, 1), 1, page_tokens);
    const uint64_t limit = std::max<uint64_t>(INT32_MAX / std::max<uint64_t>(units, 1), 1);
    tokens = std::min(tokens, limit);
    const uint64_t tiles = (page_tokens + tokens - 1) / tokens;
    tokens = (page_tokens + tiles - 1) / tiles;
    const uint64_t tile_units = tokens * units;
    const uint64_t each = little ? 1 : batch_units;
    Tiling tiling;
    tiling.cut = {static_cast<uint32_t>(tokens), page_tokens, divider64((page_tokens + tokens - 1) / tokens)};
    tiling.lanes_log2 = std::min(log2_up((tile_units + each - 1) / each), log2_down(threads));
    return tiling;
}

bool heads_merge(const TileSides &sides) {
    return sides.heads == 1 ||
           (!sides.keep_heads && sides.src_head == sides.src_run && sides.dst_head == sides.dst_run);
}

TileShape tile_shape(const TileSides &sides, uint32_t unit) {
    TileShape shape{};
    const bool merged = heads_merge(sides);
    const uint64_t runs = merged ? 1 : sides.heads;
    const uint64_t together = merged ? sides.heads : 1;
    shape.src_token = sides.src_token, shape.src_head = sides.src_head;
    shape.dst_token = sides.dst_token, shape.dst_head = sides.dst_head;
    shape.units = divider32(static_cast<uint32_t>(together * sides.src_run / unit));
    shape.runs = divider32(static_cast<uint32_t>(runs));
    shape.one_run = merged && !sides.keep_heads && sides.src_token == together * sides.src_run &&
                    sides.dst_token == together * sides.dst_run;
    // Where the destination takes its shorter steps: what is written in one go should be neighbours.
    shape.tokens_inside = runs > 1 && sides.dst_token < sides.dst_head;
    return shape;
}

pkv_status launch(Runner &runner, const Kernel &kernel, const void *params, size_t params_bytes, uint64_t items,
                  uint32_t lanes_log2, uint32_t max_blocks, const Why &why) {
    if (items == 0) return PKV_OK;
    const uint64_t teams = std::max<uint64_t>(runner.threads() >> lanes_log2, 1);
    uint64_t blocks =
        std::min(items / teams + (items % teams != 0 ? 1 : 0), std::max<uint64_t>(runner.blocks_at_once(kernel), 1));
    if (max_blocks != 0) blocks = std::min<uint64_t>(blocks, max_blocks);
    return runner.run(kernel, params, params_bytes, blocks, why);
}

} // namespace pkv::cuda
