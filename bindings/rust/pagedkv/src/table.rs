// SPDX-License-Identifier: Apache-2.0
//! Block tables: one sequence, from its prompt to its last token.

use crate::error::{check, Failed, Result};
use crate::handle::Handle;
use crate::pool::{filled, Pool, Shapes};
use crate::prompt::{Prompt, Retention};
use crate::rows::{Rows, RowsMut, Sides};
use crate::text::{address, address_mut, nanoseconds, span};
use crate::when::{When, NOW};
use crate::{Match, Page, PageCopy, Slot, SpillResult, TableInfo, Token, NO_PAGE, NO_SLOT};
use pagedkv_sys as sys;
use std::{cell::Cell, marker::PhantomData, ops::Range, os::raw::c_void, ptr, sync::Arc, time::Duration};

/// How a sequence begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdmitOptions {
    /// At most this many tokens may match; 0 = all but the last, [`MATCH_ALL`](crate::MATCH_ALL) = no bound
    pub max_match: u64,
    /// Room to make after the matched tokens (a chunk of the prompt, or more than the prompt for decoding); 0 = the rest of
    /// the prompt
    pub reserve_tokens: u64,
    /// Pages that must stay free or evictable afterwards, in every group
    pub watermark: u64,
    /// Take nothing from the cache
    pub no_match: bool,
    /// The request was admitted before and is coming back (preemption): statistics count it once
    pub retry: bool,
    /// A match may end inside a block: its first tokens are copied into a page of the table's own. Needs room for that page, so
    /// `reserve_tokens` other than 0 counts from the end of the whole blocks. Not in pools without memory
    pub partial: bool,
    /// When a block of this sequence turns out to be published already (two sequences computed it at once), commit replaces the
    /// page by the published one and frees its own: page ids change. Without it the own page is kept, and ids never change
    pub share: bool,
}

impl AdmitOptions {
    fn raw(&self) -> sys::pkv_admit_options {
        let mut raw = sys::PKV_ADMIT_OPTIONS_INIT;
        raw.max_match = self.max_match;
        raw.reserve_tokens = self.reserve_tokens;
        raw.watermark = self.watermark;
        raw.flags |= if self.no_match { sys::PKV_ADMIT_NO_MATCH } else { 0 };
        raw.flags |= if self.retry { sys::PKV_ADMIT_RETRY } else { 0 };
        raw.flags |= if self.partial { sys::PKV_ADMIT_PARTIAL } else { 0 };
        raw.flags |= if self.share { sys::PKV_ADMIT_SHARE } else { 0 };
        raw
    }
}

/// Where a block of a sequence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Residency {
    /// A window has passed it
    Dropped,
    /// In a page
    Resident,
    /// In this tier of the pool
    Tier(u32),
}

/// A block table. It belongs to one thread at a time (it can be sent, not shared); different ones, also of one pool, may be used
/// from different threads at once.
///
/// A table knows four numbers, all in tokens from the start of the sequence:
///
/// ```text
/// named      ids are known (admit, set_tokens)
/// reserved   there is room in pages (admit, reserve)
/// committed  KV is complete in all layers (admit's match, commit); never more than reserved
/// published  whole blocks that are named and committed: findable by other sequences
/// ```
///
/// A step of an engine: [`reserve`](Table::reserve) makes room, private where it will be written;
/// [`set_tokens`](Table::set_tokens) names the ids, when they are known; [`write`](Table::write), or the engine's own kernel over
/// [`slots`](Table::slots), puts KV in; [`commit`](Table::commit) says that it is complete. Nothing committed ever changes.
///
/// When it is dropped, its pages are released. After its pool was dropped everything else gives `Status::Closed`.
///
/// ```
/// # use pagedkv::{DType, GroupOptions, Pool, PoolOptions, Prompt, Rows, RowsMut, Table, NOW};
/// # fn main() -> pagedkv::Result<()> {
/// # let model = GroupOptions { num_pages: 64, num_layers: 2, num_kv_heads: 2, k_head_dim: 4, v_head_dim: 4,
/// #     dtype: DType::F32, ..Default::default() };
/// # let pool = Pool::new(&PoolOptions { page_tokens: 16, groups: vec![model], ..Default::default() })?;
/// let prompt: Vec<i32> = (0..40).collect();
/// let mut table = Table::new(&pool)?;
/// let found = table.admit(&Prompt::new(&prompt), &Default::default())?;
/// let (k, v) = (vec![1.0f32; 40 * 2 * 4], vec![2.0f32; 40 * 2 * 4]); // what the model computes
/// for layer in 0..2 {
///     table.write(0, layer, found.tokens..40, Rows::of(&k), Some(Rows::of(&v)), NOW)?;
/// }
/// table.commit(40, NOW)?;
/// let mut out = vec![0.0f32; 40 * 2 * 4];
/// table.gather(0, 1, 0..40, Some(RowsMut::of(&mut out)), None, NOW)?;
/// assert_eq!(out, k);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Table {
    handle: Handle<sys::pkv_table>,
    pub(crate) shapes: Arc<Shapes>,
    /// Send, and not Sync.
    one_thread: PhantomData<Cell<()>>,
}

impl Table {
    /// Makes an empty table of a pool. It holds no page.
    pub fn new(pool: &Pool) -> Result<Self> {
        let handle = Handle::made(|out| unsafe { sys::pkv_table_create(pool.as_raw(), out) })?;
        Ok(Self::of(handle, Arc::clone(&pool.shapes)))
    }

    pub(crate) fn of(handle: Handle<sys::pkv_table>, shapes: Arc<Shapes>) -> Self {
        Self { handle, shapes, one_thread: PhantomData }
    }

    /// Takes over a handle, for example one that C code made.
    ///
    /// # Safety
    /// It is of this pool. Nobody else closes it, and whoever else uses it keeps to the rules of threads. (A handle that is closed, or NULL, does no harm:
    /// everything but dropping answers `Status::Handle`.)
    pub unsafe fn from_raw(raw: *mut sys::pkv_table, pool: &Pool) -> Self {
        Self::of(Handle::of(raw), Arc::clone(&pool.shapes))
    }

    /// The handle, which is somebody else's to close from now on.
    pub fn into_raw(mut self) -> *mut sys::pkv_table {
        self.handle.take()
    }

    /// The C API's handle, for calls that this crate does not have. It belongs to the table.
    pub fn as_raw(&self) -> *mut sys::pkv_table {
        self.handle.raw()
    }

    /// Releases all pages and the table, as dropping it does, but after work that may still use the pages. With `Status::Timeout`
    /// the table is handed back.
    pub fn close(self, when: When<'_>) -> std::result::Result<(), Failed<Self>> {
        self.handle.close(self, |raw| unsafe { sys::pkv_table_destroy(raw, when.raw()) }, |table| &mut table.handle)
    }

    /// Releases all pages and forgets the sequence: the table is as new and can be admitted again.
    pub fn clear(&mut self, when: When<'_>) -> Result<()> {
        check(unsafe { sys::pkv_table_clear(self.as_raw(), when.raw()) })
    }

    /// Begins a sequence: matches the longest cached prefix of the prompt and makes room for what follows, in one step, or changes
    /// nothing. Afterwards the prompt's tokens are named, the matched ones are committed.
    ///
    /// In a pool with tiers a match goes on with blocks that are found there; they are absent until [`Table::restore`]. The call
    /// waits for the tiers' answers, not for bytes.
    ///
    /// Fails with `Status::NoPages` when the room cannot be had besides the matched pages and the watermark; `Status::Again` with
    /// [`PoolOptions::keep_unstored`](crate::PoolOptions::keep_unstored); `Status::State` for a table that has a sequence.
    pub fn admit(&mut self, prompt: &Prompt<'_>, options: &AdmitOptions) -> Result<Match> {
        let mut found = sys::PKV_MATCH_INIT;
        check(unsafe { sys::pkv_table_admit(self.as_raw(), prompt.raw(), &options.raw(), &mut found) })?;
        Ok(found.into())
    }

    /// Makes room for the first so many tokens of the sequence in all, and makes what lies at and after `committed` private.
    /// Counted from the start, so that repeating a call is harmless; less than there is already does nothing more.
    ///
    /// Fails with `Status::NoPages`, with nothing changed; `Status::Limit` above 2^40 tokens; `Status::State` before admit.
    pub fn reserve(&mut self, num_tokens: u64) -> Result<()> {
        check(unsafe { sys::pkv_table_reserve(self.as_raw(), num_tokens) })
    }

    /// Names the tokens from a position on. Blocks that are committed and now completely named are published.
    ///
    /// * `position`: at most `named`: no gaps. Ids at and after `committed` may be replaced, and then names and media behind them
    ///   are forgotten; those before it only by themselves
    pub fn set_tokens(&mut self, position: u64, tokens: &[Token]) -> Result<()> {
        check(unsafe { sys::pkv_table_set_tokens(self.as_raw(), position, tokens.len() as u64, address(tokens)) })
    }

    /// Puts K and V rows of one layer in: row i belongs to token i of the range.
    ///
    /// * `tokens`: from `committed` to `reserved`, in any order
    /// * `k`, `v`: rows of the group's type, or one that converts to it; no `v` without V
    ///
    /// Fails with `Status::Invalid`; `Status::NoPages` when a shared block has to be copied and no page is left;
    /// `Status::Unsupported` for a pool without memory.
    pub fn write(
        &mut self, group: u32, layer: u32, tokens: Range<u64>, k: Rows<'_>, v: Option<Rows<'_>>, when: When<'_>,
    ) -> Result<()> {
        let count = span(&tokens, "tokens")?;
        let sides = Sides::read(self.shapes.group(group), k, v);
        check(unsafe {
            sys::pkv_table_write(self.as_raw(), group, layer, tokens.start, count, sides.k(), sides.v(), when.raw())
        })
    }

    /// Says that the KV of the first so many tokens is complete in all layers, and publishes blocks that are now committed and
    /// named. Page ids do not change (but see [`AdmitOptions::share`]).
    ///
    /// * `num_tokens`: from `committed` (nothing to do) to `reserved`
    ///
    /// Fails with `Status::Invalid` outside that range; `Status::State` before admit, or when the block at `committed` is shared:
    /// nothing can have been written there (after a fork in mid-step, reserve makes a private copy), or while copies are
    /// outstanding ([`Table::take_copies`]).
    pub fn commit(&mut self, num_tokens: u64, when: When<'_>) -> Result<()> {
        check(unsafe { sys::pkv_table_commit(self.as_raw(), num_tokens, when.raw()) })
    }

    /// Takes rows of one layer out, in order: row i is token i of the range; a side that is not wanted may be left out. Blocks
    /// that are absent are loaded, and waited for.
    ///
    /// * `tokens`: committed, or written through [`Table::write`] in order, without a gap after `committed`, in this layer
    ///
    /// Fails with `Status::Invalid` for rows that were never written; `Status::NotResident` for blocks that were dropped;
    /// `Status::Unsupported` for a pool without memory; `Status::Lost`.
    pub fn gather(
        &mut self, group: u32, layer: u32, tokens: Range<u64>, k: Option<RowsMut<'_>>, v: Option<RowsMut<'_>>,
        when: When<'_>,
    ) -> Result<()> {
        let count = span(&tokens, "tokens")?;
        let sides = Sides::write(self.shapes.group(group), &k, &v);
        check(unsafe {
            sys::pkv_table_gather(self.as_raw(), group, layer, tokens.start, count, sides.k(), sides.v(), when.raw())
        })
    }

    /// Makes a second table with the same committed tokens, sharing their pages, and the same names. Room that is not committed
    /// stays with this one. Whoever writes into a shared block first copies it.
    pub fn fork(&mut self, when: When<'_>) -> Result<Table> {
        let handle = Handle::made(|out| unsafe { sys::pkv_table_fork(self.as_raw(), when.raw(), out) })?;
        Ok(Self::of(handle, Arc::clone(&self.shapes)))
    }

    /// Cuts the sequence to so many tokens: named, reserved (up to the end of the block) and committed become at most that. Pages
    /// behind are released; what was published stays findable. More tokens than there are does nothing.
    ///
    /// Fails with `Status::State` before admit, or when a window group would need blocks there that its window has passed.
    pub fn truncate(&mut self, num_tokens: u64, when: When<'_>) -> Result<()> {
        check(unsafe { sys::pkv_table_truncate(self.as_raw(), num_tokens, when.raw()) })
    }

    /// Keeps the accepted ones of tree-drafted tokens: of the tokens written after `committed`, the one at `positions[i]` becomes
    /// the one at committed + i, in all layers; then `committed` is raised by as many, and names and rows behind are forgotten
    /// (the room stays).
    ///
    /// * `positions`: strictly ascending, from `committed` to below `reserved`; none forgets all drafts
    pub fn accept(&mut self, positions: &[u64], when: When<'_>) -> Result<()> {
        check(unsafe { sys::pkv_table_accept(self.as_raw(), positions.len() as u64, address(positions), when.raw()) })
    }

    /// Drops, in window groups, the blocks that no later token attends to: those that end at or before committed - window and hold
    /// no sink. Their entries in the block table become [`NO_PAGE`]; their pages are cached, or free.
    pub fn window(&mut self, when: When<'_>) -> Result<()> {
        check(unsafe { sys::pkv_table_window(self.as_raw(), when.raw()) })
    }

    /// Sets the retention of blocks of this sequence that hold tokens of a range (one that ends at u64::MAX: to the end, whatever
    /// it will be): those published already, and those that will be. A later call overrides an earlier one where they overlap; 64
    /// ranges at most.
    pub fn set_retention(&mut self, tokens: Range<u64>, retention: &Retention) -> Result<()> {
        let count = span(&tokens, "tokens")?;
        check(unsafe { sys::pkv_table_set_retention(self.as_raw(), tokens.start, count, &retention.raw()) })
    }

    /// In a pool without memory: hands out the copies on write that earlier calls on this table decided on: all rows of one page
    /// to another. They must be made before the next write. Their sources stay held until this table's next commit or accept, the
    /// next copy, or until their block goes.
    pub fn take_copies(&mut self) -> Result<Vec<PageCopy>> {
        let mut copies = [sys::pkv_page_copy { group: 0, src: NO_PAGE, dst: NO_PAGE }; sys::PKV_MAX_GROUPS as usize];
        let mut count = 0;
        check(unsafe {
            sys::pkv_table_take_copies(self.as_raw(), copies.as_mut_ptr(), copies.len() as u64, &mut count)
        })?;
        Ok(copies[..count as usize].iter().map(|&copy| copy.into()).collect())
    }

    /// Writes the committed part of a sequence into a buffer: namespace digest, tokens, media, and the KV of all layers with its
    /// scales, under a checksum. Blocks that a window has passed are left out.
    ///
    /// Fails with `Status::State` before admit, or when committed tokens are not named; `Status::Unsupported` for a pool without
    /// memory; `Status::NotResident` while blocks are absent.
    pub fn export(&mut self) -> Result<Vec<u8>> {
        let mut size = 0;
        check(unsafe { sys::pkv_table_export(self.as_raw(), ptr::null_mut(), 0, &mut size) })?;
        let mut buffer = filled(0u8, usize::try_from(size).ok(), "bytes")?;
        check(unsafe { sys::pkv_table_export(self.as_raw(), buffer.as_mut_ptr() as *mut c_void, size, &mut size) })?;
        buffer.truncate(size as usize);
        Ok(buffer)
    }

    /// Begins a sequence from what [`Table::export`] wrote, in a pool of equal geometry (page_tokens, number of pages, layout and
    /// memory may differ). Its whole blocks are published.
    ///
    /// Fails, and leaves the table empty, with `Status::Invalid` for what is no such buffer, or is damaged; `Status::Mismatch` with
    /// the differing field; `Status::NoPages`; `Status::State` for a table that has a sequence.
    pub fn import(&mut self, buffer: &[u8]) -> Result<()> {
        check(unsafe { sys::pkv_table_import(self.as_raw(), address(buffer) as *const c_void, buffer.len() as u64) })
    }

    /// The block table of a group, as attention kernels take it: page ids in order of blocks; [`NO_PAGE`] for blocks that a window
    /// has passed.
    pub fn pages(&self, group: u32) -> Result<Vec<Page>> {
        let mut pages = filled(NO_PAGE, usize::try_from(self.info()?.blocks).ok(), "page ids")?;
        let count = self.pages_into(group, &mut pages)?;
        pages.truncate(count);
        Ok(pages)
    }

    /// As [`Table::pages`], into a buffer; returns the number of blocks.
    ///
    /// Fails with `Status::NoSpace` when there are more.
    pub fn pages_into(&self, group: u32, pages: &mut [Page]) -> Result<usize> {
        let mut blocks = 0;
        let (capacity, out) = (pages.len() as u64, address_mut(pages));
        check(unsafe { sys::pkv_table_pages(self.as_raw(), group, out, capacity, &mut blocks) })?;
        if blocks > capacity {
            // A capacity of 0 asks for the number only.
            return Err(crate::Error::new(crate::Status::NoSpace, format!("{} blocks, room for {}", blocks, capacity)));
        }
        Ok(blocks as usize)
    }

    /// The slots of a range of tokens inside `reserved`; [`NO_SLOT`] in blocks that a window has passed. Shared blocks at and
    /// after `committed` are copied first, so that the slots may be written; take the block table after this call.
    pub fn slots(&mut self, group: u32, tokens: Range<u64>) -> Result<Vec<Slot>> {
        let count = span(&tokens, "tokens")?;
        // What the library is going to refuse needs no memory.
        let room = self.info()?.reserved;
        let mut slots = filled(NO_SLOT, usize::try_from(count.min(room)).ok(), "slots")?;
        if count > room {
            return crate::error::invalid(format!(
                "slots of {} tokens at {}, and there is room for {}",
                count, tokens.start, room
            ));
        }
        self.slots_into(group, tokens.start, &mut slots)?;
        Ok(slots)
    }

    /// As [`Table::slots`], into a buffer: those of as many tokens from a position on.
    pub fn slots_into(&mut self, group: u32, position: u64, slots: &mut [Slot]) -> Result<()> {
        let (count, out) = (slots.len() as u64, address_mut(slots));
        check(unsafe { sys::pkv_table_slots(self.as_raw(), group, position, count, out) })
    }

    /// Where the blocks of a range of a group are.
    pub fn residency(&self, group: u32, blocks: Range<u64>) -> Result<Vec<Residency>> {
        let count = span(&blocks, "blocks")?;
        let there = self.info()?.blocks;
        if count > there {
            return crate::error::invalid(format!(
                "{} blocks at {}, and the sequence has {}",
                count, blocks.start, there
            ));
        }
        let mut places = filled(0i32, usize::try_from(count).ok(), "blocks")?;
        let out = address_mut(&mut places);
        check(unsafe { sys::pkv_table_residency(self.as_raw(), group, blocks.start, count, out) })?;
        let residency = |place| match place {
            sys::PKV_BLOCK_RESIDENT => Residency::Resident,
            place if place < sys::PKV_BLOCK_RESIDENT => Residency::Dropped,
            place => Residency::Tier((place - sys::PKV_BLOCK_TIER) as u32),
        };
        Ok(places.into_iter().map(residency).collect())
    }

    /// Moves committed blocks down into tiers and frees their pages. The images belong to this sequence and are pinned in the tiers
    /// until they are restored, or the blocks go. Blocks that are absent already, and pages that others hold, stay as they are.
    /// Rows written behind `committed` do not go with the last block: they are lost. The call waits for the stores.
    ///
    /// * `blocks`: may end behind the last one
    ///
    /// Fails, with nothing moved, with `Status::NoSpace` when no tier has room for all of them, `Status::Io` or `Status::Timeout`
    /// when none took them; `Status::State` before admit or in a pool without tiers.
    pub fn spill(&mut self, blocks: Range<u64>, when: When<'_>) -> Result<SpillResult> {
        let count = span(&blocks, "blocks")?;
        let mut result = sys::PKV_SPILL_RESULT_INIT;
        check(unsafe { sys::pkv_table_spill(self.as_raw(), blocks.start, count, when.raw(), &mut result) })?;
        Ok(result.into())
    }

    /// Brings absent blocks of a range back into pages; returns how many are resident now and were not before. Blocks that another
    /// sequence brought up, or is bringing up, are taken from there and not loaded twice. What was loaded before a failure stays.
    ///
    /// * `blocks`: may end behind the last one
    /// * `timeout`: longest wait; `Duration::MAX` = for ever
    ///
    /// Fails with `Status::Timeout` (a later call may succeed); `Status::Lost`: [`TableInfo::valid`] says how many tokens are left,
    /// and the table takes only truncate (to at most so many, which makes it usable again), info, residency, clear and close;
    /// `Status::NoPages` when spilled blocks find no pages.
    pub fn restore(&mut self, blocks: Range<u64>, timeout: Duration) -> Result<u64> {
        let count = span(&blocks, "blocks")?;
        let mut restored = 0;
        check(unsafe {
            sys::pkv_table_restore(self.as_raw(), blocks.start, count, nanoseconds(timeout), &mut restored)
        })?;
        Ok(restored)
    }

    /// The table's numbers.
    pub fn info(&self) -> Result<TableInfo> {
        let mut raw = sys::PKV_TABLE_INFO_INIT;
        check(unsafe { sys::pkv_table_get_info(self.as_raw(), &mut raw) })?;
        Ok(raw.into())
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !self.handle.is_closed() {
            unsafe { sys::pkv_table_destroy(self.as_raw(), NOW.raw()) };
        }
    }
}
