// SPDX-License-Identifier: Apache-2.0
// pool.h: checks of handles and structs; the work is in pool/.
#include "pool/pool.h"

#include "capi/attachments.h"
#include "capi/boundary.h"
#include "capi/retention.h"
#include "device/turn.h"

#include <algorithm>
#include <cinttypes>
#include <optional>

using pkv::boundary;
using pkv::check_array;
using pkv::check_out_struct;
using pkv::fail;
using pkv::not_null;
using pkv::Pin;
using pkv::Pool;
using pkv::read_struct;
using pkv::write_struct;

namespace {

pkv_status read_groups(const pkv_pool_options &options, std::vector<pkv_group_options> &groups) {
    if (options.num_groups == 0) return fail(PKV_ERR_INVALID, "num_groups is 0");
    if (options.num_groups > PKV_MAX_GROUPS)
        return fail(PKV_ERR_LIMIT, "num_groups is %u, more than %d", options.num_groups, PKV_MAX_GROUPS);
    PKV_TRY(not_null(options.groups, "groups"));
    return pkv::read_struct_array(options.groups, options.num_groups, groups, "groups");
}

/// A pool for a call that touches page bytes: memory of the caller's stays in use until it leaves.
class PoolCall {
  public:
    pkv_status acquire(pkv_pool *pool) {
        PKV_TRY(pin_.acquire(pool));
        in_use_.emplace(*pin_);
        return pin_->closed() ? fail(PKV_ERR_HANDLE, "the pool is being destroyed") : PKV_OK;
    }
    Pool *operator->() const { return &*pin_; }

  private:
    Pin<Pool> pin_;
    std::optional<Pool::BytesInUse> in_use_; // ends before the pin
};

/// Blocks that may match: whole ones inside max_match.
uint64_t match_limit(const Pool &pool, uint64_t num_tokens, uint64_t max_match) {
    if (max_match == 0) max_match = num_tokens > 0 ? num_tokens - 1 : 0;
    return std::min(num_tokens, max_match) / pool.page_tokens();
}

pkv_match match_of(const Pool &pool, uint64_t blocks) {
    pkv_match match = PKV_MATCH_INIT;
    match.blocks = blocks;
    match.tokens = match.resident_tokens = blocks * pool.page_tokens();
    return match;
}

} // namespace

extern "C" {

pkv_status pkv_pool_create(const pkv_pool_options *options, pkv_pool **pool) {
    return boundary([&] {
        pkv_pool_options known;
        PKV_TRY(read_struct(options, known, "options"));
        PKV_TRY(not_null(pool, "pool"));
        if (known.page_tokens == 0) return fail(PKV_ERR_INVALID, "page_tokens is 0");
        if (known.page_tokens > PKV_MAX_PAGE_TOKENS)
            return fail(PKV_ERR_LIMIT, "page_tokens is %u, more than %d", known.page_tokens, PKV_MAX_PAGE_TOKENS);
        std::vector<pkv_group_options> groups;
        PKV_TRY(read_groups(known, groups));
        std::vector<pkv::Attachment> tiers;
        PKV_TRY(pkv::read_tiers(known, tiers));
        std::shared_ptr<Pool> fresh;
        PKV_TRY(Pool::create(known, groups, std::move(tiers), fresh));
        return pkv::hand_out(std::move(fresh), pool);
    });
}

pkv_status pkv_pool_destroy(pkv_pool *pool) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        if (!pin->close())
            return fail(PKV_ERR_BUSY,
                        "calls on other threads are at work on the caller's memory: see pkv_pool_quiesce");
        return pin.close();
    });
}

pkv_status pkv_pool_quiesce(pkv_pool *pool, uint64_t timeout_ns) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        return pin->quiesce(timeout_ns);
    });
}

pkv_status pkv_pool_order(pkv_pool *pool, const pkv_sync *sync) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        pkv::Turn turn;
        PKV_TRY(turn.begin(pin->device(), sync));
        return pin->order(turn);
    });
}

pkv_status pkv_pool_layout(pkv_pool *pool, uint32_t group, uint32_t layer, pkv_layer_layout *layout) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_layer(group, layer));
        PKV_TRY(check_out_struct(layout, "layout"));
        write_struct(layout, pin->layer_layout(group, layer));
        return PKV_OK;
    });
}

pkv_status pkv_pool_aux(pkv_pool *pool, uint32_t group, pkv_page page, void **address) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_group(group));
        PKV_TRY(not_null(address, "address"));
        if (pin->geometry(group).aux_bytes == 0) return fail(PKV_ERR_INVALID, "group %u has no aux bytes", group);
        pkv_page_info info = PKV_PAGE_INFO_INIT;
        PKV_TRY(pin->page_info(group, page, info));
        *address = pin->memory(group).aux(page);
        return PKV_OK;
    });
}

// ---- pages

pkv_status pkv_pool_alloc(pkv_pool *pool, uint32_t group, uint64_t num_pages, pkv_page *pages) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_group(group));
        PKV_TRY(check_array(pages, num_pages, "pages"));
        return num_pages == 0 ? PKV_OK : pin->alloc(group, num_pages, pages);
    });
}

pkv_status pkv_pool_retain(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_page *pages) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_group(group));
        PKV_TRY(check_array(pages, num_pages, "pages"));
        return pin->retain(group, {pages, num_pages});
    });
}

pkv_status pkv_pool_release(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_page *pages,
                            pkv_status *statuses, const pkv_sync *sync) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_group(group));
        PKV_TRY(check_array(pages, num_pages, "pages"));
        pkv::Turn turn;
        pkv::Fences work;
        PKV_TRY(turn.begin(pin->device(), sync));
        PKV_TRY(turn.named(work));
        return pin->release(group, {pages, num_pages}, statuses, work);
    });
}

pkv_status pkv_pool_page_info(pkv_pool *pool, uint32_t group, pkv_page page, pkv_page_info *info) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_group(group));
        PKV_TRY(check_out_struct(info, "info"));
        pkv_page_info value = PKV_PAGE_INFO_INIT;
        PKV_TRY(pin->page_info(group, page, value));
        write_struct(info, value);
        return PKV_OK;
    });
}

// ---- prefixes

pkv_status pkv_pool_lookup(pkv_pool *pool, const pkv_prompt *prompt, uint64_t max_match, pkv_page *pages,
                           uint64_t capacity, pkv_match *match) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        pkv::prefix::Prompt known;
        PKV_TRY(pkv::prefix::read_prompt(prompt, known));
        PKV_TRY(check_array(pages, capacity, "pages"));
        PKV_TRY(check_out_struct(match, "match"));
        const uint64_t limit = std::min(match_limit(*pin, known.tokens.size(), max_match), capacity);
        uint64_t blocks = 0;
        PKV_TRY(pin->lookup(known, limit, pages, capacity, blocks));
        write_struct(match, match_of(*pin, blocks));
        return PKV_OK;
    });
}

pkv_status pkv_pool_probe(pkv_pool *pool, const pkv_prompt *prompt, uint64_t max_match, pkv_match *match) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        pkv::prefix::Prompt known;
        PKV_TRY(pkv::prefix::read_prompt(prompt, known));
        PKV_TRY(check_out_struct(match, "match"));
        write_struct(match, match_of(*pin, pin->probe(known, match_limit(*pin, known.tokens.size(), max_match))));
        return PKV_OK;
    });
}

pkv_status pkv_pool_publish(pkv_pool *pool, uint32_t group, const pkv_prompt *prompt, uint64_t first_block,
                            uint64_t num_pages, const pkv_page *pages, pkv_page *owner) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_group(group));
        pkv::prefix::Prompt known;
        PKV_TRY(pkv::prefix::read_prompt(prompt, known));
        PKV_TRY(check_array(pages, num_pages, "pages"));
        const uint64_t blocks = known.tokens.size() / pin->page_tokens();
        if (first_block > blocks || num_pages > blocks - first_block)
            return fail(PKV_ERR_INVALID, "blocks %" PRIu64 " + %" PRIu64 ": %zu tokens fill only %" PRIu64 " blocks",
                        first_block, num_pages, known.tokens.size(), blocks);
        return num_pages == 0 ? PKV_OK : pin->publish(group, known, first_block, {pages, num_pages}, owner);
    });
}

pkv_status pkv_pool_evict(pkv_pool *pool, uint32_t group, uint64_t num_pages, uint64_t *evicted) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_group(group));
        const uint64_t count = pin->evict(group, num_pages);
        if (evicted != nullptr) *evicted = count;
        return PKV_OK;
    });
}

pkv_status pkv_pool_clear(pkv_pool *pool, const pkv_namespace *ns, pkv_clear_result *result) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        pkv::prefix::Digest digest;
        PKV_TRY(pkv::prefix::namespace_digest(ns, digest));
        if (result != nullptr) PKV_TRY(check_out_struct(result, "result"));
        pkv_clear_result value = PKV_CLEAR_RESULT_INIT;
        pin->clear(digest, value);
        if (result != nullptr) write_struct(result, value);
        return PKV_OK;
    });
}

pkv_status pkv_pool_clear_all(pkv_pool *pool, pkv_clear_result *result) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        if (result != nullptr) PKV_TRY(check_out_struct(result, "result"));
        pkv_clear_result value = PKV_CLEAR_RESULT_INIT;
        pin->clear_all(value);
        if (result != nullptr) write_struct(result, value);
        return PKV_OK;
    });
}

// ---- retention

pkv_status pkv_pool_set_retention(pkv_pool *pool, const pkv_prompt *prompt, uint64_t first_token, uint64_t num_tokens,
                                  const pkv_retention *retention, uint64_t *blocks) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        pkv::prefix::Prompt known;
        PKV_TRY(pkv::prefix::read_prompt(prompt, known));
        pkv_retention how;
        PKV_TRY(pkv::read_retention(retention, how));
        uint64_t end = 0;
        if (__builtin_add_overflow(first_token, num_tokens, &end)) end = UINT64_MAX;
        uint64_t found = 0;
        if (num_tokens != 0)
            found = pin->set_retention(known, first_token / pin->page_tokens(),
                                       pkv::blocks_for(end, pin->page_tokens()), how);
        if (blocks != nullptr) *blocks = found;
        return PKV_OK;
    });
}

pkv_status pkv_pool_set_namespace_retention(pkv_pool *pool, const pkv_namespace *ns, const pkv_retention *retention) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        pkv::prefix::Digest digest;
        PKV_TRY(pkv::prefix::namespace_digest(ns, digest));
        pkv_retention how;
        if (retention != nullptr) PKV_TRY(pkv::read_retention(retention, how));
        pin->set_namespace_retention(digest, retention != nullptr ? &how : nullptr);
        return PKV_OK;
    });
}

// ---- keys and events

pkv_status pkv_pool_keys(pkv_pool *pool, const pkv_prompt *prompt, pkv_key *keys, uint64_t capacity,
                         uint64_t *num_keys) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        pkv::prefix::Prompt known;
        PKV_TRY(pkv::prefix::read_prompt(prompt, known));
        PKV_TRY(check_array(keys, capacity, "keys"));
        PKV_TRY(not_null(num_keys, "num_keys"));
        const uint64_t blocks = known.tokens.size() / pin->page_tokens();
        *num_keys = blocks;
        if (capacity == 0) return PKV_OK;
        if (capacity < blocks)
            return fail(PKV_ERR_NO_SPACE, "the prompt has %" PRIu64 " whole blocks, capacity is %" PRIu64, blocks,
                        capacity);
        pin->block_keys(known, {keys, blocks});
        return PKV_OK;
    });
}

pkv_status pkv_pool_events(pkv_pool *pool, uint64_t after, pkv_event *events, uint64_t capacity, uint64_t *count,
                           uint64_t *missed) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(check_array(events, capacity, "events"));
        PKV_TRY(not_null(count, "count"));
        uint64_t gone = 0;
        PKV_TRY(pin->events(after, events, capacity, *count, gone));
        if (missed != nullptr) *missed = gone;
        return PKV_OK;
    });
}

// ---- page bytes

pkv_status pkv_pool_write(pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t num_slots, const pkv_slot *slots,
                          const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync) {
    return boundary([&] {
        PoolCall call;
        PKV_TRY(call.acquire(pool));
        PKV_TRY(call->check_layer(group, layer));
        PKV_TRY(check_array(slots, num_slots, "slots"));
        pkv::Turn turn;
        PKV_TRY(turn.begin_work(call->device(), sync));
        PKV_TRY(call->write(group, layer, {slots, num_slots}, k, v, turn));
        return turn.end();
    });
}

pkv_status pkv_pool_gather(pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t num_pages, const pkv_page *pages,
                           uint64_t first_token, uint64_t num_tokens, const pkv_tensor *k, const pkv_tensor *v,
                           const pkv_sync *sync) {
    return boundary([&] {
        PoolCall call;
        PKV_TRY(call.acquire(pool));
        PKV_TRY(call->check_layer(group, layer));
        PKV_TRY(check_array(pages, num_pages, "pages"));
        pkv::Turn turn;
        PKV_TRY(turn.begin_work(call->device(), sync));
        PKV_TRY(call->gather(group, layer, {pages, num_pages}, first_token, num_tokens, k, v, turn));
        return turn.end();
    });
}

pkv_status pkv_pool_copy_pages(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_page *src,
                               const pkv_page *dst, const pkv_sync *sync) {
    return boundary([&] {
        PoolCall call;
        PKV_TRY(call.acquire(pool));
        PKV_TRY(call->check_group(group));
        PKV_TRY(check_array(src, num_pages, "src"));
        PKV_TRY(check_array(dst, num_pages, "dst"));
        pkv::Turn turn;
        PKV_TRY(turn.begin(call->device(), sync));
        PKV_TRY(call->copy_pages(group, {src, num_pages}, {dst, num_pages}, turn));
        return turn.end();
    });
}

} // extern "C"
