// SPDX-License-Identifier: Apache-2.0
// hiredis as a directory uses it: the plug-in's table behind a connection that closes by itself.
#pragma once

#include "core/status.h"
#include "directory/redis_table.h"
#include "directory/server.h"

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace pkv::directory {

/// The plug-in, loaded at the first call. PKV_ERR_UNSUPPORTED with the reason without it.
pkv_status redis_plugin(const pkv_redis_table *&table);

/// A connection, logged in. One thread at a time.
class Line {
  public:
    /// What went wrong goes to pkv_last_error's place, with the server's label.
    static pkv_status open(const Server &server, int wake_fd, uint64_t deadline_ns, std::unique_ptr<Line> &line);
    ~Line();
    Line(const Line &) = delete;
    Line &operator=(const Line &) = delete;

    /// Queues a command. Throws std::bad_alloc.
    void add(std::initializer_list<std::string_view> words);
    /// Sends what was queued; `reply` is called for each command, in order. After a failure the line is of no more use.
    pkv_status run(uint64_t most_bytes, uint64_t deadline_ns,
                   const std::function<void(uint64_t, const pkv_redis_reply &)> &reply);

  private:
    Line(const pkv_redis_table &table, pkv_redis_line *line, std::string label)
        : table_(table), line_(line), label_(std::move(label)) {}
    pkv_status log_in(const Server &server, uint64_t deadline_ns);

    const pkv_redis_table &table_;
    pkv_redis_line *line_;
    std::string label_;
    uint64_t queued_ = 0;
};

/// The first word of an error, such as WRONGTYPE; "ERR" for what has none. The rest may repeat what was sent.
std::string error_word(const pkv_redis_reply &reply);

} // namespace pkv::directory
