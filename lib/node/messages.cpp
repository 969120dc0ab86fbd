// SPDX-License-Identifier: Apache-2.0
#include "node/messages.h"

namespace pkv::node {
namespace {

constexpr size_t head_bytes = sizeof(uint16_t) + sizeof(uint64_t);

WireWriter begin(Kind kind, uint64_t request) {
    WireWriter out;
    out.number(static_cast<uint16_t>(kind));
    out.number(request);
    return out;
}

WireReader body_of(std::span<const std::byte> message) {
    return WireReader(message.size() < head_bytes ? std::span<const std::byte>() : message.subspan(head_bytes));
}

void put_keys(WireWriter &out, const std::vector<pkv_tier_key> &keys) {
    out.number(static_cast<uint32_t>(keys.size()));
    for (const pkv_tier_key &key : keys) out.bytes(key.bytes, sizeof key.bytes);
}

void get_keys(WireReader &in, std::vector<pkv_tier_key> &keys) {
    keys.resize(in.count(most_items, sizeof(pkv_tier_key)));
    for (pkv_tier_key &key : keys) in.bytes(key.bytes, sizeof key.bytes);
}

} // namespace

std::vector<std::byte> encode(uint64_t request, const Hello &hello) {
    WireWriter out = begin(Kind::hello, request);
    out.number(hello.protocol);
    out.number(hello.image_format);
    out.number(hello.lease_ns);
    out.number(hello.room);
    out.bytes(hello.incarnation.data(), hello.incarnation.size());
    out.bytes(hello.identity.data(), hello.identity.size());
    out.text(hello.name);
    out.text(hello.provider);
    out.text(hello.endpoint);
    out.number(static_cast<uint32_t>(hello.shapes.size()));
    for (const Digest &shape : hello.shapes) out.bytes(shape.data(), shape.size());
    out.number(static_cast<uint32_t>(hello.windows.size()));
    for (const Window &window : hello.windows) {
        out.number(window.bytes);
        out.number(window.address);
        out.text({reinterpret_cast<const char *>(window.key.data()), window.key.size()});
    }
    return out.take();
}

bool decode(std::span<const std::byte> message, Hello &hello) {
    WireReader in = body_of(message);
    hello.protocol = in.number<uint32_t>();
    hello.image_format = in.number<uint32_t>();
    hello.lease_ns = in.number<uint64_t>();
    hello.room = in.number<uint64_t>();
    in.bytes(hello.incarnation.data(), hello.incarnation.size());
    in.bytes(hello.identity.data(), hello.identity.size());
    hello.name = in.text(longest_name);
    hello.provider = in.text(longest_name);
    hello.endpoint = in.text(PKV_FABRIC_MAX_NAME);
    hello.shapes.resize(in.count(most_shapes, sizeof(Digest)));
    for (Digest &shape : hello.shapes) in.bytes(shape.data(), shape.size());
    hello.windows.resize(in.count(most_windows, 2 * sizeof(uint64_t) + sizeof(uint32_t)));
    for (Window &window : hello.windows) {
        window.bytes = in.number<uint64_t>();
        window.address = in.number<uint64_t>();
        const std::string key = in.text(PKV_FABRIC_MAX_KEY);
        const auto *from = reinterpret_cast<const std::byte *>(key.data());
        window.key.assign(from, from + key.size());
    }
    return in.complete();
}

std::vector<std::byte> encode(uint64_t request, const Lookup &lookup) {
    WireWriter out = begin(Kind::lookup, request);
    out.number(static_cast<uint8_t>(lookup.pin ? 1 : 0));
    put_keys(out, lookup.keys);
    return out.take();
}

bool decode(std::span<const std::byte> message, Lookup &lookup) {
    WireReader in = body_of(message);
    lookup.pin = in.number<uint8_t>() != 0;
    get_keys(in, lookup.keys);
    return in.complete();
}

std::vector<std::byte> encode(uint64_t request, const Found &found) {
    WireWriter out = begin(Kind::found, request);
    out.number(static_cast<uint32_t>(found.bytes.size()));
    for (const uint64_t bytes : found.bytes) out.number(bytes);
    out.number(static_cast<uint32_t>(found.places.size()));
    for (const uint64_t place : found.places) out.number(place);
    return out.take();
}

bool decode(std::span<const std::byte> message, Found &found) {
    WireReader in = body_of(message);
    found.bytes.resize(in.count(most_items, sizeof(uint64_t)));
    for (uint64_t &bytes : found.bytes) bytes = in.number<uint64_t>();
    found.places.resize(in.count(most_items, sizeof(uint64_t)));
    for (uint64_t &place : found.places) place = in.number<uint64_t>();
    return in.complete() && (found.places.empty() || found.places.size() == found.bytes.size());
}

std::vector<std::byte> encode(uint64_t request, const Fetch &fetch) {
    WireWriter out = begin(Kind::fetch, request);
    out.number(static_cast<uint8_t>(fetch.urgent ? 1 : 0));
    out.number(static_cast<uint32_t>(fetch.ranges.size()));
    for (const Range &range : fetch.ranges) {
        out.bytes(range.key.bytes, sizeof range.key.bytes);
        out.number(range.offset);
        out.number(range.bytes);
    }
    return out.take();
}

bool decode(std::span<const std::byte> message, Fetch &fetch) {
    WireReader in = body_of(message);
    fetch.urgent = in.number<uint8_t>() != 0;
    fetch.ranges.resize(in.count(most_items, sizeof(pkv_tier_key) + 2 * sizeof(uint64_t)));
    for (Range &range : fetch.ranges) {
        in.bytes(range.key.bytes, sizeof range.key.bytes);
        range.offset = in.number<uint64_t>();
        range.bytes = in.number<uint64_t>();
    }
    return in.complete();
}

std::vector<std::byte> encode(uint64_t request, const Places &places) {
    WireWriter out = begin(Kind::places, request);
    out.number(static_cast<uint32_t>(places.places.size()));
    for (const Place &place : places.places) {
        out.number(place.status);
        out.number(place.ticket);
        out.number(place.offset);
    }
    return out.take();
}

bool decode(std::span<const std::byte> message, Places &places) {
    WireReader in = body_of(message);
    places.places.resize(in.count(most_items, sizeof(int32_t) + 2 * sizeof(uint64_t)));
    for (Place &place : places.places) {
        place.status = in.number<int32_t>();
        place.ticket = in.number<uint64_t>();
        place.offset = in.number<uint64_t>();
    }
    return in.complete();
}

std::vector<std::byte> encode(uint64_t request, const Release &release) {
    WireWriter out = begin(Kind::release, request);
    out.number(static_cast<uint32_t>(release.tickets.size()));
    for (const uint64_t ticket : release.tickets) out.number(ticket);
    put_keys(out, release.keys);
    return out.take();
}

bool decode(std::span<const std::byte> message, Release &release) {
    WireReader in = body_of(message);
    release.tickets.resize(in.count(most_items, sizeof(uint64_t)));
    for (uint64_t &ticket : release.tickets) ticket = in.number<uint64_t>();
    get_keys(in, release.keys);
    return in.complete();
}

std::vector<std::byte> encode(uint64_t request, const Refused &refused) {
    WireWriter out = begin(Kind::refused, request);
    out.number(refused.status);
    out.text(std::string_view(refused.why).substr(0, longest_name));
    return out.take();
}

bool decode(std::span<const std::byte> message, Refused &refused) {
    WireReader in = body_of(message);
    refused.status = in.number<int32_t>();
    refused.why = in.text(longest_name);
    return in.complete();
}

// ---- sequences that are offered

std::vector<std::byte> encode(uint64_t request, const Open &open) {
    WireWriter out = begin(Kind::open, request);
    out.bytes(open.offer.data(), open.offer.size());
    return out.take();
}

bool decode(std::span<const std::byte> message, Open &open) {
    WireReader in = body_of(message);
    in.bytes(open.offer.data(), open.offer.size());
    return in.complete();
}

std::vector<std::byte> encode(uint64_t request, const Opened &opened) {
    WireWriter out = begin(Kind::opened, request);
    out.number(opened.pull);
    out.number(opened.left_ns);
    out.number(opened.num_tokens);
    out.number(opened.front_bytes);
    out.bytes(opened.geometry.data(), opened.geometry.size());
    return out.take();
}

bool decode(std::span<const std::byte> message, Opened &opened) {
    WireReader in = body_of(message);
    opened.pull = in.number<uint64_t>();
    opened.left_ns = in.number<uint64_t>();
    opened.num_tokens = in.number<uint64_t>();
    opened.front_bytes = in.number<uint64_t>();
    in.bytes(opened.geometry.data(), opened.geometry.size());
    return in.complete();
}

std::vector<std::byte> encode(uint64_t request, const Watch &watch) {
    WireWriter out = begin(Kind::watch, request);
    out.number(watch.pull);
    out.number(watch.version);
    out.number(watch.wait_ns);
    return out.take();
}

bool decode(std::span<const std::byte> message, Watch &watch) {
    WireReader in = body_of(message);
    watch.pull = in.number<uint64_t>();
    watch.version = in.number<uint64_t>();
    watch.wait_ns = in.number<uint64_t>();
    return in.complete();
}

std::vector<std::byte> encode(uint64_t request, const Progress &progress) {
    WireWriter out = begin(Kind::progress, request);
    out.number(progress.version);
    out.number(static_cast<uint32_t>(progress.tokens.size()));
    for (const uint64_t tokens : progress.tokens) out.number(tokens);
    return out.take();
}

bool decode(std::span<const std::byte> message, Progress &progress) {
    WireReader in = body_of(message);
    progress.version = in.number<uint64_t>();
    progress.tokens.resize(in.count(most_layers, sizeof(uint64_t)));
    for (uint64_t &tokens : progress.tokens) tokens = in.number<uint64_t>();
    return in.complete();
}

std::vector<std::byte> encode(uint64_t request, const Pieces &pieces) {
    WireWriter out = begin(Kind::pieces, request);
    out.number(pieces.pull);
    out.number(static_cast<uint32_t>(pieces.pieces.size()));
    for (const Piece &piece : pieces.pieces) {
        out.number(piece.group);
        out.number(piece.layer);
        out.number(piece.first_head);
        out.number(piece.heads);
        out.number(piece.first);
        out.number(piece.count);
    }
    return out.take();
}

bool decode(std::span<const std::byte> message, Pieces &pieces) {
    WireReader in = body_of(message);
    pieces.pull = in.number<uint64_t>();
    pieces.pieces.resize(in.count(most_pieces, 4 * sizeof(uint32_t) + 2 * sizeof(uint64_t)));
    for (Piece &piece : pieces.pieces) {
        piece.group = in.number<uint32_t>();
        piece.layer = in.number<uint32_t>();
        piece.first_head = in.number<uint32_t>();
        piece.heads = in.number<uint32_t>();
        piece.first = in.number<uint64_t>();
        piece.count = in.number<uint64_t>();
    }
    return in.complete();
}

std::vector<std::byte> encode(uint64_t request, const Packed &packed) {
    WireWriter out = begin(Kind::packed, request);
    out.number(static_cast<uint32_t>(packed.pieces.size()));
    for (const PackedPiece &piece : packed.pieces) {
        out.number(piece.place.status);
        out.number(piece.place.ticket);
        out.number(piece.place.offset);
        out.number(piece.bytes);
        out.number(piece.sum);
    }
    return out.take();
}

bool decode(std::span<const std::byte> message, Packed &packed) {
    WireReader in = body_of(message);
    packed.pieces.resize(in.count(most_pieces, sizeof(int32_t) + 4 * sizeof(uint64_t)));
    for (PackedPiece &piece : packed.pieces) {
        piece.place.status = in.number<int32_t>();
        piece.place.ticket = in.number<uint64_t>();
        piece.place.offset = in.number<uint64_t>();
        piece.bytes = in.number<uint64_t>();
        piece.sum = in.number<uint64_t>();
    }
    return in.complete();
}

std::vector<std::byte> encode(uint64_t request, const Finish &finish) {
    WireWriter out = begin(Kind::finish, request);
    out.number(finish.pull);
    out.number(finish.status);
    return out.take();
}

bool decode(std::span<const std::byte> message, Finish &finish) {
    WireReader in = body_of(message);
    finish.pull = in.number<uint64_t>();
    finish.status = in.number<int32_t>();
    return in.complete();
}

bool decode_head(std::span<const std::byte> message, Head &head) {
    if (message.size() < head_bytes || message.size() > largest_message) return false;
    WireReader in(message.first(head_bytes));
    const auto kind = in.number<uint16_t>();
    head.request = in.number<uint64_t>();
    if (kind < static_cast<uint16_t>(Kind::hello) || kind > static_cast<uint16_t>(Kind::last)) return false;
    head.kind = static_cast<Kind>(kind);
    return true;
}

} // namespace pkv::node
