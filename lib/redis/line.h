// SPDX-License-Identifier: Apache-2.0
// One connection: a socket of our own, that never blocks, under hiredis' buffers and parser.
#pragma once

#include "core/why.h"
#include "directory/redis_table.h"

#include <hiredis/hiredis.h>

#include <cstdint>

/// The table's type.
struct pkv_redis_line {
  public:
    pkv_redis_line() = default;
    ~pkv_redis_line();
    pkv_redis_line(const pkv_redis_line &) = delete;
    pkv_redis_line &operator=(const pkv_redis_line &) = delete;

    pkv_status open(const pkv_redis_server &server, uint64_t deadline_ns, const pkv::Why &why);
    pkv_status append(uint32_t count, const char *const *words, const size_t *sizes);
    pkv_status exchange(uint64_t count, uint64_t most_bytes, uint64_t deadline_ns,
                        void (*reply)(void *user, uint64_t number, const pkv_redis_reply *reply), void *user,
                        const pkv::Why &why);

  private:
    pkv_status connect_to(const struct addrinfo &address, uint64_t deadline_ns, int &socket, const pkv::Why &why) const;
    pkv_status wait_for(int socket, short events, uint64_t deadline_ns, const pkv::Why &why) const;
    pkv_status failure(const pkv::Why &why) const;
    pkv_status read_some(uint64_t &left, const pkv::Why &why);

    redisContext *context_ = nullptr;
    int wake_fd_ = -1;
    bool tls_ = false;
    void *session_ = nullptr; // of TLS, the context's
    bool broken_ = false;
};
