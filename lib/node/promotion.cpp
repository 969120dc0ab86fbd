// SPDX-License-Identifier: Apache-2.0
#include "node/promotion.h"

#include <cstring>
#include <new>

namespace pkv::node {
namespace {

/// The images say nothing of their namespace, and no live sequence of this process has them: any tag that is neither private nor
/// all will do.
constexpr uint64_t tag = 1;

} // namespace

void Promotion::offer(TierStack &tiers, const pkv_tier_key &key, const std::byte *image, uint64_t bytes,
                      const std::shared_ptr<Counters> &counters) noexcept try {
    // The room is given back with the copy, whatever becomes of the store.
    struct Room {
        std::shared_ptr<std::atomic<uint64_t>> under_way;
        uint64_t bytes;
        ~Room() { under_way->fetch_sub(bytes, std::memory_order_relaxed); }
    };
    const auto room = std::make_shared<Room>(Room{under_way_, 0});
    room->bytes = bytes;
    if (under_way_->fetch_add(bytes, std::memory_order_relaxed) + bytes > most_bytes) return;
    constexpr std::align_val_t alignment{PKV_IMAGE_ALIGNMENT};
    const std::shared_ptr<std::byte> copy(static_cast<std::byte *>(::operator new(bytes, alignment)),
                                          [room](std::byte *memory) { ::operator delete(memory, alignment); });
    std::memcpy(copy.get(), image, bytes);
    pkv_retention retention = PKV_RETENTION_INIT;
    tiers.store(0, key, copy, bytes, retention, tag, false, [counters](Request &request) {
        if (request.status(0) == PKV_OK) counters->promoted.fetch_add(1, std::memory_order_relaxed);
    });
} catch (const std::bad_alloc &) {
    // A copy that is not made costs a later reader some time.
}

} // namespace pkv::node
