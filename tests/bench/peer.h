// SPDX-License-Identifier: Apache-2.0
// What the benchmarks of remote memory share: a second process, which is this program again, and the loop that they are compared
// with, fi_read() and fi_cq_read() and nothing else, over the same provider. libfabric is opened when the first of these rows runs.
#pragma once

#include "bench.h"

#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bench {

[[noreturn]] inline void give_up(const char *what) {
    std::fprintf(stderr, "pkv-bench: %s\n", what);
    std::_Exit(1);
}

inline std::string own_path() {
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    return length > 0 ? std::string(path, static_cast<size_t>(length)) : std::string();
}

/// The folder of the plug-ins of this build.
inline std::string plugin_folder() {
    const std::string self = own_path();
    return self.substr(0, self.rfind('/')) + "/../lib/pagedkv";
}

inline void *map_memory(uint64_t bytes) {
    void *mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) give_up("no memory");
    madvise(mapped, bytes, MADV_HUGEPAGE); // as the memory of host tiers
    std::memset(mapped, 1, bytes);
    return mapped;
}

template <class T> void send(int to, const T &value) {
    if (write(to, &value, sizeof value) != sizeof value) give_up("the other process does not listen");
}
template <class T> void receive(int from, T &value) {
    for (size_t at = 0; at < sizeof value;) {
        const ssize_t got = read(from, reinterpret_cast<char *>(&value) + at, sizeof value - at);
        if (got <= 0) give_up("the other process has ended");
        at += static_cast<size_t>(got);
    }
}

/// This program once more, with `variable` set in its environment; it ends when its input does.
class OtherProcess {
  public:
    OtherProcess(const char *variable, const std::string &value) {
        int in[2], out[2];
        if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) give_up("no pipe");
        const std::string self = own_path(), setting = std::string(variable) + "=" + value;
        std::vector<char *> environment;
        for (char **entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
        environment.push_back(const_cast<char *>(setting.c_str()));
        environment.push_back(nullptr);
        process_ = vfork();
        if (process_ == 0) {
            dup2(in[0], STDIN_FILENO);
            dup2(out[1], STDOUT_FILENO);
            char *const arguments[] = {const_cast<char *>(self.c_str()), nullptr};
            execve(self.c_str(), arguments, environment.data());
            _exit(9);
        }
        if (process_ < 0) give_up("vfork");
        close(in[0]);
        close(out[1]);
        to = in[1];
        from = out[0];
    }
    ~OtherProcess() {
        close(to);
        close(from);
        waitpid(process_, nullptr, 0);
    }
    OtherProcess(const OtherProcess &) = delete;
    OtherProcess &operator=(const OtherProcess &) = delete;

    int to, from; ///< pipes

  private:
    pid_t process_;
};

/// One endpoint of libfabric's, opened by the book.
class BareEndpoint {
  public:
    struct Name {
        size_t bytes = 256;
        unsigned char text[256] = {};
        uint64_t address = 0, key = 0; ///< of the memory, if there is any
    };

    /// `memory`: for the peer to read; may be NULL.
    BareEndpoint(const char *provider, void *memory, uint64_t bytes) {
        setenv("IPATH_NO_BACKTRACE", "1", 0); // else a library of libfabric's takes the process' signals
        void *libfabric = dlopen("libfabric.so.1", RTLD_NOW);
        if (libfabric == nullptr) give_up("no libfabric");
        const auto getinfo = reinterpret_cast<decltype(&fi_getinfo)>(dlsym(libfabric, "fi_getinfo"));
        const auto dupinfo = reinterpret_cast<decltype(&fi_dupinfo)>(dlsym(libfabric, "fi_dupinfo"));
        const auto open_fabric = reinterpret_cast<decltype(&fi_fabric)>(dlsym(libfabric, "fi_fabric"));
        fi_info *hints = dupinfo(nullptr), *info = nullptr;
        hints->caps = FI_RMA | FI_READ | FI_REMOTE_READ;
        hints->ep_attr->type = FI_EP_RDM;
        hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
        hints->domain_attr->threading = FI_THREAD_SAFE;
        hints->fabric_attr->prov_name = strdup(provider);
        const bool shm = std::strcmp(provider, "shm") == 0;
        int error = getinfo(FI_VERSION(1, 17), shm ? nullptr : "127.0.0.1", nullptr, shm ? 0 : FI_SOURCE, hints, &info);
        if (error == 0) error = open_fabric(info->fabric_attr, &fabric_, nullptr);
        if (error == 0) error = fi_domain(fabric_, info, &domain_, nullptr);
        fi_cq_attr queue = {};
        queue.size = 256;
        queue.format = FI_CQ_FORMAT_CONTEXT;
        waits_ = !shm; // whose waiting is a poll once a millisecond
        queue.wait_obj = waits_ ? FI_WAIT_UNSPEC : FI_WAIT_NONE;
        if (error == 0) error = fi_cq_open(domain_, &queue, &queue_, nullptr);
        fi_av_attr addresses = {};
        addresses.type = FI_AV_TABLE;
        addresses.count = 1;
        if (error == 0) error = fi_av_open(domain_, &addresses, &addresses_, nullptr);
        if (error == 0) error = fi_endpoint(domain_, info, &endpoint_, nullptr);
        if (error == 0) error = fi_ep_bind(endpoint_, &queue_->fid, FI_TRANSMIT | FI_RECV);
        if (error == 0) error = fi_ep_bind(endpoint_, &addresses_->fid, 0);
        if (error == 0) error = fi_enable(endpoint_);
        if (error == 0) error = fi_getname(&endpoint_->fid, name.text, &name.bytes);
        if (error == 0 && memory != nullptr) {
            error = fi_mr_reg(domain_, memory, bytes, FI_REMOTE_READ, 0, 4711, 0, &memory_, nullptr);
            if ((info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0) name.address = reinterpret_cast<uintptr_t>(memory);
            if (error == 0) name.key = fi_mr_key(memory_);
        }
        if (error != 0) give_up("the loop's endpoint cannot be opened");
    }
    ~BareEndpoint() {
        fi_close(&endpoint_->fid);
        if (memory_ != nullptr) fi_close(&memory_->fid);
        fi_close(&addresses_->fid);
        fi_close(&queue_->fid);
        fi_close(&domain_->fid);
        fi_close(&fabric_->fid);
    }
    BareEndpoint(const BareEndpoint &) = delete;
    BareEndpoint &operator=(const BareEndpoint &) = delete;

    void connect(const Name &peer) {
        if (fi_av_insert(addresses_, peer.text, 1, &peer_, 0, nullptr) != 1) give_up("the loop's peer");
        address_ = peer.address;
        key_ = peer.key;
    }
    /// Looks after its queue; the number of reads that have ended. With nothing to do it sleeps in the queue, or yields.
    uint64_t turn() {
        fi_cq_entry entries[64];
        for (int look = 0; look < spins; ++look) {
            const ssize_t count = fi_cq_read(queue_, entries, 64);
            if (count < 0 && count != -FI_EAGAIN) give_up("fi_cq_read");
            if (count > 0) return static_cast<uint64_t>(count);
        }
        if (!waits_) {
            sched_yield();
            return 0;
        }
        const ssize_t count = fi_cq_sread(queue_, entries, 64, nullptr, 1);
        return count > 0 ? static_cast<uint64_t>(count) : 0;
    }
    bool read(void *data, uint64_t bytes, uint64_t offset) {
        const ssize_t error = fi_read(endpoint_, data, bytes, nullptr, peer_, address_ + offset, key_, nullptr);
        if (error != 0 && error != -FI_EAGAIN) give_up("fi_read");
        return error == 0;
    }

    Name name;

  private:
    static constexpr int spins = 16;
    bool waits_ = true;
    fid_fabric *fabric_ = nullptr;
    fid_domain *domain_ = nullptr;
    fid_cq *queue_ = nullptr;
    fid_av *addresses_ = nullptr;
    fid_ep *endpoint_ = nullptr;
    fid_mr *memory_ = nullptr;
    fi_addr_t peer_ = 0;
    uint64_t address_ = 0, key_ = 0;
};

/// The other side of a loop. It turns while the loop runs, and else takes no time: a byte from the pipe begins it, and ends it.
class BareServer {
  public:
    BareServer(const char *provider, uint64_t bytes) : endpoint_(provider, map_memory(bytes), bytes) {}

    void greet(int to, int from) {
        BareEndpoint::Name peer;
        receive(from, peer);
        endpoint_.connect(peer);
        send(to, endpoint_.name);
    }
    /// Until the pipe is closed.
    void serve(int from) {
        char byte;
        while (::read(from, &byte, 1) == 1) {
            pollfd input = {from, POLLIN, 0};
            while (poll(&input, 1, 0) == 0) endpoint_.turn();
            if (::read(from, &byte, 1) != 1) return;
        }
    }

  private:
    BareEndpoint endpoint_;
};

/// The loop: reads of one size, so many in flight, each into a place of its own.
class BareLoop {
  public:
    BareLoop(const char *provider, uint64_t bytes, uint32_t in_flight, uint64_t memory_bytes,
             const OtherProcess &server)
        : endpoint_(provider, nullptr, 0), bytes_(bytes), in_flight_(in_flight), memory_bytes_(memory_bytes),
          to_(server.to), data_(static_cast<char *>(map_memory(bytes * in_flight))) {
        send(server.to, endpoint_.name);
        BareEndpoint::Name peer;
        receive(server.from, peer);
        endpoint_.connect(peer);
        run(in_flight);
    }
    ~BareLoop() { munmap(data_, bytes_ * in_flight_); }
    BareLoop(const BareLoop &) = delete;
    BareLoop &operator=(const BareLoop &) = delete;

    void run(uint64_t reads) {
        send(to_, 'b');
        uint64_t posted = 0, ended = 0;
        while (ended < reads) {
            while (posted < reads && posted - ended < in_flight_) {
                if (!endpoint_.read(data_ + posted % in_flight_ * bytes_, bytes_, offset_)) break;
                ++posted;
                offset_ += bytes_;
                if (offset_ + bytes_ > memory_bytes_) offset_ = 0;
            }
            ended += endpoint_.turn();
        }
        send(to_, 'e');
    }

  private:
    BareEndpoint endpoint_;
    uint64_t bytes_;
    uint32_t in_flight_;
    uint64_t memory_bytes_;
    int to_;
    char *data_;
    uint64_t offset_ = 0;
};

} // namespace bench
