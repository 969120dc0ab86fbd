/* SPDX-License-Identifier: Apache-2.0 */
#include "kv.h"

#include <string.h>

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

/* The finaliser of SplitMix64: every input bit reaches every output bit. */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

void kv_tokens(uint64_t id, pkv_token *out) {
    const uint64_t base = mix(id + GOLDEN);
    for (uint64_t i = 0; i < TRACE_BLOCK_TOKENS / 2; ++i) {
        const uint64_t two = mix(base + i * GOLDEN);
        memcpy(out + 2 * i, &two, sizeof two);
    }
}

static uint64_t stream(uint64_t id, uint32_t layer, int kind) {
    return mix(mix(id) + (2 * (uint64_t)layer + (uint64_t)kind + 1) * GOLDEN);
}

/* Word i of a stream. One multiplication is enough: words need to differ, in all bytes, not to pass as random. It is a
 * bijection of i, so no two words of a stream are equal. */
static inline uint64_t word(uint64_t base, uint64_t i) {
    const uint64_t x = (base + i * GOLDEN) ^ ((base + i * GOLDEN) >> 29);
    const uint64_t y = x * UINT64_C(0xbf58476d1ce4e5b9);
    return y ^ (y >> 32);
}

void kv_fill(uint64_t id, uint32_t layer, int kind, uint64_t first, uint64_t words, uint64_t *out) {
    const uint64_t base = stream(id, layer, kind);
    for (uint64_t i = 0; i < words; ++i) out[i] = word(base, first + i);
}

uint64_t kv_wrong_bytes(uint64_t id, uint32_t layer, int kind, uint64_t first, uint64_t words, const uint64_t *got,
                        uint64_t *offset) {
    const uint64_t base = stream(id, layer, kind);
    uint64_t differing_bits = 0, wrong = 0;
    for (uint64_t i = 0; i < words; ++i) differing_bits |= got[i] ^ word(base, first + i);
    if (differing_bits == 0) return 0;
    for (uint64_t i = 0; i < words; ++i) {
        const uint64_t want = word(base, first + i);
        const unsigned char *const a = (const unsigned char *)&got[i], *const b = (const unsigned char *)&want;
        for (uint64_t n = 0; n < sizeof want; ++n)
            if (a[n] != b[n] && wrong++ == 0) *offset = i * sizeof want + n;
    }
    return wrong;
}
