// SPDX-License-Identifier: Apache-2.0
// Sequences whose rows come from elsewhere: from a buffer, or from another node.
#include "core/status.h"
#include "layout/strides.h"
#include "table/table.h"

#include <algorithm>

namespace pkv {

pkv_status Table::admit_handed(prefix::Prompt &prompt, std::vector<pkv_token> tokens, bool match, const HasBlock &has) {
    const uint64_t blocks = blocks_for(tokens.size(), page_tokens_);
    prompt.tokens = tokens;
    uint64_t matched = 0;
    if (match) PKV_TRY(match_handed(prompt, matched));
    GroupCounts wanted{};
    pkv_status status = PKV_ERR_NO_MEMORY;
    try {
        for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
            for (uint64_t block = matched; block < blocks; ++block) wanted[group] += has(group, block);
            lists_[group].reserve(std::max(blocks, matched + wanted[group]));
        }
        if (!admitted()) frontier_ = pool_->open_namespace(prompt.ns);
        status = pool_->extend(lists_, wanted, waits_);
    } catch (const std::bad_alloc &) {
        fail(status, "no memory for a sequence of %zu tokens", tokens.size());
    }
    if (status != PKV_OK) {
        clear();
        return status;
    }
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
        // Spread the new pages over the blocks that have one, from the end, so that each is read before it is overwritten.
        uint64_t next = lists_[group].size();
        lists_[group].resize(blocks, PKV_NO_PAGE);
        for (uint64_t block = blocks; block-- > matched;) {
            const bool filled = has(group, block);
            lists_[group][block] = filled ? lists_[group][--next] : PKV_NO_PAGE;
        }
    }
    tokens_ = std::move(tokens);
    media_ = std::move(prompt.media);
    committed_ = matched_ = matched * page_tokens_;
    tail_private_ = true;
    version_ = next_version();
    return PKV_OK;
}

/// Takes the whole blocks of a prompt that are in pages. What goes between looking and taking is no match.
pkv_status Table::match_handed(const prefix::Prompt &prompt, uint64_t &blocks) {
    const uint64_t found = pool_->probe(prompt, prompt.tokens.size() / page_tokens_);
    if (found == 0) return PKV_OK;
    prefix::Prompt head = prompt;
    head.tokens = prompt.tokens.first(found * page_tokens_);
    std::erase_if(head.media, [&](const prefix::Media &media) { return media.position >= head.tokens.size(); });
    Admission admission;
    admission.max_match = admission.prompt_tokens = head.tokens.size();
    admission.counted = false;
    admission.partial_pages.fill(PKV_NO_PAGE);
    if (pool_->admit(head, admission, lists_, frontier_) == PKV_OK && admission.new_blocks == 0) {
        blocks = admission.matched_blocks;
        waits_ |= admission.waits;
        return PKV_OK;
    }
    clear();
    return PKV_OK;
}

} // namespace pkv
