// SPDX-License-Identifier: Apache-2.0
#include "tier/file_io.h"

#include "core/clock.h"

#include <cerrno>
#include <csignal>
#include <pthread.h>
#include <utility>

namespace pkv {

void FileIoList::push(FileIo &io) {
    io.next = nullptr;
    (last_ != nullptr ? last_->next : first_) = &io;
    last_ = &io;
}

void FileIoList::push_front(FileIo &io) {
    io.next = first_;
    first_ = &io;
    if (last_ == nullptr) last_ = &io;
}

FileIo *FileIoList::pop() {
    FileIo *const io = first_;
    if (io == nullptr) return nullptr;
    first_ = io->next;
    if (first_ == nullptr) last_ = nullptr;
    io->next = nullptr;
    return io;
}

void FileIoList::take(const void *owner, FileIoList &out) {
    FileIoList rest;
    while (FileIo *const io = pop()) (io->owner == owner ? out : rest).push(*io);
    *this = rest;
}

bool FileIoJudge::again(FileIo &io, int64_t result) {
    const uint64_t asked = io.part();
    int32_t verdict = PKV_FAULT_NONE;
    if (fault_ != nullptr) {
        pkv_file_event event{sizeof event, io.write ? 1 : 0, 0, io.offset + io.done, io.data + io.done, asked, result};
        verdict = fault_(user_, &event);
        result = event.result;
        if (verdict == PKV_FAULT_DROP) {
            const std::lock_guard lock(mutex_);
            dropped_.push(io);
            return false;
        }
    }

    if (result > 0 && static_cast<uint64_t>(result) <= asked) {
        const uint64_t moved = static_cast<uint64_t>(result);
        // What a short transfer left is asked for from an aligned place, as O_DIRECT demands: its end comes once more.
        const uint64_t good = moved == asked ? moved : moved - moved % PKV_IMAGE_ALIGNMENT;
        io.done += good;
        if (io.done < io.size) {
            if (good != 0) io.tries = 0;
            if (good != 0 || ++io.tries < max_tries) return true;
            io.error = EIO;
        }
    } else if (result == -EINTR || result == -EAGAIN) {
        if (++io.tries < max_tries) return true;
        io.error = static_cast<int32_t>(-result);
    } else {
        // Nothing at all is the end of a file that was cut. More than was asked for is no answer to this request.
        io.error = result < 0 && result > -4096 ? static_cast<int32_t>(-result) : EIO;
    }
    io.device_failed = io.error != 0;

    if (verdict == PKV_FAULT_LATE) {
        const std::lock_guard lock(mutex_);
        late_.push(io);
        if (late_due_ns_ == UINT64_MAX) late_due_ns_ = monotonic_ns() + late_ns;
        return false;
    }
    if (verdict == PKV_FAULT_TWICE) io.deliveries = 2;
    deliver(io);
    if (fault_ != nullptr) deliver_late();
    return false;
}

void FileIoJudge::end_unbegun(FileIo &io, int32_t error) {
    io.error = error;
    deliver(io);
}

void FileIoJudge::deliver(FileIo &io) { sink_.ended(io); }

uint64_t FileIoJudge::due_ns() {
    if (fault_ == nullptr) return UINT64_MAX;
    const std::lock_guard lock(mutex_);
    return late_due_ns_;
}

void FileIoJudge::deliver_due() {
    if (due_ns() <= monotonic_ns()) deliver_late();
}

void FileIoJudge::deliver_late() {
    FileIoList late;
    {
        const std::lock_guard lock(mutex_);
        late = late_;
        late_ = {};
        late_due_ns_ = UINT64_MAX;
    }
    while (FileIo *const io = late.pop()) deliver(*io);
}

void FileIoJudge::finish() {
    deliver_late();
    FileIoList dropped;
    {
        const std::lock_guard lock(mutex_);
        dropped = dropped_;
        dropped_ = {};
    }
    while (FileIo *const io = dropped.pop()) end_unbegun(*io, ECANCELED);
}

std::thread start_io_thread(std::function<void()> body) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        std::thread thread(std::move(body)); // inherits the mask
        pthread_setname_np(thread.native_handle(), "pagedkv-io");
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return thread;
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
}

} // namespace pkv
