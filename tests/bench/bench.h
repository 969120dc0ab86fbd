// SPDX-License-Identifier: Apache-2.0
// What the benchmarks share. Each row alternates short slices of our work and of a reference in the same run, so that both
// see the same machine, and reports medians:
//   ratio      our speed / the reference's speed (1 = as fast as the reference)
//   spread     interquartile range of our slices / their median: the noise of this run
#pragma once

#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <pagedkv/pagedkv.h>
#include <vector>

namespace bench {

inline void check(pkv_status status) {
    if (status == PKV_OK) return;
    char message[512];
    pkv_last_error(message, sizeof message);
    std::fprintf(stderr, "pkv-bench: %s: %s\n", pkv_status_string(status), message);
    std::exit(1);
}

class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t mixed = state_ += 0x9E3779B97F4A7C15;
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
        return mixed ^ (mixed >> 31);
    }
    uint64_t below(uint64_t bound) { return next() % bound; }

  private:
    uint64_t state_;
};

template <class Work> double seconds(Work &&work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double percentile(std::vector<double> values, double at) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(at * static_cast<double>(values.size() - 1) + 0.5)];
}

/// Slices of ours and of the reference.
struct Slices {
    std::vector<double> ours;
    std::vector<double> reference;

    /// `items` of a slice, named in the counters: ns_per_<item>.
    void report(benchmark::State &state, const char *item, double items) const {
        const double median = percentile(ours, 0.5);
        state.counters[std::string("ns_per_") + item] = median * 1e9 / items;
        state.counters["spread"] = (percentile(ours, 0.75) - percentile(ours, 0.25)) / median;
        if (reference.empty()) return;
        state.counters[std::string("reference_ns_per_") + item] = percentile(reference, 0.5) * 1e9 / items;
        state.counters["ratio"] = percentile(reference, 0.5) / median;
    }
};

/// Runs one slice of each, ours timed for the benchmark as well.
template <class Ours, class Reference>
void alternate(benchmark::State &state, Slices &slices, Ours &&ours, Reference &&reference) {
    for (auto _ : state) {
        slices.reference.push_back(seconds(reference));
        slices.ours.push_back(seconds(ours));
        state.SetIterationTime(slices.ours.back());
    }
}

/// A pool of one group, ids only.
inline pkv_pool *id_pool(uint64_t num_pages, uint32_t page_tokens) {
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = num_pages;
    group.num_layers = 1;
    group.num_kv_heads = 8;
    group.k_head_dim = group.v_head_dim = 128;
    group.memory = PKV_MEMORY_NONE;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    pkv_pool *pool = nullptr;
    check(pkv_pool_create(&options, &pool));
    return pool;
}

} // namespace bench
