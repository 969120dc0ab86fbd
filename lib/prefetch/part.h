// SPDX-License-Identifier: Apache-2.0
// What a session loads: page images, as a whole or layer by layer.
#pragma once

#include "device/fences.h"
#include "layout/image.h"
#include "prefix/keys.h"
#include "tier/stack.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace pkv {

struct Part;

/// A page image that sequences of the session may need, and what is known of it. Guarded by the loader's mutex, but for what
/// is fixed.
struct StoredImage {
    // Fixed:
    pkv_tier_key key{};
    uint32_t group = 0;
    uint64_t block = 0;
    bool is_private = false;
    std::vector<pkv_token> tokens; ///< of the block; empty when they are not known

    int8_t tier = no_tier; ///< where it was, pinned, when it was seen last
    std::shared_ptr<const ImageHead>
        head;                    ///< once it was loaded; another one takes its place when the image is stored anew
    std::shared_ptr<Part> whole; ///< the load of all of it, if there is one
    uint64_t needed = 0;         ///< scratch of Blocks
    // Scratch of the pipeline.
    uint64_t unit = 0;      ///< the unit that has a part of it,
    uint32_t unit_part = 0; ///< and which one
    std::shared_ptr<Part> carried;
};

constexpr uint32_t all_layers = UINT32_MAX;

enum class PartState {
    idle,    ///< wanted, not begun
    loading, ///< begun: with a tier, or being put in place
    ready,
    failed,
    dropped, ///< not wanted any more
};

/// One load. Guarded by the loader's mutex, but for `busy` parts: their thread may read what is fixed, and write `slot`.
struct Part {
    // Fixed once it is wanted:
    std::shared_ptr<StoredImage> image;
    uint32_t layer = all_layers;
    pkv_page page = PKV_NO_PAGE; ///< where it goes: this page, or
    uint32_t to_layer = 0;       ///< of a slice, this layer of it
    uint32_t slot = 0;           ///< of a slice: its place in its buffer
    Fences after;                ///< on a device: its target is written after this
    uint64_t wanted_ns = 0;
    std::function<void()> on_end; ///< under the lock, when it is ready or has failed

    PartState state = PartState::idle;
    pkv_status status = PKV_OK; ///< of a failed one
    bool device_failed = false; ///< its bytes came, and could not be put in place
    int8_t tier = no_tier;      ///< that is asked, or gave it
    bool urgent = false;
    bool used = false; ///< asked for
    // Of whole blocks:
    uint32_t wanters = 0;
    bool own_page = false;         ///< the page was taken for the load; else
    const void *kept_by = nullptr; ///< this table has it in its list, and only that one can take it over
    uint32_t busy = 0;             ///< threads at work on it: its target must not be used for anything else
    uint64_t begun_ns = 0;
    uint64_t bytes = 0;     ///< loaded for it
    uint64_t in_flight = 0; ///< bytes counted as such
    // The request under way, or the last one.
    std::shared_ptr<Request> request;
    std::shared_ptr<std::byte> memory; ///< where the tier puts the bytes
    uint32_t asks = 0;                 ///< requests so far
    bool asked_head = false;           ///< it begins with the image's header
    bool asked_slice = false;          ///< it has the slice, or all of the image
    bool head_again = false; ///< the slice was not the one that the known header tells of: it is read anew, once
    uint64_t asked_bytes = 0;
    pkv_status answer = PKV_OK; ///< written by the tier's thread before the part arrives
    uint64_t answered_bytes = 0;
    std::shared_ptr<Part> next_arrived;

    bool ended() const { return state == PartState::ready || state == PartState::failed; }
};

} // namespace pkv
