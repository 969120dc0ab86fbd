/* SPDX-License-Identifier: Apache-2.0 */
/** @file tier_ops.h
 *  What a tier is made of, for those who bring their own: a table of functions and a context. The built-in tiers (tier.h)
 *  use the same table.
 *
 *  A tier keeps page images by key. To it an image is a piece of memory of a known size, a multiple of
 *  PKV_IMAGE_ALIGNMENT, and a key is 32 bytes that compare equal or not. It may forget what is not pinned at any time. What
 *  it gives back is checked by the library (header, key and checksums of the image) before a byte of it is used: a tier
 *  that returns other bytes causes a miss, the removal of that image and a counter, never a wrong result.
 *
 *  Requests come in batches through `submit`, which must not wait for them; each item of a batch ends with one call of
 *  pkv_tier_complete(), from any thread, also from inside `submit`. */
#ifndef PAGEDKV_TIER_OPS_H
#define PAGEDKV_TIER_OPS_H

#include <pagedkv/pool.h>
#include <pagedkv/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PKV_IMAGE_ALIGNMENT 4096 /**< of image sizes, and of the memory and ranges of loads and stores */

/** Names a page image: BLAKE2b-256 of the whole prefix up to the end of its block (namespace, media, tokens) and of the
 *  layer group's shape (its number in the pool, geometry, and place of its shard in the model); random for a block without a prefix key. */
typedef struct pkv_tier_key {
    uint8_t bytes[32];
} pkv_tier_key;

/* pkv_tier_batch.kind; what an item's `status` and `value` say at completion */
#define PKV_TIER_LOOKUP 1 /**< PKV_OK and the image's size, or PKV_ERR_NOT_FOUND. With PKV_TIER_PIN an image that is found
                               stays until it is unpinned. Counts as a use of the image */
#define PKV_TIER_STORE 2  /**< PKV_OK once the image can be found; PKV_ERR_NO_SPACE; PKV_ERR_IO ... An image that is there
                               already is kept, and counts as stored. With PKV_TIER_PIN it is pinned, too */
#define PKV_TIER_LOAD 3   /**< PKV_OK once sizes[i] bytes from offsets[i] on stand at data[i]; PKV_ERR_NOT_FOUND;
                               PKV_ERR_IO ... Less than all of it is a failure */
#define PKV_TIER_REMOVE 4 /**< PKV_OK, also when it is not there. Not while it is pinned: PKV_ERR_BUSY; with
                               PKV_TIER_FORCE also then (the image is known to be bad) */
#define PKV_TIER_UNPIN 5  /**< takes one pin back: PKV_OK; PKV_ERR_NOT_FOUND */
#define PKV_TIER_RETAIN 6 /**< sets the retention of an image: PKV_OK; PKV_ERR_NOT_FOUND */
#define PKV_TIER_PROBE 7  /**< as PKV_TIER_LOOKUP, but is no use of the image and pins nothing */
#define PKV_TIER_CLEAR 8  /**< forgets all images with one of the tags (num_items tags, no keys), pinned ones too; the tag
                               PKV_TIER_TAG_ALL stands for every image that is not private: PKV_OK */

/* pkv_tier_batch.tags */
#define PKV_TIER_TAG_PRIVATE 0      /**< image of a block of one live sequence: no process finds it later, so that a restart
                                         need not keep it */
#define PKV_TIER_TAG_ALL UINT64_MAX /**< CLEAR: all but private images */

/* pkv_tier_batch.flags */
#define PKV_TIER_PIN 1u   /**< LOOKUP, STORE: pin the image */
#define PKV_TIER_FORCE 2u /**< REMOVE: also what is pinned */

/** One batch, as it lies with the library until its last item has ended: arrays of num_items. Byte ranges, `data` and
 *  sizes are aligned to PKV_IMAGE_ALIGNMENT. Lists that a kind does not need are NULL. */
typedef struct pkv_tier_request pkv_tier_request;
typedef struct pkv_tier_batch {
    size_t struct_size;
    int32_t kind;                   /**< PKV_TIER_* */
    uint32_t flags;                 /**< PKV_TIER_PIN, PKV_TIER_FORCE */
    uint64_t num_items;
    const pkv_tier_key *keys;       /**< every kind */
    void *const *data;              /**< STORE: the image, to be read; LOAD: where its bytes go */
    const uint64_t *offsets;        /**< LOAD: where the wanted range of the image begins */
    const uint64_t *sizes;          /**< STORE: the image's bytes; LOAD: the range's */
    const pkv_retention *retention; /**< STORE, RETAIN: of each image */
    const uint64_t *tags;           /**< STORE: the namespace of each image; CLEAR: the namespaces to forget */
    uint64_t deadline_ns;           /**< on the clock of CLOCK_MONOTONIC: items not begun by then may end with
                                         PKV_ERR_TIMEOUT; 0 = none. A hint: the library watches the time itself */
    int32_t urgent;                 /**< 1: somebody waits for it; 0: work ahead of time */
    pkv_tier_request *request;      /**< for pkv_tier_complete() */
} pkv_tier_batch;

/** What a tier says of itself. All counters only grow. */
typedef struct pkv_tier_usage {
    size_t struct_size;
    uint64_t capacity_bytes; /**< room for images */
    uint64_t used_bytes;     /**< of it in use */
    uint64_t images;         /**< images that can be found */
    uint64_t pinned_images;
    uint64_t evicted_images; /**< forgotten to make room */
    uint64_t recovered_images; /**< found by a restart */
    uint64_t io_errors;      /**< reads and writes that failed or came short */
    int32_t engine;          /**< PKV_IO_* of a file tier, else 0 */
    int32_t registered_buffers; /**< 1 if the engine reads and writes through registered buffers */
} pkv_tier_usage;
#define PKV_TIER_USAGE_INIT {sizeof(pkv_tier_usage), 0, 0, 0, 0, 0, 0, 0, 0, 0}

/** An image that is about to be evicted. */
typedef struct pkv_tier_victim {
    pkv_tier_key key;
    uint64_t bytes;
    uint64_t tag;
    pkv_retention retention;
} pkv_tier_victim;

typedef struct pkv_tier_ops {
    size_t struct_size;
    const char *name; /**< a static string, for messages and statistics */

    /** Takes a batch. PKV_OK: every item is completed, once each, now or later. Another status: none was taken, and none
     *  is completed. From any thread, also from several at once. */
    pkv_status (*submit)(void *context, const pkv_tier_batch *batch);

    /** NULL, or: what was submitted is not wanted any more. Its items are still completed, sooner if possible (with
     *  PKV_ERR_CANCELLED, or with what became of them). */
    void (*cancel)(void *context, pkv_tier_request *request);

    /** NULL, or: the image as it lies in memory; NULL if it is not there. Saves a copy. The memory stays readable as long as the
     *  tier lives; what stands there is the image as long as it is pinned and not cleared or removed by force (the library
     *  asks again after reading). */
    const void *(*address)(void *context, const pkv_tier_key *key);

    /** NULL, or: up to `capacity` images that would be evicted next, unpinned ones, the first to go first. Returns how many.
     *  Tiers that have it, and `address`, can be drained into the tier below (PKV_TIER_DEMOTE). */
    uint64_t (*victims)(void *context, pkv_tier_victim *victims, uint64_t capacity);

    /** NULL, or: memory in which buffers of later batches lie, before the first of them (`add` 1), and after the last one
     *  (0). A tier may register it with a device; buffers elsewhere must work, too. */
    void (*memory)(void *context, void *base, uint64_t bytes, int32_t add);

    /** NULL, or: fills in what is known. */
    void (*usage)(void *context, pkv_tier_usage *usage);

    /** NULL, or: the tier is not used any more and no request is open. Called once. */
    void (*close)(void *context);
} pkv_tier_ops;

/** Ends one item of a batch. The first call for an item counts; later ones change nothing (statistics count them).
 *  @param request  the batch's; after its last item was completed it must not be used again
 *  @param item     0 .. num_items - 1
 *  @param status   PKV_OK or PKV_ERR_*
 *  @param value    LOOKUP, PROBE: the image's bytes; LOAD: bytes that stand at data[item]; else 0
 *  @return PKV_OK; PKV_ERR_HANDLE for a request that has ended; PKV_ERR_STATE for an item that has;
 *          PKV_ERR_INVALID for an item out of range
 *  Thread-safe. Since 0.1. */
PKV_API pkv_status pkv_tier_complete(pkv_tier_request *request, uint64_t item, pkv_status status, uint64_t value);

#ifdef __cplusplus
}
#endif
#endif
