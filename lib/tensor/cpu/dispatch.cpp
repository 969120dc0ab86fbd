// SPDX-License-Identifier: Apache-2.0
// Chooses the host kernels once, at the first use: the fastest that the machine runs, or those that the environment
// names.
#include "tensor/cpu/rows.h"
#include "tensor/kernels.h"

#include <cstdlib>
#include <cstring>

namespace pkv::tensor {
namespace cpu {
namespace {

struct Candidate {
    const Kernels *kernels;
    bool runs;   ///< the machine can run it
    bool choose; ///< and it is worth choosing unasked
};

const Kernels &choose() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
    // The first processors with AVX-512 lower their clock for 64-byte vectors; those with VBMI2 (Ice Lake, Zen 4 and
    // later) do not.
    const bool fast512 = avx512 && __builtin_cpu_supports("avx512vbmi2") != 0;
    const bool avx2 = __builtin_cpu_supports("avx2") != 0;
    const Candidate candidates[] = {{&kAvx512, avx512, fast512}, {&kAvx2, avx2, true}, {&kPortable, true, true}};
#elif defined(__aarch64__)
    const Candidate candidates[] = {{&kNeon, true, true}, {&kPortable, true, true}};
#else
    const Candidate candidates[] = {{&kPortable, true, true}};
#endif
    const char *const wish = std::getenv("PKV_CPU_KERNELS");
    const Kernels *best = nullptr;
    for (const Candidate &c : candidates) {
        if (!c.runs) {
            continue;
        }
        if (wish != nullptr && std::strcmp(wish, c.kernels->name) == 0) {
            return *c.kernels;
        }
        if (best == nullptr && c.choose) {
            best = c.kernels;
        }
    }
    return *best;
}

} // namespace

const Kernels &kernels() {
    static const Kernels &chosen = choose();
    return chosen;
}

} // namespace cpu

const char *kernel_name() { return cpu::kernels().name; }

} // namespace pkv::tensor
