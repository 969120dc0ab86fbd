// SPDX-License-Identifier: Apache-2.0
// Helper threads: one loop at a time, indices handed out by a counter, everybody asleep between loops.
#include "core/workers.h"

#include "core/signals.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <vector>

namespace pkv {
namespace {

void name_this_thread() {
#if defined(__linux__)
    pthread_setname_np(pthread_self(), "pagedkv-copy");
#endif
}

} // namespace

struct Workers::State {
    std::mutex mutex;
    std::condition_variable work; ///< a loop has begun, or stop
    std::condition_variable idle; ///< the last helper left the loop

    // Guarded by mutex.
    const std::function<void(uint64_t)> *body = nullptr; ///< null: no loop that a helper may still join
    uint64_t tasks = 0;
    uint64_t loop = 0;   ///< number of the current loop, so that a helper joins each at most once
    uint32_t inside = 0; ///< helpers in the current loop
    bool busy = false;   ///< a caller owns the helpers
    bool stop = false;

    std::atomic<uint64_t> next{0}; ///< the first index that nobody has taken

    std::vector<std::thread> threads; ///< changed by the constructor and the destructor only

    void take(uint64_t count, const std::function<void(uint64_t)> &call) {
        for (uint64_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
             i = next.fetch_add(1, std::memory_order_relaxed)) {
            call(i);
        }
    }

    void help() {
        name_this_thread();
        uint64_t seen = 0;
        std::unique_lock lock(mutex);
        for (;;) {
            work.wait(lock, [&] { return stop || (body != nullptr && loop != seen); });
            if (stop) {
                return;
            }
            seen = loop;
            ++inside;
            const auto *call = body;
            const uint64_t count = tasks;
            lock.unlock();
            take(count, *call);
            lock.lock();
            if (--inside == 0) {
                idle.notify_one(); // only the loop's owner waits on it
            }
        }
    }

    void join() {
        {
            const std::lock_guard lock(mutex);
            stop = true;
        }
        work.notify_all();
        for (std::thread &thread : threads) {
            thread.join();
        }
    }
};

Workers::Workers(uint32_t threads) : state_(std::make_unique<State>()) {
    state_->threads.reserve(threads);
    const BlockedSignals blocked;
    try {
        for (uint32_t i = 0; i < threads; ++i) {
            state_->threads.emplace_back([state = state_.get()] { state->help(); });
        }
    } catch (...) {
        state_->join();
        throw;
    }
}

Workers::~Workers() { state_->join(); }

uint32_t Workers::threads() const { return static_cast<uint32_t>(state_->threads.size()); }

void Workers::run(uint64_t tasks, const std::function<void(uint64_t)> &body) {
    State &state = *state_;
    bool helped = false;
    if (tasks > 1 && !state.threads.empty()) {
        const std::lock_guard lock(state.mutex);
        if (!state.busy) {
            helped = state.busy = true;
            state.body = &body;
            state.tasks = tasks;
            ++state.loop;
            state.next.store(0, std::memory_order_relaxed); // published by the mutex; nobody is in a loop now
        }
    }
    if (!helped) {
        for (uint64_t i = 0; i < tasks; ++i) {
            body(i);
        }
        return;
    }
    const uint64_t wanted = std::min<uint64_t>(tasks - 1, state.threads.size());
    for (uint64_t i = 0; i < wanted; ++i) {
        state.work.notify_one();
    }
    state.take(tasks, body);
    std::unique_lock lock(state.mutex);
    state.body = nullptr; // a helper that wakes only now must not touch body: its lifetime ends with this call
    state.idle.wait(lock, [&] { return state.inside == 0; });
    state.busy = false;
}

} // namespace pkv
