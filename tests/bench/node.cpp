// SPDX-License-Identifier: Apache-2.0
// Suite node: page images of a node in another process, through its tier, against a loop of fi_read() over the same provider, of
// the same size and as many in flight: "restore" of a sequence that was matched, into the pages of a pool, with all that is
// checked on the way; "read" of leased images into memory, without. `checksum_ns_per_image` is one pass over an image that does
// nothing else, in the same run. "copied": by a node that opens no memory of its tiers (PKV_NODE_COPY). And lookups: of 1,024
// keys, which are one message each way, against one of a single key.
#if __has_include(<rdma/fabric.h>)
#include "core/checksum.h"
#include "core/handles.h"
#include "peer.h"
#include "tier/tier.h"

#include <atomic>
#include <numeric>
#include <pagedkv/node.h>
#include <utility>

namespace {

constexpr uint32_t in_flight = 16;
constexpr uint32_t layers = 8;
constexpr uint64_t slice_bytes = 64 << 20; ///< of pages of one sequence
constexpr uint64_t sequences = 4;
constexpr uint64_t page_tokens = 16;
constexpr char serve_variable[] = "PKV_BENCH_NODE";
constexpr unsigned char cluster_key[PKV_CLUSTER_KEY_BYTES] = "for benchmarks: nobody's secret";

pkv_node_options options_of(const char *provider) {
    setenv("PKV_PLUGIN_DIR", bench::plugin_folder().c_str(), 0);
    pkv_node_options options = PKV_NODE_OPTIONS_INIT;
    options.cluster_key = {cluster_key, sizeof cluster_key};
    options.provider = provider;
    return options;
}

struct Address {
    char text[280] = "";
};

uint64_t image_bytes_of(uint64_t page_bytes) { return page_bytes + 4096; }
uint64_t blocks_of(uint64_t page_bytes) { return slice_bytes / page_bytes; }

/// A pool for one sequence, over one tier.
pkv_pool *make_pool(uint64_t page_bytes, pkv_tier *tier, int32_t policy) {
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = blocks_of(page_bytes);
    group.num_layers = layers;
    group.num_kv_heads = 1;
    group.k_head_dim = group.v_head_dim = static_cast<uint32_t>(page_bytes / layers / page_tokens / 4);
    pkv_tier_attachment attachment = PKV_TIER_ATTACHMENT_INIT;
    attachment.tier = tier;
    attachment.policy = policy;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    options.page_tokens = page_tokens;
    options.num_groups = 1;
    options.groups = &group;
    options.tiers = &attachment;
    options.num_tiers = 1;
    options.staging_bytes = image_bytes_of(page_bytes) * in_flight;
    pkv_pool *pool = nullptr;
    bench::check(pkv_pool_create(&options, &pool));
    return pool;
}

/// One of the sequences, the same in both processes.
class Sequence {
  public:
    Sequence(uint64_t number, uint64_t blocks) : tokens_(blocks * page_tokens) {
        bench::Random random(number + 1);
        for (pkv_token &token : tokens_) token = static_cast<pkv_token>(random.next());
    }
    pkv_prompt prompt() const {
        pkv_prompt prompt = PKV_PROMPT_INIT;
        prompt.tokens = tokens_.data();
        prompt.num_tokens = tokens_.size();
        return prompt;
    }

  private:
    std::vector<pkv_token> tokens_;
};

/// The other process: a node with a host tier full of sequences, and the other side of the loop.
/// `setting`: "provider page_bytes flags".
void serve(const std::string &setting) {
    char provider[64];
    unsigned long long page_bytes = 0;
    unsigned flags = 0;
    if (std::sscanf(setting.c_str(), "%63s %llu %u", provider, &page_bytes, &flags) != 3) bench::give_up("its setting");
    pkv_host_tier_options host = PKV_HOST_TIER_OPTIONS_INIT;
    host.capacity_bytes = sequences * blocks_of(page_bytes) * image_bytes_of(page_bytes) + (uint64_t{64} << 20);
    pkv_tier *tier = nullptr;
    bench::check(pkv_tier_open_host(&host, &tier));
    pkv_pool *pool = make_pool(page_bytes, tier, PKV_TIER_WRITE_BACK);
    const uint64_t blocks = blocks_of(page_bytes);
    std::vector<pkv_page> pages(blocks);
    for (uint64_t i = 0; i < sequences; ++i) {
        const Sequence sequence(i, blocks);
        const pkv_prompt prompt = sequence.prompt();
        bench::check(pkv_pool_alloc(pool, 0, blocks, pages.data()));
        bench::check(pkv_pool_publish(pool, 0, &prompt, 0, blocks, pages.data(), nullptr));
        bench::check(pkv_pool_release(pool, 0, blocks, pages.data(), nullptr, nullptr));
        bench::check(pkv_pool_flush(pool, UINT64_MAX));
    }
    pkv_node_options options = options_of(provider);
    options.listen = "127.0.0.1:0";
    options.tiers = &tier;
    options.num_tiers = 1;
    options.flags = flags;
    pkv_node *node = nullptr;
    bench::check(pkv_node_open(&options, &node));
    Address address;
    uint64_t size = 0;
    bench::check(pkv_node_address(node, address.text, sizeof address.text, &size));
    bench::send(STDOUT_FILENO, address);
    bench::BareServer loop(provider, sequences * slice_bytes);
    loop.greet(STDOUT_FILENO, STDIN_FILENO);
    loop.serve(STDIN_FILENO);
    bench::check(pkv_node_close(node));
}

/// Before main: in the other process the benchmarks are not to begin.
[[maybe_unused]] const bool served = [] {
    const char *setting = std::getenv(serve_variable);
    if (setting == nullptr) return false;
    serve(setting);
    std::_Exit(0);
}();

/// A node that reads from the other process, with a pool over its tier, and the loop.
class Reader {
  public:
    Reader(const char *provider, uint64_t page_bytes, uint32_t flags = 0)
        : server_(serve_variable,
                  std::string(provider) + " " + std::to_string(page_bytes) + " " + std::to_string(flags)),
          page_bytes_(page_bytes), blocks_(blocks_of(page_bytes)) {
        Address address;
        bench::receive(server_.from, address);
        const pkv_node_options options = options_of(provider);
        bench::check(pkv_node_open(&options, &node_));
        bench::check(pkv_node_connect(node_, address.text, 10'000'000'000));
        bench::check(pkv_node_tier(node_, &tier_));
        bench::check(pin_.acquire(tier_));
        pool_ = make_pool(page_bytes, tier_, PKV_TIER_READ_ONLY);
        loop_ = std::make_unique<bench::BareLoop>(provider, image_bytes(), in_flight, sequences * slice_bytes, server_);
        memory_ = static_cast<std::byte *>(bench::map_memory(image_bytes() * in_flight));
        pin_->memory(memory_, image_bytes() * in_flight, true);
        for (uint64_t i = 0; i < sequences; ++i) {
            sequences_.emplace_back(i, blocks_);
            const pkv_prompt prompt = sequences_.back().prompt();
            keys_.emplace_back(blocks_);
            uint64_t count = 0;
            bench::check(pkv_pool_image_keys(pool_, 0, &prompt, keys_.back().data(), blocks_, &count));
            if (count != blocks_) bench::give_up("no names of images");
        }
    }
    ~Reader() {
        pin_->memory(memory_, image_bytes() * in_flight, false);
        munmap(memory_, image_bytes() * in_flight);
        pin_.reset();
        loop_.reset();
        bench::check(pkv_pool_destroy(pool_));
        bench::check(pkv_tier_close(tier_));
        bench::check(pkv_node_close(node_));
    }
    Reader(const Reader &) = delete;
    Reader &operator=(const Reader &) = delete;

    bench::BareLoop &loop() { return *loop_; }
    uint64_t blocks() const { return blocks_; }

    /// Of the next sequence; returns the seconds that the restore took.
    double restore() {
        pkv_table *table = nullptr;
        bench::check(pkv_table_create(pool_, &table));
        pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
        options.max_match = PKV_MATCH_ALL;
        pkv_match match = PKV_MATCH_INIT;
        const pkv_prompt prompt = sequences_[next()].prompt();
        bench::check(pkv_table_admit(table, &prompt, &options, &match));
        if (match.tier_tokens[0] != blocks_ * page_tokens) bench::give_up("the sequence was not found");
        const double time =
            bench::seconds([&] { bench::check(pkv_table_restore(table, 0, UINT64_MAX, 60'000'000'000, nullptr)); });
        bench::check(pkv_table_destroy(table, nullptr));
        return time;
    }

    /// The same images into memory.
    double read() {
        keys_now_ = &keys_[next()];
        wait_for(PKV_TIER_LOOKUP, PKV_TIER_PIN, *keys_now_);
        begun_ = 0;
        left_ = blocks_;
        const double time = bench::seconds([&] {
            std::vector<uint64_t> free(in_flight);
            std::iota(free.begin(), free.end(), 0);
            while (!free.empty()) std::erase_if(free, [&](uint64_t place) { return !begin_next(place); });
            for (uint64_t left = left_.load(); left != 0; left = left_.load()) left_.wait(left);
        });
        wait_for(PKV_TIER_UNPIN, 0, *keys_now_);
        return time;
    }

    void look_up(uint64_t count) {
        wait_for(PKV_TIER_PROBE, 0, {keys_[0].begin(), keys_[0].begin() + static_cast<ptrdiff_t>(count)});
    }

    /// One pass over an image.
    void sum() const {
        for (uint64_t i = 0; i < in_flight; ++i)
            benchmark::DoNotOptimize(pkv::checksum64({memory_ + i * image_bytes(), image_bytes()}));
    }

  private:
    uint64_t image_bytes() const { return image_bytes_of(page_bytes_); }
    uint64_t next() { return at_ = (at_ + 1) % sequences; }

    void wait_for(int32_t kind, uint32_t flags, std::vector<pkv_tier_key> keys) {
        pkv::RequestItems items;
        items.kind = kind;
        items.flags = flags;
        items.keys = std::move(keys);
        const auto request = pin_->submit(std::move(items));
        request->wait_until(UINT64_MAX);
        for (uint64_t i = 0; i < request->num_items(); ++i) bench::check(request->status(i));
    }
    /// Begins the next read, if there is one left, into a place. True if it has ended inside submit(): the place is free again.
    /// One that ends later is followed by the next from where it ends.
    bool begin_next(uint64_t place) {
        const uint64_t i = begun_.fetch_add(1);
        if (i >= blocks_) return false;
        pkv::RequestItems items;
        items.kind = PKV_TIER_LOAD;
        items.urgent = true;
        items.keys.push_back((*keys_now_)[i]);
        items.data.push_back(memory_ + place * image_bytes());
        items.offsets.push_back(0);
        items.sizes.push_back(image_bytes());
        bool ended = false;
        static thread_local bool *inside = nullptr;
        bool *const before = std::exchange(inside, &ended);
        pin_->submit(std::move(items), [this, place, here = &ended](pkv::Request &request) {
            bench::check(request.status(0));
            if (inside == here) {
                *here = true;
            } else {
                while (begin_next(place)) {
                }
            }
            if (left_.fetch_sub(1) == 1) left_.notify_one();
        });
        inside = before;
        return ended;
    }

    bench::OtherProcess server_;
    uint64_t page_bytes_, blocks_;
    pkv_node *node_ = nullptr;
    pkv_tier *tier_ = nullptr;
    pkv::Pin<pkv::Tier> pin_;
    pkv_pool *pool_ = nullptr;
    std::unique_ptr<bench::BareLoop> loop_;
    std::byte *memory_ = nullptr;
    std::vector<Sequence> sequences_;
    std::vector<std::vector<pkv_tier_key>> keys_;
    const std::vector<pkv_tier_key> *keys_now_ = nullptr;
    uint64_t at_ = 0;
    std::atomic<uint64_t> begun_{0}, left_{0};
};

bool has_provider(benchmark::State &state, const char *provider) {
    const pkv_node_options options = options_of(provider);
    pkv_node *node = nullptr;
    if (pkv_node_open(&options, &node) == PKV_OK) {
        bench::check(pkv_node_close(node));
        return true;
    }
    char why[512];
    pkv_last_error(why, sizeof why);
    state.SkipWithError(why);
    return false;
}

void move_images(benchmark::State &state, const char *provider, uint64_t page_bytes, bool checked, uint32_t flags) {
    if (!has_provider(state, provider)) return;
    Reader reader(provider, page_bytes, flags);
    bench::Slices slices;
    std::vector<double> sums;
    auto ours = [&] { return checked ? reader.restore() : reader.read(); };
    for (uint64_t i = 0; i < sequences; ++i) (void)ours();
    for (auto _ : state) {
        slices.reference.push_back(bench::seconds([&] { reader.loop().run(reader.blocks()); }));
        slices.ours.push_back(ours());
        sums.push_back(bench::seconds([&] { reader.sum(); }));
        state.SetIterationTime(slices.ours.back());
    }
    slices.report(state, "image", static_cast<double>(reader.blocks()));
    state.counters["checksum_ns_per_image"] = bench::percentile(sums, 0.5) * 1e9 / in_flight;
    state.counters["GBps"] = static_cast<double>(slice_bytes) / bench::percentile(slices.ours, 0.5) / 1e9;
}

void look_up(benchmark::State &state, const char *provider) {
    if (!has_provider(state, provider)) return;
    constexpr int rounds = 50;
    Reader reader(provider, 64 << 10);
    auto run = [&](uint64_t keys) {
        for (int i = 0; i < rounds; ++i) reader.look_up(keys);
    };
    bench::Slices slices;
    run(1024);
    bench::alternate(
        state, slices, [&] { run(1024); }, [&] { run(1); });
    slices.report(state, "lookup", rounds);
}

[[maybe_unused]] const bool registered = [] {
    auto add = [](const std::string &name, auto function, auto... arguments) {
        benchmark::RegisterBenchmark(("node/" + name).c_str(), function, arguments...)
            ->UseManualTime()

            ->Unit(benchmark::kMillisecond);
    };
    for (const char *provider : {"tcp", "net", "shm"}) {
        for (const uint64_t bytes : {uint64_t{1} << 20, uint64_t{64} << 10}) {
            const std::string end = std::string(bytes == 1 << 20 ? "_1M_" : "_64K_") + provider;
            add("restore" + end, move_images, provider, bytes, true, 0u);
            add("read" + end, move_images, provider, bytes, false, 0u);
            add("restore_copied" + end, move_images, provider, bytes, true, PKV_NODE_COPY);
        }
    }
    add("lookup_1024_tcp", look_up, "tcp");
    return true;
}();

} // namespace

#endif
