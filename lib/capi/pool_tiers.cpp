// SPDX-License-Identifier: Apache-2.0
// tier.h, the part about pools: pages by key, and the tiers of a pool's options.
#include "capi/attachments.h"
#include "capi/boundary.h"
#include "capi/operations.h"
#include "core/op.h"
#include "device/turn.h"
#include "pool/pool.h"

#include <cinttypes>
#include <optional>

using pkv::boundary;
using pkv::check_array;
using pkv::fail;
using pkv::not_null;
using pkv::Op;
using pkv::Pin;
using pkv::Pool;
using pkv::Queue;

namespace pkv {
namespace {

constexpr uint64_t default_timeout_ns = 1'000'000'000;
constexpr uint32_t max_hits = 1000;

pkv_status check_attachment(const pkv_tier_attachment &item, uint32_t index) {
    if (item.policy < PKV_TIER_WRITE_BACK || item.policy > PKV_TIER_READ_ONLY)
        return fail(PKV_ERR_INVALID, "tiers[%u].policy is %d, none of PKV_TIER_*", index, item.policy);
    if (item.policy == PKV_TIER_WRITE_ON_HITS ? item.hits == 0 || item.hits > max_hits : item.hits != 0)
        return fail(PKV_ERR_INVALID, "tiers[%u].hits is %u: 1 to %u with PKV_TIER_WRITE_ON_HITS, else 0", index,
                    item.hits, max_hits);
    if (item.policy == PKV_TIER_DEMOTE && index == 0)
        return fail(PKV_ERR_INVALID, "tiers[0] has no tier above that could demote to it");
    if ((item.flags & ~PKV_TIER_EXCLUSIVE) != 0)
        return fail(PKV_ERR_UNSUPPORTED, "tiers[%u].flags is 0x%x, with unknown bits", index, item.flags);
    return PKV_OK;
}

} // namespace

pkv_status read_tiers(const pkv_pool_options &options, std::vector<Attachment> &tiers) {
    if (options.num_tiers > PKV_MAX_TIERS)
        return fail(PKV_ERR_LIMIT, "num_tiers is %u, more than %d", options.num_tiers, PKV_MAX_TIERS);
    if (options.num_tiers == 0) {
        if ((options.flags & PKV_POOL_KEEP_UNSTORED) != 0)
            return fail(PKV_ERR_INVALID, "PKV_POOL_KEEP_UNSTORED needs tiers");
        return PKV_OK;
    }
    PKV_TRY(not_null(options.tiers, "tiers"));
    std::vector<pkv_tier_attachment> known;
    PKV_TRY(read_struct_array(options.tiers, options.num_tiers, known, "tiers"));
    for (uint32_t i = 0; i < options.num_tiers; ++i) {
        PKV_TRY(check_attachment(known[i], i));
        Pin<Tier> pin;
        PKV_TRY(pin.acquire(known[i].tier));
        Attachment item;
        item.tier = pin->shared_from_this();
        for (const Attachment &other : tiers)
            if (other.tier == item.tier) return fail(PKV_ERR_INVALID, "tiers[%u] is listed twice", i);
        item.policy = known[i].policy;
        item.hits = known[i].hits;
        item.exclusive = (known[i].flags & PKV_TIER_EXCLUSIVE) != 0;
        item.timeout_ns = known[i].timeout_ns != 0 ? known[i].timeout_ns : default_timeout_ns;
        tiers.push_back(std::move(item));
    }
    return PKV_OK;
}

namespace {

/// A pool for a call that touches page bytes, as in pool.cpp.
struct MoveCall {
    Pin<Pool> pool;
    std::optional<Pool::BytesInUse> in_use;
};

/// What store and load have in common: `begin` starts the operation on the pool.
template <class Begin>
pkv_status begin_move(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_tier_key *keys,
                      const pkv_page *pages, const pkv_sync *sync, const pkv_op_options *options, pkv_op **op,
                      Begin &&begin) {
    MoveCall call;
    PKV_TRY(call.pool.acquire(pool));
    call.in_use.emplace(*call.pool);
    if (call.pool->closed()) return fail(PKV_ERR_HANDLE, "the pool is being destroyed");
    PKV_TRY(call.pool->check_group(group));
    PKV_TRY(check_array(keys, num_pages, "keys"));
    PKV_TRY(check_array(pages, num_pages, "pages"));
    if (call.pool->tiers() == nullptr) return fail(PKV_ERR_STATE, "the pool has no tiers");
    return begin_op(num_pages, options, op, [&](const std::shared_ptr<Op> &fresh, uint64_t timeout_ns) {
        Turn turn;
        Fences work;
        PKV_TRY(turn.begin(call.pool->device(), sync));
        PKV_TRY(turn.named(work));
        return begin(*call.pool, std::span(keys, num_pages), std::span(pages, num_pages), fresh, timeout_ns, work);
    });
}

} // namespace
} // namespace pkv

extern "C" {

pkv_status pkv_pool_image_keys(pkv_pool *pool, uint32_t group, const pkv_prompt *prompt, pkv_tier_key *keys,
                               uint64_t capacity, uint64_t *num_keys) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_group(group));
        pkv::prefix::Prompt known;
        PKV_TRY(pkv::prefix::read_prompt(prompt, known));
        PKV_TRY(check_array(keys, capacity, "keys"));
        PKV_TRY(not_null(num_keys, "num_keys"));
        if (pin->tiers() == nullptr) return fail(PKV_ERR_STATE, "the pool has no tiers");
        const uint64_t blocks = known.tokens.size() / pin->page_tokens();
        if (capacity != 0 && capacity < blocks)
            return fail(PKV_ERR_NO_SPACE, "the prompt has %" PRIu64 " whole blocks, capacity is %" PRIu64, blocks,
                        capacity);
        if (capacity != 0) pin->image_keys(group, known, {keys, blocks});
        *num_keys = blocks;
        return PKV_OK;
    });
}

pkv_status pkv_pool_store(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_tier_key *keys,
                          const pkv_page *pages, const pkv_sync *sync, const pkv_op_options *options, pkv_op **op) {
    return boundary([&] {
        return pkv::begin_move(
            pool, group, num_pages, keys, pages, sync, options, op,
            [&](Pool &at, auto names, auto list, const std::shared_ptr<Op> &operation, uint64_t timeout,
                const pkv::Fences &work) { return at.begin_store(group, names, list, operation, timeout, work); });
    });
}

pkv_status pkv_pool_load(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_tier_key *keys,
                         const pkv_page *pages, const pkv_sync *sync, const pkv_op_options *options, pkv_op **op) {
    return boundary([&] {
        return pkv::begin_move(
            pool, group, num_pages, keys, pages, sync, options, op,
            [&](Pool &at, auto names, auto list, const std::shared_ptr<Op> &operation, uint64_t timeout,
                const pkv::Fences &work) { return at.begin_load(group, names, list, operation, timeout, work); });
    });
}

pkv_status pkv_pool_flush(pkv_pool *pool, uint64_t timeout_ns) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        return pin->flush(timeout_ns);
    });
}

} // extern "C"
