// SPDX-License-Identifier: Apache-2.0
// What a giver says of a sequence: taken in whole or not at all; and what is taken in is planned against pools, which it leaves as
// they were.
#include "fuzz/fuzz.h"

#include "handover/plan.h"

#include <memory>
#include <pagedkv/pool.h>

using namespace pkv::handover;

namespace {

/// A pool of two groups, one of them with a window, as half of the heads of a model.
const std::shared_ptr<pkv::Pool> &pool() {
    static const std::shared_ptr<pkv::Pool> made = [] {
        pkv_group_options groups[2] = {PKV_GROUP_OPTIONS_INIT, PKV_GROUP_OPTIONS_INIT};
        for (pkv_group_options &group : groups) {
            group.num_pages = 16;
            group.num_layers = 2;
            group.num_kv_heads = 2;
            group.first_head = 2;
            group.total_heads = 4;
            group.k_head_dim = group.v_head_dim = 4;
        }
        groups[1].attention = PKV_ATTENTION_WINDOW;
        groups[1].window = 6;
        groups[1].sinks = 3;
        pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
        options.page_tokens = 4;
        options.num_groups = 2;
        options.groups = groups;
        std::shared_ptr<pkv::Pool> fresh;
        must(pkv::Pool::create(options, groups, {}, fresh) == PKV_OK);
        return fresh;
    }();
    return made;
}

Front a_front(uint64_t num_tokens) {
    Front front;
    front.ns.fill(3);
    front.num_tokens = num_tokens;
    for (uint32_t group = 0; group < 2; ++group) {
        front.groups.push_back(describe(pool()->geometry(group)));
        front.groups.back().first_head = 0;
        front.groups.back().heads = 4;
        front.groups.back().head_end = front.groups.back().tail_begin = num_tokens;
    }
    for (uint64_t i = 0; i < num_tokens; ++i) front.tokens.push_back(static_cast<pkv_token>(i));
    return front;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::span bytes(reinterpret_cast<const std::byte *>(data), size);
    Front front;
    if (!decode(bytes, front)) return 0;
    must(front.tokens.size() == front.num_tokens && !front.groups.empty());
    must(encode(front) == std::vector<std::byte>(bytes.begin(), bytes.end()));
    (void)geometry_digest(front.groups);
    std::vector<Part> parts;
    if (plan_parts(*pool(), {&front, 1}, {}, 1 << 20, parts) != PKV_OK) return 0;
    for (const Part &part : parts) {
        const FrontGroup &group = front.groups.at(part.their_group);
        must(part.their_layer < group.num_layers && part.heads <= group.heads &&
             part.their_first_head <= group.heads - part.heads);
        must(part.layer < 2 && part.heads <= 2 && part.first_head <= 2 - part.heads);
    }
    (void)check_windows(*pool(), {&front, 1}, parts);
    return 0;
}

void add_seeds(const AddSeed &add) {
    const auto put = [&](const Front &front) {
        const std::vector<std::byte> bytes = encode(front);
        add(bytes.data(), bytes.size());
    };
    put(a_front(3));
    Front front = a_front(21);
    front.groups[1].head_end = 4;
    front.groups[1].tail_begin = 12;
    front.media.push_back({2, 3, "an image"});
    front.media.push_back({9, 1, "another"});
    front.retention.push_back({0, 8, PKV_RETENTION_INIT});
    put(front);
    front = a_front(2);
    front.groups.resize(1);
    front.groups[0].dtype = PKV_DTYPE_F8_E4M3;
    front.groups[0].scales = PKV_SCALES_HEAD;
    front.groups[0].k_scales.assign(8, 0.5f);
    front.groups[0].v_scales.assign(8, 0.25f);
    put(front);
}
