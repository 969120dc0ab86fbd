// SPDX-License-Identifier: Apache-2.0
#include "layout/memory.h"

#include "core/status.h"

#include <pagedkv/stats.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <sys/mman.h>

namespace pkv {
namespace {

constexpr uint64_t huge_page = uint64_t{2} << 20;

uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

} // namespace

PageMemory::~PageMemory() {
    if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

pkv_status PageMemory::map(uint64_t bytes, int32_t huge_pages) {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    constexpr int access = PROT_READ | PROT_WRITE;
    if (huge_pages == PKV_HUGE_PAGES_REQUIRE) {
        // Reserved at once (no MAP_NORESERVE): a missing huge page must be an error now, not a SIGBUS later.
        mapping_bytes_ = round_up(bytes, huge_page);
        void *memory = mmap(nullptr, mapping_bytes_, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
        if (memory == MAP_FAILED)
            return fail(PKV_ERR_NO_MEMORY, "%" PRIu64 " bytes in reserved huge pages: %s (see vm.nr_hugepages)",
                        mapping_bytes_, std::strerror(errno));
        mapping_ = memory;
        base_ = static_cast<std::byte *>(memory);
        kind_ = PKV_MEMORY_KIND_HUGETLB;
        return PKV_OK;
    }
    mapping_bytes_ = round_up(bytes, huge_page) + huge_page; // so that the base can be aligned
    void *memory = mmap(nullptr, mapping_bytes_, access, flags, -1, 0);
    if (memory == MAP_FAILED)
        return fail(PKV_ERR_NO_MEMORY, "%" PRIu64 " bytes for pages: %s", mapping_bytes_, std::strerror(errno));
    mapping_ = memory;
    base_ = reinterpret_cast<std::byte *>(round_up(reinterpret_cast<uintptr_t>(memory), huge_page));
    kind_ = PKV_MEMORY_KIND_PAGES;
    if (huge_pages == PKV_HUGE_PAGES_AUTO && bytes >= huge_page) {
        if (madvise(base_, round_up(bytes, huge_page), MADV_HUGEPAGE) == 0)
            kind_ = PKV_MEMORY_KIND_TRANSPARENT_HUGE;
        else
            log_message(PKV_LOG_WARNING, "pool of %" PRIu64 " bytes without transparent huge pages: %s", bytes,
                        std::strerror(errno));
    }
    return PKV_OK;
}

void PageMemory::place_layers(const Geometry &geometry, std::byte *base) {
    layers_.resize(geometry.num_layers);
    for (uint32_t i = 0; i < geometry.num_layers; ++i) {
        auto side = [&](std::byte *first, const Strides &strides, uint64_t row_bytes) {
            return PagedRows{row_bytes != 0 ? first : nullptr, strides, geometry.page_tokens, geometry.heads,
                             row_bytes};
        };
        std::byte *k = nullptr;
        std::byte *v = nullptr;
        if (geometry.memory == PKV_MEMORY_CALLER) {
            k = static_cast<std::byte *>(geometry.caller_k[i]);
            if (geometry.v_row_bytes != 0) v = static_cast<std::byte *>(geometry.caller_v[i]);
        } else {
            k = base + uint64_t{i} * geometry.layer_stride;
            v = k + geometry.v_offset;
        }
        layers_[i].k = side(k, geometry.k_strides, geometry.k_row_bytes);
        layers_[i].v = side(v, geometry.v_strides, geometry.v_row_bytes);
    }
}

namespace {

/// Bytes of the scales of rows of K or V of one layer of a page.
uint64_t side_scale_bytes(const Geometry &geometry) {
    return uint64_t{geometry.page_tokens} * geometry.heads * sizeof(float);
}

uint64_t num_sides(const Geometry &geometry) { return geometry.v_row_bytes != 0 ? 2 : 1; }

} // namespace

pkv_status PageMemory::row_scale_bytes(const Geometry &geometry, uint64_t &bytes) {
    bytes = 0;
    if (geometry.scales != PKV_SCALES_TOKEN_HEAD) return PKV_OK;
    const uint64_t page = side_scale_bytes(geometry) * num_sides(geometry) * geometry.num_layers;
    if (__builtin_mul_overflow(page, geometry.num_pages, &bytes))
        return fail(PKV_ERR_NO_MEMORY, "%" PRIu64 " bytes of scales for %" PRIu64 " pages", page, geometry.num_pages);
    return PKV_OK;
}

void PageMemory::place_scales(const Geometry &geometry, std::byte *row_scales, const float *fixed) {
    scales_.resize(geometry.num_layers);
    const uint64_t sides = num_sides(geometry);
    const uint64_t side_bytes = side_scale_bytes(geometry);
    if (geometry.scales == PKV_SCALES_TOKEN_HEAD) scale_page_stride_ = side_bytes * sides * geometry.num_layers;
    const uint64_t per_layer = geometry.scales == PKV_SCALES_HEAD ? geometry.heads : 1;
    for (uint32_t layer = 0; layer < geometry.num_layers; ++layer)
        for (uint64_t side = 0; side < sides; ++side) {
            RowScales &scales = side == 0 ? scales_[layer].k : scales_[layer].v;
            scales.kind = geometry.scales;
            scales.heads = geometry.heads;
            scales.page_stride = scale_page_stride_;
            if (scale_page_stride_ != 0) scales.rows = row_scales + (layer * sides + side) * side_bytes;
            if (!geometry.k_scales.empty()) scales.fixed = fixed + side * geometry.k_scales.size() + layer * per_layer;
        }
}

pkv_status PageMemory::begin(const Geometry &geometry) {
    page_tokens_ = geometry.page_tokens;
    aux_bytes_ = geometry.aux_bytes;
    if (aux_bytes_ != 0 && !aux_.reserve(geometry.num_pages * aux_bytes_))
        return fail(PKV_ERR_NO_MEMORY, "%u aux bytes for %" PRIu64 " pages", aux_bytes_, geometry.num_pages);
    kind_ = geometry.memory == PKV_MEMORY_CALLER ? PKV_MEMORY_KIND_CALLER : PKV_MEMORY_KIND_NONE;
    return PKV_OK;
}

pkv_status PageMemory::create(const Geometry &geometry, int32_t huge_pages) {
    PKV_TRY(begin(geometry));
    if (geometry.memory == PKV_MEMORY_NONE) return PKV_OK;
    if (geometry.memory == PKV_MEMORY_POOL) PKV_TRY(map(geometry.memory_bytes, huge_pages));
    uint64_t scale_bytes = 0;
    PKV_TRY(row_scale_bytes(geometry, scale_bytes));
    if (scale_bytes != 0 && !row_scales_.reserve(scale_bytes))
        return fail(PKV_ERR_NO_MEMORY, "%" PRIu64 " bytes of scales for %" PRIu64 " pages", scale_bytes,
                    geometry.num_pages);
    fixed_scales_ = geometry.k_scales;
    fixed_scales_.insert(fixed_scales_.end(), geometry.v_scales.begin(), geometry.v_scales.end());
    place_scales(geometry, row_scales_.data(), fixed_scales_.data());
    place_layers(geometry, base_);
    return PKV_OK;
}

pkv_status PageMemory::create_on_device(const Geometry &geometry, const DevicePlaces &places) {
    PKV_TRY(begin(geometry));
    if (geometry.memory == PKV_MEMORY_NONE) return PKV_OK;
    if (geometry.memory == PKV_MEMORY_POOL) kind_ = PKV_MEMORY_KIND_DEVICE;
    place_scales(geometry, places.row_scales, places.fixed_scales);
    place_layers(geometry, places.rows);
    return PKV_OK;
}

void PageMemory::copy_beside(pkv_page src, pkv_page dst, uint32_t tokens) {
    for (const LayerScales &layer : scales_)
        for (const RowScales *side : {&layer.k, &layer.v})
            if (side->rows != nullptr)
                std::memcpy(side->row(static_cast<uint64_t>(dst), 0, 0), side->row(static_cast<uint64_t>(src), 0, 0),
                            uint64_t{tokens} * side->heads * sizeof(float));
    copy_aux(src, dst, tokens);
}

void PageMemory::copy_aux(pkv_page src, pkv_page dst, uint32_t tokens) {
    if (aux_bytes_ != 0 && tokens == page_tokens_) std::memcpy(aux(dst), aux(src), aux_bytes_);
}

void PageMemory::fill_page(pkv_page page, unsigned char value) {
    for (const LayerRows &layer : layers_)
        for (const PagedRows *rows : {&layer.k, &layer.v}) {
            if (rows->row_bytes == 0) continue;
            for (uint32_t token = 0; token < rows->page_tokens; ++token)
                for (uint32_t head = 0; head < rows->heads; ++head)
                    std::memset(rows->row(static_cast<uint64_t>(page), token, head), value, rows->row_bytes);
        }
    if (scale_page_stride_ != 0)
        std::memset(row_scales_.data() + static_cast<uint64_t>(page) * scale_page_stride_, value, scale_page_stride_);
}

} // namespace pkv
