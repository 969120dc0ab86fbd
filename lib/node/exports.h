// SPDX-License-Identifier: Apache-2.0
// Memory that peers may read: images, or parts of them, lie there from the answer to a fetch until their release, or the end
// of their lease. Expiry closes nothing: a late reader finds other bytes, and its checksums say so.
#pragma once

#include "node/fabric.h"

#include <map>
#include <mutex>
#include <sys/mman.h>

namespace pkv::node {

class Exports {
  public:
    static constexpr uint64_t alignment = PKV_IMAGE_ALIGNMENT;

    Exports() = default;
    ~Exports() {
        region_ = nullptr;
        if (memory_ != nullptr) munmap(memory_, bytes_);
    }
    Exports(const Exports &) = delete;
    Exports &operator=(const Exports &) = delete;

    pkv_status create(const std::shared_ptr<Fabric> &fabric, uint64_t bytes) {
        bytes_ = (bytes + alignment - 1) / alignment * alignment;
        void *memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return fail(PKV_ERR_NO_MEMORY, "%llu bytes for peers to read", static_cast<unsigned long long>(bytes_));
        memory_ = static_cast<std::byte *>(memory);
        free_.emplace(0, bytes_);
        return Region::add(fabric, memory_, bytes_, true, region_);
    }
    std::vector<Window> windows() const { return region_->windows(); }
    uint64_t bytes() const { return bytes_; }
    std::byte *at(uint64_t offset) const { return memory_ + offset; }

    /// The first place that is large enough; false when there is none.
    bool take(uint64_t bytes, uint64_t &offset) {
        bytes = (bytes + alignment - 1) / alignment * alignment;
        const std::lock_guard lock(mutex_);
        for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
            if (hole->second < bytes) continue;
            offset = hole->first;
            const uint64_t left = hole->second - bytes;
            free_.erase(hole);
            if (left != 0) free_.emplace(offset + bytes, left);
            return true;
        }
        return false;
    }
    void give_back(uint64_t offset, uint64_t bytes) {
        bytes = (bytes + alignment - 1) / alignment * alignment;
        const std::lock_guard lock(mutex_);
        auto next = free_.lower_bound(offset);
        if (next != free_.begin()) {
            const auto before = std::prev(next);
            if (before->first + before->second == offset) {
                offset = before->first;
                bytes += before->second;
                free_.erase(before);
            }
        }
        if (next != free_.end() && offset + bytes == next->first) {
            bytes += next->second;
            free_.erase(next);
        }
        free_.emplace(offset, bytes);
    }

  private:
    std::byte *memory_ = nullptr;
    uint64_t bytes_ = 0;
    std::shared_ptr<Region> region_;
    std::mutex mutex_;
    std::map<uint64_t, uint64_t> free_; // holes: offset, bytes
};

} // namespace pkv::node
