// SPDX-License-Identifier: Apache-2.0
#include "node/channel.h"

#include "core/clock.h"
#include "core/wait.h"
#include "node/messages.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

namespace pkv::node {
namespace {

constexpr char magic[8] = {'P', 'K', 'V', 'N', 'O', 'D', 'E', '\n'};
constexpr uint32_t channel_version = 1;
constexpr uint64_t stall_ns = 10'000'000'000; // inside a message: a peer that sends nothing for so long is gone
constexpr int dead_after_ms = 20'000;         // unacknowledged data: the kernel gives up

struct Greeting {
    char magic[8];
    uint8_t version[4];
    uint8_t key[crypto_scalarmult_BYTES];
};
static_assert(sizeof(Greeting) == 44);

void put32(uint8_t *out, uint32_t value) {
    for (int i = 0; i < 4; ++i) out[i] = static_cast<uint8_t>(value >> (8 * i));
}

uint32_t get32(const uint8_t *in) {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value |= uint32_t{in[i]} << (8 * i);
    return value;
}

/// What both sides make of the exchange.
struct Keys {
    uint8_t from_client[crypto_secretstream_xchacha20poly1305_KEYBYTES];
    uint8_t from_server[crypto_secretstream_xchacha20poly1305_KEYBYTES];
};
static_assert(sizeof(Keys) == crypto_generichash_BYTES_MAX);

void set_options(int socket) {
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_after_ms, sizeof dead_after_ms);
    const int idle = 5, interval = 5, count = 3;
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

/// The bytes of an address without its port; empty for one of another kind.
std::string_view host_of(const sockaddr_storage &address) {
    const char *const base = reinterpret_cast<const char *>(&address);
    if (address.ss_family == AF_INET) return {base + offsetof(sockaddr_in, sin_addr), sizeof(in_addr)};
    if (address.ss_family == AF_INET6) return {base + offsetof(sockaddr_in6, sin6_addr), sizeof(in6_addr)};
    return {};
}

} // namespace

bool split_address(const std::string &address, std::string &host, std::string &port) {
    const size_t colon = address.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) return false;
    host = address.substr(0, colon);
    port = address.substr(colon + 1);
    if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    const bool digits = std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
    return digits && port.size() <= 5 && std::stoul(port) <= 65535;
}

Channel::~Channel() {
    close(socket_);
    sodium_memzero(&out_, sizeof out_);
    sodium_memzero(&in_, sizeof in_);
}

void Channel::shut_down() { shutdown(socket_, SHUT_RDWR); }

bool Channel::leaves_host() const {
    sockaddr_storage ours{}, theirs{};
    socklen_t our_size = sizeof ours, their_size = sizeof theirs;
    if (getsockname(socket_, reinterpret_cast<sockaddr *>(&ours), &our_size) != 0) return false;
    if (getpeername(socket_, reinterpret_cast<sockaddr *>(&theirs), &their_size) != 0) return false;
    // From an address to itself, or over loopback, where each address may be another.
    return !is_own_name({reinterpret_cast<const char *>(&theirs), their_size}) && host_of(ours) != host_of(theirs);
}

bool is_own_name(std::string_view name) {
    sockaddr_storage address{};
    if (name.size() < sizeof address.ss_family || name.size() > sizeof address) return false;
    std::memcpy(&address, name.data(), name.size());
    const std::string_view host = host_of(address);
    if (address.ss_family == AF_INET && name.size() == sizeof(sockaddr_in))
        return host[0] == 127 || host == std::string_view("\0\0\0\0", 4);
    if (address.ss_family == AF_INET6 && name.size() == sizeof(sockaddr_in6))
        return std::memcmp(host.data(), &in6addr_loopback, host.size()) == 0 ||
               std::memcmp(host.data(), &in6addr_any, host.size()) == 0;
    return false;
}

pkv_status Channel::connect(const std::string &address, const ClusterKey &key, uint64_t deadline_ns,
                            std::unique_ptr<Channel> &channel) {
    std::string host, port;
    if (!split_address(address, host, port))
        return fail(PKV_ERR_INVALID, "\"%s\" is no address of the form host:port", address.c_str());
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo *list = nullptr;
    if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &list))
        return fail(PKV_ERR_IO, "%s: %s", address.c_str(), gai_strerror(error));
    const std::unique_ptr<addrinfo, void (*)(addrinfo *)> owner(list, freeaddrinfo);
    pkv_status status = fail(PKV_ERR_IO, "%s: no address", address.c_str());
    for (const addrinfo *at = list; at != nullptr; at = at->ai_next) {
        const int socket = ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
        if (socket < 0) {
            status = fail(PKV_ERR_IO, "a socket: %s", std::strerror(errno));
            continue;
        }
        std::unique_ptr<Channel> fresh(new Channel(socket, true));
        set_options(socket);
        int error = ::connect(socket, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
        if (error == EINPROGRESS) {
            status = fresh->wait_for(POLLOUT, deadline_ns);
            if (status != PKV_OK) continue;
            socklen_t size = sizeof error;
            getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
        }
        if (error != 0) {
            status = fail(PKV_ERR_IO, "%s: %s", address.c_str(), std::strerror(error));
            continue;
        }
        PKV_TRY(fresh->shake_hands(key, deadline_ns));
        channel = std::move(fresh);
        return PKV_OK;
    }
    return status;
}

pkv_status Channel::accept(int socket, const ClusterKey &key, uint64_t deadline_ns, std::unique_ptr<Channel> &channel) {
    std::unique_ptr<Channel> fresh(new Channel(socket, false));
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    set_options(socket);
    PKV_TRY(fresh->shake_hands(key, deadline_ns));
    channel = std::move(fresh);
    return PKV_OK;
}

pkv_status Channel::shake_hands(const ClusterKey &key, uint64_t deadline_ns) {
    Greeting ours{}, theirs{};
    uint8_t secret[crypto_scalarmult_SCALARBYTES], shared[crypto_scalarmult_BYTES];
    std::memcpy(ours.magic, magic, sizeof magic);
    put32(ours.version, channel_version);
    randombytes_buf(secret, sizeof secret);
    crypto_scalarmult_base(ours.key, secret);
    PKV_TRY(write_all(&ours, sizeof ours, deadline_ns));
    PKV_TRY(read_all(&theirs, sizeof theirs, deadline_ns, false));
    if (std::memcmp(theirs.magic, magic, sizeof magic) != 0) return fail(PKV_ERR_MISMATCH, "the other side is no node");
    if (get32(theirs.version) != channel_version)
        return fail(PKV_ERR_MISMATCH, "the other side speaks version %u of the protocol, this one %u",
                    get32(theirs.version), channel_version);
    if (crypto_scalarmult(shared, secret, theirs.key) != 0)
        return fail(PKV_ERR_MISMATCH, "the other side's key is none");
    crypto_generichash_state hash;
    Keys keys;
    crypto_generichash_init(&hash, key.data(), key.size(), sizeof keys);
    crypto_generichash_update(&hash, shared, sizeof shared);
    crypto_generichash_update(&hash, client_ ? ours.key : theirs.key, sizeof ours.key);
    crypto_generichash_update(&hash, client_ ? theirs.key : ours.key, sizeof ours.key);
    crypto_generichash_final(&hash, reinterpret_cast<unsigned char *>(&keys), sizeof keys);
    uint8_t header[crypto_secretstream_xchacha20poly1305_HEADERBYTES];
    crypto_secretstream_xchacha20poly1305_init_push(&out_, header, client_ ? keys.from_client : keys.from_server);
    pkv_status status = write_all(header, sizeof header, deadline_ns);
    if (status == PKV_OK) status = read_all(header, sizeof header, deadline_ns, false);
    if (status == PKV_OK && crypto_secretstream_xchacha20poly1305_init_pull(
                                &in_, header, client_ ? keys.from_server : keys.from_client) != 0)
        status = fail(PKV_ERR_MISMATCH, "the other side's stream has no header");
    sodium_memzero(secret, sizeof secret);
    sodium_memzero(shared, sizeof shared);
    sodium_memzero(&keys, sizeof keys);
    return status;
}

pkv_status Channel::send(std::span<const std::byte> message, uint64_t deadline_ns) {
    if (message.size() > largest_message) return fail(PKV_ERR_LIMIT, "a message of %zu bytes", message.size());
    const std::lock_guard lock(send_mutex_);
    const size_t bytes = message.size() + crypto_secretstream_xchacha20poly1305_ABYTES;
    sealed_.resize(4 + bytes);
    put32(sealed_.data(), static_cast<uint32_t>(bytes));
    crypto_secretstream_xchacha20poly1305_push(&out_, sealed_.data() + 4, nullptr,
                                               reinterpret_cast<const unsigned char *>(message.data()), message.size(),
                                               nullptr, 0, 0);
    const pkv_status status = write_all(sealed_.data(), sealed_.size(), deadline_ns);
    if (status != PKV_OK) shut_down(); // half a frame may be on its way
    return status;
}

pkv_status Channel::receive(std::vector<std::byte> &message, uint64_t deadline_ns) {
    uint8_t size[4];
    PKV_TRY(read_all(size, sizeof size, deadline_ns, true));
    const size_t bytes = get32(size);
    if (bytes < crypto_secretstream_xchacha20poly1305_ABYTES ||
        bytes > largest_message + crypto_secretstream_xchacha20poly1305_ABYTES)
        return fail(PKV_ERR_LIMIT, "a frame of %zu bytes", bytes);
    frame_.resize(bytes);
    const pkv_status status = read_all(frame_.data(), bytes, no_deadline, false);
    if (status == PKV_ERR_TIMEOUT) return fail(PKV_ERR_IO, "the other side stopped within a message");
    PKV_TRY(status);
    message.resize(bytes - crypto_secretstream_xchacha20poly1305_ABYTES);
    unsigned char tag = 0;
    if (crypto_secretstream_xchacha20poly1305_pull(&in_, reinterpret_cast<unsigned char *>(message.data()), nullptr,
                                                   &tag, frame_.data(), bytes, nullptr, 0) != 0)
        return fail(PKV_ERR_MISMATCH, "a frame that this cluster's key did not make");
    return PKV_OK;
}

pkv_status Channel::wait_for(short events, uint64_t deadline_ns) const {
    for (;;) {
        const uint64_t now = monotonic_ns();
        const uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
        pollfd item{socket_, events, 0};
        const int ready = poll(&item, 1, static_cast<int>(std::min<uint64_t>((left + 999'999) / 1'000'000, 60'000)));
        if (ready > 0) return PKV_OK;
        if (ready < 0 && errno != EINTR) return fail(PKV_ERR_IO, "poll: %s", std::strerror(errno));
        if (ready == 0 && monotonic_ns() >= deadline_ns) return fail(PKV_ERR_TIMEOUT, "the other side does not answer");
    }
}

pkv_status Channel::write_all(const void *data, size_t bytes, uint64_t deadline_ns) {
    const auto *from = static_cast<const std::byte *>(data);
    while (bytes != 0) {
        const ssize_t done = ::send(socket_, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done > 0) {
            from += done;
            bytes -= static_cast<size_t>(done);
        } else if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            PKV_TRY(wait_for(POLLOUT, deadline_ns));
        } else if (done < 0 && errno != EINTR) {
            return fail(PKV_ERR_IO, "send: %s", std::strerror(errno));
        }
    }
    return PKV_OK;
}

pkv_status Channel::read_all(void *data, size_t bytes, uint64_t deadline_ns, bool may_begin_late) {
    auto *to = static_cast<std::byte *>(data);
    bool begun = !may_begin_late;
    uint64_t moved_ns = monotonic_ns();
    while (bytes != 0) {
        const ssize_t done = recv(socket_, to, bytes, MSG_DONTWAIT);
        if (done > 0) {
            to += done;
            bytes -= static_cast<size_t>(done);
            begun = true;
            moved_ns = monotonic_ns();
            continue;
        }
        if (done == 0) return fail(PKV_ERR_CLOSED, "the other side has closed the connection");
        if (errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) return fail(PKV_ERR_IO, "receive: %s", std::strerror(errno));
        // Before a message the caller's time counts; within one, whether anything moves.
        const uint64_t until = may_begin_late && begun ? moved_ns + stall_ns : std::min(deadline_ns, no_deadline);
        const pkv_status status = wait_for(POLLIN, begun && until == no_deadline ? moved_ns + stall_ns : until);
        if (status == PKV_ERR_TIMEOUT && may_begin_late && begun)
            return fail(PKV_ERR_IO, "the other side stopped within a message");
        PKV_TRY(status);
    }
    return PKV_OK;
}

} // namespace pkv::node
