/* SPDX-License-Identifier: Apache-2.0 */
/** @file stats.h
 *  Counters and gauges. Counters only grow; gauges are of one moment: free + held + cached + quarantined = num_pages in every
 *  answer.
 *  Rates are for the caller to form, as sums over sums: hit rate = hit_tokens / asked_tokens. */
#ifndef PAGEDKV_STATS_H
#define PAGEDKV_STATS_H

#include <pagedkv/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PKV_HISTOGRAM_BUCKETS 48

/** Times in powers of two. */
typedef struct pkv_histogram {
    uint64_t count;
    uint64_t sum_ns;
    uint64_t buckets[PKV_HISTOGRAM_BUCKETS]; /**< bucket 0: zero; bucket b: 2^(b-1) .. 2^b - 1 ns; the last one: all above */
} pkv_histogram;
#define PKV_HISTOGRAM_INIT {0, 0, {0}}

/* pkv_pool_stats.memory_kind */
#define PKV_MEMORY_KIND_NONE 0             /**< ids only */
#define PKV_MEMORY_KIND_CALLER 1           /**< the caller's */
#define PKV_MEMORY_KIND_PAGES 2            /**< ordinary pages */
#define PKV_MEMORY_KIND_TRANSPARENT_HUGE 3 /**< transparent huge pages asked for, the kernel decides */
#define PKV_MEMORY_KIND_HUGETLB 4          /**< reserved huge pages */
#define PKV_MEMORY_KIND_DEVICE 5           /**< of a device, the pool's own */

/* pkv_pool_stats.key_seed */
#define PKV_KEY_SEED_RANDOM 0 /**< from the operating system, differs for each pool */
#define PKV_KEY_SEED_FIXED 1  /**< given in the options */

typedef struct pkv_pool_stats {
    size_t struct_size;
    /* gauges; those of pages are of the group asked for */
    uint64_t num_pages;
    uint64_t free_pages;
    uint64_t held_pages;
    uint64_t cached_pages;
    uint64_t quarantined_pages;   /**< of device pools: free, but work under a sync may still use them. They are handed out when
                                       nothing else is free, and what their new user does is ordered after that work */
    uint64_t tables;              /**< live tables of the pool */
    uint64_t namespaces;          /**< namespaces with blocks, tables or a default retention */
    uint64_t index_blocks;        /**< blocks in the prefix index */
    uint64_t page_bytes;          /**< K and V bytes of a page over its layers: page_tokens * layers * heads *
                                       (k row + v row), without gaps between pages */
    uint64_t metadata_bytes;      /**< memory in use besides page bytes and the tokens kept for comparison */
    double usage;                 /**< held_pages / num_pages: 0 .. 1 */
    int32_t memory_kind;          /**< PKV_MEMORY_KIND_* */
    int32_t key_seed;             /**< PKV_KEY_SEED_*; the keys are XXH3-128 under a secret from the seed */
    /* counters */
    uint64_t requests;            /**< sequences admitted and lookups made, each once (PKV_ADMIT_RETRY not again) */
    uint64_t asked_tokens;        /**< tokens of these that might have matched: all of each prompt */
    uint64_t hit_tokens;          /**< tokens of these that did match */
    uint64_t retries;             /**< admissions with PKV_ADMIT_RETRY */
    uint64_t refused;             /**< admissions that failed for want of pages */
    uint64_t probes;              /**< pkv_pool_probe calls */
    uint64_t allocated_pages;     /**< pages handed out */
    uint64_t failed_allocations;  /**< calls that got PKV_ERR_NO_PAGES, admissions not included */
    uint64_t evicted_pages;       /**< cached pages freed to make room, by limit or by pkv_pool_evict */
    uint64_t cleared_pages;       /**< cached pages freed by pkv_pool_clear */
    uint64_t published_blocks;    /**< blocks that became findable */
    uint64_t unpublished_blocks;  /**< blocks that ceased to be: evicted, cleared, or their parent went */
    uint64_t duplicate_blocks;    /**< pages offered for a block that had one already, in any group */
    uint64_t key_collisions;      /**< looks at the index that met a key of another block (its parent, tokens or
                                       media differ): never taken for a match */
    uint64_t copied_pages;        /**< copy-on-write copies */
    uint64_t partial_tokens;      /**< of hit_tokens, those that matched inside a block and were copied */
    uint64_t shared_duplicates;   /**< of these, those given up for the published page (PKV_ADMIT_SHARE) */
    uint64_t expired_blocks;      /**< blocks whose retention ran out */
    uint64_t events;              /**< events recorded */
    /* gauges */
    uint64_t pinned_pages;        /**< of cached_pages, those that are pinned and so not evictable */
    uint64_t unstored_pages;      /**< of cached_pages, those that wait to be stored in a tier that wants them */
    /* counters, of pools with tiers */
    uint64_t stored_images;       /**< images that the pool stored, each tier counted */
    uint64_t failed_stores;       /**< and those that no tier took */
    uint64_t dropped_images;      /**< pages evicted while their image was in no tier */
    uint64_t loaded_blocks;       /**< blocks of sequences brought back from tiers */
    uint64_t adopted_blocks;      /**< blocks that were to be brought back, and were found in a page by then */
    uint64_t joined_loads;        /**< loads that were under way for somebody else already, and waited for */
    uint64_t spilled_blocks;      /**< blocks of live sequences moved down */
    uint64_t lost_blocks;         /**< blocks that no tier could give back */
    uint64_t exposed_ns;          /**< time that gathers waited for blocks that were not resident */
    uint64_t tier_hit_tokens;     /**< of hit_tokens, those found in tiers */
    /* gauges */
    uint64_t image_bytes;         /**< bytes of a page image of the group asked for, in a tier; 0 without tiers */
} pkv_pool_stats;
#define PKV_POOL_STATS_INIT                                                                                            \
    {sizeof(pkv_pool_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** Statistics of a pool, of one moment.
 *  @param group  pages are those of this group; the other numbers are the pool's
 *  @param stats  out; struct_size set by the caller
 *  @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_get_stats(struct pkv_pool *pool, uint32_t group, pkv_pool_stats *stats);

/* ---- Prometheus ------------------------------------------------------------------------------------------------- */

/** What pkv_stats_prometheus() writes about. Names become the label `pool`, `tier`, `session` or `node`; a list of names may be
 *  NULL: "0", "1" ... then. */
typedef struct pkv_prometheus_sources {
    size_t struct_size;
    struct pkv_pool *const *pools;
    const char *const *pool_names;
    uint64_t num_pools;
    struct pkv_tier *const *tiers;
    const char *const *tier_names;
    uint64_t num_tiers;
    struct pkv_prefetch *const *sessions;
    const char *const *session_names;
    uint64_t num_sessions;
    struct pkv_node *const *nodes;
    const char *const *node_names;
    uint64_t num_nodes;
} pkv_prometheus_sources;
#define PKV_PROMETHEUS_SOURCES_INIT                                                                                    \
    {sizeof(pkv_prometheus_sources), NULL, NULL, 0, NULL, NULL, 0, NULL, NULL, 0, NULL, NULL, 0}

/** Writes statistics in the text format of Prometheus (version 0.0.4): names begin with pagedkv_, counters end in _total,
 *  times are seconds, sizes bytes. Histograms have the buckets of pkv_histogram.
 *  @param buffer    out, text, terminated
 *  @param capacity  bytes at buffer; 0 asks for the size only
 *  @param size      out, bytes that the text takes, the terminator included. Numbers grow between two calls: leave room
 *  @return PKV_OK; PKV_ERR_NO_SPACE when capacity is neither 0 nor enough (nothing is written but size); PKV_ERR_INVALID (names
 *          that are not UTF-8, or longer than 256 bytes, too); PKV_ERR_HANDLE; PKV_ERR_NO_MEMORY
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_stats_prometheus(const pkv_prometheus_sources *sources, char *buffer, uint64_t capacity,
                                        uint64_t *size);

/* ---- traces ----------------------------------------------------------------------------------------------------- */

/** Begins to record what prefetch sessions, and loads that calls wait for, do in time: one trace at a time in a process.
 *  For each session there is a lane of compute (time between layer_acquire and layer_release, and waits) and a lane for each tier
 *  with the times in which loads from it were outstanding, and the bytes in flight; loads outside of sessions (restore, gather)
 *  have lanes of their own for each pool.
 *  @param max_events  events kept, 1 .. 2^24; 0 = 2^20. Later ones are dropped and counted
 *  @return PKV_OK; PKV_ERR_STATE while one is recorded; PKV_ERR_LIMIT; PKV_ERR_NO_MEMORY
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_trace_start(uint64_t max_events);

/** Ends the recording and writes it: JSON in the Trace Event Format, which https://ui.perfetto.dev and chrome://tracing load.
 *  @param path     file to write, replaced as a whole; NULL: nothing is written
 *  @param dropped  out, events that found no room, or NULL
 *  @return PKV_OK; PKV_ERR_STATE when none is recorded; PKV_ERR_IO with the system's reason (the recording has ended all the
 *          same)
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_trace_stop(const char *path, uint64_t *dropped);

#ifdef __cplusplus
}
#endif
#endif
