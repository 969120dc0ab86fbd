/* SPDX-License-Identifier: Apache-2.0 */
/** @file table.h
 *  A block table: one sequence, from its prompt to its last token.
 *
 *  A table knows four numbers, all in tokens from the start of the sequence:
 *    named      ids are known (admit, set_tokens)
 *    reserved   there is room in pages (admit, reserve)
 *    committed  KV is complete in all layers (admit's match, commit); never more than reserved
 *    published  whole blocks that are named and committed: findable by other sequences
 *
 *  A step of an engine:
 *    reserve(n)  make room, private where it will be written      set_tokens  name the ids, when they are known
 *    write, or the engine's own kernel over slots()               commit(n)   the KV of the first n tokens is complete
 *
 *  Nothing committed ever changes: writing happens only at and after `committed`. Blocks that are shared (fork, a match)
 *  are copied before the first write into them. commit never changes page ids that were handed out.
 *
 *  Thread-safety: one thread at a time for each table; different tables, also of one pool, from different threads at
 *  once. */
#ifndef PAGEDKV_TABLE_H
#define PAGEDKV_TABLE_H

#include <pagedkv/pool.h>
#include <pagedkv/tensor.h>
#include <pagedkv/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Makes an empty table of a pool. It holds no page.
 *  @return PKV_OK; PKV_ERR_HANDLE; PKV_ERR_NO_MEMORY; PKV_ERR_LIMIT at 2^24 live handles
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_table_create(pkv_pool *pool, pkv_table **table);

/** Releases all pages and the table. Works also after its pool was destroyed.
 *  @param sync  work that may still use the pages; NULL = none
 *  @return PKV_OK; PKV_ERR_HANDLE; PKV_ERR_TIMEOUT (the table lives on)
 *  Since 0.1. */
PKV_API pkv_status pkv_table_destroy(pkv_table *table, const pkv_sync *sync);

/** Releases all pages and forgets the sequence: the table is as new and can be admitted again.
 *  Since 0.1. */
PKV_API pkv_status pkv_table_clear(pkv_table *table, const pkv_sync *sync);

/* pkv_admit_options.flags */
#define PKV_ADMIT_NO_MATCH 1u /**< take nothing from the cache */
#define PKV_ADMIT_RETRY 2u    /**< the request was admitted before and is coming back (preemption): statistics count it
                                   once */

typedef struct pkv_admit_options {
    size_t struct_size;
    uint64_t max_match;      /**< at most this many tokens may match; 0 = all but the last, PKV_MATCH_ALL = no bound */
    uint64_t reserve_tokens; /**< room to make after the matched tokens (a chunk of the prompt, or more than the prompt for
                                  decoding); 0 = the rest of the prompt */
    uint64_t watermark;      /**< pages that must stay free or evictable afterwards */
    uint32_t flags;          /**< PKV_ADMIT_* */
    uint32_t reserved;       /**< 0 */
} pkv_admit_options;
#define PKV_ADMIT_OPTIONS_INIT {sizeof(pkv_admit_options), 0, 0, 0, 0, 0}

/** Begins a sequence: matches the longest cached prefix of the prompt and makes room for what follows, in one step, or
 *  changes nothing. Afterwards the prompt's tokens are named, the matched ones are committed.
 *  @param prompt   tokens, namespace and media; copied
 *  @param options  NULL = defaults
 *  @param match    out, what was found, or NULL
 *  @return PKV_OK; PKV_ERR_NO_PAGES when the room cannot be had besides the matched pages and the watermark;
 *          PKV_ERR_STATE for a table that has a sequence; PKV_ERR_INVALID; PKV_ERR_NO_MEMORY; PKV_ERR_HANDLE
 *  Since 0.1. */
PKV_API pkv_status pkv_table_admit(pkv_table *table, const pkv_prompt *prompt, const pkv_admit_options *options,
                                   pkv_match *match);

/** Makes room for the first `num_tokens` tokens of the sequence in all, and makes what lies at and after `committed`
 *  private. Counted from the start, so that repeating a call is harmless; less than there is already does nothing more.
 *  @return PKV_OK; PKV_ERR_NO_PAGES, with nothing changed; PKV_ERR_LIMIT above 2^40 tokens; PKV_ERR_STATE before
 *          admit; PKV_ERR_HANDLE
 *  Since 0.1. */
PKV_API pkv_status pkv_table_reserve(pkv_table *table, uint64_t num_tokens);

/** Names the tokens at [position, position + num_tokens). Blocks that are committed and now completely named are
 *  published.
 *  @param position  at most `named`: no gaps. Ids at and after `committed` may be replaced; those before it only by
 *                   themselves
 *  @return PKV_OK; PKV_ERR_INVALID for a gap or another id before `committed`; PKV_ERR_STATE before admit;
 *          PKV_ERR_LIMIT above 2^40 tokens; PKV_ERR_NO_MEMORY
 *  Since 0.1. */
PKV_API pkv_status pkv_table_set_tokens(pkv_table *table, uint64_t position, uint64_t num_tokens,
                                        const pkv_token *tokens);

/** Puts K and V rows of one layer in: row i belongs to position + i.
 *  @param position    `committed` or later, in any order
 *  @param num_tokens  the range must lie inside `reserved`
 *  @param k, v        rows of the group's type; v is NULL without V
 *  @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_NO_PAGES when a shared block has to be copied and no page is left;
 *          PKV_ERR_UNSUPPORTED for a pool without memory
 *  Since 0.1. */
PKV_API pkv_status pkv_table_write(pkv_table *table, uint32_t group, uint32_t layer, uint64_t position,
                                   uint64_t num_tokens, const pkv_tensor *k, const pkv_tensor *v,
                                   const pkv_sync *sync);

/** Says that the KV of the first `num_tokens` tokens is complete in all layers, and publishes blocks that are now
 *  committed and named. Page ids do not change.
 *  @param num_tokens  from `committed` (nothing to do) to `reserved`
 *  @param sync        work that still writes the KV; NULL = none
 *  @return PKV_OK; PKV_ERR_INVALID outside that range; PKV_ERR_STATE before admit; PKV_ERR_NO_MEMORY
 *  Since 0.1. */
PKV_API pkv_status pkv_table_commit(pkv_table *table, uint64_t num_tokens, const pkv_sync *sync);

/** Takes rows of one layer out, in order: row i is token position + i.
 *  @param num_tokens  the range must be readable: committed, or written through pkv_table_write without a gap after
 *                     `committed` in this layer
 *  @param k, v        out, rows of the group's type; either may be NULL if its rows are not wanted
 *  @return PKV_OK; PKV_ERR_INVALID for rows that were never written; PKV_ERR_UNSUPPORTED for a pool without memory
 *  Since 0.1. */
PKV_API pkv_status pkv_table_gather(pkv_table *table, uint32_t group, uint32_t layer, uint64_t position,
                                    uint64_t num_tokens, const pkv_tensor *k, const pkv_tensor *v,
                                    const pkv_sync *sync);

/** Makes a second table with the same committed tokens, sharing their pages, and the same names. Room that is not
 *  committed stays with the source. Whoever writes into a shared block first copies it.
 *  @param sync  work that still writes the source's committed KV; NULL = none
 *  @param fork  out
 *  @return PKV_OK; PKV_ERR_NO_MEMORY; PKV_ERR_STATE before admit; PKV_ERR_HANDLE
 *  Since 0.1. */
PKV_API pkv_status pkv_table_fork(pkv_table *table, const pkv_sync *sync, pkv_table **fork);

/** Cuts the sequence to `num_tokens` tokens: named, reserved (up to the end of the block) and committed become at most
 *  that. Pages behind are released; what was published stays findable. Moves no bytes; takes time in proportion to the
 *  blocks dropped.
 *  @param num_tokens  more than there is does nothing
 *  @param sync        work that may still use the pages; NULL = none
 *  @return PKV_OK; PKV_ERR_STATE before admit; PKV_ERR_HANDLE
 *  Since 0.1. */
PKV_API pkv_status pkv_table_truncate(pkv_table *table, uint64_t num_tokens, const pkv_sync *sync);

/** The int32 block table of a group, as attention kernels take it.
 *  @param pages       out, page ids in order of blocks
 *  @param capacity    entries at pages; 0 asks for the number only
 *  @param num_blocks  out, blocks of the sequence
 *  @return PKV_OK; PKV_ERR_NO_SPACE when capacity is neither 0 nor enough (nothing is written but num_blocks);
 *          PKV_ERR_INVALID; PKV_ERR_HANDLE
 *  Since 0.1. */
PKV_API pkv_status pkv_table_pages(pkv_table *table, uint32_t group, pkv_page *pages, uint64_t capacity,
                                   uint64_t *num_blocks);

/** The slots of tokens [position, position + num_tokens). Shared blocks at and after `committed` are copied first, so
 *  that the slots may be written; take the block table after this call.
 *  @param num_tokens  the range must lie inside `reserved`
 *  @param slots       out, num_tokens slots
 *  @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_NO_PAGES when a shared block has to be copied and no page is left
 *  Since 0.1. */
PKV_API pkv_status pkv_table_slots(pkv_table *table, uint32_t group, uint64_t position, uint64_t num_tokens,
                                   pkv_slot *slots);

typedef struct pkv_table_info {
    size_t struct_size;
    uint64_t named;           /**< tokens */
    uint64_t reserved;        /**< tokens there is room for */
    uint64_t committed;       /**< tokens */
    uint64_t published;       /**< tokens, in whole blocks, that this sequence has offered to others */
    uint64_t matched;         /**< tokens that admit took from the cache */
    uint64_t blocks;          /**< blocks of the sequence */
    uint64_t committed_blocks; /**< of them, those that hold committed tokens; the rest is reserved room */
} pkv_table_info;
#define PKV_TABLE_INFO_INIT {sizeof(pkv_table_info), 0, 0, 0, 0, 0, 0, 0}

/** The table's numbers. Since 0.1. */
PKV_API pkv_status pkv_table_get_info(pkv_table *table, pkv_table_info *info);

#ifdef __cplusplus
}
#endif
#endif
