/* SPDX-License-Identifier: Apache-2.0 */
/** @file pool.h
 *  A pool: pages of one geometry, the prefix index over them, and eviction.
 *
 *  Words. A page holds K and V of page_tokens tokens for every layer of one layer group. A block is a place in a
 *  sequence: block i holds tokens [i*page_tokens, (i+1)*page_tokens). A page is
 *    free     count 0, no content
 *    held     count > 0: tables, callers (alloc, retain, lookup) and operations each count one
 *    cached   count 0, published under a prefix: found by lookup, evictable
 *  and free + held + cached = num_pages at all times.
 *
 *  Order of reuse, stable across versions: a new pool gives pages 0, 1, 2 ...; of freed pages the last one freed is given
 *  first; free pages go before cached ones. Cached pages are evicted least recently released first, leaves before
 *  parents: a prefix never loses its head while its tail is still there. (Where callers hold later blocks of a prefix
 *  without its first ones, these cached first ones go last of all, in no promised order, and the held ones lose their names.) Retention (pkv_retention) comes before age.
 *  In a window group the blocks that a window has passed go first, then blocks from the head on, the sinks last: what a
 *  window reaches from the end of a prefix stays longest.
 *
 *  The index has room for a block a page and 4,096 more (16 a page where every group has a window, since sequences outgrow
 *  their pages there). Blocks of sequences that find it full are not published.
 *
 *  Groups. A pool has 1 to 8 layer groups, each with pages of its own; a block of a sequence has one page in each. A prefix
 *  of L tokens matches when every full-attention group has all its blocks, and every window group has the blocks that hold
 *  tokens of [L - window, L) and the first `sinks` tokens. Other blocks of a window group may be gone (PKV_NO_PAGE).
 *
 *  Two ways to the bytes: attention kernels read pages in place (pkv_pool_layout, block tables and slot mappings from
 *  table.h), or the library scatters and gathers them (pkv_pool_write, pkv_pool_gather).
 *
 *  Thread-safety: every call here, from any thread. Page bytes are the caller's to order: the library never reads or
 *  writes the bytes of a page outside of calls that say so. */
#ifndef PAGEDKV_POOL_H
#define PAGEDKV_POOL_H

#include <pagedkv/device.h>
#include <pagedkv/tensor.h>
#include <pagedkv/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- geometry and creation -------------------------------------------------------------------------------------- */

#define PKV_MAX_GROUPS 8
#define PKV_MAX_PAGE_TOKENS 65536
#define PKV_MAX_LAYERS 4096
#define PKV_MAX_HEADS 65536
#define PKV_MAX_ROW_BYTES (1u << 24)

/* pkv_group_options.attention */
#define PKV_ATTENTION_FULL 0
#define PKV_ATTENTION_WINDOW 1 /**< the last `window` tokens and the first `sinks` */

/* pkv_group_options.memory */
#define PKV_MEMORY_POOL 0   /**< allocated by the pool, zeroed */
#define PKV_MEMORY_CALLER 1 /**< the caller's tensors, k_base and v_base; they must outlive the pool and its tables */
#define PKV_MEMORY_NONE 2   /**< ids only: another process or device holds the bytes */

/* pkv_group_options.scales: f32 factors that turn stored fp8 or int8 elements back: value = stored * scale. */
#define PKV_SCALES_NONE 0       /**< rows are stored as they come */
#define PKV_SCALES_TENSOR 1     /**< one for K and one for V of each layer, given in the options */
#define PKV_SCALES_HEAD 2       /**< one for each head of each layer, given in the options */
#define PKV_SCALES_TOKEN_HEAD 3 /**< one for each row, found while writing, kept beside the page */

/* pkv_pool_options.huge_pages */
#define PKV_HUGE_PAGES_AUTO 0    /**< transparent huge pages where the kernel gives them */
#define PKV_HUGE_PAGES_NEVER 1   /**< ordinary pages */
#define PKV_HUGE_PAGES_REQUIRE 2 /**< reserved huge pages (hugetlb), or PKV_ERR_NO_MEMORY */

/* pkv_pool_options.debug: for tests of an integration; none makes a wrong result possible. */
#define PKV_DEBUG_EQUAL_KEYS 1u /**< every prefix key gets the same hash: shows that collisions are only misses */
#define PKV_DEBUG_POISON 2u     /**< pages in memory of the pool's own are filled with 0xFF when the pool is made and when
                                     they become free */
#define PKV_DEBUG_HOT_PAGES 4u  /**< device pools: pages that work under a sync may still use are given out like others, instead of
                                     last: shows that what uses them next is ordered after that work */

/** One layer group: layers that share geometry and attention kind. */
typedef struct pkv_group_options {
    size_t struct_size;
    uint64_t num_pages;     /**< 1 .. 2^31-1 */
    uint32_t num_layers;    /**< layers held here: 1 .. PKV_MAX_LAYERS */
    uint32_t first_layer;   /**< the model's index of layer 0 of this shard (pipeline parallel) */
    uint32_t total_layers;  /**< layers of the group in the whole model; 0 = first_layer + num_layers */
    uint32_t num_kv_heads;  /**< KV heads held here: 1 .. PKV_MAX_HEADS */
    uint32_t first_head;    /**< the model's index of head 0 of this shard (tensor parallel) */
    uint32_t total_heads;   /**< KV heads of the whole model; 0 = first_head + num_kv_heads */
    uint32_t k_head_dim;    /**< elements of a K row; 0 with PKV_DTYPE_OPAQUE */
    uint32_t v_head_dim;    /**< elements of a V row; 0 = no V (latent caches as in MLA) */
    int32_t dtype;          /**< PKV_DTYPE_* */
    uint32_t k_row_bytes;   /**< PKV_DTYPE_OPAQUE: bytes of a K row; else 0 */
    uint32_t v_row_bytes;   /**< PKV_DTYPE_OPAQUE: bytes of a V row, 0 = no V; else 0 */
    int32_t layout;         /**< PKV_LAYOUT_* */
    int32_t arrangement;    /**< PKV_PAGE_MAJOR or PKV_LAYER_MAJOR; PKV_MEMORY_POOL only */
    int32_t attention;      /**< PKV_ATTENTION_* */
    uint32_t window;        /**< PKV_ATTENTION_WINDOW: tokens of the window */
    uint32_t sinks;         /**< PKV_ATTENTION_WINDOW: first tokens that are always attended to */
    int32_t memory;         /**< PKV_MEMORY_* */
    uint32_t reserved;      /**< 0 */
    void *const *k_base;    /**< PKV_MEMORY_CALLER: num_layers addresses of page 0, token 0, head 0; copied */
    void *const *v_base;    /**< the same for V; NULL without V */
    pkv_strides k_strides;  /**< all 0 = dense. PKV_MEMORY_POOL: only .page may be set, larger than dense: the bytes
                                 between pages are never touched. PKV_MEMORY_CALLER: all three, or none */
    pkv_strides v_strides;  /**< PKV_MEMORY_CALLER: as k_strides; PKV_MEMORY_POOL: 0 */
    uint64_t max_cached_pages; /**< at most this many cached pages, the rest is evicted at once; 0 = no limit */
    int32_t scales;            /**< PKV_SCALES_*; other than NONE only with fp8 and int8 */
    uint32_t aux_bytes;        /**< bytes of the caller's own beside each page (pkv_pool_aux), up to 2^20; copied with it */
    const float *k_scales;     /**< PKV_SCALES_TENSOR: [num_layers]; PKV_SCALES_HEAD: [num_layers, num_kv_heads]; above 0;
                                    copied; else NULL */
    const float *v_scales;     /**< the same for V; NULL without V */
} pkv_group_options;
#define PKV_GROUP_OPTIONS_INIT                                                                                         \
    {sizeof(pkv_group_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, PKV_DTYPE_F16, 0, 0, PKV_LAYOUT_NHD, PKV_PAGE_MAJOR,        \
     PKV_ATTENTION_FULL, 0, 0, PKV_MEMORY_POOL, 0, NULL, NULL, {0, 0, 0}, {0, 0, 0}, 0, PKV_SCALES_NONE, 0, NULL, NULL}

#define PKV_MAX_TIERS 4

/* pkv_tier_attachment.policy: when the pool stores images of published blocks in the tier */
#define PKV_TIER_WRITE_BACK 0    /**< in the background, before they are evicted: see pkv_pool_options.clean_pages */
#define PKV_TIER_WRITE_THROUGH 1 /**< in the background, as soon as they are published */
#define PKV_TIER_WRITE_ON_HITS 2 /**< in the background, at the block's `hits`-th hit (lookup, admission) */
#define PKV_TIER_DEMOTE 3        /**< when the tier above is about to evict them (a host tier above it); what the tier above
                                      cannot hold back is dropped */
#define PKV_TIER_READ_ONLY 4     /**< never */

/* pkv_tier_attachment.flags */
#define PKV_TIER_EXCLUSIVE 1u /**< an image that was loaded into the pool is removed from the tier: it holds what the pool does
                                   not. Without it the image stays, and the page need not be stored again */

/** A tier below a pool: tier.h. */
typedef struct pkv_tier_attachment {
    size_t struct_size;
    struct pkv_tier *tier;
    int32_t policy;      /**< PKV_TIER_WRITE_* ... */
    uint32_t hits;       /**< PKV_TIER_WRITE_ON_HITS: 1 .. 1000 */
    uint32_t flags;      /**< PKV_TIER_EXCLUSIVE */
    uint32_t reserved;   /**< 0 */
    uint64_t timeout_ns; /**< longest wait for an answer of the tier, where a call has none of its own; 0 = one second */
} pkv_tier_attachment;
#define PKV_TIER_ATTACHMENT_INIT {sizeof(pkv_tier_attachment), NULL, PKV_TIER_WRITE_BACK, 0, 0, 0, 0}

/* pkv_pool_options.flags */
#define PKV_POOL_KEEP_UNSTORED 1u /**< with tiers: a cached page whose image is in no tier yet is not evicted: while one of the
                                       group waits to be stored, calls that would have to evict give PKV_ERR_AGAIN. Without it such pages are dropped and counted
                                       (pkv_pool_stats.dropped_images) */

typedef struct pkv_pool_options {
    size_t struct_size;
    uint32_t page_tokens;            /**< tokens of a page: 1 .. PKV_MAX_PAGE_TOKENS */
    uint32_t num_groups;             /**< 1 .. PKV_MAX_GROUPS */
    const pkv_group_options *groups; /**< num_groups of them */
    int32_t huge_pages;              /**< PKV_HUGE_PAGES_* */
    uint32_t copy_threads;           /**< helper threads for large writes and gathers, up to 256; 0 = the
                                          calling thread alone */
    uint64_t seed;                   /**< of the prefix keys; 0 = random, from the operating system */
    uint32_t debug;                  /**< PKV_DEBUG_* */
    uint32_t event_capacity;         /**< events kept for pkv_pool_events, up to 2^24; 0 = none are recorded */
    const pkv_tier_attachment *tiers; /**< num_tiers of them, in the order in which they are asked, the fastest first. Every
                                           group needs memory then. The tiers stay open as long as the pool lives */
    uint32_t num_tiers;              /**< 0 .. PKV_MAX_TIERS */
    uint32_t flags;                  /**< PKV_POOL_* */
    uint64_t clean_pages;            /**< PKV_TIER_WRITE_BACK: pages of each group that the pool tries to have free, or cached
                                          with their images stored; 0 = a quarter of the group's. More makes evictions lose
                                          less, fewer makes fewer stores */
    uint64_t staging_bytes;          /**< memory for images on their way; 0 = 32 MiB. At least 8 images */
    int32_t device;                  /**< PKV_DEVICE_* (device.h): where pages lie. PKV_MEMORY_POOL is allocated there,
                                          PKV_MEMORY_CALLER are tensors there */
    int32_t device_index;            /**< which of them */
    const pkv_sync *in_place;        /**< PKV_SYNC_CUDA_STREAM: the stream in which kernels of the caller's own use pages: what
                                          calls without a sync hand out, and copy, is ready there, and the calls do not wait for
                                          it. It has to exist as long as the pool and its tables. NULL: none (device.h) */
    uint32_t transfer_blocks;        /**< thread blocks that a transfer to or from tiers may take on the device, so that it leaves
                                          multiprocessors to others; 0 = no bound */
    uint32_t reserved;               /**< 0 */
} pkv_pool_options;
#define PKV_POOL_OPTIONS_INIT                                                                                          \
    {sizeof(pkv_pool_options), 0, 0, NULL, PKV_HUGE_PAGES_AUTO, 0, 0, 0, 0, NULL, 0, 0, 0, 0, PKV_DEVICE_HOST, 0, NULL, 0, 0}

/** Makes a pool. Memory of the pool's own is reserved at once and backed by the kernel as it is first touched.
 *  @param options  copied; `groups` and what it points to are not needed afterwards (PKV_MEMORY_CALLER tensors are)
 *  @param pool     out
 *  @return PKV_OK; PKV_ERR_INVALID or PKV_ERR_LIMIT with the field and its value; PKV_ERR_NO_MEMORY;
 *          PKV_ERR_UNSUPPORTED for bits that this library does not know
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_create(const pkv_pool_options *options, pkv_pool **pool);

/** Closes a pool. Live tables keep its memory alive, but answer PKV_ERR_CLOSED from now on; the memory goes with the
 *  last of them.
 *  With tiers: what is not stored yet is lost (pkv_pool_flush), and operations under way are cancelled when the memory goes.
 *  @return PKV_OK; PKV_ERR_HANDLE; PKV_ERR_BUSY when the pool has memory of the caller's (PKV_MEMORY_CALLER) and a call on
 *          another thread, or a store or load in the background, is at work on its bytes: the pool stays open; see
 *          pkv_pool_quiesce
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_destroy(pkv_pool *pool);

/** Waits until no call on any thread is at work on memory of the caller's (PKV_MEMORY_CALLER). Others may begin right
 *  after: stop them first. A pool without such memory is quiet at once: what it has goes with the last call.
 *  @param timeout_ns  longest wait; 0 looks once
 *  @return PKV_OK; PKV_ERR_TIMEOUT; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_quiesce(pkv_pool *pool, uint64_t timeout_ns);

/** Orders a stream after the work that pages which calls have handed out so far may still be in: that of those who had them
 *  before, commits of matched blocks, and copies on write. For kernels of the caller's own in a stream other than the pool's
 *  (pkv_pool_options.in_place), and before the launch of a graph; cheap when there is nothing to wait for. A host pool has
 *  nothing to order.
 *  @param sync  PKV_SYNC_CUDA_STREAM: later work in that stream comes after it. NULL, or another kind: the call waits for it
 *  @return PKV_OK; PKV_ERR_CAPTURE for a stream that is being captured; PKV_ERR_INVALID; PKV_ERR_IO when the device fails;
 *          PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_order(pkv_pool *pool, const pkv_sync *sync);

/** Where a layer's rows lie: the K row of (page, token offset, head) is at
 *    k_base + page * k.page + offset * k.token + head * k.head        (64-bit arithmetic)
 *  and V the same. Valid as long as the pool or one of its tables lives. */
typedef struct pkv_layer_layout {
    size_t struct_size;
    void *k_base;          /**< NULL for PKV_MEMORY_NONE; of a device pool a device address */
    void *v_base;          /**< NULL without V */
    pkv_strides k;
    pkv_strides v;
    uint64_t k_row_bytes;
    uint64_t v_row_bytes;  /**< 0 without V */
    uint32_t num_kv_heads;
    uint32_t page_tokens;
    int32_t dtype;
    int32_t scales;        /**< PKV_SCALES_* */
    float *k_scales;       /**< TENSOR: one; HEAD: [heads]; TOKEN_HEAD: [page, token, head], pages scale_page_stride apart; of a
                                device pool in its memory */
    float *v_scales;       /**< NULL without V */
    uint64_t scale_page_stride; /**< bytes; PKV_SCALES_TOKEN_HEAD only, else 0 */
} pkv_layer_layout;
#define PKV_LAYER_LAYOUT_INIT                                                                                          \
    {sizeof(pkv_layer_layout), NULL, NULL, {0, 0, 0}, {0, 0, 0}, 0, 0, 0, 0, 0, 0, NULL, NULL, 0}

/** Addresses and strides of one layer.
 *  @param group, layer  0-based, as in the options (layer counts within this shard)
 *  @param layout        out; struct_size set by the caller
 *  @return PKV_OK; PKV_ERR_HANDLE; PKV_ERR_INVALID
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_layout(pkv_pool *pool, uint32_t group, uint32_t layer, pkv_layer_layout *layout);

/** The aux_bytes of a page: bytes for the caller's own use, zero in a new pool, copied where the library copies a whole
 *  page (copy on write, pkv_pool_copy_pages), not with a part of one.
 *  @param address  out; valid as long as the pool or one of its tables lives
 *  @return PKV_OK; PKV_ERR_INVALID for an id out of range or a group without aux bytes; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_aux(pkv_pool *pool, uint32_t group, pkv_page page, void **address);

/* ---- pages ------------------------------------------------------------------------------------------------------ */

/** Takes `num_pages` pages from a group, or none.
 *
 *  Free pages go first; then cached pages are evicted, but only when the call is going to succeed. It never waits.
 *  The bytes of the pages are whatever they held before.
 *  @param pages  out, num_pages ids, each with a count of one that belongs to the caller
 *  @return PKV_OK; PKV_ERR_NO_PAGES when fewer than num_pages are free or cached (the pool is unchanged);
 *          PKV_ERR_AGAIN with PKV_POOL_KEEP_UNSTORED; PKV_ERR_INVALID; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_alloc(pkv_pool *pool, uint32_t group, uint64_t num_pages, pkv_page *pages);

/** Adds one to the count of each of `num_pages` held pages; a page listed twice gets two.
 *  @return PKV_OK; PKV_ERR_INVALID for an id out of range and PKV_ERR_STATE for a page that nobody holds: no count is
 *          changed then (a cached page is taken with pkv_pool_lookup, which knows what it holds)
 *  A page of a table that is retained here keeps its committed rows; the table goes on writing behind them.
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_retain(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_page *pages);

/** Gives back one count of each of `num_pages` pages. A page whose count becomes 0 is cached if it is published and free
 *  otherwise. The list is taken from its end, so that of a prefix listed in order the tail is evicted first.
 *  @param statuses  out, one for each page, or NULL. With it good pages are released although others fail; without it
 *                   either all are released or none
 *  @param sync      work that may still use the pages; NULL = none
 *  @return PKV_OK, or the status of the first page in the list that failed: PKV_ERR_INVALID for an id out of range,
 *          PKV_ERR_STATE for a count that is 0 already
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_release(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_page *pages,
                                    pkv_status *statuses, const pkv_sync *sync);

/* pkv_page_info.state */
#define PKV_PAGE_FREE 0
#define PKV_PAGE_HELD 1
#define PKV_PAGE_CACHED 2

typedef struct pkv_page_info {
    size_t struct_size;
    uint64_t count;     /**< references: tables + callers + operations */
    int32_t state;      /**< PKV_PAGE_* */
    int32_t published;  /**< 1 if a lookup can find it */
    uint64_t block;     /**< published: its place in the prefix, 0 = first block; else 0 */
    uint32_t priority;  /**< published: of its retention */
    int32_t pinned;     /**< 1 if it, or a block after it, is pinned: it is not evicted */
} pkv_page_info;
#define PKV_PAGE_INFO_INIT {sizeof(pkv_page_info), 0, 0, 0, 0, 0, 0}

/** State of one page.
 *  @return PKV_OK; PKV_ERR_INVALID for an id out of range; PKV_ERR_HANDLE
 *  Thread-safe; the answer may be old when it arrives, unless the caller holds the page. Since 0.1. */
PKV_API pkv_status pkv_pool_page_info(pkv_pool *pool, uint32_t group, pkv_page page, pkv_page_info *info);

/* ---- prefixes --------------------------------------------------------------------------------------------------- */

/** What else decides whether KV may be reused, besides the tokens. Each part is kept apart from the others: an adapter
 *  "x" and a salt "x" are different namespaces. Compared in full (BLAKE2b-256 of the tagged parts, RFC 7693).
 *  A part may have 2^20 bytes (PKV_ERR_LIMIT). A NULL namespace pointer is the one whose parts are all empty. */
typedef struct pkv_namespace {
    size_t struct_size;
    pkv_bytes model;             /**< identity of model and weights: name, revision, quantisation ... */
    pkv_bytes adapter;           /**< name of the adapter (LoRA) */
    uint64_t adapter_id;
    uint64_t adapter_generation; /**< raise it when an adapter is loaded again under its name */
    pkv_bytes salt;              /**< tenant: other salts neither hit this one's pages nor see them by timing */
} pkv_namespace;
#define PKV_NAMESPACE_INIT {sizeof(pkv_namespace), {NULL, 0}, {NULL, 0}, 0, 0, {NULL, 0}}

#define PKV_MAX_MEDIA_DIGEST 256

/** An image, sound or other input that stands behind placeholder tokens. Its digest becomes part of the key of the block
 *  that `position` falls into, and so of all blocks after it. Two inputs that lead to other KV need other digests: see
 *  pkv_digest(). */
typedef struct pkv_media {
    uint64_t position;   /**< token index of its first placeholder; ascending in a list, below num_tokens */
    uint64_t num_tokens; /**< placeholders it fills */
    pkv_bytes digest;    /**< 1 .. PKV_MAX_MEDIA_DIGEST bytes; all of them count */
} pkv_media;

/** A prompt: tokens, and what else decides its keys. */
typedef struct pkv_prompt {
    size_t struct_size;
    const pkv_namespace *ns;
    const pkv_token *tokens;
    uint64_t num_tokens;    /**< at most 2^40 */
    const pkv_media *media; /**< in order of position */
    uint64_t num_media;     /**< at most 2^20 */
} pkv_prompt;
#define PKV_PROMPT_INIT {sizeof(pkv_prompt), NULL, NULL, 0, NULL, 0}

/** How much of a prompt was found. */
typedef struct pkv_match {
    size_t struct_size;
    uint64_t tokens; /**< tokens found, from the first */
    uint64_t blocks; /**< blocks that hold them */
    uint64_t resident_tokens; /**< of them, in pages; all of them but for pkv_table_admit in a pool with tiers */
    uint64_t tier_tokens[PKV_MAX_TIERS]; /**< of them, in each tier (a block counts for the slowest tier that has one of its
                                              images): pkv_table_restore brings them up */
} pkv_match;
#define PKV_MATCH_INIT {sizeof(pkv_match), 0, 0, 0, {0, 0, 0, 0}}

#define PKV_MATCH_ALL UINT64_MAX /**< as max_match: the whole prompt may match */

/** Finds the longest cached prefix of a prompt in whole blocks, and takes a count on each of its pages, so that nothing
 *  found can be evicted before use. Stops at the first gap. A found block is believed only after its parent, its tokens
 *  and its media digests were compared in full.
 *  @param max_match  at most this many tokens may match; 0 = all but the last token, so that at least one is left to
 *                    compute (32 tokens in pages of 16, all cached: 16 match); PKV_MATCH_ALL = no bound
 *  @param pages      out, the pages in order of blocks, each with a count that the caller releases; for several groups
 *                    one row of `capacity` after another
 *  @param capacity   entries at pages for each group; at most so many blocks are matched
 *  @param match      out
 *  @return PKV_OK, also when nothing matched; PKV_ERR_INVALID; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_lookup(pkv_pool *pool, const pkv_prompt *prompt, uint64_t max_match, pkv_page *pages,
                                   uint64_t capacity, pkv_match *match);

/** As pkv_pool_lookup, but takes no page, changes no eviction order and is not counted as a request (stats: probes).
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_probe(pkv_pool *pool, const pkv_prompt *prompt, uint64_t max_match, pkv_match *match);

/** Makes pages that the caller holds findable as blocks [first_block, first_block + num_pages) of a prompt. Their bytes
 *  must be complete, and blocks before first_block must be published, in whichever group. Each group is published by a call
 *  of its own.
 *  A block that is published already keeps its page, unless nobody holds that one: then the caller's replaces it.
 *  @param pages  num_pages ids, held, each in one place only, not published elsewhere
 *  @param owner  out, the page under which each block is published now, or NULL
 *  @return PKV_OK; PKV_ERR_NOT_FOUND when the blocks before first_block are not published; PKV_ERR_INVALID when tokens
 *          do not reach so far; PKV_ERR_STATE for a page that is not held or published under another prefix;
 *          PKV_ERR_NO_SPACE when the index is full; PKV_ERR_NO_MEMORY
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_publish(pkv_pool *pool, uint32_t group, const pkv_prompt *prompt, uint64_t first_block,
                                    uint64_t num_pages, const pkv_page *pages, pkv_page *owner);

/** Frees up to `num_pages` cached pages, least recently used first, leaves before parents. Pages in use do not count.
 *  @param evicted  out, pages freed; fewer than num_pages when no more were cached; may be NULL
 *  @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_evict(pkv_pool *pool, uint32_t group, uint64_t num_pages, uint64_t *evicted);

/* ---- retention -------------------------------------------------------------------------------------------------- */

#define PKV_PRIORITY_LOWEST 0
#define PKV_PRIORITY_DEFAULT 50
#define PKV_PRIORITY_HIGHEST 100

/** How long cached blocks are kept in comparison with others. Of evictable pages those of the lowest priority go first;
 *  among equals, the least recently released; a cached block whose retention changes, or ends, counts as released at that
 *  moment. A block that is kept also keeps the blocks before it. */
typedef struct pkv_retention {
    size_t struct_size;
    uint32_t priority; /**< 0 .. 100 */
    int32_t pin;       /**< 1: not evicted at all, until the pin is taken back or ttl_ns has passed; pkv_pool_clear and
                            PKV_ERR_NO_PAGES are what remains */
    uint64_t ttl_ns;   /**< after so long the blocks go back to PKV_PRIORITY_DEFAULT, unpinned; 0 = never */
} pkv_retention;
#define PKV_RETENTION_INIT {sizeof(pkv_retention), PKV_PRIORITY_DEFAULT, 0, 0}

/** Images in tiers keep the retention that their block had when they were stored; this call, and pkv_table_set_retention, set
 *  it there too.
 *
 *  Sets the retention of published blocks that hold tokens of [first_token, first_token + num_tokens) of a prompt.
 *  @param num_tokens  UINT64_MAX = to the end
 *  @param blocks      out, blocks found and set; or NULL
 *  @return PKV_OK, also when none is published; PKV_ERR_INVALID; PKV_ERR_NO_MEMORY; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_set_retention(pkv_pool *pool, const pkv_prompt *prompt, uint64_t first_token,
                                          uint64_t num_tokens, const pkv_retention *retention, uint64_t *blocks);

/** Sets the retention that blocks of a namespace get when they are published from now on, unless their table says
 *  otherwise (pkv_table_set_retention).
 *  @param ns         NULL = the namespace whose parts are empty
 *  @param retention  NULL = back to the default
 *  @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_NO_MEMORY; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_set_namespace_retention(pkv_pool *pool, const pkv_namespace *ns,
                                                    const pkv_retention *retention);

typedef struct pkv_clear_result {
    size_t struct_size;
    uint64_t freed; /**< cached pages that became free */
    uint64_t held;  /**< pages still held by somebody: no longer findable, free once released */
} pkv_clear_result;
#define PKV_CLEAR_RESULT_INIT {sizeof(pkv_clear_result), 0, 0}

/** Forgets all prefixes of a namespace, in the pool and in its tiers (images that other pools stored there included, those of
 *  other nodes not: node.h; live sequences whose blocks are still in a tier lose them). From then on none of them is found, and tables admitted before publish nothing
 *  more there: call it when weights change in place.
 *  @param ns      NULL = the namespace whose parts are empty
 *  @param result  out, or NULL
 *  @return PKV_OK, also for a namespace never seen; PKV_ERR_INVALID; PKV_ERR_HANDLE
 *  Thread-safe; takes time in proportion to the blocks forgotten. Since 0.1. */
PKV_API pkv_status pkv_pool_clear(pkv_pool *pool, const pkv_namespace *ns, pkv_clear_result *result);

/** As pkv_pool_clear, for all namespaces, also those that only tiers know. Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_clear_all(pkv_pool *pool, pkv_clear_result *result);

/* ---- keys and events -------------------------------------------------------------------------------------------- */

/** A block's key: 128 bits that depend on all tokens up to the block's end, on the media in them, on the namespace and on
 *  the pool's seed. Pools with one seed (options.seed) give equal keys. */
typedef struct pkv_key {
    uint64_t low;
    uint64_t high;
} pkv_key;

/** Keys of a prompt's whole blocks, for routers that match them against events.
 *  @param keys      out
 *  @param capacity  entries at keys; 0 asks for the number only
 *  @param num_keys  out, whole blocks of the prompt
 *  @return PKV_OK; PKV_ERR_NO_SPACE when capacity is neither 0 nor enough; PKV_ERR_INVALID; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_keys(pkv_pool *pool, const pkv_prompt *prompt, pkv_key *keys, uint64_t capacity,
                                 uint64_t *num_keys);

/* pkv_event.kind */
#define PKV_EVENT_STORED 1  /**< a block became findable in a group */
#define PKV_EVENT_REMOVED 2 /**< a block's page of a group is not findable any more */
#define PKV_EVENT_CLEARED 3 /**< a namespace was cleared: `key` is its root's, the parent of its first blocks */

typedef struct pkv_event {
    uint64_t sequence; /**< 1, 2, 3 ... without gaps */
    int32_t kind;      /**< PKV_EVENT_* */
    uint32_t group;    /**< layer group; 0 for PKV_EVENT_CLEARED */
    pkv_key key;       /**< of the block */
    pkv_key parent;    /**< of the block before it; of the namespace for a first block */
    uint64_t block;    /**< its place in the prefix, 0 = first */
} pkv_event;

/** What happened to the prefix index, in order. The pool keeps the last event_capacity events; a reader polls with the
 *  sequence number up to which it has read, and is told when it came too late.
 *  @param after     sequence number of the last event read; 0 = from the first
 *  @param events    out, up to `capacity` events that follow `after`
 *  @param capacity  entries at events
 *  @param count     out, events written
 *  @param missed    out, events after `after` that are gone already: a reader with missed > 0 starts anew from what is in
 *                   the index now; or NULL
 *  @return PKV_OK; PKV_ERR_STATE for a pool made without event_capacity; PKV_ERR_INVALID; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_events(pkv_pool *pool, uint64_t after, pkv_event *events, uint64_t capacity,
                                   uint64_t *count, uint64_t *missed);

/* ---- page bytes ------------------------------------------------------------------------------------------------- */

/** Scatters K and V rows of one layer to slots: row i goes to page slots[i] / page_tokens, offset slots[i] % page_tokens.
 *  @param num_slots  number of slots; decides how many rows are read (the tensors may be longer)
 *  @param slots      ids; below 0: the row is skipped. Two equal slots: the later row wins
 *  @param k, v       rows of the group's type, or of f32, f16, bf16 where the group's type is one of these, fp8 or int8:
 *                    then they are converted (tensor.h); v is NULL without V. They must not overlap the pages written
 *  @return PKV_OK; PKV_ERR_INVALID for a slot past num_pages * page_tokens, or a tensor too short;
 *          PKV_ERR_STATE for a slot in a page that is not held, or is published; PKV_ERR_UNSUPPORTED for a type that
 *          does not convert, or a pool without memory. Nothing was written then
 *  Thread-safe; two calls at once on the same slots leave either's bytes. Since 0.1. */
PKV_API pkv_status pkv_pool_write(pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t num_slots,
                                  const pkv_slot *slots, const pkv_tensor *k, const pkv_tensor *v,
                                  const pkv_sync *sync);

/** Gathers rows of one layer through a block table: token first_token + i, in page pages[token / page_tokens], becomes
 *  row i of k and v.
 *  @param num_pages   entries of the block table
 *  @param pages       the block table; entries outside the range may be PKV_NO_PAGE
 *  @param first_token, num_tokens  range of tokens, inside num_pages * page_tokens
 *  @param k, v        out, rows of the group's type, or of f32, f16, bf16: then they are converted (tensor.h); either may
 *                     be NULL if its rows are not wanted
 *  @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_STATE for a page that nobody holds; PKV_ERR_UNSUPPORTED for a type that
 *          does not convert, or a pool without memory. Nothing was written then
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_gather(pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t num_pages,
                                   const pkv_page *pages, uint64_t first_token, uint64_t num_tokens,
                                   const pkv_tensor *k, const pkv_tensor *v, const pkv_sync *sync);

/** Copies whole pages, all layers, from src[i] to dst[i].
 *  @return PKV_OK; PKV_ERR_INVALID for an id out of range, or a page that is both source and destination or twice a
 *          destination; PKV_ERR_STATE for a source that nobody holds, or a destination that is not held, or is published;
 *          PKV_ERR_UNSUPPORTED for a pool without memory
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_copy_pages(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_page *src,
                                       const pkv_page *dst, const pkv_sync *sync);

#ifdef __cplusplus
}
#endif
#endif
