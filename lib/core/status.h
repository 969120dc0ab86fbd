// SPDX-License-Identifier: Apache-2.0
// Errors inside the library travel as values: a function that fails returns `fail(code, "what, with the values")`.
#pragma once

#include <pagedkv/types.h>

namespace pkv {

/// Sets the thread's last-error message and returns `status`.
[[gnu::format(printf, 2, 3)]] pkv_status fail(pkv_status status, const char *format, ...);

/// Sends a message to the application's log function, if it wants that level. Call it with no lock held.
[[gnu::format(printf, 2, 3)]] void log_message(int32_t level, const char *format, ...);

/// What stands behind pkv_last_error, pkv_status_string and pkv_set_log.
size_t copy_last_error(char *buffer, size_t capacity);
const char *status_name(pkv_status status);
void set_log(pkv_log_function function, void *user, int32_t max_level);

} // namespace pkv

/// Hands a failure on to the caller.
#define PKV_TRY(expression)                                                                                            \
    do {                                                                                                               \
        if (const pkv_status pkv_try_status = (expression); pkv_try_status != PKV_OK) return pkv_try_status;           \
    } while (0)
