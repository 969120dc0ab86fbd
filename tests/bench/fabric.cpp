// SPDX-License-Identifier: Apache-2.0
// Reads of another process's memory through the plug-in, against a loop of fi_read() over the same provider, with the same size
// and as many in flight. The other process is this program again; it lends its memory through the plug-in, for both.
//
// Neither the plug-in nor libfabric is linked: both are opened when the first of these rows runs.
#include "bench.h"

#if __has_include(<rdma/fabric.h>)
#include "node/fabric_table.h"

#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr uint64_t memory_bytes = 64 << 20;
constexpr uint64_t slice_bytes = 128 << 20;
constexpr uint32_t in_flight = 16;
constexpr char serve_variable[] = "PKV_BENCH_SERVE";

char why[512];

[[noreturn]] void give_up(const char *what) {
    std::fprintf(stderr, "pkv-bench: %s: %s\n", what, why);
    std::_Exit(1);
}

std::string own_path() {
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    return length > 0 ? std::string(path, static_cast<size_t>(length)) : std::string();
}

/// Null where the plug-in was not built.
const pkv_fabric_table *load_table() {
    const std::string self = own_path();
    const std::string plugin = self.substr(0, self.rfind('/')) + "/../lib/pagedkv/" PKV_FABRIC_PLUGIN;
    void *opened = dlopen(plugin.c_str(), RTLD_NOW);
    if (opened == nullptr) return nullptr;
    const auto entry = reinterpret_cast<pkv_fabric_entry>(dlsym(opened, PKV_FABRIC_ENTRY));
    return entry(PKV_FABRIC_VERSION, why, sizeof why);
}

void *memory() {
    void *mapped = mmap(nullptr, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) give_up("mmap");
    std::memset(mapped, 1, memory_bytes);
    return mapped;
}

struct Name {
    size_t bytes = PKV_FABRIC_MAX_NAME;
    unsigned char text[PKV_FABRIC_MAX_NAME] = {};
};

/// What both sides tell each other: two endpoints, one for the table and one for the loop.
struct Hello {
    Name table, loop;
    pkv_fabric_window window = {};
};

void send(int to, const Hello &hello) {
    if (write(to, &hello, sizeof hello) != sizeof hello) give_up("write");
}

void receive(int from, Hello &hello) {
    for (size_t at = 0; at < sizeof hello;) {
        const ssize_t got = read(from, reinterpret_cast<char *>(&hello) + at, sizeof hello - at);
        if (got <= 0) give_up("the other process");
        at += static_cast<size_t>(got);
    }
}

pkv_fabric_endpoint *open_endpoint(const pkv_fabric_table *table, pkv_fabric_domain *domain, Name &name) {
    pkv_fabric_endpoint *endpoint = nullptr;
    if (table->endpoint_open(domain, &endpoint, name.text, &name.bytes, why, sizeof why) != PKV_OK) give_up("endpoint");
    return endpoint;
}

void connect(const pkv_fabric_table *table, pkv_fabric_endpoint *endpoint, const Name &name) {
    if (table->endpoint_connect(endpoint, name.text, name.bytes, why, sizeof why) != PKV_OK) give_up("connect");
}

/// The other process.
void serve(const char *provider) {
    const pkv_fabric_table *table = load_table();
    pkv_fabric_domain *domain = nullptr;
    pkv_fabric_region *region = nullptr;
    if (table == nullptr || table->open(provider, nullptr, &domain, why, sizeof why) != PKV_OK) give_up(provider);
    if (table->add_memory(domain, memory(), memory_bytes, 1, &region, why, sizeof why) != PKV_OK) give_up("memory");
    Hello hello, other;
    pkv_fabric_endpoint *for_table = open_endpoint(table, domain, hello.table);
    pkv_fabric_endpoint *for_loop = open_endpoint(table, domain, hello.loop);
    table->windows(region, &hello.window, 1);
    send(STDOUT_FILENO, hello);
    receive(STDIN_FILENO, other);
    connect(table, for_table, other.table);
    connect(table, for_loop, other.loop);
    send(STDOUT_FILENO, hello); // ready
    char end;
    while (read(STDIN_FILENO, &end, 1) > 0) {
    }
    table->endpoint_close(for_table);
    table->endpoint_close(for_loop);
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

/// The loop that we are compared with: one endpoint, one queue, nothing but fi_read() and fi_cq_read().
class Loop {
  public:
    Loop(const char *provider, void *data, Name &name) : data_(static_cast<char *>(data)) {
        void *libfabric = dlopen("libfabric.so.1", RTLD_NOW);
        const auto getinfo = reinterpret_cast<decltype(&fi_getinfo)>(dlsym(libfabric, "fi_getinfo"));
        const auto dupinfo = reinterpret_cast<decltype(&fi_dupinfo)>(dlsym(libfabric, "fi_dupinfo"));
        const auto open_fabric = reinterpret_cast<decltype(&fi_fabric)>(dlsym(libfabric, "fi_fabric"));
        fi_info *hints = dupinfo(nullptr);
        hints->caps = FI_RMA | FI_READ | FI_REMOTE_READ;
        hints->ep_attr->type = FI_EP_RDM;
        hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        hints->domain_attr->threading = FI_THREAD_SAFE;
        hints->fabric_attr->prov_name = strdup(provider);
        const bool shm = std::strcmp(provider, "shm") == 0;
        int error =
            getinfo(FI_VERSION(1, 17), shm ? nullptr : "127.0.0.1", nullptr, shm ? 0 : FI_SOURCE, hints, &info_);
        if (error == 0) error = open_fabric(info_->fabric_attr, &fabric_, nullptr);
        if (error == 0) error = fi_domain(fabric_, info_, &domain_, nullptr);
        fi_cq_attr queue = {};
        queue.size = 256;
        queue.format = FI_CQ_FORMAT_CONTEXT;
        queue.wait_obj = FI_WAIT_NONE;
        if (error == 0) error = fi_cq_open(domain_, &queue, &queue_, nullptr);
        fi_av_attr addresses = {};
        addresses.type = FI_AV_TABLE;
        addresses.count = 1;
        if (error == 0) error = fi_av_open(domain_, &addresses, &addresses_, nullptr);
        if (error == 0) error = fi_endpoint(domain_, info_, &endpoint_, nullptr);
        if (error == 0) error = fi_ep_bind(endpoint_, &queue_->fid, FI_TRANSMIT | FI_RECV);
        if (error == 0) error = fi_ep_bind(endpoint_, &addresses_->fid, 0);
        if (error == 0) error = fi_enable(endpoint_);
        if (error == 0) error = fi_getname(&endpoint_->fid, name.text, &name.bytes);
        if (error != 0) give_up("the loop's endpoint");
    }
    ~Loop() {
        fi_close(&endpoint_->fid);
        fi_close(&addresses_->fid);
        fi_close(&queue_->fid);
        fi_close(&domain_->fid);
        fi_close(&fabric_->fid);
    }
    Loop(const Loop &) = delete;
    Loop &operator=(const Loop &) = delete;

    void connect(const Name &name, const pkv_fabric_window &window) {
        if (fi_av_insert(addresses_, name.text, 1, &peer_, 0, nullptr) != 1) give_up("the loop's peer");
        address_ = window.address;
        std::memcpy(&key_, window.key, sizeof key_);
    }

    void run(uint64_t bytes, uint64_t reads) {
        uint64_t posted = 0, ended = 0;
        while (ended < reads) {
            while (posted < reads && posted - ended < in_flight) {
                const uint64_t at = posted * bytes % memory_bytes;
                const ssize_t error =
                    fi_read(endpoint_, data_ + at, bytes, nullptr, peer_, address_ + at, key_, nullptr);
                if (error == -FI_EAGAIN) break;
                if (error != 0) give_up("fi_read");
                ++posted;
            }
            fi_cq_entry entries[in_flight];
            const ssize_t count = fi_cq_read(queue_, entries, in_flight);
            if (count > 0) ended += static_cast<uint64_t>(count);
            if (count < 0 && count != -FI_EAGAIN) give_up("fi_cq_read");
        }
    }

  private:
    char *data_;
    fi_info *info_ = nullptr;
    fid_fabric *fabric_ = nullptr;
    fid_domain *domain_ = nullptr;
    fid_cq *queue_ = nullptr;
    fid_av *addresses_ = nullptr;
    fid_ep *endpoint_ = nullptr;
    fi_addr_t peer_ = 0;
    uint64_t address_ = 0;
    uint64_t key_ = 0;
};

/// The same through the table: the end of a read begins the next.
class Reads {
  public:
    Reads(const pkv_fabric_table *table, pkv_fabric_domain *domain, void *data, Name &name)
        : table_(table), data_(static_cast<char *>(data)) {
        if (table->add_memory(domain, data, memory_bytes, 0, &target_, why, sizeof why) != PKV_OK) give_up("target");
        endpoint_ = open_endpoint(table, domain, name);
    }
    ~Reads() {
        table_->endpoint_close(endpoint_);
        table_->remove_memory(target_);
    }
    Reads(const Reads &) = delete;
    Reads &operator=(const Reads &) = delete;

    void connect(const Name &name, const pkv_fabric_window &window) {
        ::connect(table_, endpoint_, name);
        window_ = window;
    }

    void run(uint64_t bytes, uint64_t reads) {
        bytes_ = bytes;
        reads_ = reads;
        begun_ = 0;
        left_ = reads;
        for (uint32_t i = 0; i < in_flight; ++i) begin_next();
        for (uint64_t left = left_.load(); left != 0; left = left_.load()) left_.wait(left);
    }

  private:
    void begin_next() {
        const uint64_t i = begun_.fetch_add(1);
        if (i >= reads_) return;
        const uint64_t at = i * bytes_ % memory_bytes;
        const pkv_status status =
            table_->read(endpoint_, target_, data_ + at, bytes_, &window_, 1, at, UINT64_MAX, ended, this);
        if (status != PKV_OK) give_up("read");
    }
    static void ended(void *user, pkv_status status, int32_t) {
        auto *self = static_cast<Reads *>(user);
        if (status != PKV_OK) give_up("a read");
        self->begin_next();
        if (self->left_.fetch_sub(1) == 1) self->left_.notify_one();
    }

    const pkv_fabric_table *table_;
    char *data_;
    pkv_fabric_region *target_ = nullptr;
    pkv_fabric_endpoint *endpoint_ = nullptr;
    pkv_fabric_window window_ = {};
    uint64_t bytes_ = 0, reads_ = 0;
    std::atomic<uint64_t> begun_{0}, left_{0};
};

/// Starts the other process; its pipes.
pid_t start_server(const char *provider, int &to, int &from) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) give_up("pipe");
    const std::string self = own_path(), setting = std::string(serve_variable) + "=" + provider;
    std::vector<char *> environment;
    for (char **entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
    environment.push_back(const_cast<char *>(setting.c_str()));
    environment.push_back(nullptr);
    const pid_t pid = vfork();
    if (pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        char *const arguments[] = {const_cast<char *>(self.c_str()), nullptr};
        execve(self.c_str(), arguments, environment.data());
        _exit(9);
    }
    if (pid < 0) give_up("vfork");
    close(in[0]);
    close(out[1]);
    to = in[1];
    from = out[0];
    return pid;
}

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
    int to = -1, from = -1;
    const pid_t server = start_server(provider, to, from);
    void *data = memory();
    {
        Hello own, other;
        Loop loop(provider, data, own.loop);
        Reads reads(table, domain, data, own.table);
        receive(from, other);
        send(to, own);
        receive(from, other);
        loop.connect(other.loop, other.window);
        reads.connect(other.table, other.window);

        const uint64_t count = slice_bytes / bytes;
        loop.run(bytes, in_flight);
        reads.run(bytes, in_flight);
        bench::Slices slices;
        bench::alternate(
            state, slices, [&] { reads.run(bytes, count); }, [&] { loop.run(bytes, count); });
        slices.report(state, "read", static_cast<double>(count));
        state.SetBytesProcessed(static_cast<int64_t>(static_cast<uint64_t>(state.iterations()) * slice_bytes));
    }
    close(to);
    close(from);
    waitpid(server, nullptr, 0);
    table->close(domain);
    munmap(data, memory_bytes);
}

[[maybe_unused]] const bool registered = [] {
    for (const char *provider : {"tcp", "net", "shm"}) {
        for (const uint64_t bytes : {uint64_t{1} << 20, uint64_t{64} << 10}) {
            const std::string name = std::string("fabric/read_") + (bytes == 1 << 20 ? "1M_" : "64K_") + provider;
            benchmark::RegisterBenchmark(name.c_str(), read_peer, provider, bytes)->UseManualTime()->MinTime(1);
        }
    }
    return true;
}();

} // namespace

#endif
