/* SPDX-License-Identifier: Apache-2.0 */
/* What a device back end has to be able to do: the C table that a plug-in (libpagedkv-cuda.so) gives to the core, and that the
 * tests' device of host memory gives as well. The core knows devices through it alone.
 *
 * Plug-ins are loaded with dlopen from the folder pagedkv/ beside the library, or from PKV_PLUGIN_DIR; the entry is
 * PKV_DEVICE_ENTRY. The table is size-prefixed: the core takes what it knows of it, and refuses another PKV_DEVICE_VERSION.
 *
 * Rules for every function:
 * - it returns PKV_OK or a PKV_ERR_*, with the reason in why [why_bytes], terminated; why may be NULL with 0;
 * - nothing waits for the device unless it says so; work goes to the stream that is named and comes in its order;
 * - an error that an earlier call of somebody else's left in the runtime is neither reported nor taken away;
 * - the calling thread's current device is as before when it returns;
 * - from any thread; two calls at once on one stream come in either order;
 * - "device addresses" are those that kernels of the context can read: device memory, managed memory, mapped pinned memory;
 * - host arrays of arguments have been read when it returns.
 * A stream is the runtime's own handle (cudaStream_t), NULL the legacy default stream. */
#pragma once

#include <pagedkv/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PKV_DEVICE_VERSION 1
#define PKV_DEVICE_ENTRY "pkv_device_plugin"

/* Host arrays of a call (slots; pages, indptr, first, counts, out_first, and 8 bytes for each sequence and one more; src, dst,
 * tokens; 24 bytes for each slice), each rounded up to 16 bytes, that come to no more than this travel with the launch. Larger
 * ones are copied to the device first, in the stream's order, from memory of the context's own: while the stream is being
 * captured that gives PKV_ERR_CAPTURE, as a graph would read them again when it is replayed, and PKV_ERR_AGAIN while the device
 * has very many (256 MiB) still to read: then nothing was launched. A call that needs more of that memory than earlier ones may
 * wait for the device to allocate it. */
#define PKV_DEVICE_INLINE_BYTES 2048

typedef struct pkv_device_context pkv_device_context; /* one device that is in use */
typedef struct pkv_device_event pkv_device_event;     /* a point in a stream */

/* K or V of one layer, paged: the row of (page, token, head) is at base + page * page_stride + token * token_stride +
 * head * head_stride, all 64 bits wide. row_bytes 0: absent. */
typedef struct pkv_device_paged {
    void *base;
    uint64_t page_stride, token_stride, head_stride;
    uint64_t row_bytes;
    /* Device address; by `scales` of the layer: one, [heads], or [page, token, head], scale_page_stride bytes apart. */
    float *scales;
} pkv_device_paged;

typedef struct pkv_device_layer {
    pkv_device_paged k, v;
    uint32_t page_tokens, heads;
    int32_t dtype;  /* PKV_DTYPE_* in the pages */
    int32_t scales; /* PKV_SCALES_* */
    uint64_t scale_page_stride;
    /* Slots and pages at or past the end are skipped by kernels: device arrays cannot be checked before. */
    uint64_t num_pages;
} pkv_device_layer;

/* The caller's rows of K or V, device addresses; base NULL: that side is left out. */
typedef struct pkv_device_flat {
    void *base;
    uint64_t token_stride, head_stride;
} pkv_device_flat;

/* One launch for layers of one shape (a few where they are very many): row i of k[l] and v[l] goes to slot slots[i] of layers[l],
 * for all l. Slots below 0 are skipped. Of equal slots in a host array the last row wins; in a device array
 * none must be equal: their rows may mix. Conversion by dtypes as public tensor.h states; rows of the stored type are moved as
 * they are. */
typedef struct pkv_device_write {
    size_t struct_size;
    uint32_t num_layers;
    int32_t flat_dtype;             /* PKV_DTYPE_* of the rows */
    const pkv_device_layer *layers; /* host arrays [num_layers] */
    const pkv_device_flat *k, *v;
    const void *slots; /* int64_t or int32_t [num_slots] */
    uint64_t num_slots;
    uint32_t slot_bytes;    /* 8 or 4 */
    uint32_t slots_on_host; /* 1: an ordinary host array, read before the call returns; 0: a device address */
    uint32_t max_blocks;    /* bound on thread blocks, so that it leaves SMs to others; 0 = none */
    uint32_t reserved;
} pkv_device_write;

/* One launch: for each sequence s, its tokens first[s] .. first[s] + counts[s] become rows out_first[s] .. of k[l] and v[l].
 * Token t of s is in page pages[pages_first(s) + t / page_tokens], where pages_first(s) is indptr[s] with CSR, or
 * s * pages_stride. Pages below 0, or past the end: rows of zeros. */
typedef struct pkv_device_gather {
    size_t struct_size;
    uint32_t num_layers;
    int32_t flat_dtype;
    const pkv_device_layer *layers; /* host arrays [num_layers] */
    const pkv_device_flat *k, *v;
    const int32_t *pages;
    const int32_t *indptr;                      /* [num_sequences + 1], or NULL: pages_stride */
    uint64_t pages_stride, num_pages;           /* entries at `pages` in all */
    const uint64_t *first, *counts, *out_first; /* [num_sequences] */
    uint64_t num_sequences;
    uint64_t max_count; /* upper bound of counts, for the grid */
    uint64_t padded;    /* rows counts[s] .. padded of each sequence become zero; 0 = none */
    /* 1: pages, indptr, first, counts, out_first are host arrays, read before the call returns; 0: device addresses. */
    uint32_t arrays_on_host;
    uint32_t max_blocks;
    /* Without arrays of its own, so that a captured gather needs none besides the pages: `first` NULL is first_token for every
     * sequence, `counts` NULL max_count, `out_first` NULL s * (padded, or max_count when that is 0). */
    uint64_t first_token;
} pkv_device_gather;

/* A layer's slice of a page image: `tokens` tokens' K rows of all heads, then V rows, dense, in the order `layout` (of the whole
 * page: rows past `tokens` are zero when packed, left alone when unpacked). The scales of PKV_SCALES_TOKEN_HEAD go apart: k then
 * v, [page_tokens, heads] each, or NULL. */
typedef struct pkv_device_slice {
    uint32_t layer; /* index in layers */
    int32_t page;
    int32_t layout; /* PKV_LAYOUT_* of the slice */
    uint32_t tokens;
    void *bytes;   /* device address */
    float *scales; /* device address or NULL */
} pkv_device_slice;

typedef struct pkv_device_copy {
    void *dst;
    const void *src;
    uint64_t bytes;
} pkv_device_copy;

#define PKV_DEVICE_TO_HOST 0
#define PKV_HOST_TO_DEVICE 1
#define PKV_DEVICE_TO_DEVICE 2

/* Kinds of addresses. */
#define PKV_ADDRESS_HOST 0   /* ordinary host memory: kernels cannot read it */
#define PKV_ADDRESS_PINNED 1 /* host memory that kernels can read */
#define PKV_ADDRESS_DEVICE 2 /* of the context's device */
#define PKV_ADDRESS_MANAGED 3
#define PKV_ADDRESS_OTHER 4 /* of another device */

typedef struct pkv_device_facts {
    size_t struct_size;
    char name[128];
    uint64_t memory_bytes;
    uint32_t multiprocessors;
    uint32_t compute;        /* 10 * major + minor */
    uint32_t waits_on_words; /* 1: wait_word() works */
    uint32_t batched_copies; /* 1: copies are handed over many at once */
    int32_t driver, runtime; /* versions as the runtime gives them */
} pkv_device_facts;

typedef struct pkv_device_table {
    size_t struct_size;
    uint32_t version; /* PKV_DEVICE_VERSION */
    uint32_t reserved;
    const char *kind; /* "cuda" */

    /* Whether device `index` can be used: PKV_OK; PKV_ERR_UNSUPPORTED with the reason (no driver, no device, too old ...). Does
     * not make a context on it. count() gives the number of devices, 0 without a driver. */
    pkv_status (*available)(int32_t index, char *why, size_t why_bytes);
    int32_t (*count)(void);

    pkv_status (*open)(int32_t index, pkv_device_context **context, char *why, size_t why_bytes);
    void (*close)(pkv_device_context *context); /* waits for the context's own streams */
    pkv_status (*facts)(pkv_device_context *context, pkv_device_facts *facts, char *why, size_t why_bytes);

    /* ---- memory; these may wait for the device ---- */
    pkv_status (*alloc)(pkv_device_context *context, uint64_t bytes, void **address, char *why,
                        size_t why_bytes); /* aligned to 256 */
    void (*free)(pkv_device_context *context, void *address);
    /* Host memory that kernels read at the same address. */
    pkv_status (*alloc_pinned)(pkv_device_context *context, uint64_t bytes, void **address, char *why,
                               size_t why_bytes);
    void (*free_pinned)(pkv_device_context *context, void *address);
    /* Pins memory that exists (a tier's arena), page-aligned, until unpin. */
    pkv_status (*pin)(pkv_device_context *context, void *address, uint64_t bytes, char *why, size_t why_bytes);
    void (*unpin)(pkv_device_context *context, void *address);
    pkv_status (*address_kind)(pkv_device_context *context, const void *address, int32_t *kind, char *why,
                               size_t why_bytes);

    /* ---- streams and events ---- */
    /* Urgent ones have the greatest priority, and queues of the device apart from those of the program's streams: the
     * library's are, since streams of the program's wait for them. */
    pkv_status (*make_stream)(pkv_device_context *context, int32_t urgent, void **stream, char *why, size_t why_bytes);
    void (*end_stream)(pkv_device_context *context, void *stream);
    pkv_status (*capturing)(pkv_device_context *context, void *stream, int32_t *capturing, char *why, size_t why_bytes);
    pkv_status (*wait_stream)(pkv_device_context *context, void *stream, char *why,
                              size_t why_bytes); /* the thread waits */
    pkv_status (*make_event)(pkv_device_context *context, int32_t timed, pkv_device_event **event, char *why,
                             size_t why_bytes);
    void (*end_event)(pkv_device_context *context, pkv_device_event *event);
    pkv_status (*record)(pkv_device_context *context, pkv_device_event *event, void *stream, char *why,
                         size_t why_bytes);
    /* PKV_OK: it has passed; PKV_ERR_AGAIN: not yet. An event that was never recorded has passed. */
    pkv_status (*query)(pkv_device_context *context, pkv_device_event *event, char *why, size_t why_bytes);
    pkv_status (*wait_event)(pkv_device_context *context, pkv_device_event *event, char *why,
                             size_t why_bytes); /* the thread waits, asleep */
    /* Work that is put into `stream` later waits for the event. */
    pkv_status (*order_after)(pkv_device_context *context, void *stream, pkv_device_event *event, char *why,
                              size_t why_bytes);
    /* The same for an event of the caller's (cudaEvent_t). */
    pkv_status (*order_after_caller)(pkv_device_context *context, void *stream, void *event, char *why,
                                     size_t why_bytes);
    pkv_status (*query_caller)(pkv_device_context *context, void *event, char *why, size_t why_bytes);
    pkv_status (*elapsed_ns)(pkv_device_context *context, pkv_device_event *from, pkv_device_event *to, uint64_t *ns,
                             char *why, size_t why_bytes);
    /* Work that is put into `stream` later waits until the 64-bit word, in pinned memory, is at least `value`. */
    pkv_status (*wait_word)(pkv_device_context *context, void *stream, const uint64_t *word, uint64_t value, char *why,
                            size_t why_bytes);
    /* Sets the word when the work before it is done. */
    pkv_status (*write_word)(pkv_device_context *context, void *stream, uint64_t *word, uint64_t value, char *why,
                             size_t why_bytes);

    /* ---- bytes ---- */
    pkv_status (*copy)(
        pkv_device_context *context, void *stream, int32_t direction, const pkv_device_copy *copies,
        uint64_t num_copies, char *why,
        size_t why_bytes); /* in any order among themselves; host sides are pinned, else the call waits */
    pkv_status (*fill)(pkv_device_context *context, void *stream, void *address, uint8_t value, uint64_t bytes,
                       char *why, size_t why_bytes);

    /* ---- kernels ---- */
    pkv_status (*write)(pkv_device_context *context, void *stream, const pkv_device_write *write, char *why,
                        size_t why_bytes);
    pkv_status (*gather)(pkv_device_context *context, void *stream, const pkv_device_gather *gather, char *why,
                         size_t why_bytes);
    /* The first tokens[i] tokens of page src[i] to page dst[i], all layers, scales of token and head as well; host arrays. No page is
     * both. */
    pkv_status (*copy_pages)(pkv_device_context *context, void *stream, const pkv_device_layer *layers,
                             uint32_t num_layers, uint64_t num_pages, const int32_t *src, const int32_t *dst,
                             const uint32_t *tokens, uint32_t max_blocks, char *why, size_t why_bytes);
    /* The same between pools: layouts, strides and arrangements may differ, element types, heads and page_tokens not. */
    pkv_status (*copy_between)(pkv_device_context *context, void *stream, const pkv_device_layer *from,
                               const pkv_device_layer *to, uint32_t num_layers, uint64_t num_pages, const int32_t *src,
                               const int32_t *dst, const uint32_t *tokens, uint32_t max_blocks, char *why,
                               size_t why_bytes);
    pkv_status (*pack)(pkv_device_context *context, void *stream, const pkv_device_layer *layers, uint32_t num_layers,
                       const pkv_device_slice *slices, uint64_t num_slices, uint32_t max_blocks, char *why,
                       size_t why_bytes);
    pkv_status (*unpack)(pkv_device_context *context, void *stream, const pkv_device_layer *layers, uint32_t num_layers,
                         const pkv_device_slice *slices, uint64_t num_slices, uint32_t max_blocks, char *why,
                         size_t why_bytes);

    /* ---- later additions: NULL, or past struct_size, where a plug-in lacks them ---- */
    /* What tells a stream from every other one of the process, also from one that had its handle before (cudaStreamGetId); 0:
     * not known. Also of a capturing stream. */
    uint64_t (*stream_id)(pkv_device_context *context, void *stream);
} pkv_device_table;

/* The plug-in's entry. The table is static. */
typedef const pkv_device_table *(*pkv_device_entry)(void);

#ifdef __cplusplus
}
#endif
