// SPDX-License-Identifier: Apache-2.0
// The control connection of two nodes: TCP, encrypted and authenticated under the cluster's key.
//
//   each side    magic "PKVNODE\n", version, an ephemeral X25519 key            in the clear
//   both         two keys = BLAKE2b-512 under the cluster key of (X25519 of both, client's key, server's key)
//   each side    the header of its XChaCha20-Poly1305 secretstream (libsodium), then frames: size (uint32), ciphertext
//
// A node without the cluster key can neither read a frame nor make one that is accepted; frames that are lost, repeated or
// in another order end the connection; other ephemeral keys make every connection another one.
#pragma once

#include "core/status.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <sodium.h>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pkv::node {

using ClusterKey = std::array<uint8_t, 32>;

/// "host:port" or "[v6 address]:port"; false for what is none.
bool split_address(const std::string &address, std::string &host, std::string &port);
/// Whether a socket address, as bytes, means each host itself: loopback, or none in particular. False for what is none.
bool is_own_name(std::string_view name);

class Channel {
  public:
    ~Channel();
    Channel(const Channel &) = delete;
    Channel &operator=(const Channel &) = delete;

    /// Connects, and shakes hands. PKV_ERR_TIMEOUT; PKV_ERR_IO with the system's reason; PKV_ERR_MISMATCH: no node, or one of
    /// another protocol.
    static pkv_status connect(const std::string &address, const ClusterKey &key, uint64_t deadline_ns,
                              std::unique_ptr<Channel> &channel);
    /// Shakes hands on a connection that was accepted; takes the socket in any case.
    static pkv_status accept(int socket, const ClusterKey &key, uint64_t deadline_ns,
                             std::unique_ptr<Channel> &channel);

    /// Sends one message; after a failure the channel is broken. Thread-safe.
    pkv_status send(std::span<const std::byte> message, uint64_t deadline_ns);
    /// Receives one message. PKV_ERR_TIMEOUT: none has begun to arrive, and a later call may succeed; PKV_ERR_MISMATCH: a frame
    /// that the cluster's key did not make; PKV_ERR_CLOSED: the other side has ended the connection; PKV_ERR_LIMIT; PKV_ERR_IO.
    /// By one thread at a time.
    pkv_status receive(std::vector<std::byte> &message, uint64_t deadline_ns);
    /// Ends the connection; a receive under way returns. Any thread.
    void shut_down();
    /// Whether it leads to another host, as far as addresses tell.
    bool leaves_host() const;

  private:
    Channel(int socket, bool client) : socket_(socket), client_(client) {}
    pkv_status shake_hands(const ClusterKey &key, uint64_t deadline_ns);
    pkv_status write_all(const void *data, size_t bytes, uint64_t deadline_ns);
    /// `may_begin_late`: that nothing came at all is PKV_ERR_TIMEOUT, and no fault.
    pkv_status read_all(void *data, size_t bytes, uint64_t deadline_ns, bool may_begin_late);
    pkv_status wait_for(short events, uint64_t deadline_ns) const;

    int socket_;
    bool client_;
    std::mutex send_mutex_;
    crypto_secretstream_xchacha20poly1305_state out_{};
    crypto_secretstream_xchacha20poly1305_state in_{};
    std::vector<unsigned char> sealed_; // scratch of send, under the mutex
    std::vector<unsigned char> frame_;  // scratch of receive
};

} // namespace pkv::node
