// SPDX-License-Identifier: Apache-2.0
// Suite convert: writes and gathers that convert, 8,192 tokens of 8 heads of 128 elements, K and V, in scattered pages.
// Reference: memcpy of the larger side's bytes.
#include "bench.h"

#include <cstring>

namespace {

constexpr uint64_t tokens = 8192;
constexpr uint64_t page_tokens = 16;
constexpr uint32_t heads = 8;
constexpr uint32_t head_dim = 128;
constexpr uint64_t elements = tokens * heads * head_dim;

struct Types {
    int32_t stored;
    int32_t flat;
    int32_t scales;
};

pkv_pool *make_pool(const Types &types, std::vector<pkv_page> &pages) {
    const float one = 0.5f;
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = 8 * tokens / page_tokens;
    group.num_layers = 1;
    group.num_kv_heads = heads;
    group.k_head_dim = group.v_head_dim = head_dim;
    group.dtype = types.stored;
    group.scales = types.scales;
    if (types.scales == PKV_SCALES_TENSOR) group.k_scales = group.v_scales = &one;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    pkv_pool *pool = nullptr;
    bench::check(pkv_pool_create(&options, &pool));
    pages.resize(group.num_pages);
    bench::check(pkv_pool_alloc(pool, 0, pages.size(), pages.data()));
    bench::Random random(10);
    for (size_t i = pages.size() - 1; i > 0; --i) std::swap(pages[i], pages[random.below(i + 1)]);
    return pool;
}

void fill(std::vector<char> &rows, int32_t dtype) {
    bench::Random random(11);
    const uint64_t bytes = pkv_dtype_bytes(dtype);
    for (uint64_t i = 0; i < elements; ++i) {
        const float value = static_cast<float>(random.below(2001)) / 1000.0f - 1.0f;
        uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        // The upper half of an f32 is a bf16; read as f16 it is some number as well.
        if (bytes == 2) bits >>= 16;
        std::memcpy(&rows[i * bytes], &bits, bytes);
    }
}

void convert(benchmark::State &state, Types types, bool gather) {
    std::vector<pkv_page> pages;
    pkv_pool *pool = make_pool(types, pages);
    const uint64_t flat_bytes = elements * pkv_dtype_bytes(types.flat);
    const uint64_t larger = 2 * std::max(flat_bytes, elements * pkv_dtype_bytes(types.stored));
    std::vector<char> k(flat_bytes), v(flat_bytes), from(larger, 1), to(larger, 2);
    fill(k, types.flat);
    fill(v, types.flat);
    pkv_tensor k_rows = PKV_TENSOR_INIT;
    k_rows.data = k.data();
    k_rows.dtype = types.flat;
    k_rows.num_tokens = tokens;
    pkv_tensor v_rows = k_rows;
    v_rows.data = v.data();
    std::vector<pkv_slot> slots(tokens);
    auto use_pages = [&](uint64_t first) {
        for (uint64_t i = 0; i < tokens; ++i)
            slots[i] = pages[first + i / page_tokens] * static_cast<pkv_slot>(page_tokens) +
                       static_cast<pkv_slot>(i % page_tokens);
    };
    auto write = [&] { bench::check(pkv_pool_write(pool, 0, 0, tokens, slots.data(), &k_rows, &v_rows, nullptr)); };
    constexpr uint64_t blocks = tokens / page_tokens;
    for (uint64_t first = 0; first < pages.size(); first += blocks) {
        use_pages(first);
        write();
    }
    uint64_t first = 0;
    bench::Slices slices;
    for (auto _ : state) {
        first = (first + blocks) % pages.size();
        use_pages(first);
        slices.reference.push_back(bench::seconds([&] { std::memcpy(to.data(), from.data(), larger); }));
        slices.ours.push_back(bench::seconds([&] {
            if (gather)
                bench::check(pkv_pool_gather(pool, 0, 0, blocks, &pages[first], 0, tokens, &k_rows, &v_rows, nullptr));
            else
                write();
        }));
        state.SetIterationTime(slices.ours.back());
    }
    slices.report(state, "element", 2.0 * elements);
    bench::check(pkv_pool_destroy(pool));
}

#define CONVERT(name, stored, flat, scales)                                                                            \
    BENCHMARK_CAPTURE(convert, write_##name, Types{stored, flat, scales}, false)                                       \
        ->Name("convert/write_" #name)                                                                                 \
        ->UseManualTime();                                                                                             \
    BENCHMARK_CAPTURE(convert, gather_##name, Types{stored, flat, scales}, true)                                       \
        ->Name("convert/gather_" #name)                                                                                \
        ->UseManualTime()
CONVERT(f16_e4m3_tensor, PKV_DTYPE_F8_E4M3, PKV_DTYPE_F16, PKV_SCALES_TENSOR);
CONVERT(bf16_e4m3_tensor, PKV_DTYPE_F8_E4M3, PKV_DTYPE_BF16, PKV_SCALES_TENSOR);
CONVERT(bf16_e4m3_token_head, PKV_DTYPE_F8_E4M3, PKV_DTYPE_BF16, PKV_SCALES_TOKEN_HEAD);
CONVERT(bf16_e5m2_tensor, PKV_DTYPE_F8_E5M2, PKV_DTYPE_BF16, PKV_SCALES_TENSOR);
CONVERT(bf16_i8_token_head, PKV_DTYPE_I8, PKV_DTYPE_BF16, PKV_SCALES_TOKEN_HEAD);
CONVERT(f32_f16, PKV_DTYPE_F16, PKV_DTYPE_F32, PKV_SCALES_NONE);

} // namespace
