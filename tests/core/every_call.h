/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of the API on a handle, with arguments that are good for an empty table, so that only the handle decides. */
#ifndef PKV_TESTS_EVERY_CALL_H
#define PKV_TESTS_EVERY_CALL_H

#include "support/support.h"

enum { pool_calls = 16, table_calls = 12, batch_calls = 5 };

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
    case 10: return pkv_table_clear(table, NULL);
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

#endif
