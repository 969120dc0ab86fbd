// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers: not to be edited.
//! A pool: pages of one geometry, the prefix index over them, and eviction.
//!
//! Words. A page holds K and V of page_tokens tokens for every layer of one layer group. A block is a place in
//! a sequence: block i holds tokens \[i\*page_tokens, (i+1)\*page_tokens). A page is
//!
//! ```text
//! free     count 0, no content
//! held     count > 0: tables, callers (alloc, retain, lookup) and operations each count one
//! cached   count 0, published under a prefix: found by lookup, evictable
//! ```
//!
//! and free + held + cached = num_pages at all times.
//!
//! Order of reuse, stable across versions: a new pool gives pages 0, 1, 2 ...; of freed pages the last one
//! freed is given first; free pages go before cached ones. Cached pages are evicted least recently released
//! first, leaves before parents: a prefix never loses its head while its tail is still there. (Where callers
//! hold later blocks of a prefix without its first ones, these cached first ones go last of all, in no promised
//! order, and the held ones lose their names.) Retention (`pkv_retention`) comes before age. In a window group
//! the blocks that a window has passed go first, then blocks from the head on, the sinks last: what a window
//! reaches from the end of a prefix stays longest.
//!
//! The index has room for a block a page and 4,096 more (16 a page where every group has a window, since
//! sequences outgrow their pages there). Blocks of sequences that find it full are not published.
//!
//! Groups. A pool has 1 to 8 layer groups, each with pages of its own; a block of a sequence has one page in
//! each. A prefix of L tokens matches when every full-attention group has all its blocks, and every window
//! group has the blocks that hold tokens of \[L - window, L) and the first `sinks` tokens. Other blocks of a
//! window group may be gone (`PKV_NO_PAGE`).
//!
//! Two ways to the bytes: attention kernels read pages in place (`pkv_pool_layout`, block tables and slot
//! mappings from table.h), or the library scatters and gathers them (`pkv_pool_write`, `pkv_pool_gather`).
//!
//! Thread-safety: every call here, from any thread. Page bytes are the caller's to order: the library never
//! reads or writes the bytes of a page outside of calls that say so.

#[allow(unused_imports)]
use super::*;

/// `PKV_MAX_GROUPS` of `pool.h`.
pub const PKV_MAX_GROUPS: i32 = 8;

/// `PKV_MAX_PAGE_TOKENS` of `pool.h`.
pub const PKV_MAX_PAGE_TOKENS: i32 = 65536;

/// `PKV_MAX_LAYERS` of `pool.h`.
pub const PKV_MAX_LAYERS: i32 = 4096;

/// `PKV_MAX_HEADS` of `pool.h`.
pub const PKV_MAX_HEADS: i32 = 65536;

/// `PKV_MAX_ROW_BYTES` of `pool.h`.
pub const PKV_MAX_ROW_BYTES: u32 = 1 << 24;

/// `pkv_group_options.attention`
pub const PKV_ATTENTION_FULL: i32 = 0;

/// The last `window` tokens and the first `sinks`
pub const PKV_ATTENTION_WINDOW: i32 = 1;

/// Allocated by the pool, zeroed
pub const PKV_MEMORY_POOL: i32 = 0;

/// The caller's tensors, k_base and v_base; they must outlive the pool and its tables
pub const PKV_MEMORY_CALLER: i32 = 1;

/// Ids only: another process or device holds the bytes
pub const PKV_MEMORY_NONE: i32 = 2;

/// Rows are stored as they come
pub const PKV_SCALES_NONE: i32 = 0;

/// One for K and one for V of each layer, given in the options
pub const PKV_SCALES_TENSOR: i32 = 1;

/// One for each head of each layer, given in the options
pub const PKV_SCALES_HEAD: i32 = 2;

/// One for each row, found while writing, kept beside the page
pub const PKV_SCALES_TOKEN_HEAD: i32 = 3;

/// Transparent huge pages where the kernel gives them
pub const PKV_HUGE_PAGES_AUTO: i32 = 0;

/// Ordinary pages
pub const PKV_HUGE_PAGES_NEVER: i32 = 1;

/// Reserved huge pages (hugetlb), or `PKV_ERR_NO_MEMORY`
pub const PKV_HUGE_PAGES_REQUIRE: i32 = 2;

/// Every prefix key gets the same hash: shows that collisions are only misses
pub const PKV_DEBUG_EQUAL_KEYS: u32 = 1;

/// Pages in memory of the pool's own are filled with 0xFF when the pool is made and when they become free
pub const PKV_DEBUG_POISON: u32 = 2;

/// Device pools: pages that work under a sync may still use are given out like others, instead of last: shows
/// that what uses them next is ordered after that work
pub const PKV_DEBUG_HOT_PAGES: u32 = 4;

/// One layer group: layers that share geometry and attention kind.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_group_options {
    /// `struct_size`.
    pub struct_size: usize,
    /// 1 .. 2^31-1
    pub num_pages: u64,
    /// Layers held here: 1 .. `PKV_MAX_LAYERS`
    pub num_layers: u32,
    /// The model's index of layer 0 of this shard (pipeline parallel)
    pub first_layer: u32,
    /// Layers of the group in the whole model; 0 = first_layer + num_layers
    pub total_layers: u32,
    /// KV heads held here: 1 .. `PKV_MAX_HEADS`
    pub num_kv_heads: u32,
    /// The model's index of head 0 of this shard (tensor parallel)
    pub first_head: u32,
    /// KV heads of the whole model; 0 = first_head + num_kv_heads
    pub total_heads: u32,
    /// Elements of a K row; 0 with `PKV_DTYPE_OPAQUE`
    pub k_head_dim: u32,
    /// Elements of a V row; 0 = no V (latent caches as in MLA)
    pub v_head_dim: u32,
    /// `PKV_DTYPE_*`
    pub dtype: i32,
    /// `PKV_DTYPE_OPAQUE`: bytes of a K row; else 0
    pub k_row_bytes: u32,
    /// `PKV_DTYPE_OPAQUE`: bytes of a V row, 0 = no V; else 0
    pub v_row_bytes: u32,
    /// `PKV_LAYOUT_*`
    pub layout: i32,
    /// `PKV_PAGE_MAJOR` or `PKV_LAYER_MAJOR`; `PKV_MEMORY_POOL` only
    pub arrangement: i32,
    /// `PKV_ATTENTION_*`
    pub attention: i32,
    /// `PKV_ATTENTION_WINDOW`: tokens of the window
    pub window: u32,
    /// `PKV_ATTENTION_WINDOW`: first tokens that are always attended to
    pub sinks: u32,
    /// `PKV_MEMORY_*`
    pub memory: i32,
    /// 0
    pub reserved: u32,
    /// `PKV_MEMORY_CALLER`: num_layers addresses of page 0, token 0, head 0; copied
    pub k_base: *const *mut c_void,
    /// The same for V; NULL without V
    pub v_base: *const *mut c_void,
    /// All 0 = dense. `PKV_MEMORY_POOL`: only .page may be set, larger than dense: the bytes between pages are
    /// never touched. `PKV_MEMORY_CALLER`: all three, or none
    pub k_strides: pkv_strides,
    /// `PKV_MEMORY_CALLER`: as k_strides; `PKV_MEMORY_POOL`: 0
    pub v_strides: pkv_strides,
    /// At most this many cached pages, the rest is evicted at once; 0 = no limit
    pub max_cached_pages: u64,
    /// `PKV_SCALES_*`; other than NONE only with fp8 and int8
    pub scales: i32,
    /// Bytes of the caller's own beside each page (`pkv_pool_aux`), up to 2^20; copied with it
    pub aux_bytes: u32,
    /// `PKV_SCALES_TENSOR`: \[num_layers\]; `PKV_SCALES_HEAD`: \[num_layers, num_kv_heads\]; above 0; copied; else
    /// NULL
    pub k_scales: *const f32,
    /// The same for V; NULL without V
    pub v_scales: *const f32,
}

/// Initial value of [`pkv_group_options`].
pub const PKV_GROUP_OPTIONS_INIT: pkv_group_options = pkv_group_options { struct_size: size_of::<pkv_group_options>(), num_pages: 0, num_layers: 0, first_layer: 0, total_layers: 0, num_kv_heads: 0, first_head: 0, total_heads: 0, k_head_dim: 0, v_head_dim: 0, dtype: PKV_DTYPE_F16, k_row_bytes: 0, v_row_bytes: 0, layout: PKV_LAYOUT_NHD, arrangement: PKV_PAGE_MAJOR, attention: PKV_ATTENTION_FULL, window: 0, sinks: 0, memory: PKV_MEMORY_POOL, reserved: 0, k_base: ptr::null(), v_base: ptr::null(), k_strides: pkv_strides { page: 0, token: 0, head: 0 }, v_strides: pkv_strides { page: 0, token: 0, head: 0 }, max_cached_pages: 0, scales: PKV_SCALES_NONE, aux_bytes: 0, k_scales: ptr::null(), v_scales: ptr::null() };

/// `PKV_MAX_TIERS` of `pool.h`.
pub const PKV_MAX_TIERS: i32 = 4;

/// In the background, before they are evicted: see `pkv_pool_options.clean_pages`
pub const PKV_TIER_WRITE_BACK: i32 = 0;

/// In the background, as soon as they are published
pub const PKV_TIER_WRITE_THROUGH: i32 = 1;

/// In the background, at the block's `hits`-th hit (lookup, admission)
pub const PKV_TIER_WRITE_ON_HITS: i32 = 2;

/// When the tier above is about to evict them (a host tier above it); what the tier above cannot hold back is
/// dropped
pub const PKV_TIER_DEMOTE: i32 = 3;

/// Never
pub const PKV_TIER_READ_ONLY: i32 = 4;

/// An image that was loaded into the pool is removed from the tier: it holds what the pool does not. Without it
/// the image stays, and the page need not be stored again
pub const PKV_TIER_EXCLUSIVE: u32 = 1;

/// A tier below a pool: tier.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_tier_attachment {
    /// `struct_size`.
    pub struct_size: usize,
    /// `tier`.
    pub tier: *mut pkv_tier,
    /// `PKV_TIER_WRITE_*` ...
    pub policy: i32,
    /// `PKV_TIER_WRITE_ON_HITS`: 1 .. 1000
    pub hits: u32,
    /// `PKV_TIER_EXCLUSIVE`
    pub flags: u32,
    /// 0
    pub reserved: u32,
    /// Longest wait for an answer of the tier, where a call has none of its own; 0 = one second
    pub timeout_ns: u64,
}

/// Initial value of [`pkv_tier_attachment`].
pub const PKV_TIER_ATTACHMENT_INIT: pkv_tier_attachment = pkv_tier_attachment { struct_size: size_of::<pkv_tier_attachment>(), tier: ptr::null_mut(), policy: PKV_TIER_WRITE_BACK, hits: 0, flags: 0, reserved: 0, timeout_ns: 0 };

/// With tiers: a cached page whose image is in no tier yet is not evicted: while one of the group waits to be
/// stored, calls that would have to evict give `PKV_ERR_AGAIN`. Without it such pages are dropped and counted
/// (`pkv_pool_stats.dropped_images`)
pub const PKV_POOL_KEEP_UNSTORED: u32 = 1;

/// See the functions that take a `pkv_pool_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_pool_options {
    /// `struct_size`.
    pub struct_size: usize,
    /// Tokens of a page: 1 .. `PKV_MAX_PAGE_TOKENS`
    pub page_tokens: u32,
    /// 1 .. `PKV_MAX_GROUPS`
    pub num_groups: u32,
    /// num_groups of them
    pub groups: *const pkv_group_options,
    /// `PKV_HUGE_PAGES_*`
    pub huge_pages: i32,
    /// Helper threads for large writes and gathers, up to 256; 0 = the calling thread alone
    pub copy_threads: u32,
    /// Of the prefix keys; 0 = random, from the operating system
    pub seed: u64,
    /// `PKV_DEBUG_*`
    pub debug: u32,
    /// Events kept for `pkv_pool_events`, up to 2^24; 0 = none are recorded
    pub event_capacity: u32,
    /// num_tiers of them, in the order in which they are asked, the fastest first. Every group needs memory then.
    /// The tiers stay open as long as the pool lives
    pub tiers: *const pkv_tier_attachment,
    /// 0 .. `PKV_MAX_TIERS`
    pub num_tiers: u32,
    /// `PKV_POOL_*`
    pub flags: u32,
    /// `PKV_TIER_WRITE_BACK`: pages of each group that the pool tries to have free, or cached with their images
    /// stored; 0 = a quarter of the group's. More makes evictions lose less, fewer makes fewer stores
    pub clean_pages: u64,
    /// Memory for images on their way; 0 = 32 MiB. At least 8 images
    pub staging_bytes: u64,
    /// `PKV_DEVICE_*` (device.h): where pages lie. `PKV_MEMORY_POOL` is allocated there, `PKV_MEMORY_CALLER` are
    /// tensors there
    pub device: i32,
    /// Which of them
    pub device_index: i32,
    /// `PKV_SYNC_CUDA_STREAM`: the stream in which kernels of the caller's own use pages: what calls without a sync
    /// hand out, and copy, is ready there, and the calls do not wait for it. It has to exist as long as the pool
    /// and its tables. NULL: none (device.h)
    pub in_place: *const pkv_sync,
    /// Thread blocks that a transfer to or from tiers may take on the device, so that it leaves multiprocessors to
    /// others; 0 = no bound
    pub transfer_blocks: u32,
    /// 0
    pub reserved: u32,
}

/// Initial value of [`pkv_pool_options`].
pub const PKV_POOL_OPTIONS_INIT: pkv_pool_options = pkv_pool_options { struct_size: size_of::<pkv_pool_options>(), page_tokens: 0, num_groups: 0, groups: ptr::null(), huge_pages: PKV_HUGE_PAGES_AUTO, copy_threads: 0, seed: 0, debug: 0, event_capacity: 0, tiers: ptr::null(), num_tiers: 0, flags: 0, clean_pages: 0, staging_bytes: 0, device: PKV_DEVICE_HOST, device_index: 0, in_place: ptr::null(), transfer_blocks: 0, reserved: 0 };

/// Where a layer's rows lie: the K row of (page, token offset, head) is at
///
/// ```text
/// k_base + page * k.page + offset * k.token + head * k.head        (64-bit arithmetic)
/// ```
///
/// and V the same. Valid as long as the pool or one of its tables lives.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_layer_layout {
    /// `struct_size`.
    pub struct_size: usize,
    /// NULL for `PKV_MEMORY_NONE`; of a device pool a device address
    pub k_base: *mut c_void,
    /// NULL without V
    pub v_base: *mut c_void,
    /// `k`.
    pub k: pkv_strides,
    /// `v`.
    pub v: pkv_strides,
    /// `k_row_bytes`.
    pub k_row_bytes: u64,
    /// 0 without V
    pub v_row_bytes: u64,
    /// `num_kv_heads`.
    pub num_kv_heads: u32,
    /// `page_tokens`.
    pub page_tokens: u32,
    /// `dtype`.
    pub dtype: i32,
    /// `PKV_SCALES_*`
    pub scales: i32,
    /// TENSOR: one; HEAD: \[heads\]; TOKEN_HEAD: \[page, token, head\], pages scale_page_stride apart; of a device
    /// pool in its memory
    pub k_scales: *mut f32,
    /// NULL without V
    pub v_scales: *mut f32,
    /// Bytes; `PKV_SCALES_TOKEN_HEAD` only, else 0
    pub scale_page_stride: u64,
}

/// Initial value of [`pkv_layer_layout`].
pub const PKV_LAYER_LAYOUT_INIT: pkv_layer_layout = pkv_layer_layout { struct_size: size_of::<pkv_layer_layout>(), k_base: ptr::null_mut(), v_base: ptr::null_mut(), k: pkv_strides { page: 0, token: 0, head: 0 }, v: pkv_strides { page: 0, token: 0, head: 0 }, k_row_bytes: 0, v_row_bytes: 0, num_kv_heads: 0, page_tokens: 0, dtype: 0, scales: 0, k_scales: ptr::null_mut(), v_scales: ptr::null_mut(), scale_page_stride: 0 };

/// `pkv_page_info.state`
pub const PKV_PAGE_FREE: i32 = 0;

/// `pkv_page_info.state`
pub const PKV_PAGE_HELD: i32 = 1;

/// `pkv_page_info.state`
pub const PKV_PAGE_CACHED: i32 = 2;

/// See the functions that take a `pkv_page_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_page_info {
    /// `struct_size`.
    pub struct_size: usize,
    /// References: tables + callers + operations
    pub count: u64,
    /// `PKV_PAGE_*`
    pub state: i32,
    /// 1 if a lookup can find it
    pub published: i32,
    /// Published: its place in the prefix, 0 = first block; else 0
    pub block: u64,
    /// Published: of its retention
    pub priority: u32,
    /// 1 if it, or a block after it, is pinned: it is not evicted
    pub pinned: i32,
}

/// Initial value of [`pkv_page_info`].
pub const PKV_PAGE_INFO_INIT: pkv_page_info = pkv_page_info { struct_size: size_of::<pkv_page_info>(), count: 0, state: 0, published: 0, block: 0, priority: 0, pinned: 0 };

/// What else decides whether KV may be reused, besides the tokens. Each part is kept apart from the others: an
/// adapter "x" and a salt "x" are different namespaces. Compared in full (BLAKE2b-256 of the tagged parts, RFC
/// 7693). A part may have 2^20 bytes (`PKV_ERR_LIMIT`). A NULL namespace pointer is the one whose parts are all
/// empty.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_namespace {
    /// `struct_size`.
    pub struct_size: usize,
    /// Identity of model and weights: name, revision, quantisation ...
    pub model: pkv_bytes,
    /// Name of the adapter (LoRA)
    pub adapter: pkv_bytes,
    /// `adapter_id`.
    pub adapter_id: u64,
    /// Raise it when an adapter is loaded again under its name
    pub adapter_generation: u64,
    /// Tenant: other salts neither hit this one's pages nor see them by timing
    pub salt: pkv_bytes,
}

/// Initial value of [`pkv_namespace`].
pub const PKV_NAMESPACE_INIT: pkv_namespace = pkv_namespace { struct_size: size_of::<pkv_namespace>(), model: pkv_bytes { data: ptr::null(), size: 0 }, adapter: pkv_bytes { data: ptr::null(), size: 0 }, adapter_id: 0, adapter_generation: 0, salt: pkv_bytes { data: ptr::null(), size: 0 } };

/// `PKV_MAX_MEDIA_DIGEST` of `pool.h`.
pub const PKV_MAX_MEDIA_DIGEST: i32 = 256;

/// An image, sound or other input that stands behind placeholder tokens. Its digest becomes part of the key of
/// the block that `position` falls into, and so of all blocks after it. Two inputs that lead to other KV need
/// other digests: see `pkv_digest()`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_media {
    /// Token index of its first placeholder; ascending in a list, below num_tokens
    pub position: u64,
    /// Placeholders it fills
    pub num_tokens: u64,
    /// 1 .. `PKV_MAX_MEDIA_DIGEST` bytes; all of them count
    pub digest: pkv_bytes,
}

/// A prompt: tokens, and what else decides its keys.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_prompt {
    /// `struct_size`.
    pub struct_size: usize,
    /// `ns`.
    pub ns: *const pkv_namespace,
    /// `tokens`.
    pub tokens: *const pkv_token,
    /// At most 2^40
    pub num_tokens: u64,
    /// In order of position
    pub media: *const pkv_media,
    /// At most 2^20
    pub num_media: u64,
}

/// Initial value of [`pkv_prompt`].
pub const PKV_PROMPT_INIT: pkv_prompt = pkv_prompt { struct_size: size_of::<pkv_prompt>(), ns: ptr::null(), tokens: ptr::null(), num_tokens: 0, media: ptr::null(), num_media: 0 };

/// How much of a prompt was found.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_match {
    /// `struct_size`.
    pub struct_size: usize,
    /// Tokens found, from the first
    pub tokens: u64,
    /// Blocks that hold them
    pub blocks: u64,
    /// Of them, in pages; all of them but for `pkv_table_admit` in a pool with tiers
    pub resident_tokens: u64,
    /// Of them, in each tier (a block counts for the slowest tier that has one of its images): `pkv_table_restore`
    /// brings them up
    pub tier_tokens: [u64; PKV_MAX_TIERS as usize],
}

/// Initial value of [`pkv_match`].
pub const PKV_MATCH_INIT: pkv_match = pkv_match { struct_size: size_of::<pkv_match>(), tokens: 0, blocks: 0, resident_tokens: 0, tier_tokens: [0; PKV_MAX_TIERS as usize] };

/// As max_match: the whole prompt may match
pub const PKV_MATCH_ALL: u64 = u64::MAX;

/// `PKV_PRIORITY_LOWEST` of `pool.h`.
pub const PKV_PRIORITY_LOWEST: i32 = 0;

/// `PKV_PRIORITY_DEFAULT` of `pool.h`.
pub const PKV_PRIORITY_DEFAULT: i32 = 50;

/// `PKV_PRIORITY_HIGHEST` of `pool.h`.
pub const PKV_PRIORITY_HIGHEST: i32 = 100;

/// How long cached blocks are kept in comparison with others. Of evictable pages those of the lowest priority
/// go first; among equals, the least recently released; a cached block whose retention changes, or ends, counts
/// as released at that moment. A block that is kept also keeps the blocks before it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_retention {
    /// `struct_size`.
    pub struct_size: usize,
    /// 0 .. 100
    pub priority: u32,
    /// 1: not evicted at all, until the pin is taken back or ttl_ns has passed; `pkv_pool_clear` and
    /// `PKV_ERR_NO_PAGES` are what remains
    pub pin: i32,
    /// After so long the blocks go back to `PKV_PRIORITY_DEFAULT`, unpinned; 0 = never
    pub ttl_ns: u64,
}

/// Initial value of [`pkv_retention`].
pub const PKV_RETENTION_INIT: pkv_retention = pkv_retention { struct_size: size_of::<pkv_retention>(), priority: PKV_PRIORITY_DEFAULT as u32, pin: 0, ttl_ns: 0 };

/// See the functions that take a `pkv_clear_result`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_clear_result {
    /// `struct_size`.
    pub struct_size: usize,
    /// Cached pages that became free
    pub freed: u64,
    /// Pages still held by somebody: no longer findable, free once released
    pub held: u64,
}

/// Initial value of [`pkv_clear_result`].
pub const PKV_CLEAR_RESULT_INIT: pkv_clear_result = pkv_clear_result { struct_size: size_of::<pkv_clear_result>(), freed: 0, held: 0 };

/// A block's key: 128 bits that depend on all tokens up to the block's end, on the media in them, on the
/// namespace and on the pool's seed. Pools with one seed (options.seed) give equal keys.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_key {
    /// `low`.
    pub low: u64,
    /// `high`.
    pub high: u64,
}

/// A block became findable in a group
pub const PKV_EVENT_STORED: i32 = 1;

/// A block's page of a group is not findable any more
pub const PKV_EVENT_REMOVED: i32 = 2;

/// A namespace was cleared: `key` is its root's, the parent of its first blocks
pub const PKV_EVENT_CLEARED: i32 = 3;

/// See the functions that take a `pkv_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_event {
    /// 1, 2, 3 ... without gaps
    pub sequence: u64,
    /// `PKV_EVENT_*`
    pub kind: i32,
    /// Layer group; 0 for `PKV_EVENT_CLEARED`
    pub group: u32,
    /// Of the block
    pub key: pkv_key,
    /// Of the block before it; of the namespace for a first block
    pub parent: pkv_key,
    /// Its place in the prefix, 0 = first
    pub block: u64,
}

extern "C" {
    /// Makes a pool. Memory of the pool's own is reserved at once and backed by the kernel as it is first touched.
    ///
    /// * `options`: copied; `groups` and what it points to are not needed afterwards (`PKV_MEMORY_CALLER` tensors
    ///   are)
    /// * `pool`: out
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID` or `PKV_ERR_LIMIT` with the field and its value; `PKV_ERR_NO_MEMORY`;
    ///   `PKV_ERR_UNSUPPORTED` for bits that this library does not know
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_create(options: *const pkv_pool_options, pool: *mut *mut pkv_pool) -> pkv_status;

    /// Closes a pool. Live tables keep its memory alive, but answer `PKV_ERR_CLOSED` from now on; the memory goes
    /// with the last of them. With tiers: what is not stored yet is lost (`pkv_pool_flush`), and operations under
    /// way are cancelled when the memory goes.
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_HANDLE`; `PKV_ERR_BUSY` when the pool has memory of the caller's
    ///   (`PKV_MEMORY_CALLER`) and a call on another thread, or a store or load in the background, is at work on
    ///   its bytes: the pool stays open; see `pkv_pool_quiesce`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_destroy(pool: *mut pkv_pool) -> pkv_status;

    /// Waits until no call on any thread is at work on memory of the caller's (`PKV_MEMORY_CALLER`). Others may
    /// begin right after: stop them first. A pool without such memory is quiet at once: what it has goes with the
    /// last call.
    ///
    /// * `timeout_ns`: longest wait; 0 looks once
    /// * Returns `PKV_OK`; `PKV_ERR_TIMEOUT`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_quiesce(pool: *mut pkv_pool, timeout_ns: u64) -> pkv_status;

    /// Orders a stream after the work that pages which calls have handed out so far may still be in: that of those
    /// who had them before, commits of matched blocks, and copies on write. For kernels of the caller's own in a
    /// stream other than the pool's (`pkv_pool_options.in_place`), and before the launch of a graph; cheap when
    /// there is nothing to wait for. A host pool has nothing to order.
    ///
    /// * `sync`: `PKV_SYNC_CUDA_STREAM`: later work in that stream comes after it. NULL, or another kind: the call
    ///   waits for it
    /// * Returns `PKV_OK`; `PKV_ERR_CAPTURE` for a stream that is being captured; `PKV_ERR_INVALID`; `PKV_ERR_IO`
    ///   when the device fails; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_order(pool: *mut pkv_pool, sync: *const pkv_sync) -> pkv_status;

    /// Addresses and strides of one layer.
    ///
    /// * `group`, `layer`: 0-based, as in the options (layer counts within this shard)
    /// * `layout`: out; struct_size set by the caller
    /// * Returns `PKV_OK`; `PKV_ERR_HANDLE`; `PKV_ERR_INVALID`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_layout(pool: *mut pkv_pool, group: u32, layer: u32, layout: *mut pkv_layer_layout) -> pkv_status;

    /// The aux_bytes of a page: bytes for the caller's own use, zero in a new pool, copied where the library copies
    /// a whole page (copy on write, `pkv_pool_copy_pages`), not with a part of one.
    ///
    /// * `address`: out; valid as long as the pool or one of its tables lives
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID` for an id out of range or a group without aux bytes; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_aux(pool: *mut pkv_pool, group: u32, page: pkv_page, address: *mut *mut c_void) -> pkv_status;

    /// Takes `num_pages` pages from a group, or none.
    ///
    /// Free pages go first; then cached pages are evicted, but only when the call is going to succeed. It never
    /// waits. The bytes of the pages are whatever they held before.
    ///
    /// * `pages`: out, num_pages ids, each with a count of one that belongs to the caller
    /// * Returns `PKV_OK`; `PKV_ERR_NO_PAGES` when fewer than num_pages are free or cached (the pool is unchanged);
    ///   `PKV_ERR_AGAIN` with `PKV_POOL_KEEP_UNSTORED`; `PKV_ERR_INVALID`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_alloc(pool: *mut pkv_pool, group: u32, num_pages: u64, pages: *mut pkv_page) -> pkv_status;

    /// Adds one to the count of each of `num_pages` held pages; a page listed twice gets two.
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID` for an id out of range and `PKV_ERR_STATE` for a page that nobody
    ///   holds: no count is changed then (a cached page is taken with `pkv_pool_lookup`, which knows what it holds)
    ///
    /// A page of a table that is retained here keeps its committed rows; the table goes on writing behind them.
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_retain(pool: *mut pkv_pool, group: u32, num_pages: u64, pages: *const pkv_page) -> pkv_status;

    /// Gives back one count of each of `num_pages` pages. A page whose count becomes 0 is cached if it is published
    /// and free otherwise. The list is taken from its end, so that of a prefix listed in order the tail is evicted
    /// first.
    ///
    /// * `statuses`: out, one for each page, or NULL. With it good pages are released although others fail; without
    ///   it either all are released or none
    /// * `sync`: work that may still use the pages; NULL = none
    /// * Returns `PKV_OK`, or the status of the first page in the list that failed: `PKV_ERR_INVALID` for an id out
    ///   of range, `PKV_ERR_STATE` for a count that is 0 already
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_release(pool: *mut pkv_pool, group: u32, num_pages: u64, pages: *const pkv_page, statuses: *mut pkv_status, sync: *const pkv_sync) -> pkv_status;

    /// State of one page.
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID` for an id out of range; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe; the answer may be old when it arrives, unless the caller holds the page. Since 0.1.
    pub fn pkv_pool_page_info(pool: *mut pkv_pool, group: u32, page: pkv_page, info: *mut pkv_page_info) -> pkv_status;

    /// Finds the longest cached prefix of a prompt in whole blocks, and takes a count on each of its pages, so that
    /// nothing found can be evicted before use. Stops at the first gap. A found block is believed only after its
    /// parent, its tokens and its media digests were compared in full.
    ///
    /// * `max_match`: at most this many tokens may match; 0 = all but the last token, so that at least one is left
    ///   to compute (32 tokens in pages of 16, all cached: 16 match); `PKV_MATCH_ALL` = no bound
    /// * `pages`: out, the pages in order of blocks, each with a count that the caller releases; for several groups
    ///   one row of `capacity` after another
    /// * `capacity`: entries at pages for each group; at most so many blocks are matched
    /// * `match`: out
    /// * Returns `PKV_OK`, also when nothing matched; `PKV_ERR_INVALID`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_lookup(pool: *mut pkv_pool, prompt: *const pkv_prompt, max_match: u64, pages: *mut pkv_page, capacity: u64, r#match: *mut pkv_match) -> pkv_status;

    /// As `pkv_pool_lookup`, but takes no page, changes no eviction order and is not counted as a request (stats:
    /// probes). Thread-safe. Since 0.1.
    pub fn pkv_pool_probe(pool: *mut pkv_pool, prompt: *const pkv_prompt, max_match: u64, r#match: *mut pkv_match) -> pkv_status;

    /// Makes pages that the caller holds findable as blocks \[first_block, first_block + num_pages) of a prompt.
    /// Their bytes must be complete, and blocks before first_block must be published, in whichever group. Each
    /// group is published by a call of its own. A block that is published already keeps its page, unless nobody
    /// holds that one: then the caller's replaces it.
    ///
    /// * `pages`: num_pages ids, held, each in one place only, not published elsewhere
    /// * `owner`: out, the page under which each block is published now, or NULL
    /// * Returns `PKV_OK`; `PKV_ERR_NOT_FOUND` when the blocks before first_block are not published;
    ///   `PKV_ERR_INVALID` when tokens do not reach so far; `PKV_ERR_STATE` for a page that is not held or
    ///   published under another prefix; `PKV_ERR_NO_SPACE` when the index is full; `PKV_ERR_NO_MEMORY`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_publish(pool: *mut pkv_pool, group: u32, prompt: *const pkv_prompt, first_block: u64, num_pages: u64, pages: *const pkv_page, owner: *mut pkv_page) -> pkv_status;

    /// Frees up to `num_pages` cached pages, least recently used first, leaves before parents. Pages in use do not
    /// count.
    ///
    /// * `evicted`: out, pages freed; fewer than num_pages when no more were cached; may be NULL
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_evict(pool: *mut pkv_pool, group: u32, num_pages: u64, evicted: *mut u64) -> pkv_status;

    /// Images in tiers keep the retention that their block had when they were stored; this call, and
    /// `pkv_table_set_retention`, set it there too.
    ///
    /// Sets the retention of published blocks that hold tokens of \[first_token, first_token + num_tokens) of a
    /// prompt.
    ///
    /// * `num_tokens`: UINT64_MAX = to the end
    /// * `blocks`: out, blocks found and set; or NULL
    /// * Returns `PKV_OK`, also when none is published; `PKV_ERR_INVALID`; `PKV_ERR_NO_MEMORY`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_set_retention(pool: *mut pkv_pool, prompt: *const pkv_prompt, first_token: u64, num_tokens: u64, retention: *const pkv_retention, blocks: *mut u64) -> pkv_status;

    /// Sets the retention that blocks of a namespace get when they are published from now on, unless their table
    /// says otherwise (`pkv_table_set_retention`).
    ///
    /// * `ns`: NULL = the namespace whose parts are empty
    /// * `retention`: NULL = back to the default
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_NO_MEMORY`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_set_namespace_retention(pool: *mut pkv_pool, ns: *const pkv_namespace, retention: *const pkv_retention) -> pkv_status;

    /// Forgets all prefixes of a namespace, in the pool and in its tiers (images that other pools stored there
    /// included, those of other nodes not: node.h; live sequences whose blocks are still in a tier lose them). From
    /// then on none of them is found, and tables admitted before publish nothing more there: call it when weights
    /// change in place.
    ///
    /// * `ns`: NULL = the namespace whose parts are empty
    /// * `result`: out, or NULL
    /// * Returns `PKV_OK`, also for a namespace never seen; `PKV_ERR_INVALID`; `PKV_ERR_HANDLE`
    ///
    /// Thread-safe; takes time in proportion to the blocks forgotten. Since 0.1.
    pub fn pkv_pool_clear(pool: *mut pkv_pool, ns: *const pkv_namespace, result: *mut pkv_clear_result) -> pkv_status;

    /// As `pkv_pool_clear`, for all namespaces, also those that only tiers know. Thread-safe. Since 0.1.
    pub fn pkv_pool_clear_all(pool: *mut pkv_pool, result: *mut pkv_clear_result) -> pkv_status;

    /// Keys of a prompt's whole blocks, for routers that match them against events.
    ///
    /// * `keys`: out
    /// * `capacity`: entries at keys; 0 asks for the number only
    /// * `num_keys`: out, whole blocks of the prompt
    /// * Returns `PKV_OK`; `PKV_ERR_NO_SPACE` when capacity is neither 0 nor enough; `PKV_ERR_INVALID`;
    ///   `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_keys(pool: *mut pkv_pool, prompt: *const pkv_prompt, keys: *mut pkv_key, capacity: u64, num_keys: *mut u64) -> pkv_status;

    /// What happened to the prefix index, in order. The pool keeps the last event_capacity events; a reader polls
    /// with the sequence number up to which it has read, and is told when it came too late.
    ///
    /// * `after`: sequence number of the last event read; 0 = from the first
    /// * `events`: out, up to `capacity` events that follow `after`
    /// * `capacity`: entries at events
    /// * `count`: out, events written
    /// * `missed`: out, events after `after` that are gone already: a reader with missed \> 0 starts anew from what
    ///   is in the index now; or NULL
    /// * Returns `PKV_OK`; `PKV_ERR_STATE` for a pool made without event_capacity; `PKV_ERR_INVALID`;
    ///   `PKV_ERR_HANDLE`
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_events(pool: *mut pkv_pool, after: u64, events: *mut pkv_event, capacity: u64, count: *mut u64, missed: *mut u64) -> pkv_status;

    /// Scatters K and V rows of one layer to slots: row i goes to page slots\[i\] / page_tokens, offset slots\[i\]
    /// % page_tokens.
    ///
    /// * `num_slots`: number of slots; decides how many rows are read (the tensors may be longer)
    /// * `slots`: ids; below 0: the row is skipped. Two equal slots: the later row wins
    /// * `k`, `v`: rows of the group's type, or of f32, f16, bf16 where the group's type is one of these, fp8 or
    ///   int8: then they are converted (tensor.h); v is NULL without V. They must not overlap the pages written
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID` for a slot past num_pages \* page_tokens, or a tensor too short;
    ///   `PKV_ERR_STATE` for a slot in a page that is not held, or is published; `PKV_ERR_UNSUPPORTED` for a type
    ///   that does not convert, or a pool without memory. Nothing was written then
    ///
    /// Thread-safe; two calls at once on the same slots leave either's bytes. Since 0.1.
    pub fn pkv_pool_write(pool: *mut pkv_pool, group: u32, layer: u32, num_slots: u64, slots: *const pkv_slot, k: *const pkv_tensor, v: *const pkv_tensor, sync: *const pkv_sync) -> pkv_status;

    /// Gathers rows of one layer through a block table: token first_token + i, in page pages\[token /
    /// page_tokens\], becomes row i of k and v.
    ///
    /// * `num_pages`: entries of the block table
    /// * `pages`: the block table; entries outside the range may be `PKV_NO_PAGE`
    /// * `first_token`, `num_tokens`: range of tokens, inside num_pages \* page_tokens
    /// * `k`, `v`: out, rows of the group's type, or of f32, f16, bf16: then they are converted (tensor.h); either
    ///   may be NULL if its rows are not wanted
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID`; `PKV_ERR_STATE` for a page that nobody holds; `PKV_ERR_UNSUPPORTED`
    ///   for a type that does not convert, or a pool without memory. Nothing was written then
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_gather(pool: *mut pkv_pool, group: u32, layer: u32, num_pages: u64, pages: *const pkv_page, first_token: u64, num_tokens: u64, k: *const pkv_tensor, v: *const pkv_tensor, sync: *const pkv_sync) -> pkv_status;

    /// Copies whole pages, all layers, from src\[i\] to dst\[i\].
    ///
    /// * Returns `PKV_OK`; `PKV_ERR_INVALID` for an id out of range, or a page that is both source and destination
    ///   or twice a destination; `PKV_ERR_STATE` for a source that nobody holds, or a destination that is not held,
    ///   or is published; `PKV_ERR_UNSUPPORTED` for a pool without memory
    ///
    /// Thread-safe. Since 0.1.
    pub fn pkv_pool_copy_pages(pool: *mut pkv_pool, group: u32, num_pages: u64, src: *const pkv_page, dst: *const pkv_page, sync: *const pkv_sync) -> pkv_status;
}
