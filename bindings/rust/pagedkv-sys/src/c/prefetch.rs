// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers: not to be edited.
//! Prefetch sessions: what is in tiers is loaded before it is needed, so that the wait is hidden behind
//! compute.
//!
//! A session serves the sequences of one pool in three ways, which may be mixed:
//!
//! 1. Before a request runs: `pkv_prefetch_prompt()` finds the longest prefix of a prompt in the tiers and
//!    loads it. A later `pkv_table_admit()` finds it in pages.
//!
//! 2. Blocks of a live sequence that come back to stay: `pkv_prefetch_submit()` predicts which absent blocks
//!    are needed next and loads them into pages of their own; `pkv_prefetch_require()` puts them into the block
//!    table. A block that was ready costs no wait.
//!
//! 3. Sequences larger than the pool, all of them read in each step (exact attention over spilled blocks).
//!    Layer by layer, absent blocks pass through staging memory: pages that the session took from the pool when
//!    it was opened.
//!
//! ```text
//! pkv_prefetch_step_begin(session, tables)
//! for each layer, in order:
//!     do {
//!         pkv_prefetch_layer_acquire(session, layer) -> view   waits if the bytes are not there yet
//!         attention over the view's slices
//!         pkv_prefetch_layer_release(session, layer)
//!     } while (!view.last)
//! pkv_prefetch_step_end(session) -> a status for each table
//! ```
//!
//!    While the caller computes a layer, the next ones, and after the last one those of the next step, are
//!    loaded into other buffers. An entry of a view is a slice: one layer of one block, wherever it lies, in a
//!    page of the table or in staging memory. All of them have one base and one stride, so that a paged
//!    attention kernel takes the slice ids in place of a block table. A layer that is larger than a buffer
//!    comes in several ranges: partial attentions, merged by their log-sum-exp, give the exact result.
//!
//! What is loaded is verified (header, key and checksums of the page image) before anybody sees it. What cannot
//! be loaded is never replaced by other bytes: its entry is -1, and the table's status says why.
//!
//! Demand loads, those that somebody waits for, overtake all others. Completions never change a table: the
//! calls of its owner do.
//!
//! On a device pool (device.h) loads go from their tier into memory of the host that the device reads, are
//! verified there, and are put into pages by the device. With a stream acquire and release return at once: what
//! comes in the stream after an acquire reads the view when its loads have ended, well or not, and a buffer is
//! loaded anew once the stream has passed its release.
//!
//! Thread-safety: one thread at a time for a session and the tables that it is given;
//! `pkv_prefetch_get_stats()` from any thread. A session has one thread of its own, which moves bytes and does
//! nothing while nothing is under way.
//!
//! Sources of the method: loading the next layer while one is computed, FlexGen (arXiv:2303.06865) and
//! LayerKV-like pipelines; attention sinks and a recent window, StreamingLLM (arXiv:2309.17453); merging
//! partial attentions, FlashAttention (arXiv:2205.14135).

#[allow(unused_imports)]
use super::*;

/// The blocks from the position on
pub const PKV_PREDICT_SEQUENTIAL: i32 = 0;

/// Every block: exact attention
pub const PKV_PREDICT_FULL: i32 = 1;

/// The blocks with the highest scores: sparse attention
pub const PKV_PREDICT_HINTED: i32 = 2;

/// What decides which blocks a sequence needs next.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_predictor {
    /// `struct_size`.
    pub struct_size: usize,
    /// `PKV_PREDICT_*`
    pub policy: i32,
    /// Tokens of a block: 1 .. `PKV_MAX_PAGE_TOKENS`
    pub page_tokens: u32,
    /// The first tokens of the sequence, which are always predicted (attention sinks)
    pub sink_tokens: u64,
    /// The last tokens before the position, which are always predicted
    pub recent_tokens: u64,
    /// SEQUENTIAL: blocks from that of the position on; HINTED: blocks by score; FULL: not used
    pub lookahead: u64,
}

/// Initial value of [`pkv_predictor`].
pub const PKV_PREDICTOR_INIT: pkv_predictor = pkv_predictor { struct_size: size_of::<pkv_predictor>(), policy: PKV_PREDICT_SEQUENTIAL, page_tokens: 0, sink_tokens: 0, recent_tokens: 0, lookahead: 0 };

/// A layer of a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_layer_ref {
    /// `group`.
    pub group: u32,
    /// Within the group
    pub layer: u32,
}

/// `PKV_PREFETCH_MAX_BUFFERS` of `prefetch.h`.
pub const PKV_PREFETCH_MAX_BUFFERS: i32 = 16;

/// Steps and blocks: nothing is loaded before it is needed, to compare. Prompts are loaded all the same: that
/// is what they are for
pub const PKV_PREFETCH_OFF: u32 = 1;

/// A step whose layers do not fit a buffer is refused by step_begin, so that every layer comes in one range.
/// What tables come to need later in the step may still come in several
pub const PKV_PREFETCH_WHOLE_LAYERS: u32 = 2;

/// See the functions that take a `pkv_prefetch_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_prefetch_options {
    /// `struct_size`.
    pub struct_size: usize,
    /// `PKV_PREDICT_*`, of `pkv_prefetch_submit`. Steps need every block in any case
    pub policy: i32,
    /// `PKV_PREFETCH_*`
    pub flags: u32,
    /// As in `pkv_predictor`
    pub sink_tokens: u64,
    /// As in `pkv_predictor`
    pub recent_tokens: u64,
    /// Blocks ahead of the position at most; the session looks as far ahead, within this bound, as measured load
    /// and compute times ask for (HINTED: always so many by score); 0 = 64
    pub max_lookahead: u64,
    /// Pages of each group that loaded blocks may take until they are required; 0 = an eighth of the group's pages,
    /// one at least
    pub max_block_pages: u64,
    /// Buffers of layers: 2 .. `PKV_PREFETCH_MAX_BUFFERS`; 0 = 4. Two expose far more than four as soon as compute
    /// times vary
    pub num_buffers: u32,
    /// Entries at layers
    pub num_layers: u32,
    /// The order in which a step goes through the layers, each once at most; NULL: all layers of group 0, then
    /// those of group 1 ... Copied
    pub layers: *const pkv_layer_ref,
    /// Pages of each group, \[num_groups\], that the session takes from the pool as staging memory; NULL, or 0 for
    /// a group: an eighth of its pages, at least one for each buffer: all of a group with fewer pages than that.
    /// Copied. See `pkv_prefetch_stats.buffer_slices` for what a buffer can hold
    pub staging_pages: *const u64,
    /// Tables of a step: 1 .. 65536; 0 = 256
    pub max_tables: u32,
    /// 0
    pub reserved: u32,
    /// Entries of a view at most; 0 = four times the pages of the largest group, and 65536 at least
    pub max_slices: u64,
    /// \[num_buffers, max_slices\], where views put their slice ids, for kernels that need memory of the caller's;
    /// NULL: the session's own. On a device: memory of the host, best pinned, and an acquire waits until the device
    /// has done with what is there
    pub slices: *mut i32,
    /// \[num_buffers, max_tables + 1\]; NULL: the session's own, as with slices
    pub slice_indptr: *mut i32,
    /// Of loads under way; 0 = 32 MiB. The pool's staging memory bounds them, too
    pub max_bytes_in_flight: u64,
    /// After so long a load has failed; 0 = 30 seconds
    pub load_timeout_ns: u64,
}

/// Initial value of [`pkv_prefetch_options`].
pub const PKV_PREFETCH_OPTIONS_INIT: pkv_prefetch_options = pkv_prefetch_options { struct_size: size_of::<pkv_prefetch_options>(), policy: PKV_PREDICT_SEQUENTIAL, flags: 0, sink_tokens: 0, recent_tokens: 0, max_lookahead: 0, max_block_pages: 0, num_buffers: 0, num_layers: 0, layers: ptr::null(), staging_pages: ptr::null(), max_tables: 0, reserved: 0, max_slices: 0, slices: ptr::null_mut(), slice_indptr: ptr::null_mut(), max_bytes_in_flight: 0, load_timeout_ns: 0 };

/// See the functions that take a `pkv_require_result`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_require_result {
    /// `struct_size`.
    pub struct_size: usize,
    /// Blocks that were in pages already
    pub resident: u64,
    /// Blocks that had been loaded: no wait
    pub on_time: u64,
    /// Blocks whose load had begun: waited for
    pub late: u64,
    /// Blocks that were loaded by this call
    pub on_demand: u64,
    /// `waited_ns`.
    pub waited_ns: u64,
}

/// Initial value of [`pkv_require_result`].
pub const PKV_REQUIRE_RESULT_INIT: pkv_require_result = pkv_require_result { struct_size: size_of::<pkv_require_result>(), resident: 0, on_time: 0, late: 0, on_demand: 0, waited_ns: 0 };

/// A layer of a step, or a range of it. Valid until its release.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_layer_view {
    /// `struct_size`.
    pub struct_size: usize,
    /// Place of the layer in the session's order
    pub index: u32,
    /// `group`.
    pub group: u32,
    /// `layer`.
    pub layer: u32,
    /// 0 .. num_buffers - 1: whose slices and indptr these are
    pub buffer: u32,
    /// Of the step
    pub num_tables: u32,
    /// 1: nothing of this layer comes after this range
    pub last: i32,
    /// Entries at slices
    pub num_slices: u64,
    /// Slice ids; -1: dropped by a window, or not to be had (see `pkv_prefetch_step_end`)
    pub slices: *const i32,
    /// \[num_tables + 1\]: table t has slices\[indptr\[t\]\] .. slices\[indptr\[t + 1\] - 1\]
    pub indptr: *const i32,
    /// \[num_tables\]: the block of each table's first entry. On a device these three arrays are memory of the host
    /// that kernels read, unless the caller gave others
    pub first_block: *const u64,
    /// As `pkv_pool_layout`, with slice ids in place of pages: the K row of (slice, token offset, head) is at
    /// k_base + slice \* k.page + offset \* k.token + head \* k.head. Scales of token and head: scale_page_stride
    /// from slice to slice. The same in every step
    pub layout: pkv_layer_layout,
    /// That this call waited for loads
    pub waited_ns: u64,
}

/// Initial value of [`pkv_layer_view`].
pub const PKV_LAYER_VIEW_INIT: pkv_layer_view = pkv_layer_view { struct_size: size_of::<pkv_layer_view>(), index: 0, group: 0, layer: 0, buffer: 0, num_tables: 0, last: 0, num_slices: 0, slices: ptr::null(), indptr: ptr::null(), first_block: ptr::null(), layout: PKV_LAYER_LAYOUT_INIT, waited_ns: 0 };

/// Numbers of a session. "Parts" are what is needed as a whole: a block (`pkv_prefetch_require`, prompts not
/// counted), or a block's slice of one layer (steps). At any time
///
/// ```text
/// needed = on_time + late + on_demand
/// io_ns = masked_ns + exposed_ns
/// bytes_loaded = bytes_used + wasted_bytes + ready_bytes
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_prefetch_stats {
    /// `struct_size`.
    pub struct_size: usize,
    /// Absent parts that were asked for
    pub needed: u64,
    /// Of them, those that were ready. Where a stream waits in place of the call (layer_acquire) a part that was
    /// missing by the call is counted when the stream has passed: as on time, if it did not wait. ready_requests
    /// are as of the calls
    pub on_time: u64,
    /// Whose load had begun
    pub late: u64,
    /// Whose load had not begun
    pub on_demand: u64,
    /// Of needed, those that could not be had
    pub failed: u64,
    /// Calls of require, and tables of steps, that needed absent parts
    pub requests: u64,
    /// Of them, those whose parts were all on time
    pub ready_requests: u64,
    /// `steps`.
    pub steps: u64,
    /// Layers, or ranges of them, acquired
    pub ranges: u64,
    /// `prompts`.
    pub prompts: u64,
    /// Union of the times in which at least one load was outstanding: from its hand-over to the tier until its
    /// bytes were verified and in place
    pub io_ns: u64,
    /// Of it, time in which a caller waited, or the caller's stream on a device
    pub exposed_ns: u64,
    /// Of it, the rest
    pub masked_ns: u64,
    /// Time in which a caller waited while no load was outstanding
    pub other_wait_ns: u64,
    /// Loads begun
    pub loads: u64,
    /// `good_loads`.
    pub good_loads: u64,
    /// `failed_loads`.
    pub failed_loads: u64,
    /// Not wanted any more before they ended
    pub cancelled_loads: u64,
    /// Of good loads, headers of images included
    pub bytes_loaded: u64,
    /// Of them, asked for
    pub bytes_used: u64,
    /// Of them, dropped without having been asked for
    pub wasted_bytes: u64,
    /// Loads whose bytes were not the image
    pub checksum_failures: u64,
    /// Loaded, not asked for yet
    pub ready_bytes: u64,
    /// `bytes_in_flight`.
    pub bytes_in_flight: u64,
    /// `loads_in_flight`.
    pub loads_in_flight: u64,
    /// Layers, or ranges, that are loaded ahead at present
    pub depth: u64,
    /// Blocks ahead at present
    pub lookahead: u64,
    /// Pages that loaded blocks take
    pub block_pages: u64,
    /// Of all groups
    pub staging_pages: u64,
    /// Absent slices that a buffer holds in group 0
    pub buffer_slices: u64,
    /// masked_ns / io_ns; 0 without I/O
    pub masking_efficiency: f64,
    /// From hand-over to the tier until the bytes were in place
    pub load: pkv_histogram,
    /// From when a load was wanted until hand-over
    pub queue: pkv_histogram,
    /// Each wait of a caller for loads
    pub exposed: pkv_histogram,
}

/// Initial value of [`pkv_prefetch_stats`].
pub const PKV_PREFETCH_STATS_INIT: pkv_prefetch_stats = pkv_prefetch_stats { struct_size: size_of::<pkv_prefetch_stats>(), needed: 0, on_time: 0, late: 0, on_demand: 0, failed: 0, requests: 0, ready_requests: 0, steps: 0, ranges: 0, prompts: 0, io_ns: 0, exposed_ns: 0, masked_ns: 0, other_wait_ns: 0, loads: 0, good_loads: 0, failed_loads: 0, cancelled_loads: 0, bytes_loaded: 0, bytes_used: 0, wasted_bytes: 0, checksum_failures: 0, ready_bytes: 0, bytes_in_flight: 0, loads_in_flight: 0, depth: 0, lookahead: 0, block_pages: 0, staging_pages: 0, buffer_slices: 0, masking_efficiency: 0.0, load: PKV_HISTOGRAM_INIT, queue: PKV_HISTOGRAM_INIT, exposed: PKV_HISTOGRAM_INIT };

extern "C" {
    /// Predicts which blocks of a sequence are needed next: a pure function.
    ///
    /// The blocks come in the order in which they should be loaded, each once: those of the sink tokens, ascending;
    /// those that hold tokens of \[position - recent_tokens, position), ascending; then, by policy, blocks from
    /// that of token `position` on, ascending (SEQUENTIAL), all others, ascending (FULL), or the `lookahead` others
    /// with the highest scores, the highest first, of equal ones the lower number first (HINTED).
    ///
    /// * `num_tokens`: tokens of the sequence; it has ceil(num_tokens / page_tokens) blocks
    /// * `position`: the token to be computed next: 0 .. num_tokens
    /// * `scores`: HINTED: num_scores of them, score i of block i; blocks without one, and those whose score is
    ///   NaN, are not predicted by score. NULL when num_scores is 0
    /// * `blocks`: out
    /// * `capacity`: entries at blocks; 0 asks for the number only
    /// * `num_blocks`: out, blocks predicted
    /// * Returns `PKV_OK`; `PKV_ERR_NO_SPACE` when capacity is neither 0 nor enough (nothing is written but
    ///   num_blocks); `PKV_ERR_INVALID`; `PKV_ERR_LIMIT` above 2^40 tokens; `PKV_ERR_NO_MEMORY`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_prefetch_predict(predictor: *const pkv_predictor, num_tokens: u64, position: u64, num_scores: u64, scores: *const f32, blocks: *mut u64, capacity: u64, num_blocks: *mut u64) -> pkv_status;

    /// Opens a session over a pool with tiers, and takes its staging pages. The pool stays alive as long as the
    /// session.
    ///
    /// * `options`: NULL = defaults
    /// * Returns `PKV_OK`; `PKV_ERR_STATE` for a pool without tiers; `PKV_ERR_NO_PAGES` when the pool cannot give
    ///   the staging pages; `PKV_ERR_INVALID`; `PKV_ERR_LIMIT`; `PKV_ERR_NO_MEMORY`; `PKV_ERR_HANDLE`;
    ///   `PKV_ERR_UNSUPPORTED` for bits that this library does not know
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_prefetch_open(pool: *mut pkv_pool, options: *const pkv_prefetch_options, session: *mut *mut pkv_prefetch) -> pkv_status;

    /// Closes a session, in any state: loads under way are cancelled, staging pages and loaded blocks go back to
    /// the pool, views are void. Waits for no tier. Prompts under way end with `PKV_ERR_CANCELLED`.
    ///
    /// * `sync`: work that still reads views; NULL = none
    /// * Returns `PKV_OK`; `PKV_ERR_HANDLE`; `PKV_ERR_TIMEOUT` (the session lives on)
    ///
    /// Since 0.1.
    pub fn pkv_prefetch_close(session: *mut pkv_prefetch, sync: *const pkv_sync) -> pkv_status;

    /// Drops everything that was loaded ahead and is not in use, and cancels loads under way, prompts too. The
    /// session goes on: what is needed afterwards is loaded again. In a step, acquired views stay valid.
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_HANDLE`; `PKV_ERR_CLOSED`
    ///
    /// Since 0.1.
    pub fn pkv_prefetch_cancel(session: *mut pkv_prefetch) -> pkv_status;

    /// Finds the longest prefix of a prompt over all tiers, in whole blocks, and loads what is not in pages. When
    /// the operation has ended, what was loaded is cached in the pool, as recently used as any: admit the request
    /// then. Needs pages for what is loaded, and one more in each group. Statistics of the pool do not count it as
    /// a request.
    ///
    /// * `match`: out, what was found and where, or NULL
    /// * `options`: how the operation reports; NULL = defaults. timeout_ns bounds the loads
    /// * `op`: out: poll, wait, cancel, close (tier.h); of one item. NULL only with a queue
    /// * Returns `PKV_OK` when it has begun, also when nothing is to be loaded; `PKV_ERR_NO_PAGES`; `PKV_ERR_BUSY`
    ///   when 1024 prompts are under way; `PKV_ERR_INVALID`; `PKV_ERR_NO_MEMORY`; `PKV_ERR_HANDLE`;
    ///   `PKV_ERR_CLOSED`. The item: `PKV_OK`; `PKV_ERR_LOST` when a block could not be loaded (those before it are
    ///   cached); `PKV_ERR_TIMEOUT`; `PKV_ERR_CANCELLED`
    ///
    /// Since 0.1.
    pub fn pkv_prefetch_prompt(session: *mut pkv_prefetch, prompt: *const pkv_prompt, options: *const pkv_op_options, r#match: *mut pkv_match, op: *mut *mut pkv_op) -> pkv_status;

    /// Keeps scores of a sequence's blocks for the policy `PKV_PREDICT_HINTED`, in place of earlier ones.
    ///
    /// * `num_scores`: 0 forgets them
    /// * `scores`: score i is of block i; copied
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_NO_MEMORY`; `PKV_ERR_HANDLE`; `PKV_ERR_CLOSED`
    ///
    /// Since 0.1.
    pub fn pkv_prefetch_hint(session: *mut pkv_prefetch, table: *mut pkv_table, num_scores: u64, scores: *const f32) -> pkv_status;

    /// Predicts the blocks that a sequence needs at a position, and begins to load those that are absent. Does not
    /// wait. Blocks of several tables take turns. Loading stops, without an error, where max_block_pages or the
    /// pool's pages end; it goes on with the next call. What was predicted earlier, has not begun to load and is
    /// not predicted any more is dropped.
    ///
    /// * `position`: 0 .. the table's reserved tokens
    /// * `submitted`: out, absent blocks predicted that are loaded, being loaded or waiting for it; or NULL
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_STATE` before admit; `PKV_ERR_LOST`; `PKV_ERR_NO_MEMORY`;
    ///   `PKV_ERR_HANDLE`; `PKV_ERR_CLOSED`
    ///
    /// Since 0.1.
    pub fn pkv_prefetch_submit(session: *mut pkv_prefetch, table: *mut pkv_table, position: u64, submitted: *mut u64) -> pkv_status;

    /// Puts blocks \[first_block, first_block + num_blocks) into the block table: those loaded ahead at once, those
    /// on their way when they arrive, others by loading them now. As `pkv_table_restore`, but for where the bytes
    /// come from.
    ///
    /// * `num_blocks`: more than there are: to the end
    /// * `result`: out, or NULL; also filled when the call fails
    /// * Returns as `pkv_table_restore`; `PKV_ERR_CLOSED`
    ///
    /// Since 0.1.
    pub fn pkv_prefetch_require(session: *mut pkv_prefetch, table: *mut pkv_table, first_block: u64, num_blocks: u64, timeout_ns: u64, result: *mut pkv_require_result) -> pkv_status;

    /// Begins a step over tables of the session's pool. Between here and step_end the tables may be written and
    /// committed; whatever else changes their blocks takes effect at the next step_begin or layer_acquire.
    ///
    /// * `num_tables`: at most max_tables
    /// * `tables`: each once
    /// * `num_tokens`: tokens of each that this step attends to, new ones included: at most its reserved ones; NULL
    ///   = the committed ones
    /// * `statuses`: out, one for each table: `PKV_OK`, or why it has no entries in this step (`PKV_ERR_LOST`,
    ///   `PKV_ERR_STATE` before admit, `PKV_ERR_CLOSED`); or NULL
    /// * Returns `PKV_OK`, also when tables failed that way; `PKV_ERR_STATE` inside a step; `PKV_ERR_INVALID`;
    ///   `PKV_ERR_LIMIT`; `PKV_ERR_NO_SPACE` when a view would not fit max_slices, or with
    ///   `PKV_PREFETCH_WHOLE_LAYERS` a layer does not fit a buffer; `PKV_ERR_NO_MEMORY`; `PKV_ERR_HANDLE`;
    ///   `PKV_ERR_CLOSED`. Then no step has begun
    ///
    /// Since 0.1.
    pub fn pkv_prefetch_step_begin(session: *mut pkv_prefetch, num_tables: u32, tables: *const *mut pkv_table, num_tokens: *const u64, statuses: *mut pkv_status) -> pkv_status;

    /// Gives the next range of a layer, and waits until its bytes are there.
    ///
    /// On a device pool with a stream the stream waits instead, on a word in memory of the host: its later work
    /// finds the view and the bytes ready, whether the loads went well or not; a load that failed has put -1 in its
    /// entry by then, and step_end gives the status. The host must not read the view's entries before the stream
    /// has come so far. Where the device has no such waits the call waits.
    ///
    /// * `index`: place in the session's order: that of the last range acquired (if it was not the last one of its
    ///   layer), or a later one; layers that are passed over are not loaded
    /// * `timeout_ns`: longest wait; UINT64_MAX = for ever. The session's load_timeout_ns ends loads in any case
    /// * `sync`: device pools: `PKV_SYNC_CUDA_STREAM` as above; another one, or NULL: the call waits for it, and
    ///   for the view, which everybody may then read. Host pools: NULL
    /// * `view`: out
    /// * Returns `PKV_OK`, also when bytes of a table could not be had: its entries are -1 then; `PKV_ERR_TIMEOUT`
    ///   (nothing is acquired; a later call may succeed); `PKV_ERR_STATE` outside a step, for a layer that has
    ///   passed, or while every buffer is acquired; `PKV_ERR_CAPTURE` for a stream that is being captured: a graph
    ///   would not repeat the loads; `PKV_ERR_INVALID`; `PKV_ERR_UNSUPPORTED` for a sync on a host pool;
    ///   `PKV_ERR_IO` when the device fails; `PKV_ERR_HANDLE`; `PKV_ERR_CLOSED`
    ///
    /// Since 0.1.
    pub fn pkv_prefetch_layer_acquire(session: *mut pkv_prefetch, index: u32, timeout_ns: u64, sync: *const pkv_sync, view: *mut pkv_layer_view) -> pkv_status;

    /// Ends the use of the oldest acquired range, which has to be of this layer: its buffer is loaded anew.
    ///
    /// * `sync`: work that still reads the view; NULL = none
    /// * Returns `PKV_OK`; `PKV_ERR_STATE` when the oldest acquired range is of another layer, or there is none;
    ///   `PKV_ERR_TIMEOUT` (it is still acquired); `PKV_ERR_CAPTURE` for a stream that is being captured;
    ///   `PKV_ERR_HANDLE`; `PKV_ERR_CLOSED`
    ///
    /// Since 0.1.
    pub fn pkv_prefetch_layer_release(session: *mut pkv_prefetch, index: u32, sync: *const pkv_sync) -> pkv_status;

    /// Ends a step; waits for its loads, as far as a stream of the device waits for them. The session goes on to
    /// load the first layers of the next one, which it takes to be over the same tables.
    ///
    /// * `statuses`: out, one for each table of the step: `PKV_OK`; `PKV_ERR_LOST` when blocks are gone (the table
    ///   says so from now on, see table.h); `PKV_ERR_TIMEOUT`, `PKV_ERR_IO`, `PKV_ERR_NO_MEMORY` when they could
    ///   not be loaded now; or the status of step_begin. What was computed for a table with another status than
    ///   `PKV_OK` has to be discarded. NULL: the first failure is only returned
    /// * Returns `PKV_OK`; the first table's failure: the step has ended all the same; `PKV_ERR_STATE` outside a
    ///   step, or while a range is acquired; `PKV_ERR_HANDLE`
    ///
    /// Since 0.1.
    pub fn pkv_prefetch_step_end(session: *mut pkv_prefetch, statuses: *mut pkv_status) -> pkv_status;

    /// * Returns `PKV_OK`; `PKV_ERR_HANDLE`; `PKV_ERR_INVALID`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_prefetch_get_stats(session: *mut pkv_prefetch, stats: *mut pkv_prefetch_stats) -> pkv_status;
}
