/* SPDX-License-Identifier: Apache-2.0 */
/** @file types.h
 *  Conventions of the whole API, and what every other header needs: version, statuses, handles, ids, `pkv_sync`.
 *
 *  Conventions
 *  1. A call that can fail returns a `pkv_status`: PKV_OK (0) or a negative PKV_ERR_*. The detail, with the values at
 *     fault, is in pkv_last_error(), per thread. A call that fails changes nothing unless its own text says otherwise.
 *  2. A handle (`pkv_pool *`, `pkv_table *` ...) is a value, not an address: never dereference one. NULL, closed (also
 *     twice), foreign and stale handles give PKV_ERR_HANDLE. A handle that crossed a fork() gives PKV_ERR_FORKED in the
 *     child. Destroying an object while another thread is inside a call on it takes effect when that call leaves.
 *  3. Objects may be destroyed in any order: a child keeps what it needs of its parent alive. After its pool was
 *     destroyed a table answers PKV_ERR_CLOSED to everything but its own destruction.
 *  4. Structs that the library may extend begin with `size_t struct_size`; initialise them with their PKV_*_INIT. The
 *     library reads and writes at most struct_size bytes; non-zero bytes that it does not know are refused with
 *     PKV_ERR_UNSUPPORTED, a struct_size above 4096 with PKV_ERR_INVALID. In such a struct 0 means the default,
 *     unless the field says otherwise. In an array of such structs the first one's
 *     struct_size is the distance between elements.
 *  5. Sizes and strides are bytes (uint64_t), times nanoseconds (uint64_t), token positions and counts uint64_t. Counts
 *     of 0 are no error: the call succeeds and does nothing.
 *  6. Nothing that a caller passes is kept after the call returns, unless the text says so.
 *  7. No exception, signal, abort or output to stdout/stderr leaves the library.
 *  8. Thread-safety stands in each header: pools may be used from any thread; a table, a batch or a prefetch session from
 *     one thread at a time, different ones at the same time. */
#ifndef PAGEDKV_TYPES_H
#define PAGEDKV_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PKV_API __attribute__((visibility("default")))
#else
#define PKV_API
#endif

/** Version of these headers; semantic versioning. While the major number is 0 a minor release may break the ABI. */
#define PKV_VERSION_MAJOR 0
#define PKV_VERSION_MINOR 1
#define PKV_VERSION_PATCH 0
#define PKV_VERSION_NUMBER (PKV_VERSION_MAJOR * 10000 + PKV_VERSION_MINOR * 100 + PKV_VERSION_PATCH)
#define PKV_VERSION_STRING "0.1.0"

/** Version of the library that runs, as PKV_VERSION_NUMBER. Any thread. Since 0.1. */
PKV_API int32_t pkv_version_number(void);

/** Version of the library that runs, for example "0.1.0"; a static string. Any thread. Since 0.1. */
PKV_API const char *pkv_version_string(void);

/* ---- statuses --------------------------------------------------------------------------------------------------- */

/** What a call came to. Names and numbers never change once released. */
typedef int32_t pkv_status;
#define PKV_OK 0                   /**< done */
#define PKV_ERR_INVALID (-1)       /**< an argument is out of range or contradicts another */
#define PKV_ERR_HANDLE (-2)        /**< NULL, closed, foreign or stale handle */
#define PKV_ERR_CLOSED (-3)        /**< the object's parent was destroyed */
#define PKV_ERR_FORKED (-4)        /**< the handle was made before fork() in the parent process */
#define PKV_ERR_NO_MEMORY (-5)     /**< the operating system or the allocator gave no memory */
#define PKV_ERR_NO_PAGES (-6)      /**< the pool has too few pages that are free or may be evicted */
#define PKV_ERR_NO_SPACE (-7)      /**< a caller's buffer or a tier is too small */
#define PKV_ERR_NOT_FOUND (-8)     /**< what was named does not exist */
#define PKV_ERR_NOT_RESIDENT (-9)  /**< a block has no page in the pool */
#define PKV_ERR_LOST (-10)         /**< blocks of a sequence could not be loaded and are gone */
#define PKV_ERR_STATE (-11)        /**< the object or page is not in a state that allows this */
#define PKV_ERR_BUSY (-12)         /**< in use by an operation */
#define PKV_ERR_AGAIN (-13)        /**< not now; a later try may succeed */
#define PKV_ERR_TIMEOUT (-14)      /**< a deadline passed */
#define PKV_ERR_CANCELLED (-15)    /**< cancelled by the caller */
#define PKV_ERR_UNSUPPORTED (-16)  /**< not supported by this build, machine or object */
#define PKV_ERR_MISMATCH (-17)     /**< geometry, identity or seed differs */
#define PKV_ERR_IO (-18)           /**< input or output failed */
#define PKV_ERR_LIMIT (-19)        /**< larger than a documented limit */
#define PKV_ERR_CAPTURE (-20)      /**< not possible while a stream is being captured */
#define PKV_ERR_INTERNAL (-21)     /**< a fault of the library itself: please report it */

/** The name of a status, for example "PKV_ERR_NO_PAGES"; "PKV_ERR_UNKNOWN" for a number that is none. A static string.
 *  Any thread. Since 0.1. */
PKV_API const char *pkv_status_string(pkv_status status);

/** The message of the last call that failed on this thread; successful calls leave it alone.
 *  @param buffer    out, the message, cut to fit and always terminated; may be NULL when capacity is 0
 *  @param capacity  bytes at buffer
 *  @return bytes that the whole message needs, the terminator included: more than capacity means it was cut
 *  Any thread. Since 0.1. */
PKV_API size_t pkv_last_error(char *buffer, size_t capacity);

/* ---- log -------------------------------------------------------------------------------------------------------- */

#define PKV_LOG_ERROR 1   /**< something failed that no call reports */
#define PKV_LOG_WARNING 2 /**< the library goes on, but degraded (for example without huge pages) */
#define PKV_LOG_INFO 3    /**< what was chosen at creation */

/** Receives one message; `message` is valid during the call only. Called on the thread that is inside the library, with
 *  no lock held; it must not call back into the library. */
typedef void (*pkv_log_function)(void *user, int32_t level, const char *message);

/** Sets the process-wide receiver of messages of `max_level` and below; NULL (as at start) turns messages off.
 *  A message already on its way may still reach the former receiver while this returns. Any thread. Since 0.1. */
PKV_API void pkv_set_log(pkv_log_function function, void *user, int32_t max_level);

/* ---- handles and ids -------------------------------------------------------------------------------------------- */

typedef struct pkv_pool pkv_pool;   /**< pages, prefix index, eviction: pool.h */
typedef struct pkv_table pkv_table; /**< one sequence: table.h */
typedef struct pkv_batch pkv_batch; /**< the sequences of one decode step: batch.h */
typedef struct pkv_tier pkv_tier;   /**< a place below pools that keeps page images: tier.h */
typedef struct pkv_prefetch pkv_prefetch; /**< one prefetch session: prefetch.h */
typedef struct pkv_node pkv_node;   /**< what this process shares with others: node.h */
typedef struct pkv_offer pkv_offer; /**< a sequence that others may pull: node.h */
typedef struct pkv_op pkv_op;       /**< one asynchronous operation: tier.h */
typedef struct pkv_queue pkv_queue; /**< where operations end: tier.h */

typedef int32_t pkv_page;  /**< page id in a layer group: 0 .. num_pages-1 */
typedef int32_t pkv_token; /**< token id; any value */
typedef int64_t pkv_slot;  /**< page * page_tokens + offset in the page; below 0: skip */

#define PKV_NO_PAGE ((pkv_page)-1) /**< a block without a page */
#define PKV_NO_SLOT ((pkv_slot)-1) /**< padding in a slot mapping */

/** A piece of memory of the caller's. */
typedef struct pkv_bytes {
    const void *data;
    uint64_t size;
} pkv_bytes;

/* ---- order against work elsewhere ------------------------------------------------------------------------------- */

#define PKV_SYNC_NONE 0         /**< now: the bytes are ready, the calling thread does the work */
#define PKV_SYNC_CUDA_STREAM 1  /**< in order on a CUDA stream (`handle`); pools on a CUDA device */
#define PKV_SYNC_CUDA_EVENT 2   /**< after a CUDA event (`handle`); pools on a CUDA device */
#define PKV_SYNC_HOST_COUNTER 3 /**< after the uint64_t at `handle` has reached `value` */

/** When a call may touch page bytes, or free pages that work under way may still use. A NULL pointer means
 *  PKV_SYNC_NONE. With PKV_SYNC_HOST_COUNTER on a host pool the call itself waits (it reads the counter with acquire
 *  order) and gives PKV_ERR_TIMEOUT, with nothing changed, once timeout_ns has passed. */
typedef struct pkv_sync {
    size_t struct_size;
    int32_t kind;        /**< PKV_SYNC_* */
    int32_t reserved;    /**< 0 */
    void *handle;        /**< stream, event, or address of an 8-byte aligned uint64_t */
    uint64_t value;      /**< PKV_SYNC_HOST_COUNTER: the value to wait for */
    uint64_t timeout_ns; /**< PKV_SYNC_HOST_COUNTER: longest wait; 0 = one second */
} pkv_sync;
#define PKV_SYNC_INIT {sizeof(pkv_sync), PKV_SYNC_NONE, 0, NULL, 0, 0}

/* ---- digests ---------------------------------------------------------------------------------------------------- */

#define PKV_DIGEST_BYTES 32

/** BLAKE2b-256 (RFC 7693) of the number of parts and then of each part, preceded by its size (as uint64_t), so that ("ab", "c") and ("a", "bc") differ.
 *  Meant for what goes into a key besides tokens: for an image pass its decoded bytes and its shape, type and mode as
 *  parts of their own.
 *  @param parts      `num_parts` pieces; data may be NULL where size is 0
 *  @param num_parts  number of parts
 *  @param digest     out, PKV_DIGEST_BYTES bytes
 *  @return PKV_OK; PKV_ERR_INVALID on a NULL pointer
 *  Any thread. Since 0.1. */
PKV_API pkv_status pkv_digest(const pkv_bytes *parts, uint64_t num_parts, uint8_t *digest);

#ifdef __cplusplus
}
#endif
#endif
