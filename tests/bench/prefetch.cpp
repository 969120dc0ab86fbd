// SPDX-License-Identifier: Apache-2.0
// Suite prefetch: what a session costs when there is nothing to load, how much of a file's and of host memory's speed it
// passes on, and how much of the I/O it hides behind compute. PKV_BENCH_DIR names the folder for the file.
#include "bench.h"
#include "ring.h"

#include <ctime>

namespace {

constexpr uint32_t layers = 32, heads = 8, dim = 128, page_tokens = 16;
constexpr uint64_t slice_bytes = uint64_t{2} * page_tokens * heads * dim * 2; // 64 KiB
constexpr uint64_t image_bytes = 4096 + layers * slice_bytes;

/// Waits as a caller waits for a device: asleep, but for the end.
void compute_for(double seconds) {
    if (seconds <= 0) return;
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
    const auto left =
        std::chrono::duration_cast<std::chrono::nanoseconds>(until - std::chrono::steady_clock::now()).count();
    if (left > 100'000) {
        const timespec time{(left - 70'000) / 1'000'000'000, (left - 70'000) % 1'000'000'000};
        clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
    }
    while (std::chrono::steady_clock::now() < until) {
    }
}

/// A sequence of whole blocks in a pool over one tier, in pages or spilled, and a session.
class Sequence {
  public:
    Sequence(pkv_tier *tier, uint64_t blocks, bool spilled) : tier_(tier), blocks_(blocks) {
        pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
        group.num_pages = blocks + staging_pages;
        group.num_layers = layers;
        group.num_kv_heads = heads;
        group.k_head_dim = group.v_head_dim = dim;
        pkv_tier_attachment attachment = PKV_TIER_ATTACHMENT_INIT;
        attachment.tier = tier;
        pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
        options.page_tokens = page_tokens;
        options.num_groups = 1;
        options.groups = &group;
        options.tiers = &attachment;
        options.num_tiers = 1;
        bench::check(pkv_pool_create(&options, &pool_));
        pkv_prompt prompt = PKV_PROMPT_INIT;
        bench::check(pkv_table_create(pool_, &table_));
        bench::check(pkv_table_admit(table_, &prompt, nullptr, nullptr));
        bench::check(pkv_table_reserve(table_, blocks * page_tokens));
        if (spilled) fill();
        bench::check(pkv_table_commit(table_, blocks * page_tokens, nullptr));
        if (spilled) bench::check(pkv_table_spill(table_, 0, blocks, nullptr, nullptr));
        pkv_prefetch_options session = PKV_PREFETCH_OPTIONS_INIT;
        session.staging_pages = &staging_pages;
        bench::check(pkv_prefetch_open(pool_, &session, &session_));
    }
    ~Sequence() {
        bench::check(pkv_prefetch_close(session_, nullptr));
        bench::check(pkv_table_destroy(table_, nullptr));
        bench::check(pkv_pool_destroy(pool_));
        bench::check(pkv_tier_close(tier_));
    }
    Sequence(const Sequence &) = delete;
    Sequence &operator=(const Sequence &) = delete;

    uint64_t bytes() const { return blocks_ * layers * slice_bytes; }
    void begin() { bench::check(pkv_prefetch_step_begin(session_, 1, &table_, nullptr, nullptr)); }
    void end() { bench::check(pkv_prefetch_step_end(session_, nullptr)); }
    void go_through_layers(double compute) {
        for (uint32_t index = 0; index < layers; ++index) {
            pkv_layer_view view = PKV_LAYER_VIEW_INIT;
            do {
                bench::check(pkv_prefetch_layer_acquire(session_, index, UINT64_MAX, nullptr, &view));
                if (view.last) compute_for(compute);
                bench::check(pkv_prefetch_layer_release(session_, index, nullptr));
            } while (!view.last);
        }
    }
    void step(double compute) {
        begin();
        go_through_layers(compute);
        end();
    }
    /// Nothing is loaded ahead any more, so that the reference has the machine for itself.
    void rest() { bench::check(pkv_prefetch_cancel(session_)); }
    pkv_prefetch_stats stats() {
        pkv_prefetch_stats stats = PKV_PREFETCH_STATS_INIT;
        bench::check(pkv_prefetch_get_stats(session_, &stats));
        return stats;
    }

  private:
    void fill() {
        bench::Random random(7);
        std::vector<pkv_page> pages(blocks_);
        uint64_t count = 0;
        bench::check(pkv_table_pages(table_, 0, pages.data(), blocks_, &count));
        pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
        bench::check(pkv_pool_layout(pool_, 0, 0, &layout));
        for (const pkv_page page : pages) {
            char *at = static_cast<char *>(layout.k_base) + static_cast<uint64_t>(page) * layout.k.page;
            for (uint64_t byte = 0; byte < layers * slice_bytes; byte += 8) {
                const uint64_t word = random.next();
                std::memcpy(at + byte, &word, 8);
            }
        }
    }

    static constexpr uint64_t staging_pages = 12;
    pkv_tier *tier_;
    uint64_t blocks_;
    pkv_pool *pool_ = nullptr;
    pkv_table *table_ = nullptr;
    pkv_prefetch *session_ = nullptr;
};

pkv_tier *host_tier(uint64_t blocks) {
    pkv_host_tier_options options = PKV_HOST_TIER_OPTIONS_INIT;
    options.capacity_bytes = (blocks + 8) * image_bytes;
    pkv_tier *tier = nullptr;
    bench::check(pkv_tier_open_host(&options, &tier));
    return tier;
}

// ---- nothing to do -------------------------------------------------------------------------------------------------

/// A step over one table whose blocks are all in pages.
void nothing_to_do(benchmark::State &state, bool with_layers) {
    constexpr uint64_t steps = 1000;
    Sequence sequence(host_tier(8), static_cast<uint64_t>(state.range(0)), false);
    sequence.step(0);
    bench::Slices slices;
    for (auto _ : state) {
        slices.ours.push_back(bench::seconds([&] {
            for (uint64_t i = 0; i < steps; ++i) {
                sequence.begin();
                if (with_layers) sequence.go_through_layers(0);
                sequence.end();
            }
        }));
        state.SetIterationTime(slices.ours.back());
    }
    slices.report(state, "step", steps);
}
void step_nothing_to_do(benchmark::State &state) { nothing_to_do(state, false); }
void step_nothing_to_do_layers(benchmark::State &state) { nothing_to_do(state, true); }
BENCHMARK(step_nothing_to_do)
    ->Name("prefetch/step_nothing_to_do")
    ->Arg(8)
    ->Arg(256)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(step_nothing_to_do_layers)
    ->Name("prefetch/step_nothing_to_do_32_layers")
    ->Arg(8)
    ->Arg(256)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// ---- all of it comes from a tier -----------------------------------------------------------------------------------

/// Alternates steps over a spilled sequence with a reference that moves the same bytes, and reports
///   GBps     bytes that the steps needed / their time; ratio: to the reference's
///   masking  masked / I/O time of these steps
///   exposed  exposed / I/O time
/// `compute` seconds pass in each layer. A step goes before, so that the first of the timed ones finds its first layers.
template <class Reference>
void through_tier(benchmark::State &state, Sequence &sequence, double compute, Reference &&reference) {
    constexpr uint64_t steps = 2;
    bench::Slices slices;
    uint64_t io = 0, masked = 0, exposed = 0;
    for (auto _ : state) {
        slices.reference.push_back(bench::seconds([&] {
            for (uint64_t i = 0; i < steps; ++i) reference();
        }));
        sequence.step(compute);
        const pkv_prefetch_stats before = sequence.stats();
        slices.ours.push_back(bench::seconds([&] {
            for (uint64_t i = 0; i < steps; ++i) sequence.step(compute);
        }));
        const pkv_prefetch_stats after = sequence.stats();
        sequence.rest();
        state.SetIterationTime(slices.ours.back());
        io += after.io_ns - before.io_ns;
        masked += after.masked_ns - before.masked_ns;
        exposed += after.exposed_ns - before.exposed_ns;
    }
    const auto moved = static_cast<double>(steps * sequence.bytes());
    slices.report(state, "slice", moved / slice_bytes);
    state.counters["GBps"] = moved / bench::percentile(slices.ours, 0.5) / 1e9;
    state.counters["reference_GBps"] = moved / bench::percentile(slices.reference, 0.5) / 1e9;
    state.counters["masking"] = static_cast<double>(masked) / static_cast<double>(io);
    state.counters["exposed"] = static_cast<double>(exposed) / static_cast<double>(io);
}

/// From a file. Compute takes so many hundredths of the time in which the bare loop reads a layer: with 0 `ratio` says how
/// much of the device's speed comes through, with 50 whether compute costs any of it, and with 125 `exposed` says what is
/// not hidden.
void step_overlap(benchmark::State &state) {
    constexpr uint64_t blocks = 64;
    constexpr uint32_t depth = 64;
    const std::string path = bench::file_in_folder("overlap");
    pkv_file_tier_options options = PKV_FILE_TIER_OPTIONS_INIT;
    options.path = path.c_str();
    options.capacity_bytes = (blocks + 8) * image_bytes;
    options.flags = PKV_FILE_RESET;
    options.depth = depth;
    pkv_tier *tier = nullptr;
    bench::check(pkv_tier_open_file(&options, &tier));
    {
        Sequence sequence(tier, blocks, true);
        bench::BareRing bare(path, slice_bytes, depth);
        // As the session reads: slice by slice of a layer, an image apart. Where exactly does not matter to a device.
        std::vector<uint64_t> offsets;
        for (uint32_t layer = 0; layer < layers; ++layer)
            for (uint64_t block = 0; block < blocks; ++block)
                offsets.push_back((uint64_t{1} << 20) + block * image_bytes + layer * slice_bytes);
        std::vector<double> times;
        for (int i = 0; i < 5; ++i) times.push_back(bench::seconds([&] { bare.run(false, offsets); }));
        const double io = bench::percentile(times, 0.5) / layers;
        through_tier(state, sequence, io * static_cast<double>(state.range(0)) / 100,
                     [&] { bare.run(false, offsets); });
        state.counters["io_ms_per_layer"] = io * 1e3;
    }
    unlink(path.c_str());
}
BENCHMARK(step_overlap)
    ->Name("prefetch/step_overlap")
    ->Arg(0)
    ->Arg(50)
    ->Arg(125)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

/// From host memory, without compute. Reference: memcpy of the same slices, on one thread; a session has its own besides
/// the caller's.
void stage_slices(benchmark::State &state) {
    constexpr uint64_t blocks = 64;
    Sequence sequence(host_tier(blocks), blocks, true);
    auto map = [](uint64_t bytes) {
        void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(memory, bytes, MADV_HUGEPAGE);
        std::memset(memory, 1, bytes);
        return static_cast<char *>(memory);
    };
    constexpr uint64_t buffers = 4;
    char *from = map(sequence.bytes()), *to = map(buffers * blocks * slice_bytes);
    through_tier(state, sequence, 0, [&] {
        for (uint64_t layer = 0; layer < layers; ++layer)
            for (uint64_t block = 0; block < blocks; ++block)
                std::memcpy(to + (layer % buffers * blocks + block) * slice_bytes,
                            from + (block * layers + layer) * slice_bytes, slice_bytes);
    });
    munmap(from, sequence.bytes());
    munmap(to, buffers * blocks * slice_bytes);
}
BENCHMARK(stage_slices)->Name("prefetch/stage_slices")->UseManualTime()->Unit(benchmark::kMillisecond);

} // namespace
