// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers: not to be edited.
//! Counters and gauges. Counters only grow; gauges are of one moment: free + held + cached + quarantined =
//! num_pages in every answer. Rates are for the caller to form, as sums over sums: hit rate = hit_tokens /
//! asked_tokens.

#[allow(unused_imports)]
use super::*;

/// `PKV_HISTOGRAM_BUCKETS` of `stats.h`.
pub const PKV_HISTOGRAM_BUCKETS: i32 = 48;

/// Times in powers of two.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_histogram {
    /// `count`.
    pub count: u64,
    /// `sum_ns`.
    pub sum_ns: u64,
    /// Bucket 0: zero; bucket b: 2^(b-1) .. 2^b - 1 ns; the last one: all above
    pub buckets: [u64; PKV_HISTOGRAM_BUCKETS as usize],
}

/// Initial value of [`pkv_histogram`].
pub const PKV_HISTOGRAM_INIT: pkv_histogram = pkv_histogram { count: 0, sum_ns: 0, buckets: [0; PKV_HISTOGRAM_BUCKETS as usize] };

/// Ids only
pub const PKV_MEMORY_KIND_NONE: i32 = 0;

/// The caller's
pub const PKV_MEMORY_KIND_CALLER: i32 = 1;

/// Ordinary pages
pub const PKV_MEMORY_KIND_PAGES: i32 = 2;

/// Transparent huge pages asked for, the kernel decides
pub const PKV_MEMORY_KIND_TRANSPARENT_HUGE: i32 = 3;

/// Reserved huge pages
pub const PKV_MEMORY_KIND_HUGETLB: i32 = 4;

/// Of a device, the pool's own
pub const PKV_MEMORY_KIND_DEVICE: i32 = 5;

/// From the operating system, differs for each pool
pub const PKV_KEY_SEED_RANDOM: i32 = 0;

/// Given in the options
pub const PKV_KEY_SEED_FIXED: i32 = 1;

/// See the functions that take a `pkv_pool_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_pool_stats {
    /// `struct_size`.
    pub struct_size: usize,
    /// `num_pages`.
    pub num_pages: u64,
    /// `free_pages`.
    pub free_pages: u64,
    /// `held_pages`.
    pub held_pages: u64,
    /// `cached_pages`.
    pub cached_pages: u64,
    /// Of device pools: free, but work under a sync may still use them. They are handed out when nothing else is
    /// free, and what their new user does is ordered after that work
    pub quarantined_pages: u64,
    /// Live tables of the pool
    pub tables: u64,
    /// Namespaces with blocks, tables or a default retention
    pub namespaces: u64,
    /// Blocks in the prefix index
    pub index_blocks: u64,
    /// K and V bytes of a page over its layers: page_tokens \* layers \* heads \* (k row + v row), without gaps
    /// between pages
    pub page_bytes: u64,
    /// Memory in use besides page bytes and the tokens kept for comparison
    pub metadata_bytes: u64,
    /// held_pages / num_pages: 0 .. 1
    pub usage: f64,
    /// `PKV_MEMORY_KIND_*`
    pub memory_kind: i32,
    /// `PKV_KEY_SEED_*`; the keys are XXH3-128 under a secret from the seed
    pub key_seed: i32,
    /// Sequences admitted and lookups made, each once (`PKV_ADMIT_RETRY` not again)
    pub requests: u64,
    /// Tokens of these that might have matched: all of each prompt
    pub asked_tokens: u64,
    /// Tokens of these that did match
    pub hit_tokens: u64,
    /// Admissions with `PKV_ADMIT_RETRY`
    pub retries: u64,
    /// Admissions that failed for want of pages
    pub refused: u64,
    /// `pkv_pool_probe` calls
    pub probes: u64,
    /// Pages handed out
    pub allocated_pages: u64,
    /// Calls that got `PKV_ERR_NO_PAGES`, admissions not included
    pub failed_allocations: u64,
    /// Cached pages freed to make room, by limit or by `pkv_pool_evict`
    pub evicted_pages: u64,
    /// Cached pages freed by `pkv_pool_clear`
    pub cleared_pages: u64,
    /// Blocks that became findable
    pub published_blocks: u64,
    /// Blocks that ceased to be: evicted, cleared, or their parent went
    pub unpublished_blocks: u64,
    /// Pages offered for a block that had one already, in any group
    pub duplicate_blocks: u64,
    /// Looks at the index that met a key of another block (its parent, tokens or media differ): never taken for a
    /// match
    pub key_collisions: u64,
    /// Copy-on-write copies
    pub copied_pages: u64,
    /// Of hit_tokens, those that matched inside a block and were copied
    pub partial_tokens: u64,
    /// Of these, those given up for the published page (`PKV_ADMIT_SHARE`)
    pub shared_duplicates: u64,
    /// Blocks whose retention ran out
    pub expired_blocks: u64,
    /// Events recorded
    pub events: u64,
    /// Of cached_pages, those that are pinned and so not evictable
    pub pinned_pages: u64,
    /// Of cached_pages, those that wait to be stored in a tier that wants them
    pub unstored_pages: u64,
    /// Images that the pool stored, each tier counted
    pub stored_images: u64,
    /// And those that no tier took
    pub failed_stores: u64,
    /// Pages evicted while their image was in no tier
    pub dropped_images: u64,
    /// Blocks of sequences brought back from tiers
    pub loaded_blocks: u64,
    /// Blocks that were to be brought back, and were found in a page by then
    pub adopted_blocks: u64,
    /// Loads that were under way for somebody else already, and waited for
    pub joined_loads: u64,
    /// Blocks of live sequences moved down
    pub spilled_blocks: u64,
    /// Blocks that no tier could give back
    pub lost_blocks: u64,
    /// Time that gathers waited for blocks that were not resident
    pub exposed_ns: u64,
    /// Of hit_tokens, those found in tiers
    pub tier_hit_tokens: u64,
    /// Bytes of a page image of the group asked for, in a tier; 0 without tiers
    pub image_bytes: u64,
}

/// Initial value of [`pkv_pool_stats`].
pub const PKV_POOL_STATS_INIT: pkv_pool_stats = pkv_pool_stats { struct_size: size_of::<pkv_pool_stats>(), num_pages: 0, free_pages: 0, held_pages: 0, cached_pages: 0, quarantined_pages: 0, tables: 0, namespaces: 0, index_blocks: 0, page_bytes: 0, metadata_bytes: 0, usage: 0.0, memory_kind: 0, key_seed: 0, requests: 0, asked_tokens: 0, hit_tokens: 0, retries: 0, refused: 0, probes: 0, allocated_pages: 0, failed_allocations: 0, evicted_pages: 0, cleared_pages: 0, published_blocks: 0, unpublished_blocks: 0, duplicate_blocks: 0, key_collisions: 0, copied_pages: 0, partial_tokens: 0, shared_duplicates: 0, expired_blocks: 0, events: 0, pinned_pages: 0, unstored_pages: 0, stored_images: 0, failed_stores: 0, dropped_images: 0, loaded_blocks: 0, adopted_blocks: 0, joined_loads: 0, spilled_blocks: 0, lost_blocks: 0, exposed_ns: 0, tier_hit_tokens: 0, image_bytes: 0 };

/// What `pkv_stats_prometheus()` writes about. Names become the label `pool`, `tier`, `session` or `node`; a
/// list of names may be NULL: "0", "1" ... then.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_prometheus_sources {
    /// `struct_size`.
    pub struct_size: usize,
    /// `pools`.
    pub pools: *const *mut pkv_pool,
    /// `pool_names`.
    pub pool_names: *const *const c_char,
    /// `num_pools`.
    pub num_pools: u64,
    /// `tiers`.
    pub tiers: *const *mut pkv_tier,
    /// `tier_names`.
    pub tier_names: *const *const c_char,
    /// `num_tiers`.
    pub num_tiers: u64,
    /// `sessions`.
    pub sessions: *const *mut pkv_prefetch,
    /// `session_names`.
    pub session_names: *const *const c_char,
    /// `num_sessions`.
    pub num_sessions: u64,
    /// `nodes`.
    pub nodes: *const *mut pkv_node,
    /// `node_names`.
    pub node_names: *const *const c_char,
    /// `num_nodes`.
    pub num_nodes: u64,
}

/// Initial value of [`pkv_prometheus_sources`].
pub const PKV_PROMETHEUS_SOURCES_INIT: pkv_prometheus_sources = pkv_prometheus_sources { struct_size: size_of::<pkv_prometheus_sources>(), pools: ptr::null(), pool_names: ptr::null(), num_pools: 0, tiers: ptr::null(), tier_names: ptr::null(), num_tiers: 0, sessions: ptr::null(), session_names: ptr::null(), num_sessions: 0, nodes: ptr::null(), node_names: ptr::null(), num_nodes: 0 };

extern "C" {
    /// Statistics of a pool, of one moment.
    ///
    /// * `group`: pages are those of this group; the other numbers are the pool's
    /// * `stats`: out; struct_size set by the caller
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_get_stats(pool: *mut pkv_pool, group: u32, stats: *mut pkv_pool_stats) -> pkv_status;

    /// Writes statistics in the text format of Prometheus (version 0.0.4): names begin with pagedkv_, counters end
    /// in _total, times are seconds, sizes bytes. Histograms have the buckets of `pkv_histogram`.
    ///
    /// * `buffer`: out, text, terminated
    /// * `capacity`: bytes at buffer; 0 asks for the size only
    /// * `size`: out, bytes that the text takes, the terminator included. Numbers grow between two calls: leave
    ///   room
    /// * Returns `PKV_OK`; `PKV_ERR_NO_SPACE` when capacity is neither 0 nor enough (nothing is written but size);
    ///   `PKV_ERR_INVALID` (names that are not UTF-8, or longer than 256 bytes, too); `PKV_ERR_HANDLE`;
    ///   `PKV_ERR_NO_MEMORY`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_stats_prometheus(sources: *const pkv_prometheus_sources, buffer: *mut c_char, capacity: u64, size: *mut u64) -> pkv_status;

    /// Begins to record what prefetch sessions, and loads that calls wait for, do in time: one trace at a time in a
    /// process. For each session there is a lane of compute (time between layer_acquire and layer_release, and
    /// waits) and a lane for each tier with the times in which loads from it were outstanding, and the bytes in
    /// flight; loads outside of sessions (restore, gather) have lanes of their own for each pool.
    ///
    /// * `max_events`: events kept, 1 .. 2^24; 0 = 2^20. Later ones are dropped and counted
    /// * Returns `PKV_OK`; `PKV_ERR_STATE` while one is recorded; `PKV_ERR_LIMIT`; `PKV_ERR_NO_MEMORY`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_trace_start(max_events: u64) -> pkv_status;

    /// Ends the recording and writes it: JSON in the Trace Event Format, which <https://ui.perfetto.dev> and
    /// chrome://tracing load.
    ///
    /// * `path`: file to write, replaced as a whole; NULL: nothing is written
    /// * `dropped`: out, events that found no room, or NULL
    /// * Returns `PKV_OK`; `PKV_ERR_STATE` when none is recorded; `PKV_ERR_IO` with the system's reason (the
    ///   recording has ended all the same)
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_trace_stop(path: *const c_char, dropped: *mut u64) -> pkv_status;
}
