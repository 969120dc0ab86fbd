// SPDX-License-Identifier: Apache-2.0
// What stands in a directory, and under which names:
//
//   PREFIX:k:IMAGE   a sorted set: members are ids of nodes that have this image, scores the time at which each entry
//                    ends (milliseconds since 1970, on the clock of the node that wrote it). IMAGE: 32 hexadecimal
//                    digits, the BLAKE2b-128 of the image's key, keyed with the first half of the cluster's names
//   PREFIX:n:ID      a string: the record of a node that lives, with a time to live. ID: 32 hexadecimal digits
//   the record       a byte 1, the length of the address (1 byte), the address, and the BLAKE2b-128 of all that and the
//                    id, keyed with the second half of the cluster's names
//   cluster's names  the BLAKE2b-512, keyed with the cluster key, of "pagedkv directory 1", the protocol's and the
//                    image format's version (4 bytes each, little-endian), the model's identity (a digest, 32 bytes)
//                    and the name of the fabric's provider
//
// An id is 16 random bytes, new with each run of a node. So nodes of clusters, models, versions and providers that
// cannot read from each other may share a server and never meet, and who can write to the server but has not the
// cluster key can make no record that is believed, nor tell from an entry what was computed.
#pragma once

#include <pagedkv/tier_ops.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace pkv::directory {

using NodeId = std::array<uint8_t, 16>;

/// What decides who can read from whom.
struct Scope {
    std::array<uint8_t, 32> cluster_key{};
    uint32_t protocol = 0;
    uint32_t image_format = 0;
    std::array<uint8_t, 32> identity{};
    std::string provider;
};

class Names {
  public:
    static constexpr size_t longest_record = 2 + 64 + 16;

    Names(const Scope &scope, std::string prefix);
    ~Names();
    Names(const Names &) = delete;
    Names &operator=(const Names &) = delete;

    std::string of_image(const pkv_tier_key &key) const;
    std::string of_node(const NodeId &id) const;
    std::string record(const NodeId &id, std::string_view address) const;
    /// The address in a record; false for what no node of the cluster has written.
    bool read_record(const NodeId &id, std::string_view record, std::string &address) const;

  private:
    using Proof = std::array<uint8_t, 16>;
    Proof prove(const NodeId &id, std::string_view record) const;

    std::string prefix_;
    std::array<uint8_t, 32> image_key_;
    std::array<uint8_t, 32> record_key_;
};

} // namespace pkv::directory
