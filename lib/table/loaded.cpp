// SPDX-License-Identifier: Apache-2.0
// Blocks that come from a prefetch session instead of Table::restore: the session loads them into pages, and the table takes
// them over when its owner asks for them.
#include "core/status.h"
#include "table/table.h"

#include <algorithm>

namespace pkv {

std::span<const pkv_token> Table::image_tokens(uint64_t block, const AbsentBlock &absent) const {
    // Names at and after `committed` may be others by now: the image is of those that there were.
    if (absent.is_private || std::min<uint64_t>(tokens_.size(), committed_) < (block + 1) * page_tokens_) return {};
    return std::span<const pkv_token>(tokens_).subspan(block * page_tokens_, page_tokens_);
}

uint64_t Table::adopt_published(uint64_t end) {
    if (absent_.empty()) return 0;
    publish();
    return adopt_resident(end);
}

void Table::take_loaded(std::span<const LoadedBlock> loaded) {
    for (const LoadedBlock &block : loaded) {
        const auto at = absent_.find(block.block);
        for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
            if ((at->second.groups >> group & 1) == 0) continue;
            pkv_page &page = lists_[group][block.block];
            if (page != PKV_NO_PAGE) pool_->release_page(group, page); // empty, or the very page with a second count
            page = block.pages[group];
        }
        pool_->forget_resident(at->second);
        absent_.erase(at);
    }
    if (loaded.empty()) return;
    pool_->count(&pkv_pool_stats::loaded_blocks, loaded.size());
    version_ = next_version();
    publish(true);
    for (const LoadedBlock &block : loaded)
        for (uint32_t group = 0; group < pool_->num_groups(); ++group)
            if (block.from[group] != no_tier) pool_->note_image(group, lists_[group][block.block], block.from[group]);
}

pkv_status Table::lose(uint64_t block) {
    lost_ = true;
    valid_ = block * page_tokens_;
    return check_admitted();
}

} // namespace pkv
