// SPDX-License-Identifier: Apache-2.0
// Suite tier: page images to and from a file and host memory, evictions over tiers, and the restart of a file.
// PKV_BENCH_DIR names the folder for the files (default: the current one).
#include "bench.h"
#include "ring.h"

#include <cstring>
#include <random>
#include <string>
#include <unistd.h>

namespace {

constexpr uint64_t page_tokens = 16;
constexpr uint32_t depth = 32;

/// A pool over one tier whose pages have so many bytes in so many layers, and keys for them.
struct TieredPool {
    pkv_pool *pool = nullptr;
    pkv_tier *tier = nullptr;
    uint64_t page_bytes = 0;
    std::vector<pkv_page> pages;
    std::vector<pkv_tier_key> keys;

    TieredPool(pkv_tier *at, uint64_t bytes, uint32_t layers, uint64_t num_pages, uint64_t num_keys)
        : tier(at), page_bytes(bytes) {
        pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
        group.num_pages = num_pages;
        group.num_layers = layers;
        group.num_kv_heads = 1;
        group.k_head_dim = group.v_head_dim = static_cast<uint32_t>(bytes / layers / page_tokens / 4);
        pkv_tier_attachment attachment = PKV_TIER_ATTACHMENT_INIT;
        attachment.tier = tier;
        attachment.policy = PKV_TIER_WRITE_ON_HITS;
        attachment.hits = 1000; // nothing is stored but by call
        pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
        options.page_tokens = page_tokens;
        options.num_groups = 1;
        options.groups = &group;
        options.tiers = &attachment;
        options.num_tiers = 1;
        options.staging_bytes = (bytes + 65536) * depth * 4;
        bench::check(pkv_pool_create(&options, &pool));
        pages.resize(num_pages);
        bench::check(pkv_pool_alloc(pool, 0, num_pages, pages.data()));
        for (const pkv_page page : pages) {
            pkv_layer_layout where = PKV_LAYER_LAYOUT_INIT;
            bench::check(pkv_pool_layout(pool, 0, 0, &where));
            std::memset(static_cast<char *>(where.k_base) + static_cast<uint64_t>(page) * where.k.page, page, bytes);
        }
        bench::Random random(5);
        keys.resize(num_keys);
        for (pkv_tier_key &key : keys)
            for (int i = 0; i < 4; ++i) {
                const uint64_t word = random.next();
                std::memcpy(key.bytes + 8 * i, &word, 8);
            }
    }
    ~TieredPool() {
        bench::check(pkv_pool_destroy(pool));
        bench::check(pkv_tier_close(tier));
    }
    TieredPool(const TieredPool &) = delete;
    TieredPool &operator=(const TieredPool &) = delete;

    void store(uint64_t first, uint64_t count) { move(pkv_pool_store, first, count); }
    void load(uint64_t first, uint64_t count) { move(pkv_pool_load, first, count); }

  private:
    template <class Call> void move(Call call, uint64_t first, uint64_t count) {
        pkv_op *op = nullptr;
        bench::check(call(pool, 0, count, keys.data() + first, pages.data(), nullptr, nullptr, &op));
        bench::check(pkv_op_wait(op, UINT64_MAX));
        bench::check(pkv_op_close(op));
    }
};

// ---- file ----------------------------------------------------------------------------------------------------------

/// `ratio` = bytes of pages a second, checksums and all, to bytes of the bare loop, which moves whole images. Each slice
/// moves `batch` images; both files lie in one folder.
void file_move(benchmark::State &state, bool write) {
    const auto page_bytes = static_cast<uint64_t>(state.range(0));
    constexpr uint32_t layers = 8;
    const uint64_t image = page_bytes + 4096;
    const uint64_t images = (uint64_t{1} << 30) / image;
    const uint64_t batch = (uint64_t{64} << 20) / page_bytes;
    const std::string path = bench::file_in_folder("images"), other = bench::file_in_folder("bare");
    pkv_file_tier_options options = PKV_FILE_TIER_OPTIONS_INIT;
    options.path = path.c_str();
    options.capacity_bytes = images * image + (uint64_t{64} << 20);
    options.flags = PKV_FILE_RESET;
    options.depth = depth;
    pkv_tier *tier = nullptr;
    bench::check(pkv_tier_open_file(&options, &tier));
    {
        TieredPool tiered(tier, page_bytes, layers, batch, images);
        bench::BareRing bare(write ? other : path, image, depth);
        if (write &&
            posix_fallocate(open(other.c_str(), O_RDWR | O_CLOEXEC), 0, static_cast<off_t>(images * image)) != 0)
            std::abort();
        if (!write)
            for (uint64_t i = 0; i + batch <= images; i += batch) tiered.store(i, batch);
        bench::Random random(3);
        std::vector<uint64_t> offsets(batch);
        uint64_t at = 0;
        bench::Slices slices;
        bench::alternate(
            state, slices,
            [&] {
                if (write &&
                    at + batch > images) { // the keys once more: they are new to the tier if its images are gone
                    for (pkv_tier_key &key : tiered.keys) ++key.bytes[31];
                    at = 0;
                }
                const uint64_t first = write ? at : random.below(images / batch) * batch;
                at += batch;
                write ? tiered.store(first, batch) : tiered.load(first, batch);
            },
            [&] {
                const uint64_t first =
                    random.below(images / batch) * batch; // as ours: neighbours, one batch after another
                for (uint64_t i = 0; i < batch; ++i)
                    offsets[i] = (uint64_t{8} << 20) + (first + i) % (images - 64) * image;
                bare.run(write, offsets);
            });
        slices.report(state, "image", static_cast<double>(batch));
        state.counters["GBps"] = static_cast<double>(batch * page_bytes) / bench::percentile(slices.ours, 0.5) / 1e9;
    }
    unlink(path.c_str());
    unlink(other.c_str());
}
void file_load(benchmark::State &state) { file_move(state, false); }
void file_store(benchmark::State &state) { file_move(state, true); }
BENCHMARK(file_load)
    ->Name("tier/file_load")
    ->Arg(128 << 10)
    ->Arg(1 << 20)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(file_store)
    ->Name("tier/file_store")
    ->Arg(128 << 10)
    ->Arg(1 << 20)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// ---- host ----------------------------------------------------------------------------------------------------------

/// Reference: memcpy of the pages' bytes between two buffers as large as tier and pool.
void host_load(benchmark::State &state) {
    const auto page_bytes = static_cast<uint64_t>(state.range(0));
    const uint64_t images = (uint64_t{1} << 30) / page_bytes;
    const uint64_t batch = (uint64_t{64} << 20) / page_bytes;
    pkv_host_tier_options options = PKV_HOST_TIER_OPTIONS_INIT;
    options.capacity_bytes = images * (page_bytes + 4096) + (uint64_t{64} << 20);
    pkv_tier *tier = nullptr;
    bench::check(pkv_tier_open_host(&options, &tier));
    TieredPool tiered(tier, page_bytes, 8, batch, images);
    for (uint64_t i = 0; i + batch <= images; i += batch) tiered.store(i, batch);
    auto map = [](uint64_t bytes) {
        void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(memory, bytes, MADV_HUGEPAGE);
        std::memset(memory, 1, bytes);
        return static_cast<char *>(memory);
    };
    char *from = map(images * page_bytes), *to = map(batch * page_bytes);
    bench::Random random(3);
    bench::Slices slices;
    bench::alternate(
        state, slices, [&] { tiered.load(random.below(images / batch) * batch, batch); },
        [&] {
            const uint64_t first = random.below(images / batch) * batch;
            for (uint64_t i = 0; i < batch; ++i)
                std::memcpy(to + i * page_bytes, from + (first + i) * page_bytes, page_bytes);
        });
    slices.report(state, "image", static_cast<double>(batch));
    state.counters["GBps"] = static_cast<double>(batch * page_bytes) / bench::percentile(slices.ours, 0.5) / 1e9;
    munmap(from, images * page_bytes);
    munmap(to, batch * page_bytes);
}
BENCHMARK(host_load)
    ->Name("tier/host_load")
    ->Arg(128 << 10)
    ->Arg(1 << 20)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// ---- alloc ---------------------------------------------------------------------------------------------------------

/// Latency of pkv_pool_alloc of one page in a full pool over a host tier, while the cleaner stores what comes next.
/// `clean` = share of evicted pages whose image was stored.
void alloc_over_tier(benchmark::State &state) {
    constexpr uint64_t page_bytes = 128 << 10, num_pages = 4096, chain = 8;
    pkv_host_tier_options host = PKV_HOST_TIER_OPTIONS_INIT;
    host.capacity_bytes = uint64_t{2} << 30;
    pkv_tier *tier = nullptr;
    bench::check(pkv_tier_open_host(&host, &tier));
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = num_pages;
    group.num_layers = 8;
    group.num_kv_heads = 1;
    group.k_head_dim = group.v_head_dim = page_bytes / 8 / page_tokens / 4;
    pkv_tier_attachment attachment = PKV_TIER_ATTACHMENT_INIT;
    attachment.tier = tier;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = &attachment;
    options.num_tiers = 1;
    pkv_pool *pool = nullptr;
    bench::check(pkv_pool_create(&options, &pool));
    uint64_t number = 0;
    std::vector<double> times;
    auto add = [&](bool timed) {
        bench::Random random(++number);
        std::vector<pkv_token> tokens(chain * page_tokens);
        for (pkv_token &token : tokens) token = static_cast<pkv_token>(random.next());
        pkv_prompt prompt = PKV_PROMPT_INIT;
        prompt.tokens = tokens.data();
        prompt.num_tokens = tokens.size();
        pkv_page pages[chain];
        for (pkv_page &page : pages) {
            const double time = bench::seconds([&] { bench::check(pkv_pool_alloc(pool, 0, 1, &page)); });
            if (timed) times.push_back(time);
        }
        bench::check(pkv_pool_publish(pool, 0, &prompt, 0, chain, pages, nullptr));
        bench::check(pkv_pool_release(pool, 0, chain, pages, nullptr, nullptr));
    };
    for (uint64_t i = 0; i < num_pages / chain; ++i) add(false);
    bench::check(pkv_pool_flush(pool, UINT64_MAX));
    pkv_pool_stats before = PKV_POOL_STATS_INIT, after = PKV_POOL_STATS_INIT;
    bench::check(pkv_pool_get_stats(pool, 0, &before));
    for (auto _ : state) {
        state.SetIterationTime(bench::seconds([&] { add(true); }));
        // The pace of a server that computes 8 blocks in 400 microseconds, as far as the cleaner gets a core for itself.
        const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(400);
        while (std::chrono::steady_clock::now() < until) {
        }
    }
    bench::check(pkv_pool_get_stats(pool, 0, &after));
    state.counters["p50_us"] = bench::percentile(times, 0.5) * 1e6;
    state.counters["p99_us"] = bench::percentile(times, 0.99) * 1e6;
    state.counters["p999_us"] = bench::percentile(times, 0.999) * 1e6;
    const auto evicted = static_cast<double>(after.evicted_pages - before.evicted_pages);
    state.counters["clean"] = 1 - static_cast<double>(after.dropped_images - before.dropped_images) / evicted;
    bench::check(pkv_pool_destroy(pool));
    bench::check(pkv_tier_close(tier));
}
BENCHMARK(alloc_over_tier)->Name("tier/alloc_write_back")->UseManualTime()->Unit(benchmark::kMicrosecond);

// ---- restart -------------------------------------------------------------------------------------------------------

/// Opening of a file with 1,000,000 images of 8 KiB, its records in the page cache. Takes 8 GB of disk.
void restart(benchmark::State &state) {
    constexpr uint64_t images = 1'000'000, batch = 4096;
    const std::string path = bench::file_in_folder("restart");
    pkv_file_tier_options options = PKV_FILE_TIER_OPTIONS_INIT;
    options.path = path.c_str();
    options.capacity_bytes = images * 8192 + (uint64_t{64} << 20);
    options.max_images = images + batch;
    options.flags = PKV_FILE_RESET;
    pkv_tier *tier = nullptr;
    bench::check(pkv_tier_open_file(&options, &tier));
    {
        TieredPool tiered(tier, 4096, 1, batch, images + batch);
        for (uint64_t i = 0; i < images; i += batch) tiered.store(i, batch);
    }
    options.flags = 0;
    uint64_t recovered = 0;
    for (auto _ : state) {
        state.SetIterationTime(bench::seconds([&] { bench::check(pkv_tier_open_file(&options, &tier)); }));
        pkv_tier_stats stats = PKV_TIER_STATS_INIT;
        bench::check(pkv_tier_get_stats(tier, &stats));
        recovered = stats.usage.recovered_images;
        bench::check(pkv_tier_close(tier));
    }
    state.counters["recovered"] = static_cast<double>(recovered);
    unlink(path.c_str());
}
BENCHMARK(restart)->Name("tier/restart_1000000")->UseManualTime()->Iterations(5)->Unit(benchmark::kMillisecond);

} // namespace
