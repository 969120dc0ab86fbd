// SPDX-License-Identifier: Apache-2.0
// What nodes say to each other over their control connection, after it was encrypted and authenticated (channel.h). A message
// is a kind, the number of the request that it belongs to, and a body. Every body has a bound; decode() takes any bytes.
//
//   hello       both sides, first: who they are, and what has to be equal
//   lookup      keys -> the size of each image, or 0; pins what it finds for the length of a lease, and says where it lies if the
//               reader can read it there
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

constexpr uint32_t protocol_version = 2;
constexpr uint32_t most_items = 4096; // of a request
constexpr uint32_t most_shapes = 64;
constexpr uint32_t most_windows = PKV_FABRIC_MAX_REGIONS;
constexpr uint32_t most_pieces = 64;    // of a request
constexpr uint32_t most_layers = 32768; // of an offer: PKV_MAX_GROUPS of PKV_MAX_LAYERS
constexpr size_t longest_name = 256;
constexpr size_t largest_message = size_t{1} << 20;

enum class Kind : uint16_t {
    hello = 1,
    lookup = 2,
    found = 3,
    fetch = 4,
    places = 5,
    release = 6,
    refused = 7,
    // A sequence that is offered:
    open = 8,
    opened = 9,
    watch = 10,
    progress = 11,
    pieces = 12,
    packed = 13,
    finish = 14,
    last = finish
};

using Digest = std::array<uint8_t, 32>;
using OfferId = std::array<uint8_t, 16>; ///< random: who has it may pull

struct Window {
    uint64_t bytes = 0;
    uint64_t address = 0;
    std::vector<std::byte> key;
};

struct Hello {
    uint32_t protocol = protocol_version;
    uint32_t image_format = 0;
    uint64_t lease_ns = 0;
    uint64_t room = 0;                     ///< bytes of its windows, the first ones, that fetches are answered in
    std::array<uint8_t, 16> incarnation{}; ///< random, of this run of the node
    Digest identity{};                     ///< of the model
    std::string name;
    std::string provider;        ///< of the fabric
    std::string endpoint;        ///< its name, bytes
    std::vector<Digest> shapes;  ///< of the layer groups it serves or reads; none: any
    std::vector<Window> windows; ///< memory that the other side may read
};

struct Lookup {
    bool pin = false;
    std::vector<pkv_tier_key> keys;
};
struct Found {
    std::vector<uint64_t> bytes;  ///< of each image; 0: not there
    std::vector<uint64_t> places; ///< in the windows, of each image; none: all are no_place
};
/// Of an image that is not read where it lies.
constexpr uint64_t no_place = UINT64_MAX;

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

/// Begins to pull what is offered. Answered by Opened; ends with Finish, or the connection.
struct Open {
    OfferId offer{};
};
struct Opened {
    uint64_t pull = 0;    ///< names it on this connection
    uint64_t left_ns = 0; ///< until the offer ends
    uint64_t num_tokens = 0;
    uint64_t front_bytes = 0; ///< of what is said of the sequence: geometry, tokens ... (handover/front.h)
    Digest geometry{};
};
/// Asks how far each layer is. Answered when that is no longer what `version` says, or after a while.
struct Watch {
    uint64_t pull = 0;
    uint64_t version = 0; ///< of the last Progress; 0: answer at once
    uint64_t wait_ns = 0;
};
struct Progress {
    uint64_t version = 0;
    std::vector<uint64_t> tokens; ///< whose rows are complete, of each layer, group after group
};
/// Rows of tokens [first, first + count) of some heads of one layer, or bytes of the front.
struct Piece {
    static constexpr uint32_t front = UINT32_MAX; ///< as `group`
    uint32_t group = 0;
    uint32_t layer = 0; ///< of the group
    uint32_t first_head = 0;
    uint32_t heads = 0;
    uint64_t first = 0;
    uint64_t count = 0;
};
struct Pieces {
    uint64_t pull = 0;
    std::vector<Piece> pieces;
};
/// Where the pieces lie, and what they are: XXH3-64 of all their bytes.
struct PackedPiece {
    Place place;
    uint64_t bytes = 0;
    uint64_t sum = 0;
};
struct Packed {
    std::vector<PackedPiece> pieces;
};
/// The pull has ended; no answer.
struct Finish {
    uint64_t pull = 0;
    int32_t status = 0; ///< PKV_OK: everything has arrived
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
std::vector<std::byte> encode(uint64_t request, const Open &open);
std::vector<std::byte> encode(uint64_t request, const Opened &opened);
std::vector<std::byte> encode(uint64_t request, const Watch &watch);
std::vector<std::byte> encode(uint64_t request, const Progress &progress);
std::vector<std::byte> encode(uint64_t request, const Pieces &pieces);
std::vector<std::byte> encode(uint64_t request, const Packed &packed);
std::vector<std::byte> encode(uint64_t request, const Finish &finish);

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
bool decode(std::span<const std::byte> message, Open &open);
bool decode(std::span<const std::byte> message, Opened &opened);
bool decode(std::span<const std::byte> message, Watch &watch);
bool decode(std::span<const std::byte> message, Progress &progress);
bool decode(std::span<const std::byte> message, Pieces &pieces);
bool decode(std::span<const std::byte> message, Packed &packed);
bool decode(std::span<const std::byte> message, Finish &finish);

} // namespace pkv::node
