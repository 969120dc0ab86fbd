// SPDX-License-Identifier: Apache-2.0
#include "core/queue.h"

#include "core/wait.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/eventfd.h>
#include <unistd.h>

namespace pkv {

pkv_status Queue::create(std::shared_ptr<Queue> &out) {
    auto fresh = std::make_shared<Queue>();
    fresh->fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fresh->fd_ < 0) return fail(PKV_ERR_IO, "no eventfd for a queue: %s", std::strerror(errno));
    out = std::move(fresh);
    return PKV_OK;
}

void Queue::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
    filled_.notify_all();
}

int Queue::fd() {
    const std::lock_guard lock(mutex_);
    return fd_;
}

void Queue::reserve() {
    const std::lock_guard lock(mutex_);
    if (waiting_ + reserved_ == ring_.size()) {
        std::vector<pkv_completion> larger(std::max<size_t>(16, 2 * ring_.size()));
        for (uint64_t i = 0; i < waiting_; ++i) larger[i] = ring_[(first_ + i) % ring_.size()];
        ring_.swap(larger);
        first_ = 0;
    }
    ++reserved_;
}

void Queue::unreserve() {
    const std::lock_guard lock(mutex_);
    --reserved_;
}

void Queue::push(const pkv_completion &completion) noexcept {
    const std::lock_guard lock(mutex_);
    --reserved_;
    if (closed_) return;
    ring_[(first_ + waiting_) % ring_.size()] = completion;
    // The counter of the eventfd is 1 while results wait, else 0; both change under the lock.
    if (waiting_++ == 0) eventfd_write(fd_, 1);
    filled_.notify_one();
}

pkv_status Queue::drain(std::span<pkv_completion> out, uint64_t timeout_ns, uint64_t &count) {
    count = 0;
    const uint64_t deadline = deadline_after(timeout_ns);
    std::unique_lock lock(mutex_);
    if (waiting_ == 0 && timeout_ns != 0)
        wait_until(filled_, lock, deadline, [this] { return waiting_ != 0 || closed_; });
    if (closed_) return fail(PKV_ERR_HANDLE, "the queue was destroyed");
    if (waiting_ == 0) return fail(PKV_ERR_TIMEOUT, "no operation has ended");
    for (; count < out.size() && waiting_ != 0; ++count, --waiting_) {
        out[count] = ring_[first_];
        first_ = (first_ + 1) % ring_.size();
    }
    eventfd_t value;
    if (waiting_ == 0)
        eventfd_read(fd_, &value);
    else
        filled_.notify_one(); // another who waits may take the rest
    return PKV_OK;
}

} // namespace pkv
