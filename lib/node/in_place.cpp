// SPDX-License-Identifier: Apache-2.0
#include "node/in_place.h"

namespace pkv::node {

void InPlace::open(const std::shared_ptr<Fabric> &fabric, const TierStack &tiers, uint32_t count, uint64_t first,
                   size_t room) {
    for (uint32_t i = 0; i < count; ++i) {
        const auto memory = tiers[i].tier->image_memory();
        if (memory.empty()) continue;
        std::shared_ptr<Region> region;
        if (Region::add(fabric, memory.data(), memory.size(), true, region) != PKV_OK) {
            char why[256] = "";
            copy_last_error(why, sizeof why);
            log_message(PKV_LOG_WARNING, "images of the %s tier are copied for peers: %s", tiers[i].tier->name(), why);
            continue;
        }
        const size_t windows = region->windows().size();
        if (windows > room) continue;
        room -= windows;
        opened_.push_back({static_cast<int8_t>(i), first, std::move(region), memory.size()});
        first += memory.size();
    }
}

std::vector<Window> InPlace::windows() const {
    std::vector<Window> all;
    for (const Opened &opened : opened_) {
        const auto windows = opened.region->windows();
        all.insert(all.end(), windows.begin(), windows.end());
    }
    return all;
}

uint64_t InPlace::find(const TierStack &tiers, int8_t tier, const pkv_tier_key &key, uint64_t bytes) const {
    for (const Opened &opened : opened_) {
        if (opened.tier != tier) continue;
        const void *image = tiers[static_cast<uint32_t>(tier)].tier->address(key);
        if (image == nullptr || !opened.region->holds(image, bytes)) return no_place;
        return opened.first + static_cast<uint64_t>(static_cast<const std::byte *>(image) -
                                                    static_cast<const std::byte *>(opened.region->base()));
    }
    return no_place;
}

} // namespace pkv::node
