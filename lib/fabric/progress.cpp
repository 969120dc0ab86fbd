// SPDX-License-Identifier: Apache-2.0
// The loop of the domain's thread. What others want of it stands in notes under a mutex, and an eventfd wakes it for them; it
// looks at a flag first, so that a turn without notes takes no lock.
#include "fabric/progress.h"
#include "core/clock.h"
#include "fabric/signals.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace pkv::fabric {
namespace {

/// The thread stays awake this long after something has moved: to sleep and be woken takes about that, and where reads end
/// others begin.
constexpr uint64_t awake_ns = 20'000;

// The longest sleeps. Where the provider has a descriptor it wakes the thread, and these are for what it does by the clock.
constexpr uint64_t idle_ns = 100'000'000;
constexpr uint64_t in_flight_ns = 10'000'000;
// After -FI_EAGAIN: what has to happen first may have no event of its own.
constexpr uint64_t refused_ns = 100'000;
// Where it has none, or none that can be used now (pkv_fabric_endpoint::rest).
constexpr uint64_t idle_look_ns = 500'000;
constexpr uint64_t in_flight_look_ns = 20'000;
/// Reads that follow each other are this close together.
constexpr uint64_t settled_ns = 10'000'000;

void pause_briefly() {
#if defined(__x86_64__)
    for (int i = 0; i < 16; ++i) __builtin_ia32_pause();
#elif defined(__aarch64__)
    for (int i = 0; i < 16; ++i) asm volatile("yield");
#endif
}

} // namespace

pkv_status Progress::start(Why why) {
    event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    arrival_ = epoll_create1(EPOLL_CLOEXEC);
    if (event_ < 0 || arrival_ < 0) {
        const int error = errno;
        stop();
        return why.fail(PKV_ERR_IO, "no descriptor for the thread of provider %s: %s", provider_.name(),
                        std::strerror(error));
    }
    try {
        const BlockedSignals blocked;
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error &) {
        stop();
        return why.fail(PKV_ERR_NO_MEMORY, "no thread for provider %s", provider_.name());
    }
    return PKV_OK;
}

void Progress::stop() {
    if (thread_.joinable()) {
        note([this] { stop_ = true; });
        thread_.join();
    }
    for (int *descriptor : {&event_, &arrival_}) {
        if (*descriptor >= 0) ::close(*descriptor);
        *descriptor = -1;
    }
}

template <class Change> void Progress::note(Change change) {
    bool asleep;
    {
        const std::lock_guard lock(mutex_);
        change();
        noted_.store(true, std::memory_order_relaxed);
        asleep = std::exchange(asleep_, false);
    }
    if (!asleep) return;
    const uint64_t one = 1;
    if (::write(event_, &one, sizeof one) < 0) return; // full: it wakes anyway
}

pkv_status Progress::add(pkv_fabric_endpoint *endpoint, Why why) {
    if (endpoint->descriptor() >= 0) {
        epoll_event event = {};
        event.events = EPOLLIN;
        if (epoll_ctl(arrival_, EPOLL_CTL_ADD, endpoint->descriptor(), &event) != 0)
            return why.fail(PKV_ERR_IO, "the descriptor of provider %s cannot be waited for: %s", provider_.name(),
                            std::strerror(errno));
    }
    note([&] {
        endpoint->next = added_;
        added_ = endpoint;
    });
    return PKV_OK;
}

void Progress::remove(pkv_fabric_endpoint *endpoint) {
    {
        std::unique_lock lock(mutex_);
        let_go_.wait(lock, [&] { return removed_ == nullptr; });
        removed_ = endpoint; // nobody else's turn before this one is over
    }
    note([] {});
    std::unique_lock lock(mutex_);
    let_go_.wait(lock, [&] { return removed_ != endpoint; });
}

void Progress::submit(Read *read) {
    note([&] { submitted_.append(read); });
}

bool Progress::take_notes() {
    pkv_fabric_endpoint *added, *removed;
    ReadList submitted;
    bool stop;
    {
        const std::lock_guard lock(mutex_);
        noted_.store(false, std::memory_order_relaxed);
        added = std::exchange(added_, nullptr);
        submitted.take_all(submitted_);
        removed = removed_;
        stop = stop_;
    }
    while (added != nullptr) {
        pkv_fabric_endpoint *endpoint = added;
        added = endpoint->next;
        endpoint->next = endpoints_;
        endpoints_ = endpoint;
    }
    // Without the mutex: `done` of a read that ends here may submit another.
    while (Read *read = submitted.take()) read->endpoint->accept(read);
    if (removed != nullptr) {
        pkv_fabric_endpoint **link = &endpoints_;
        while (*link != removed) link = &(*link)->next;
        *link = removed->next;
        if (removed->descriptor() >= 0) epoll_ctl(arrival_, EPOLL_CTL_DEL, removed->descriptor(), nullptr);
        const std::lock_guard lock(mutex_);
        removed_ = nullptr;
        let_go_.notify_all();
    }
    return !stop;
}

uint64_t Progress::longest_sleep(bool by_time) const {
    bool in_flight = false, refused = false;
    for (const pkv_fabric_endpoint *endpoint = endpoints_; endpoint != nullptr; endpoint = endpoint->next) {
        in_flight = in_flight || endpoint->in_flight();
        refused = refused || endpoint->refused();
    }
    if (by_time) return in_flight || refused ? in_flight_look_ns : endpoints_ != nullptr ? idle_look_ns : idle_ns;
    return refused ? refused_ns : in_flight ? in_flight_ns : idle_ns;
}

void Progress::sleep(uint64_t now_ns, uint64_t still_ns) {
    bool by_time = !provider_.sleeps();
    uint64_t deadline_ns = UINT64_MAX;
    for (pkv_fabric_endpoint *endpoint = endpoints_; endpoint != nullptr; endpoint = endpoint->next) {
        deadline_ns = std::min(deadline_ns, endpoint->next_deadline());
        if (!provider_.sleeps()) continue;
        const auto rest = endpoint->rest(still_ns > settled_ns);
        if (rest == pkv_fabric_endpoint::Rest::none) return;
        if (rest == pkv_fabric_endpoint::Rest::by_time) by_time = true;
    }
    const uint64_t longest = std::min(longest_sleep(by_time), deadline_ns > now_ns ? deadline_ns - now_ns : 0);
    {
        const std::lock_guard lock(mutex_);
        if (noted_.load(std::memory_order_relaxed)) return;
        asleep_ = true;
    }
    const timespec timeout = {0, static_cast<long>(longest)}; // never a second or more
    pollfd waited[] = {{event_, POLLIN, 0}, {arrival_, POLLIN, 0}};
    ppoll(waited, by_time ? 1 : 2, &timeout, nullptr);
    uint64_t notes = 0;
    if ((waited[0].revents & POLLIN) != 0 && ::read(event_, &notes, sizeof notes) < 0)
        notes = 0; // somebody's earlier one
    const std::lock_guard lock(mutex_);
    asleep_ = false;
}

void Progress::run() {
    pthread_setname_np(pthread_self(), "pagedkv-fabric");
    prctl(PR_SET_TIMERSLACK, 1000UL); // short sleeps are meant as such
    uint64_t last_move = 0;
    for (;;) {
        if (noted_.load(std::memory_order_relaxed) && !take_notes()) return;
        const uint64_t now = monotonic_ns();
        bool moved = false;
        for (pkv_fabric_endpoint *endpoint = endpoints_; endpoint != nullptr; endpoint = endpoint->next) {
            if (endpoint->turn(now)) moved = true;
        }
        if (moved) {
            last_move = now;
        } else if (now - last_move < awake_ns) {
            pause_briefly();
        } else {
            sleep(now, now - last_move);
        }
    }
}

} // namespace pkv::fabric
