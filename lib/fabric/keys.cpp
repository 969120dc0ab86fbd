// SPDX-License-Identifier: Apache-2.0
// A key of 64 bits is sent as such. A raw key is sent whole, after the base address that mapping it takes.
#include "fabric/keys.h"

#include <algorithm>
#include <cstring>
#include <rdma/fi_errno.h>
#include <sys/random.h>

namespace pkv::fabric {

uint64_t random_key(size_t key_size) {
    const uint64_t mask = key_size >= sizeof(uint64_t) ? UINT64_MAX : (uint64_t{1} << (8 * key_size)) - 1;
    uint64_t key = 0;
    do {
        if (getrandom(&key, sizeof key, 0) != static_cast<ssize_t>(sizeof key)) return 0;
        key &= mask;
    } while (key == 0 || key == FI_KEY_NOTAVAIL);
    return key;
}

int write_key(const Provider &provider, fid_mr *region, pkv_fabric_window &window) {
    if (!provider.has_mode(FI_MR_RAW)) {
        const uint64_t key = fi_mr_key(region);
        if (key == FI_KEY_NOTAVAIL) return -FI_ENOKEY;
        std::memcpy(window.key, &key, sizeof key);
        window.key_bytes = sizeof key;
        return 0;
    }
    uint64_t base = 0;
    size_t bytes = sizeof window.key - sizeof base;
    if (const int error = fi_mr_raw_attr(region, &base, window.key + sizeof base, &bytes, 0); error != 0) return error;
    if (bytes > sizeof window.key - sizeof base) return -FI_ETOOSMALL;
    std::memcpy(window.key, &base, sizeof base);
    window.key_bytes = static_cast<uint32_t>(sizeof base + bytes);
    return 0;
}

PeerKeys::~PeerKeys() {
    for (const Mapped &mapped : mapped_) fi_mr_unmap_key(provider_.domain(), mapped.key);
}

pkv_status PeerKeys::find(const pkv_fabric_window &window, uint64_t &key) {
    if (!provider_.has_mode(FI_MR_RAW)) {
        if (window.key_bytes != sizeof key) return PKV_ERR_INVALID;
        std::memcpy(&key, window.key, sizeof key);
        return PKV_OK;
    }
    uint64_t base = 0;
    if (window.key_bytes <= sizeof base || window.key_bytes > sizeof window.key) return PKV_ERR_INVALID;
    for (const Mapped &mapped : mapped_) {
        if (mapped.raw.size() == window.key_bytes &&
            std::memcmp(mapped.raw.data(), window.key, window.key_bytes) == 0) {
            key = mapped.key;
            return PKV_OK;
        }
    }
    mapped_.reserve(mapped_.size() + 1);
    std::vector<uint8_t> raw(window.key, window.key + window.key_bytes);
    std::memcpy(&base, raw.data(), sizeof base);
    if (fi_mr_map_raw(provider_.domain(), base, raw.data() + sizeof base, raw.size() - sizeof base, &key, 0) != 0)
        return PKV_ERR_IO;
    mapped_.push_back({std::move(raw), key});
    return PKV_OK;
}

} // namespace pkv::fabric
