// SPDX-License-Identifier: Apache-2.0
// What ends on other threads, and is dealt with on the one of the pull. Posting allocates nothing and never fails.
#pragma once

#include "core/wait.h"
#include "node/messages.h"

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <vector>

namespace pkv::handover {

/// Made before it is waited for; posted once.
struct Event {
    std::function<void(Event &)> run;
    pkv_status status = PKV_OK;
    node::Kind kind{};
    std::vector<std::byte> message;
    std::shared_ptr<Event> next;
};

class Inbox {
  public:
    ~Inbox() { close(); }

    /// False: nobody takes anything out any more.
    bool post(std::shared_ptr<Event> event) noexcept {
        const std::lock_guard lock(mutex_);
        if (closed_) return false;
        auto *const at = event.get();
        (last_ != nullptr ? last_->next : first_) = std::move(event);
        last_ = at;
        filled_.notify_one();
        return true;
    }
    /// nullptr at the deadline, or when it was woken.
    std::shared_ptr<Event> take(uint64_t deadline_ns) {
        std::unique_lock lock(mutex_);
        wait_until(filled_, lock, deadline_ns, [this] { return first_ != nullptr || woken_; });
        woken_ = false;
        std::shared_ptr<Event> event = std::move(first_);
        if (event == nullptr) return nullptr;
        first_ = std::move(event->next);
        if (first_ == nullptr) last_ = nullptr;
        return event;
    }
    void wake() {
        const std::lock_guard lock(mutex_);
        woken_ = true;
        filled_.notify_one();
    }
    /// What is in it is dropped.
    void close() {
        std::shared_ptr<Event> events;
        {
            const std::lock_guard lock(mutex_);
            closed_ = true;
            events = std::move(first_);
            last_ = nullptr;
        }
        while (events != nullptr) events = std::move(events->next); // one by one: a long chain would go down the stack
    }

  private:
    std::mutex mutex_;
    std::condition_variable filled_;
    std::shared_ptr<Event> first_;
    Event *last_ = nullptr;
    bool woken_ = false;
    bool closed_ = false;
};

/// Posts an answer; false as above.
inline bool deliver(Inbox &inbox, const std::shared_ptr<Event> &event, pkv_status status, node::Kind kind,
                    std::span<const std::byte> message) noexcept {
    event->status = status;
    event->kind = kind;
    try {
        event->message.assign(message.begin(), message.end());
    } catch (const std::bad_alloc &) {
        event->status = PKV_ERR_NO_MEMORY;
    }
    return inbox.post(event);
}

} // namespace pkv::handover
