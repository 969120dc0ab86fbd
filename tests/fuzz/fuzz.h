// SPDX-License-Identifier: Apache-2.0
// A fuzz target: one file, which has these two. `make fuzz` gives it to libFuzzer; replay.cpp runs what was found so far, seeds and
// changed copies of both, as part of `make check`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

/// Takes any bytes. What must not happen ends the program.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

using AddSeed = std::function<void(const void *data, size_t size)>;
/// Inputs that are what they should be, for the fuzzer to begin with.
void add_seeds(const AddSeed &add);

/// As assert(), in every build.
inline void must(bool condition) {
    if (!condition) __builtin_trap();
}
