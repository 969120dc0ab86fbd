// SPDX-License-Identifier: Apache-2.0
// Suite scaling: one pool from one and from two threads, and the cost of a page as pools grow.
#include "bench.h"

#include <atomic>
#include <thread>

namespace {

constexpr uint64_t page_tokens = 16;
constexpr uint64_t prompt_tokens = 4096;
constexpr uint64_t prompts = 64;

/// Sequences that a server would see: a prompt of which three quarters are cached, then some decode steps, then release.
class Server {
  public:
    Server() : pool_(bench::id_pool(1 << 18, page_tokens)) {}
    ~Server() { pkv_pool_destroy(pool_); }
    void serve(uint64_t seed, uint64_t sequences) const {
        bench::Random random(seed);
        std::vector<pkv_token> tokens(prompt_tokens);
        pkv_table *table = nullptr;
        bench::check(pkv_table_create(pool_, &table));
        for (uint64_t i = 0; i < sequences; ++i) {
            bench::Random shared(random.below(prompts)); // the prompt's first three quarters
            for (uint64_t at = 0; at < prompt_tokens; ++at)
                tokens[at] = static_cast<pkv_token>(at < prompt_tokens * 3 / 4 ? shared.next() : random.next());
            pkv_prompt prompt = PKV_PROMPT_INIT;
            prompt.tokens = tokens.data();
            prompt.num_tokens = prompt_tokens;
            bench::check(pkv_table_admit(table, &prompt, nullptr, nullptr));
            bench::check(pkv_table_commit(table, prompt_tokens, nullptr));
            for (uint64_t step = 1; step <= 32; ++step) {
                const auto token = static_cast<pkv_token>(step);
                bench::check(pkv_table_reserve(table, prompt_tokens + step));
                bench::check(pkv_table_set_tokens(table, prompt_tokens + step - 1, 1, &token));
                bench::check(pkv_table_commit(table, prompt_tokens + step, nullptr));
            }
            bench::check(pkv_table_clear(table, nullptr));
        }
        bench::check(pkv_table_destroy(table, nullptr));
    }

  private:
    pkv_pool *pool_;
};

/// Nanoseconds that a cache line takes from one core to another: two threads answer each other over one.
double line_transfer_ns() {
    constexpr uint64_t turns = 100000;
    alignas(64) std::atomic<uint64_t> line{0};
    auto answer = [&](uint64_t first) {
        for (uint64_t i = first; i < turns; i += 2) {
            while (line.load() != i) {
            }
            line.store(i + 1);
        }
    };
    const double seconds = bench::seconds([&] {
        std::thread other([&] { answer(1); });
        answer(0);
        other.join();
    });
    return seconds * 1e9 / turns;
}

/// `ratio` = throughput of two threads on one pool / throughput of one. `ratio_of_two_pools` = the same with a pool for each
/// thread, in the same run: what the machine's second core is worth at most. What two threads share they take from each other's
/// caches, a line at a time: `ns_per_line` each.
void two_threads(benchmark::State &state) {
    constexpr uint64_t sequences = 200;
    Server server;
    Server apart;
    server.serve(1, 300);
    apart.serve(1, 300);
    bench::Slices slices;
    std::vector<double> two_pools;
    uint64_t seed = 100;
    auto serve_both = [&](const Server &second) {
        seed += 2;
        return bench::seconds([&] {
            std::thread other([&] { second.serve(seed, sequences); });
            server.serve(seed + 1, sequences);
            other.join();
        });
    };
    for (auto _ : state) {
        slices.reference.push_back(bench::seconds([&] { server.serve(seed++, sequences); }));
        slices.ours.push_back(serve_both(server));
        two_pools.push_back(serve_both(apart));
        state.SetIterationTime(slices.ours.back());
    }
    slices.report(state, "sequence", 2 * sequences);
    const double one = bench::percentile(slices.reference, 0.5);
    state.counters["reference_ns_per_sequence"] = one * 1e9 / sequences;
    state.counters["ratio"] = 2 * one / bench::percentile(slices.ours, 0.5);
    state.counters["ratio_of_two_pools"] = 2 * one / bench::percentile(two_pools, 0.5);
    state.counters["ns_per_line"] = line_transfer_ns();
}
BENCHMARK(two_threads)->Name("scaling/two_threads")->UseManualTime()->Unit(benchmark::kMillisecond);

/// The life of a page, in a full pool of n pages: a block of a random chain is found, its page held and released, and a new
/// chain takes the place of the oldest. Reference: a random cache line of a table of 64 bytes a page, each load waiting for the
/// one before: what a page of state in a larger pool costs at least, as caches hold less of it.
void pool_size(benchmark::State &state) {
    const auto num_pages = static_cast<uint64_t>(state.range(0));
    constexpr uint64_t chain = 32;
    constexpr uint64_t rounds = 64;
    pkv_pool *pool = bench::id_pool(num_pages, page_tokens);
    std::vector<pkv_page> pages(chain);
    std::vector<pkv_token> tokens(chain * page_tokens);
    auto prompt_of = [&](uint64_t number) {
        bench::Random random(number);
        for (pkv_token &token : tokens) token = static_cast<pkv_token>(random.next());
        pkv_prompt prompt = PKV_PROMPT_INIT;
        prompt.tokens = tokens.data();
        prompt.num_tokens = tokens.size();
        return prompt;
    };
    auto add = [&](uint64_t number) {
        const pkv_prompt prompt = prompt_of(number);
        bench::check(pkv_pool_alloc(pool, 0, chain, pages.data()));
        bench::check(pkv_pool_publish(pool, 0, &prompt, 0, chain, pages.data(), nullptr));
        bench::check(pkv_pool_release(pool, 0, chain, pages.data(), nullptr, nullptr));
    };
    const uint64_t chains = num_pages / chain;
    uint64_t newest = 0;
    while (newest < chains) add(newest++);
    std::vector<uint64_t> lines(num_pages * 8);
    for (uint64_t i = 0; i < num_pages; ++i) lines[i * 8] = i * 0x9E3779B97F4A7C15;
    bench::Random random(9);
    uint64_t where = 0;
    bench::Slices slices;
    bench::alternate(
        state, slices,
        [&] {
            for (uint64_t i = 0; i < rounds; ++i) {
                const pkv_prompt prompt = prompt_of(newest - 1 - random.below(chains / 2));
                pkv_match match = PKV_MATCH_INIT;
                bench::check(pkv_pool_lookup(pool, &prompt, PKV_MATCH_ALL, pages.data(), chain, &match));
                bench::check(pkv_pool_release(pool, 0, match.blocks, pages.data(), nullptr, nullptr));
                add(newest++);
            }
        },
        [&] {
            for (uint64_t i = 0; i < rounds * chain; ++i) where = (lines[where * 8] + i) % num_pages;
            benchmark::DoNotOptimize(where);
        });
    slices.report(state, "page", static_cast<double>(rounds * chain));
    bench::check(pkv_pool_destroy(pool));
}
BENCHMARK(pool_size)->Name("scaling/pages")->RangeMultiplier(10)->Range(10000, 10000000)->UseManualTime();

} // namespace
