// SPDX-License-Identifier: Apache-2.0
// Suite kernels: write and gather of rows. Reference: memcpy of the same number of bytes between two flat buffers.
#include "bench.h"

#include <cstring>
#include <sys/mman.h>

namespace {

constexpr uint64_t page_tokens = 16;
constexpr uint64_t heads = 8;
constexpr uint64_t head_dim = 128;
constexpr uint64_t token_bytes = heads * head_dim * 2;

/// A flat buffer, touched.
class Buffer {
  public:
    explicit Buffer(uint64_t bytes) : bytes_(bytes) {
        data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data_ == MAP_FAILED) std::abort();
        madvise(data_, bytes, MADV_HUGEPAGE);
        std::memset(data_, 1, bytes);
    }
    ~Buffer() { munmap(data_, bytes_); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    void *data() const { return data_; }
    pkv_tensor tensor(uint64_t tokens, uint64_t first = 0) const {
        pkv_tensor tensor = PKV_TENSOR_INIT;
        tensor.data = static_cast<char *>(data_) + first * token_bytes;
        tensor.dtype = PKV_DTYPE_F16;
        tensor.num_tokens = tokens;
        return tensor;
    }

  private:
    uint64_t bytes_;
    void *data_;
};

/// A pool of one layer, every page of which is held and was touched.
class Pool {
  public:
    Pool(uint64_t bytes, int32_t layout) : pages_(bytes / (page_tokens * token_bytes * 2)) {
        pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
        group.num_pages = pages_.size();
        group.num_layers = 1;
        group.num_kv_heads = heads;
        group.k_head_dim = group.v_head_dim = head_dim;
        group.layout = layout;
        pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
        options.page_tokens = page_tokens;
        options.num_groups = 1;
        options.groups = &group;
        bench::check(pkv_pool_create(&options, &pool_));
        bench::check(pkv_pool_alloc(pool_, 0, pages_.size(), pages_.data()));
        pkv_layer_layout where = PKV_LAYER_LAYOUT_INIT;
        bench::check(pkv_pool_layout(pool_, 0, 0, &where));
        std::memset(where.k_base, 0, pages_.size() * where.k.page);
    }
    ~Pool() { pkv_pool_destroy(pool_); }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;
    pkv_pool *handle() const { return pool_; }
    pkv_page random_page(bench::Random &random) const { return pages_[random.below(pages_.size())]; }

  private:
    std::vector<pkv_page> pages_;
    pkv_pool *pool_ = nullptr;
};

/// 8,192 tokens into, or out of, pages scattered over 4 GiB; other pages in each slice.
void prefill(benchmark::State &state, int32_t layout, bool gather) {
    constexpr uint64_t tokens = 8192;
    Pool pool(uint64_t{4} << 30, layout);
    const Buffer k(tokens * token_bytes);
    const Buffer v(tokens * token_bytes);
    const Buffer from(tokens * token_bytes * 2);
    const Buffer to(tokens * token_bytes * 2);
    const pkv_tensor k_rows = k.tensor(tokens);
    const pkv_tensor v_rows = v.tensor(tokens);
    bench::Random random(6);
    std::vector<pkv_page> table(tokens / page_tokens);
    std::vector<pkv_slot> slots(tokens);
    bench::Slices slices;
    for (auto _ : state) {
        for (uint64_t block = 0; block < table.size(); ++block) {
            table[block] = pool.random_page(random);
            for (uint64_t i = 0; i < page_tokens; ++i)
                slots[block * page_tokens + i] =
                    table[block] * static_cast<pkv_slot>(page_tokens) + static_cast<pkv_slot>(i);
        }
        slices.reference.push_back(
            bench::seconds([&] { std::memcpy(to.data(), from.data(), tokens * token_bytes * 2); }));
        slices.ours.push_back(bench::seconds([&] {
            bench::check(gather ? pkv_pool_gather(pool.handle(), 0, 0, table.size(), table.data(), 0, tokens, &k_rows,
                                                  &v_rows, nullptr)
                                : pkv_pool_write(pool.handle(), 0, 0, tokens, slots.data(), &k_rows, &v_rows, nullptr));
        }));
        state.SetIterationTime(slices.ours.back());
    }
    slices.report(state, "token", static_cast<double>(tokens));
    const double bytes = static_cast<double>(tokens * token_bytes * 2);
    state.counters["gb_per_s"] = bytes / bench::percentile(slices.ours, 0.5) / 1e9;
    state.counters["reference_gb_per_s"] = bytes / bench::percentile(slices.reference, 0.5) / 1e9;
}
BENCHMARK_CAPTURE(prefill, nhd_write, PKV_LAYOUT_NHD, false)->Name("kernels/write_8192_nhd")->UseManualTime();
BENCHMARK_CAPTURE(prefill, nhd_gather, PKV_LAYOUT_NHD, true)->Name("kernels/gather_8192_nhd")->UseManualTime();
BENCHMARK_CAPTURE(prefill, hnd_write, PKV_LAYOUT_HND, false)->Name("kernels/write_8192_hnd")->UseManualTime();
BENCHMARK_CAPTURE(prefill, hnd_gather, PKV_LAYOUT_HND, true)->Name("kernels/gather_8192_hnd")->UseManualTime();

/// One token of 64 sequences. hot: the same pages each time, in the caches as in a decode loop of a small layer; cold: other
/// pages of a 4 GiB pool each time.
void decode(benchmark::State &state, bool cold) {
    constexpr uint64_t sequences = 64;
    Pool pool(cold ? uint64_t{4} << 30 : uint64_t{16} << 20, PKV_LAYOUT_NHD);
    const Buffer k(sequences * token_bytes);
    const Buffer v(sequences * token_bytes);
    const Buffer to(sequences * token_bytes * 2);
    const pkv_tensor k_rows = k.tensor(sequences);
    const pkv_tensor v_rows = v.tensor(sequences);
    bench::Random random(7);
    std::vector<pkv_slot> slots(sequences);
    auto choose = [&] {
        for (pkv_slot &slot : slots)
            slot = pool.random_page(random) * static_cast<pkv_slot>(page_tokens) +
                   static_cast<pkv_slot>(random.below(page_tokens));
    };
    choose();
    bench::Slices slices;
    for (auto _ : state) {
        if (cold) choose();
        slices.reference.push_back(bench::seconds([&] {
            std::memcpy(to.data(), k.data(), sequences * token_bytes);
            std::memcpy(static_cast<char *>(to.data()) + sequences * token_bytes, v.data(), sequences * token_bytes);
        }));
        slices.ours.push_back(bench::seconds([&] {
            bench::check(pkv_pool_write(pool.handle(), 0, 0, sequences, slots.data(), &k_rows, &v_rows, nullptr));
        }));
        state.SetIterationTime(slices.ours.back());
    }
    slices.report(state, "call", 1);
}
BENCHMARK_CAPTURE(decode, hot, false)->Name("kernels/write_decode_64_hot")->UseManualTime();
BENCHMARK_CAPTURE(decode, cold, true)->Name("kernels/write_decode_64_cold")->UseManualTime();

} // namespace
