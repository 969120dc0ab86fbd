// SPDX-License-Identifier: Apache-2.0
// The host kernels: scatter, gather and copy of rows. Same-type moves; every argument was checked by the caller.
#pragma once

#include "core/workers.h"
#include "layout/strides.h"

#include <cstdint>
#include <span>

namespace pkv::tensor {

/// Row i of k and v goes to slot slots[i]; slots below 0 are skipped; of equal slots the later row wins.
void write_slots(const LayerRows &layer, std::span<const int64_t> slots, const FlatRows &k, const FlatRows &v,
                 Workers *workers);

/// Token first + i, in page pages[(first + i) / page_tokens], becomes row i of k and v. A side with base nullptr is left out.
void gather_pages(const LayerRows &layer, const int32_t *pages, uint64_t first, uint64_t count, const FlatRows &k,
                  const FlatRows &v, Workers *workers);

/// Copies the first `tokens` tokens of a page, of one layer.
void copy_page(const LayerRows &layer, int32_t src, int32_t dst, uint32_t tokens);

/// The kernels in use: "avx512", "avx2", "neon" or "portable".
const char *kernel_name();

} // namespace pkv::tensor
