/* SPDX-License-Identifier: Apache-2.0 */
/** @file batch.h
 *  The decode step: the tables of one step together, and the arrays that attention kernels read.
 *
 *  The arrays belong to the caller, are named once at creation and stay where they are, so that captured graphs may read
 *  them; the library writes only entries that changed since it last wrote them. Each layer group has arrays of its own.
 *
 *    reserve(tables, new tokens)   room for this step, private; rewrites the arrays
 *    set_tokens(ids)               names this step's tokens, when they are known
 *    write(layer, k, v) ...        or the engine's own kernel over slot_mapping
 *    commit()                      the KV of this step is complete
 *
 *  A table that is destroyed inside a step keeps its pages until the step ends.
 *
 *  Thread-safety: one thread at a time for a batch and the tables in it. */
#ifndef PAGEDKV_BATCH_H
#define PAGEDKV_BATCH_H

#include <pagedkv/table.h>
#include <pagedkv/tensor.h>
#include <pagedkv/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The arrays of one layer group. */
typedef struct pkv_batch_arrays {
    size_t struct_size;
    uint32_t group;            /**< layer group that they describe */
    int32_t fill;              /**< stands in block_table and block_indices where a block has no page, and behind rows */
    uint64_t max_blocks;       /**< entries of a row of block_table */
    uint64_t max_indices;      /**< entries at block_indices */
    int32_t *block_table;      /**< [max_tables, max_blocks], row = table; or NULL */
    int32_t *block_indptr;     /**< CSR: [max_tables + 1], row r has entries block_indptr[r] .. block_indptr[r+1]-1 of
                                    block_indices; rows past the step's are empty; or NULL */
    int32_t *block_indices;    /**< CSR: [max_indices]; or NULL */
    int64_t *slot_mapping;     /**< [max_tokens], slots of this step's new tokens, table after table, then PKV_NO_SLOT;
                                    or NULL */
} pkv_batch_arrays;
#define PKV_BATCH_ARRAYS_INIT {sizeof(pkv_batch_arrays), 0, 0, 0, 0, NULL, NULL, NULL, NULL}

typedef struct pkv_batch_options {
    size_t struct_size;
    uint32_t max_tables;            /**< tables of a step, 1 .. 65536 */
    uint32_t num_arrays;            /**< 0 .. PKV_MAX_GROUPS, one for each group at most */
    const pkv_batch_arrays *arrays; /**< num_arrays of them; the structs are copied */
    uint64_t max_tokens;            /**< new tokens of a step, over all tables */
    int32_t *lengths;               /**< [max_tables], tokens of the sequence with this step's; 0 past the step's rows; or
                                         NULL */
    int32_t *last_page_len;         /**< [max_tables], tokens in the last block, 1 .. page_tokens, 0 for an empty row; or
                                         NULL */
} pkv_batch_options;
#define PKV_BATCH_OPTIONS_INIT {sizeof(pkv_batch_options), 0, 0, NULL, 0, NULL, NULL}

/** Makes a batch over a pool. The arrays are filled as for a step without tables.
 *  @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_HANDLE; PKV_ERR_NO_MEMORY
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_batch_create(pkv_pool *pool, const pkv_batch_options *options, pkv_batch **batch);

/** Ends a batch; its tables live on, its arrays are not touched any more.
 *  Since 0.1. */
PKV_API pkv_status pkv_batch_destroy(pkv_batch *batch);

/** Begins a step: row r is tables[r], which gets room for num_new[r] tokens after its committed ones. The arrays then
 *  describe all rows; a row that failed is empty (length 0, no slots), and takes no part in the rest of the step.
 *  @param num_tables  at most max_tables
 *  @param tables      tables of the batch's pool, each once
 *  @param num_new     new tokens of each
 *  @param statuses    out, one for each row: PKV_OK, or why it has no part in this step (PKV_ERR_NO_PAGES, ...); NULL: the
 *                     first failure is only returned
 *  @return PKV_OK; the first failed row's status, other rows go on; PKV_ERR_INVALID or PKV_ERR_LIMIT for what concerns the
 *          whole batch (a table listed twice or of another pool, arrays too small): then no table, no array and no step
 *          under way is changed
 *  Since 0.1. */
PKV_API pkv_status pkv_batch_reserve(pkv_batch *batch, uint32_t num_tables, pkv_table *const *tables,
                                     const uint32_t *num_new, pkv_status *statuses);

/** Names this step's tokens.
 *  @param num_tokens  the new tokens of all rows that were given to pkv_batch_reserve, failed rows included
 *  @param tokens      ids, table after table
 *  @param statuses    out, one for each row, or NULL; rows that failed earlier keep their status. A row that fails here, or
 *                     whose table was changed by a call of its own meanwhile (PKV_ERR_STATE), has no part in the rest of
 *                     the step either; its entries in the arrays stay
 *  @return PKV_OK; the first row's failure; PKV_ERR_INVALID with nothing changed when num_tokens is another number;
 *          PKV_ERR_STATE outside a step
 *  Since 0.1. */
PKV_API pkv_status pkv_batch_set_tokens(pkv_batch *batch, uint64_t num_tokens, const pkv_token *tokens,
                                        pkv_status *statuses);

/** Scatters one layer's rows of this step: row i of k and v goes to the i-th new token, table after table; rows of failed
 *  tables are skipped.
 *  @return as pkv_pool_write; PKV_ERR_STATE outside a step
 *  Since 0.1. */
PKV_API pkv_status pkv_batch_write(pkv_batch *batch, uint32_t group, uint32_t layer, const pkv_tensor *k, const pkv_tensor *v,
                                   const pkv_sync *sync);

/** Gathers one layer of every row: tokens [first[r], length of r) of table r. In a window group `first` has to lie after what the
 *  window has passed.
 *  @param first        first token of each row; NULL = 0 for all
 *  @param padded       0: rows follow each other (ragged); else row r begins at r * padded and what it does not fill is
 *                      zeroed; PKV_ERR_INVALID if a row is longer
 *  @param k, v         out; either may be NULL
 *  @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_STATE outside a step
 *  Since 0.1. */
PKV_API pkv_status pkv_batch_gather(pkv_batch *batch, uint32_t group, uint32_t layer, const uint64_t *first,
                                    uint64_t padded, const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync);

/** Ends the step: the KV of the new tokens is complete; full, named blocks are published.
 *  @param num_accepted  of each row's new tokens, the first so many are kept and the others forgotten; NULL = all
 *  @param statuses      out, one for each row, or NULL
 *  @return PKV_OK; the first row's failure; PKV_ERR_STATE outside a step
 *  Since 0.1. */
PKV_API pkv_status pkv_batch_commit(pkv_batch *batch, const uint32_t *num_accepted, pkv_status *statuses,
                                    const pkv_sync *sync);

#ifdef __cplusplus
}
#endif
#endif
