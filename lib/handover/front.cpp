// SPDX-License-Identifier: Apache-2.0
#include "handover/front.h"

#include "core/blake2b.h"
#include "node/wire.h"

#include <cstring>

namespace pkv::handover {
namespace {

using node::WireReader;
using node::WireWriter;

constexpr uint32_t front_version = 1;
constexpr uint32_t byte_order = 0x01020304;
constexpr uint32_t most_media = 1u << 20;
constexpr uint32_t most_retention = 64;
constexpr uint32_t most_scales = 1u << 24;

void put_floats(WireWriter &out, const std::vector<float> &values) {
    out.number(static_cast<uint32_t>(values.size()));
    for (const float value : values) {
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        out.number(bits);
    }
}

void get_floats(WireReader &in, std::vector<float> &values) {
    values.resize(in.count(most_scales, sizeof(float)));
    for (float &value : values) {
        const auto bits = in.number<uint32_t>();
        std::memcpy(&value, &bits, sizeof bits);
    }
}

void put_geometry(WireWriter &out, const FrontGroup &group) {
    for (const uint32_t field : {group.num_layers, group.first_layer, group.total_layers, group.heads, group.first_head,
                                 group.total_heads, group.window, group.sinks})
        out.number(field);
    for (const int32_t field : {group.dtype, group.attention, group.scales}) out.number(field);
    out.number(group.k_row_bytes);
    out.number(group.v_row_bytes);
    put_floats(out, group.k_scales);
    put_floats(out, group.v_scales);
}

void get_geometry(WireReader &in, FrontGroup &group) {
    for (uint32_t *field : {&group.num_layers, &group.first_layer, &group.total_layers, &group.heads, &group.first_head,
                            &group.total_heads, &group.window, &group.sinks})
        *field = in.number<uint32_t>();
    for (int32_t *field : {&group.dtype, &group.attention, &group.scales}) *field = in.number<int32_t>();
    group.k_row_bytes = in.number<uint64_t>();
    group.v_row_bytes = in.number<uint64_t>();
    get_floats(in, group.k_scales);
    get_floats(in, group.v_scales);
}

/// A shard lies inside its model, and rows are of a size that pools have.
bool good_geometry(const FrontGroup &group) {
    const bool layers = group.num_layers >= 1 && group.num_layers <= PKV_MAX_LAYERS &&
                        uint64_t{group.first_layer} + group.num_layers <= group.total_layers;
    const bool heads = group.heads >= 1 && group.heads <= PKV_MAX_HEADS &&
                       uint64_t{group.first_head} + group.heads <= group.total_heads;
    const bool rows =
        group.k_row_bytes >= 1 && group.k_row_bytes <= PKV_MAX_ROW_BYTES && group.v_row_bytes <= PKV_MAX_ROW_BYTES;
    const bool scales = group.scales >= PKV_SCALES_NONE && group.scales <= PKV_SCALES_TOKEN_HEAD;
    if (!layers || !heads || !rows || !scales) return false;
    const uint64_t fixed = group.scales == PKV_SCALES_TENSOR ? group.num_layers
                           : group.scales == PKV_SCALES_HEAD ? uint64_t{group.num_layers} * group.heads
                                                             : 0;
    return group.k_scales.size() == fixed && group.v_scales.size() == (group.v_row_bytes != 0 ? fixed : 0);
}

bool get_media(WireReader &in, uint64_t num_tokens, std::vector<prefix::Media> &media) {
    media.resize(in.count(most_media, 2 * sizeof(uint64_t) + sizeof(uint32_t)));
    uint64_t last = 0;
    for (prefix::Media &item : media) {
        item.position = in.number<uint64_t>();
        item.num_tokens = in.number<uint64_t>();
        item.digest = in.text(PKV_MAX_MEDIA_DIGEST);
        if (item.position < last || item.position >= num_tokens || item.digest.empty()) return false;
        last = item.position;
    }
    return true;
}

bool get_retention(WireReader &in, std::vector<RetentionRange> &ranges) {
    ranges.resize(in.count(most_retention, 3 * sizeof(uint64_t) + 2 * sizeof(uint32_t)));
    for (RetentionRange &range : ranges) {
        range.begin = in.number<uint64_t>();
        range.end = in.number<uint64_t>();
        range.retention = PKV_RETENTION_INIT;
        range.retention.priority = in.number<uint32_t>();
        range.retention.pin = in.number<int32_t>();
        range.retention.ttl_ns = in.number<uint64_t>();
        if (range.begin > range.end || range.retention.priority > PKV_PRIORITY_HIGHEST || range.retention.pin < 0 ||
            range.retention.pin > 1)
            return false;
    }
    return true;
}

} // namespace

uint64_t FrontGroup::token_bytes(uint32_t of_heads) const {
    const uint64_t sides = v_row_bytes != 0 ? 2 : 1;
    return of_heads * (k_row_bytes + v_row_bytes + (scales == PKV_SCALES_TOKEN_HEAD ? sides * sizeof(float) : 0));
}

FrontGroup describe(const Geometry &geometry) {
    FrontGroup group;
    group.num_layers = geometry.num_layers;
    group.first_layer = geometry.first_layer;
    group.total_layers = geometry.total_layers;
    group.heads = geometry.heads;
    group.first_head = geometry.first_head;
    group.total_heads = geometry.total_heads;
    group.dtype = geometry.dtype;
    group.attention = geometry.attention;
    group.scales = geometry.scales;
    group.window = geometry.window;
    group.sinks = geometry.sinks;
    group.k_row_bytes = geometry.k_row_bytes;
    group.v_row_bytes = geometry.v_row_bytes;
    group.k_scales = geometry.k_scales;
    group.v_scales = geometry.v_scales;
    return group;
}

std::vector<std::byte> encode(const Front &front) {
    WireWriter out;
    out.number(front_version);
    out.bytes(&byte_order, sizeof byte_order);
    out.bytes(front.ns.data(), front.ns.size());
    out.number(front.num_tokens);
    out.number(static_cast<uint32_t>(front.groups.size()));
    for (const FrontGroup &group : front.groups) {
        put_geometry(out, group);
        out.number(group.head_end);
        out.number(group.tail_begin);
    }
    for (const pkv_token token : front.tokens) out.number(token);
    out.number(static_cast<uint32_t>(front.media.size()));
    for (const prefix::Media &media : front.media) {
        out.number(media.position);
        out.number(media.num_tokens);
        out.text(media.digest);
    }
    out.number(static_cast<uint32_t>(front.retention.size()));
    for (const RetentionRange &range : front.retention) {
        out.number(range.begin);
        out.number(range.end);
        out.number(range.retention.priority);
        out.number(range.retention.pin);
        out.number(range.retention.ttl_ns);
    }
    return out.take();
}

bool decode(std::span<const std::byte> bytes, Front &front) {
    WireReader in(bytes);
    uint32_t order = 0;
    const auto version = in.number<uint32_t>();
    in.bytes(&order, sizeof order);
    if (version != front_version || order != byte_order) return false;
    in.bytes(front.ns.data(), front.ns.size());
    front.num_tokens = in.number<uint64_t>();
    if (front.num_tokens == 0 || front.num_tokens > bytes.size() / sizeof(pkv_token)) return false;
    front.groups.resize(in.count(PKV_MAX_GROUPS, 1));
    if (front.groups.empty()) return false;
    for (FrontGroup &group : front.groups) {
        get_geometry(in, group);
        group.head_end = in.number<uint64_t>();
        group.tail_begin = in.number<uint64_t>();
        const bool ranges = group.head_end <= group.tail_begin && group.tail_begin <= front.num_tokens &&
                            (group.attention != PKV_ATTENTION_FULL || group.tail_begin == group.head_end);
        if (!ranges || !good_geometry(group)) return false;
    }
    front.tokens.resize(front.num_tokens);
    for (pkv_token &token : front.tokens) token = in.number<pkv_token>();
    return get_media(in, front.num_tokens, front.media) && get_retention(in, front.retention) && in.complete();
}

std::array<uint8_t, 32> geometry_digest(std::span<const FrontGroup> groups) {
    WireWriter out;
    out.number(front_version);
    for (const FrontGroup &group : groups) put_geometry(out, group);
    const std::vector<std::byte> bytes = out.take();
    Blake2b hash;
    hash.add("pagedkv geometry of an offer", 28);
    hash.add(bytes.data(), bytes.size());
    std::array<uint8_t, 32> digest;
    hash.finish(digest.data());
    return digest;
}

} // namespace pkv::handover
