// SPDX-License-Identifier: Apache-2.0
#include "redis/line.h"

#include "core/clock.h"
#include "redis/replies.h"
#include "redis/tls.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

using pkv::monotonic_ns;
using pkv::Why;
using pkv::redis::Reply;

namespace {

void set_options(int socket) {
    const int on = 1, dead_after_ms = 20'000, idle = 5, interval = 5, count = 3;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_after_ms, sizeof dead_after_ms);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

} // namespace

pkv_redis_line::~pkv_redis_line() {
    if (context_ != nullptr) redisFree(context_);
}

/// Until the socket is ready. Whoever is to be woken comes first.
pkv_status pkv_redis_line::wait_for(int socket, short events, uint64_t deadline_ns, const Why &why) const {
    for (;;) {
        const uint64_t now = monotonic_ns();
        const uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
        pollfd items[2] = {{wake_fd_, POLLIN, 0}, {socket, events, 0}}; // a negative descriptor is passed over
        const int ready = poll(items, 2, static_cast<int>(std::min<uint64_t>((left + 999'999) / 1'000'000, 60'000)));
        if (ready < 0 && errno != EINTR) return why.fail(PKV_ERR_IO, "poll: %s", std::strerror(errno));
        if (ready > 0 && items[0].revents != 0) return why.fail(PKV_ERR_CANCELLED, "not wanted any more");
        if (ready > 0) return PKV_OK;
        if (monotonic_ns() >= deadline_ns) return why.fail(PKV_ERR_TIMEOUT, "no answer in time");
    }
}

// ---- connecting

pkv_status pkv_redis_line::connect_to(const addrinfo &address, uint64_t deadline_ns, int &socket,
                                      const Why &why) const {
    socket = ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol);
    if (socket < 0) return why.fail(PKV_ERR_IO, "a socket: %s", std::strerror(errno));
    set_options(socket);
    int error = ::connect(socket, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        if (const pkv_status status = wait_for(socket, POLLOUT, deadline_ns, why); status != PKV_OK) return status;
        socklen_t size = sizeof error;
        getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    return error == 0 ? PKV_OK : why.fail(PKV_ERR_IO, "%s", std::strerror(error));
}

pkv_status pkv_redis_line::open(const pkv_redis_server &server, uint64_t deadline_ns, const Why &why) {
    wake_fd_ = server.wake_fd;
    tls_ = server.tls != 0;
    if (tls_ && !pkv::redis::has_tls()) {
        redisContext none{};
        return pkv::redis::begin_tls(none, server.host, session_, why);
    }
    char port[8];
    (void)std::snprintf(port, sizeof port, "%u", server.port);
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo *list = nullptr;
    if (const int error = getaddrinfo(server.host, port, &hints, &list))
        return why.fail(PKV_ERR_IO, "%s", gai_strerror(error));
    const std::unique_ptr<addrinfo, void (*)(addrinfo *)> owner(list, freeaddrinfo);
    pkv_status status = why.fail(PKV_ERR_IO, "no address");
    int socket = -1;
    for (const addrinfo *at = list; at != nullptr; at = at->ai_next) {
        status = connect_to(*at, deadline_ns, socket, why);
        if (status == PKV_OK) break;
        if (socket >= 0) ::close(socket);
        if (status == PKV_ERR_CANCELLED) break;
    }
    if (status != PKV_OK) return status;
    context_ = redisConnectFd(socket);
    if (context_ == nullptr || context_->err != 0) {
        if (context_ == nullptr) ::close(socket);
        return why.fail(PKV_ERR_NO_MEMORY, "no memory for a connection");
    }
    context_->flags &= ~REDIS_BLOCK; // as the socket
    context_->reader->fn = Reply::functions();
    return tls_ ? pkv::redis::begin_tls(*context_, server.host, session_, why) : PKV_OK;
}

// ---- commands

pkv_status pkv_redis_line::append(uint32_t count, const char *const *words, const size_t *sizes) {
    if (count > INT_MAX || broken_) return PKV_ERR_INVALID;
    if (redisAppendCommandArgv(context_, static_cast<int>(count), const_cast<const char **>(words), sizes) == REDIS_OK)
        return PKV_OK;
    broken_ = true;
    return PKV_ERR_NO_MEMORY;
}

/// What hiredis says has gone wrong.
pkv_status pkv_redis_line::failure(const Why &why) const {
    const char *const secured = tls_ ? pkv::redis::tls_failure(session_) : nullptr;
    if (secured != nullptr) return why.fail(PKV_ERR_IO, "TLS: %s", secured);
    switch (context_->err) {
    case REDIS_ERR_EOF: return why.fail(PKV_ERR_CLOSED, "the server has closed the connection");
    case REDIS_ERR_PROTOCOL: return why.fail(PKV_ERR_MISMATCH, "the server does not speak the protocol of Redis");
    case REDIS_ERR_OOM:
        return why.fail(PKV_ERR_MISMATCH, "the server's reply is none that was asked for"); // see Reply::make()
    default: return why.fail(PKV_ERR_IO, "%s", context_->errstr[0] != 0 ? context_->errstr : "input or output error");
    }
}

/// Takes in what has arrived.
pkv_status pkv_redis_line::read_some(uint64_t &left, const Why &why) {
    for (;;) {
        const size_t before = context_->reader->len;
        if (redisBufferRead(context_) != REDIS_OK) return failure(why);
        const size_t got = context_->reader->len - before;
        if (got > left) return why.fail(PKV_ERR_LIMIT, "the server's replies are too long");
        left -= got;
        if (!tls_ || got == 0) return PKV_OK; // TLS may have more at hand than the socket shows
    }
}

pkv_status pkv_redis_line::exchange(uint64_t count, uint64_t most_bytes, uint64_t deadline_ns,
                                    void (*reply)(void *, uint64_t, const pkv_redis_reply *), void *user,
                                    const Why &why) {
    if (broken_) return why.fail(PKV_ERR_STATE, "the connection has failed before");
    broken_ = true; // until all is well
    uint64_t left = most_bytes, done = 0;
    int sent = 0;
    for (;;) {
        if (sent == 0 && redisBufferWrite(context_, &sent) != REDIS_OK) return failure(why);
        while (done < count) {
            void *object = nullptr;
            if (redisReaderGetReply(context_->reader, &object) != REDIS_OK) {
                context_->err = context_->reader->err;
                return failure(why);
            }
            if (object == nullptr) break;
            const std::unique_ptr<Reply> owner(static_cast<Reply *>(object));
            reply(user, done++, &owner->view());
        }
        if (done == count && sent != 0) break;
        const bool writes = sent == 0 && !pkv::redis::tls_wants_read(session_);
        const auto events = static_cast<short>(POLLIN | (writes ? POLLOUT : 0));
        if (const pkv_status status = wait_for(context_->fd, events, deadline_ns, why); status != PKV_OK) return status;
        if (const pkv_status status = read_some(left, why); status != PKV_OK) return status;
        if (monotonic_ns() >= deadline_ns) return why.fail(PKV_ERR_TIMEOUT, "no answer in time");
    }
    broken_ = false;
    return PKV_OK;
}
