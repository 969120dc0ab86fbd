// SPDX-License-Identifier: Apache-2.0
// The open file of a file tier: making or checking it, the lock, its header, state and records. Images are read and written
// by an engine (file_io.h), through fd().
#pragma once

#include "tier/file_format.h"

#include <pagedkv/tier.h>

#include <functional>
#include <span>
#include <string>

namespace pkv {

class DiskFile {
  public:
    DiskFile() = default;
    ~DiskFile() { close(); }
    DiskFile(const DiskFile &) = delete;
    DiskFile &operator=(const DiskFile &) = delete;

    /// As pkv_tier_open_file says. Once it has failed the file is closed.
    pkv_status open(const pkv_file_tier_options &options);
    /// Calls `visit` with the number of the first and some records, for all records in order. 0 or an errno; EIO when the
    /// file is too short.
    int read_records(const std::function<void(uint64_t, std::span<const FileRecord>)> &visit);
    /// 0 or an errno. Through the page cache: what it has written outlives the process, however that ends.
    int write_records(uint64_t first, std::span<const FileRecord> records);
    int write_state(uint32_t state);
    /// A file that open() has made, and that nobody wants now.
    void remove_if_made();
    /// Lets go of the lock and the file.
    void close();

    int fd() const { return fd_; }
    const FileHeader &header() const { return header_; }
    const char *path() const { return path_.c_str(); }
    bool is_new() const { return is_new_; }         ///< made, or made anew, by open()
    bool was_closed() const { return was_closed_; } ///< by its last user
    bool is_direct() const { return is_direct_; }   ///< past the page cache

  private:
    pkv_status try_open(const pkv_file_tier_options &options);
    pkv_status open_descriptors(bool &again);
    pkv_status lock(uint64_t deadline_ns, bool &again);
    pkv_status check_or_make(const pkv_file_tier_options &options);
    pkv_status check(const pkv_file_tier_options &options, uint64_t size, bool &unfinished);
    pkv_status make(const pkv_file_tier_options &options, uint64_t old_size);
    pkv_status preallocate();
    pkv_status check_size_limit() const;
    void go_direct();
    void close_descriptors();
    pkv_status failed(const char *what, int error) const;

    std::string path_;
    int fd_ = -1;      // locked; images
    int meta_fd_ = -1; // header and records, through the page cache
    bool made_ = false, is_new_ = false, was_closed_ = false, is_direct_ = false;
    FileHeader header_{};
    FileState state_{};
};

} // namespace pkv
