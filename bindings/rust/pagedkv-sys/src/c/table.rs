// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers: not to be edited.
//! A block table: one sequence, from its prompt to its last token.
//!
//! A table knows four numbers, all in tokens from the start of the sequence:
//!
//! ```text
//! named      ids are known (admit, set_tokens)
//! reserved   there is room in pages (admit, reserve)
//! committed  KV is complete in all layers (admit's match, commit); never more than reserved
//! published  whole blocks that are named and committed: findable by other sequences
//! ```
//!
//! A step of an engine:
//!
//! ```text
//! reserve(n)  make room, private where it will be written      set_tokens  name the ids, when they are known
//! write, or the engine's own kernel over slots()               commit(n)   the KV of the first n tokens is complete
//! ```
//!
//! Nothing committed ever changes: writing happens only at and after `committed`. Blocks that are shared (fork,
//! a match) are copied before the first write into them. commit never changes page ids that were handed out.
//!
//! Thread-safety: one thread at a time for each table; different tables, also of one pool, from different
//! threads at once.

#[allow(unused_imports)]
use super::*;

/// Take nothing from the cache
pub const PKV_ADMIT_NO_MATCH: u32 = 1;

/// A match may end inside a block: its first tokens are copied into a page of the table's own. Needs room for
/// that page, so reserve_tokens other than 0 counts from the end of the whole blocks. Not in pools without
/// memory
pub const PKV_ADMIT_PARTIAL: u32 = 4;

/// When a block of this sequence turns out to be published already (two sequences computed it at once), commit
/// replaces the page by the published one and frees its own: page ids change. Without it the own page is kept,
/// and ids never change
pub const PKV_ADMIT_SHARE: u32 = 8;

/// The request was admitted before and is coming back (preemption): statistics count it once
pub const PKV_ADMIT_RETRY: u32 = 2;

/// See the functions that take a `pkv_admit_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_admit_options {
    /// `struct_size`.
    pub struct_size: usize,
    /// At most this many tokens may match; 0 = all but the last, `PKV_MATCH_ALL` = no bound
    pub max_match: u64,
    /// Room to make after the matched tokens (a chunk of the prompt, or more than the prompt for decoding); 0 = the
    /// rest of the prompt
    pub reserve_tokens: u64,
    /// Pages that must stay free or evictable afterwards, in every group
    pub watermark: u64,
    /// `PKV_ADMIT_*`
    pub flags: u32,
    /// 0
    pub reserved: u32,
}

/// Initial value of [`pkv_admit_options`].
pub const PKV_ADMIT_OPTIONS_INIT: pkv_admit_options = pkv_admit_options { struct_size: size_of::<pkv_admit_options>(), max_match: 0, reserve_tokens: 0, watermark: 0, flags: 0, reserved: 0 };

/// A copy that the caller of a pool without memory has to make: all rows of page `src` to page `dst`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_page_copy {
    /// `group`.
    pub group: u32,
    /// `src`.
    pub src: pkv_page,
    /// `dst`.
    pub dst: pkv_page,
}

/// A window has passed it
pub const PKV_BLOCK_DROPPED: i32 = -1;

/// In a page
pub const PKV_BLOCK_RESIDENT: i32 = 0;

/// + i: in tier i of the pool
pub const PKV_BLOCK_TIER: i32 = 1;

/// See the functions that take a `pkv_spill_result`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_spill_result {
    /// `struct_size`.
    pub struct_size: usize,
    /// Now in tiers, in at least one group
    pub spilled_blocks: u64,
    /// Pages that somebody else holds, too: they stayed
    pub shared_pages: u64,
}

/// Initial value of [`pkv_spill_result`].
pub const PKV_SPILL_RESULT_INIT: pkv_spill_result = pkv_spill_result { struct_size: size_of::<pkv_spill_result>(), spilled_blocks: 0, shared_pages: 0 };

/// See the functions that take a `pkv_table_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_table_info {
    /// `struct_size`.
    pub struct_size: usize,
    /// Tokens
    pub named: u64,
    /// Tokens there is room for
    pub reserved: u64,
    /// Tokens
    pub committed: u64,
    /// Tokens, in whole blocks, that this sequence has offered to others
    pub published: u64,
    /// Tokens that admit took from the cache
    pub matched: u64,
    /// Blocks of the sequence
    pub blocks: u64,
    /// Of them, those that hold committed tokens; the rest is reserved room
    pub committed_blocks: u64,
    /// Tokens whose KV can be had: `committed`, or fewer after `PKV_ERR_LOST`
    pub valid: u64,
    /// Blocks in tiers instead of pages
    pub absent_blocks: u64,
}

/// Initial value of [`pkv_table_info`].
pub const PKV_TABLE_INFO_INIT: pkv_table_info = pkv_table_info { struct_size: size_of::<pkv_table_info>(), named: 0, reserved: 0, committed: 0, published: 0, matched: 0, blocks: 0, committed_blocks: 0, valid: 0, absent_blocks: 0 };

extern "C" {
    /// Makes an empty table of a pool. It holds no page.
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_HANDLE`; `PKV_ERR_NO_MEMORY`; `PKV_ERR_LIMIT` at 2^24 live handles
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_table_create(pool: *mut pkv_pool, table: *mut *mut pkv_table) -> pkv_status;

    /// Releases all pages and the table. Works also after its pool was destroyed.
    ///
    /// * `sync`: work that may still use the pages; NULL = none
    /// * Returns `PKV_OK`; `PKV_ERR_HANDLE`; `PKV_ERR_TIMEOUT` (the table lives on)
    ///
    /// Since 0.1.
    pub fn pkv_table_destroy(table: *mut pkv_table, sync: *const pkv_sync) -> pkv_status;

    /// Releases all pages and forgets the sequence: the table is as new and can be admitted again. Since 0.1.
    pub fn pkv_table_clear(table: *mut pkv_table, sync: *const pkv_sync) -> pkv_status;

    /// Begins a sequence: matches the longest cached prefix of the prompt and makes room for what follows, in one
    /// step, or changes nothing. Afterwards the prompt's tokens are named, the matched ones are committed.
    ///
    /// * `prompt`: tokens, namespace and media; copied
    /// * `options`: NULL = defaults
    /// * `match`: out, what was found, or NULL
    ///
    /// In a pool with tiers a match goes on with blocks that are found there; they are absent until
    /// `pkv_table_restore` (see below). The call waits for the tiers' answers, not for bytes.
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_NO_PAGES` when the room cannot be had besides the matched pages and the
    ///   watermark; `PKV_ERR_AGAIN` with `PKV_POOL_KEEP_UNSTORED`; `PKV_ERR_STATE` for a table that has a sequence;
    ///   `PKV_ERR_INVALID`; `PKV_ERR_NO_MEMORY`; `PKV_ERR_HANDLE`
    ///
    /// Since 0.1.
    pub fn pkv_table_admit(table: *mut pkv_table, prompt: *const pkv_prompt, options: *const pkv_admit_options, r#match: *mut pkv_match) -> pkv_status;

    /// Makes room for the first `num_tokens` tokens of the sequence in all, and makes what lies at and after
    /// `committed` private. Counted from the start, so that repeating a call is harmless; less than there is
    /// already does nothing more.
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_NO_PAGES`, with nothing changed; `PKV_ERR_LIMIT` above 2^40 tokens;
    ///   `PKV_ERR_STATE` before admit; `PKV_ERR_HANDLE`
    ///
    /// Since 0.1.
    pub fn pkv_table_reserve(table: *mut pkv_table, num_tokens: u64) -> pkv_status;

    /// Names the tokens at \[position, position + num_tokens). Blocks that are committed and now completely named
    /// are published.
    ///
    /// * `position`: at most `named`: no gaps. Ids at and after `committed` may be replaced, and then names and
    ///   media behind them are forgotten; those before it only by themselves
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID` for a gap or another id before `committed`; `PKV_ERR_STATE` before
    ///   admit; `PKV_ERR_LIMIT` above 2^40 tokens; `PKV_ERR_NO_MEMORY`
    ///
    /// Since 0.1.
    pub fn pkv_table_set_tokens(table: *mut pkv_table, position: u64, num_tokens: u64, tokens: *const pkv_token) -> pkv_status;

    /// Puts K and V rows of one layer in: row i belongs to position + i.
    ///
    /// * `position`: `committed` or later, in any order
    /// * `num_tokens`: the range must lie inside `reserved`
    /// * `k`, `v`: rows of the group's type; v is NULL without V
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_NO_PAGES` when a shared block has to be copied and no page
    ///   is left; `PKV_ERR_UNSUPPORTED` for a pool without memory
    ///
    /// Since 0.1.
    pub fn pkv_table_write(table: *mut pkv_table, group: u32, layer: u32, position: u64, num_tokens: u64, k: *const pkv_tensor, v: *const pkv_tensor, sync: *const pkv_sync) -> pkv_status;

    /// Says that the KV of the first `num_tokens` tokens is complete in all layers, and publishes blocks that are
    /// now committed and named. Page ids do not change (but see `PKV_ADMIT_SHARE`).
    ///
    /// * `num_tokens`: from `committed` (nothing to do) to `reserved`
    /// * `sync`: work that still writes the KV; NULL = none
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID` outside that range; `PKV_ERR_STATE` before admit, or when the block at
    ///   `committed` is shared: nothing can have been written there (after a fork in mid-step, reserve makes a
    ///   private copy), or while copies are outstanding (`pkv_table_take_copies`)
    ///
    /// Since 0.1.
    pub fn pkv_table_commit(table: *mut pkv_table, num_tokens: u64, sync: *const pkv_sync) -> pkv_status;

    /// Takes rows of one layer out, in order: row i is token position + i.
    ///
    /// * `num_tokens`: the range must be readable: committed, or written through `pkv_table_write` in order,
    ///   without a gap after `committed`, in this layer
    /// * `k`, `v`: out, rows of the group's type; either may be NULL if its rows are not wanted
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID` for rows that were never written; `PKV_ERR_NOT_RESIDENT` for blocks
    ///   that were dropped; `PKV_ERR_UNSUPPORTED` for a pool without memory
    ///
    /// Since 0.1.
    pub fn pkv_table_gather(table: *mut pkv_table, group: u32, layer: u32, position: u64, num_tokens: u64, k: *const pkv_tensor, v: *const pkv_tensor, sync: *const pkv_sync) -> pkv_status;

    /// Makes a second table with the same committed tokens, sharing their pages, and the same names. Room that is
    /// not committed stays with the source. Whoever writes into a shared block first copies it.
    ///
    /// * `sync`: work that still writes the source's committed KV; NULL = none
    /// * `fork`: out
    /// * Returns `PKV_OK`; `PKV_ERR_NO_MEMORY`; `PKV_ERR_STATE` before admit, or while copies are outstanding
    ///   (`pkv_table_take_copies`); `PKV_ERR_HANDLE`
    ///
    /// Since 0.1.
    pub fn pkv_table_fork(table: *mut pkv_table, sync: *const pkv_sync, fork: *mut *mut pkv_table) -> pkv_status;

    /// Cuts the sequence to `num_tokens` tokens: named, reserved (up to the end of the block) and committed become
    /// at most that. Pages behind are released; what was published stays findable. Moves no bytes; takes time in
    /// proportion to the blocks dropped.
    ///
    /// * `num_tokens`: more than there is does nothing
    /// * `sync`: work that may still use the pages; NULL = none
    /// * Returns `PKV_OK`; `PKV_ERR_STATE` before admit, or when a window group would need blocks there that its
    ///   window has passed; `PKV_ERR_HANDLE`
    ///
    /// Since 0.1.
    pub fn pkv_table_truncate(table: *mut pkv_table, num_tokens: u64, sync: *const pkv_sync) -> pkv_status;

    /// Keeps the accepted ones of tree-drafted tokens: of the tokens written after `committed`, the one at
    /// positions\[i\] becomes the one at committed + i, in all layers; then committed is raised by num_positions,
    /// and names and rows behind are forgotten (the room stays).
    ///
    /// * `num_positions`: accepted tokens; 0 forgets all drafts
    /// * `positions`: strictly ascending, from `committed` to below `reserved`
    /// * `sync`: work that still writes the drafts; NULL = none
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_NO_PAGES` when a shared block has to be copied and no page
    ///   is left; `PKV_ERR_STATE` before admit, or while copies are outstanding. In a pool without memory the
    ///   caller has moved the rows before the call; a shared block gives `PKV_ERR_STATE` there
    ///
    /// Since 0.1.
    pub fn pkv_table_accept(table: *mut pkv_table, num_positions: u64, positions: *const u64, sync: *const pkv_sync) -> pkv_status;

    /// Drops, in window groups, the blocks that no later token attends to: those that end at or before committed -
    /// window and hold no sink. Their entries in the block table become `PKV_NO_PAGE`; their pages are cached, or
    /// free.
    ///
    /// * `sync`: work that may still use the pages; NULL = none
    /// * Returns `PKV_OK`; `PKV_ERR_STATE` before admit; `PKV_ERR_HANDLE`
    ///
    /// Since 0.1.
    pub fn pkv_table_window(table: *mut pkv_table, sync: *const pkv_sync) -> pkv_status;

    /// Sets the retention of blocks of this sequence that hold tokens of a range: those published already, and
    /// those that will be. A later call overrides an earlier one where they overlap.
    ///
    /// * `num_tokens`: UINT64_MAX = to the end, whatever it will be
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_LIMIT` at 64 ranges; `PKV_ERR_STATE` before admit;
    ///   `PKV_ERR_NO_MEMORY`
    ///
    /// Since 0.1.
    pub fn pkv_table_set_retention(table: *mut pkv_table, first_token: u64, num_tokens: u64, retention: *const pkv_retention) -> pkv_status;

    /// In a pool without memory (`PKV_MEMORY_NONE`): hands out the copies on write that earlier calls on this table
    /// decided on. They must be made before the next write. Their sources stay held until this table's next commit
    /// or accept, the next copy, or until their block goes.
    ///
    /// * `copies`: out
    /// * `capacity`: entries at copies; 0 asks for the number only
    /// * `count`: out, copies written, or to be had; at most one for each group is outstanding at a time
    /// * Returns `PKV_OK`; `PKV_ERR_NO_SPACE` when capacity is neither 0 nor enough; `PKV_ERR_INVALID`;
    ///   `PKV_ERR_HANDLE`
    ///
    /// Since 0.1.
    pub fn pkv_table_take_copies(table: *mut pkv_table, copies: *mut pkv_page_copy, capacity: u64, count: *mut u64) -> pkv_status;

    /// Writes the committed part of a sequence into a buffer: namespace digest, tokens, media, and the KV of all
    /// layers with its scales, under a checksum. Blocks that a window has passed are left out. Format: a header
    /// with magic, version and every size, in the machine's byte order; then rows in order \[group\]\[layer\]\[K,
    /// V\]\[token\]\[head\], whatever the pool's layout; XXH3-64 of all before at the end. Aux bytes are the
    /// pages', not the sequence's, and stay behind.
    ///
    /// * `buffer`: out
    /// * `capacity`: bytes at buffer; 0 asks for the size only
    /// * `size`: out, bytes written, or needed
    /// * Returns `PKV_OK`; `PKV_ERR_NO_SPACE` when capacity is neither 0 nor enough; `PKV_ERR_STATE` before admit,
    ///   or when committed tokens are not named; `PKV_ERR_UNSUPPORTED` for a pool without memory
    ///
    /// Since 0.1.
    pub fn pkv_table_export(table: *mut pkv_table, buffer: *mut c_void, capacity: u64, size: *mut u64) -> pkv_status;

    /// Begins a sequence from what `pkv_table_export` wrote, in a pool of equal geometry (page_tokens, number of
    /// pages, layout and memory may differ). Its whole blocks are published.
    ///
    /// * `buffer`: `size` bytes
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID` for what is no such buffer, or is damaged; `PKV_ERR_MISMATCH` with the
    ///   differing field (also when a window was cut where this pool's page_tokens have no page boundary);
    ///   `PKV_ERR_NO_PAGES`; `PKV_ERR_STATE` for a table that has a sequence. The table stays empty then
    ///
    /// Since 0.1.
    pub fn pkv_table_import(table: *mut pkv_table, buffer: *const c_void, size: u64) -> pkv_status;

    /// The int32 block table of a group, as attention kernels take it.
    ///
    /// * `pages`: out, page ids in order of blocks; `PKV_NO_PAGE` for blocks that a window has passed
    /// * `capacity`: entries at pages; 0 asks for the number only
    /// * `num_blocks`: out, blocks of the sequence
    /// * Returns `PKV_OK`; `PKV_ERR_NO_SPACE` when capacity is neither 0 nor enough (nothing is written but
    ///   num_blocks); `PKV_ERR_INVALID`; `PKV_ERR_HANDLE`
    ///
    /// Since 0.1.
    pub fn pkv_table_pages(table: *mut pkv_table, group: u32, pages: *mut pkv_page, capacity: u64, num_blocks: *mut u64) -> pkv_status;

    /// The slots of tokens \[position, position + num_tokens). Shared blocks at and after `committed` are copied
    /// first, so that the slots may be written; take the block table after this call.
    ///
    /// * `num_tokens`: the range must lie inside `reserved`
    /// * `slots`: out, num_tokens slots; `PKV_NO_SLOT` in blocks that a window has passed
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_NO_PAGES` when a shared block has to be copied and no page
    ///   is left
    ///
    /// Since 0.1.
    pub fn pkv_table_slots(table: *mut pkv_table, group: u32, position: u64, num_tokens: u64, slots: *mut pkv_slot) -> pkv_status;

    /// Where blocks \[first_block, first_block + num_blocks) of a group are.
    ///
    /// * `where`: out, one for each block: `PKV_BLOCK_*`
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_STATE` before admit; `PKV_ERR_HANDLE`
    ///
    /// Since 0.1.
    pub fn pkv_table_residency(table: *mut pkv_table, group: u32, first_block: u64, num_blocks: u64, r#where: *mut i32) -> pkv_status;

    /// Moves committed blocks \[first_block, first_block + num_blocks) down and frees their pages. The images
    /// belong to this sequence and are pinned in the tiers until they are restored, or the blocks go. Blocks that
    /// are absent already, and pages that others hold, stay as they are. Rows written behind `committed` do not go
    /// with the last block: they are lost. The call waits for the stores.
    ///
    /// * `num_blocks`: more than there are: to the end
    /// * `sync`: work that may still use the pages; NULL = none
    /// * `result`: out, or NULL
    /// * Returns `PKV_OK`; `PKV_ERR_NO_SPACE` when no tier has room for all of them, `PKV_ERR_IO` or
    ///   `PKV_ERR_TIMEOUT` when none took them: nothing was moved then; `PKV_ERR_STATE` before admit or in a pool
    ///   without tiers; `PKV_ERR_INVALID`; `PKV_ERR_NO_MEMORY`; `PKV_ERR_HANDLE`
    ///
    /// Since 0.1.
    pub fn pkv_table_spill(table: *mut pkv_table, first_block: u64, num_blocks: u64, sync: *const pkv_sync, result: *mut pkv_spill_result) -> pkv_status;

    /// Brings absent blocks of \[first_block, first_block + num_blocks) back into pages. Blocks that another
    /// sequence brought up, or is bringing up, are taken from there and not loaded twice. What was loaded before a
    /// failure stays.
    ///
    /// * `num_blocks`: more than there are: to the end
    /// * `timeout_ns`: longest wait; UINT64_MAX = for ever
    /// * `restored`: out, blocks that are resident now and were not before; or NULL
    /// * Returns `PKV_OK`; `PKV_ERR_TIMEOUT` (a later call may succeed); `PKV_ERR_LOST`; `PKV_ERR_NO_PAGES` when
    ///   spilled blocks find no pages (nothing was loaded); `PKV_ERR_STATE` before admit; `PKV_ERR_INVALID`;
    ///   `PKV_ERR_NO_MEMORY`; `PKV_ERR_HANDLE`
    ///
    /// Since 0.1.
    pub fn pkv_table_restore(table: *mut pkv_table, first_block: u64, num_blocks: u64, timeout_ns: u64, restored: *mut u64) -> pkv_status;

    /// The table's numbers. Since 0.1.
    pub fn pkv_table_get_info(table: *mut pkv_table, info: *mut pkv_table_info) -> pkv_status;
}
