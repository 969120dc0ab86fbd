// SPDX-License-Identifier: Apache-2.0
// What identifies a prefix: namespace digests, and the chained keys of its blocks.
#pragma once

#include <pagedkv/pool.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pkv::prefix {

/// BLAKE2b-256 of a namespace's tagged, length-prefixed parts.
using Digest = std::array<uint8_t, PKV_DIGEST_BYTES>;

/// Key of a block: 128 bits that depend on all tokens before it and on its namespace.
struct Key {
    uint64_t low = 0;
    uint64_t high = 0;
    bool operator==(const Key &) const = default;
};

/// pkv_digest().
void digest_parts(std::span<const pkv_bytes> parts, uint8_t *digest);

/// Checks a namespace (nullptr = all parts empty) and takes its digest.
pkv_status namespace_digest(const pkv_namespace *ns, Digest &digest);

/// A media digest, as a prompt carries it.
struct Media {
    uint64_t position = 0;
    uint64_t num_tokens = 0;
    std::string digest;
};

/// A prompt after checking: whose prefix, which tokens, which media. Tokens are the caller's.
struct Prompt {
    Digest ns{};
    std::span<const pkv_token> tokens;
    std::vector<Media> media;
};
pkv_status read_prompt(const pkv_prompt *in, Prompt &out);

/// A namespace in 64 bits, for tiers that forget by namespace: neither 0 nor UINT64_MAX. Namespaces may share one.
uint64_t namespace_tag(const Digest &ns);

/// Digests of whole prefixes, for what leaves the process: that of a namespace's start, and from there block by block,
/// BLAKE2b-256 of the digest before, the block's tokens and its extras. Equal digests mean equal prefixes.
Digest prefix_root(const Digest &ns, uint32_t page_tokens);
Digest prefix_next(const Digest &parent, std::span<const pkv_token> tokens, const std::string &extras);

inline std::span<const pkv_token> block_tokens(std::span<const pkv_token> tokens, uint64_t block,
                                               uint32_t page_tokens) {
    return tokens.subspan(block * page_tokens, page_tokens);
}

/// The extra key parts of the block that holds tokens [first, first + count): the media that begin in it.
std::string block_extras(std::span<const Media> media, uint64_t first, uint64_t count);

/// Computes keys under a secret. XXH3-128 (xxHash 0.8 specification) with a secret derived from the seed: who does not know
/// the secret cannot make collisions on purpose, and a collision is a miss in any case (see index.h).
class KeyMaker {
  public:
    void set_seed(uint64_t seed, bool equal_keys);
    Key root(const Digest &digest) const;
    Key next(const Key &parent, std::span<const pkv_token> tokens, const std::string &extras) const;

  private:
    std::array<uint8_t, 192> secret_{};
    bool equal_keys_ = false;
};

} // namespace pkv::prefix
