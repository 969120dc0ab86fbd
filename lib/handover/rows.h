// SPDX-License-Identifier: Apache-2.0
// Pieces of a sequence: the rows of a range of tokens and of heads of one layer, between pages and a buffer. In the buffer:
// K rows [token, head], V rows [token, head], and with a scale for each row the floats of K, then of V, [token, head].
#pragma once

#include "pool/pool.h"

#include <cstddef>
#include <span>

namespace pkv::handover {

struct RowRange {
    uint32_t group = 0;
    uint32_t layer = 0;
    uint32_t first_head = 0; ///< of those that the pool has
    uint32_t heads = 0;
    uint64_t first = 0; ///< token
    uint64_t count = 0;
};

/// Bytes of such a piece.
uint64_t row_bytes(const Geometry &geometry, uint32_t heads, uint64_t tokens);

/// `pages` are those of the blocks from first / page_tokens on; all of them are there.
void read_rows(const Pool &pool, const RowRange &range, std::span<const pkv_page> pages, std::byte *out);
void write_rows(const Pool &pool, const RowRange &range, std::span<const pkv_page> pages, const std::byte *in);

} // namespace pkv::handover
