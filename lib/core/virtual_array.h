// SPDX-License-Identifier: Apache-2.0
// An array of fixed capacity whose memory the kernel supplies, zeroed, as it is first touched. It never moves, so that
// elements keep their addresses and a large pool costs only what it has used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/mman.h>
#include <type_traits>

namespace pkv {

template <class T> class VirtualArray {
    static_assert(std::is_trivially_destructible_v<T>);

  public:
    VirtualArray() = default;
    ~VirtualArray() {
        if (data_ != nullptr) munmap(data_, size_ * sizeof(T));
    }
    VirtualArray(const VirtualArray &) = delete;
    VirtualArray &operator=(const VirtualArray &) = delete;

    /// Reserves room for `size` zero elements; false when the system has no address space left.
    bool reserve(uint64_t size) {
        uint64_t bytes = 0;
        if (__builtin_mul_overflow(size, sizeof(T), &bytes) || bytes == 0) return false;
        void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return false;
        // Large tables are read at random: huge pages save a TLB miss for each look. Refusal does no harm.
        if (bytes >= (uint64_t{8} << 20)) madvise(memory, bytes, MADV_HUGEPAGE);
        data_ = static_cast<T *>(memory);
        size_ = size;
        return true;
    }

    T &operator[](uint64_t index) { return data_[index]; }
    const T &operator[](uint64_t index) const { return data_[index]; }
    T *data() { return data_; }
    const T *data() const { return data_; }
    uint64_t size() const { return size_; }

  private:
    T *data_ = nullptr;
    uint64_t size_ = 0;
};

} // namespace pkv
