// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers: not to be edited.
//! What the library tells: statistics, infos, results.

use crate::codes::{EventKind, IoEngine, KeySeed, MemoryKind, OpState, PageState, Status};
use crate::text::{ended, text};
use crate::Page;
use pagedkv_sys as sys;

/// Distances in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Strides {
    /// From page to page.
    pub page: u64,
    /// From token to token.
    pub token: u64,
    /// From head to head.
    pub head: u64,
}

impl From<sys::pkv_strides> for Strides {
    fn from(raw: sys::pkv_strides) -> Self {
        Self {
            page: raw.page,
            token: raw.token,
            head: raw.head,
        }
    }
}

impl From<Strides> for sys::pkv_strides {
    fn from(record: Strides) -> Self {
        #[allow(clippy::needless_update)]
        sys::pkv_strides {
            page: record.page,
            token: record.token,
            head: record.head,
        }
    }
}

/// Times in powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Histogram {
    /// Times that were counted.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// Bucket 0: zero; bucket b: 2^(b-1) .. 2^b - 1 ns; the last one: all above
    pub buckets: [u64; sys::PKV_HISTOGRAM_BUCKETS as usize],
}

impl From<sys::pkv_histogram> for Histogram {
    fn from(raw: sys::pkv_histogram) -> Self {
        Self {
            count: raw.count,
            sum_ns: raw.sum_ns,
            buckets: raw.buckets,
        }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        sys::PKV_HISTOGRAM_INIT.into()
    }
}

/// A block's key: 128 bits that depend on all tokens up to the block's end, on the media in them, on the
/// namespace and on the pool's seed. Pools with one seed (options.seed) give equal keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Key {
    /// The low 64 bits.
    pub low: u64,
    /// The high 64 bits.
    pub high: u64,
}

impl From<sys::pkv_key> for Key {
    fn from(raw: sys::pkv_key) -> Self {
        Self {
            low: raw.low,
            high: raw.high,
        }
    }
}

impl From<Key> for sys::pkv_key {
    fn from(record: Key) -> Self {
        #[allow(clippy::needless_update)]
        sys::pkv_key {
            low: record.low,
            high: record.high,
        }
    }
}

/// How much of a prompt was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Match {
    /// Tokens found, from the first
    pub tokens: u64,
    /// Blocks that hold them
    pub blocks: u64,
    /// Of them, in pages; all of them but for `Table::admit` in a pool with tiers
    pub resident_tokens: u64,
    /// Of them, in each tier (a block counts for the slowest tier that has one of its images): `Table::restore`
    /// brings them up
    pub tier_tokens: [u64; sys::PKV_MAX_TIERS as usize],
}

impl From<sys::pkv_match> for Match {
    fn from(raw: sys::pkv_match) -> Self {
        Self {
            tokens: raw.tokens,
            blocks: raw.blocks,
            resident_tokens: raw.resident_tokens,
            tier_tokens: raw.tier_tokens,
        }
    }
}

impl Default for Match {
    fn default() -> Self {
        sys::PKV_MATCH_INIT.into()
    }
}

/// State of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PageInfo {
    /// References: tables + callers + operations
    pub count: u64,
    /// `PKV_PAGE_*`
    pub state: PageState,
    /// 1 if a lookup can find it
    pub published: bool,
    /// Published: its place in the prefix, 0 = first block; else 0
    pub block: u64,
    /// Published: of its retention
    pub priority: u32,
    /// 1 if it, or a block after it, is pinned: it is not evicted
    pub pinned: bool,
}

impl From<sys::pkv_page_info> for PageInfo {
    fn from(raw: sys::pkv_page_info) -> Self {
        Self {
            count: raw.count,
            state: PageState::from_code(raw.state),
            published: raw.published != 0,
            block: raw.block,
            priority: raw.priority,
            pinned: raw.pinned != 0,
        }
    }
}

impl Default for PageInfo {
    fn default() -> Self {
        sys::PKV_PAGE_INFO_INIT.into()
    }
}

/// What forgetting a namespace came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ClearResult {
    /// Cached pages that became free
    pub freed: u64,
    /// Pages still held by somebody: no longer findable, free once released
    pub held: u64,
}

impl From<sys::pkv_clear_result> for ClearResult {
    fn from(raw: sys::pkv_clear_result) -> Self {
        Self {
            freed: raw.freed,
            held: raw.held,
        }
    }
}

impl Default for ClearResult {
    fn default() -> Self {
        sys::PKV_CLEAR_RESULT_INIT.into()
    }
}

/// Something that happened to the prefix index of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Event {
    /// 1, 2, 3 ... without gaps
    pub sequence: u64,
    /// `EventKind`
    pub kind: EventKind,
    /// Layer group; 0 for `EventKind::Cleared`
    pub group: u32,
    /// Of the block
    pub key: Key,
    /// Of the block before it; of the namespace for a first block
    pub parent: Key,
    /// Its place in the prefix, 0 = first
    pub block: u64,
}

impl From<sys::pkv_event> for Event {
    fn from(raw: sys::pkv_event) -> Self {
        Self {
            sequence: raw.sequence,
            kind: EventKind::from_code(raw.kind),
            group: raw.group,
            key: raw.key.into(),
            parent: raw.parent.into(),
            block: raw.block,
        }
    }
}

/// A copy that the caller of a pool without memory has to make: all rows of page `src` to page `dst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PageCopy {
    /// Layer group.
    pub group: u32,
    /// The page to be read.
    pub src: Page,
    /// The page to be written.
    pub dst: Page,
}

impl From<sys::pkv_page_copy> for PageCopy {
    fn from(raw: sys::pkv_page_copy) -> Self {
        Self {
            group: raw.group,
            src: raw.src,
            dst: raw.dst,
        }
    }
}

/// A table's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TableInfo {
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
    /// Tokens whose KV can be had: `committed`, or fewer after `Status::Lost`
    pub valid: u64,
    /// Blocks in tiers instead of pages
    pub absent_blocks: u64,
}

impl From<sys::pkv_table_info> for TableInfo {
    fn from(raw: sys::pkv_table_info) -> Self {
        Self {
            named: raw.named,
            reserved: raw.reserved,
            committed: raw.committed,
            published: raw.published,
            matched: raw.matched,
            blocks: raw.blocks,
            committed_blocks: raw.committed_blocks,
            valid: raw.valid,
            absent_blocks: raw.absent_blocks,
        }
    }
}

impl Default for TableInfo {
    fn default() -> Self {
        sys::PKV_TABLE_INFO_INIT.into()
    }
}

/// What moving blocks into tiers came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SpillResult {
    /// Now in tiers, in at least one group
    pub spilled_blocks: u64,
    /// Pages that somebody else holds, too: they stayed
    pub shared_pages: u64,
}

impl From<sys::pkv_spill_result> for SpillResult {
    fn from(raw: sys::pkv_spill_result) -> Self {
        Self {
            spilled_blocks: raw.spilled_blocks,
            shared_pages: raw.shared_pages,
        }
    }
}

impl Default for SpillResult {
    fn default() -> Self {
        sys::PKV_SPILL_RESULT_INIT.into()
    }
}

/// Where the blocks were that were required.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct RequireResult {
    /// Blocks that were in pages already
    pub resident: u64,
    /// Blocks that had been loaded: no wait
    pub on_time: u64,
    /// Blocks whose load had begun: waited for
    pub late: u64,
    /// Blocks that were loaded by this call
    pub on_demand: u64,
    /// Time that the call waited.
    pub waited_ns: u64,
}

impl From<sys::pkv_require_result> for RequireResult {
    fn from(raw: sys::pkv_require_result) -> Self {
        Self {
            resident: raw.resident,
            on_time: raw.on_time,
            late: raw.late,
            on_demand: raw.on_demand,
            waited_ns: raw.waited_ns,
        }
    }
}

impl Default for RequireResult {
    fn default() -> Self {
        sys::PKV_REQUIRE_RESULT_INIT.into()
    }
}

/// Statistics of a pool, of one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Pages of the group.
    pub num_pages: u64,
    /// Of them, those without content.
    pub free_pages: u64,
    /// Of them, those that somebody holds.
    pub held_pages: u64,
    /// Of them, those that are found by lookups and may be evicted.
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
    /// `MemoryKind`
    pub memory_kind: MemoryKind,
    /// `KeySeed`; the keys are XXH3-128 under a secret from the seed
    pub key_seed: KeySeed,
    /// Sequences admitted and lookups made, each once (`AdmitOptions::retry` not again)
    pub requests: u64,
    /// Tokens of these that might have matched: all of each prompt
    pub asked_tokens: u64,
    /// Tokens of these that did match
    pub hit_tokens: u64,
    /// Admissions with `AdmitOptions::retry`
    pub retries: u64,
    /// Admissions that failed for want of pages
    pub refused: u64,
    /// `Pool::probe` calls
    pub probes: u64,
    /// Pages handed out
    pub allocated_pages: u64,
    /// Calls that got `Status::NoPages`, admissions not included
    pub failed_allocations: u64,
    /// Cached pages freed to make room, by limit or by `Pool::evict`
    pub evicted_pages: u64,
    /// Cached pages freed by `Pool::clear`
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
    /// Of these, those given up for the published page (`AdmitOptions::share`)
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

impl From<sys::pkv_pool_stats> for PoolStats {
    fn from(raw: sys::pkv_pool_stats) -> Self {
        Self {
            num_pages: raw.num_pages,
            free_pages: raw.free_pages,
            held_pages: raw.held_pages,
            cached_pages: raw.cached_pages,
            quarantined_pages: raw.quarantined_pages,
            tables: raw.tables,
            namespaces: raw.namespaces,
            index_blocks: raw.index_blocks,
            page_bytes: raw.page_bytes,
            metadata_bytes: raw.metadata_bytes,
            usage: raw.usage,
            memory_kind: MemoryKind::from_code(raw.memory_kind),
            key_seed: KeySeed::from_code(raw.key_seed),
            requests: raw.requests,
            asked_tokens: raw.asked_tokens,
            hit_tokens: raw.hit_tokens,
            retries: raw.retries,
            refused: raw.refused,
            probes: raw.probes,
            allocated_pages: raw.allocated_pages,
            failed_allocations: raw.failed_allocations,
            evicted_pages: raw.evicted_pages,
            cleared_pages: raw.cleared_pages,
            published_blocks: raw.published_blocks,
            unpublished_blocks: raw.unpublished_blocks,
            duplicate_blocks: raw.duplicate_blocks,
            key_collisions: raw.key_collisions,
            copied_pages: raw.copied_pages,
            partial_tokens: raw.partial_tokens,
            shared_duplicates: raw.shared_duplicates,
            expired_blocks: raw.expired_blocks,
            events: raw.events,
            pinned_pages: raw.pinned_pages,
            unstored_pages: raw.unstored_pages,
            stored_images: raw.stored_images,
            failed_stores: raw.failed_stores,
            dropped_images: raw.dropped_images,
            loaded_blocks: raw.loaded_blocks,
            adopted_blocks: raw.adopted_blocks,
            joined_loads: raw.joined_loads,
            spilled_blocks: raw.spilled_blocks,
            lost_blocks: raw.lost_blocks,
            exposed_ns: raw.exposed_ns,
            tier_hit_tokens: raw.tier_hit_tokens,
            image_bytes: raw.image_bytes,
        }
    }
}

impl Default for PoolStats {
    fn default() -> Self {
        sys::PKV_POOL_STATS_INIT.into()
    }
}

/// What a tier says of itself. All counters only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TierUsage {
    /// Room for images
    pub capacity_bytes: u64,
    /// Of it in use
    pub used_bytes: u64,
    /// Images that can be found
    pub images: u64,
    /// Images that have to stay.
    pub pinned_images: u64,
    /// Forgotten to make room
    pub evicted_images: u64,
    /// Found by a restart
    pub recovered_images: u64,
    /// Reads and writes that failed or came short
    pub io_errors: u64,
    /// `IoEngine` of a file tier, else 0
    pub engine: IoEngine,
    /// 1 if the engine reads and writes through registered buffers
    pub registered_buffers: bool,
}

impl From<sys::pkv_tier_usage> for TierUsage {
    fn from(raw: sys::pkv_tier_usage) -> Self {
        Self {
            capacity_bytes: raw.capacity_bytes,
            used_bytes: raw.used_bytes,
            images: raw.images,
            pinned_images: raw.pinned_images,
            evicted_images: raw.evicted_images,
            recovered_images: raw.recovered_images,
            io_errors: raw.io_errors,
            engine: IoEngine::from_code(raw.engine),
            registered_buffers: raw.registered_buffers != 0,
        }
    }
}

impl Default for TierUsage {
    fn default() -> Self {
        sys::PKV_TIER_USAGE_INIT.into()
    }
}

impl From<TierUsage> for sys::pkv_tier_usage {
    fn from(record: TierUsage) -> Self {
        #[allow(clippy::needless_update)]
        sys::pkv_tier_usage {
            capacity_bytes: record.capacity_bytes,
            used_bytes: record.used_bytes,
            images: record.images,
            pinned_images: record.pinned_images,
            evicted_images: record.evicted_images,
            recovered_images: record.recovered_images,
            io_errors: record.io_errors,
            engine: record.engine.code(),
            registered_buffers: record.registered_buffers as _,
            ..sys::PKV_TIER_USAGE_INIT
        }
    }
}

/// A tier's numbers: its own (`usage`), and what pools did with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TierStats {
    /// What the tier says of itself.
    pub usage: TierUsage,
    /// Images asked for
    pub lookups: u64,
    /// Of them found
    pub hits: u64,
    /// Images loaded and verified
    pub loads: u64,
    /// Loads that gave no image, for whatever reason
    pub failed_loads: u64,
    /// Images stored
    pub stores: u64,
    /// Stores that failed.
    pub failed_stores: u64,
    /// Of images, verified ones
    pub bytes_loaded: u64,
    /// Bytes of images stored.
    pub bytes_stored: u64,
    /// Loads whose bytes were not the image asked for: each was removed
    pub checksum_failures: u64,
    /// Requests whose deadline passed
    pub timeouts: u64,
    /// Items completed more than once
    pub double_completions: u64,
    /// Batches under way
    pub open_requests: u64,
    /// Times that repeated failures made the tier rest
    pub breaker_trips: u64,
    /// 1 while it rests: lookups are misses, nothing is stored
    pub resting: bool,
}

impl From<sys::pkv_tier_stats> for TierStats {
    fn from(raw: sys::pkv_tier_stats) -> Self {
        Self {
            usage: raw.usage.into(),
            lookups: raw.lookups,
            hits: raw.hits,
            loads: raw.loads,
            failed_loads: raw.failed_loads,
            stores: raw.stores,
            failed_stores: raw.failed_stores,
            bytes_loaded: raw.bytes_loaded,
            bytes_stored: raw.bytes_stored,
            checksum_failures: raw.checksum_failures,
            timeouts: raw.timeouts,
            double_completions: raw.double_completions,
            open_requests: raw.open_requests,
            breaker_trips: raw.breaker_trips,
            resting: raw.resting != 0,
        }
    }
}

impl Default for TierStats {
    fn default() -> Self {
        sys::PKV_TIER_STATS_INIT.into()
    }
}

/// Numbers of a session. "Parts" are what is needed as a whole: a block (`Session::require`, prompts not
/// counted), or a block's slice of one layer (steps). At any time
///
/// ```text
/// needed = on_time + late + on_demand
/// io_ns = masked_ns + exposed_ns
/// bytes_loaded = bytes_used + wasted_bytes + ready_bytes
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PrefetchStats {
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
    /// Steps over layers.
    pub steps: u64,
    /// Layers, or ranges of them, acquired
    pub ranges: u64,
    /// Prompts that were to be loaded.
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
    /// Loads that gave what was wanted.
    pub good_loads: u64,
    /// Loads that did not.
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
    /// Bytes of loads under way.
    pub bytes_in_flight: u64,
    /// Loads under way.
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
    pub load: Histogram,
    /// From when a load was wanted until hand-over
    pub queue: Histogram,
    /// Each wait of a caller for loads
    pub exposed: Histogram,
}

impl From<sys::pkv_prefetch_stats> for PrefetchStats {
    fn from(raw: sys::pkv_prefetch_stats) -> Self {
        Self {
            needed: raw.needed,
            on_time: raw.on_time,
            late: raw.late,
            on_demand: raw.on_demand,
            failed: raw.failed,
            requests: raw.requests,
            ready_requests: raw.ready_requests,
            steps: raw.steps,
            ranges: raw.ranges,
            prompts: raw.prompts,
            io_ns: raw.io_ns,
            exposed_ns: raw.exposed_ns,
            masked_ns: raw.masked_ns,
            other_wait_ns: raw.other_wait_ns,
            loads: raw.loads,
            good_loads: raw.good_loads,
            failed_loads: raw.failed_loads,
            cancelled_loads: raw.cancelled_loads,
            bytes_loaded: raw.bytes_loaded,
            bytes_used: raw.bytes_used,
            wasted_bytes: raw.wasted_bytes,
            checksum_failures: raw.checksum_failures,
            ready_bytes: raw.ready_bytes,
            bytes_in_flight: raw.bytes_in_flight,
            loads_in_flight: raw.loads_in_flight,
            depth: raw.depth,
            lookahead: raw.lookahead,
            block_pages: raw.block_pages,
            staging_pages: raw.staging_pages,
            buffer_slices: raw.buffer_slices,
            masking_efficiency: raw.masking_efficiency,
            load: raw.load.into(),
            queue: raw.queue.into(),
            exposed: raw.exposed.into(),
        }
    }
}

impl Default for PrefetchStats {
    fn default() -> Self {
        sys::PKV_PREFETCH_STATS_INIT.into()
    }
}

/// Numbers of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct NodeStats {
    /// Of libfabric that is used
    pub provider: String,
    /// Gauge: readers that are connected
    pub guests: u64,
    /// Connections that came to be
    pub accepted: u64,
    /// That did not: another key, protocol, model, geometry; or too many
    pub refused: u64,
    /// Keys asked for
    pub lookups_served: u64,
    /// Ranges of images that readers had copied: of others they only ask where they lie
    pub fetches_served: u64,
    /// Of them
    pub bytes_served: u64,
    /// Gauge: images that are leased
    pub leases: u64,
    /// Leases that ended by time.
    pub expired_leases: u64,
    /// Each ended its connection
    pub bad_messages: u64,
    /// Gauge: nodes to read from
    pub peers: u64,
    /// Gauge
    pub connected_peers: u64,
    /// Ranges of images read
    pub reads: u64,
    /// Reads that gave nothing.
    pub failed_reads: u64,
    /// Bytes read from others.
    pub bytes_read: u64,
    /// Answers that came after their time.
    pub late_answers: u64,
    /// Connections that ended
    pub reconnects: u64,
    /// Images copied to the first tier (`NodeOptions::promote`)
    pub promoted: u64,
    /// Gauge
    pub open_offers: u64,
    /// Made
    pub offers: u64,
    /// Offers that ended by time.
    pub expired_offers: u64,
    /// Of our offers, to the end
    pub pulls_served: u64,
    /// That ended before
    pub failed_pulls_served: u64,
    /// Of sequences, put where pullers read them
    pub handed_bytes: u64,
    /// Of ours, that ended well
    pub pulls: u64,
    /// Cancelled ones, too
    pub failed_pulls: u64,
    /// Of rows, checked and written into pages
    pub pulled_bytes: u64,
    /// Gauge: servers
    pub directory_endpoints: u64,
    /// Gauge: of them connected
    pub directory_endpoints_up: u64,
    /// Gauge: of `peers`, those that it has led to
    pub directory_peers: u64,
    /// Images asked for
    pub directory_lookups: u64,
    /// Of them, those of which it named another node
    pub directory_hits: u64,
    /// Of them, those of which nothing was heard in time; entries that it refused
    pub directory_failures: u64,
    /// Entries written, renewals too
    pub directory_published: u64,
    /// Changes of tiers that could not wait until they are written (65,536 for each server that is slow or down):
    /// made up for by the next renewal
    pub directory_dropped: u64,
    /// Read there, and written by no node of this cluster; names that something else has
    pub directory_bad_entries: u64,
}

impl From<sys::pkv_node_stats> for NodeStats {
    fn from(raw: sys::pkv_node_stats) -> Self {
        Self {
            provider: text(&raw.provider),
            guests: raw.guests,
            accepted: raw.accepted,
            refused: raw.refused,
            lookups_served: raw.lookups_served,
            fetches_served: raw.fetches_served,
            bytes_served: raw.bytes_served,
            leases: raw.leases,
            expired_leases: raw.expired_leases,
            bad_messages: raw.bad_messages,
            peers: raw.peers,
            connected_peers: raw.connected_peers,
            reads: raw.reads,
            failed_reads: raw.failed_reads,
            bytes_read: raw.bytes_read,
            late_answers: raw.late_answers,
            reconnects: raw.reconnects,
            promoted: raw.promoted,
            open_offers: raw.open_offers,
            offers: raw.offers,
            expired_offers: raw.expired_offers,
            pulls_served: raw.pulls_served,
            failed_pulls_served: raw.failed_pulls_served,
            handed_bytes: raw.handed_bytes,
            pulls: raw.pulls,
            failed_pulls: raw.failed_pulls,
            pulled_bytes: raw.pulled_bytes,
            directory_endpoints: raw.directory_endpoints,
            directory_endpoints_up: raw.directory_endpoints_up,
            directory_peers: raw.directory_peers,
            directory_lookups: raw.directory_lookups,
            directory_hits: raw.directory_hits,
            directory_failures: raw.directory_failures,
            directory_published: raw.directory_published,
            directory_dropped: raw.directory_dropped,
            directory_bad_entries: raw.directory_bad_entries,
        }
    }
}

impl Default for NodeStats {
    fn default() -> Self {
        sys::PKV_NODE_STATS_INIT.into()
    }
}

/// A node to read from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct NodePeer {
    /// Where it listens.
    pub address: String,
    /// As the peer calls itself; empty before the first connection
    pub name: String,
    /// 1 or 0
    pub connected: bool,
    /// `Ok`, or why it is not connected
    pub status: Result<(), Status>,
}

impl From<sys::pkv_node_peer> for NodePeer {
    fn from(raw: sys::pkv_node_peer) -> Self {
        Self {
            address: text(&raw.address),
            name: text(&raw.name),
            connected: raw.connected != 0,
            status: ended(raw.status),
        }
    }
}

impl Default for NodePeer {
    fn default() -> Self {
        sys::PKV_NODE_PEER_INIT.into()
    }
}

/// State of an offer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct OfferInfo {
    /// `Status::Busy` while it is open; `Ok`: pulled max_pulls times; `Status::Timeout`: expired; `Status::Closed`:
    /// its pool or node was closed; `Status::Cancelled`: withdrawn
    pub status: Result<(), Status>,
    /// That went well
    pub pulls: u32,
    /// Under way
    pub open_pulls: u32,
    /// That did not.
    pub failed_pulls: u32,
    /// Offered
    pub num_tokens: u64,
    /// Of them, ready in all layers
    pub ready_tokens: u64,
    /// Until it expires
    pub left_ns: u64,
}

impl From<sys::pkv_offer_info> for OfferInfo {
    fn from(raw: sys::pkv_offer_info) -> Self {
        Self {
            status: ended(raw.status),
            pulls: raw.pulls,
            open_pulls: raw.open_pulls,
            failed_pulls: raw.failed_pulls,
            num_tokens: raw.num_tokens,
            ready_tokens: raw.ready_tokens,
            left_ns: raw.left_ns,
        }
    }
}

impl Default for OfferInfo {
    fn default() -> Self {
        sys::PKV_OFFER_INFO_INIT.into()
    }
}

/// State of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct OpInfo {
    /// `OpState`
    pub state: OpState,
    /// Of an operation that has ended: `Ok`, or that of its first item that failed; `Status::Cancelled` when a
    /// cancel came before all items were done
    pub status: Result<(), Status>,
    /// Items of the operation.
    pub num_items: u64,
    /// Items that have ended
    pub done_items: u64,
    /// Of them with `Ok`
    pub good_items: u64,
    /// 1 once nothing of the operation touches pages or buffers any more
    pub buffers_free: bool,
}

impl From<sys::pkv_op_info> for OpInfo {
    fn from(raw: sys::pkv_op_info) -> Self {
        Self {
            state: OpState::from_code(raw.state),
            status: ended(raw.status),
            num_items: raw.num_items,
            done_items: raw.done_items,
            good_items: raw.good_items,
            buffers_free: raw.buffers_free != 0,
        }
    }
}

impl Default for OpInfo {
    fn default() -> Self {
        sys::PKV_OP_INFO_INIT.into()
    }
}
