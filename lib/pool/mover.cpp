// SPDX-License-Identifier: Apache-2.0
#include "pool/mover.h"

#include "core/clock.h"

#include <algorithm>
#include <utility>

namespace pkv {

Mover::Mover() {
    thread_ = std::thread([this] { run(); });
}

Mover::~Mover() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    added_.notify_one();
    thread_.join();
}

bool Mover::add(std::function<void(const Unwanted &)> job, uint64_t deadline_ns, std::function<void()> on_late) {
    {
        const std::lock_guard lock(mutex_);
        if (jobs_.size() >= max_jobs) return false;
        jobs_.push_back({std::move(job), deadline_ns, std::move(on_late)});
    }
    added_.notify_one();
    return true;
}

void Mover::expire() {
    for (;;) {
        std::function<void()> on_late;
        {
            const std::lock_guard lock(mutex_);
            const uint64_t now = monotonic_ns();
            const auto late = std::find_if(jobs_.begin(), jobs_.end(),
                                           [&](const Job &job) { return job.on_late && job.deadline_ns <= now; });
            if (late == jobs_.end()) return;
            on_late = std::move(late->on_late);
            late->on_late = nullptr;
        }
        on_late();
    }
}

void Mover::run() {
    const Unwanted stopping = [this] {
        const std::lock_guard lock(mutex_);
        return stop_;
    };
    for (;;) {
        std::function<void(const Unwanted &)> job;
        {
            std::unique_lock lock(mutex_);
            added_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
            if (jobs_.empty()) return;
            job = std::move(jobs_.front().run);
            jobs_.pop_front();
        }
        job(stopping);
    }
}

} // namespace pkv
