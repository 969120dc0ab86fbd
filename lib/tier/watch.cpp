// SPDX-License-Identifier: Apache-2.0
#include "tier/watch.h"

#include <algorithm>
#include <new>

namespace pkv {

bool SeenImages::has(const pkv_tier_key &key) {
    const Lock lock(mutex_);
    return places_.find(key) != places_.end();
}

void SeenImages::add(const pkv_tier_key &key, uint64_t tag) {
    if (seen_.size() >= most_seen) return;
    try {
        if (seen_.size() == seen_.capacity()) seen_.reserve(std::max<size_t>(64, 2 * seen_.size()));
        if (places_.emplace(key, seen_.size()).second) seen_.push_back({key, tag});
    } catch (const std::bad_alloc &) { // one that nobody is told of
    }
}

/// The last one takes its place: whoever lists from the end on has been there.
bool SeenImages::erase(const pkv_tier_key &key) {
    const auto at = places_.find(key);
    if (at == places_.end()) return false;
    const size_t place = at->second;
    places_.erase(at);
    if (place + 1 != seen_.size()) {
        seen_[place] = seen_.back();
        places_.find(seen_[place].key)->second = place;
    }
    seen_.pop_back();
    return true;
}

void SeenImages::forget(const pkv_tier_key &key) {
    const Lock lock(mutex_);
    if (erase(key)) watches_.changed(key);
}

uint64_t SeenImages::list(uint64_t &cursor, std::span<pkv_tier_key> keys) {
    const Lock lock(mutex_);
    uint64_t left = cursor == 0 ? seen_.size() : std::min<uint64_t>(cursor - 1, seen_.size());
    uint64_t count = 0;
    while (left != 0 && count < keys.size()) keys[count++] = seen_[--left].key;
    cursor = left == 0 ? 0 : left + 1;
    return count;
}

void SeenImages::note(const Request &request) {
    const RequestItems &items = request.items();
    const Lock lock(mutex_);
    for (uint64_t i = 0; i < request.num_items(); ++i) {
        if (request.status(i) != PKV_OK) continue;
        if (items.kind == PKV_TIER_CLEAR) {
            const uint64_t tag = items.tags[i];
            for (size_t place = seen_.size(); place-- != 0;) {
                if (seen_[place].tag != tag && tag != PKV_TIER_TAG_ALL) continue;
                const pkv_tier_key key = seen_[place].key;
                erase(key);
                watches_.changed(key);
            }
        } else if (items.kind == PKV_TIER_REMOVE) {
            if (erase(items.keys[i])) watches_.changed(items.keys[i]);
        } else if (items.tags[i] != PKV_TIER_TAG_PRIVATE) {
            add(items.keys[i], items.tags[i]);
            watches_.changed(items.keys[i]);
        }
    }
}

} // namespace pkv
