// SPDX-License-Identifier: Apache-2.0
// Pieces of an offered sequence that a peer asks for: it gets those that are there, whole, and nothing beside them.
#include "fuzz/fuzz.h"

#include "handover/offer.h"

#include <memory>
#include <sodium.h>
#include <vector>

using namespace pkv;
using handover::Offer;

namespace {

constexpr uint64_t num_tokens = 41, committed = 22;

struct Bench {
    std::shared_ptr<Pool> pool;
    std::shared_ptr<Table> table;
    std::shared_ptr<Offer> offer;

    Bench() {
        must(sodium_init() >= 0);
        pkv_group_options groups[2] = {PKV_GROUP_OPTIONS_INIT, PKV_GROUP_OPTIONS_INIT};
        for (pkv_group_options &group : groups) {
            group.num_pages = 16;
            group.num_layers = 2;
            group.num_kv_heads = 3;
            group.k_head_dim = group.v_head_dim = 4;
        }
        groups[0].dtype = PKV_DTYPE_I8;
        groups[0].scales = PKV_SCALES_TOKEN_HEAD;
        groups[0].layout = PKV_LAYOUT_HND;
        groups[1].attention = PKV_ATTENTION_WINDOW;
        groups[1].window = 6;
        groups[1].sinks = 3;
        pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
        options.page_tokens = 4;
        options.num_groups = 2;
        options.groups = groups;
        must(Pool::create(options, groups, {}, pool) == PKV_OK);
        table = Table::make(pool);
        std::vector<pkv_token> tokens(num_tokens, 7);
        prefix::Prompt prompt;
        prompt.tokens = tokens;
        pkv_match match = PKV_MATCH_INIT;
        must(table->admit(prompt, PKV_ADMIT_OPTIONS_INIT, match) == PKV_OK && table->commit(committed) == PKV_OK);
        handover::OfferTerms terms;
        terms.num_tokens = num_tokens;
        terms.lifetime_ns = UINT64_MAX;
        terms.max_pulls = 1;
        must(Offer::make(*table, terms, nullptr, std::make_shared<node::Counters>(), offer) == PKV_OK);
        must(offer->ready(0, 1, num_tokens) == PKV_OK);
    }
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const Bench bench;
    const std::span message(reinterpret_cast<const std::byte *>(data), size);
    node::Head head;
    node::Pieces pieces;
    if (!decode_head(message, head) || head.kind != node::Kind::pieces || !decode(message, pieces)) return 0;
    for (const node::Piece &piece : pieces.pieces) {
        uint64_t bytes = 0;
        const pkv_status status = bench.offer->measure(piece, bytes);
        must(status == PKV_OK || status == PKV_ERR_INVALID || status == PKV_ERR_AGAIN);
        if (status != PKV_OK) continue;
        must(bytes != 0 && bytes < 65536);
        std::vector<std::byte> out(bytes); // exactly: one byte more is seen
        must(bench.offer->pack(piece, out.data()) == PKV_OK);
    }
    return 0;
}

void add_seeds(const AddSeed &add) {
    const auto put = [&](std::vector<node::Piece> list) {
        const std::vector<std::byte> message = encode(1, node::Pieces{1, std::move(list)});
        add(message.data(), message.size());
    };
    put({{0, 0, 0, 3, 0, 22}, {0, 1, 1, 1, 20, 21}, {1, 0, 0, 2, 0, 4}});
    put({{node::Piece::front, 0, 0, 0, 0, 100}, {node::Piece::front, 0, 0, 0, 100, 20}});
    put({{0, 0, 0, 3, 20, 3},
         {1, 1, 2, 1, 32, 9},
         {1, 1, 2, 2, 3, 2},
         {0, 2, 0, 1, 0, 1},
         {2, 0, 0, 1, 0, 1},
         {0, 0, 0, 1, UINT64_MAX, 2}});
}
