// SPDX-License-Identifier: Apache-2.0
// The reference for files: reads or writes of one size, so many at once, with registered buffers and nothing else.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <liburing.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace bench {

/// PKV_BENCH_DIR names the folder for files (default: the current one).
inline std::string file_in_folder(const char *name) {
    const char *folder = std::getenv("PKV_BENCH_DIR");
    return std::string(folder != nullptr ? folder : ".") + "/pkv-bench-" + name;
}

class BareRing {
  public:
    BareRing(const std::string &path, uint64_t bytes, uint32_t depth) : bytes_(bytes), depth_(depth) {
        fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
        if (fd_ < 0 || io_uring_queue_init(depth, &ring_, 0) < 0) std::abort();
        memory_ = static_cast<char *>(
            mmap(nullptr, bytes * depth, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        madvise(memory_, bytes * depth, MADV_HUGEPAGE);
        std::memset(memory_, 1, bytes * depth);
        std::vector<iovec> list(depth);
        for (uint32_t i = 0; i < depth; ++i) list[i] = {memory_ + i * bytes, bytes};
        registered_ = io_uring_register_buffers(&ring_, list.data(), depth) == 0;
    }
    ~BareRing() {
        io_uring_queue_exit(&ring_);
        munmap(memory_, bytes_ * depth_);
        close(fd_);
    }
    BareRing(const BareRing &) = delete;
    BareRing &operator=(const BareRing &) = delete;

    void run(bool write, const std::vector<uint64_t> &offsets) {
        std::vector<uint32_t> free;
        for (uint32_t i = 0; i < depth_; ++i) free.push_back(i);
        size_t next = 0, done = 0;
        while (done < offsets.size()) {
            while (!free.empty() && next < offsets.size()) {
                prepare(write, free.back(), offsets[next++]);
                free.pop_back();
            }
            io_uring_submit_and_wait(&ring_, 1);
            io_uring_cqe *cqe = nullptr;
            while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
                if (cqe->res != static_cast<int>(bytes_)) std::abort();
                free.push_back(static_cast<uint32_t>(io_uring_cqe_get_data64(cqe)));
                io_uring_cqe_seen(&ring_, cqe);
                ++done;
            }
        }
    }

  private:
    void prepare(bool write, uint32_t slot, uint64_t offset) {
        io_uring_sqe *sqe = io_uring_get_sqe(&ring_);
        char *data = memory_ + slot * bytes_;
        const auto size = static_cast<unsigned>(bytes_);
        if (registered_)
            write ? io_uring_prep_write_fixed(sqe, fd_, data, size, offset, static_cast<int>(slot))
                  : io_uring_prep_read_fixed(sqe, fd_, data, size, offset, static_cast<int>(slot));
        else
            write ? io_uring_prep_write(sqe, fd_, data, size, offset)
                  : io_uring_prep_read(sqe, fd_, data, size, offset);
        io_uring_sqe_set_data64(sqe, slot);
    }

    uint64_t bytes_;
    uint32_t depth_;
    io_uring ring_{};
    int fd_ = -1;
    char *memory_ = nullptr;
    bool registered_ = false;
};

} // namespace bench
