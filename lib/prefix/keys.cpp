// SPDX-License-Identifier: Apache-2.0
#include "prefix/keys.h"

#include "core/blake2b.h"
#include "core/options.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

// Header-only use: a short hash inlined costs half of a call into the shared library.
#define XXH_INLINE_ALL
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

namespace pkv::prefix {
namespace {

constexpr uint64_t max_tokens = uint64_t{1} << 40;
constexpr uint64_t max_media = uint64_t{1} << 20;
constexpr uint64_t max_part_bytes = uint64_t{1} << 20;

// Tags keep the kinds of input apart: an adapter never reads as a salt, a block never as a root.
enum class Tag : uint64_t {
    model = 1,
    adapter = 2,
    adapter_id = 3,
    adapter_generation = 4,
    salt = 5,
    prefix_root = 6,
    prefix_block = 7
};

/// Blake2b with parts that begin with their tag and size.
class TaggedBlake2b : public Blake2b {
  public:
    void add_part(Tag tag, const void *data, uint64_t size) {
        add(static_cast<uint64_t>(tag));
        add(size);
        add(data, size);
    }
};

void append(std::string &out, const void *data, size_t size) { out.append(static_cast<const char *>(data), size); }

pkv_status check_part(const pkv_bytes &part, const char *name) {
    if (part.size > max_part_bytes)
        return fail(PKV_ERR_LIMIT, "namespace: %s has %" PRIu64 " bytes, more than %" PRIu64, name, part.size,
                    max_part_bytes);
    if (part.data == nullptr && part.size != 0)
        return fail(PKV_ERR_INVALID, "namespace: %s is NULL but has %" PRIu64 " bytes", name, part.size);
    return PKV_OK;
}

pkv_status read_media(const pkv_prompt &in, std::vector<Media> &out) {
    if (in.num_media > max_media) return fail(PKV_ERR_LIMIT, "prompt: %" PRIu64 " media, more than 2^20", in.num_media);
    if (in.num_media != 0 && in.media == nullptr) return fail(PKV_ERR_INVALID, "prompt: media is NULL");
    out.reserve(in.num_media);
    for (uint64_t i = 0; i < in.num_media; ++i) {
        const pkv_media &media = in.media[i];
        if (media.position >= in.num_tokens || (i > 0 && media.position < in.media[i - 1].position))
            return fail(PKV_ERR_INVALID,
                        "prompt: media[%" PRIu64 "].position %" PRIu64 " is not ascending below num_tokens %" PRIu64, i,
                        media.position, in.num_tokens);
        if (media.digest.size == 0 || media.digest.size > PKV_MAX_MEDIA_DIGEST || media.digest.data == nullptr)
            return fail(PKV_ERR_INVALID, "prompt: media[%" PRIu64 "].digest has %" PRIu64 " bytes, not 1 to %d", i,
                        media.digest.size, PKV_MAX_MEDIA_DIGEST);
        out.push_back({media.position, media.num_tokens,
                       std::string(static_cast<const char *>(media.digest.data), media.digest.size)});
    }
    return PKV_OK;
}

} // namespace

void digest_parts(std::span<const pkv_bytes> parts, uint8_t *digest) {
    TaggedBlake2b hash;
    hash.add(parts.size());
    for (const pkv_bytes &part : parts) {
        hash.add(part.size);
        hash.add(part.data, part.size);
    }
    hash.finish(digest);
}

pkv_status namespace_digest(const pkv_namespace *ns, Digest &digest) {
    pkv_namespace known = PKV_NAMESPACE_INIT;
    if (ns != nullptr) PKV_TRY(read_struct(ns, known, "namespace"));
    PKV_TRY(check_part(known.model, "model"));
    PKV_TRY(check_part(known.adapter, "adapter"));
    PKV_TRY(check_part(known.salt, "salt"));
    TaggedBlake2b hash;
    hash.add_part(Tag::model, known.model.data, known.model.size);
    hash.add_part(Tag::adapter, known.adapter.data, known.adapter.size);
    hash.add_part(Tag::adapter_id, &known.adapter_id, sizeof known.adapter_id);
    hash.add_part(Tag::adapter_generation, &known.adapter_generation, sizeof known.adapter_generation);
    hash.add_part(Tag::salt, known.salt.data, known.salt.size);
    hash.finish(digest.data());
    return PKV_OK;
}

uint64_t namespace_tag(const Digest &ns) {
    uint64_t tag;
    std::memcpy(&tag, ns.data(), sizeof tag);
    return tag == 0 || tag == UINT64_MAX ? 1 : tag;
}

Digest prefix_root(const Digest &ns, uint32_t page_tokens) {
    Digest digest;
    TaggedBlake2b hash;
    hash.add_part(Tag::prefix_root, ns.data(), ns.size());
    hash.add(page_tokens);
    hash.finish(digest.data());
    return digest;
}

Digest prefix_next(const Digest &parent, std::span<const pkv_token> tokens, const std::string &extras) {
    Digest digest;
    TaggedBlake2b hash;
    hash.add_part(Tag::prefix_block, parent.data(), parent.size());
    hash.add(tokens.size_bytes());
    hash.add(tokens.data(), tokens.size_bytes());
    hash.add(extras.size());
    hash.add(extras.data(), extras.size());
    hash.finish(digest.data());
    return digest;
}

pkv_status read_prompt(const pkv_prompt *in, Prompt &out) {
    pkv_prompt known;
    PKV_TRY(read_struct(in, known, "prompt"));
    if (known.num_tokens > max_tokens)
        return fail(PKV_ERR_LIMIT, "prompt: %" PRIu64 " tokens, more than 2^40", known.num_tokens);
    if (known.num_tokens != 0 && known.tokens == nullptr)
        return fail(PKV_ERR_INVALID, "prompt: tokens is NULL but num_tokens is %" PRIu64, known.num_tokens);
    PKV_TRY(namespace_digest(known.ns, out.ns));
    out.tokens = {known.tokens, known.num_tokens};
    return read_media(known, out.media);
}

std::string block_extras(std::span<const Media> media, uint64_t first, uint64_t count) {
    std::string out;
    auto begin = std::lower_bound(media.begin(), media.end(), first,
                                  [](const Media &item, uint64_t position) { return item.position < position; });
    for (; begin != media.end() && begin->position < first + count; ++begin) {
        const uint64_t fields[] = {begin->position - first, begin->num_tokens, begin->digest.size()};
        append(out, fields, sizeof fields);
        out += begin->digest;
    }
    return out;
}

void KeyMaker::set_seed(uint64_t seed, bool equal_keys) {
    static_assert(sizeof secret_ == XXH_SECRET_DEFAULT_SIZE);
    XXH3_generateSecret_fromSeed(secret_.data(), seed);
    equal_keys_ = equal_keys;
}

Key KeyMaker::root(const Digest &digest) const {
    const XXH128_hash_t hash = XXH3_128bits_withSecret(digest.data(), digest.size(), secret_.data(), secret_.size());
    return {hash.low64, hash.high64};
}

Key KeyMaker::next(const Key &parent, std::span<const pkv_token> tokens, const std::string &extras) const {
    if (equal_keys_) return {7, 7};
    // One flat buffer: parent key, length and bytes of the tokens, length and bytes of the extras.
    constexpr size_t head_bytes = sizeof(Key) + 2 * sizeof(uint64_t);
    const uint64_t token_bytes = tokens.size_bytes();
    const uint64_t extra_bytes = extras.size();
    const size_t total = head_bytes + token_bytes + extra_bytes;
    alignas(64) char small[1024];
    std::string large;
    char *buffer = small;
    if (total > sizeof small) {
        large.resize(total);
        buffer = large.data();
    }
    std::memcpy(buffer, &parent, sizeof parent);
    std::memcpy(buffer + sizeof(Key), &token_bytes, sizeof token_bytes);
    std::memcpy(buffer + sizeof(Key) + sizeof(uint64_t), &extra_bytes, sizeof extra_bytes);
    std::memcpy(buffer + head_bytes, tokens.data(), token_bytes);
    if (extra_bytes != 0) std::memcpy(buffer + head_bytes + token_bytes, extras.data(), extra_bytes);
    const XXH128_hash_t hash = XXH3_128bits_withSecret(buffer, total, secret_.data(), secret_.size());
    return {hash.low64, hash.high64};
}

} // namespace pkv::prefix
