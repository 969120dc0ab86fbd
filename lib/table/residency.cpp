// SPDX-License-Identifier: Apache-2.0
// Blocks that are in tiers instead of pages: those that an admission found there, and those that were spilled.
//
// A block of the first kind has its pages already, still empty, and is named by its prefix: whoever brings it up first
// publishes it, and the others take that page. One of the second kind has none, and images of its own, pinned in a tier.
#include "core/clock.h"
#include "core/status.h"
#include "core/wait.h"
#include "layout/strides.h"
#include "table/table.h"

#include <algorithm>
#include <cinttypes>
#include <sodium.h>

namespace pkv {
namespace {

/// How long a call without a time limit of its own waits for so many images: for each of them as long as for an answer of each
/// tier, and not longer than `most_ns`.
uint64_t answer_timeout(const TierStack &tiers, uint64_t images, uint64_t most_ns) {
    uint64_t one = 0;
    for (uint32_t tier = 0; tier < tiers.size(); ++tier) one += std::min(tiers[tier].timeout_ns, most_ns);
    return images < most_ns / one ? images * one : most_ns;
}

} // namespace

// ---- what other calls ask ------------------------------------------------------------------------------------------

pkv_status Table::refuse_absent() const {
    if (lost_) return check_admitted();
    return fail(PKV_ERR_NOT_RESIDENT,
                "%zu blocks are in tiers, the first is block %" PRIu64 ": pkv_table_restore comes first",
                absent_.size(), absent_.begin()->first);
}

pkv_status Table::check_resident(uint64_t position, uint64_t count) const {
    const uint64_t block = first_absent(position, count);
    if (block == UINT64_MAX) return PKV_OK;
    return fail(PKV_ERR_NOT_RESIDENT, "block %" PRIu64 " is in a tier: pkv_table_restore comes first", block);
}

pkv_status Table::make_resident(uint64_t position, uint64_t count) {
    if (first_absent(position, count) == UINT64_MAX) return PKV_OK;
    const uint64_t start = monotonic_ns();
    const uint64_t first = position / page_tokens_;
    uint64_t restored = 0;
    const uint64_t blocks = blocks_for(position + count, page_tokens_) - first;
    const uint64_t timeout = answer_timeout(*pool_->tiers(), blocks * pool_->num_groups(), demand_timeout_ns);
    const pkv_status status = restore(first, blocks, timeout, restored, "gather");
    pool_->count(&pkv_pool_stats::exposed_ns, monotonic_ns() - start);
    return status;
}

/// The first absent block that holds tokens of a range; UINT64_MAX when there is none.
uint64_t Table::first_absent(uint64_t position, uint64_t count) const {
    if (absent_.empty() || count == 0) return UINT64_MAX;
    const auto at = absent_.lower_bound(position / page_tokens_);
    const bool inside = at != absent_.end() && at->first <= (position + count - 1) / page_tokens_;
    return inside ? at->first : UINT64_MAX;
}

void Table::forget_absent_from(uint64_t block) {
    for (auto at = absent_.lower_bound(block); at != absent_.end(); at = absent_.erase(at))
        pool_->forget_absent(at->second, at->second.groups);
}

/// A window group does not need blocks [first, end) any more; the sinks before them it does.
void Table::forget_passed(uint32_t group, uint64_t first, uint64_t end) {
    for (auto at = absent_.lower_bound(first); at != absent_.end() && at->first < end;) {
        if ((at->second.groups >> group & 1) != 0) {
            pool_->forget_absent(at->second, 1u << group);
            version_ = next_version(); // fewer images are needed, also if the block stays absent in another group
        }
        at->second.groups &= ~(1u << group);
        at = at->second.groups == 0 ? absent_.erase(at) : std::next(at);
    }
}

pkv_status Table::residency(uint32_t group, uint64_t first, std::span<int32_t> where) const {
    if (!admitted()) return check_admitted();
    if (first > num_blocks() || where.size() > num_blocks() - first)
        return fail(PKV_ERR_INVALID, "blocks %" PRIu64 " + %zu: the table has %" PRIu64, first, where.size(),
                    num_blocks());
    for (uint64_t i = 0; i < where.size(); ++i) {
        const auto at = absent_.find(first + i);
        if (at != absent_.end() && (at->second.groups >> group & 1) != 0)
            where[i] = PKV_BLOCK_TIER + at->second.tier[group];
        else
            where[i] = lists_[group][first + i] == PKV_NO_PAGE ? PKV_BLOCK_DROPPED : PKV_BLOCK_RESIDENT;
    }
    return PKV_OK;
}

void Table::count_absent(std::span<uint64_t> tier_tokens) const {
    for (const auto &[number, block] : absent_) {
        int8_t slowest = 0;
        for (uint32_t group = 0; group < pool_->num_groups(); ++group)
            if ((block.groups >> group & 1) != 0) slowest = std::max(slowest, block.tier[group]);
        tier_tokens[static_cast<size_t>(slowest)] += page_tokens_;
    }
}

// ---- spill ---------------------------------------------------------------------------------------------------------

pkv_status Table::spill(uint64_t first, uint64_t count, const Fences &work, pkv_spill_result &result) {
    PKV_TRY(check_admitted());
    PKV_TRY(check_copies_taken());
    if (pool_->tiers() == nullptr) return fail(PKV_ERR_STATE, "the pool has no tiers");
    const uint64_t committed_blocks = blocks_for(committed_, page_tokens_);
    if (first > committed_blocks)
        return fail(PKV_ERR_INVALID, "block %" PRIu64 " of %" PRIu64 " committed ones", first, committed_blocks);
    const uint64_t end = first + std::min(count, committed_blocks - first);
    note_leaving(work);

    std::vector<std::pair<uint64_t, AbsentBlock>> leaving;
    std::vector<PageStore> stores;
    std::vector<size_t> block_of; // of each store, in `leaving`
    for (uint64_t block = first; block < end; ++block) {
        if (absent_.contains(block)) continue;
        AbsentBlock absent;
        absent.is_private = true;
        absent.tier.fill(no_tier);
        randombytes_buf(absent.digest.data(), absent.digest.size());
        for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
            const pkv_page page = lists_[group][block];
            if (page == PKV_NO_PAGE) continue;
            if (pool_->is_shared(group, page)) {
                ++result.shared_pages;
                continue;
            }
            absent.groups |= 1u << group;
            PageStore store;
            store.group = group;
            store.page = page;
            store.key = pool_->image_key(group, absent.digest);
            store.block = block;
            if (committed_ < (block + 1) * page_tokens_) store.rows = static_cast<uint32_t>(committed_ % page_tokens_);
            store.pin = true;
            store.tag = PKV_TIER_TAG_PRIVATE;
            store.after = waits();
            stores.push_back(store);
            block_of.push_back(leaving.size());
        }
        if (absent.groups != 0) leaving.emplace_back(block, absent);
    }
    PKV_TRY(store_spilled(stores));
    for (size_t i = 0; i < stores.size(); ++i)
        leaving[block_of[i]].second.tier[stores[i].group] = static_cast<int8_t>(__builtin_ctz(stores[i].stored));
    for (const auto &[block, absent] : leaving) {
        absent_.emplace(block, absent);
        for (uint32_t group = 0; group < pool_->num_groups(); ++group)
            if ((absent.groups >> group & 1) != 0) {
                pool_->release_page(group, lists_[group][block], waits_);
                lists_[group][block] = PKV_NO_PAGE;
            }
    }
    // What was written behind `committed` did not go with it.
    if (!leaving.empty() && leaving.back().first == committed_ / page_tokens_)
        for (uint64_t &written : written_) written = std::min(written, committed_);
    result.spilled_blocks = leaving.size();
    pool_->count(&pkv_pool_stats::spilled_blocks, leaving.size());
    if (!leaving.empty()) version_ = next_version();
    return PKV_OK;
}

/// Stores each page in the first tier that has room; all of them, or none is left there.
pkv_status Table::store_spilled(std::span<PageStore> stores) {
    const TierStack &tiers = *pool_->tiers();
    const uint64_t deadline = monotonic_ns() + answer_timeout(tiers, stores.size(), demand_timeout_ns);
    std::vector<PageStore> todo(stores.begin(), stores.end());
    std::vector<size_t> place(stores.size());
    for (size_t i = 0; i < place.size(); ++i) place[i] = i;
    for (uint32_t tier = 0; tier < tiers.size() && !todo.empty(); ++tier) {
        if (tiers[tier].policy == PKV_TIER_READ_ONLY) continue;
        for (PageStore &store : todo) store.tiers = 1u << tier;
        pool_->store_pages(todo, deadline);
        size_t left = 0;
        for (size_t i = 0; i < todo.size(); ++i) {
            stores[place[i]] = todo[i];
            if (todo[i].status == PKV_OK) continue;
            todo[left] = todo[i];
            place[left++] = place[i];
        }
        todo.resize(left);
    }
    if (todo.empty()) return PKV_OK;
    for (const PageStore &store : stores)
        for (uint32_t tier = 0; tier < tiers.size(); ++tier)
            if ((store.stored >> tier & 1) != 0) pool_->tiers()->remove(tier, {&store.key, 1}, PKV_TIER_FORCE);
    const pkv_status status = stores[place[0]].status;
    return fail(status == PKV_OK ? PKV_ERR_NO_SPACE : status, "%zu of %zu pages found no place in a tier: %s",
                todo.size(), stores.size(), status_name(status));
}

// ---- restore -------------------------------------------------------------------------------------------------------

/// Pages for absent blocks that have none: all or nothing.
pkv_status Table::take_pages_for(uint64_t first, uint64_t end) {
    GroupCounts wanted{};
    for (auto at = absent_.lower_bound(first); at != absent_.end() && at->first < end; ++at)
        for (uint32_t group = 0; group < pool_->num_groups(); ++group)
            wanted[group] += (at->second.groups >> group & 1) != 0 && lists_[group][at->first] == PKV_NO_PAGE;
    BlockLists fresh;
    uint64_t sum = 0;
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
        fresh[group].reserve(std::min(wanted[group], pool_->geometry(group).num_pages + 1));
        sum += wanted[group];
    }
    if (sum == 0) return PKV_OK;
    PKV_TRY(pool_->extend(fresh, wanted, waits_));
    for (auto at = absent_.lower_bound(first); at != absent_.end() && at->first < end; ++at)
        for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
            pkv_page &page = lists_[group][at->first];
            if ((at->second.groups >> group & 1) == 0 || page != PKV_NO_PAGE) continue;
            page = fresh[group].back();
            fresh[group].pop_back();
        }
    version_ = next_version();
    return PKV_OK;
}

/// Takes over pages of blocks that others have brought up meanwhile, as far as they follow what this sequence has published.
uint64_t Table::adopt_resident(uint64_t end) {
    uint64_t adopted = 0;
    for (auto at = absent_.begin(); at != absent_.end() && at->first < end;) {
        // Names at and after `committed` may change yet: the frontier must not stand behind them.
        const uint64_t named = std::min<uint64_t>(tokens_.size(), committed_);
        if (at->second.is_private || at->first != frontier_.blocks || named < (at->first + 1) * page_tokens_) break;
        GroupPages found;
        if (!pool_->adopt_block(frontier_, tokens_, media_, at->second.groups, found, waits_)) break;
        for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
            if (found[group] == PKV_NO_PAGE) continue;
            pool_->release_page(group, lists_[group][at->first]);
            lists_[group][at->first] = found[group];
        }
        pool_->forget_resident(at->second);
        at = absent_.erase(at);
        tail_private_ = false;
        ++adopted;
    }
    if (adopted > 0) version_ = next_version();
    return adopted;
}

pkv_status Table::restore(uint64_t first, uint64_t count, uint64_t timeout_ns, uint64_t &restored, const char *call) {
    PKV_TRY(check_admitted());
    restored = 0;
    if (first > num_blocks()) return fail(PKV_ERR_INVALID, "block %" PRIu64 " of %" PRIu64, first, num_blocks());
    const uint64_t end = first + std::min(count, num_blocks() - first);
    const uint64_t deadline = deadline_after(timeout_ns);
    if (first_absent(first * page_tokens_, (end - first) * page_tokens_) == UINT64_MAX) return PKV_OK;
    const trace::PoolWait traced(pool_->tiers()->lanes(), call, restored);
    PKV_TRY(take_pages_for(first, end));
    for (;;) {
        publish();
        restored += adopt_resident(end);
        pkv_tier_key busy{};
        bool waits = false;
        PKV_TRY(load_absent(first, end, deadline, restored, busy, waits));
        if (!waits) break;
        pool_->count(&pkv_pool_stats::joined_loads, 1);
        const uint64_t at = monotonic_ns();
        if (at >= deadline || !pool_->tiers()->in_flight().wait(busy, deadline - at))
            return fail(PKV_ERR_TIMEOUT, "blocks are still being loaded after %" PRIu64 " ns", timeout_ns);
    }
    publish();
    return PKV_OK;
}

/// Loads those absent blocks of a range that nobody else loads; of the others one key is handed out, to be waited for.
pkv_status Table::load_absent(uint64_t first, uint64_t end, uint64_t deadline, uint64_t &restored, pkv_tier_key &busy,
                              bool &waits) {
    InFlight &in_flight = pool_->tiers()->in_flight();
    std::vector<PageLoad> loads;
    std::vector<uint64_t> blocks; // of each load
    // Whatever happens, keys that were begun are ended.
    struct Guard {
        InFlight &in_flight;
        std::vector<PageLoad> &loads;
        ~Guard() {
            for (const PageLoad &load : loads) in_flight.end(load.key);
        }
    };
    pkv_status status = PKV_OK;
    uint64_t lost_block = UINT64_MAX;
    {
        const Guard guard{in_flight, loads};
        for (auto at = absent_.lower_bound(first); at != absent_.end() && at->first < end; ++at)
            add_loads(at->first, at->second, in_flight, loads, blocks, busy, waits);
        pool_->load_pages(loads, deadline);
        for (size_t i = 0; i < loads.size();) {
            const uint64_t block = blocks[i];
            pkv_status worst = PKV_OK;
            size_t next = i;
            for (; next < loads.size() && blocks[next] == block; ++next)
                if (worst == PKV_OK || worst == PKV_ERR_TIMEOUT)
                    if (loads[next].status != PKV_OK) worst = loads[next].status;
            if (worst == PKV_OK) {
                const auto at = absent_.find(block);
                if (at->second.is_private) // its image went with its name: the block's own is in no tier
                    for (size_t j = i; j < next; ++j) loads[j].from = no_tier;
                pool_->forget_resident(at->second);
                absent_.erase(at);
                ++restored;
                pool_->count(&pkv_pool_stats::loaded_blocks, 1);
            } else if (worst != PKV_ERR_TIMEOUT) {
                lost_block = std::min(lost_block, block);
                pool_->count(&pkv_pool_stats::lost_blocks, 1);
            }
            if (worst != PKV_OK && (status == PKV_OK || status == PKV_ERR_TIMEOUT)) status = worst;
            i = next;
        }
        publish(true); // while others still wait for the keys: they find the pages
        for (size_t i = 0; i < loads.size(); ++i)
            if (loads[i].status == PKV_OK && loads[i].from != no_tier && !absent_.contains(blocks[i]))
                pool_->note_image(loads[i].group, lists_[loads[i].group][blocks[i]], loads[i].from);
    }
    if (lost_block != UINT64_MAX) return lose(lost_block);
    if (status == PKV_ERR_TIMEOUT) return fail(status, "%zu blocks were not loaded in time", absent_.size());
    return PKV_OK;
}

void Table::add_loads(uint64_t block, const AbsentBlock &absent, InFlight &in_flight, std::vector<PageLoad> &loads,
                      std::vector<uint64_t> &blocks, pkv_tier_key &busy, bool &waits) const {
    const size_t before = loads.size();
    for (uint32_t group = 0; group < pool_->num_groups(); ++group) {
        if ((absent.groups >> group & 1) == 0) continue;
        PageLoad load;
        load.group = group;
        load.page = lists_[group][block];
        load.key = pool_->image_key(group, absent.digest);
        load.tier = absent.tier[group];
        load.block = block;
        load.tokens = image_tokens(block, absent);
        if (loads.size() == loads.capacity()) loads.reserve(2 * loads.size() + 8);
        if (blocks.size() == blocks.capacity()) blocks.reserve(2 * blocks.size() + 8);
        if (!in_flight.begin(load.key)) {
            // Somebody else loads a part of the block: all of it is left to the next round.
            while (loads.size() > before) {
                in_flight.end(loads.back().key);
                loads.pop_back();
                blocks.pop_back();
            }
            busy = load.key;
            waits = true;
            return;
        }
        loads.push_back(load);
        blocks.push_back(block);
    }
}

} // namespace pkv
