// SPDX-License-Identifier: Apache-2.0
// The host kernels for every other machine: the C library's memcpy for each run.
#include "tensor/cpu/rows.h"

#include <cstring>

namespace pkv::tensor::cpu {
namespace {

void copy_nest(const RowNest &nest) {
    for (uint64_t o = 0; o < nest.outer; ++o) {
        std::byte *const dst = nest.dst + o * nest.outer_dst;
        const std::byte *const src = nest.src + o * nest.outer_src;
        for (uint64_t i = 0; i < nest.inner; ++i) {
            std::memcpy(dst + i * nest.inner_dst, src + i * nest.inner_src, nest.bytes);
        }
    }
}

} // namespace

const Kernels kPortable = {"portable", copy_nest, copy_nest, [] {}};

} // namespace pkv::tensor::cpu
