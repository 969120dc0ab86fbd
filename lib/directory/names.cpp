// SPDX-License-Identifier: Apache-2.0
#include "directory/names.h"

#include "directory/server.h"

#include <cstring>
#include <sodium.h>

namespace pkv::directory {
namespace {

constexpr char domain[] = "pagedkv directory 1";
constexpr char record_version = 1;

std::string hex(const uint8_t *bytes, size_t count) {
    std::string text(2 * count + 1, 0);
    sodium_bin2hex(text.data(), text.size(), bytes, count);
    text.pop_back();
    return text;
}

void add(crypto_generichash_state &hash, uint32_t value) {
    uint8_t bytes[4];
    for (int i = 0; i < 4; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
    crypto_generichash_update(&hash, bytes, sizeof bytes);
}

} // namespace

Names::Names(const Scope &scope, std::string prefix) : prefix_(std::move(prefix)) {
    std::array<uint8_t, 64> names;
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, scope.cluster_key.data(), scope.cluster_key.size(), names.size());
    crypto_generichash_update(&hash, reinterpret_cast<const uint8_t *>(domain), sizeof domain - 1);
    add(hash, scope.protocol);
    add(hash, scope.image_format);
    crypto_generichash_update(&hash, scope.identity.data(), scope.identity.size());
    crypto_generichash_update(&hash, reinterpret_cast<const uint8_t *>(scope.provider.data()), scope.provider.size());
    crypto_generichash_final(&hash, names.data(), names.size());
    std::memcpy(image_key_.data(), names.data(), image_key_.size());
    std::memcpy(record_key_.data(), names.data() + image_key_.size(), record_key_.size());
    sodium_memzero(names.data(), names.size());
}

Names::~Names() {
    sodium_memzero(image_key_.data(), image_key_.size());
    sodium_memzero(record_key_.data(), record_key_.size());
}

std::string Names::of_image(const pkv_tier_key &key) const {
    uint8_t digest[16];
    crypto_generichash(digest, sizeof digest, key.bytes, sizeof key.bytes, image_key_.data(), image_key_.size());
    return prefix_ + ":k:" + hex(digest, sizeof digest);
}

std::string Names::of_node(const NodeId &id) const { return prefix_ + ":n:" + hex(id.data(), id.size()); }

Names::Proof Names::prove(const NodeId &id, std::string_view record) const {
    Proof proof;
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, record_key_.data(), record_key_.size(), proof.size());
    crypto_generichash_update(&hash, reinterpret_cast<const uint8_t *>(record.data()), record.size());
    crypto_generichash_update(&hash, id.data(), id.size());
    crypto_generichash_final(&hash, proof.data(), proof.size());
    return proof;
}

std::string Names::record(const NodeId &id, std::string_view address) const {
    std::string record{record_version, static_cast<char>(address.size())};
    record += address;
    const Proof proof = prove(id, record);
    record.append(reinterpret_cast<const char *>(proof.data()), proof.size());
    return record;
}

bool Names::read_record(const NodeId &id, std::string_view record, std::string &address) const {
    constexpr size_t head = 2, proof_bytes = sizeof(Proof);
    if (record.size() < head + proof_bytes || record.size() > longest_record || record[0] != record_version)
        return false;
    const std::string_view proven = record.substr(0, record.size() - proof_bytes);
    if (static_cast<uint8_t>(record[1]) != proven.size() - head) return false;
    const Proof proof = prove(id, proven);
    if (sodium_memcmp(proof.data(), record.data() + proven.size(), proof.size()) != 0) return false;
    address = proven.substr(head);
    return is_node_address(address);
}

} // namespace pkv::directory
