/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of the API on a handle, with arguments that are good for an empty table, so that only the handle decides. */
#ifndef PKV_TESTS_EVERY_CALL_H
#define PKV_TESTS_EVERY_CALL_H

#include "support/support.h"

enum {
    pool_calls = 22,
    table_calls = 18,
    batch_calls = 5,
    tier_calls = 2,
    queue_calls = 3,
    op_calls = 4,
    session_calls = 11,
    node_calls = 7,
    offer_calls = 4
};

static const pkv_token every_token = 1;
static pkv_page every_page;
static pkv_slot every_slot;
static pkv_status every_row;

/* All but pkv_pool_destroy. */
static inline pkv_status call_on_pool(int call, pkv_pool *pool) {
    const pkv_prompt prompt = prompt_of(&every_token, 1);
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    pkv_page_info info = PKV_PAGE_INFO_INIT;
    pkv_match match = PKV_MATCH_INIT;
    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    options.max_tables = 1;
    pkv_table *table = NULL;
    pkv_batch *batch = NULL;
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.dtype = PKV_DTYPE_F16;
    const pkv_retention retention = PKV_RETENTION_INIT;
    pkv_event event;
    void *aux;
    uint64_t count;
    pkv_status answer;
    switch (call) {
    case 0: return pkv_pool_layout(pool, 0, 0, &layout);
    case 1: return pkv_pool_alloc(pool, 0, 0, NULL);
    case 2: return pkv_pool_retain(pool, 0, 0, NULL);
    case 3: return pkv_pool_release(pool, 0, 0, NULL, NULL, NULL);
    case 4: return pkv_pool_page_info(pool, 0, 0, &info);
    case 5: return pkv_pool_lookup(pool, &prompt, 0, &every_page, 1, &match);
    case 6: return pkv_pool_probe(pool, &prompt, 0, &match);
    case 7: return pkv_pool_publish(pool, 0, &prompt, 0, 0, NULL, NULL);
    case 8: return pkv_pool_evict(pool, 0, 1, NULL);
    case 9: return pkv_pool_clear(pool, NULL, NULL);
    case 10: return pkv_pool_clear_all(pool, NULL);
    case 11: return pkv_pool_write(pool, 0, 0, 0, NULL, &tensor, &tensor, NULL);
    case 12: return pkv_pool_gather(pool, 0, 0, 0, NULL, 0, 0, &tensor, &tensor, NULL);
    case 13: return pkv_pool_copy_pages(pool, 0, 0, NULL, NULL, NULL);
    case 14: return pkv_pool_get_stats(pool, 0, &stats);
    case 15: return pkv_pool_quiesce(pool, 0);
    case 16: return pkv_pool_set_retention(pool, &prompt, 0, 1, &retention, NULL);
    case 17: return pkv_pool_set_namespace_retention(pool, NULL, NULL);
    case 18: return pkv_pool_keys(pool, &prompt, NULL, 0, &count);
    case 19:
        answer = pkv_pool_aux(pool, 0, 0, &aux);
        return answer == PKV_ERR_INVALID ? PKV_OK : answer; /* a good handle, of a pool without aux bytes */
    case 20:
        answer = pkv_pool_events(pool, 0, &event, 1, &count, NULL);
        return answer == PKV_ERR_STATE ? PKV_OK : answer; /* the same, without events */
    default: break;
    }
    const pkv_status status = pkv_table_create(pool, &table);
    const pkv_status batch_status = pkv_batch_create(pool, &options, &batch);
    if (status == PKV_OK) pkv_table_destroy(table, NULL);
    if (batch_status == PKV_OK) pkv_batch_destroy(batch);
    return status == batch_status ? status : PKV_ERR_INTERNAL;
}

/* All but pkv_table_destroy; the table has to be admitted for PKV_OK. */
static inline pkv_status call_on_table(int call, pkv_table *table) {
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.dtype = PKV_DTYPE_F16;
    pkv_table_info info = PKV_TABLE_INFO_INIT;
    pkv_table *fork = NULL;
    const pkv_retention retention = PKV_RETENTION_INIT;
    uint64_t blocks;
    pkv_status status;
    switch (call) {
    case 0: return pkv_table_set_tokens(table, 0, 0, NULL);
    case 1: return pkv_table_reserve(table, 0);
    case 2: return pkv_table_write(table, 0, 0, 0, 0, &tensor, &tensor, NULL);
    case 3: return pkv_table_commit(table, 0, NULL);
    case 4: return pkv_table_gather(table, 0, 0, 0, 0, &tensor, &tensor, NULL);
    case 5:
        status = pkv_table_fork(table, NULL, &fork);
        if (status == PKV_OK) pkv_table_destroy(fork, NULL);
        return status;
    case 6: return pkv_table_truncate(table, 100, NULL);
    case 7: return pkv_table_pages(table, 0, NULL, 0, &blocks);
    case 8: return pkv_table_slots(table, 0, 0, 0, &every_slot);
    case 9: return pkv_table_get_info(table, &info);
    case 10: return pkv_table_accept(table, 0, NULL, NULL);
    case 11: return pkv_table_window(table, NULL);
    case 12: return pkv_table_set_retention(table, 0, 1, &retention);
    case 13: return pkv_table_take_copies(table, NULL, 0, &blocks);
    case 14: return pkv_table_export(table, NULL, 0, &blocks);
    case 15:
        status = pkv_table_import(table, &every_token, sizeof every_token);
        return status == PKV_ERR_STATE ? PKV_OK : status; /* a good handle, of a table that has a sequence */
    case 16: return pkv_table_clear(table, NULL);
    default: break;
    }
    const pkv_prompt prompt = prompt_of(&every_token, 1);
    return pkv_table_admit(table, &prompt, NULL, NULL);
}

/* All but pkv_batch_destroy. */
static inline pkv_status call_on_batch(int call, pkv_batch *batch) {
    pkv_tensor tensor = PKV_TENSOR_INIT;
    tensor.dtype = PKV_DTYPE_F16;
    switch (call) {
    case 0: return pkv_batch_reserve(batch, 0, NULL, NULL, &every_row);
    case 1: return pkv_batch_set_tokens(batch, 0, NULL, NULL);
    case 2: return pkv_batch_write(batch, 0, 0, &tensor, &tensor, NULL);
    case 3: return pkv_batch_gather(batch, 0, 0, NULL, 0, &tensor, &tensor, NULL);
    default: return pkv_batch_commit(batch, NULL, NULL, NULL);
    }
}

/* All but pkv_tier_close and pkv_tier_open_*; a request is no more than what a completion names. */
static inline pkv_status call_on_tier(int call, pkv_tier *tier) {
    pkv_tier_stats stats = PKV_TIER_STATS_INIT;
    if (call == 0) return pkv_tier_get_stats(tier, &stats);
    return pkv_tier_complete((pkv_tier_request *)tier, 0, PKV_OK, 0);
}

/* The last one destroys it. */
static inline pkv_status call_on_queue(int call, pkv_queue *queue) {
    pkv_completion completion;
    uint64_t count;
    int32_t fd;
    switch (call) {
    case 0: return pkv_queue_handle(queue, &fd);
    case 1: return pkv_queue_drain(queue, &completion, 1, 0, &count);
    default: return pkv_queue_destroy(queue);
    }
}

/* The last one closes it. */
static inline pkv_status call_on_op(int call, pkv_op *op) {
    pkv_op_info info = PKV_OP_INFO_INIT;
    switch (call) {
    case 0: return pkv_op_poll(op, &info, NULL, 0);
    case 1: return pkv_op_wait(op, 0);
    case 2: return pkv_op_cancel(op);
    default: return pkv_op_close(op);
    }
}

/* The last one closes it. The session's handle alone decides: those of tables are good ones, or are not looked at. */
static inline pkv_status call_on_session(int call, pkv_prefetch *session) {
    const pkv_prompt prompt = prompt_of(&every_token, 1);
    pkv_prefetch_stats stats = PKV_PREFETCH_STATS_INIT;
    pkv_layer_view view = PKV_LAYER_VIEW_INIT;
    pkv_op *op = NULL;
    switch (call) {
    case 0: return pkv_prefetch_get_stats(session, &stats);
    case 1: return pkv_prefetch_cancel(session);
    case 2: return pkv_prefetch_prompt(session, &prompt, NULL, NULL, &op);
    case 3: return pkv_prefetch_hint(session, NULL, 0, NULL);
    case 4: return pkv_prefetch_submit(session, NULL, 0, NULL);
    case 5: return pkv_prefetch_require(session, NULL, 0, 0, 0, NULL);
    case 6: return pkv_prefetch_step_begin(session, 0, NULL, NULL, NULL);
    case 7: return pkv_prefetch_layer_acquire(session, 0, 0, NULL, &view);
    case 8: return pkv_prefetch_layer_release(session, 0, NULL);
    case 9: return pkv_prefetch_step_end(session, NULL);
    default: return pkv_prefetch_close(session, NULL);
    }
}

/* The last one closes it. */
static inline pkv_status call_on_node(int call, pkv_node *node) {
    pkv_node_stats stats = PKV_NODE_STATS_INIT;
    pkv_tier *tier = NULL;
    uint64_t count;
    switch (call) {
    case 0: return pkv_node_address(node, NULL, 0, &count);
    case 1: return pkv_node_connect(node, "127.0.0.1:1", 0);
    case 2: return pkv_node_disconnect(node, "127.0.0.1:1");
    case 3: return pkv_node_tier(node, &tier);
    case 4: return pkv_node_peers(node, NULL, 0, &count);
    case 5: return pkv_node_get_stats(node, &stats);
    default: return pkv_node_close(node);
    }
}

/* The last one closes it. */
static inline pkv_status call_on_offer(int call, pkv_offer *offer) {
    pkv_offer_info info = PKV_OFFER_INFO_INIT;
    uint64_t size;
    switch (call) {
    case 0: return pkv_offer_ticket(offer, NULL, 0, &size);
    case 1: return pkv_offer_ready(offer, PKV_ALL_GROUPS, PKV_ALL_LAYERS, 0, NULL);
    case 2: return pkv_offer_get_info(offer, &info);
    default: return pkv_offer_close(offer);
    }
}

#endif
