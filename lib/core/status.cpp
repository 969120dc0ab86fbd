// SPDX-License-Identifier: Apache-2.0
#include "core/status.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace pkv {
namespace {

constexpr size_t message_bytes = 512;

// A plain array: no constructor, no destructor, no allocation on the way to an error.
thread_local char last_error[message_bytes];

struct LogTarget {
    std::atomic<pkv_log_function> function{nullptr};
    std::atomic<void *> user{nullptr};
    std::atomic<int32_t> max_level{0};
};
LogTarget log_target;

const char *const names[] = {
    "PKV_OK",
    "PKV_ERR_INVALID",
    "PKV_ERR_HANDLE",
    "PKV_ERR_CLOSED",
    "PKV_ERR_FORKED",
    "PKV_ERR_NO_MEMORY",
    "PKV_ERR_NO_PAGES",
    "PKV_ERR_NO_SPACE",
    "PKV_ERR_NOT_FOUND",
    "PKV_ERR_NOT_RESIDENT",
    "PKV_ERR_LOST",
    "PKV_ERR_STATE",
    "PKV_ERR_BUSY",
    "PKV_ERR_AGAIN",
    "PKV_ERR_TIMEOUT",
    "PKV_ERR_CANCELLED",
    "PKV_ERR_UNSUPPORTED",
    "PKV_ERR_MISMATCH",
    "PKV_ERR_IO",
    "PKV_ERR_LIMIT",
    "PKV_ERR_CAPTURE",
    "PKV_ERR_INTERNAL",
};

} // namespace

pkv_status fail(pkv_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return status;
}

void log_message(int32_t level, const char *format, ...) {
    const pkv_log_function function = log_target.function.load(std::memory_order_acquire);
    if (function == nullptr || level > log_target.max_level.load(std::memory_order_relaxed)) return;
    char message[message_bytes];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    function(log_target.user.load(std::memory_order_relaxed), level, message);
}

size_t copy_last_error(char *buffer, size_t capacity) {
    const size_t length = std::strlen(last_error);
    if (buffer != nullptr && capacity > 0) {
        const size_t kept = length < capacity ? length : capacity - 1;
        std::memcpy(buffer, last_error, kept);
        buffer[kept] = '\0';
    }
    return length + 1;
}

const char *status_name(pkv_status status) {
    const int64_t index = -static_cast<int64_t>(status);
    if (index < 0 || index >= static_cast<int64_t>(std::size(names))) return "PKV_ERR_UNKNOWN";
    return names[index];
}

void set_log(pkv_log_function function, void *user, int32_t max_level) {
    // Off first, so that no message meets a new function with an old user pointer.
    log_target.function.store(nullptr, std::memory_order_release);
    log_target.user.store(user, std::memory_order_relaxed);
    log_target.max_level.store(max_level, std::memory_order_relaxed);
    log_target.function.store(function, std::memory_order_release);
}

} // namespace pkv
