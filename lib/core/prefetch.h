// SPDX-License-Identifier: Apache-2.0
// Asking for memory before it is needed.
#pragma once

namespace pkv {

/// Begins to load a cache line that will be read, or with `write` taken over to be written. The empty statement behind it
/// counts as a side effect: without one GCC takes a function that only prefetches for pure, and drops the calls to it.
template <bool write = false> inline void prefetch(const void *line) {
    __builtin_prefetch(line, write ? 1 : 0);
    asm volatile("");
}

} // namespace pkv
