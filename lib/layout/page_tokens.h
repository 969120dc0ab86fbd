// SPDX-License-Identifier: Apache-2.0
// How many tokens a page has, as what it mostly is: a divisor.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>

namespace pkv {

/// Converts to and from the number. A decode step divides by it ten times for each sequence, which takes longer than all the
/// rest of some of its calls; powers of two, as most are, are shifts instead.
class PageTokens {
  public:
    constexpr PageTokens(uint32_t tokens = 1) : tokens_(tokens) {
        if (std::has_single_bit(tokens)) shift_ = static_cast<uint8_t>(std::countr_zero(tokens));
    }
    constexpr operator uint32_t() const { return tokens_; }

    template <std::unsigned_integral Number> friend constexpr uint64_t operator/(Number number, PageTokens by) {
        return by.shift_ != no_shift ? uint64_t{number} >> by.shift_ : uint64_t{number} / by.tokens_;
    }
    template <std::unsigned_integral Number> friend constexpr uint64_t operator%(Number number, PageTokens by) {
        return by.shift_ != no_shift ? number & (uint64_t{by.tokens_} - 1) : uint64_t{number} % by.tokens_;
    }

  private:
    static constexpr uint8_t no_shift = 255;
    uint32_t tokens_;
    uint8_t shift_ = no_shift;
};

/// Blocks that hold `tokens` tokens; right for every value.
constexpr uint64_t blocks_for(uint64_t tokens, PageTokens page_tokens) {
    return tokens / page_tokens + (tokens % page_tokens != 0 ? 1 : 0);
}

} // namespace pkv
