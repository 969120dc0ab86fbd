// SPDX-License-Identifier: Apache-2.0
// pool.h: checks of handles and structs; the work is in pool/.
#include "pool/pool.h"

#include "capi/boundary.h"
#include "core/sync.h"

#include <algorithm>
#include <cinttypes>

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
    groups.resize(options.num_groups);
    // The first element's struct_size is the distance between elements, whatever headers the caller has.
    const size_t stride = options.groups->struct_size;
    for (uint32_t i = 0; i < options.num_groups; ++i) {
        const auto *group = reinterpret_cast<const pkv_group_options *>(
            reinterpret_cast<const unsigned char *>(options.groups) + i * stride);
        PKV_TRY(read_struct(group, groups[i], "groups[]"));
        if (group->struct_size != stride)
            return fail(PKV_ERR_INVALID, "groups[%u].struct_size is %zu, but groups[0]'s is %zu", i, group->struct_size,
                        stride);
    }
    return PKV_OK;
}

/// Blocks that may match: whole ones inside max_match.
uint64_t match_limit(const Pool &pool, uint64_t num_tokens, uint64_t max_match) {
    if (max_match == 0) max_match = num_tokens > 0 ? num_tokens - 1 : 0;
    return std::min(num_tokens, max_match) / pool.page_tokens();
}

pkv_match match_of(const Pool &pool, uint64_t blocks) {
    pkv_match match = PKV_MATCH_INIT;
    match.blocks = blocks;
    match.tokens = blocks * pool.page_tokens();
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
        std::shared_ptr<Pool> fresh;
        PKV_TRY(Pool::create(known, groups, fresh));
        return pkv::hand_out(std::move(fresh), pool);
    });
}

pkv_status pkv_pool_destroy(pkv_pool *pool) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin.close());
        pin->close();
        return PKV_OK;
    });
}

pkv_status pkv_pool_layout(pkv_pool *pool, uint32_t group, uint32_t layer, pkv_layer_layout *layout) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_layer(group, layer));
        PKV_TRY(check_out_struct(layout, "layout"));
        const pkv::Geometry &geometry = pin->geometry();
        pkv_layer_layout value = PKV_LAYER_LAYOUT_INIT;
        if (pin->memory().exists()) {
            value.k_base = pin->memory().layer(layer).k.base;
            value.v_base = pin->memory().layer(layer).v.base;
        }
        value.k = {geometry.k_strides.page, geometry.k_strides.token, geometry.k_strides.head};
        if (geometry.v_row_bytes != 0)
            value.v = {geometry.v_strides.page, geometry.v_strides.token, geometry.v_strides.head};
        value.k_row_bytes = geometry.k_row_bytes;
        value.v_row_bytes = geometry.v_row_bytes;
        value.num_kv_heads = geometry.heads;
        value.page_tokens = geometry.page_tokens;
        value.dtype = geometry.dtype;
        write_struct(layout, value);
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
        return num_pages == 0 ? PKV_OK : pin->alloc(num_pages, pages);
    });
}

pkv_status pkv_pool_retain(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_page *pages) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_group(group));
        PKV_TRY(check_array(pages, num_pages, "pages"));
        return pin->retain({pages, num_pages});
    });
}

pkv_status pkv_pool_release(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_page *pages,
                            pkv_status *statuses, const pkv_sync *sync) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_group(group));
        PKV_TRY(check_array(pages, num_pages, "pages"));
        PKV_TRY(pkv::wait_sync(sync));
        return pin->release({pages, num_pages}, statuses);
    });
}

pkv_status pkv_pool_page_info(pkv_pool *pool, uint32_t group, pkv_page page, pkv_page_info *info) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_group(group));
        PKV_TRY(check_out_struct(info, "info"));
        pkv_page_info value = PKV_PAGE_INFO_INIT;
        PKV_TRY(pin->page_info(page, value));
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
        uint64_t blocks = 0;
        PKV_TRY(pin->lookup(known, std::min(match_limit(*pin, known.tokens.size(), max_match), capacity), pages, blocks));
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
        uint64_t blocks = 0;
        PKV_TRY(pin->probe(known, match_limit(*pin, known.tokens.size(), max_match), blocks));
        write_struct(match, match_of(*pin, blocks));
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
        return num_pages == 0 ? PKV_OK : pin->publish(known, first_block, {pages, num_pages}, owner);
    });
}

pkv_status pkv_pool_evict(pkv_pool *pool, uint32_t group, uint64_t num_pages, uint64_t *evicted) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_group(group));
        const uint64_t count = pin->evict(num_pages);
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

// ---- page bytes

pkv_status pkv_pool_write(pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t num_slots, const pkv_slot *slots,
                          const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_layer(group, layer));
        PKV_TRY(check_array(slots, num_slots, "slots"));
        PKV_TRY(pkv::wait_sync(sync));
        return pin->write(layer, {slots, num_slots}, k, v);
    });
}

pkv_status pkv_pool_gather(pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t num_pages, const pkv_page *pages,
                           uint64_t first_token, uint64_t num_tokens, const pkv_tensor *k, const pkv_tensor *v,
                           const pkv_sync *sync) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_layer(group, layer));
        PKV_TRY(check_array(pages, num_pages, "pages"));
        PKV_TRY(pkv::wait_sync(sync));
        return pin->gather(layer, {pages, num_pages}, first_token, num_tokens, k, v);
    });
}

pkv_status pkv_pool_copy_pages(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_page *src,
                               const pkv_page *dst, const pkv_sync *sync) {
    return boundary([&] {
        Pin<Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_group(group));
        PKV_TRY(check_array(src, num_pages, "src"));
        PKV_TRY(check_array(dst, num_pages, "dst"));
        PKV_TRY(pkv::wait_sync(sync));
        return pin->copy_pages({src, num_pages}, {dst, num_pages});
    });
}

} // extern "C"
