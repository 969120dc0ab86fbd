// SPDX-License-Identifier: Apache-2.0
// What a pool and the sequences over it tell each other: blocks, where they stand, and what an admission found.
#pragma once

#include "device/fences.h"
#include "layout/geometry.h"
#include "prefix/index.h"
#include "tier/stack.h"

#include <pagedkv/pool.h>

#include <array>
#include <vector>

namespace pkv {

/// How far a sequence is published: where its next block goes in the index.
struct Frontier {
    prefix::NodeId root = prefix::no_node; ///< no_node: not admitted
    uint64_t blocks = 0;                   ///< blocks published, or found published
    prefix::Key key;                       ///< of the last of them; of the root when there is none
    prefix::NodeId node = prefix::no_node; ///< of the last of them
    uint32_t generation = 0;               ///< of `node`; another one means that the node is gone
    prefix::Digest digest{};               ///< in pools with tiers: of the prefix up to `blocks`
};

/// A block of a sequence whose bytes are in tiers, not in pages.
struct AbsentBlock {
    prefix::Digest digest{};                   ///< names its images: see ImageFormat::key()
    uint32_t groups = 0;                       ///< a bit for each group whose image it needs
    std::array<int8_t, PKV_MAX_GROUPS> tier{}; ///< where the image of each group is, pinned
    bool is_private = false;                   ///< the images belong to one sequence and go with it
};

/// A page for each layer group, PKV_NO_PAGE where there is none.
using GroupPages = std::array<pkv_page, PKV_MAX_GROUPS>;

using GroupCounts = std::array<uint64_t, PKV_MAX_GROUPS>;

/// The block tables of one sequence: one list a group, all of one length.
using BlockLists = std::array<std::vector<pkv_page>, PKV_MAX_GROUPS>;

/// How far Pool::publish_sequence() came.
enum class Publication {
    tried, ///< all of it, or up to a block whose page has another name
    full,  ///< up to where the index was full: worth another try later
    over,  ///< the namespace was cleared: nothing of the sequence will be found any more
};

/// What Pool::admit() was asked for, and what it found.
struct Admission {
    uint64_t max_match = 0; ///< tokens
    uint64_t prompt_tokens = 0;
    uint64_t reserve_tokens = 0; ///< room after the matched blocks; 0 = the rest of the prompt
    uint64_t watermark = 0;
    bool counted = true; ///< in the statistics of requests
    bool retry = false;
    bool partial = false;
    bool use_tiers = false;

    uint64_t matched_blocks = 0; ///< in pages
    std::vector<AbsentBlock>
        absent; ///< those that match after them, in tiers; their pages stand in the lists, still empty
    uint64_t new_blocks = 0;
    uint64_t partial_tokens = 0; ///< tokens that matched in the block after
    GroupPages partial_pages{};  ///< where they lie, each with a count that the caller releases
    Fences waits;                ///< of device pools: what uses of all these pages come after
};

/// A caller's K or V, checked.
struct CallerRows {
    FlatRows rows; ///< base nullptr: not given
    int32_t dtype = 0;
};
struct CallerTensors {
    CallerRows k;
    CallerRows v;
};

/// Tokens [first, first + count) of a sequence, and the row where they begin at the caller's.
struct SequenceRows {
    const pkv_page *pages = nullptr;
    uint64_t first = 0;
    uint64_t count = 0;
    uint64_t row = 0;
};

/// Retention of a range of tokens of one sequence.
struct RetentionRange {
    uint64_t begin = 0;
    uint64_t end = 0;
    pkv_retention retention{};
};

} // namespace pkv
