// SPDX-License-Identifier: Apache-2.0
// The engine with io_uring. One thread owns the ring: it submits in batches, reaps, and calls the sink; others leave work
// in a queue and wake it. A transfer is known by its own address throughout (user_data), so that a completion can only ever
// be taken for the transfer it belongs to.
#include "core/clock.h"
#include "tier/file_io.h"

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <liburing.h>
#include <sys/eventfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace pkv {

namespace {

/// Memory that is registered with the ring, by its slot in the ring's table.
struct Region {
    std::byte *base = nullptr; // null: a free slot
    uint64_t bytes = 0;        // of it registered
};

class UringEngine final : public FileEngine {
  public:
    UringEngine(const FileEngineOptions &options, FileIoSink &sink)
        : fd_(options.fd), depth_(options.depth), judge_(sink, options.fault, options.fault_user) {
        ended_.reserve(depth_);
    }
    ~UringEngine() override {
        if (wake_fd_ >= 0) ::close(wake_fd_);
    }

    /// 0 or an errno.
    int start();

    int32_t kind() const override { return PKV_IO_URING; }
    void submit(FileIoList list) override;
    void take_back(const void *owner, FileIoList &out) override;
    void memory(void *base, uint64_t bytes, bool add) override;
    bool has_registered_buffers() const override { return registered_.load(std::memory_order_relaxed) != 0; }
    void stop() override;

  private:
    struct Ended {
        FileIo *io;
        int32_t result;
    };
    struct Announcement {
        void *base;
        uint64_t bytes;
        bool add;
        bool done;
    };

    int init();
    void run();
    bool next_round();
    void prepare(FileIo &io);
    void enter();
    void deliver();
    void reap();
    bool arm_wake();
    void wake(bool needed);
    void apply_memory(std::byte *base, uint64_t bytes, bool add);
    void forget_region(size_t slot);
    bool update_buffer(size_t slot, void *base, uint64_t bytes);

    // Ordinary users may lock 8 MiB, all their processes together: more than half of that for one ring would starve others.
    static constexpr uint64_t max_registered_bytes = uint64_t{4} << 20;
    static constexpr size_t max_regions = 16;

    const int fd_;
    const uint32_t depth_;
    FileIoJudge judge_;
    std::thread thread_;
    int wake_fd_ = -1;
    std::atomic<uint64_t> registered_{0}; // bytes

    std::mutex mutex_;                // guards what follows
    std::condition_variable changed_; // announcements done, thread started
    FileIoQueue queue_;
    std::vector<Announcement *> announcements_;
    bool asleep_ = false; // nothing but the ring can wake the thread
    bool stopping_ = false;
    int started_ = -1; // init()'s result

    // The thread's own.
    io_uring ring_{};
    bool registered_file_ = false;
    bool registers_buffers_ = false;
    bool wake_armed_ = false;
    bool told_ = false;  // that entering the ring fails
    uint64_t woken_ = 0; // the eventfd's value
    uint32_t under_way_ = 0;
    Region regions_[max_regions];
    FileIoList fresh_, expired_; // taken from the queue in this round
    std::vector<Ended> ended_;   // reaped, not judged
};

int UringEngine::start() {
    wake_fd_ = eventfd(0, EFD_CLOEXEC);
    if (wake_fd_ < 0) return errno;
    const auto body = [this] {
        const int error = init();
        {
            const std::lock_guard lock(mutex_);
            started_ = error;
            changed_.notify_all();
        }
        if (error == 0) run();
    };
    try {
        thread_ = start_io_thread(body);
    } catch (const std::system_error &) {
        return EAGAIN;
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return started_ >= 0; });
    const int error = started_;
    lock.unlock();
    if (error != 0) thread_.join();
    return error;
}

/// On the thread that will use the ring: it is the only one that may, which saves the kernel locks and interrupts.
int UringEngine::init() {
    int result = -EINVAL;
    for (const unsigned flags :
         {IORING_SETUP_CLAMP | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
          IORING_SETUP_CLAMP}) {
        io_uring_params params{};
        params.flags = flags;
        result = io_uring_queue_init_params(depth_ + 1, &ring_, &params);  // one for the eventfd
        if (result == 0 && (params.features & IORING_FEAT_EXT_ARG) == 0) { // before Linux 5.11
            io_uring_queue_exit(&ring_);
            return ENOSYS;
        }
        if (result != -EINVAL) break; // EINVAL: flags of a later kernel
    }
    if (result != 0) return -result;
    registered_file_ = io_uring_register_files(&ring_, &fd_, 1) == 0;
    registers_buffers_ = io_uring_register_buffers_sparse(&ring_, max_regions) == 0;
    // The first entry tells whether the ring can be entered at all.
    if (arm_wake()) result = io_uring_submit(&ring_);
    if (result < 0) io_uring_queue_exit(&ring_);
    return result < 0 ? -result : 0;
}

void UringEngine::submit(FileIoList list) {
    bool needed = false;
    {
        const std::lock_guard lock(mutex_);
        while (FileIo *const io = list.pop()) queue_.push(*io);
        needed = asleep_;
        asleep_ = false;
    }
    wake(needed);
}

void UringEngine::take_back(const void *owner, FileIoList &out) {
    const std::lock_guard lock(mutex_);
    queue_.urgent.take(owner, out);
    queue_.ahead.take(owner, out);
}

void UringEngine::memory(void *base, uint64_t bytes, bool add) {
    if (thread_.get_id() == std::this_thread::get_id()) { // called by the sink, or something that it calls
        apply_memory(static_cast<std::byte *>(base), bytes, add);
        return;
    }
    Announcement announcement{base, bytes, add, false};
    std::unique_lock lock(mutex_);
    announcements_.push_back(&announcement);
    const bool needed = asleep_;
    asleep_ = false;
    lock.unlock();
    wake(needed);
    lock.lock();
    changed_.wait(lock, [&] { return announcement.done; });
}

void UringEngine::stop() {
    FileIoQueue left;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        left = queue_;
        queue_ = {};
    }
    wake(true);
    thread_.join();
    while (FileIo *const io = left.pop()) judge_.end_unbegun(*io, ECANCELED);
    judge_.finish();
}

void UringEngine::wake(bool needed) {
    const uint64_t one = 1;
    while (needed && ::write(wake_fd_, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

// ---- the thread -----------------------------------------------------------------------------------------------------

void UringEngine::run() {
    while (next_round()) {
        while (FileIo *const io = fresh_.pop()) prepare(*io);
        // What comes next is under way before the sink is called for what has ended: the device is not kept waiting.
        enter();
        deliver();
        reap();
    }
    io_uring_queue_exit(&ring_);
}

/// Takes what fits out of the queue; false at the end.
bool UringEngine::next_round() {
    const std::lock_guard lock(mutex_);
    for (Announcement *const announcement : announcements_) {
        apply_memory(static_cast<std::byte *>(announcement->base), announcement->bytes, announcement->add);
        announcement->done = true;
    }
    if (!announcements_.empty()) changed_.notify_all();
    announcements_.clear();

    const uint64_t now = queue_.empty() ? 0 : monotonic_ns();
    bool any_expired = false;
    while (under_way_ < depth_) {
        FileIo *const io = queue_.pop();
        if (io == nullptr) break;
        const bool begun = io->done != 0 || io->tries != 0;
        if (io->deadline_ns != 0 && io->deadline_ns <= now && !begun) {
            expired_.push(*io);
            any_expired = true;
        } else {
            fresh_.push(*io);
            ++under_way_;
        }
    }
    if (stopping_ && under_way_ == 0 && ended_.empty() && queue_.empty() && !any_expired) return false;
    asleep_ = ended_.empty() && !any_expired && under_way_ < depth_ && !stopping_;
    return true;
}

void UringEngine::prepare(FileIo &io) {
    io_uring_sqe *const sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) { // entries that the kernel has not taken yet fill the ring
        --under_way_;
        const std::lock_guard lock(mutex_);
        queue_.push_front(io);
        return;
    }
    std::byte *const data = io.data + io.done;
    const auto bytes = static_cast<unsigned>(io.part());
    const uint64_t offset = io.offset + io.done;
    const int fd = registered_file_ ? 0 : fd_;
    int slot = -1;
    for (size_t i = 0; i < max_regions && slot < 0; ++i)
        if (regions_[i].base != nullptr && data >= regions_[i].base &&
            data + bytes <= regions_[i].base + regions_[i].bytes)
            slot = static_cast<int>(i);
    if (slot >= 0 && io.write)
        io_uring_prep_write_fixed(sqe, fd, data, bytes, offset, slot);
    else if (slot >= 0)
        io_uring_prep_read_fixed(sqe, fd, data, bytes, offset, slot);
    else if (io.write)
        io_uring_prep_write(sqe, fd, data, bytes, offset);
    else
        io_uring_prep_read(sqe, fd, data, bytes, offset);
    if (registered_file_) sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(sqe, &io);
}

/// Hands entries to the kernel; when there is nothing else to do, sleeps until something has ended.
void UringEngine::enter() {
    if (!wake_armed_) arm_wake();
    int result = 0;
    if (!ended_.empty() || !expired_.empty()) {
        result = io_uring_submit(&ring_);
    } else if (const uint64_t due = judge_.due_ns(); due != UINT64_MAX) {
        const uint64_t now = monotonic_ns();
        const uint64_t rest = due > now ? due - now : 1;
        __kernel_timespec time{static_cast<int64_t>(rest / 1'000'000'000),
                               static_cast<long long>(rest % 1'000'000'000)};
        io_uring_cqe *cqe = nullptr;
        result = io_uring_submit_and_wait_timeout(&ring_, &cqe, 1, &time, nullptr);
    } else {
        result = io_uring_submit_and_wait(&ring_, 1);
    }
    if (result >= 0 || result == -ETIME || result == -EINTR) return;
    // EAGAIN, EBUSY, ENOMEM: the kernel is short of something. The entries stay in the ring for the next round.
    if (!told_) log_message(PKV_LOG_WARNING, "io_uring_enter failed (%s); trying again", std::strerror(-result));
    told_ = true;
    usleep(1000);
}

void UringEngine::deliver() {
    FileIoList again;
    for (const Ended &ended : ended_)
        if (judge_.again(*ended.io, ended.result)) again.push(*ended.io);
    ended_.clear();
    while (FileIo *const io = expired_.pop()) judge_.end_unbegun(*io, ETIMEDOUT);
    judge_.deliver_due();
    if (again.empty()) return;
    const std::lock_guard lock(mutex_);
    while (FileIo *const io = again.pop()) queue_.push_front(*io);
}

void UringEngine::reap() {
    unsigned head = 0, count = 0;
    io_uring_cqe *cqe = nullptr;
    io_uring_for_each_cqe(&ring_, head, cqe) {
        ++count;
        if (cqe->user_data == 0) {
            wake_armed_ = false;
            continue;
        }
        if (cqe->user_data == LIBURING_UDATA_TIMEOUT) continue;
        ended_.push_back({static_cast<FileIo *>(io_uring_cqe_get_data(cqe)), cqe->res});
        --under_way_;
    }
    io_uring_cq_advance(&ring_, count);
}

bool UringEngine::arm_wake() {
    io_uring_sqe *const sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) return false;
    io_uring_prep_read(sqe, wake_fd_, &woken_, sizeof woken_, 0);
    io_uring_sqe_set_data64(sqe, 0);
    wake_armed_ = true;
    return true;
}

// ---- registered buffers ---------------------------------------------------------------------------------------------

/// Registers as much of the memory as is left of the allowance. Whether that works is only a matter of speed.
void UringEngine::apply_memory(std::byte *base, uint64_t bytes, bool add) {
    if (!registers_buffers_) return;
    // Memory whose end nobody told of (a late request had it then) may have its address again: the ring still knows the old.
    for (size_t slot = 0; slot < max_regions; ++slot) {
        const Region &region = regions_[slot];
        const bool overlaps = region.base != nullptr && region.base < base + bytes && base < region.base + region.bytes;
        if (add ? overlaps : region.base == base) forget_region(slot);
    }
    if (!add) return;
    const uint64_t now = registered_.load(std::memory_order_relaxed);
    const uint64_t allowed = max_registered_bytes - now;
    const uint64_t wanted = bytes < allowed ? bytes : allowed;
    size_t slot = 0;
    while (slot < max_regions && regions_[slot].base != nullptr) ++slot;
    if (slot == max_regions || wanted < PKV_IMAGE_ALIGNMENT || !update_buffer(slot, base, wanted)) return;
    regions_[slot] = {base, wanted};
    registered_.store(now + wanted, std::memory_order_relaxed);
}

void UringEngine::forget_region(size_t slot) {
    update_buffer(slot, nullptr, 0);
    registered_.fetch_sub(regions_[slot].bytes, std::memory_order_relaxed);
    regions_[slot] = {};
}

bool UringEngine::update_buffer(size_t slot, void *base, uint64_t bytes) {
    const iovec buffer{base, static_cast<size_t>(bytes)};
    const __u64 tag = 0;
    return io_uring_register_buffers_update_tag(&ring_, static_cast<unsigned>(slot), &buffer, &tag, 1) == 1;
}

} // namespace

int make_uring_engine(const FileEngineOptions &options, FileIoSink &sink, std::unique_ptr<FileEngine> &out) {
    auto engine = std::make_unique<UringEngine>(options, sink);
    if (const int error = engine->start(); error != 0) return error;
    out = std::move(engine);
    return 0;
}

} // namespace pkv
