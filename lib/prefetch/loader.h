// SPDX-License-Identifier: Apache-2.0
// The engine of a session: begins loads in the order of their urgency, takes what arrives, verifies it and puts it in place.
// A thread of its own does that, and every caller that waits for a load: work is cut into tasks, which are picked under the
// lock and carried out without it.
#pragma once

#include "core/mutex.h"
#include "pool/pool.h"
#include "prefetch/inbox.h"
#include "prefetch/io_clock.h"
#include "prefetch/part.h"

#include <pagedkv/prefetch.h>

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace pkv {

/// Who has loads to begin. All but work() are called under the loader's lock.
class PartSource {
  public:
    virtual ~PartSource() = default;
    /// The next idle part, or nullptr; with `urgent` only one that somebody waits for. It stays the next one until it is begun.
    virtual std::shared_ptr<Part> next(bool urgent) = 0;
    /// Whether work() has something to do by now.
    virtual bool has_work(uint64_t) { return false; }
    /// When has_work() is to be asked at the latest.
    virtual uint64_t work_by() { return no_deadline; }
    /// Called without the lock, by any thread that has time.
    virtual void work() {}
};

class Loader {
  public:
    struct Limits {
        uint64_t bytes_in_flight;
        uint64_t slice_bytes; ///< of the largest slice with its header: what staging slots for slices hold
        uint64_t timeout_ns;
    };

    Loader(std::shared_ptr<Pool> pool, const Limits &limits);
    ~Loader();
    Loader(const Loader &) = delete;
    Loader &operator=(const Loader &) = delete;

    /// Sources in the order in which they are asked; then the thread starts. Throws std::system_error.
    pkv_status start(std::vector<PartSource *> sources);
    /// Ends the thread. Tiers may still answer: nobody listens. No source is asked any more.
    void stop();

    Mutex mutex; // guards the session, and what follows

    /// Something is wanted, or not: wakes the thread. With or without the lock.
    void poke() { inbox_->poke(); }
    /// Works and waits until done() (called under the lock) says so; false when the deadline came first.
    template <class Done> bool wait(uint64_t deadline_ns, Done &&done) PKV_EXCLUDES(mutex);

    /// Not wanted any more. What was loaded in vain is counted; a load under way is cancelled by the next cancel_dropped(),
    /// and its target may be in use as long as it is busy: wait_idle().
    void drop(const std::shared_ptr<Part> &part) PKV_REQUIRES(mutex);
    /// Tells tiers of loads that were dropped.
    void cancel_dropped() PKV_EXCLUDES(mutex);
    /// Waits until no dropped part is being put in place.
    void wait_idle() PKV_EXCLUDES(mutex);
    /// A part was asked for: its bytes are used, once.
    void use(Part &part) PKV_REQUIRES(mutex);

    /// Whether what the part's target was used for is over: until then it is not begun, and whoever takes what is to be begun
    /// looks again soon. So no thread of a session waits for work of others on the device, which may wait for that thread.
    bool may_begin(const Part &part) PKV_REQUIRES(mutex) {
        if (part.after.none() || pool_->device()->order().passed_by_now(part.after)) return true;
        held_back_ = true;
        return false;
    }

    IoClock &clock() PKV_REQUIRES(mutex) { return clock_; }
    pkv_prefetch_stats &counters() PKV_REQUIRES(mutex) { return counters_; }
    /// Gauges, and times up to now.
    void fill_stats(pkv_prefetch_stats &stats) PKV_EXCLUDES(mutex);
    /// The session's lanes in a trace; they are named when there is first something to record.
    uint32_t trace_process();

  private:
    struct Task;
    void run_thread();
    bool take(Task &task) PKV_EXCLUDES(mutex);
    bool take_arrived(Task &task) PKV_REQUIRES(mutex);
    bool take_work(Task &task) PKV_REQUIRES(mutex);
    bool take_next(Task &task) PKV_REQUIRES(mutex);
    std::shared_ptr<Part> next_part() PKV_REQUIRES(mutex);
    void begin_part(Part &part, int8_t tier, uint64_t now) PKV_REQUIRES(mutex);
    bool starve(Part &part, int8_t tier) PKV_REQUIRES(mutex);
    void run(Task &task) PKV_EXCLUDES(mutex);
    void attempt(Task &task, int first_tier);
    bool ask(Task &task, int8_t tier);
    void take_answer(Task &task);
    void keep_head(Task &task) PKV_EXCLUDES(mutex);
    static bool is_stale(Task &task);
    pkv_status load_in_place(Task &task, int8_t tier);
    /// Verifies bytes that begin at the image's header or at the slice, and writes them to the part's target. `slot`: whose they
    /// are; nullptr for those in a tier's memory.
    bool put_in_place(Task &task, const std::byte *bytes, const std::shared_ptr<std::byte> &slot, bool with_head,
                      bool with_slice, uint64_t size);
    bool read_head(Task &task, const std::byte *bytes, const ImageName &name, const char **why) const;
    bool put_on_device(Task &task, const std::byte *bytes, const std::shared_ptr<std::byte> &slot, bool with_head,
                       bool with_slice, uint64_t size, const char **why);
    bool put_slice_on_device(Task &task, const std::byte *bytes, const std::shared_ptr<std::byte> &slot, bool with_head,
                             const char **why);
    void finish(Task &task) PKV_EXCLUDES(mutex);
    void end_part(Part &part, PartState state, uint64_t now) PKV_REQUIRES(mutex);
    void end_load(Part &part, uint64_t now) PKV_REQUIRES(mutex);
    void end_late() PKV_REQUIRES(mutex);
    uint64_t next_deadline() PKV_EXCLUDES(mutex);
    uint64_t deadline_of(const Part &part) const {
        return limits_.timeout_ns < no_deadline / 4 ? part.begun_ns + limits_.timeout_ns : no_deadline;
    }
    void note_lane(int8_t tier, bool begins, uint64_t now) PKV_REQUIRES(mutex);

    std::shared_ptr<Pool> pool_;
    Limits limits_;
    std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
    Staging slices_;
    std::vector<PartSource *> sources_;
    bool stop_ PKV_GUARDED_BY(mutex) = false;
    IoClock clock_ PKV_GUARDED_BY(mutex);
    pkv_prefetch_stats counters_ PKV_GUARDED_BY(mutex) = PKV_PREFETCH_STATS_INIT;
    uint64_t whole_in_flight_ PKV_GUARDED_BY(mutex) = 0;            // images that nobody waits for
    std::deque<std::shared_ptr<Part>> again_ PKV_GUARDED_BY(mutex); // begun, and stuck for want of staging memory
    std::deque<std::shared_ptr<Part>>
        order_ PKV_GUARDED_BY(mutex); // loads under way, in the order in which they were begun
    std::vector<std::shared_ptr<Request>> to_cancel_ PKV_GUARDED_BY(mutex);
    uint64_t busy_dropped_ PKV_GUARDED_BY(mutex) = 0;
    uint64_t starved_since_ns_ PKV_GUARDED_BY(mutex) = 0; // there was a slot for everything that was to begin: 0
    bool held_back_ PKV_GUARDED_BY(mutex) = false;        // what is to be begun next may not be, yet
    // For traces: for each tier the loads outstanding, and since when.
    struct TierLane {
        uint64_t loads = 0;
        uint64_t since_ns = 0;
    };
    std::array<TierLane, PKV_MAX_TIERS> lanes_ PKV_GUARDED_BY(mutex){};
    std::once_flag traced_;
    std::atomic<uint32_t> trace_process_{0};
    std::thread thread_;
};

/// Something that a thread does without the lock.
struct Loader::Task {
    PartSource *source = nullptr; ///< whose work() is to be called, or
    std::shared_ptr<Part> part;
    bool arrived = false; ///< a tier has answered; else the part begins
    // Of the part, read under the lock:
    std::shared_ptr<const ImageHead> known; ///< of its image
    bool urgent = false;
    int8_t tier = no_tier;
    int8_t home = no_tier; ///< where the image is known to be
    uint64_t deadline_ns = 0;
    // What came of it:
    pkv_status status = PKV_ERR_NOT_FOUND;
    std::shared_ptr<Request> request; ///< that was begun
    uint32_t asks = 0;                ///< its number
    bool stuck = false;               ///< there was no staging memory for it
    bool no_image = false;            ///< bytes came that were not the image
    pkv_status device = PKV_OK;       ///< what it said; the bytes are good, and not in place
    uint64_t loaded = 0;
    std::shared_ptr<const ImageHead> head; ///< that was read

    bool needs_head() const { return known == nullptr && head == nullptr; }
    const ImageHead &head_to_use() const { return head != nullptr ? *head : *known; }
};

template <class Done> bool Loader::wait(uint64_t deadline_ns, Done &&done) {
    for (bool worked = false;; worked = true) {
        const uint64_t seen = inbox_->changes();
        {
            const Lock lock(mutex);
            if (done()) return true;
        }
        if (worked && monotonic_ns() >= deadline_ns) return false; // what is left is others' work
        Task task;
        if (take(task)) {
            run(task);
            finish(task);
            continue;
        }
        if (monotonic_ns() >= deadline_ns) return false;
        inbox_->wait(seen, std::min(deadline_ns, next_deadline()));
    }
}

} // namespace pkv
