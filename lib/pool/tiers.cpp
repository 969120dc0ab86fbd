// SPDX-License-Identifier: Apache-2.0
// A pool and the tiers below it: what an admission finds there, and what comes up from there.
#include "core/clock.h"
#include "core/status.h"
#include "pool/cleaner.h"
#include "pool/device_images.h"
#include "pool/mover.h"
#include "pool/pool.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <system_error>

namespace pkv {

using prefix::no_node;
using prefix::NodeId;

namespace {

constexpr uint64_t default_staging = uint64_t{32} << 20;
constexpr uint64_t first_lookup = 4; // blocks; most prompts that miss, miss at once
constexpr uint64_t later_lookups = 64;

uint32_t policy_mask(const TierStack &tiers, int32_t policy) {
    uint32_t mask = 0;
    for (uint32_t i = 0; i < tiers.size(); ++i)
        if (tiers[i].policy == policy) mask |= 1u << i;
    return mask;
}

} // namespace

pkv_status Pool::create_tiers(const pkv_pool_options &options, std::vector<Attachment> tiers) {
    uint64_t largest = 0;
    for (uint32_t i = 0; i < num_groups_; ++i) {
        Group &group = groups_[i];
        if (!group.memory.exists())
            return fail(PKV_ERR_UNSUPPORTED, "tiers move page bytes, and group %u has none (PKV_MEMORY_NONE)", i);
        PKV_TRY(group.image.create(group.geometry, i));
        largest = std::max(largest, group.image.image_bytes());
    }
    auto stack = std::make_unique<TierStack>();
    const uint64_t staging_bytes = options.staging_bytes != 0 ? options.staging_bytes : default_staging;
    PKV_TRY(stack->create(std::move(tiers), largest, staging_bytes, staging_supply()));
    tiers_ = std::move(stack);
    if (device_ != nullptr) {
        pin_arenas();
        for (uint32_t i = 0; i < num_groups_; ++i) PKV_TRY(choose_transfer(i));
    }
    keep_unstored_ = (options.flags & PKV_POOL_KEEP_UNSTORED) != 0;
    clean_pages_ = options.clean_pages;
    through_ = policy_mask(*tiers_, PKV_TIER_WRITE_THROUGH);
    on_hits_ = policy_mask(*tiers_, PKV_TIER_WRITE_ON_HITS);
    for (uint32_t i = 0; i < num_groups_; ++i) pages(i).want_images(policy_mask(*tiers_, PKV_TIER_WRITE_BACK));
    {
        const Lock lock(mutex_); // nobody else has it yet; said for the checker
        open_stores_.reserve(tiers_->staging().slots());
    }
    try {
        mover_ = std::make_unique<Mover>();
        cleaner_ = std::make_unique<Cleaner>(*this);
    } catch (const std::system_error &error) {
        return fail(PKV_ERR_NO_MEMORY, "threads for the pool's tiers: %s", error.what());
    }
    return PKV_OK;
}

void Pool::image_keys(uint32_t group, const prefix::Prompt &prompt, std::span<pkv_tier_key> keys) const {
    prefix::Digest digest = prefix::prefix_root(prompt.ns, page_tokens_);
    for (uint64_t block = 0; block < keys.size(); ++block) {
        digest = prefix::prefix_next(digest, prefix::block_tokens(prompt.tokens, block, page_tokens_),
                                     prefix::block_extras(prompt.media, block * page_tokens_, page_tokens_));
        keys[block] = image_key(group, digest);
    }
}

// ---- admission -----------------------------------------------------------------------------------------------------

Pool::TierHits Pool::find_in_tiers(const prefix::Prompt &prompt, Candidates &found, uint64_t max_blocks) {
    TierHits hits;
    prefix::Digest digest = prefix::prefix_root(prompt.ns, page_tokens_);
    {
        const Lock lock(mutex_);
        if (clears_ != 0) return hits;
        hits.clear_generation = clear_generation_;
        walk(prompt, found);
        hits.first = covered_blocks(found.nodes); // a window group may have lost pages that the others have
        if (hits.first > 0) digest = index_.digest(found.nodes[hits.first - 1]);
    }
    found.nodes.clear();
    uint64_t chunk = first_lookup;
    for (uint64_t block = hits.first; block < max_blocks;) {
        const uint64_t end = std::min(block + chunk, max_blocks);
        const size_t begin = hits.blocks.size();
        // The tail is asked for first: what was used last is evicted last, and a head should outlive its tail.
        std::vector<pkv_tier_key> keys((end - block) * num_groups_);
        for (uint64_t i = block; i < end; ++i) {
            digest = prefix::prefix_next(digest, prefix::block_tokens(prompt.tokens, i, page_tokens_),
                                         prefix::block_extras(prompt.media, i * page_tokens_, page_tokens_));
            AbsentBlock item;
            item.digest = digest;
            item.tier.fill(no_tier);
            hits.blocks.push_back(item);
            for (uint32_t group = 0; group < num_groups_; ++group)
                keys[(end - 1 - i) * num_groups_ + group] = image_key(group, digest);
        }
        std::vector<int8_t> where(keys.size());
        tiers_->locate(keys, true, where);
        bool whole = true;
        for (uint64_t i = block; i < end; ++i)
            for (uint32_t group = 0; group < num_groups_; ++group) {
                const int8_t tier = where[(end - 1 - i) * num_groups_ + group];
                hits.blocks[begin + i - block].tier[group] = tier;
                whole = whole && (tier != no_tier || !groups_[group].full());
            }
        if (!whole) break; // nothing behind a gap can match
        block = end;
        chunk = later_lookups;
    }
    return hits;
}

void Pool::unpin_unused(const TierHits &hits, std::span<const AbsentBlock> used, uint64_t first_used) const {
    std::array<std::vector<pkv_tier_key>, PKV_MAX_TIERS> pins;
    for (uint64_t i = 0; i < hits.blocks.size(); ++i) {
        const uint64_t block = hits.first + i;
        uint32_t kept = 0;
        if (block >= first_used && block - first_used < used.size()) kept = used[block - first_used].groups;
        for (uint32_t group = 0; group < num_groups_; ++group)
            if (hits.blocks[i].tier[group] != no_tier && (kept >> group & 1) == 0)
                pins[static_cast<size_t>(hits.blocks[i].tier[group])].push_back(
                    image_key(group, hits.blocks[i].digest));
    }
    for (uint32_t tier = 0; tier < tiers_->size(); ++tier) tiers_->unpin(tier, pins[tier]);
}

void Pool::forget_absent(const AbsentBlock &block, uint32_t groups) const {
    for (uint32_t group = 0; group < num_groups_; ++group) {
        if ((block.groups & groups & 1u << group) == 0) continue;
        const pkv_tier_key key = image_key(group, block.digest);
        const auto tier = static_cast<uint32_t>(block.tier[group]);
        if (block.is_private)
            tiers_->remove(tier, {&key, 1}, PKV_TIER_FORCE);
        else
            tiers_->unpin(tier, {&key, 1});
    }
}

void Pool::forget_resident(const AbsentBlock &block) const {
    forget_absent(block, block.groups);
    for (uint32_t group = 0; group < num_groups_ && !block.is_private; ++group) {
        if ((block.groups >> group & 1) == 0) continue;
        const auto tier = static_cast<uint32_t>(block.tier[group]);
        const pkv_tier_key key = image_key(group, block.digest);
        if ((*tiers_)[tier].exclusive) tiers_->remove(tier, {&key, 1}, 0);
    }
}

bool Pool::adopt_block(Frontier &frontier, std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                       uint32_t needed, GroupPages &out, Fences &waits) {
    const uint64_t block = frontier.blocks;
    const auto named = prefix::block_tokens(tokens, block, page_tokens_);
    const std::string extras = prefix::block_extras(media, block * page_tokens_, page_tokens_);
    const prefix::BlockName name{keys_.next(frontier.key, named, extras), named, extras.empty() ? nullptr : &extras,
                                 nullptr};
    const Lock lock(mutex_);
    if (index_.root(frontier.root).dead) return false;
    if (block > 0 && index_.node(frontier.node).generation != frontier.generation) return false;
    const NodeId node = index_.find(block > 0 ? frontier.node : frontier.root, name, counters_.key_collisions);
    if (node == no_node) return false;
    for (uint32_t group = 0; group < num_groups_; ++group)
        if ((needed >> group & 1) != 0 && index_.page(node, group) == PKV_NO_PAGE) return false;
    for (uint32_t group = 0; group < num_groups_; ++group) {
        out[group] = (needed >> group & 1) != 0 ? index_.page(node, group) : PKV_NO_PAGE;
        if (out[group] == PKV_NO_PAGE) continue;
        pages(group).retain(out[group]);
        if (device_ != nullptr) waits |= groups_[group].order.before_reading(out[group]);
    }
    handed_out_ |= waits;
    ++counters_.adopted_blocks;
    advance(frontier, name.key, node, block + 1);
    return true;
}

void Pool::note_image(uint32_t group, pkv_page page, int8_t tier) {
    if ((*tiers_)[static_cast<uint32_t>(tier)].exclusive) return;
    const Lock lock(mutex_);
    if (pages(group).published(page)) pages(group).add_images(page, 1u << tier);
}

void Pool::release_page(uint32_t group, pkv_page page, const Fences &work) {
    const Lock lock(mutex_);
    release_one(group, page, work);
    trim_cached(group);
}

bool Pool::is_shared(uint32_t group, pkv_page page) {
    const Lock lock(mutex_);
    return pages(group).count(page) != 1;
}

void Pool::count(uint64_t pkv_pool_stats::*counter, uint64_t value) {
    const Lock lock(mutex_);
    counters_.*counter += value;
}

// ---- loads ---------------------------------------------------------------------------------------------------------

void Pool::load_pages(std::span<PageLoad> loads, uint64_t deadline_ns, const std::function<bool()> &cancelled) {
    std::vector<LoadItem> items(loads.size());
    for (size_t i = 0; i < loads.size(); ++i) {
        items[i].key = loads[i].key;
        items[i].tier = loads[i].tier;
        items[i].bytes = groups_[loads[i].group].image.image_bytes();
        items[i].needed = loads[i].tier != no_tier;
    }
    const char *why = nullptr;
    DeviceImages images(*this);
    for (const PageLoad &load : loads) {
        images.come_after(load.after);
        images.come_after(before_writing(load.group, load.page));
    }
    auto consume = [&](size_t i, const std::byte *image, uint64_t bytes, const std::shared_ptr<std::byte> &slot) {
        const PageLoad &load = loads[i];
        const ImageName name{load.key, load.block, load.tokens};
        if (device_ != nullptr) return images.add(load.group, load.page, name, image, bytes, slot, deadline_ns, &why);
        return groups_[load.group].image.unpack(image, bytes, name, groups_[load.group].memory, load.page, &why);
    };
    tiers_->load(items, consume, deadline_ns, cancelled, [&] { images.let_go(); });
    if (why != nullptr) log_message(PKV_LOG_WARNING, "a page image was refused: %s", why);
    if (const pkv_status status = images.end(); status != PKV_OK)
        for (LoadItem &item : items)
            if (item.status == PKV_OK) item.status = status; // the images are good, and their pages may not be
    std::array<std::vector<pkv_tier_key>, PKV_MAX_TIERS> taken;
    for (size_t i = 0; i < loads.size(); ++i) {
        loads[i].status = items[i].status;
        loads[i].from = items[i].from;
        // One that the caller has pinned is the caller's to remove.
        if (loads[i].status == PKV_OK && loads[i].from != loads[i].tier &&
            (*tiers_)[static_cast<uint32_t>(loads[i].from)].exclusive)
            taken[static_cast<size_t>(loads[i].from)].push_back(loads[i].key);
    }
    for (uint32_t tier = 0; tier < tiers_->size(); ++tier) tiers_->remove(tier, taken[tier], 0);
}

} // namespace pkv
