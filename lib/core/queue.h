// SPDX-License-Identifier: Apache-2.0
// Where operations end: a list of results, and an eventfd that is readable while there are any.
#pragma once

#include "core/handles.h"
#include "core/status.h"

#include <pagedkv/tier.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace pkv {

class Queue : public std::enable_shared_from_this<Queue> {
  public:
    static constexpr HandleKind handle_kind = HandleKind::queue;

    static pkv_status create(std::shared_ptr<Queue> &out);
    Queue() = default;
    ~Queue() { close(); }
    Queue(const Queue &) = delete;
    Queue &operator=(const Queue &) = delete;

    /// -1 once it is closed.
    int fd();
    /// Makes room for one more result, so that push() cannot fail; throws std::bad_alloc.
    void reserve();
    void unreserve();
    /// Uses up one reserve(). Nothing is queued once the queue is closed.
    void push(const pkv_completion &completion) noexcept;
    /// Takes results out; waits up to timeout_ns for the first. PKV_OK, PKV_ERR_TIMEOUT, or PKV_ERR_HANDLE when the queue is
    /// closed meanwhile.
    pkv_status drain(std::span<pkv_completion> out, uint64_t timeout_ns, uint64_t &count);
    /// Wakes those who wait, and closes the eventfd.
    void close();

  private:
    std::mutex mutex_;
    std::condition_variable filled_;
    std::vector<pkv_completion> ring_; // with room for what waits and what is reserved
    uint64_t first_ = 0;               // in the ring
    uint64_t waiting_ = 0;
    uint64_t reserved_ = 0;
    int fd_ = -1;
    bool closed_ = false;
};

} // namespace pkv
