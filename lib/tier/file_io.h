// SPDX-License-Identifier: Apache-2.0
// Reads and writes of a file tier, many under way at once: what the two engines (uring_io.cpp, threads_io.cpp) have in
// common. An engine takes a FileIo, reads or writes all of it, and hands it to its sink with the result, once. Retries and
// the continuation of short transfers happen inside.
#pragma once

#include "core/status.h"

#include <pagedkv/tier.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace pkv {

/// One read or write. The owner keeps it, unchanged, until the sink was called for it.
struct FileIo {
    bool write = false;
    bool urgent = false;
    std::byte *data = nullptr; ///< aligned to PKV_IMAGE_ALIGNMENT, like offset and size
    uint64_t offset = 0;       ///< in the file
    uint64_t size = 0;
    uint64_t deadline_ns = 0;    ///< ended with -ETIMEDOUT if it was not begun by then; 0 = none
    const void *owner = nullptr; ///< what take_back() knows it by

    // For the sink.
    int32_t error = 0;          ///< 0: all of it was done; else an errno
    bool device_failed = false; ///< the error is one of the file (reported, or too few bytes came), not a cancellation
    uint32_t deliveries = 1;    ///< times that the completion is to be reported (more than once only for fault hooks)

    // The engine's.
    FileIo *next = nullptr;
    uint64_t done = 0;  // bytes, a multiple of PKV_IMAGE_ALIGNMENT until all are
    uint32_t tries = 0; // in a row without progress

    /// What the next system call is asked for: not more than one call moves.
    uint64_t part() const { return size - done < max_part ? size - done : max_part; }
    static constexpr uint64_t max_part = uint64_t{1} << 30;
};

/// A list of FileIos, first in, first out.
class FileIoList {
  public:
    bool empty() const { return first_ == nullptr; }
    void push(FileIo &io);
    void push_front(FileIo &io);
    FileIo *pop();
    /// Moves those of an owner to the end of `out`.
    void take(const void *owner, FileIoList &out);

  private:
    FileIo *first_ = nullptr;
    FileIo *last_ = nullptr;
};

/// What waits to be begun: urgent ones first, each kind in order.
struct FileIoQueue {
    FileIoList urgent, ahead;

    bool empty() const { return urgent.empty() && ahead.empty(); }
    void push(FileIo &io) { (io.urgent ? urgent : ahead).push(io); }
    void push_front(FileIo &io) { (io.urgent ? urgent : ahead).push_front(io); }
    FileIo *pop() { return urgent.empty() ? ahead.pop() : urgent.pop(); }
};

/// Takes what has ended: io.error, io.deliveries. Called on the engine's threads, with no lock held.
class FileIoSink {
  public:
    virtual void ended(FileIo &io) = 0;

  protected:
    ~FileIoSink() = default;
};

/// Judges results of single system calls, asks the fault hook, and hands on what has ended. Thread-safe.
class FileIoJudge {
  public:
    FileIoJudge(FileIoSink &sink, pkv_file_fault fault, void *fault_user)
        : sink_(sink), fault_(fault), user_(fault_user) {}

    /// A call for io.part() bytes returned `result` (bytes, or -errno). True when io has to be begun again, for what is
    /// left of it; else it was handed on or is kept until its time.
    bool again(FileIo &io, int64_t result);
    /// Ends what was never begun.
    void end_unbegun(FileIo &io, int32_t error);

    /// When completions that were put off are due; UINT64_MAX = there are none.
    uint64_t due_ns();
    void deliver_due();
    /// Ends what was put off or dropped. For when nothing is under way any more.
    void finish();

  private:
    void deliver(FileIo &io);
    void deliver_late();

    static constexpr uint32_t max_tries = 16;
    static constexpr uint64_t late_ns = 50'000'000;

    FileIoSink &sink_;
    pkv_file_fault fault_;
    void *user_;
    std::mutex mutex_; // for the lists, which only fault hooks fill
    FileIoList late_, dropped_;
    uint64_t late_due_ns_ = UINT64_MAX;
};

class FileEngine {
  public:
    virtual ~FileEngine() = default;

    virtual int32_t kind() const = 0; ///< PKV_IO_*
    /// Begins all of a list, as soon as it can.
    virtual void submit(FileIoList list) = 0;
    /// Takes out what an owner has in the queue and was not begun; the caller ends it.
    virtual void take_back(const void *owner, FileIoList &out) = 0;
    /// pkv_tier_ops.memory
    virtual void memory(void *, uint64_t, bool) {}
    virtual bool has_registered_buffers() const { return false; }
    /// Ends what waits with ECANCELED, waits for what is under way. Called once, before the end of the engine, and not on
    /// its threads.
    virtual void stop() = 0;
};

/// A thread on which no signal is handled: those are the application's. Throws std::system_error.
std::thread start_io_thread(std::function<void()> body);

struct FileEngineOptions {
    int fd = -1; ///< stays the caller's, open until stop()
    uint32_t depth = 64;
    uint32_t threads = 4;
    pkv_file_fault fault = nullptr;
    void *fault_user = nullptr;
};

/// 0, or the errno with which the system refuses io_uring.
int make_uring_engine(const FileEngineOptions &options, FileIoSink &sink, std::unique_ptr<FileEngine> &out);
/// PKV_ERR_NO_MEMORY when there can be no more threads.
pkv_status make_threads_engine(const FileEngineOptions &options, FileIoSink &sink, std::unique_ptr<FileEngine> &out);

} // namespace pkv
