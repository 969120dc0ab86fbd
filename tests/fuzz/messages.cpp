// SPDX-License-Identifier: Apache-2.0
// Messages of the control protocol: whatever a peer sends, it is a message or it is none, and one that is taken in says the
// same when it is sent on.
#include "fuzz/fuzz.h"

#include "node/messages.h"

#include <algorithm>

using namespace pkv::node;

namespace {

template <class Body> void check(std::span<const std::byte> message, uint64_t request) {
    Body body;
    if (!decode(message, body)) return;
    const std::vector<std::byte> again = encode(request, body);
    must(again.size() == message.size());
    Head head;
    Body twice;
    must(decode_head(again, head) && head.request == request && decode(again, twice));
    must(encode(request, twice) == again);
}

pkv_tier_key key_of(uint8_t value) {
    pkv_tier_key key;
    std::fill(std::begin(key.bytes), std::end(key.bytes), value);
    return key;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::span message(reinterpret_cast<const std::byte *>(data), size);
    Head head;
    if (!decode_head(message, head)) return 0;
    switch (head.kind) {
    case Kind::hello: check<Hello>(message, head.request); break;
    case Kind::lookup: check<Lookup>(message, head.request); break;
    case Kind::found: check<Found>(message, head.request); break;
    case Kind::fetch: check<Fetch>(message, head.request); break;
    case Kind::places: check<Places>(message, head.request); break;
    case Kind::release: check<Release>(message, head.request); break;
    case Kind::refused: check<Refused>(message, head.request); break;
    case Kind::open: check<Open>(message, head.request); break;
    case Kind::opened: check<Opened>(message, head.request); break;
    case Kind::watch: check<Watch>(message, head.request); break;
    case Kind::progress: check<Progress>(message, head.request); break;
    case Kind::pieces: check<Pieces>(message, head.request); break;
    case Kind::packed: check<Packed>(message, head.request); break;
    case Kind::finish: check<Finish>(message, head.request); break;
    default: must(false); // a kind that is said to be one, and has no case here
    }
    return 0;
}

void add_seeds(const AddSeed &add) {
    const auto put = [&](const std::vector<std::byte> &message) { add(message.data(), message.size()); };
    Hello hello;
    hello.image_format = 1;
    hello.name = "a node";
    hello.provider = "tcp";
    hello.endpoint = "an endpoint's name";
    hello.shapes.resize(2);
    hello.windows.push_back({4096, 0x1000, std::vector<std::byte>(8)});
    put(encode(1, hello));
    put(encode(2, Lookup{true, {key_of(1), key_of(2)}}));
    put(encode(3, Found{{4096, 0, 8192}, {}}));
    put(encode(4, Fetch{true, {{key_of(1), 0, 4096}, {key_of(2), 4096, 8192}}}));
    put(encode(5, Places{{{0, 1, 4096}, {-8, 0, 0}}}));
    put(encode(6, Release{{1, 2, 3}, {key_of(3)}}));
    put(encode(7, Refused{-17, "another model"}));
    put(encode(8, Open{{1, 2, 3}}));
    put(encode(9, Opened{1, 60'000'000'000, 51, 400, {}}));
    put(encode(10, Watch{1, 2, 1'000'000'000}));
    put(encode(11, Progress{3, {22, 22, 51, 0}}));
    put(encode(12, Pieces{1, {{0, 1, 0, 4, 22, 29}, {Piece::front, 0, 0, 0, 0, 400}}}));
    put(encode(13, Packed{{{{0, 5, 8192}, 3712, 0x0123456789abcdef}, {{-12, 0, 0}, 0, 0}}}));
    put(encode(14, Finish{1, 0}));
}
