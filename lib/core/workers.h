// SPDX-License-Identifier: Apache-2.0
// Helper threads that share a large loop with the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace pkv {

/// A fixed set of threads. run() may be called from several threads; one loop is served at a time, a second caller that
/// finds the helpers busy does its loop alone rather than wait.
class Workers {
  public:
    explicit Workers(uint32_t threads);
    ~Workers();
    Workers(const Workers &) = delete;
    Workers &operator=(const Workers &) = delete;

    uint32_t threads() const;

    /// Calls body(i) for every i in [0, tasks), on the helpers and on this thread; returns when all are done. body must
    /// not throw.
    void run(uint64_t tasks, const std::function<void(uint64_t)> &body);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace pkv
