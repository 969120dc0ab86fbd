/* SPDX-License-Identifier: Apache-2.0 */
/** @file prefetch.h
 *  Prefetch sessions: what is in tiers is loaded before it is needed, so that the wait is hidden behind compute.
 *
 *  A session serves the sequences of one pool in three ways, which may be mixed:
 *
 *  1. Before a request runs: pkv_prefetch_prompt() finds the longest prefix of a prompt in the tiers and loads it. A later
 *     pkv_table_admit() finds it in pages.
 *
 *  2. Blocks of a live sequence that come back to stay: pkv_prefetch_submit() predicts which absent blocks are needed next
 *     and loads them into pages of their own; pkv_prefetch_require() puts them into the block table. A block that was ready
 *     costs no wait.
 *
 *  3. Sequences larger than the pool, all of them read in each step (exact attention over spilled blocks). Layer by layer,
 *     absent blocks pass through staging memory: pages that the session took from the pool when it was opened.
 *
 *       pkv_prefetch_step_begin(session, tables)
 *       for each layer, in order:
 *           do {
 *               pkv_prefetch_layer_acquire(session, layer) -> view   waits if the bytes are not there yet
 *               attention over the view's slices
 *               pkv_prefetch_layer_release(session, layer)
 *           } while (!view.last)
 *       pkv_prefetch_step_end(session) -> a status for each table
 *
 *     While the caller computes a layer, the next ones, and after the last one those of the next step, are loaded into other
 *     buffers. An entry of a view is a slice: one layer of one block, wherever it lies, in a page of the table or in staging
 *     memory. All of them have one base and one stride, so that a paged attention kernel takes the slice ids in place of a
 *     block table. A layer that is larger than a buffer comes in several ranges: partial attentions, merged by their
 *     log-sum-exp, give the exact result.
 *
 *  What is loaded is verified (header, key and checksums of the page image) before anybody sees it. What cannot be loaded
 *  is never replaced by other bytes: its entry is -1, and the table's status says why.
 *
 *  Demand loads, those that somebody waits for, overtake all others. Completions never change a table: the calls of its
 *  owner do.
 *
 *  On a device pool (device.h) loads go from their tier into memory of the host that the device reads, are verified there, and are
 *  put into pages by the device. With a stream acquire and release return at once: what comes in the stream after an acquire
 *  reads the view when its loads have ended, well or not, and a buffer is loaded anew once the stream has passed its release.
 *
 *  Thread-safety: one thread at a time for a session and the tables that it is given; pkv_prefetch_get_stats() from any
 *  thread. A session has one thread of its own, which moves bytes and does nothing while nothing is under way.
 *
 *  Sources of the method: loading the next layer while one is computed, FlexGen (arXiv:2303.06865) and
 *  LayerKV-like pipelines; attention sinks and a recent window, StreamingLLM (arXiv:2309.17453); merging partial attentions,
 *  FlashAttention (arXiv:2205.14135). */
#ifndef PAGEDKV_PREFETCH_H
#define PAGEDKV_PREFETCH_H

#include <pagedkv/pool.h>
#include <pagedkv/stats.h>
#include <pagedkv/table.h>
#include <pagedkv/tier.h>
#include <pagedkv/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- prediction ------------------------------------------------------------------------------------------------- */

/* pkv_predictor.policy */
#define PKV_PREDICT_SEQUENTIAL 0 /**< the blocks from the position on */
#define PKV_PREDICT_FULL 1       /**< every block: exact attention */
#define PKV_PREDICT_HINTED 2     /**< the blocks with the highest scores: sparse attention */

/** What decides which blocks a sequence needs next. */
typedef struct pkv_predictor {
    size_t struct_size;
    int32_t policy;         /**< PKV_PREDICT_* */
    uint32_t page_tokens;   /**< tokens of a block: 1 .. PKV_MAX_PAGE_TOKENS */
    uint64_t sink_tokens;   /**< the first tokens of the sequence, which are always predicted (attention sinks) */
    uint64_t recent_tokens; /**< the last tokens before the position, which are always predicted */
    uint64_t lookahead;     /**< SEQUENTIAL: blocks from that of the position on; HINTED: blocks by score; FULL: not used */
} pkv_predictor;
#define PKV_PREDICTOR_INIT {sizeof(pkv_predictor), PKV_PREDICT_SEQUENTIAL, 0, 0, 0, 0}

/** Predicts which blocks of a sequence are needed next: a pure function.
 *
 *  The blocks come in the order in which they should be loaded, each once: those of the sink tokens, ascending; those that
 *  hold tokens of [position - recent_tokens, position), ascending; then, by policy, blocks from that of token `position` on,
 *  ascending (SEQUENTIAL), all others, ascending (FULL), or the `lookahead` others with the highest scores, the highest
 *  first, of equal ones the lower number first (HINTED).
 *  @param num_tokens  tokens of the sequence; it has ceil(num_tokens / page_tokens) blocks
 *  @param position    the token to be computed next: 0 .. num_tokens
 *  @param scores      HINTED: num_scores of them, score i of block i; blocks without one, and those whose score is NaN, are
 *                     not predicted by score. NULL when num_scores is 0
 *  @param blocks      out
 *  @param capacity    entries at blocks; 0 asks for the number only
 *  @param num_blocks  out, blocks predicted
 *  @return PKV_OK; PKV_ERR_NO_SPACE when capacity is neither 0 nor enough (nothing is written but num_blocks);
 *          PKV_ERR_INVALID; PKV_ERR_LIMIT above 2^40 tokens; PKV_ERR_NO_MEMORY
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_prefetch_predict(const pkv_predictor *predictor, uint64_t num_tokens, uint64_t position,
                                        uint64_t num_scores, const float *scores, uint64_t *blocks, uint64_t capacity,
                                        uint64_t *num_blocks);

/* ---- sessions --------------------------------------------------------------------------------------------------- */

/** A layer of a pool. */
typedef struct pkv_layer_ref {
    uint32_t group;
    uint32_t layer; /**< within the group */
} pkv_layer_ref;

#define PKV_PREFETCH_MAX_BUFFERS 16

/* pkv_prefetch_options.flags */
#define PKV_PREFETCH_OFF 1u          /**< steps and blocks: nothing is loaded before it is needed, to compare. Prompts are loaded
                                          all the same: that is what they are for */
#define PKV_PREFETCH_WHOLE_LAYERS 2u /**< a step whose layers do not fit a buffer is refused by step_begin, so that every
                                          layer comes in one range. What tables come to need later in the step may
                                          still come in several */

typedef struct pkv_prefetch_options {
    size_t struct_size;
    int32_t policy;          /**< PKV_PREDICT_*, of pkv_prefetch_submit. Steps need every block in any case */
    uint32_t flags;          /**< PKV_PREFETCH_* */
    uint64_t sink_tokens;    /**< as in pkv_predictor */
    uint64_t recent_tokens;  /**< as in pkv_predictor */
    uint64_t max_lookahead;  /**< blocks ahead of the position at most; the session looks as far ahead, within this bound, as
                                  measured load and compute times ask for (HINTED: always so many by score); 0 = 64 */
    uint64_t max_block_pages; /**< pages of each group that loaded blocks may take until they are required; 0 = an eighth
                                   of the group's pages, one at least */
    uint32_t num_buffers;    /**< buffers of layers: 2 .. PKV_PREFETCH_MAX_BUFFERS; 0 = 4. Two expose far more than four as
                                  soon as compute times vary */
    uint32_t num_layers;     /**< entries at layers */
    const pkv_layer_ref *layers; /**< the order in which a step goes through the layers, each once at most; NULL: all layers
                                      of group 0, then those of group 1 ... Copied */
    const uint64_t *staging_pages; /**< pages of each group, [num_groups], that the session takes from the pool as staging
                                        memory; NULL, or 0 for a group: an eighth of its pages, at least one for each buffer: all
                                        of a group with fewer pages than that. Copied. See pkv_prefetch_stats.buffer_slices for what a buffer can hold */
    uint32_t max_tables;     /**< tables of a step: 1 .. 65536; 0 = 256 */
    uint32_t reserved;       /**< 0 */
    uint64_t max_slices;     /**< entries of a view at most; 0 = four times the pages of the largest group, and 65536 at least */
    int32_t *slices;         /**< [num_buffers, max_slices], where views put their slice ids, for kernels that need memory of
                                  the caller's; NULL: the session's own. On a device: memory of the host, best pinned, and an
                                  acquire waits until the device has done with what is there */
    int32_t *slice_indptr;   /**< [num_buffers, max_tables + 1]; NULL: the session's own, as with slices */
    uint64_t max_bytes_in_flight; /**< of loads under way; 0 = 32 MiB. The pool's staging memory bounds them, too */
    uint64_t load_timeout_ns; /**< after so long a load has failed; 0 = 30 seconds */
} pkv_prefetch_options;
#define PKV_PREFETCH_OPTIONS_INIT                                                                                      \
    {sizeof(pkv_prefetch_options), PKV_PREDICT_SEQUENTIAL, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, 0, 0, 0, NULL, NULL, 0, 0}

/** Opens a session over a pool with tiers, and takes its staging pages. The pool stays alive as long as the session.
 *  @param options  NULL = defaults
 *  @return PKV_OK; PKV_ERR_STATE for a pool without tiers; PKV_ERR_NO_PAGES when the pool cannot give the staging pages;
 *          PKV_ERR_INVALID; PKV_ERR_LIMIT; PKV_ERR_NO_MEMORY; PKV_ERR_HANDLE; PKV_ERR_UNSUPPORTED for bits that this
 *          library does not know
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_prefetch_open(pkv_pool *pool, const pkv_prefetch_options *options, pkv_prefetch **session);

/** Closes a session, in any state: loads under way are cancelled, staging pages and loaded blocks go back to the pool, views
 *  are void. Waits for no tier. Prompts under way end with PKV_ERR_CANCELLED.
 *  @param sync  work that still reads views; NULL = none
 *  @return PKV_OK; PKV_ERR_HANDLE; PKV_ERR_TIMEOUT (the session lives on)
 *  Since 0.1. */
PKV_API pkv_status pkv_prefetch_close(pkv_prefetch *session, const pkv_sync *sync);

/** Drops everything that was loaded ahead and is not in use, and cancels loads under way, prompts too. The session goes on:
 *  what is needed afterwards is loaded again. In a step, acquired views stay valid.
 *  @return PKV_OK; PKV_ERR_HANDLE; PKV_ERR_CLOSED
 *  Since 0.1. */
PKV_API pkv_status pkv_prefetch_cancel(pkv_prefetch *session);

/* ---- prompts ---------------------------------------------------------------------------------------------------- */

/** Finds the longest prefix of a prompt over all tiers, in whole blocks, and loads what is not in pages. When the operation
 *  has ended, what was loaded is cached in the pool, as recently used as any: admit the request then. Needs pages for what is
 *  loaded, and one more in each group. Statistics of the pool do not count it as a request.
 *  @param match    out, what was found and where, or NULL
 *  @param options  how the operation reports; NULL = defaults. timeout_ns bounds the loads
 *  @param op       out: poll, wait, cancel, close (tier.h); of one item. NULL only with a queue
 *  @return PKV_OK when it has begun, also when nothing is to be loaded; PKV_ERR_NO_PAGES; PKV_ERR_BUSY when 1024 prompts are
 *          under way; PKV_ERR_INVALID; PKV_ERR_NO_MEMORY; PKV_ERR_HANDLE; PKV_ERR_CLOSED. The item: PKV_OK;
 *          PKV_ERR_LOST when a block could not be loaded (those before it are cached); PKV_ERR_TIMEOUT; PKV_ERR_CANCELLED
 *  Since 0.1. */
PKV_API pkv_status pkv_prefetch_prompt(pkv_prefetch *session, const pkv_prompt *prompt, const pkv_op_options *options,
                                       pkv_match *match, pkv_op **op);

/* ---- blocks of live sequences ----------------------------------------------------------------------------------- */

/** Keeps scores of a sequence's blocks for the policy PKV_PREDICT_HINTED, in place of earlier ones.
 *  @param num_scores  0 forgets them
 *  @param scores      score i is of block i; copied
 *  @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_NO_MEMORY; PKV_ERR_HANDLE; PKV_ERR_CLOSED
 *  Since 0.1. */
PKV_API pkv_status pkv_prefetch_hint(pkv_prefetch *session, pkv_table *table, uint64_t num_scores, const float *scores);

/** Predicts the blocks that a sequence needs at a position, and begins to load those that are absent. Does not wait.
 *  Blocks of several tables take turns. Loading stops, without an error, where max_block_pages or the pool's pages end;
 *  it goes on with the next call. What was predicted earlier, has not begun to load and is not predicted any more is dropped.
 *  @param position   0 .. the table's reserved tokens
 *  @param submitted  out, absent blocks predicted that are loaded, being loaded or waiting for it; or NULL
 *  @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_STATE before admit; PKV_ERR_LOST; PKV_ERR_NO_MEMORY; PKV_ERR_HANDLE; PKV_ERR_CLOSED
 *  Since 0.1. */
PKV_API pkv_status pkv_prefetch_submit(pkv_prefetch *session, pkv_table *table, uint64_t position, uint64_t *submitted);

typedef struct pkv_require_result {
    size_t struct_size;
    uint64_t resident;  /**< blocks that were in pages already */
    uint64_t on_time;   /**< blocks that had been loaded: no wait */
    uint64_t late;      /**< blocks whose load had begun: waited for */
    uint64_t on_demand; /**< blocks that were loaded by this call */
    uint64_t waited_ns;
} pkv_require_result;
#define PKV_REQUIRE_RESULT_INIT {sizeof(pkv_require_result), 0, 0, 0, 0, 0}

/** Puts blocks [first_block, first_block + num_blocks) into the block table: those loaded ahead at once, those on their way
 *  when they arrive, others by loading them now. As pkv_table_restore, but for where the bytes come from.
 *  @param num_blocks  more than there are: to the end
 *  @param result      out, or NULL; also filled when the call fails
 *  @return as pkv_table_restore; PKV_ERR_CLOSED
 *  Since 0.1. */
PKV_API pkv_status pkv_prefetch_require(pkv_prefetch *session, pkv_table *table, uint64_t first_block,
                                        uint64_t num_blocks, uint64_t timeout_ns, pkv_require_result *result);

/* ---- steps over layers ------------------------------------------------------------------------------------------ */

/** Begins a step over tables of the session's pool. Between here and step_end the tables may be written and committed;
 *  whatever else changes their blocks takes effect at the next step_begin or layer_acquire.
 *  @param num_tables  at most max_tables
 *  @param tables      each once
 *  @param num_tokens  tokens of each that this step attends to, new ones included: at most its reserved ones; NULL = the
 *                     committed ones
 *  @param statuses    out, one for each table: PKV_OK, or why it has no entries in this step (PKV_ERR_LOST, PKV_ERR_STATE before
 *                     admit, PKV_ERR_CLOSED); or NULL
 *  @return PKV_OK, also when tables failed that way; PKV_ERR_STATE inside a step; PKV_ERR_INVALID; PKV_ERR_LIMIT;
 *          PKV_ERR_NO_SPACE when a view would not fit max_slices, or with PKV_PREFETCH_WHOLE_LAYERS a layer does not fit a
 *          buffer; PKV_ERR_NO_MEMORY; PKV_ERR_HANDLE; PKV_ERR_CLOSED. Then no step has begun
 *  Since 0.1. */
PKV_API pkv_status pkv_prefetch_step_begin(pkv_prefetch *session, uint32_t num_tables, pkv_table *const *tables,
                                           const uint64_t *num_tokens, pkv_status *statuses);

/** A layer of a step, or a range of it. Valid until its release. */
typedef struct pkv_layer_view {
    size_t struct_size;
    uint32_t index;     /**< place of the layer in the session's order */
    uint32_t group;
    uint32_t layer;
    uint32_t buffer;    /**< 0 .. num_buffers - 1: whose slices and indptr these are */
    uint32_t num_tables; /**< of the step */
    int32_t last;       /**< 1: nothing of this layer comes after this range */
    uint64_t num_slices; /**< entries at slices */
    const int32_t *slices; /**< slice ids; -1: dropped by a window, or not to be had (see pkv_prefetch_step_end) */
    const int32_t *indptr; /**< [num_tables + 1]: table t has slices[indptr[t]] .. slices[indptr[t + 1] - 1] */
    const uint64_t *first_block; /**< [num_tables]: the block of each table's first entry. On a device these three arrays are
                                      memory of the host that kernels read, unless the caller gave others */
    pkv_layer_layout layout; /**< as pkv_pool_layout, with slice ids in place of pages: the K row of (slice, token offset,
                                  head) is at k_base + slice * k.page + offset * k.token + head * k.head. Scales of token
                                  and head: scale_page_stride from slice to slice. The same in every step */
    uint64_t waited_ns; /**< that this call waited for loads */
} pkv_layer_view;
#define PKV_LAYER_VIEW_INIT                                                                                            \
    {sizeof(pkv_layer_view), 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, PKV_LAYER_LAYOUT_INIT, 0}

/** Gives the next range of a layer, and waits until its bytes are there.
 *
 *  On a device pool with a stream the stream waits instead, on a word in memory of the host: its later work finds the view and
 *  the bytes ready, whether the loads went well or not; a load that failed has put -1 in its entry by then, and step_end gives the
 *  status. The host must not read the view's entries before the stream has come so far. Where the device has no such waits the
 *  call waits.
 *
 *  @param index       place in the session's order: that of the last range acquired (if it was not the last one of its
 *                     layer), or a later one; layers that are passed over are not loaded
 *  @param timeout_ns  longest wait; UINT64_MAX = for ever. The session's load_timeout_ns ends loads in any case
 *  @param sync        device pools: PKV_SYNC_CUDA_STREAM as above; another one, or NULL: the call waits for it, and for the
 *                     view, which everybody may then read. Host pools: NULL
 *  @param view        out
 *  @return PKV_OK, also when bytes of a table could not be had: its entries are -1 then; PKV_ERR_TIMEOUT (nothing is
 *          acquired; a later call may succeed); PKV_ERR_STATE outside a step, for a layer that has passed, or while every
 *          buffer is acquired; PKV_ERR_CAPTURE for a stream that is being captured: a graph would not repeat the loads;
 *          PKV_ERR_INVALID; PKV_ERR_UNSUPPORTED for a sync on a host pool; PKV_ERR_IO when the device fails; PKV_ERR_HANDLE;
 *          PKV_ERR_CLOSED
 *  Since 0.1. */
PKV_API pkv_status pkv_prefetch_layer_acquire(pkv_prefetch *session, uint32_t index, uint64_t timeout_ns,
                                              const pkv_sync *sync, pkv_layer_view *view);

/** Ends the use of the oldest acquired range, which has to be of this layer: its buffer is loaded anew.
 *  @param sync  work that still reads the view; NULL = none
 *  @return PKV_OK; PKV_ERR_STATE when the oldest acquired range is of another layer, or there is none; PKV_ERR_TIMEOUT (it is
 *          still acquired); PKV_ERR_CAPTURE for a stream that is being captured; PKV_ERR_HANDLE; PKV_ERR_CLOSED
 *  Since 0.1. */
PKV_API pkv_status pkv_prefetch_layer_release(pkv_prefetch *session, uint32_t index, const pkv_sync *sync);

/** Ends a step; waits for its loads, as far as a stream of the device waits for them. The session goes on to load the first layers of the next one, which it takes to be over the same tables.
 *  @param statuses  out, one for each table of the step: PKV_OK; PKV_ERR_LOST when blocks are gone (the table says so from
 *                   now on, see table.h); PKV_ERR_TIMEOUT, PKV_ERR_IO, PKV_ERR_NO_MEMORY when they could not be loaded now; or
 *                   the status of step_begin. What was computed for a table with another status than PKV_OK has to be
 *                   discarded. NULL: the first failure is only returned
 *  @return PKV_OK; the first table's failure: the step has ended all the same; PKV_ERR_STATE outside a step, or while a range is
 *          acquired; PKV_ERR_HANDLE
 *  Since 0.1. */
PKV_API pkv_status pkv_prefetch_step_end(pkv_prefetch *session, pkv_status *statuses);

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

/** Numbers of a session. "Parts" are what is needed as a whole: a block (pkv_prefetch_require, prompts not counted), or a
 *  block's slice of one layer (steps). At any time
 *    needed = on_time + late + on_demand
 *    io_ns = masked_ns + exposed_ns
 *    bytes_loaded = bytes_used + wasted_bytes + ready_bytes */
typedef struct pkv_prefetch_stats {
    size_t struct_size;
    /* counters */
    uint64_t needed;    /**< absent parts that were asked for */
    uint64_t on_time;   /**< of them, those that were ready. Where a stream waits in place of the call (layer_acquire) a part that was
                             missing by the call is counted when the stream has passed: as on time, if it did not wait.
                             ready_requests are as of the calls */
    uint64_t late;      /**< whose load had begun */
    uint64_t on_demand; /**< whose load had not begun */
    uint64_t failed;    /**< of needed, those that could not be had */
    uint64_t requests;  /**< calls of require, and tables of steps, that needed absent parts */
    uint64_t ready_requests; /**< of them, those whose parts were all on time */
    uint64_t steps;
    uint64_t ranges;    /**< layers, or ranges of them, acquired */
    uint64_t prompts;
    uint64_t io_ns;     /**< union of the times in which at least one load was outstanding: from its hand-over to the tier until
                             its bytes were verified and in place */
    uint64_t exposed_ns; /**< of it, time in which a caller waited, or the caller's stream on a device */
    uint64_t masked_ns; /**< of it, the rest */
    uint64_t other_wait_ns; /**< time in which a caller waited while no load was outstanding */
    uint64_t loads;     /**< loads begun */
    uint64_t good_loads;
    uint64_t failed_loads;
    uint64_t cancelled_loads; /**< not wanted any more before they ended */
    uint64_t bytes_loaded; /**< of good loads, headers of images included */
    uint64_t bytes_used;   /**< of them, asked for */
    uint64_t wasted_bytes; /**< of them, dropped without having been asked for */
    uint64_t checksum_failures; /**< loads whose bytes were not the image */
    /* gauges */
    uint64_t ready_bytes;    /**< loaded, not asked for yet */
    uint64_t bytes_in_flight;
    uint64_t loads_in_flight;
    uint64_t depth;          /**< layers, or ranges, that are loaded ahead at present */
    uint64_t lookahead;      /**< blocks ahead at present */
    uint64_t block_pages;    /**< pages that loaded blocks take */
    uint64_t staging_pages;  /**< of all groups */
    uint64_t buffer_slices;  /**< absent slices that a buffer holds in group 0 */
    double masking_efficiency; /**< masked_ns / io_ns; 0 without I/O */
    /* times */
    pkv_histogram load;    /**< from hand-over to the tier until the bytes were in place */
    pkv_histogram queue;   /**< from when a load was wanted until hand-over */
    pkv_histogram exposed; /**< each wait of a caller for loads */
} pkv_prefetch_stats;
#define PKV_PREFETCH_STATS_INIT                                                                                        \
    {sizeof(pkv_prefetch_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    \
     0, 0, 0.0, PKV_HISTOGRAM_INIT, PKV_HISTOGRAM_INIT, PKV_HISTOGRAM_INIT}

/** @return PKV_OK; PKV_ERR_HANDLE; PKV_ERR_INVALID
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_prefetch_get_stats(pkv_prefetch *session, pkv_prefetch_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
