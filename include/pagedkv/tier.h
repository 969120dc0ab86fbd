/* SPDX-License-Identifier: Apache-2.0 */
/** @file tier.h
 *  Tiers: places below a pool that keep page images, and the operations that move pages to and from them.
 *
 *  A tier is made once (pkv_tier_open_host, pkv_tier_open_file, pkv_tier_open for one of the caller's own) and named when
 *  a pool is made (pkv_pool_options.tiers), in the order in which it is asked, the fastest first. Several pools may use
 *  one tier: images of one geometry and prefix are found by all of them, others are kept apart by their keys.
 *
 *  Page image: the bytes of one page in a tier. A header (magic, version, byte order, key, the group's shape, in-page
 *  order, tokens, scales, aux bytes, an XXH3-64 checksum for each layer and one of the header itself), then one slice for
 *  each layer, each at a multiple of 4096 bytes. An image is used after all of that was compared; anything else is a
 *  miss, the image is removed, and pkv_tier_stats.checksum_failures counts it.
 *
 *  Thread-safety: every call here, from any thread. */
#ifndef PAGEDKV_TIER_H
#define PAGEDKV_TIER_H

#include <pagedkv/pool.h>
#include <pagedkv/tier_ops.h>
#include <pagedkv/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tiers ------------------------------------------------------------------------------------------------------ */

typedef struct pkv_host_tier_options {
    size_t struct_size;
    uint64_t capacity_bytes; /**< memory for page images, mapped at once, backed as it is touched */
    int32_t huge_pages;      /**< PKV_HUGE_PAGES_* */
    uint32_t reserved;       /**< 0 */
} pkv_host_tier_options;
#define PKV_HOST_TIER_OPTIONS_INIT {sizeof(pkv_host_tier_options), 0, PKV_HUGE_PAGES_AUTO, 0}

/** Makes a tier of host memory. Below a device pool all of it is pinned, for as long as there is such a pool (device.h). It evicts by retention: lowest priority first, then least recently used; pinned images
 *  stay.
 *  @return PKV_OK; PKV_ERR_INVALID; PKV_ERR_NO_MEMORY
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_tier_open_host(const pkv_host_tier_options *options, pkv_tier **tier);

/* pkv_file_tier_options.engine; pkv_tier_usage.engine */
#define PKV_IO_AUTO 0    /**< io_uring where the system permits it, else threads */
#define PKV_IO_URING 1   /**< io_uring, or PKV_ERR_UNSUPPORTED */
#define PKV_IO_THREADS 2 /**< pread and pwrite in threads */

/* What a fault hook asks for; pkv_file_tier_options.fault */
#define PKV_FAULT_NONE 0  /**< go on, with *result as the hook left it */
#define PKV_FAULT_DROP 1  /**< as if the completion never came */
#define PKV_FAULT_TWICE 2 /**< deliver the completion twice */
#define PKV_FAULT_LATE 3  /**< deliver it after the next one (or after 50 ms, whichever is first) */

/** One read or write of a file tier that has ended, before the tier looks at it. For tests. */
typedef struct pkv_file_event {
    size_t struct_size;
    int32_t write;   /**< 1 for a write, 0 for a read */
    int32_t reserved;
    uint64_t offset; /**< in the file */
    void *data;      /**< the bytes read, or those that were written */
    uint64_t size;   /**< asked for */
    int64_t result;  /**< bytes done, or -errno; the hook may change it */
} pkv_file_event;
typedef int32_t (*pkv_file_fault)(void *user, pkv_file_event *event);

typedef struct pkv_file_tier_options {
    size_t struct_size;
    const char *path;        /**< the file; made with mode 0600 if it is not there; its folder must be */
    uint64_t capacity_bytes; /**< room for page images; the file is preallocated. An existing file keeps its size: another
                                  one gives PKV_ERR_MISMATCH; 0 = the file's */
    uint64_t max_images;     /**< images it can hold at most; 0 = one for each 64 KiB of capacity: name it where images are smaller
                                  (pkv_pool_stats.image_bytes). Each takes 128 bytes of the file besides. Fixed when the file is
                                  made */
    pkv_bytes identity;      /**< what the images belong to, up to 4096 bytes, kept as a digest: a file made with another
                                  one gives PKV_ERR_MISMATCH. Keys keep models apart in any case */
    int32_t engine;          /**< PKV_IO_* */
    uint32_t depth;          /**< reads and writes under way at once: 1 .. 1024; 0 = 64 */
    uint32_t threads;        /**< PKV_IO_THREADS: 1 .. 64; 0 = 4 */
    uint32_t flags;          /**< PKV_FILE_* */
    uint64_t lock_timeout_ns; /**< how long to wait for another process to let go of the file; 0 = 5 seconds */
    pkv_file_fault fault;    /**< NULL; for tests of error paths */
    void *fault_user;
} pkv_file_tier_options;
#define PKV_FILE_TIER_OPTIONS_INIT {sizeof(pkv_file_tier_options), NULL, 0, 0, {NULL, 0}, PKV_IO_AUTO, 0, 0, 0, 0, NULL, NULL}

/* pkv_file_tier_options.flags */
#define PKV_FILE_RESET 1u   /**< begin empty: what is in the file is forgotten, also when it is no file of ours or does not
                                 match */
#define PKV_FILE_BUFFERED 2u /**< through the page cache. Without it O_DIRECT is used where the file system has it */

/** Makes a tier in a file, or finds one there: images that an earlier process stored are served again (warm restart).
 *
 *  One process at a time: the file is locked (flock) as long as the tier is open. Killing the process at any moment costs
 *  images at most. Byte order is the machine's; a file of another byte order or format version gives PKV_ERR_MISMATCH.
 *  @return PKV_OK; PKV_ERR_BUSY when another process has the file; PKV_ERR_MISMATCH for a file that is none of ours, or of
 *          another version, identity or size (nothing is changed in it); PKV_ERR_NO_SPACE when it cannot be preallocated;
 *          PKV_ERR_IO with the system's reason; PKV_ERR_INVALID; PKV_ERR_LIMIT; PKV_ERR_UNSUPPORTED
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_tier_open_file(const pkv_file_tier_options *options, pkv_tier **tier);

/** Makes a tier of the caller's own.
 *  @param ops      copied
 *  @param context  passed to each function; must live until ops->close was called
 *  @return PKV_OK; PKV_ERR_INVALID without a submit function; PKV_ERR_NO_MEMORY
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_tier_open(const pkv_tier_ops *ops, void *context, pkv_tier **tier);

/** Closes the handle. Pools that use the tier keep it alive; its close function is called when the last of them is gone
 *  and all requests have ended, which may be a little after this call (a file tier lets go of its file then).
 *  @return PKV_OK; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_tier_close(pkv_tier *tier);

/** A tier's numbers: its own (`usage`), and what pools did with it. */
typedef struct pkv_tier_stats {
    size_t struct_size;
    pkv_tier_usage usage;
    uint64_t lookups;           /**< images asked for */
    uint64_t hits;              /**< of them found */
    uint64_t loads;             /**< images loaded and verified */
    uint64_t failed_loads;      /**< loads that gave no image, for whatever reason */
    uint64_t stores;            /**< images stored */
    uint64_t failed_stores;
    uint64_t bytes_loaded;      /**< of images, verified ones */
    uint64_t bytes_stored;
    uint64_t checksum_failures; /**< loads whose bytes were not the image asked for: each was removed */
    uint64_t timeouts;          /**< requests whose deadline passed */
    uint64_t double_completions; /**< items completed more than once */
    uint64_t open_requests;     /**< batches under way */
    uint64_t breaker_trips;     /**< times that repeated failures made the tier rest */
    int32_t resting;            /**< 1 while it rests: lookups are misses, nothing is stored */
    int32_t reserved;
} pkv_tier_stats;
#define PKV_TIER_STATS_INIT {sizeof(pkv_tier_stats), PKV_TIER_USAGE_INIT, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** @return PKV_OK; PKV_ERR_HANDLE; PKV_ERR_INVALID
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_tier_get_stats(pkv_tier *tier, pkv_tier_stats *stats);

/* ---- operations ------------------------------------------------------------------------------------------------- */

/** Where operations end: a queue of their results with one native wait handle. */
typedef struct pkv_completion {
    uint64_t user;     /**< as given when the operation was begun */
    pkv_op *op;        /**< its handle: still to be closed */
    pkv_status status; /**< PKV_OK, or that of the first item that failed */
    int32_t reserved;
} pkv_completion;

/** @param queue  out
 *  @return PKV_OK; PKV_ERR_NO_MEMORY; PKV_ERR_IO when the system gives no eventfd
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_queue_create(pkv_queue **queue);

/** Closes the queue. Operations under way go on, and end without being queued.
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_queue_destroy(pkv_queue *queue);

/** The queue's eventfd, for poll, epoll or io_uring: readable while results wait. Do not read or close it; valid until the
 *  queue is destroyed.
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_queue_handle(pkv_queue *queue, int32_t *fd);

/** Takes results out, in the order in which the operations ended, each once.
 *  @param completions  out
 *  @param capacity     entries at completions
 *  @param timeout_ns   longest wait for the first one; 0 = none, UINT64_MAX = for ever
 *  @param count        out, entries written
 *  @return PKV_OK; PKV_ERR_TIMEOUT with count 0; PKV_ERR_INVALID; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_queue_drain(pkv_queue *queue, pkv_completion *completions, uint64_t capacity,
                                   uint64_t timeout_ns, uint64_t *count);

/* pkv_op_info.state */
#define PKV_OP_RUNNING 0
#define PKV_OP_ENDED 1

typedef struct pkv_op_info {
    size_t struct_size;
    int32_t state;        /**< PKV_OP_* */
    pkv_status status;    /**< of an operation that has ended: PKV_OK, or that of its first item that failed;
                               PKV_ERR_CANCELLED when a cancel came before all items were done */
    uint64_t num_items;
    uint64_t done_items;  /**< items that have ended */
    uint64_t good_items;  /**< of them with PKV_OK */
    int32_t buffers_free; /**< 1 once nothing of the operation touches pages or buffers any more */
    int32_t reserved;
} pkv_op_info;
#define PKV_OP_INFO_INIT {sizeof(pkv_op_info), 0, 0, 0, 0, 0, 0, 0}

/** State of an operation, without waiting.
 *  @param statuses  out, one for each item, or NULL; PKV_ERR_BUSY for items under way
 *  @param capacity  entries at statuses; fewer than items: the first ones
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_op_poll(pkv_op *op, pkv_op_info *info, pkv_status *statuses, uint64_t capacity);

/** Waits until the operation has ended.
 *  @param timeout_ns  0 = look once, UINT64_MAX = for ever
 *  @return the operation's status; PKV_ERR_TIMEOUT while it is under way
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_op_wait(pkv_op *op, uint64_t timeout_ns);

/** Asks an operation to end early. It ends exactly once all the same, with PKV_ERR_CANCELLED for the items that were not
 *  done; pages and buffers stay in use until buffers_free.
 *  @return PKV_OK, also when it has ended already; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_op_cancel(pkv_op *op);

/** Closes the handle. An operation under way goes on, unseen.
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_op_close(pkv_op *op);

/** How an operation reports. */
typedef struct pkv_op_options {
    size_t struct_size;
    pkv_queue *queue;    /**< where its end is queued, or NULL */
    uint64_t user;       /**< returned with it */
    uint64_t timeout_ns; /**< after so long it ends with PKV_ERR_TIMEOUT for what is not done; 0 = 30 seconds */
} pkv_op_options;
#define PKV_OP_OPTIONS_INIT {sizeof(pkv_op_options), NULL, 0, 0}

/* ---- pages by key ----------------------------------------------------------------------------------------------- */

/** Keys of the images of a prompt's whole blocks in a layer group: what a scheduler that plans hands to the workers that
 *  hold the bytes.
 *  @param keys      out
 *  @param capacity  entries at keys; 0 asks for the number only
 *  @param num_keys  out, whole blocks of the prompt
 *  @return PKV_OK; PKV_ERR_NO_SPACE when capacity is neither 0 nor enough; PKV_ERR_INVALID; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_image_keys(pkv_pool *pool, uint32_t group, const pkv_prompt *prompt, pkv_tier_key *keys,
                                       uint64_t capacity, uint64_t *num_keys);

/** Stores images of pages that the caller holds in all tiers of the pool that take stores. The pages are held until the
 *  operation has ended; their bytes must not change meanwhile.
 *  @param keys     num_pages of them
 *  @param pages    num_pages held pages of the group
 *  @param sync     work that still writes the pages; NULL = none
 *  @param options  NULL = defaults
 *  @param op       out: poll, wait, cancel, close. NULL only with a queue
 *  @return PKV_OK when it has begun; PKV_ERR_STATE for a pool without tiers or a page that nobody holds;
 *          PKV_ERR_BUSY when too many operations are under way (a later try may succeed); PKV_ERR_UNSUPPORTED for a group
 *          without memory; PKV_ERR_CAPTURE for a stream that is being captured; PKV_ERR_INVALID; PKV_ERR_NO_MEMORY; PKV_ERR_HANDLE
 *          Per item: PKV_OK when at least one tier has it; PKV_ERR_NO_SPACE; PKV_ERR_IO; PKV_ERR_TIMEOUT; PKV_ERR_CANCELLED
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_store(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_tier_key *keys,
                                  const pkv_page *pages, const pkv_sync *sync, const pkv_op_options *options, pkv_op **op);

/** Loads images into pages that the caller holds, each from the first tier that has it. Nothing is published. A page whose
 *  item fails keeps its old bytes, or part of the image: take its content for undefined.
 *  @param pages  num_pages held pages of the group, which nobody else may use until the operation has ended
 *  @param sync   work that still uses the pages; NULL = none
 *  @return as pkv_pool_store. Per item: PKV_OK; PKV_ERR_NOT_FOUND; PKV_ERR_IO; PKV_ERR_TIMEOUT; PKV_ERR_CANCELLED
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_load(pkv_pool *pool, uint32_t group, uint64_t num_pages, const pkv_tier_key *keys,
                                 const pkv_page *pages, const pkv_sync *sync, const pkv_op_options *options, pkv_op **op);

/** Waits until what is to be stored by policy has been: evictable pages whose images are missing in a tier that wants
 *  them, and stores under way.
 *  @param timeout_ns  longest wait
 *  @return PKV_OK; PKV_ERR_TIMEOUT; PKV_ERR_HANDLE
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_pool_flush(pkv_pool *pool, uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif
#endif
