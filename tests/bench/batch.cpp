// SPDX-License-Identifier: Apache-2.0
// Suite batch: the bookkeeping of a decode step of 256 sequences, one new token each, without the copies of rows: reserve,
// set_tokens and commit. Reference: one read and one write of a cache line for each sequence, which no bookkeeping can avoid.
#include "bench.h"

namespace {

constexpr uint32_t sequences = 256;
constexpr uint64_t page_tokens = 16;
constexpr uint64_t prompt_tokens = 1024;
constexpr uint64_t max_blocks = 4096;

struct alignas(64) Line {
    uint64_t value;
};

void decode_step(benchmark::State &state) {
    pkv_pool *pool = bench::id_pool(1 << 20, page_tokens);
    std::vector<int32_t> block_table(sequences * max_blocks), lengths(sequences), last_page_len(sequences);
    std::vector<int64_t> slots(sequences);
    pkv_batch_arrays arrays = PKV_BATCH_ARRAYS_INIT;
    arrays.block_table = block_table.data();
    arrays.max_blocks = max_blocks;
    arrays.slot_mapping = slots.data();
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = sequences;
    options.num_arrays = 1;
    options.arrays = &arrays;
    options.max_tokens = sequences;
    options.lengths = lengths.data();
    options.last_page_len = last_page_len.data();
    pkv_batch *batch = nullptr;
    bench::check(pkv_batch_create(pool, &options, &batch));

    std::vector<pkv_table *> tables(sequences);
    std::vector<pkv_token> prompt_ids(prompt_tokens), ids(sequences);
    std::vector<uint32_t> num_new(sequences, 1);
    bench::Random random(8);
    auto admit = [&](pkv_table *table) {
        for (pkv_token &token : prompt_ids) token = static_cast<pkv_token>(random.next());
        pkv_prompt prompt = PKV_PROMPT_INIT;
        prompt.tokens = prompt_ids.data();
        prompt.num_tokens = prompt_tokens;
        bench::check(pkv_table_admit(table, &prompt, nullptr, nullptr));
        // Lengths differ, so that block borders do not all fall into one step.
        bench::check(pkv_table_commit(table, prompt_tokens - random.below(page_tokens), nullptr));
        pkv_table_info info = PKV_TABLE_INFO_INIT;
        bench::check(pkv_table_get_info(table, &info));
        bench::check(pkv_table_truncate(table, info.committed, nullptr));
    };
    for (pkv_table *&table : tables) {
        bench::check(pkv_table_create(pool, &table));
        admit(table);
    }
    std::vector<Line> lines(sequences);
    bench::Slices slices;
    uint64_t steps = 0;
    for (auto _ : state) {
        if (++steps == (max_blocks - prompt_tokens / page_tokens) * page_tokens - page_tokens) {
            for (pkv_table *table : tables) {
                bench::check(pkv_table_clear(table, nullptr));
                admit(table);
            }
            steps = 0;
        }
        for (pkv_token &token : ids) token = static_cast<pkv_token>(steps);
        slices.reference.push_back(bench::seconds([&] {
            for (Line &line : lines) benchmark::DoNotOptimize(line.value += 1);
        }));
        slices.ours.push_back(bench::seconds([&] {
            bench::check(pkv_batch_reserve(batch, sequences, tables.data(), num_new.data(), nullptr));
            bench::check(pkv_batch_set_tokens(batch, sequences, ids.data(), nullptr));
            bench::check(pkv_batch_commit(batch, nullptr, nullptr, nullptr));
        }));
        state.SetIterationTime(slices.ours.back());
    }
    slices.report(state, "step", 1);
    slices.report(state, "sequence", sequences);
    bench::check(pkv_batch_destroy(batch));
    for (pkv_table *table : tables) bench::check(pkv_table_destroy(table, nullptr));
    bench::check(pkv_pool_destroy(pool));
}
BENCHMARK(decode_step)->Name("batch/decode_step_256")->UseManualTime();

} // namespace
