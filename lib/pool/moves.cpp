// SPDX-License-Identifier: Apache-2.0
// Pages moved by key: operations on the mover's thread.
#include "core/op.h"
#include "core/status.h"
#include "core/wait.h"
#include "pool/mover.h"
#include "pool/pool.h"

#include <atomic>

namespace pkv {

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
                            std::shared_ptr<Op> op, uint64_t timeout_ns, const Fences &after) {
    if (tiers_ == nullptr) return fail(PKV_ERR_STATE, "the pool has no tiers");
    std::vector<PageLoad> loads(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
        loads[i].group = group;
        loads[i].page = list[i];
        loads[i].key = keys[i];
        loads[i].block = any_block;
        loads[i].after = after;
    }
    const uint64_t deadline = deadline_after(timeout_ns);
    return begin_move<PageLoad>(group, list, op, deadline, std::move(loads),
                                [this, deadline](std::span<PageLoad> items, const std::function<bool()> &unwanted) {
                                    load_pages(items, deadline, unwanted);
                                });
}

pkv_status Pool::begin_store(uint32_t group, std::span<const pkv_tier_key> keys, std::span<const pkv_page> list,
                             std::shared_ptr<Op> op, uint64_t timeout_ns, const Fences &after) {
    if (tiers_ == nullptr) return fail(PKV_ERR_STATE, "the pool has no tiers");
    std::vector<PageStore> stores(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
        stores[i].group = group;
        stores[i].page = list[i];
        stores[i].key = keys[i];
        stores[i].block = any_block;
        stores[i].tiers = writable_tiers();
        stores[i].after = after;
    }
    const uint64_t deadline = deadline_after(timeout_ns);
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

} // namespace pkv
