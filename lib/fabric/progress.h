// SPDX-License-Identifier: Apache-2.0
// The thread of a domain. It drives all its endpoints, in turn, and alone touches their reads; other threads leave it notes.
// While nothing moves it sleeps: in the descriptors of the completion queues, or for a short time where a provider has none.
#pragma once

#include "fabric/endpoint.h"
#include "fabric/provider.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace pkv::fabric {

class Progress {
  public:
    explicit Progress(const Provider &provider) : provider_(provider) {}
    ~Progress() { stop(); }
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;

    pkv_status start(Why why);
    void stop();

    /// From here on the endpoint is driven.
    pkv_status add(pkv_fabric_endpoint *endpoint, Why why);
    /// Returns once the thread has let go of it; its reads are still there. Not from the thread itself.
    void remove(pkv_fabric_endpoint *endpoint);
    /// Hands a read over to the thread, for `read->endpoint`. Any thread, also in `done` of another.
    void submit(Read *read);

  private:
    void run();
    /// Does `change` under the mutex, and wakes the thread.
    template <class Change> void note(Change change);
    /// False once the thread has to end.
    bool take_notes();
    void sleep(uint64_t now_ns, uint64_t still_ns);
    uint64_t longest_sleep(bool by_time) const;

    const Provider &provider_;
    std::thread thread_;
    int event_ = -1;   ///< eventfd: there are notes
    int arrival_ = -1; ///< epoll: descriptors of all completion queues

    pkv_fabric_endpoint *endpoints_ = nullptr; ///< the thread's own

    // Notes for the thread.
    std::mutex mutex_;
    std::condition_variable let_go_; ///< removed_ is NULL again
    std::atomic<bool> noted_{false};
    bool asleep_ = false; ///< nobody has woken it yet
    bool stop_ = false;
    pkv_fabric_endpoint *added_ = nullptr;
    pkv_fabric_endpoint *removed_ = nullptr; ///< one at a time; the others wait for their turn
    ReadList submitted_;
};

} // namespace pkv::fabric
