// SPDX-License-Identifier: Apache-2.0
// The thread that carries out a pool's asynchronous operations, in order. Another one, which runs anyway, ends those whose
// time is over before their turn comes.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace pkv {

/// What a job looks at to know that nobody wants it any more.
using Unwanted = std::function<bool()>;

class Mover {
  public:
    Mover();  ///< starts the thread; throws std::system_error
    ~Mover(); ///< runs what waits, as unwanted
    Mover(const Mover &) = delete;
    Mover &operator=(const Mover &) = delete;

    /// Adds a job; false when too many wait. If it still waits at its deadline, expire() calls `on_late`; its turn comes all
    /// the same. Throws std::bad_alloc.
    bool add(std::function<void(const Unwanted &stopping)> job, uint64_t deadline_ns, std::function<void()> on_late);
    void expire(); ///< to be called now and then

  private:
    void run();

    struct Job {
        std::function<void(const Unwanted &)> run;
        uint64_t deadline_ns;
        std::function<void()> on_late;
    };
    static constexpr size_t max_jobs = 1024;
    std::mutex mutex_;
    std::condition_variable added_;
    std::deque<Job> jobs_;
    bool stop_ = false;
    std::thread thread_;
};

} // namespace pkv
