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
#define PKV_ADMIT_PARTIAL 4u  /**< a match may end inside a block: its first tokens are copied into a page of the table's own.
                                   Needs room for that page, so reserve_tokens other than 0 counts from the end of the whole
                                   blocks. Not in pools without memory */
#define PKV_ADMIT_SHARE 8u    /**< when a block of this sequence turns out to be published already (two sequences computed it
                                   at once), commit replaces the page by the published one and frees its own: page ids
                                   change. Without it the own page is kept, and ids never change */
#define PKV_ADMIT_RETRY 2u    /**< the request was admitted before and is coming back (preemption): statistics count it
                                   once */

typedef struct pkv_admit_options {
    size_t struct_size;
    uint64_t max_match;      /**< at most this many tokens may match; 0 = all but the last, PKV_MATCH_ALL = no bound */
    uint64_t reserve_tokens; /**< room to make after the matched tokens (a chunk of the prompt, or more than the prompt for
                                  decoding); 0 = the rest of the prompt */
    uint64_t watermark;      /**< pages that must stay free or evictable afterwards, in every group */
    uint32_t flags;          /**< PKV_ADMIT_* */
    uint32_t reserved;       /**< 0 */
} pkv_admit_options;
#define PKV_ADMIT_OPTIONS_INIT {sizeof(pkv_admit_options), 0, 0, 0, 0, 0}

/** Begins a sequence: matches the longest cached prefix of the prompt and makes room for what follows, in one step, or
 *  changes nothing. Afterwards the prompt's tokens are named, the matched ones are committed.
 *  @param prompt   tokens, namespace and media; copied
 *  @param options  NULL = defaults
 *  @param match    out, what was found, or NULL
 *  In a pool with tiers a match goes on with blocks that are found there; they are absent until pkv_table_restore (see
 *  below). The call waits for the tiers' answers, not for bytes.
 *  @return PKV_OK; PKV_ERR_NO_PAGES when the room cannot be had besides the matched pages and the watermark; PKV_ERR_AGAIN
 *          with PKV_POOL_KEEP_UNSTORED;
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
 *  @param position  at most `named`: no gaps. Ids at and after `committed` may be replaced, and then names and media behind
 *                   them are forgotten; those before it only by themselves
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
 *  committed and named. Page ids do not change (but see PKV_ADMIT_SHARE).
 *  @param num_tokens  from `committed` (nothing to do) to `reserved`
 *  @param sync        work that still writes the KV; NULL = none
 *  @return PKV_OK; PKV_ERR_INVALID outside that range; PKV_ERR_STATE before admit, or when the block at `committed` is
 *          shared: nothing can have been written there (after a fork in mid-step, reserve makes a private copy), or while
 *          copies are outstanding (pkv_table_take_copies)
 *  Since 0.1. */
PKV_API pkv_status pkv_table_commit(pkv_table *table, uint64_t num_tokens, const pkv_sync *sync);

/** Takes rows of one layer out, in order: row i is token position + i.
 *  @param num_tokens  the range must be readable: committed, or written through pkv_table_write in order, without a
 *                     gap after `committed`, in this layer
 *  @param k, v        out, rows of the group's type; either may be NULL if its rows are not wanted
 *  @return PKV_OK; PKV_ERR_INVALID for rows that were never written; PKV_ERR_NOT_RESIDENT for blocks that were dropped;
 *          PKV_ERR_UNSUPPORTED for a pool without memory
 *  Since 0.1. */
PKV_API pkv_status pkv_table_gather(pkv_table *table, uint32_t group, uint32_t layer, uint64_t position,
                                    uint64_t num_tokens, const pkv_tensor *k, const pkv_tensor *v,
                                    const pkv_sync *sync);

/** Makes a second table with the same committed tokens, sharing their pages, and the same names. Room that is not
 *  committed stays with the source. Whoever writes into a shared block first copies it.
 *  @param sync  work that still writes the source's committed KV; NULL = none
 *  @param fork  out
 *  @return PKV_OK; PKV_ERR_NO_MEMORY; PKV_ERR_STATE before admit, or while copies are outstanding
 *          (pkv_table_take_copies); PKV_ERR_HANDLE
 *  Since 0.1. */
PKV_API pkv_status pkv_table_fork(pkv_table *table, const pkv_sync *sync, pkv_table **fork);

/** Cuts the sequence to `num_tokens` tokens: named, reserved (up to the end of the block) and committed become at most
 *  that. Pages behind are released; what was published stays findable. Moves no bytes; takes time in proportion to the
 *  blocks dropped.
 *  @param num_tokens  more than there is does nothing
 *  @param sync        work that may still use the pages; NULL = none
 *  @return PKV_OK; PKV_ERR_STATE before admit, or when a window group would need blocks there that its window has
 *          passed; PKV_ERR_HANDLE
 *  Since 0.1. */
PKV_API pkv_status pkv_table_truncate(pkv_table *table, uint64_t num_tokens, const pkv_sync *sync);

/** Keeps the accepted ones of tree-drafted tokens: of the tokens written after `committed`, the one at positions[i] becomes
 *  the one at committed + i, in all layers; then committed is raised by num_positions, and names and rows behind are
 *  forgotten (the room stays).
 *  @param num_positions  accepted tokens; 0 forgets all drafts
 *  @param positions      strictly ascending, from `committed` to below `reserved`
 *  @param sync           work that still writes the drafts; NULL = none
 *  @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_NO_PAGES when a shared block has to be copied and no page is left;
 *          PKV_ERR_STATE before admit, or while copies are outstanding. In a pool without memory the caller has moved the rows
 *          before the call; a shared block gives PKV_ERR_STATE there
 *  Since 0.1. */
PKV_API pkv_status pkv_table_accept(pkv_table *table, uint64_t num_positions, const uint64_t *positions,
                                    const pkv_sync *sync);

/** Drops, in window groups, the blocks that no later token attends to: those that end at or before committed - window and
 *  hold no sink. Their entries in the block table become PKV_NO_PAGE; their pages are cached, or free.
 *  @param sync  work that may still use the pages; NULL = none
 *  @return PKV_OK; PKV_ERR_STATE before admit; PKV_ERR_HANDLE
 *  Since 0.1. */
PKV_API pkv_status pkv_table_window(pkv_table *table, const pkv_sync *sync);

/** Sets the retention of blocks of this sequence that hold tokens of a range: those published already, and those that will
 *  be. A later call overrides an earlier one where they overlap.
 *  @param num_tokens  UINT64_MAX = to the end, whatever it will be
 *  @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_LIMIT at 64 ranges; PKV_ERR_STATE before admit; PKV_ERR_NO_MEMORY
 *  Since 0.1. */
PKV_API pkv_status pkv_table_set_retention(pkv_table *table, uint64_t first_token, uint64_t num_tokens,
                                           const pkv_retention *retention);

/** A copy that the caller of a pool without memory has to make: all rows of page `src` to page `dst`. */
typedef struct pkv_page_copy {
    uint32_t group;
    pkv_page src;
    pkv_page dst;
} pkv_page_copy;

/** In a pool without memory (PKV_MEMORY_NONE): hands out the copies on write that earlier calls on this table decided on.
 *  They must be made before the next write. Their sources stay held until this table's next commit or accept, the next
 *  copy, or until their block goes.
 *  @param copies    out
 *  @param capacity  entries at copies; 0 asks for the number only
 *  @param count     out, copies written, or to be had; at most one for each group is outstanding at a time
 *  @return PKV_OK; PKV_ERR_NO_SPACE when capacity is neither 0 nor enough; PKV_ERR_INVALID; PKV_ERR_HANDLE
 *  Since 0.1. */
PKV_API pkv_status pkv_table_take_copies(pkv_table *table, pkv_page_copy *copies, uint64_t capacity, uint64_t *count);

/** Writes the committed part of a sequence into a buffer: namespace digest, tokens, media, and the KV of all layers with
 *  its scales, under a checksum. Blocks that a window has passed are left out. Format: a header with magic, version and
 *  every size, in the machine's byte order; then rows in order [group][layer][K, V][token][head], whatever the pool's
 *  layout; XXH3-64 of all before at the end. Aux bytes are the pages', not the sequence's, and stay behind.
 *  @param buffer    out
 *  @param capacity  bytes at buffer; 0 asks for the size only
 *  @param size      out, bytes written, or needed
 *  @return PKV_OK; PKV_ERR_NO_SPACE when capacity is neither 0 nor enough; PKV_ERR_STATE before admit, or when
 *          committed tokens are not named; PKV_ERR_UNSUPPORTED for a pool without memory
 *  Since 0.1. */
PKV_API pkv_status pkv_table_export(pkv_table *table, void *buffer, uint64_t capacity, uint64_t *size);

/** Begins a sequence from what pkv_table_export wrote, in a pool of equal geometry (page_tokens, number of pages, layout and
 *  memory may differ). Its whole blocks are published.
 *  @param buffer  `size` bytes
 *  @return PKV_OK; PKV_ERR_INVALID for what is no such buffer, or is damaged; PKV_ERR_MISMATCH with the differing field
 *          (also when a window was cut where this pool's page_tokens have no page boundary); PKV_ERR_NO_PAGES; PKV_ERR_STATE for a table that has a sequence. The table stays empty then
 *  Since 0.1. */
PKV_API pkv_status pkv_table_import(pkv_table *table, const void *buffer, uint64_t size);

/** The int32 block table of a group, as attention kernels take it.
 *  @param pages       out, page ids in order of blocks; PKV_NO_PAGE for blocks that a window has passed
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
 *  @param slots       out, num_tokens slots; PKV_NO_SLOT in blocks that a window has passed
 *  @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_NO_PAGES when a shared block has to be copied and no page is left
 *  Since 0.1. */
PKV_API pkv_status pkv_table_slots(pkv_table *table, uint32_t group, uint64_t position, uint64_t num_tokens,
                                   pkv_slot *slots);

/* ---- blocks in tiers -------------------------------------------------------------------------------------------- */

/* In a pool with tiers a block of a sequence may be absent: in tiers, not in pages. pkv_table_admit attaches what it finds
 * there (the pages are taken already, and still empty), pkv_table_spill moves blocks down. Absent blocks are committed
 * tokens like others, but pages, slots that touch them, fork, export and batches give PKV_ERR_NOT_RESIDENT until
 * pkv_table_restore has brought them up. pkv_table_gather does so by itself, and waits (pkv_pool_stats.exposed_ns).
 *
 * A block that no tier can give back is lost, and never replaced by other bytes: the call gives PKV_ERR_LOST,
 * pkv_table_info.valid says how many tokens are left, and from then on the table takes only truncate (to at most so many,
 * which makes it usable again), get_info, residency, clear and destroy. */

/* pkv_table_residency */
#define PKV_BLOCK_DROPPED (-1) /**< a window has passed it */
#define PKV_BLOCK_RESIDENT 0   /**< in a page */
#define PKV_BLOCK_TIER 1       /**< + i: in tier i of the pool */

/** Where blocks [first_block, first_block + num_blocks) of a group are.
 *  @param where  out, one for each block: PKV_BLOCK_*
 *  @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_STATE before admit; PKV_ERR_HANDLE
 *  Since 0.1. */
PKV_API pkv_status pkv_table_residency(pkv_table *table, uint32_t group, uint64_t first_block, uint64_t num_blocks,
                                       int32_t *where);

typedef struct pkv_spill_result {
    size_t struct_size;
    uint64_t spilled_blocks; /**< now in tiers, in at least one group */
    uint64_t shared_pages;   /**< pages that somebody else holds, too: they stayed */
} pkv_spill_result;
#define PKV_SPILL_RESULT_INIT {sizeof(pkv_spill_result), 0, 0}

/** Moves committed blocks [first_block, first_block + num_blocks) down and frees their pages. The images belong to this
 *  sequence and are pinned in the tiers until they are restored, or the blocks go. Blocks that are absent already, and pages
 *  that others hold, stay as they are. Rows written behind `committed` do not go with the last block: they are lost. The
 *  call waits for the stores.
 *  @param num_blocks  more than there are: to the end
 *  @param sync        work that may still use the pages; NULL = none
 *  @param result      out, or NULL
 *  @return PKV_OK; PKV_ERR_NO_SPACE when no tier has room for all of them, PKV_ERR_IO or PKV_ERR_TIMEOUT when none took
 *          them: nothing was moved then; PKV_ERR_STATE before admit or in a pool without tiers; PKV_ERR_INVALID;
 *          PKV_ERR_NO_MEMORY; PKV_ERR_HANDLE
 *  Since 0.1. */
PKV_API pkv_status pkv_table_spill(pkv_table *table, uint64_t first_block, uint64_t num_blocks, const pkv_sync *sync,
                                   pkv_spill_result *result);

/** Brings absent blocks of [first_block, first_block + num_blocks) back into pages. Blocks that another sequence brought up,
 *  or is bringing up, are taken from there and not loaded twice. What was loaded before a failure stays.
 *  @param num_blocks  more than there are: to the end
 *  @param timeout_ns  longest wait; UINT64_MAX = for ever
 *  @param restored    out, blocks that are resident now and were not before; or NULL
 *  @return PKV_OK; PKV_ERR_TIMEOUT (a later call may succeed); PKV_ERR_LOST; PKV_ERR_NO_PAGES when spilled blocks find no
 *          pages (nothing was loaded); PKV_ERR_STATE before admit; PKV_ERR_INVALID; PKV_ERR_NO_MEMORY; PKV_ERR_HANDLE
 *  Since 0.1. */
PKV_API pkv_status pkv_table_restore(pkv_table *table, uint64_t first_block, uint64_t num_blocks, uint64_t timeout_ns,
                                     uint64_t *restored);

typedef struct pkv_table_info {
    size_t struct_size;
    uint64_t named;           /**< tokens */
    uint64_t reserved;        /**< tokens there is room for */
    uint64_t committed;       /**< tokens */
    uint64_t published;       /**< tokens, in whole blocks, that this sequence has offered to others */
    uint64_t matched;         /**< tokens that admit took from the cache */
    uint64_t blocks;          /**< blocks of the sequence */
    uint64_t committed_blocks; /**< of them, those that hold committed tokens; the rest is reserved room */
    uint64_t valid;            /**< tokens whose KV can be had: `committed`, or fewer after PKV_ERR_LOST */
    uint64_t absent_blocks;    /**< blocks in tiers instead of pages */
} pkv_table_info;
#define PKV_TABLE_INFO_INIT {sizeof(pkv_table_info), 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** The table's numbers. Since 0.1. */
PKV_API pkv_status pkv_table_get_info(pkv_table *table, pkv_table_info *info);

#ifdef __cplusplus
}
#endif
#endif
