// SPDX-License-Identifier: Apache-2.0
// Where loads report that their tier has answered, and where those wait who have nothing to do. It outlives the session: a
// late answer finds it, and nobody who looks.
#pragma once

#include "core/wait.h"
#include "prefetch/part.h"

#include <condition_variable>
#include <mutex>

namespace pkv {

class Inbox {
  public:
    /// A part is in one list at most: it has one request at a time. Never throws.
    void arrive(std::shared_ptr<Part> part) {
        {
            const std::lock_guard lock(mutex_);
            part->next_arrived = nullptr;
            std::shared_ptr<Part> *const end = last_ != nullptr ? &last_->next_arrived : &first_;
            last_ = part.get();
            *end = std::move(part);
            ++changes_;
        }
        changed_.notify_all();
    }
    std::shared_ptr<Part> take() {
        const std::lock_guard lock(mutex_);
        std::shared_ptr<Part> part = std::move(first_);
        if (part == nullptr) return nullptr;
        first_ = std::move(part->next_arrived);
        if (first_ == nullptr) last_ = nullptr;
        return part;
    }
    /// Something else changed: wakes everybody.
    void poke() {
        {
            const std::lock_guard lock(mutex_);
            ++changes_;
        }
        changed_.notify_all();
    }
    /// Read it before looking for work; then wait for another value.
    uint64_t changes() {
        const std::lock_guard lock(mutex_);
        return changes_;
    }
    void wait(uint64_t seen, uint64_t deadline_ns) {
        std::unique_lock lock(mutex_);
        wait_until(changed_, lock, deadline_ns, [&] { return changes_ != seen; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t changes_ = 0;
    std::shared_ptr<Part> first_;
    Part *last_ = nullptr;
};

} // namespace pkv
