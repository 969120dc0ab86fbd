// SPDX-License-Identifier: Apache-2.0
// The reason of a failure in a plug-in, in the buffer that the caller of its table gave for it.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <pagedkv/types.h>

namespace pkv {

class Why {
  public:
    Why(char *text, size_t bytes) : text_(text), bytes_(text == nullptr ? 0 : bytes) {
        if (bytes_ != 0) text_[0] = '\0';
    }

    /// Writes the reason, cut to fit, and returns `status`.
    [[gnu::format(printf, 3, 4)]] pkv_status fail(pkv_status status, const char *format, ...) const {
        if (bytes_ == 0) return status;
        va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(text_, bytes_, format, arguments);
        va_end(arguments);
        return status;
    }

  private:
    char *text_;
    size_t bytes_;
};

} // namespace pkv
