// SPDX-License-Identifier: Apache-2.0
// Tickets: bytes that came from anywhere. The first byte says whether the rest is a whole ticket, or what would be sealed in one:
// without the key nobody gets as far as that by chance.
#include "fuzz/fuzz.h"

#include "handover/ticket.h"

#include <pagedkv/node.h>
#include <sodium.h>

using namespace pkv::handover;

namespace {

const pkv::node::ClusterKey cluster{1, 2, 3};

Ticket a_ticket() {
    Ticket ticket;
    ticket.offer.fill(7);
    ticket.incarnation.fill(8);
    ticket.geometry.fill(9);
    ticket.num_tokens = 51;
    ticket.address = "127.0.0.1:4710";
    return ticket;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int ready = sodium_init();
    if (ready < 0 || size == 0) return 0;
    const std::span bytes(reinterpret_cast<const std::byte *>(data) + 1, size - 1);
    Ticket ticket;
    if (data[0] % 2 == 0) {
        const pkv_status status = unseal(bytes, cluster, ticket);
        must(status == PKV_OK || status == PKV_ERR_INVALID || status == PKV_ERR_MISMATCH);
    } else if (decode(bytes, ticket)) {
        must(encode(ticket) == std::vector<std::byte>(bytes.begin(), bytes.end()));
        const std::vector<std::byte> sealed = seal(ticket, cluster);
        must(sealed.size() <= PKV_MAX_TICKET_BYTES);
        Ticket again;
        must(unseal(sealed, cluster, again) == PKV_OK && encode(again) == encode(ticket));
        const pkv::node::ClusterKey other{1, 2, 4};
        must(unseal(sealed, other, again) == PKV_ERR_MISMATCH);
    }
    return 0;
}

void add_seeds(const AddSeed &add) {
    const auto put = [&](uint8_t kind, std::vector<std::byte> bytes) {
        bytes.insert(bytes.begin(), std::byte{kind});
        add(bytes.data(), bytes.size());
    };
    put(1, encode(a_ticket()));
    Ticket other = a_ticket();
    other.address = "[fe80::1]:65535";
    put(1, encode(other));
    // As seal() makes them, but the same at each run.
    std::vector<std::byte> sealed(16 + 24 + 16 + encode(a_ticket()).size());
    const char front[] = "PKVTICK\n\1\0\0";
    for (size_t i = 0; i < sizeof front; ++i) sealed[i] = static_cast<std::byte>(front[i]);
    sealed[12] = static_cast<std::byte>(sealed.size());
    put(0, sealed);
}
