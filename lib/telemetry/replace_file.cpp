// SPDX-License-Identifier: Apache-2.0
#include "telemetry/replace_file.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace pkv {
namespace {

constexpr int names_to_try = 100;

/// Another name in the same folder, which no other thread or process uses.
std::string name_beside(const std::string &path) {
    static std::atomic<uint32_t> number{0};
    return path + ".tmp-" + std::to_string(getpid()) + "-" +
           std::to_string(number.fetch_add(1, std::memory_order_relaxed));
}

} // namespace

ReplaceFile::~ReplaceFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!beside_.empty()) ::unlink(beside_.c_str());
}

pkv_status ReplaceFile::system_error() const { return fail(PKV_ERR_IO, "%s: %s", path_.c_str(), std::strerror(errno)); }

pkv_status ReplaceFile::open() {
    struct stat there {};
    if (::stat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
        // A rename would put a file in the place of a device or a pipe.
        errno = S_ISDIR(there.st_mode) ? EISDIR : EINVAL;
        return fail(PKV_ERR_IO, "%s is no regular file: %s", path_.c_str(), std::strerror(errno));
    }
    for (int i = 0; i < names_to_try; ++i) {
        std::string name = name_beside(path_);
        fd_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd_ >= 0) {
            beside_ = std::move(name);
            return PKV_OK;
        }
        if (errno != EEXIST) break; // one that a process of this number left behind
    }
    return system_error();
}

pkv_status ReplaceFile::write(std::string &text) {
    for (size_t done = 0; done < text.size();) {
        const ssize_t count = ::write(fd_, text.data() + done, text.size() - done);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return system_error();
        done += static_cast<size_t>(count);
    }
    text.clear();
    return PKV_OK;
}

pkv_status ReplaceFile::commit() {
    if (::close(std::exchange(fd_, -1)) != 0) return system_error();
    if (std::rename(beside_.c_str(), path_.c_str()) != 0) return system_error();
    beside_.clear();
    return PKV_OK;
}

} // namespace pkv
