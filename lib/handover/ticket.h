// SPDX-License-Identifier: Apache-2.0
// A ticket: who may pull what, from where. Sealed under the cluster's key (XChaCha20-Poly1305 of libsodium), so that without
// it a ticket says nothing, and none can be made:
//
//   magic "PKVTICK\n", version, bytes of all of it    in the clear, and authenticated
//   nonce
//   offer id, incarnation of the giver's node, digest of its geometry, num_tokens, address      sealed
#pragma once

#include "core/status.h"
#include "node/channel.h"
#include "node/messages.h"

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace pkv::handover {

struct Ticket {
    node::OfferId offer{};
    std::array<uint8_t, 16> incarnation{};
    node::Digest geometry{};
    uint64_t num_tokens = 0;
    std::string address; ///< of the giver's control connection
};

/// `address` has at most node::longest_name bytes.
std::vector<std::byte> seal(const Ticket &ticket, const node::ClusterKey &key);
/// PKV_ERR_INVALID for what is no ticket; PKV_ERR_MISMATCH for one of another version, or that this key did not make.
pkv_status unseal(std::span<const std::byte> bytes, const node::ClusterKey &key, Ticket &ticket);

/// What is sealed: its bytes, and back; false for what is none.
std::vector<std::byte> encode(const Ticket &ticket);
bool decode(std::span<const std::byte> bytes, Ticket &ticket);

} // namespace pkv::handover
