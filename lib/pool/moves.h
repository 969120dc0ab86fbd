// SPDX-License-Identifier: Apache-2.0
// Pages on their way to and from tiers.
#pragma once

#include "device/fences.h"
#include "prefix/index.h"
#include "tier/stack.h"

#include <pagedkv/pool.h>

#include <span>
#include <vector>

namespace pkv {

/// One image that is to come into a page.
struct PageLoad {
    uint32_t group = 0;
    pkv_page page = PKV_NO_PAGE;
    pkv_tier_key key{};
    int8_t tier = no_tier; ///< where it is pinned; no_tier: wherever it is found
    uint64_t block = 0;
    std::span<const pkv_token> tokens; ///< of the block; empty when they are not known
    Fences after;                      ///< on a device: work that it is written after
    pkv_status status = PKV_OK;        ///< out
    int8_t from = no_tier;             ///< out
};

/// One page to be stored.
struct PageStore {
    uint32_t group = 0;
    pkv_page page = PKV_NO_PAGE;
    pkv_tier_key key{};
    uint64_t block = 0;
    std::span<const pkv_token> tokens;
    uint32_t rows = UINT32_MAX; ///< as in ImageName
    uint32_t tiers = 0;         ///< bit mask
    bool pin = false;
    pkv_retention retention = PKV_RETENTION_INIT;
    uint64_t tag = PKV_TIER_TAG_ALL - 1; ///< of no namespace
    Fences after;                        ///< on a device: work that it is read after
    pkv_status status = PKV_OK;          ///< out: PKV_OK when one tier has it
    uint32_t stored = 0;                 ///< out: bit mask of those that have it
};

/// A page that the cleaner stores.
struct StoreWork {
    uint32_t group = 0;
    pkv_page page = PKV_NO_PAGE;
    prefix::NodeId node = prefix::no_node;
    uint32_t generation = 0;
    uint64_t clear_generation = 0;
    pkv_tier_key key{};
    uint64_t block = 0;
    std::vector<pkv_token> tokens; ///< room for a block's
    uint32_t tiers = 0;            ///< bit mask
    pkv_retention retention = PKV_RETENTION_INIT;
    uint64_t tag = 0;
};

/// A page that was in use, and whose tiers are to know that.
struct UsedPage {
    uint32_t group = 0;
    pkv_page page = PKV_NO_PAGE;
    prefix::NodeId node = prefix::no_node;
    uint32_t generation = 0;
    pkv_tier_key key{};
    uint32_t tiers = 0;   ///< bit mask: that have its image
    uint32_t missing = 0; ///< of them, those that have lost it
};

} // namespace pkv
