// SPDX-License-Identifier: Apache-2.0
// Registration in pieces. libfabric does not say how much one registration takes, so the whole is tried, and after a refusal
// that may be about its length, halves; what was found stays known for the provider.
#include "fabric/memory.h"
#include "fabric/keys.h"

#include <algorithm>
#include <cinttypes>
#include <rdma/fi_errno.h>
#include <sys/resource.h>

using namespace pkv::fabric;

namespace {

constexpr uint64_t smallest_piece = 64 * 1024;
constexpr int key_tries = 8; ///< a random key of few bits may be taken

bool may_be_too_long(int error) {
    return error == -FI_EINVAL || error == -FI_ENOMEM || error == -FI_E2BIG || error == -FI_EMSGSIZE ||
           error == -FI_EOVERFLOW;
}

uint64_t half_of(uint64_t bytes) {
    constexpr uint64_t page = 4096; // a cut inside a page would register that page twice
    return (bytes / 2 + page - 1) / page * page;
}

} // namespace

pkv_fabric_region::~pkv_fabric_region() {
    for (Piece &piece : pieces_) {
        if (piece.lent_key != 0) provider_.domains().take_back(piece.lent_key);
        piece.registration.reset();
        provider_.registered.fetch_sub(piece.bytes, std::memory_order_relaxed);
    }
}

int pkv_fabric_region::add_piece(uint64_t begin, uint64_t bytes, bool remote) {
    if (provider_.copies()) return lend_piece(begin, bytes);
    const size_t key_size = provider_.info()->domain_attr->mr_key_size;
    fid_mr *opened = nullptr;
    int error = -FI_ENOKEY;
    uint64_t key = 0;
    for (int i = 0; i < key_tries && error == -FI_ENOKEY; ++i) {
        key = provider_.has_mode(FI_MR_PROV_KEY) ? 0 : random_key(key_size);
        if (key == 0 && !provider_.has_mode(FI_MR_PROV_KEY)) return -FI_EIO;
        error = fi_mr_reg(provider_.domain(), base_ + begin, bytes, remote ? FI_REMOTE_READ : FI_READ, 0, key, 0,
                          &opened, nullptr);
    }
    if (error != 0) return error;
    Piece piece = {begin, bytes, Fid<fid_mr>(opened), 0, nullptr, {}};
    if (remote) {
        piece.window.bytes = bytes;
        piece.window.address =
            provider_.has_mode(FI_MR_VIRT_ADDR) ? static_cast<uint64_t>(reinterpret_cast<uintptr_t>(base_ + begin)) : 0;
        if (const int failed = write_key(provider_, opened, piece.window); failed != 0) return failed;
        if (provider_.separates()) {
            if (const int failed = provider_.domains().lend({base_ + begin, bytes, key}); failed != 0) return failed;
            piece.lent_key = key;
        }
    }
    pieces_.push_back(std::move(piece)); // there is room for all that add() allows
    provider_.registered.fetch_add(bytes, std::memory_order_relaxed);
    return 0;
}

int pkv_fabric_region::lend_piece(uint64_t begin, uint64_t bytes) {
    Piece piece = {begin, bytes, nullptr, 0, Permit::make(base_ + begin, bytes), {}};
    if (piece.permit == nullptr) return -FI_EIO;
    piece.window.bytes = bytes;
    piece.window.address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(base_ + begin));
    piece.window.key_bytes = Permit::key_bytes;
    piece.permit->write_key(piece.window.key);
    pieces_.push_back(std::move(piece));
    provider_.registered.fetch_add(bytes, std::memory_order_relaxed);
    return 0;
}

pkv_status pkv_fabric_region::add(bool remote, Why why) {
    if (!remote && !provider_.has_mode(FI_MR_LOCAL)) return PKV_OK; // targets need none
    pieces_.reserve(PKV_FABRIC_MAX_REGIONS);
    uint64_t length = std::min(bytes_, provider_.max_region.load(std::memory_order_relaxed));
    for (uint64_t at = 0; at < bytes_;) {
        const uint64_t bytes = std::min(length, bytes_ - at);
        // Sums of lengths do not wrap here: what is left is at most bytes_, and a length is not 0.
        if (pieces_.size() + (bytes_ - at - 1) / length + 1 > PKV_FABRIC_MAX_REGIONS)
            return why.fail(PKV_ERR_LIMIT,
                            "%" PRIu64
                            " bytes would take more than %d registrations: provider %s takes at most %" PRIu64
                            " bytes at once",
                            bytes_, PKV_FABRIC_MAX_REGIONS, provider_.name(), length);
        const int error = add_piece(at, bytes, remote);
        if (error == 0) {
            at += bytes;
        } else if (may_be_too_long(error) && bytes > smallest_piece &&
                   pieces_.size() + (bytes_ - at - 1) / half_of(bytes) + 1 <= PKV_FABRIC_MAX_REGIONS) {
            length = half_of(bytes);
        } else {
            return refused(error, bytes, why);
        }
    }
    if (length < bytes_) provider_.max_region.store(length, std::memory_order_relaxed);
    return PKV_OK;
}

pkv_status pkv_fabric_region::refused(int error, uint64_t bytes, Why why) const {
    // Without the pieces of this region, which are about to go.
    uint64_t before = provider_.registered.load(std::memory_order_relaxed);
    for (const Piece &piece : pieces_) before -= piece.bytes;
    rlimit limit = {};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    const bool over = limit.rlim_cur != RLIM_INFINITY && (bytes_ > limit.rlim_cur || before > limit.rlim_cur - bytes_);
    if (over && (error == -FI_ENOMEM || error == -FI_EAGAIN || error == -FI_EPERM))
        return why.fail(PKV_ERR_LIMIT,
                        "provider %s locks registered memory: %" PRIu64 " bytes are needed, with %" PRIu64
                        " registered before, and the process may lock %" PRIu64 " (RLIMIT_MEMLOCK, ulimit -l): %s",
                        provider_.name(), bytes_, before, static_cast<uint64_t>(limit.rlim_cur), fi_strerror(-error));
    const auto count = provider_.info()->domain_attr->mr_cnt;
    const pkv_status status = error == -FI_ENOMEM   ? PKV_ERR_NO_MEMORY
                              : error == -FI_ENOSPC ? PKV_ERR_LIMIT
                                                    : PKV_ERR_IO;
    if (count != 0)
        return why.fail(status, "provider %s did not register %" PRIu64 " bytes (it is made for %zu registrations): %s",
                        provider_.name(), bytes, count, fi_strerror(-error));
    return why.fail(status, "provider %s did not register %" PRIu64 " bytes: %s", provider_.name(), bytes,
                    fi_strerror(-error));
}

void *pkv_fabric_region::descriptor(const char *data, uint64_t &bytes) const {
    const auto at = static_cast<uint64_t>(data - base_);
    if (pieces_.empty()) {
        bytes = bytes_ - at;
        return nullptr;
    }
    auto next = std::upper_bound(pieces_.begin(), pieces_.end(), at,
                                 [](uint64_t offset, const Piece &piece) { return offset < piece.begin; });
    const Piece &piece = *std::prev(next);
    bytes = piece.begin + piece.bytes - at;
    return fi_mr_desc(piece.registration.get());
}

uint32_t pkv_fabric_region::windows(pkv_fabric_window *windows, uint32_t capacity) const {
    uint32_t count = 0;
    for (const Piece &piece : pieces_) {
        if (piece.window.key_bytes == 0) continue; // a target
        if (count < capacity) windows[count] = piece.window;
        ++count;
    }
    return count;
}
