// SPDX-License-Identifier: Apache-2.0
#include "layout/geometry.h"

#include "core/status.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <iterator>

namespace pkv {
namespace {

/// A product that remembers whether it left 64 bits.
class Product {
  public:
    explicit Product(uint64_t value) : value_(value) {}
    Product &operator*=(uint64_t factor) {
        overflow_ |= __builtin_mul_overflow(value_, factor, &value_);
        return *this;
    }
    Product &operator+=(uint64_t summand) {
        overflow_ |= __builtin_add_overflow(value_, summand, &value_);
        return *this;
    }
    bool overflow() const { return overflow_; }
    uint64_t value() const { return value_; }

  private:
    uint64_t value_;
    bool overflow_ = false;
};

pkv_status check_range(uint32_t group, const char *field, uint64_t value, uint64_t low, uint64_t high) {
    if (value < low)
        return fail(PKV_ERR_INVALID, "groups[%u].%s is %" PRIu64 ", not at least %" PRIu64, group, field, value, low);
    if (value > high)
        return fail(PKV_ERR_LIMIT, "groups[%u].%s is %" PRIu64 ", more than the limit of %" PRIu64, group, field, value,
                    high);
    return PKV_OK;
}

pkv_status check_shard(uint32_t group, const char *what, uint32_t first, uint32_t held, uint32_t &total) {
    if (total == 0 && __builtin_add_overflow(first, held, &total))
        return fail(PKV_ERR_LIMIT, "groups[%u]: first_%s %u + %u held passes 2^32", group, what, first, held);
    if (uint64_t{first} + held > total)
        return fail(PKV_ERR_INVALID, "groups[%u]: first_%s %u + %u held is more than total_%ss %u", group, what, first,
                    held, what, total);
    return PKV_OK;
}

pkv_status set_row_bytes(const pkv_group_options &options, uint32_t group, Geometry &geometry) {
    if (options.dtype == PKV_DTYPE_OPAQUE) {
        if (options.k_head_dim != 0 || options.v_head_dim != 0)
            return fail(PKV_ERR_INVALID, "groups[%u]: opaque rows have k_row_bytes, not k_head_dim %u, v_head_dim %u",
                        group, options.k_head_dim, options.v_head_dim);
        geometry.k_row_bytes = options.k_row_bytes;
        geometry.v_row_bytes = options.v_row_bytes;
        PKV_TRY(check_range(group, "k_row_bytes", geometry.k_row_bytes, 1, PKV_MAX_ROW_BYTES));
        return check_range(group, "v_row_bytes", geometry.v_row_bytes, 0, PKV_MAX_ROW_BYTES);
    }
    const uint64_t element = dtype_bytes(options.dtype);
    if (element == 0) return fail(PKV_ERR_INVALID, "groups[%u].dtype is %d, none of PKV_DTYPE_*", group, options.dtype);
    if (options.k_row_bytes != 0 || options.v_row_bytes != 0)
        return fail(PKV_ERR_INVALID, "groups[%u]: k_row_bytes %u, v_row_bytes %u are for PKV_DTYPE_OPAQUE", group,
                    options.k_row_bytes, options.v_row_bytes);
    geometry.k_row_bytes = options.k_head_dim * element;
    geometry.v_row_bytes = options.v_head_dim * element;
    PKV_TRY(check_range(group, "k_head_dim", options.k_head_dim, 1, PKV_MAX_ROW_BYTES / element));
    return check_range(group, "v_head_dim", options.v_head_dim, 0, PKV_MAX_ROW_BYTES / element);
}

Strides dense_strides(const Geometry &geometry, uint64_t row_bytes) {
    Strides strides;
    if (geometry.layout == PKV_LAYOUT_NHD) {
        strides.head = row_bytes;
        strides.token = row_bytes * geometry.heads;
    } else {
        strides.token = row_bytes;
        strides.head = row_bytes * geometry.page_tokens;
    }
    return strides;
}

bool any(const pkv_strides &strides) { return strides.page != 0 || strides.token != 0 || strides.head != 0; }

/// Strides of memory that the pool allocates: [page, layer, K then V] or [layer, page, K then V].
pkv_status set_pool_strides(const pkv_group_options &options, uint32_t group, Geometry &geometry) {
    if (options.k_base != nullptr || options.v_base != nullptr)
        return fail(PKV_ERR_INVALID, "groups[%u]: k_base and v_base go with PKV_MEMORY_CALLER", group);
    if (options.k_strides.token != 0 || options.k_strides.head != 0 || any(options.v_strides))
        return fail(PKV_ERR_INVALID, "groups[%u]: of the strides, a pool's own memory takes k_strides.page only",
                    group);

    geometry.k_strides = dense_strides(geometry, geometry.k_row_bytes);
    geometry.v_strides = dense_strides(geometry, geometry.v_row_bytes);
    // Bounded by the limits: 2^16 tokens * 2^16 heads * 2^25 bytes < 2^64.
    geometry.v_offset = uint64_t{geometry.page_tokens} * geometry.heads * geometry.k_row_bytes;
    const uint64_t slice =
        uint64_t{geometry.page_tokens} * geometry.heads * (geometry.k_row_bytes + geometry.v_row_bytes);
    const bool page_major = geometry.arrangement == PKV_PAGE_MAJOR;

    Product dense_page(slice);
    if (page_major) dense_page *= geometry.num_layers;
    const uint64_t page_stride = options.k_strides.page != 0 ? options.k_strides.page : dense_page.value();
    if (!dense_page.overflow() && page_stride < dense_page.value())
        return fail(PKV_ERR_INVALID, "groups[%u].k_strides.page is %" PRIu64 ", less than a page's %" PRIu64 " bytes",
                    group, page_stride, dense_page.value());
    Product layer(page_stride);
    layer *= geometry.num_pages;
    Product total(layer.value());
    if (!page_major) total *= geometry.num_layers;
    if (dense_page.overflow() || layer.overflow() || total.overflow() || total.value() > uint64_t{1} << 47)
        return fail(PKV_ERR_LIMIT,
                    "groups[%u]: %" PRIu64 " pages of %u layers * %" PRIu64 " bytes pass the limit of 2^47 bytes",
                    group, geometry.num_pages, geometry.num_layers, slice);
    geometry.k_strides.page = geometry.v_strides.page = page_stride;
    geometry.layer_stride = page_major ? slice : layer.value();
    geometry.memory_bytes = geometry.memory == PKV_MEMORY_POOL ? total.value() : 0;
    return PKV_OK;
}

/// Rows must not overlap: in order of size, each stride must reach over all that lies inside it.
pkv_status check_caller_strides(uint32_t group, const char *side, const Strides &strides, const Geometry &geometry,
                                uint64_t row_bytes) {
    struct Axis {
        uint64_t stride;
        uint64_t count;
    };
    Axis axes[] = {
        {strides.page, geometry.num_pages}, {strides.token, geometry.page_tokens}, {strides.head, geometry.heads}};
    std::sort(std::begin(axes), std::end(axes), [](const Axis &a, const Axis &b) { return a.stride < b.stride; });
    Product reach(row_bytes); // bytes from the first to the end of the last row, over the axes seen so far
    bool overlap = false;
    for (const Axis &axis : axes) {
        overlap = overlap || (axis.count > 1 && axis.stride < reach.value());
        Product step(axis.stride);
        step *= axis.count - 1;
        reach += step.value();
        if (step.overflow() || reach.overflow())
            return fail(PKV_ERR_LIMIT,
                        "groups[%u].%s_strides {page %" PRIu64 ", token %" PRIu64 ", head %" PRIu64 "} pass 2^64",
                        group, side, strides.page, strides.token, strides.head);
    }
    if (!overlap) return PKV_OK;
    return fail(PKV_ERR_INVALID,
                "groups[%u].%s_strides {page %" PRIu64 ", token %" PRIu64 ", head %" PRIu64 "} make rows of %" PRIu64
                " bytes overlap",
                group, side, strides.page, strides.token, strides.head, row_bytes);
}

pkv_status set_caller_strides(const pkv_group_options &options, uint32_t group, Geometry &geometry) {
    const bool has_v = geometry.v_row_bytes != 0;
    if (options.k_base == nullptr || (options.v_base != nullptr) != has_v)
        return fail(PKV_ERR_INVALID, "groups[%u]: PKV_MEMORY_CALLER needs k_base, and v_base exactly if there is V",
                    group);
    auto set = [&](const pkv_strides &given, uint64_t row_bytes, Strides &strides) {
        strides = dense_strides(geometry, row_bytes);
        strides.page = uint64_t{geometry.page_tokens} * geometry.heads * row_bytes;
        if (any(given)) strides = Strides{given.page, given.token, given.head};
    };
    set(options.k_strides, geometry.k_row_bytes, geometry.k_strides);
    PKV_TRY(check_caller_strides(group, "k", geometry.k_strides, geometry, geometry.k_row_bytes));
    if (has_v) {
        set(options.v_strides, geometry.v_row_bytes, geometry.v_strides);
        PKV_TRY(check_caller_strides(group, "v", geometry.v_strides, geometry, geometry.v_row_bytes));
    }
    for (uint32_t layer = 0; layer < geometry.num_layers; ++layer)
        if (options.k_base[layer] == nullptr || (has_v && options.v_base[layer] == nullptr))
            return fail(PKV_ERR_INVALID, "groups[%u]: the base address of layer %u is NULL", group, layer);
    geometry.caller_k.assign(options.k_base, options.k_base + geometry.num_layers);
    if (has_v) geometry.caller_v.assign(options.v_base, options.v_base + geometry.num_layers);
    return PKV_OK;
}

pkv_status check_enums(const pkv_group_options &options, uint32_t group) {
    if (options.layout != PKV_LAYOUT_NHD && options.layout != PKV_LAYOUT_HND)
        return fail(PKV_ERR_INVALID, "groups[%u].layout is %d, none of PKV_LAYOUT_*", group, options.layout);
    if (options.arrangement != PKV_PAGE_MAJOR && options.arrangement != PKV_LAYER_MAJOR)
        return fail(PKV_ERR_INVALID, "groups[%u].arrangement is %d, neither PKV_PAGE_MAJOR nor PKV_LAYER_MAJOR", group,
                    options.arrangement);
    if (options.memory < PKV_MEMORY_POOL || options.memory > PKV_MEMORY_NONE)
        return fail(PKV_ERR_INVALID, "groups[%u].memory is %d, none of PKV_MEMORY_*", group, options.memory);
    if (options.attention != PKV_ATTENTION_FULL && options.attention != PKV_ATTENTION_WINDOW)
        return fail(PKV_ERR_INVALID, "groups[%u].attention is %d, none of PKV_ATTENTION_*", group, options.attention);
    if (options.attention == PKV_ATTENTION_FULL && (options.window != 0 || options.sinks != 0))
        return fail(PKV_ERR_INVALID, "groups[%u]: window %u, sinks %u go with PKV_ATTENTION_WINDOW", group,
                    options.window, options.sinks);
    if (options.attention == PKV_ATTENTION_WINDOW && options.window == 0)
        return fail(PKV_ERR_INVALID,
                    "groups[%u].attention is PKV_ATTENTION_WINDOW, which needs a window of at least 1 token", group);
    if (options.memory == PKV_MEMORY_CALLER && options.arrangement != PKV_PAGE_MAJOR)
        return fail(PKV_ERR_INVALID,
                    "groups[%u].arrangement is for a pool's own memory: the caller's has k_base and strides", group);
    if (options.reserved != 0) return fail(PKV_ERR_UNSUPPORTED, "groups[%u].reserved is not 0", group);
    return PKV_OK;
}

bool is_scaled(int32_t dtype) {
    return dtype == PKV_DTYPE_F8_E4M3 || dtype == PKV_DTYPE_F8_E5M2 || dtype == PKV_DTYPE_I8;
}

pkv_status copy_scales(uint32_t group, const char *name, const float *in, uint64_t count, std::vector<float> &out) {
    if (in == nullptr) return fail(PKV_ERR_INVALID, "groups[%u].%s is NULL", group, name);
    for (uint64_t i = 0; i < count; ++i)
        if (!(in[i] > 0.0f) || std::isinf(in[i]))
            return fail(PKV_ERR_INVALID, "groups[%u].%s[%" PRIu64 "] is %g, not above 0", group, name, i,
                        static_cast<double>(in[i]));
    out.assign(in, in + count);
    return PKV_OK;
}

pkv_status set_scales(const pkv_group_options &options, uint32_t group, Geometry &geometry) {
    if (options.scales < PKV_SCALES_NONE || options.scales > PKV_SCALES_TOKEN_HEAD)
        return fail(PKV_ERR_INVALID, "groups[%u].scales is %d, none of PKV_SCALES_*", group, options.scales);
    if (options.scales != PKV_SCALES_NONE && !is_scaled(options.dtype))
        return fail(PKV_ERR_INVALID, "groups[%u]: scales %d need an fp8 or int8 dtype, not %d", group, options.scales,
                    options.dtype);
    geometry.scales = options.scales;
    if (options.scales == PKV_SCALES_NONE || options.scales == PKV_SCALES_TOKEN_HEAD) {
        if (options.k_scales != nullptr || options.v_scales != nullptr)
            return fail(PKV_ERR_INVALID,
                        "groups[%u]: k_scales and v_scales go with PKV_SCALES_TENSOR and PKV_SCALES_HEAD", group);
        return PKV_OK;
    }
    const bool has_v = geometry.v_row_bytes != 0;
    if (!has_v && options.v_scales != nullptr)
        return fail(PKV_ERR_INVALID, "groups[%u]: v_scales are given, but there is no V", group);
    const uint64_t count = uint64_t{geometry.num_layers} * (options.scales == PKV_SCALES_HEAD ? geometry.heads : 1);
    PKV_TRY(copy_scales(group, "k_scales", options.k_scales, count, geometry.k_scales));
    return has_v ? copy_scales(group, "v_scales", options.v_scales, count, geometry.v_scales) : PKV_OK;
}

} // namespace

uint64_t dtype_bytes(int32_t dtype) {
    switch (dtype) {
    case PKV_DTYPE_F32: return 4;
    case PKV_DTYPE_F16:
    case PKV_DTYPE_BF16: return 2;
    case PKV_DTYPE_F8_E4M3:
    case PKV_DTYPE_F8_E5M2:
    case PKV_DTYPE_I8: return 1;
    default: return 0;
    }
}

uint64_t flat_row_bytes(const Geometry &geometry, int32_t dtype, uint64_t stored_row_bytes) {
    if (dtype == geometry.dtype || dtype_bytes(geometry.dtype) == 0) return stored_row_bytes;
    return stored_row_bytes / dtype_bytes(geometry.dtype) * dtype_bytes(dtype);
}

pkv_status make_geometry(const pkv_group_options &options, uint32_t group, uint32_t page_tokens, Geometry &geometry) {
    PKV_TRY(check_enums(options, group));
    PKV_TRY(check_range(group, "num_pages", options.num_pages, 1, INT32_MAX));
    PKV_TRY(check_range(group, "num_layers", options.num_layers, 1, PKV_MAX_LAYERS));
    PKV_TRY(check_range(group, "num_kv_heads", options.num_kv_heads, 1, PKV_MAX_HEADS));

    geometry.page_tokens = page_tokens;
    geometry.num_pages = options.num_pages;
    geometry.num_layers = options.num_layers;
    geometry.first_layer = options.first_layer;
    geometry.total_layers = options.total_layers;
    geometry.heads = options.num_kv_heads;
    geometry.first_head = options.first_head;
    geometry.total_heads = options.total_heads;
    geometry.dtype = options.dtype;
    geometry.layout = options.layout;
    geometry.arrangement = options.arrangement;
    geometry.memory = options.memory;
    geometry.max_cached_pages = options.max_cached_pages != 0 ? options.max_cached_pages : UINT64_MAX;
    PKV_TRY(check_shard(group, "layer", options.first_layer, options.num_layers, geometry.total_layers));
    PKV_TRY(check_shard(group, "head", options.first_head, options.num_kv_heads, geometry.total_heads));
    PKV_TRY(set_row_bytes(options, group, geometry));
    PKV_TRY(set_scales(options, group, geometry));
    PKV_TRY(check_range(group, "aux_bytes", options.aux_bytes, 0, uint64_t{1} << 20));
    geometry.attention = options.attention;
    geometry.window = options.window;
    geometry.sinks = options.sinks;
    geometry.aux_bytes = options.aux_bytes;
    return options.memory == PKV_MEMORY_CALLER ? set_caller_strides(options, group, geometry)
                                               : set_pool_strides(options, group, geometry);
}

} // namespace pkv
