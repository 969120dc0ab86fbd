// SPDX-License-Identifier: Apache-2.0
#include "handover/ticket.h"

#include "node/wire.h"

#include <pagedkv/node.h>

#include <cstring>
#include <sodium.h>

namespace pkv::handover {
namespace {

using node::ClusterKey;
using node::WireReader;
using node::WireWriter;

constexpr char magic[8] = {'P', 'K', 'V', 'T', 'I', 'C', 'K', '\n'};
constexpr uint32_t ticket_version = 1;
constexpr size_t clear_bytes = sizeof magic + 2 * sizeof(uint32_t);
constexpr size_t nonce_bytes = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES;
constexpr size_t tag_bytes = crypto_aead_xchacha20poly1305_ietf_ABYTES;
constexpr size_t most_sealed = 16 + 16 + 32 + 8 + 4 + node::longest_name;
static_assert(clear_bytes + nonce_bytes + most_sealed + tag_bytes <= PKV_MAX_TICKET_BYTES);

/// A key for tickets alone.
struct TicketKey {
    uint8_t bytes[crypto_aead_xchacha20poly1305_ietf_KEYBYTES];

    explicit TicketKey(const ClusterKey &cluster) {
        static constexpr char purpose[] = "pagedkv ticket";
        crypto_generichash(bytes, sizeof bytes, reinterpret_cast<const unsigned char *>(purpose), sizeof purpose,
                           cluster.data(), cluster.size());
    }
    ~TicketKey() { sodium_memzero(bytes, sizeof bytes); }
    TicketKey(const TicketKey &) = delete;
    TicketKey &operator=(const TicketKey &) = delete;
};

unsigned char *raw(std::byte *bytes) { return reinterpret_cast<unsigned char *>(bytes); }
const unsigned char *raw(const std::byte *bytes) { return reinterpret_cast<const unsigned char *>(bytes); }

} // namespace

std::vector<std::byte> encode(const Ticket &ticket) {
    WireWriter out;
    out.bytes(ticket.offer.data(), ticket.offer.size());
    out.bytes(ticket.incarnation.data(), ticket.incarnation.size());
    out.bytes(ticket.geometry.data(), ticket.geometry.size());
    out.number(ticket.num_tokens);
    out.text(ticket.address);
    return out.take();
}

bool decode(std::span<const std::byte> bytes, Ticket &ticket) {
    WireReader in(bytes);
    in.bytes(ticket.offer.data(), ticket.offer.size());
    in.bytes(ticket.incarnation.data(), ticket.incarnation.size());
    in.bytes(ticket.geometry.data(), ticket.geometry.size());
    ticket.num_tokens = in.number<uint64_t>();
    ticket.address = in.text(node::longest_name);
    std::string host, port;
    return in.complete() && node::split_address(ticket.address, host, port);
}

std::vector<std::byte> seal(const Ticket &ticket, const ClusterKey &key) {
    const std::vector<std::byte> body = encode(ticket);
    WireWriter out;
    out.bytes(magic, sizeof magic);
    out.number(ticket_version);
    out.number(static_cast<uint32_t>(clear_bytes + nonce_bytes + body.size() + tag_bytes));
    std::vector<std::byte> bytes = out.take();
    bytes.resize(clear_bytes + nonce_bytes + body.size() + tag_bytes);
    std::byte *const nonce = bytes.data() + clear_bytes;
    randombytes_buf(nonce, nonce_bytes);
    const TicketKey sealing(key);
    crypto_aead_xchacha20poly1305_ietf_encrypt(raw(nonce + nonce_bytes), nullptr, raw(body.data()), body.size(),
                                               raw(bytes.data()), clear_bytes, nullptr, raw(nonce), sealing.bytes);
    return bytes;
}

pkv_status unseal(std::span<const std::byte> bytes, const ClusterKey &key, Ticket &ticket) {
    if (bytes.size() < clear_bytes + nonce_bytes + tag_bytes || bytes.size() > PKV_MAX_TICKET_BYTES ||
        std::memcmp(bytes.data(), magic, sizeof magic) != 0)
        return fail(PKV_ERR_INVALID, "%zu bytes that are no ticket", bytes.size());
    WireReader in(bytes.subspan(sizeof magic, 2 * sizeof(uint32_t)));
    const auto version = in.number<uint32_t>();
    const auto size = in.number<uint32_t>();
    if (version != ticket_version)
        return fail(PKV_ERR_MISMATCH, "a ticket of version %u, this library knows %u", version, ticket_version);
    if (size != bytes.size())
        return fail(PKV_ERR_INVALID, "a ticket of %u bytes, of which %zu are there", size, bytes.size());
    const std::byte *const nonce = bytes.data() + clear_bytes;
    const std::span<const std::byte> sealed = bytes.subspan(clear_bytes + nonce_bytes);
    std::vector<std::byte> body(sealed.size() - tag_bytes);
    const TicketKey sealing(key);
    if (crypto_aead_xchacha20poly1305_ietf_decrypt(raw(body.data()), nullptr, nullptr, raw(sealed.data()),
                                                   sealed.size(), raw(bytes.data()), clear_bytes, raw(nonce),
                                                   sealing.bytes) != 0)
        return fail(PKV_ERR_MISMATCH, "the ticket was not made with this cluster's key, or was changed");
    if (!decode(body, ticket)) return fail(PKV_ERR_MISMATCH, "the ticket's content is none");
    return PKV_OK;
}

} // namespace pkv::handover
