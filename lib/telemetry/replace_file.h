// SPDX-License-Identifier: Apache-2.0
// A file that is written beside its place and put there as a whole.
#pragma once

#include "core/status.h"

#include <cstddef>
#include <string>

namespace pkv {

class ReplaceFile {
  public:
    static constexpr size_t piece = size_t{1} << 20; ///< a good size for write()

    explicit ReplaceFile(const char *path) : path_(path) {}
    ~ReplaceFile(); ///< what was not committed leaves nothing behind
    ReplaceFile(const ReplaceFile &) = delete;
    ReplaceFile &operator=(const ReplaceFile &) = delete;

    /// All three: PKV_OK, or PKV_ERR_IO with the system's reason.
    pkv_status open();
    pkv_status write(std::string &text); ///< and empties it
    pkv_status commit();

  private:
    pkv_status system_error() const;

    std::string path_;
    std::string beside_; // while it is there
    int fd_ = -1;
};

} // namespace pkv
