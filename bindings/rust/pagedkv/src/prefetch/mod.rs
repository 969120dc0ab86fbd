// SPDX-License-Identifier: Apache-2.0
//! Prefetch sessions: what is in tiers is loaded before it is needed, so that the wait is hidden behind compute.

mod predictor;
mod step;

pub use predictor::Predictor;
pub use step::{LayerData, LayerStep, LayerView, StreamView};

use crate::arrays::Place;
use crate::codes::Prediction;
use crate::error::{check, invalid, Failed, Result};
use crate::handle::Handle;
use crate::op::{Op, OpOptions};
use crate::pool::Pool;
use crate::prompt::Prompt;
use crate::text::{address, count32, nanoseconds, span};
use crate::when::{When, NOW};
use crate::{Match, PrefetchStats, RequireResult, Table};
use pagedkv_sys as sys;
use std::{cell::Cell, marker::PhantomData, ops::Range, time::Duration};

/// A layer of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LayerRef {
    /// Layer group
    pub group: u32,
    /// Within the group
    pub layer: u32,
}

/// What a session is made of.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// Of [`Session::submit`]. Steps need every block in any case
    pub policy: Prediction,
    /// Steps and blocks: nothing is loaded before it is needed, to compare. Prompts are loaded all the same
    pub off: bool,
    /// A step whose layers do not fit a buffer is refused, so that every layer comes in one range
    pub whole_layers: bool,
    /// As in [`Predictor`]
    pub sink_tokens: u64,
    /// As in [`Predictor`]
    pub recent_tokens: u64,
    /// Blocks ahead of the position at most; the session looks as far ahead, within this bound, as measured load and compute times
    /// ask for (`Prediction::Hinted`: always so many by score); 0 = 64
    pub max_lookahead: u64,
    /// Pages of each group that loaded blocks may take until they are required; 0 = an eighth of the group's pages, one at least
    pub max_block_pages: u64,
    /// Buffers of layers: 2 .. 16; 0 = 4. Two expose far more than four as soon as compute times vary
    pub num_buffers: u32,
    /// The order in which a step goes through the layers, each once at most; none: all layers of group 0, then those of group 1 ...
    pub layers: Vec<LayerRef>,
    /// Pages of each group that the session takes from the pool as staging memory; none, or 0 for a group: an eighth of its pages,
    /// at least one for each buffer. [`PrefetchStats::buffer_slices`] says what a buffer can hold
    pub staging_pages: Vec<u64>,
    /// Tables of a step: 1 .. 65536; 0 = 256
    pub max_tables: u32,
    /// Entries of a view at most; 0 = four times the pages of the largest group, and 65536 at least
    pub max_slices: u64,
    /// `[num_buffers, max_slices]`, where views put their slice ids, for kernels that need memory of the caller's
    pub slices: Option<Place<i32>>,
    /// `[num_buffers, max_tables + 1]`, the same for where each table's begin
    pub slice_indptr: Option<Place<i32>>,
    /// Of loads under way; 0 = 32 MiB. The pool's staging memory bounds them, too
    pub max_bytes_in_flight: u64,
    /// After so long a load has failed; zero = 30 seconds
    pub load_timeout: Duration,
}

/// A prefetch session over a pool with tiers. It serves the sequences of the pool in three ways, which may be mixed:
///
/// 1. Before a request runs: [`Session::prompt`] finds the longest prefix of a prompt in the tiers and loads it. A later
///    [`Table::admit`] finds it in pages.
/// 2. Blocks of a live sequence that come back to stay: [`Session::submit`] predicts which absent blocks are needed next and loads
///    them into pages of their own; [`Session::require`] puts them into the block table. A block that was ready costs no wait.
/// 3. Sequences larger than the pool, all of them read in each step: [`Session::step`].
///
/// What is loaded is verified before anybody sees it. What cannot be loaded is never replaced by other bytes. One thread at a time
/// for a session and the tables that it is given; [`Session::monitor`] gives what any thread may read. Dropping it, in any state,
/// cancels loads under way and waits for no tier.
#[derive(Debug)]
pub struct Session {
    handle: Handle<sys::pkv_prefetch>,
    one_thread: PhantomData<Cell<()>>,
}

impl Session {
    /// Opens a session, and takes its staging pages. The pool's memory stays as long as the session.
    ///
    /// Fails with `Status::State` for a pool without tiers; `Status::NoPages` when the pool cannot give the staging pages.
    pub fn open(pool: &Pool, options: &SessionOptions) -> Result<Self> {
        if !options.staging_pages.is_empty() && options.staging_pages.len() != pool.num_groups() {
            return invalid(format!(
                "staging_pages has {} entries for {} groups",
                options.staging_pages.len(),
                pool.num_groups()
            ));
        }
        let layers: Vec<_> =
            options.layers.iter().map(|at| sys::pkv_layer_ref { group: at.group, layer: at.layer }).collect();
        let mut raw = sys::PKV_PREFETCH_OPTIONS_INIT;
        raw.policy = options.policy.code();
        raw.flags |= if options.off { sys::PKV_PREFETCH_OFF } else { 0 };
        raw.flags |= if options.whole_layers { sys::PKV_PREFETCH_WHOLE_LAYERS } else { 0 };
        raw.sink_tokens = options.sink_tokens;
        raw.recent_tokens = options.recent_tokens;
        raw.max_lookahead = options.max_lookahead;
        raw.max_block_pages = options.max_block_pages;
        raw.num_buffers = options.num_buffers;
        raw.num_layers = count32(layers.len(), "layers")?;
        raw.layers = address(&layers);
        raw.staging_pages = address(&options.staging_pages);
        raw.max_tables = options.max_tables;
        raw.max_slices = options.max_slices;
        raw.slices = options.slices.map_or(std::ptr::null_mut(), |place| place.as_ptr());
        raw.slice_indptr = options.slice_indptr.map_or(std::ptr::null_mut(), |place| place.as_ptr());
        raw.max_bytes_in_flight = options.max_bytes_in_flight;
        raw.load_timeout_ns = nanoseconds(options.load_timeout);
        let handle = Handle::made(|out| unsafe { sys::pkv_prefetch_open(pool.as_raw(), &raw, out) })?;
        Ok(Self { handle, one_thread: PhantomData })
    }

    /// Takes over a handle, for example one that C code made.
    ///
    /// # Safety
    /// Nobody else closes it, and whoever else uses it keeps to the rules of threads. (A handle that is closed, or NULL, does no harm:
    /// everything but dropping answers `Status::Handle`.)
    pub unsafe fn from_raw(raw: *mut sys::pkv_prefetch) -> Self {
        Self { handle: Handle::of(raw), one_thread: PhantomData }
    }

    /// The handle, which is somebody else's to close from now on.
    pub fn into_raw(mut self) -> *mut sys::pkv_prefetch {
        self.handle.take()
    }

    /// The C API's handle, for calls that this crate does not have. It belongs to the session.
    pub fn as_raw(&self) -> *mut sys::pkv_prefetch {
        self.handle.raw()
    }

    /// Closes the session, as dropping it does, but after work that still reads views. With `Status::Timeout` it is handed back.
    pub fn close(self, when: When<'_>) -> std::result::Result<(), Failed<Self>> {
        self.handle.close(
            self,
            |raw| unsafe { sys::pkv_prefetch_close(raw, when.raw()) },
            |session| &mut session.handle,
        )
    }

    /// Drops everything that was loaded ahead and is not in use, and cancels loads under way, prompts too. The session goes on:
    /// what is needed afterwards is loaded again.
    pub fn cancel(&mut self) -> Result<()> {
        check(unsafe { sys::pkv_prefetch_cancel(self.as_raw()) })
    }

    /// Finds the longest prefix of a prompt over all tiers, in whole blocks, and loads what is not in pages. When the operation (of
    /// one item) has ended, what was loaded is cached in the pool, as recently used as any: admit the request then.
    ///
    /// Fails with `Status::NoPages`; `Status::Busy` when 1024 prompts are under way. The item: `Status::Lost` when a block could not
    /// be loaded (those before it are cached); `Status::Timeout`; `Status::Cancelled`.
    pub fn prompt(&mut self, prompt: &Prompt<'_>, options: &OpOptions<'_>) -> Result<(Match, Op)> {
        let mut found = sys::PKV_MATCH_INIT;
        let op = Op::begin(options, |raw, out| unsafe {
            sys::pkv_prefetch_prompt(self.as_raw(), prompt.raw(), raw, &mut found, out)
        })?;
        Ok((found.into(), op))
    }

    /// Keeps scores of a sequence's blocks for `Prediction::Hinted`, in place of earlier ones: score i is of block i; none forgets
    /// them.
    pub fn hint(&mut self, table: &mut Table, scores: &[f32]) -> Result<()> {
        let count = scores.len() as u64;
        check(unsafe { sys::pkv_prefetch_hint(self.as_raw(), table.as_raw(), count, address(scores)) })
    }

    /// Predicts the blocks that a sequence needs at a position, and begins to load those that are absent; returns how many of them
    /// are loaded, being loaded or waiting for it. Does not wait. What was predicted earlier, has not begun to load and is not
    /// predicted any more is dropped.
    pub fn submit(&mut self, table: &mut Table, position: u64) -> Result<u64> {
        let mut submitted = 0;
        check(unsafe { sys::pkv_prefetch_submit(self.as_raw(), table.as_raw(), position, &mut submitted) })?;
        Ok(submitted)
    }

    /// Puts blocks of a range into the block table: those loaded ahead at once, those on their way when they arrive, others by
    /// loading them now. As [`Table::restore`], but for where the bytes come from. What it came to is known also when it fails.
    pub fn require(
        &mut self, table: &mut Table, blocks: Range<u64>, timeout: Duration,
    ) -> std::result::Result<RequireResult, Failed<RequireResult>> {
        let mut result = sys::PKV_REQUIRE_RESULT_INIT;
        let called = span(&blocks, "blocks").and_then(|count| {
            let (raw, first, longest) = (table.as_raw(), blocks.start, nanoseconds(timeout));
            check(unsafe { sys::pkv_prefetch_require(self.as_raw(), raw, first, count, longest, &mut result) })
        });
        match called {
            Ok(()) => Ok(result.into()),
            Err(error) => Err(Failed { error, value: result.into() }),
        }
    }

    /// Begins a step over tables of the session's pool, which attends to `num_tokens[t]` tokens of each, new ones included: at most
    /// its reserved ones; none = the committed ones. [`LayerStep::tables`] says which tables have no entries in it.
    ///
    /// Fails with `Status::State` if an earlier step was leaked; `Status::NoSpace` when a view would not fit `max_slices`, or, with
    /// `whole_layers`, a layer does not fit a buffer.
    ///
    /// ```no_run
    /// # use pagedkv::*;
    /// # fn attention(view: &LayerView) {}
    /// # fn decode(session: &mut Session, tables: &mut [Table], layers: u32) -> pagedkv::Result<()> {
    /// let mut step = session.step(tables, None)?;
    /// for layer in 0..layers {
    ///     // step.table(t).write(...): the new rows
    ///     loop {
    ///         let view = step.acquire(layer, std::time::Duration::MAX)?; // waits for what is not there yet
    ///         attention(&view); // in place: view.layout(), view.slices(); goes on from the ranges before
    ///         if view.last() {
    ///             break; // a layer that is larger than a buffer comes in ranges
    ///         }
    ///     }
    /// }
    /// let tables = step.end()?; // begins to load the next step's first layers
    /// # Ok(())
    /// # }
    /// ```
    pub fn step<'s>(
        &'s mut self, tables: impl IntoIterator<Item = &'s mut Table>, num_tokens: Option<&[u64]>,
    ) -> Result<LayerStep<'s>> {
        LayerStep::begin(self, tables.into_iter().collect(), num_tokens)
    }

    /// Numbers of the session.
    pub fn stats(&self) -> Result<PrefetchStats> {
        self.monitor().stats()
    }

    /// What any thread may ask for the numbers.
    pub fn monitor(&self) -> Monitor {
        Monitor { handle: self.handle }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.handle.is_closed() {
            unsafe { sys::pkv_prefetch_close(self.as_raw(), NOW.raw()) };
        }
    }
}

/// Numbers of a session, for any thread. After the session was dropped it answers `Status::Handle`.
#[derive(Clone, Copy, Debug)]
pub struct Monitor {
    handle: Handle<sys::pkv_prefetch>,
}

impl Monitor {
    /// Numbers of the session.
    pub fn stats(&self) -> Result<PrefetchStats> {
        let mut raw = sys::PKV_PREFETCH_STATS_INIT;
        check(unsafe { sys::pkv_prefetch_get_stats(self.handle.raw(), &mut raw) })?;
        Ok(raw.into())
    }

    pub(crate) fn raw(&self) -> *mut sys::pkv_prefetch {
        self.handle.raw()
    }
}
