// SPDX-License-Identifier: Apache-2.0
// Suite pool: alloc and release. Reference: malloc and free of 64 bytes, once a page.
#include "bench.h"

namespace {

constexpr uint64_t pages_in_pool = 1048576;

/// Pages of a pool in use for a while: freed in random order, so that neighbours in the free list are far apart in memory.
pkv_pool *worn_pool() {
    pkv_pool *pool = bench::id_pool(pages_in_pool, 16);
    std::vector<pkv_page> pages(pages_in_pool);
    bench::check(pkv_pool_alloc(pool, 0, pages.size(), pages.data()));
    bench::Random random(1);
    for (size_t i = pages.size() - 1; i > 0; --i) std::swap(pages[i], pages[random.below(i + 1)]);
    bench::check(pkv_pool_release(pool, 0, pages.size(), pages.data(), nullptr, nullptr));
    return pool;
}

void alloc_release(benchmark::State &state) {
    const auto batch = static_cast<uint64_t>(state.range(0));
    constexpr uint64_t pages_per_slice = 16384;
    pkv_pool *pool = worn_pool();
    // All pages of a slice are held at once, as sequences hold them: so a slice walks through the pool.
    std::vector<pkv_page> pages(pages_per_slice);
    std::vector<void *> blocks(pages_per_slice);
    bench::Slices slices;
    bench::alternate(
        state, slices,
        [&] {
            for (uint64_t i = 0; i < pages_per_slice; i += batch)
                bench::check(pkv_pool_alloc(pool, 0, batch, &pages[i]));
            for (uint64_t i = 0; i < pages_per_slice; i += batch)
                bench::check(pkv_pool_release(pool, 0, batch, &pages[i], nullptr, nullptr));
        },
        [&] {
            for (uint64_t i = 0; i < pages_per_slice; ++i) benchmark::DoNotOptimize(blocks[i] = std::malloc(64));
            for (uint64_t i = 0; i < pages_per_slice; ++i) std::free(blocks[i]);
        });
    slices.report(state, "page", static_cast<double>(pages_per_slice));
    bench::check(pkv_pool_destroy(pool));
}
BENCHMARK(alloc_release)->Name("pool/alloc_release")->ArgName("batch")->Arg(1)->Arg(64)->UseManualTime();

/// The same when every page has to be evicted first: published, cached, least recently used.
void alloc_evicting(benchmark::State &state) {
    constexpr uint64_t pages_per_slice = 16384;
    constexpr uint64_t blocks_per_chain = 64;
    pkv_pool *pool = bench::id_pool(pages_in_pool, 16);
    std::vector<pkv_token> tokens(blocks_per_chain * 16);
    std::vector<pkv_page> pages(pages_per_slice);
    bench::Random random(2);
    auto publish = [&](uint64_t first) {
        for (pkv_token &token : tokens) token = static_cast<pkv_token>(random.next());
        pkv_prompt prompt = PKV_PROMPT_INIT;
        prompt.tokens = tokens.data();
        prompt.num_tokens = tokens.size();
        bench::check(pkv_pool_publish(pool, 0, &prompt, 0, blocks_per_chain, &pages[first], nullptr));
        bench::check(pkv_pool_release(pool, 0, blocks_per_chain, &pages[first], nullptr, nullptr));
    };
    for (uint64_t done = 0; done < pages_in_pool; done += blocks_per_chain) {
        bench::check(pkv_pool_alloc(pool, 0, blocks_per_chain, pages.data()));
        publish(0);
    }
    bench::Slices slices;
    for (auto _ : state) {
        slices.ours.push_back(bench::seconds([&] {
            for (uint64_t i = 0; i < pages_per_slice; i += 64) bench::check(pkv_pool_alloc(pool, 0, 64, &pages[i]));
        }));
        state.SetIterationTime(slices.ours.back());
        for (uint64_t i = 0; i < pages_per_slice; i += blocks_per_chain) publish(i);
    }
    slices.report(state, "page", static_cast<double>(pages_per_slice));
    bench::check(pkv_pool_destroy(pool));
}
BENCHMARK(alloc_evicting)->Name("pool/alloc_evicting")->UseManualTime();

} // namespace
