// SPDX-License-Identifier: Apache-2.0
// What is said of a sequence before its rows: geometry, namespace, tokens, media, retention. As bytes, little-endian:
//
//   version, a number in the machine's byte order, namespace digest, num_tokens
//   groups     geometry, which tokens have rows, fixed scales
//   tokens     int32, all of them
//   media      position, num_tokens, digest
//   retention  begin, end, priority, pin, ttl_ns
#pragma once

#include "layout/geometry.h"
#include "pool/blocks.h"
#include "prefix/keys.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pkv::handover {

/// Geometry of a layer group at the giver's, as far as it decides what rows mean.
struct FrontGroup {
    uint32_t num_layers = 0, first_layer = 0, total_layers = 0;
    uint32_t heads = 0, first_head = 0, total_heads = 0;
    int32_t dtype = 0, attention = 0, scales = 0;
    uint32_t window = 0, sinks = 0;
    uint64_t k_row_bytes = 0, v_row_bytes = 0;
    uint64_t head_end = 0;                 ///< tokens [0, head_end) have rows,
    uint64_t tail_begin = 0;               ///< and those from here on: between lies what a window has passed
    std::vector<float> k_scales, v_scales; ///< fixed ones: of layers, or of layers and heads

    /// Bytes of `tokens` tokens of `heads` heads: K rows, V rows, and with a scale for each row those of K, then of V.
    uint64_t token_bytes(uint32_t of_heads) const;
};

FrontGroup describe(const Geometry &geometry);

struct Front {
    prefix::Digest ns{};
    uint64_t num_tokens = 0;
    std::vector<FrontGroup> groups;
    std::vector<pkv_token> tokens;
    std::vector<prefix::Media> media;
    std::vector<RetentionRange> retention;
};

constexpr uint64_t largest_front = uint64_t{256} << 20;

std::vector<std::byte> encode(const Front &front);
/// False for anything that is none, whole and in bounds: of counts, ranges and sizes nothing has to be checked again.
bool decode(std::span<const std::byte> bytes, Front &front);

/// Of the groups without their ranges: equal for all sequences of one pool.
std::array<uint8_t, 32> geometry_digest(std::span<const FrontGroup> groups);

} // namespace pkv::handover
