// SPDX-License-Identifier: Apache-2.0
// Suite prefix: matching prompts against a large index. Reference: loads of one random cache line a block, from a table of
// the size of the index's nodes, all independent of each other: what memory can give at best.
#include "bench.h"

namespace {

constexpr uint64_t blocks_in_index = 1000000;
constexpr uint64_t page_tokens = 16;
constexpr uint64_t blocks_per_chain = 250;
constexpr uint64_t chains = blocks_in_index / blocks_per_chain;

class Index {
  public:
    Index() : pool_(bench::id_pool(1048576, page_tokens)), tokens_(blocks_in_index * page_tokens) {
        bench::Random random(3);
        for (pkv_token &token : tokens_) token = static_cast<pkv_token>(random.next());
        std::vector<pkv_page> pages(blocks_per_chain);
        for (uint64_t chain = 0; chain < chains; ++chain) {
            const pkv_prompt prompt = prompt_of(chain);
            bench::check(pkv_pool_alloc(pool_, 0, blocks_per_chain, pages.data()));
            bench::check(pkv_pool_publish(pool_, 0, &prompt, 0, blocks_per_chain, pages.data(), nullptr));
            bench::check(pkv_pool_release(pool_, 0, blocks_per_chain, pages.data(), nullptr, nullptr));
        }
    }
    ~Index() { pkv_pool_destroy(pool_); }

    pkv_pool *pool() const { return pool_; }
    pkv_prompt prompt_of(uint64_t chain) const {
        pkv_prompt prompt = PKV_PROMPT_INIT;
        prompt.tokens = &tokens_[chain * blocks_per_chain * page_tokens];
        prompt.num_tokens = blocks_per_chain * page_tokens;
        return prompt;
    }
    /// K and V aside: bytes a page costs, without the tokens kept for comparison.
    double bytes_per_page() const {
        pkv_pool_stats stats = PKV_POOL_STATS_INIT;
        bench::check(pkv_pool_get_stats(pool_, 0, &stats));
        return static_cast<double>(stats.metadata_bytes) / static_cast<double>(stats.held_pages + stats.cached_pages);
    }

  private:
    pkv_pool *pool_;
    std::vector<pkv_token> tokens_;
};

constexpr uint64_t chains_per_slice = 40;

class RandomLines {
  public:
    RandomLines() : lines_(blocks_in_index * 8) { std::fill(lines_.begin(), lines_.end(), 1); }
    void read(bench::Random &random, uint64_t count) {
        uint64_t sum = 0;
        for (uint64_t i = 0; i < count; ++i) sum += lines_[random.below(blocks_in_index) * 8];
        benchmark::DoNotOptimize(sum);
    }

  private:
    std::vector<uint64_t> lines_;
};

template <class Match> void match(benchmark::State &state, Match &&match_chain) {
    Index index;
    RandomLines lines;
    bench::Random random(4);
    std::vector<pkv_page> pages(blocks_per_chain);
    bench::Slices slices;
    bench::alternate(
        state, slices,
        [&] {
            for (uint64_t i = 0; i < chains_per_slice; ++i) match_chain(index, random.below(chains), pages);
        },
        [&] { lines.read(random, chains_per_slice * blocks_per_chain); });
    slices.report(state, "block", static_cast<double>(chains_per_slice * blocks_per_chain));
    state.counters["metadata_bytes_per_page"] = index.bytes_per_page();
}

void probe(benchmark::State &state) {
    match(state, [](Index &index, uint64_t chain, std::vector<pkv_page> &) {
        pkv_match found = PKV_MATCH_INIT;
        const pkv_prompt prompt = index.prompt_of(chain);
        bench::check(pkv_pool_probe(index.pool(), &prompt, PKV_MATCH_ALL, &found));
        if (found.blocks != blocks_per_chain) std::abort();
    });
}
BENCHMARK(probe)->Name("prefix/match_probe")->UseManualTime();

/// With a reference on each page, and its release.
void lookup(benchmark::State &state) {
    match(state, [](Index &index, uint64_t chain, std::vector<pkv_page> &pages) {
        pkv_match found = PKV_MATCH_INIT;
        const pkv_prompt prompt = index.prompt_of(chain);
        bench::check(pkv_pool_lookup(index.pool(), &prompt, PKV_MATCH_ALL, pages.data(), pages.size(), &found));
        if (found.blocks != blocks_per_chain) std::abort();
        bench::check(pkv_pool_release(index.pool(), 0, found.blocks, pages.data(), nullptr, nullptr));
    });
}
BENCHMARK(lookup)->Name("prefix/match_lookup_release")->UseManualTime();

} // namespace
