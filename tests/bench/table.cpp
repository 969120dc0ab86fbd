// SPDX-License-Identifier: Apache-2.0
// Suite table: admitting and releasing a prompt of 4,096 tokens in pages of 16. Reference: one memcpy of its tokens, which
// a table has to make anyway.
#include "bench.h"

#include <cstring>

namespace {

constexpr uint64_t prompt_tokens = 4096;
constexpr uint64_t page_tokens = 16;
constexpr uint64_t blocks = prompt_tokens / page_tokens;
constexpr uint64_t prompts_per_slice = 64;

class Prompts {
  public:
    explicit Prompts(uint64_t seed) : tokens_(prompts_per_slice * prompt_tokens), random_(seed) { renew(); }
    void renew() {
        for (pkv_token &token : tokens_) token = static_cast<pkv_token>(random_.next());
    }
    pkv_prompt at(uint64_t index) const {
        pkv_prompt prompt = PKV_PROMPT_INIT;
        prompt.tokens = &tokens_[index * prompt_tokens];
        prompt.num_tokens = prompt_tokens;
        return prompt;
    }
    void copy_all(std::vector<pkv_token> &target) const {
        for (uint64_t i = 0; i < prompts_per_slice; ++i) {
            std::memcpy(target.data(), &tokens_[i * prompt_tokens], prompt_tokens * sizeof(pkv_token));
            benchmark::DoNotOptimize(target.data());
            benchmark::ClobberMemory();
        }
    }

  private:
    std::vector<pkv_token> tokens_;
    bench::Random random_;
};

void admit_and_clear(pkv_table *table, const pkv_prompt &prompt, bool commit, uint64_t expected_blocks) {
    pkv_match match = PKV_MATCH_INIT;
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    options.max_match = PKV_MATCH_ALL;
    bench::check(pkv_table_admit(table, &prompt, &options, &match));
    if (match.blocks != expected_blocks) std::abort();
    if (commit) bench::check(pkv_table_commit(table, prompt_tokens, nullptr));
    bench::check(pkv_table_clear(table, nullptr));
}

/// hit: the whole prompt is cached. miss: none of it, and nothing is published. miss_publish: none of it, all blocks are
/// published, and the pool is full of other prompts' cached pages, so that each page is evicted first.
enum class Kind { hit, miss, miss_publish };

void admit_release(benchmark::State &state, Kind kind) {
    pkv_pool *pool = bench::id_pool(1 << 16, page_tokens);
    pkv_table *table = nullptr;
    bench::check(pkv_table_create(pool, &table));
    Prompts prompts(5);
    std::vector<pkv_token> target(prompt_tokens);
    const uint64_t fill = kind == Kind::miss ? 0 : kind == Kind::hit ? 1 : (1 << 16) / blocks / prompts_per_slice + 1;
    for (uint64_t round = 0; round < fill; ++round) {
        if (round > 0) prompts.renew();
        for (uint64_t i = 0; i < prompts_per_slice; ++i) admit_and_clear(table, prompts.at(i), true, 0);
    }
    bench::Slices slices;
    for (auto _ : state) {
        if (kind == Kind::miss_publish) prompts.renew();
        slices.reference.push_back(bench::seconds([&] { prompts.copy_all(target); }));
        slices.ours.push_back(bench::seconds([&] {
            for (uint64_t i = 0; i < prompts_per_slice; ++i)
                admit_and_clear(table, prompts.at(i), kind == Kind::miss_publish, kind == Kind::hit ? blocks : 0);
        }));
        state.SetIterationTime(slices.ours.back());
    }
    slices.report(state, "prompt", static_cast<double>(prompts_per_slice));
    slices.report(state, "block", static_cast<double>(prompts_per_slice * blocks));
    bench::check(pkv_table_destroy(table, nullptr));
    bench::check(pkv_pool_destroy(pool));
}
BENCHMARK_CAPTURE(admit_release, hit, Kind::hit)->Name("table/admit_release_hit")->UseManualTime();
BENCHMARK_CAPTURE(admit_release, miss, Kind::miss)->Name("table/admit_release_miss")->UseManualTime();
BENCHMARK_CAPTURE(admit_release, miss_publish, Kind::miss_publish)
    ->Name("table/admit_publish_release_miss")
    ->UseManualTime();

} // namespace
