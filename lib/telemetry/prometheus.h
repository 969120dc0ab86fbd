// SPDX-License-Identifier: Apache-2.0
// Statistics in the text format of Prometheus, version 0.0.4.
#pragma once

#include <pagedkv/node.h>
#include <pagedkv/prefetch.h>
#include <pagedkv/stats.h>
#include <pagedkv/tier.h>

#include <span>
#include <string>
#include <vector>

namespace pkv {

// What statistics are of. Names are UTF-8; those of one kind differ.

struct NamedPool {
    std::string name;
    std::vector<pkv_pool_stats> groups; ///< at least one
};

struct NamedTier {
    std::string name;
    pkv_tier_stats stats;
};

struct NamedSession {
    std::string name;
    pkv_prefetch_stats stats;
};

struct NamedNode {
    std::string name;
    pkv_node_stats stats;
};

/// Appends the text: each family once, with the samples of all that have it.
void write_prometheus(std::string &out, std::span<const NamedPool> pools, std::span<const NamedTier> tiers,
                      std::span<const NamedSession> sessions, std::span<const NamedNode> nodes);

} // namespace pkv
