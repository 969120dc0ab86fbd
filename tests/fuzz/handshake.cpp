// SPDX-License-Identifier: Apache-2.0
// The first words of whoever connects, and what follows them: a stranger is refused, whatever he says and wherever he stops.
#include "fuzz/fuzz.h"

#include "core/clock.h"
#include "node/channel.h"

#include <algorithm>
#include <cstring>
#include <sodium.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

using namespace pkv::node;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int ready = sodium_init();
    int sockets[2];
    if (ready < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return 0;
    size = std::min<size_t>(size, 8192); // goes into the socket without anybody who reads
    must(send(sockets[1], data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size));
    shutdown(sockets[1], SHUT_WR); // nothing is waited for
    const ClusterKey key{1, 2, 3};
    std::unique_ptr<Channel> channel;
    const uint64_t deadline = pkv::monotonic_ns() + 5'000'000'000;
    const pkv_status status = Channel::accept(sockets[0], key, deadline, channel);
    must((status == PKV_OK) == (channel != nullptr));
    if (channel != nullptr) { // he knows how to greet, and does not know the key
        std::vector<std::byte> message;
        must(channel->receive(message, deadline) != PKV_OK);
    }
    channel = nullptr;
    close(sockets[1]);
    return 0;
}

void add_seeds(const AddSeed &add) {
    std::vector<uint8_t> words(44 + 24 + 4 + 40, 0);
    std::memcpy(words.data(), "PKVNODE\n", 8);
    words[8] = 1;
    words[12] = 9;  // a key: any number is one
    words[68] = 40; // a frame
    add(words.data(), words.size());
    add(words.data(), 44);
    words[68 + 3] = 0x7f; // a frame of 2 GB
    add(words.data(), words.size());
}
