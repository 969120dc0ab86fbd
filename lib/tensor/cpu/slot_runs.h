// SPDX-License-Identifier: Apache-2.0
// A list of slots as runs of neighbouring ones, split among the tasks of a shared write.
#pragma once

#include "layout/strides.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pkv::tensor::cpu {

/// Slots in units of neighbouring tokens: a page, or more where pages follow each other without a gap.
class Units {
  public:
    Units(const PagedRows &rows, uint64_t linear_tokens) : strides_(rows.strides), tokens_(rows.page_tokens) {
        if (rows.strides.page == rows.page_tokens * rows.strides.token) {
            tokens_ = linear_tokens;
            strides_.page = linear_tokens * rows.strides.token;
        }
        shift_ = std::has_single_bit(tokens_) ? std::countr_zero(tokens_) : -1;
    }

    uint64_t tokens() const { return tokens_; }
    uint64_t unit(uint64_t slot) const { return shift_ >= 0 ? slot >> shift_ : slot / tokens_; }
    uint64_t offset(uint64_t unit, uint64_t token) const { return row_offset(strides_, unit, token, 0); }

  private:
    Strides strides_;
    uint64_t tokens_;
    int shift_;
};

/// The part of the units that one task writes. Rows with equal slots fall to one task, which keeps their order.
struct Part {
    uint64_t index = 0;
    uint64_t parts = 1;

    bool has(uint64_t unit) const {
        // Multiplicative hashing: page ids in use may well share their low bits.
        const uint64_t hash = (unit * 0x9E3779B97F4A7C15u) >> 32;
        return parts == 1 || ((hash * parts) >> 32) == index;
    }
};

/// Rows [first, first + tokens) of the caller's go to neighbouring slots, from `token` of `unit` on. No tokens: the
/// end.
struct SlotRun {
    uint64_t first = 0;
    uint64_t tokens = 0;
    uint64_t unit = 0;
    uint64_t token = 0;
};

/// The first run at or after row i that falls to `part`; slots below 0 are skipped.
inline SlotRun find_run(const Units &units, std::span<const int64_t> slots, uint64_t i, Part part) {
    for (const uint64_t n = slots.size(); i < n; ++i) {
        if (slots[i] < 0) {
            continue;
        }
        const uint64_t slot = static_cast<uint64_t>(slots[i]);
        const uint64_t unit = units.unit(slot);
        if (!part.has(unit)) {
            continue;
        }
        const uint64_t token = slot - unit * units.tokens();
        const uint64_t most = std::min(n - i, units.tokens() - token);
        uint64_t run = 1;
        while (run < most && static_cast<uint64_t>(slots[i + run]) == slot + run) {
            ++run;
        }
        return {i, run, unit, token};
    }
    return {};
}

} // namespace pkv::tensor::cpu
