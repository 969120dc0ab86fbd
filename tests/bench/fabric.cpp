// SPDX-License-Identifier: Apache-2.0
// Suite fabric: reads of another process's memory through the plug-in, against a loop of fi_read() over the same provider, of the
// same size and as many in flight.
#if __has_include(<rdma/fabric.h>)
#include "node/fabric_table.h"
#include "peer.h"

#include <atomic>

namespace {

constexpr uint64_t memory_bytes = 64 << 20;
constexpr uint64_t slice_bytes = 128 << 20;
constexpr uint32_t in_flight = 16;
constexpr char serve_variable[] = "PKV_BENCH_FABRIC";

char why[512];

/// Null where the plug-in was not built.
const pkv_fabric_table *load_table() {
    void *opened = dlopen((bench::plugin_folder() + "/" PKV_FABRIC_PLUGIN).c_str(), RTLD_NOW);
    if (opened == nullptr) return nullptr;
    const auto entry = reinterpret_cast<pkv_fabric_entry>(dlsym(opened, PKV_FABRIC_ENTRY));
    return entry(PKV_FABRIC_VERSION, why, sizeof why);
}

struct Name {
    size_t bytes = PKV_FABRIC_MAX_NAME;
    unsigned char text[PKV_FABRIC_MAX_NAME] = {};
    pkv_fabric_window window = {};
};

pkv_fabric_endpoint *open_endpoint(const pkv_fabric_table *table, pkv_fabric_domain *domain, Name &name) {
    pkv_fabric_endpoint *endpoint = nullptr;
    if (table->endpoint_open(domain, &endpoint, name.text, &name.bytes, why, sizeof why) != PKV_OK) bench::give_up(why);
    return endpoint;
}

void connect(const pkv_fabric_table *table, pkv_fabric_endpoint *endpoint, const Name &name) {
    if (table->endpoint_connect(endpoint, name.text, name.bytes, why, sizeof why) != PKV_OK) bench::give_up(why);
}

/// The other process.
void serve(const char *provider) {
    const pkv_fabric_table *table = load_table();
    pkv_fabric_domain *domain = nullptr;
    pkv_fabric_region *region = nullptr;
    if (table == nullptr || table->open(provider, nullptr, &domain, why, sizeof why) != PKV_OK) bench::give_up(why);
    void *memory = bench::map_memory(memory_bytes);
    if (table->add_memory(domain, memory, memory_bytes, 1, &region, why, sizeof why) != PKV_OK) bench::give_up(why);
    Name name, other;
    pkv_fabric_endpoint *endpoint = open_endpoint(table, domain, name);
    table->windows(region, &name.window, 1);
    bench::receive(STDIN_FILENO, other);
    connect(table, endpoint, other);
    bench::send(STDOUT_FILENO, name);
    bench::BareServer loop(provider, memory_bytes);
    loop.greet(STDOUT_FILENO, STDIN_FILENO);
    loop.serve(STDIN_FILENO);
    table->endpoint_close(endpoint);
    table->remove_memory(region);
    table->close(domain);
}

/// Before main: in the other process the benchmarks are not to begin.
[[maybe_unused]] const bool served = [] {
    const char *provider = std::getenv(serve_variable);
    if (provider == nullptr) return false;
    serve(provider);
    std::_Exit(0);
}();

/// The same as the loop, through the table: the end of a read begins the next in its place.
class Reads {
  public:
    Reads(const pkv_fabric_table *table, pkv_fabric_domain *domain, uint64_t bytes, const bench::OtherProcess &server)
        : table_(table), bytes_(bytes), data_(static_cast<char *>(bench::map_memory(bytes * in_flight))) {
        if (table->add_memory(domain, data_, bytes * in_flight, 0, &target_, why, sizeof why) != PKV_OK)
            bench::give_up(why);
        Name name, peer;
        endpoint_ = open_endpoint(table, domain, name);
        bench::send(server.to, name);
        bench::receive(server.from, peer);
        connect(table, endpoint_, peer);
        window_ = peer.window;
        for (uint64_t i = 0; i < in_flight; ++i) places_[i] = {this, data_ + i * bytes};
        run(in_flight);
    }
    ~Reads() {
        table_->endpoint_close(endpoint_);
        table_->remove_memory(target_);
        munmap(data_, bytes_ * in_flight);
    }
    Reads(const Reads &) = delete;
    Reads &operator=(const Reads &) = delete;

    void run(uint64_t reads) {
        reads_ = reads;
        begun_ = 0;
        left_ = reads;
        for (Place &place : places_) begin_next(place);
        for (uint64_t left = left_.load(); left != 0; left = left_.load()) left_.wait(left);
    }

  private:
    struct Place {
        Reads *reads;
        char *data;
    };
    void begin_next(Place &place) {
        const uint64_t i = begun_.fetch_add(1);
        if (i >= reads_) return;
        const uint64_t offset = i % (memory_bytes / bytes_) * bytes_;
        const pkv_status status =
            table_->read(endpoint_, target_, place.data, bytes_, &window_, 1, offset, UINT64_MAX, ended, &place);
        if (status != PKV_OK) bench::give_up("read");
    }
    static void ended(void *user, pkv_status status, int32_t) {
        auto *place = static_cast<Place *>(user);
        Reads *self = place->reads;
        if (status != PKV_OK) bench::give_up("a read");
        self->begin_next(*place);
        if (self->left_.fetch_sub(1) == 1) self->left_.notify_one();
    }

    const pkv_fabric_table *table_;
    uint64_t bytes_;
    char *data_;
    pkv_fabric_region *target_ = nullptr;
    pkv_fabric_endpoint *endpoint_ = nullptr;
    pkv_fabric_window window_ = {};
    Place places_[in_flight] = {};
    uint64_t reads_ = 0;
    std::atomic<uint64_t> begun_{0}, left_{0};
};

void read_peer(benchmark::State &state, const char *provider, uint64_t bytes) {
    static const pkv_fabric_table *table = load_table();
    if (table == nullptr) {
        state.SkipWithError("the plug-in was not built");
        return;
    }
    pkv_fabric_domain *domain = nullptr;
    if (table->open(provider, nullptr, &domain, why, sizeof why) != PKV_OK) {
        state.SkipWithError(why);
        return;
    }
    {
        const bench::OtherProcess server(serve_variable, provider);
        Reads reads(table, domain, bytes, server);
        bench::BareLoop loop(provider, bytes, in_flight, memory_bytes, server);
        const uint64_t count = slice_bytes / bytes;
        bench::Slices slices;
        bench::alternate(
            state, slices, [&] { reads.run(count); }, [&] { loop.run(count); });
        slices.report(state, "read", static_cast<double>(count));
        state.counters["GBps"] = static_cast<double>(slice_bytes) / bench::percentile(slices.ours, 0.5) / 1e9;
    }
    table->close(domain);
}

[[maybe_unused]] const bool registered = [] {
    for (const char *provider : {"tcp", "net", "shm"}) {
        for (const uint64_t bytes : {uint64_t{1} << 20, uint64_t{64} << 10}) {
            const std::string name = std::string("fabric/read_") + (bytes == 1 << 20 ? "1M_" : "64K_") + provider;
            benchmark::RegisterBenchmark(name.c_str(), read_peer, provider, bytes)
                ->UseManualTime()

                ->Unit(benchmark::kMillisecond);
        }
    }
    return true;
}();

} // namespace

#endif
