// SPDX-License-Identifier: Apache-2.0
// BLAKE2b-256 (RFC 7693), where equality is decided by a digest alone.
#pragma once

#include <pagedkv/types.h>

#include <cstdint>
#include <sodium.h>

namespace pkv {

class Blake2b {
  public:
    Blake2b() { crypto_generichash_init(&state_, nullptr, 0, PKV_DIGEST_BYTES); }
    void add(const void *data, uint64_t size) {
        if (size != 0) crypto_generichash_update(&state_, static_cast<const unsigned char *>(data), size);
    }
    void add(uint64_t value) { add(&value, sizeof value); }
    void finish(uint8_t *digest) {
        crypto_generichash_final(&state_, digest, PKV_DIGEST_BYTES);
    } ///< PKV_DIGEST_BYTES of them

  private:
    crypto_generichash_state state_;
};

} // namespace pkv
