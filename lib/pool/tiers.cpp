// SPDX-License-Identifier: Apache-2.0
// A pool and the tiers below it: what is found there, what the cleaner is to store, and pages moved by key.
#include "core/clock.h"
#include "core/op.h"
#include "core/status.h"
#include "pool/cleaner.h"
#include "pool/mover.h"
#include "pool/pool.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <deque>
#include <system_error>
#include <thread>

namespace pkv {

using prefix::no_node;
using prefix::NodeId;

namespace {

constexpr uint64_t default_staging = uint64_t{32} << 20;
constexpr uint64_t first_lookup = 4; // blocks; most prompts that miss, miss at once
constexpr uint64_t later_lookups = 64;
constexpr uint64_t cancel_poll_ns = 2'000'000;

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
    PKV_TRY(
        stack->create(std::move(tiers), largest, options.staging_bytes != 0 ? options.staging_bytes : default_staging));
    tiers_ = std::move(stack);
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
        if ((block.groups & groups) >> group == 0 || (block.groups & groups & 1u << group) == 0) continue;
        const pkv_tier_key key = image_key(group, block.digest);
        const auto tier = static_cast<uint32_t>(block.tier[group]);
        if (block.is_private)
            tiers_->remove(tier, {&key, 1}, PKV_TIER_FORCE);
        else
            tiers_->unpin(tier, {&key, 1});
    }
}

bool Pool::adopt_block(Frontier &frontier, std::span<const pkv_token> tokens, std::span<const prefix::Media> media,
                       uint32_t needed, GroupPages &out) {
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
        if (out[group] != PKV_NO_PAGE) pages(group).retain(out[group]);
    }
    ++counters_.adopted_blocks;
    advance(frontier, name.key, node, block + 1);
    return true;
}

void Pool::note_image(uint32_t group, pkv_page page, int8_t tier) {
    if ((*tiers_)[static_cast<uint32_t>(tier)].exclusive) return;
    const Lock lock(mutex_);
    if (pages(group).published(page)) pages(group).add_images(page, 1u << tier);
}

void Pool::release_page(uint32_t group, pkv_page page) {
    const Lock lock(mutex_);
    release_one(group, page);
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

void Pool::load_pages(std::span<PageLoad> loads, uint64_t deadline_ns, const std::function<bool()> &cancelled) const {
    std::vector<LoadItem> items(loads.size());
    for (size_t i = 0; i < loads.size(); ++i) {
        items[i].key = loads[i].key;
        items[i].tier = loads[i].tier;
        items[i].bytes = groups_[loads[i].group].image.image_bytes();
        items[i].needed = loads[i].tier != no_tier;
    }
    const char *why = nullptr;
    auto consume = [&](size_t i, const std::byte *image, uint64_t bytes) {
        const PageLoad &load = loads[i];
        const Group &group = groups_[load.group];
        return group.image.unpack(image, bytes, {load.key, load.block, load.tokens}, groups_[load.group].memory,
                                  load.page, &why);
    };
    tiers_->load(items, consume, deadline_ns, cancelled);
    if (why != nullptr) log_message(PKV_LOG_WARNING, "a page image was refused: %s", why);
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

// ---- for the cleaner -----------------------------------------------------------------------------------------------

void Pool::note_hit(uint32_t group, pkv_page page) {
    const uint32_t hits = pages(group).count_hit(page);
    for (uint32_t tier = 0; tier < tiers_->size(); ++tier)
        if ((*tiers_)[tier].policy == PKV_TIER_WRITE_ON_HITS && (*tiers_)[tier].hits == hits &&
            (pages(group).images(page) >> tier & 1) == 0) {
            pages(group).want_store(page);
            cleaner_->wake();
        }
}

bool Pool::wants_cleaning(uint32_t group, bool all) {
    const PageSet &set = pages(group);
    if (set.dirty_count() == 0) return false;
    const uint64_t target = clean_pages_ != 0 ? clean_pages_ : std::max<uint64_t>(set.size() / 4, 1);
    return all || keep_unstored_ || set.free_count() + set.cached_count() - set.dirty_count() < target;
}

bool Pool::stores_wait(bool all) {
    const Lock lock(mutex_);
    if (!open_stores_.empty()) return true;
    for (uint32_t group = 0; group < num_groups_; ++group)
        if (pages(group).urgent_count() != 0 || pages(group).used_count() != 0 || wants_cleaning(group, all))
            return true;
    return false;
}

size_t Pool::next_used(std::span<UsedPage> out) {
    const Lock lock(mutex_);
    size_t count = 0;
    for (uint32_t group = 0; group < num_groups_; ++group)
        while (count < out.size()) {
            const pkv_page page = pages(group).take_used();
            if (page == PKV_NO_PAGE) break;
            const NodeId node = pages(group).node(page);
            out[count++] = {group,
                            page,
                            node,
                            index_.node(node).generation,
                            image_key(group, index_.digest(node)),
                            pages(group).images(page),
                            0};
        }
    return count;
}

void Pool::end_used(std::span<const UsedPage> list) {
    const Lock lock(mutex_);
    for (const UsedPage &item : list) {
        if (index_.node(item.node).generation != item.generation || index_.page(item.node, item.group) != item.page)
            continue;
        for (uint32_t tier = 0; tier < tiers_->size(); ++tier)
            if ((item.missing >> tier & 1) != 0) pages(item.group).drop_image(item.page, tier);
    }
}

bool Pool::next_store(StoreWork &work, bool all) {
    const Lock lock(mutex_);
    if (borrow_waiters_ != 0) return false;
    if (clears_ != 0) return false; // it would come behind the clear of its tier
    for (uint32_t group = 0; group < num_groups_; ++group) {
        PageSet &set = pages(group);
        for (;;) {
            const bool cleaning = wants_cleaning(group, all);
            const pkv_page page = set.take_store(cleaning);
            if (page == PKV_NO_PAGE) break;
            const NodeId node = set.node(page);
            uint32_t wanted = through_ | (set.count(page) == 0 ? set.wanted_images() : 0);
            for (uint32_t tier = 0; tier < tiers_->size(); ++tier)
                if ((on_hits_ >> tier & 1) != 0 && set.hits(page) >= (*tiers_)[tier].hits) wanted |= 1u << tier;
            work.tiers = wanted & ~set.images(page);
            if (work.tiers == 0) {
                set.end_store(page);
                continue;
            }
            const prefix::Node &item = index_.node(node);
            work.group = group;
            work.page = page;
            work.node = node;
            work.generation = item.generation;
            work.clear_generation = clear_generation_;
            work.key = image_key(group, index_.digest(node));
            work.block = item.block;
            work.tokens.assign(index_.tokens(node).begin(), index_.tokens(node).end());
            work.tag = index_.tag(node);
            work.retention = PKV_RETENTION_INIT;
            work.retention.priority = item.priority;
            work.retention.pin = item.pinned ? 1 : 0;
            if (const uint64_t deadline = index_.deadline(node); deadline != 0) {
                const uint64_t now = monotonic_ns();
                work.retention.ttl_ns = deadline > now ? deadline - now : 1;
            }
            open_stores_.push_back({work.key, clear_generation_}); // there is room
            set.set_borrowed(page);
            return true;
        }
    }
    return false;
}

bool Pool::end_read(const StoreWork &work) {
    const Lock lock(mutex_);
    const bool same = is_same(work);
    pages(work.group).set_borrowed(PKV_NO_PAGE);
    if (condemned_) {
        condemned_ = false;
        release_one(work.group, work.page);
    }
    trim_cached(work.group);
    return same;
}

bool Pool::is_same(const StoreWork &work) {
    return index_.node(work.node).generation == work.generation && index_.page(work.node, work.group) == work.page;
}

bool Pool::end_store(const StoreWork &work, uint32_t stored, uint32_t failed) {
    const Lock lock(mutex_);
    // A clear under way has been to the tiers, but maybe not yet to the index: only after it the node says what is wanted.
    while (clears_ != 0) {
        mutex_.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        mutex_.lock();
    }
    counters_.stored_images += static_cast<uint64_t>(std::popcount(stored));
    counters_.failed_stores += static_cast<uint64_t>(std::popcount(failed));
    const bool same = is_same(work);
    if (same) {
        pages(work.group).end_store(work.page);
        pages(work.group).add_images(work.page, stored);
    }
    // Evicted on its way, and not stored after all.
    if (!same && stored == 0 && clear_generation_ == work.clear_generation) ++counters_.dropped_images;
    // Its namespace may have been cleared while it was on its way.
    return !same && stored != 0 && clear_generation_ != work.clear_generation;
}

void Pool::forget_store(const StoreWork &work) {
    const Lock lock(mutex_);
    std::erase_if(open_stores_, [&](const OpenStore &store) {
        return std::memcmp(store.key.bytes, work.key.bytes, sizeof work.key.bytes) == 0;
    });
}

pkv_status Pool::flush(uint64_t timeout_ns) { return cleaner_ != nullptr ? cleaner_->flush(timeout_ns) : PKV_OK; }

// ---- pages by key --------------------------------------------------------------------------------------------------

void Pool::expire_moves() const { mover_->expire(); }

/// Runs `job` on the pool's mover thread, with counts on the pages; when they are gone, the items end with the statuses that
/// the job left in `items`. Cancelled, or too late, before its turn it ends at once, and the thread passes it over.
template <class Item>
pkv_status Pool::begin_move(uint32_t group, std::span<const pkv_page> list, const std::shared_ptr<Op> &op,
                            uint64_t deadline_ns, std::vector<Item> items,
                            std::function<void(std::span<Item>, const std::function<bool()> &)> job) {
    std::vector<pkv_page> held(list.begin(), list.end());
    const auto taken = std::make_shared<std::atomic<bool>>(false); // by the thread, or by what ends it before
    auto run = [this, group, held, op, taken, items = std::move(items),
                job = std::move(job)](const Unwanted &stopping) mutable {
        if (taken->exchange(true)) return;
        pkv_status failed = PKV_OK;
        try {
            const BytesInUse in_use(*this);
            job(items, [&] { return op->cancelled() || stopping() || closed(); });
        } catch (const std::bad_alloc &) {
            failed = PKV_ERR_NO_MEMORY;
        }
        release(group, held, nullptr);
        op->free_buffers();
        for (size_t i = 0; i < items.size(); ++i) op->end_item(i, failed != PKV_OK ? failed : items[i].status);
    };
    auto end_before = [this, group, held, op, taken](pkv_status status) {
        if (taken->exchange(true)) return;
        release(group, held, nullptr);
        op->free_buffers();
        for (size_t i = 0; i < held.size(); ++i) op->end_item(i, status);
    };
    PKV_TRY(retain(group, list));
    bool added = false;
    try {
        // A pool that goes away meanwhile runs itself what waits: then there is nothing to be done.
        op->on_cancel([weak = weak_from_this(), end_before] {
            if (const auto pool = weak.lock()) end_before(PKV_ERR_CANCELLED);
        });
        added = mover_->add(std::move(run), deadline_ns, [end_before] { end_before(PKV_ERR_TIMEOUT); });
    } catch (...) {
        if (!taken->exchange(true)) release(group, list, nullptr);
        op->on_cancel({});
        throw;
    }
    if (added) return PKV_OK;
    if (!taken->exchange(true)) release(group, list, nullptr);
    op->on_cancel({});
    return fail(PKV_ERR_BUSY, "too many operations wait");
}

pkv_status Pool::begin_load(uint32_t group, std::span<const pkv_tier_key> keys, std::span<const pkv_page> list,
                            std::shared_ptr<Op> op, uint64_t timeout_ns) {
    if (tiers_ == nullptr) return fail(PKV_ERR_STATE, "the pool has no tiers");
    std::vector<PageLoad> loads(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
        loads[i].group = group;
        loads[i].page = list[i];
        loads[i].key = keys[i];
        loads[i].block = any_block;
    }
    const uint64_t deadline = monotonic_ns() + timeout_ns;
    return begin_move<PageLoad>(group, list, op, deadline, std::move(loads),
                                [this, deadline](std::span<PageLoad> items, const std::function<bool()> &unwanted) {
                                    load_pages(items, deadline, unwanted);
                                });
}

pkv_status Pool::begin_store(uint32_t group, std::span<const pkv_tier_key> keys, std::span<const pkv_page> list,
                             std::shared_ptr<Op> op, uint64_t timeout_ns) {
    if (tiers_ == nullptr) return fail(PKV_ERR_STATE, "the pool has no tiers");
    std::vector<PageStore> stores(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
        stores[i].group = group;
        stores[i].page = list[i];
        stores[i].key = keys[i];
        stores[i].block = any_block;
        stores[i].tiers = writable_tiers();
    }
    const uint64_t deadline = monotonic_ns() + timeout_ns;
    return begin_move<PageStore>(group, list, op, deadline, std::move(stores),
                                 [this, deadline](std::span<PageStore> items, const std::function<bool()> &unwanted) {
                                     store_pages(items, deadline, unwanted);
                                 });
}

uint32_t Pool::writable_tiers() const {
    uint32_t mask = 0;
    for (uint32_t i = 0; i < tiers_->size(); ++i)
        if ((*tiers_)[i].policy != PKV_TIER_READ_ONLY && (*tiers_)[i].policy != PKV_TIER_DEMOTE) mask |= 1u << i;
    return mask;
}

/// Stores pages that the caller holds; several at once, as far as there is staging memory.
void Pool::store_pages(std::span<PageStore> stores, uint64_t deadline_ns,
                       const std::function<bool()> &cancelled) const {
    // A pinned image that arrives when nobody waits for it any more is nobody's: it goes again.
    enum : int { under_way, ended, abandoned };
    struct Open {
        size_t item;
        std::array<std::shared_ptr<Request>, PKV_MAX_TIERS> requests;
        std::shared_ptr<std::atomic<int>> state;
    };
    std::deque<Open> open;
    const uint64_t most = std::max<uint64_t>(tiers_->staging().slots() / 4, 1);
    /// Waits for `done` (given a time until which it may take); why it gave up, or PKV_OK.
    auto wait_for = [&](auto &&done) -> pkv_status {
        for (;;) {
            const uint64_t now = monotonic_ns();
            if (done(cancelled ? std::min(deadline_ns, now + cancel_poll_ns) : deadline_ns)) return PKV_OK;
            if (cancelled && cancelled()) return PKV_ERR_CANCELLED;
            if (now >= deadline_ns) return PKV_ERR_TIMEOUT;
        }
    };
    auto finish = [&](const Open &one) {
        PageStore &store = stores[one.item];
        store.status = PKV_ERR_NO_SPACE;
        for (uint32_t tier = 0; tier < tiers_->size(); ++tier) {
            const auto &request = one.requests[tier];
            if (request == nullptr) continue;
            pkv_status status = wait_for([&](uint64_t until) { return request->wait_until(until); });
            if (status != PKV_OK && one.state != nullptr && one.state->exchange(abandoned) == ended) status = PKV_OK;
            if (status == PKV_OK) {
                status = request->status(0);
            } else {
                if (status == PKV_ERR_TIMEOUT) request->tier().note_timeout();
                request->tier().cancel(*request);
            }
            if (status == PKV_OK) store.stored |= 1u << tier;
            if (store.status != PKV_OK) store.status = status;
        }
    };
    for (size_t i = 0; i < stores.size(); ++i) {
        PageStore &store = stores[i];
        store.status = cancelled && cancelled() ? PKV_ERR_CANCELLED : PKV_OK;
        if (store.status != PKV_OK) continue;
        while (open.size() >= most) {
            finish(open.front());
            open.pop_front();
        }
        std::shared_ptr<std::byte> slot;
        store.status = wait_for([&](uint64_t until) {
            slot = tiers_->staging().acquire(until);
            return slot != nullptr;
        });
        if (store.status != PKV_OK) continue;
        pack(store.group, store.page, {store.key, store.block, store.tokens, store.rows}, slot.get());
        Open one{i, {}, nullptr};
        std::function<void(Request &)> on_end;
        if (store.pin) {
            one.state = std::make_shared<std::atomic<int>>(under_way);
            on_end = [state = one.state](Request &request) {
                if (state->exchange(ended) != abandoned || request.status(0) != PKV_OK) return;
                RequestItems items;
                items.kind = PKV_TIER_REMOVE;
                items.flags = PKV_TIER_FORCE;
                items.keys = request.items().keys;
                request.tier().submit(std::move(items));
            };
        }
        for (uint32_t tier = 0; tier < tiers_->size(); ++tier) {
            if ((store.tiers >> tier & 1) == 0 || (!store.pin && !(*tiers_)[tier].tier->available())) continue;
            one.requests[tier] = tiers_->store(tier, store.key, slot, groups_[store.group].image.image_bytes(),
                                               store.retention, store.tag, store.pin, on_end);
        }
        open.push_back(std::move(one));
    }
    for (const Open &one : open) finish(one);
}

} // namespace pkv
