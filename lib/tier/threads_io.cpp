// SPDX-License-Identifier: Apache-2.0
// The engine for systems that forbid io_uring, as containers often do: threads with pread and pwrite.
#include "core/clock.h"
#include "tier/file_io.h"

#include <cerrno>
#include <condition_variable>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace pkv {

namespace {

class ThreadsEngine final : public FileEngine {
  public:
    ThreadsEngine(const FileEngineOptions &options, FileIoSink &sink)
        : fd_(options.fd), judge_(sink, options.fault, options.fault_user) {}

    void start(uint32_t threads) {
        threads_.reserve(threads);
        for (uint32_t i = 0; i < threads; ++i) threads_.push_back(start_io_thread([this] { work(); }));
    }

    int32_t kind() const override { return PKV_IO_THREADS; }

    void submit(FileIoList list) override {
        uint32_t count = 0;
        {
            const std::lock_guard lock(mutex_);
            for (; FileIo *const io = list.pop(); ++count) queue_.push(*io);
        }
        if (count == 1) wake_.notify_one();
        if (count > 1) wake_.notify_all();
    }

    void take_back(const void *owner, FileIoList &out) override {
        const std::lock_guard lock(mutex_);
        queue_.urgent.take(owner, out);
        queue_.ahead.take(owner, out);
    }

    void stop() override {
        FileIoQueue left;
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
            left = queue_;
            queue_ = {};
        }
        wake_.notify_all();
        for (std::thread &thread : threads_) thread.join();
        while (FileIo *const io = left.pop()) judge_.end_unbegun(*io, ECANCELED);
        judge_.finish();
    }

  private:
    void work() {
        std::unique_lock lock(mutex_);
        for (;;) {
            FileIo *const io = queue_.pop();
            if (io == nullptr && stopping_) return;
            if (io == nullptr) {
                wait(lock);
                continue;
            }
            lock.unlock();
            serve(*io);
            lock.lock();
        }
    }

    // Sleeps until there is work, or the time of a completion that was put off has come; delivers that.
    void wait(std::unique_lock<std::mutex> &lock) {
        const uint64_t due = judge_.due_ns();
        if (due == UINT64_MAX) {
            wake_.wait(lock);
            return;
        }
        const uint64_t now = monotonic_ns();
        if (due > now) wake_.wait_for(lock, std::chrono::nanoseconds(due - now));
        lock.unlock();
        judge_.deliver_due();
        lock.lock();
    }

    void serve(FileIo &io) {
        if (io.deadline_ns != 0 && monotonic_ns() >= io.deadline_ns) {
            judge_.end_unbegun(io, ETIMEDOUT);
            return;
        }
        int64_t result = 0;
        do {
            const auto offset = static_cast<off_t>(io.offset + io.done);
            std::byte *const data = io.data + io.done;
            result = io.write ? pwrite(fd_, data, io.part(), offset) : pread(fd_, data, io.part(), offset);
            if (result < 0) result = -errno;
        } while (judge_.again(io, result));
    }

    int fd_;
    FileIoJudge judge_;
    std::mutex mutex_;
    std::condition_variable wake_;
    FileIoQueue queue_;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

} // namespace

pkv_status make_threads_engine(const FileEngineOptions &options, FileIoSink &sink, std::unique_ptr<FileEngine> &out) {
    auto engine = std::make_unique<ThreadsEngine>(options, sink);
    try {
        engine->start(options.threads);
    } catch (const std::system_error &error) {
        engine->stop();
        return fail(PKV_ERR_NO_MEMORY, "%u threads for reads and writes: %s", options.threads, error.what());
    }
    out = std::move(engine);
    return PKV_OK;
}

} // namespace pkv
