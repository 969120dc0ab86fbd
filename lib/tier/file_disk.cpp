// SPDX-License-Identifier: Apache-2.0
#include "tier/file_disk.h"

#include "core/clock.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pkv {

namespace {

constexpr uint64_t default_lock_timeout_ns = 5'000'000'000;
constexpr uint64_t default_image_bytes = 65536; // one image for each of these, when nobody says how many

unsigned long long number(uint64_t value) { return value; }

/// Reads or writes all of it: 0 or an errno, EIO at the end of the file.
template <class Call> int all(Call call, uint64_t size) {
    for (uint64_t done = 0; done < size;) {
        const ssize_t result = call(done, size - done);
        if (result < 0 && errno == EINTR) continue;
        if (result < 0) return errno;
        if (result == 0) return EIO;
        done += static_cast<uint64_t>(result);
    }
    return 0;
}

int read_all(int fd, void *data, uint64_t size, uint64_t offset) {
    auto *const bytes = static_cast<std::byte *>(data);
    return all(
        [=](uint64_t done, uint64_t left) { return pread(fd, bytes + done, left, static_cast<off_t>(offset + done)); },
        size);
}

int write_all(int fd, const void *data, uint64_t size, uint64_t offset) {
    const auto *const bytes = static_cast<const std::byte *>(data);
    return all(
        [=](uint64_t done, uint64_t left) { return pwrite(fd, bytes + done, left, static_cast<off_t>(offset + done)); },
        size);
}

} // namespace

pkv_status DiskFile::failed(const char *what, int error) const {
    const pkv_status status = error == ENOSPC || error == EDQUOT ? PKV_ERR_NO_SPACE
                              : error == EFBIG                   ? PKV_ERR_LIMIT
                                                                 : PKV_ERR_IO;
    return fail(status, "%s %s: %s", what, path(), std::strerror(error));
}

pkv_status DiskFile::open(const pkv_file_tier_options &options) {
    const pkv_status status = try_open(options);
    if (status != PKV_OK) close();
    return status;
}

pkv_status DiskFile::try_open(const pkv_file_tier_options &options) {
    path_ = options.path;
    const uint64_t timeout = options.lock_timeout_ns != 0 ? options.lock_timeout_ns : default_lock_timeout_ns;
    uint64_t deadline = 0;
    if (__builtin_add_overflow(monotonic_ns(), timeout, &deadline)) deadline = UINT64_MAX;
    for (int attempt = 0;; ++attempt) {
        bool again = false;
        PKV_TRY(open_descriptors(again));
        if (!again) PKV_TRY(lock(deadline, again));
        if (!again) break;
        close_descriptors();
        if (attempt == 100)
            return fail(PKV_ERR_IO, "%s is replaced again and again while it is opened, or a symbolic link to nowhere",
                        path());
    }
    PKV_TRY(check_or_make(options));
    if ((options.flags & PKV_FILE_BUFFERED) == 0) go_direct();
    ++state_.opens;
    if (const int error = write_state(FileState::open); error != 0) return failed("writing the header of", error);
    return PKV_OK;
}

/// Opens the file twice: through the page cache, for what is small; and for images, where the lock is.
pkv_status DiskFile::open_descriptors(bool &again) {
    // O_NONBLOCK: a FIFO or a device is looked at, not waited for.
    meta_fd_ = ::open(path(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    made_ = false;
    if (meta_fd_ < 0 && errno == ENOENT) {
        meta_fd_ = ::open(path(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_CREAT | O_EXCL, 0600);
        made_ = meta_fd_ >= 0;
        if (!made_ && errno == EEXIST) { // somebody else made it just now, or it is a symbolic link to nowhere
            again = true;
            return PKV_OK;
        }
    }
    if (meta_fd_ < 0) return failed("opening", errno);
    struct stat meta {
    }, data{};
    if (fstat(meta_fd_, &meta) != 0) return failed("examining", errno);
    if (!S_ISREG(meta.st_mode)) return fail(PKV_ERR_INVALID, "%s is not a regular file", path());
    if (fcntl(meta_fd_, F_SETFL, O_RDWR) != 0) return failed("opening", errno);

    fd_ = ::open(path(), O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (fd_ < 0 && errno == ENOENT)
        again = true;
    else if (fd_ < 0)
        return failed("opening", errno);
    else if (fstat(fd_, &data) != 0)
        return failed("examining", errno);
    else
        again = data.st_dev != meta.st_dev || data.st_ino != meta.st_ino;
    return PKV_OK;
}

/// The lock is on the open file that images are written through: a kernel that still writes for a process which was killed
/// keeps it open, and so locked, until it is done.
pkv_status DiskFile::lock(uint64_t deadline_ns, bool &again) {
    while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) return failed("locking", errno);
        if (monotonic_ns() >= deadline_ns) return fail(PKV_ERR_BUSY, "%s is in use by another tier or process", path());
        usleep(10'000);
    }
    // Whoever had the file may have removed it.
    struct stat ours {
    }, there{};
    if (fstat(fd_, &ours) != 0) return failed("examining", errno);
    again = stat(path(), &there) != 0 || there.st_dev != ours.st_dev || there.st_ino != ours.st_ino;
    return PKV_OK;
}

pkv_status DiskFile::check_or_make(const pkv_file_tier_options &options) {
    struct stat info {};
    if (fstat(fd_, &info) != 0) return failed("examining", errno);
    const auto size = static_cast<uint64_t>(info.st_size);
    if (size == 0) return make(options, size);
    if ((options.flags & PKV_FILE_RESET) != 0) {
        // Its capacity is what it was, when the caller has no other wish.
        if (options.capacity_bytes == 0 &&
            (read_all(meta_fd_, &header_, sizeof header_, 0) != 0 || check_header(header_, path()) != PKV_OK))
            return fail(PKV_ERR_INVALID, "%s has no capacity to take over: capacity_bytes must be given", path());
        return make(options, size);
    }
    bool unfinished = false;
    PKV_TRY(check(options, size, unfinished));
    return unfinished ? make(options, size) : PKV_OK;
}

pkv_status DiskFile::check(const pkv_file_tier_options &options, uint64_t size, bool &unfinished) {
    if (size < file_header_bytes)
        return fail(PKV_ERR_MISMATCH, "%s has only %llu bytes: no file of a file tier", path(), number(size));
    if (const int error = read_all(meta_fd_, &header_, sizeof header_, 0); error != 0) return failed("reading", error);
    if (const int error = read_all(meta_fd_, &state_, sizeof state_, FileState::offset); error != 0)
        return failed("reading", error);
    PKV_TRY(check_header(header_, path()));
    if (header_.identity != identity_digest(options.identity))
        return fail(PKV_ERR_MISMATCH, "%s was made with another identity", path());
    const uint64_t capacity = options.capacity_bytes / PKV_IMAGE_ALIGNMENT * PKV_IMAGE_ALIGNMENT;
    if (options.capacity_bytes != 0 && capacity != header_.capacity_bytes)
        return fail(PKV_ERR_MISMATCH, "%s has a capacity of %llu bytes, not %llu", path(),
                    number(header_.capacity_bytes), number(capacity));
    if (options.max_images != 0 && options.max_images != header_.max_images)
        return fail(PKV_ERR_MISMATCH, "%s was made for %llu images, not %llu", path(), number(header_.max_images),
                    number(options.max_images));
    // One whose maker was killed before it had its size holds nothing yet.
    unfinished = is_sound(state_) && state_.state == FileState::creating;
    if (!unfinished && size != header_.file_bytes)
        return fail(PKV_ERR_MISMATCH, "%s has %llu bytes, not %llu: it was cut or added to", path(), number(size),
                    number(header_.file_bytes));
    if (!is_sound(state_)) state_ = {};
    was_closed_ = state_.state == FileState::closed;
    return check_size_limit();
}

pkv_status DiskFile::make(const pkv_file_tier_options &options, uint64_t old_size) {
    FileHeader header{};
    header.capacity_bytes = options.capacity_bytes / PKV_IMAGE_ALIGNMENT * PKV_IMAGE_ALIGNMENT;
    header.max_images = options.max_images;
    if (options.capacity_bytes == 0) header.capacity_bytes = header_.capacity_bytes;
    if (options.capacity_bytes == 0 && header.max_images == 0) header.max_images = header_.max_images;
    header.created_ns = wall_ns();
    header.identity = identity_digest(options.identity);
    header.life = header.created_ns;
    if (getrandom(&header.life, sizeof header.life, GRND_NONBLOCK) < 0)
        header.life ^= static_cast<uint64_t>(getpid()) << 40;
    if (header.max_images == 0)
        header.max_images = std::clamp<uint64_t>(header.capacity_bytes / default_image_bytes, 1, UINT32_MAX - 1);

    pkv_status status = PKV_OK;
    if (header.capacity_bytes == 0)
        status =
            fail(PKV_ERR_INVALID, "%s is new: capacity_bytes must be given, at least %d", path(), PKV_IMAGE_ALIGNMENT);
    if (status == PKV_OK) status = lay_out(header);
    header_ = header;
    if (status == PKV_OK) status = check_size_limit();
    const bool refused = status != PKV_OK;
    if (!refused) status = preallocate();
    if (status == PKV_OK) {
        is_new_ = true;
        return PKV_OK;
    }
    // As it was, as far as that can be.
    if (made_ && old_size == 0)
        unlink(path());
    else if (!refused && ftruncate(fd_, 0) != 0)
        log_message(PKV_LOG_WARNING, "cutting %s: %s", path(), std::strerror(errno));
    return status;
}

pkv_status DiskFile::preallocate() {
    if (ftruncate(fd_, 0) != 0) return failed("cutting", errno);
    // First the header, marked as unfinished: whoever finds that begins again.
    alignas(8) std::byte page[file_header_bytes] = {};
    state_ = {};
    state_.state = FileState::creating;
    seal(state_);
    std::memcpy(page, &header_, sizeof header_);
    std::memcpy(page + FileState::offset, &state_, sizeof state_);
    if (const int error = write_all(meta_fd_, page, sizeof page, 0); error != 0)
        return failed("writing the header of", error);

    const auto bytes = static_cast<off_t>(header_.file_bytes);
    int result = 0;
    do result = fallocate(fd_, 0, 0, bytes);
    while (result != 0 && errno == EINTR);
    if (result == 0) return PKV_OK;
    if (errno != EOPNOTSUPP && errno != ENOSYS) return failed("preallocating", errno);
    if (ftruncate(fd_, bytes) != 0) return failed("extending", errno);
    log_message(PKV_LOG_WARNING, "%s: the file system cannot preallocate; stores may find the disk full", path());
    return PKV_OK;
}

/// A write past the limit would not only fail but send SIGXFSZ, which ends the process.
pkv_status DiskFile::check_size_limit() const {
    rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= header_.file_bytes)
        return PKV_OK;
    return fail(PKV_ERR_LIMIT, "%s needs %llu bytes, but RLIMIT_FSIZE is %llu", path(), number(header_.file_bytes),
                number(limit.rlim_cur));
}

/// Past the page cache, if a read of a block that is aligned as all of them will be works so.
void DiskFile::go_direct() {
    int error = fcntl(fd_, F_SETFL, O_RDWR | O_DIRECT) == 0 ? 0 : errno;
    if (error == 0) {
        alignas(PKV_IMAGE_ALIGNMENT) std::byte block[PKV_IMAGE_ALIGNMENT];
        if (pread(fd_, block, sizeof block, static_cast<off_t>(header_.payload_offset)) < 0 && errno == EINVAL) {
            error = errno;
            if (fcntl(fd_, F_SETFL, O_RDWR) != 0) error = errno;
        }
    }
    is_direct_ = error == 0;
    if (!is_direct_)
        log_message(PKV_LOG_WARNING, "%s: no O_DIRECT here (%s); going through the page cache", path(),
                    std::strerror(error));
}

int DiskFile::read_records(const std::function<void(uint64_t, std::span<const FileRecord>)> &visit) {
    constexpr uint64_t at_once = 8192; // 1 MiB
    const auto records = std::make_unique<FileRecord[]>(at_once);
    for (uint64_t first = 0; first < header_.max_images; first += at_once) {
        const uint64_t left = header_.max_images - first;
        const uint64_t count = left < at_once ? left : at_once;
        const uint64_t offset = header_.records_offset + first * sizeof(FileRecord);
        if (const int error = read_all(meta_fd_, records.get(), count * sizeof(FileRecord), offset); error != 0)
            return error;
        visit(first, {records.get(), count});
    }
    return 0;
}

int DiskFile::write_records(uint64_t first, std::span<const FileRecord> records) {
    return write_all(meta_fd_, records.data(), records.size_bytes(),
                     header_.records_offset + first * sizeof(FileRecord));
}

int DiskFile::write_state(uint32_t state) {
    state_.state = state;
    seal(state_);
    return write_all(meta_fd_, &state_, sizeof state_, FileState::offset);
}

void DiskFile::remove_if_made() {
    if (made_ && is_new_) unlink(path());
}

void DiskFile::close() {
    // A child that was forked meanwhile holds the open file, too: the lock must not wait for its end.
    if (fd_ >= 0) flock(fd_, LOCK_UN);
    close_descriptors();
}

void DiskFile::close_descriptors() {
    if (fd_ >= 0) ::close(fd_);
    if (meta_fd_ >= 0) ::close(meta_fd_);
    fd_ = meta_fd_ = -1;
}

} // namespace pkv
