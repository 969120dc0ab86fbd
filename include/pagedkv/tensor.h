/* SPDX-License-Identifier: Apache-2.0 */
/** @file tensor.h
 *  Element types, layouts, and the view through which rows of K and V enter and leave the pages.
 *
 *  A row is what one head holds for one token: head_dim elements next to each other (or row_bytes bytes of an opaque
 *  type). Everything above a row has a stride, so sources and destinations need not be contiguous. */
#ifndef PAGEDKV_TENSOR_H
#define PAGEDKV_TENSOR_H

#include <pagedkv/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. */
#define PKV_DTYPE_F32 1
#define PKV_DTYPE_F16 2
#define PKV_DTYPE_BF16 3
#define PKV_DTYPE_F8_E4M3 4 /**< OCP E4M3 (finite range ±448, NaN 0x7f/0xff, no infinity) */
#define PKV_DTYPE_F8_E5M2 5 /**< OCP E5M2 */
#define PKV_DTYPE_I8 6
#define PKV_DTYPE_OPAQUE 7 /**< rows of row_bytes bytes, for example of a block-quantised format */

/* Conversions. Rows of f32, f16 and bf16 become each other and fp8 or int8, and back; opaque rows convert to nothing.
 *  - to a narrower float: round to nearest, ties to even; to fp8 saturating at the largest finite value (+-448, +-57344),
 *    infinities too. NaN stays NaN with its sign (0x7f or 0xff in both fp8 types; payloads are not kept)
 *  - to f16: values past +-65504 become infinity, as by the hardware's conversion
 *  - to int8: nearest, ties to even, saturating at +-127; NaN becomes 0
 *  - with scales (pkv_group_options.scales): stored = convert(value / scale), value = stored * scale, in f32. For
 *    PKV_SCALES_TOKEN_HEAD the scale of a row is its largest finite magnitude / (448, 57344 or 127), never below FLT_MIN,
 *    and 1 for a row of zeros
 *  - a row that is written in the group's own type is taken as it is: no scale is applied, and PKV_SCALES_TOKEN_HEAD does
 *    not take such rows (PKV_ERR_UNSUPPORTED). Gathered in the group's own type, rows come as they are stored */

/* Order inside one layer of one page. */
#define PKV_LAYOUT_NHD 0 /**< [page_tokens, heads, head_dim] */
#define PKV_LAYOUT_HND 1 /**< [heads, page_tokens, head_dim] */

/* Order of the layers of a pool. */
#define PKV_PAGE_MAJOR 0  /**< [page, layer, K then V, ...]: a page is contiguous over its layers */
#define PKV_LAYER_MAJOR 1 /**< [layer, page, K then V, ...]: one tensor a layer */

/** Bytes of one element: 4, 2 or 1; 0 for PKV_DTYPE_OPAQUE and for numbers that are no type. Any thread. Since 0.1. */
PKV_API uint64_t pkv_dtype_bytes(int32_t dtype);

/** Distances in bytes. */
typedef struct pkv_strides {
    uint64_t page;
    uint64_t token;
    uint64_t head;
} pkv_strides;

/** A caller's rows for a range of tokens: element (t, h, d) is at data + t * token_stride + h * head_stride + d *
 *  sizeof(element). The number of heads and the row's length come from the layer group. */
typedef struct pkv_tensor {
    size_t struct_size;
    void *data;            /**< not written where the call only reads it */
    int32_t dtype;         /**< PKV_DTYPE_*; the group's, or one that converts to it */
    int32_t reserved;      /**< 0 */
    uint64_t num_tokens;   /**< rows available at data; a call that needs more gives PKV_ERR_INVALID */
    uint64_t token_stride; /**< 0 = heads * row bytes (contiguous [tokens, heads, head_dim]) */
    uint64_t head_stride;  /**< 0 = row bytes */
} pkv_tensor;
#define PKV_TENSOR_INIT {sizeof(pkv_tensor), NULL, 0, 0, 0, 0, 0}

/** Name of the host kernels that this process runs: "avx512", "avx2", "neon" or "portable"; a static string. The
 *  environment variable PKV_CPU_KERNELS, read once, forces one of them where the machine can run it.
 *  Any thread. Since 0.1. */
PKV_API const char *pkv_cpu_kernels(void);

#ifdef __cplusplus
}
#endif
#endif
