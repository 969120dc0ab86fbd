// SPDX-License-Identifier: Apache-2.0
// What nodes say to each other over their control connection, after it was encrypted and authenticated (channel.h). A message
// is a kind, the number of the request that it belongs to, and a body. Every body has a bound; decode() takes any bytes.
//
//   hello       both sides, first: who they are, and what has to be equal
//   lookup      keys -> the size of each image, or 0; pins what it finds for the length of a lease
//   fetch       ranges of images -> where the reader finds each, in memory that the other side has opened to it
//   release     places that were read, and keys whose leases end: no answer
#pragma once

#include "node/fabric_table.h"
#include "node/wire.h"

#include <pagedkv/tier_ops.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace pkv::node {

constexpr uint32_t protocol_version = 1;
constexpr uint32_t most_items = 4096; // of a request
constexpr uint32_t most_shapes = 64;
constexpr uint32_t most_windows = PKV_FABRIC_MAX_REGIONS;
constexpr size_t longest_name = 256;
constexpr size_t largest_message = size_t{1} << 20;

enum class Kind : uint16_t { hello = 1, lookup = 2, found = 3, fetch = 4, places = 5, release = 6, refused = 7 };

using Digest = std::array<uint8_t, 32>;

struct Window {
    uint64_t bytes = 0;
    uint64_t address = 0;
    std::vector<std::byte> key;
};

struct Hello {
    uint32_t protocol = protocol_version;
    uint32_t image_format = 0;
    uint64_t lease_ns = 0;
    std::array<uint8_t, 16> incarnation{}; ///< random, of this run of the node
    Digest identity{};                     ///< of the model
    std::string name;
    std::string provider; ///< of the fabric
    std::string endpoint; ///< its name, bytes
    std::vector<Digest> shapes; ///< of the layer groups it serves or reads; none: any
    std::vector<Window> windows; ///< memory that the other side may read
};

struct Lookup {
    bool pin = false;
    std::vector<pkv_tier_key> keys;
};
struct Found {
    std::vector<uint64_t> bytes; ///< of each image; 0: not there
};

struct Range {
    pkv_tier_key key{};
    uint64_t offset = 0;
    uint64_t bytes = 0;
};
struct Fetch {
    bool urgent = false;
    std::vector<Range> ranges;
};
struct Place {
    int32_t status = 0;
    uint64_t ticket = 0; ///< for release
    uint64_t offset = 0; ///< in the windows
};
struct Places {
    std::vector<Place> places;
};
struct Release {
    std::vector<uint64_t> tickets;
    std::vector<pkv_tier_key> keys; ///< pins of lookups
};
/// Instead of an answer: the request cannot be served.
struct Refused {
    int32_t status = 0;
    std::string why;
};

struct Head {
    Kind kind{};
    uint64_t request = 0;
};

/// A message as bytes: head and body.
std::vector<std::byte> encode(uint64_t request, const Hello &hello);
std::vector<std::byte> encode(uint64_t request, const Lookup &lookup);
std::vector<std::byte> encode(uint64_t request, const Found &found);
std::vector<std::byte> encode(uint64_t request, const Fetch &fetch);
std::vector<std::byte> encode(uint64_t request, const Places &places);
std::vector<std::byte> encode(uint64_t request, const Release &release);
std::vector<std::byte> encode(uint64_t request, const Refused &refused);

/// The head of a message; false for what is none.
bool decode_head(std::span<const std::byte> message, Head &head);
/// The body of a message whose head says that it is of this kind. False for anything that is not one, whole and in bounds.
bool decode(std::span<const std::byte> message, Hello &hello);
bool decode(std::span<const std::byte> message, Lookup &lookup);
bool decode(std::span<const std::byte> message, Found &found);
bool decode(std::span<const std::byte> message, Fetch &fetch);
bool decode(std::span<const std::byte> message, Places &places);
bool decode(std::span<const std::byte> message, Release &release);
bool decode(std::span<const std::byte> message, Refused &refused);

} // namespace pkv::node
