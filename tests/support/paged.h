/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of any geometry beside a plain model of their bytes: addresses are computed here a second time, one row at a
 * time, and all bytes are compared, gaps and guards included. */
#ifndef PKV_TESTS_PAGED_H
#define PKV_TESTS_PAGED_H

#include "support/support.h"

enum { paged_max_layers = 4 };

typedef struct {
    int32_t dtype;
    uint32_t k_row, v_row; /* bytes; v_row 0: no V */
    uint32_t heads, page_tokens, layers;
    uint64_t pages;
    int32_t layout, arrangement, memory;
    uint64_t page_stride; /* PKV_MEMORY_POOL: 0 = dense */
    uint32_t copy_threads;
} paged_config;

typedef struct {
    paged_config config;
    pkv_pool *pool;
    unsigned char *bytes; /* from the start of what pages may lie in */
    unsigned char *expected;
    uint64_t size;
    uint64_t base[2][paged_max_layers]; /* K and V of page 0, in `bytes` */
    pkv_strides strides[2];
    unsigned char *own; /* PKV_MEMORY_CALLER */
} paged;

/* The caller's rows: `shape` says how they lie. */
enum { flat_dense, flat_gaps, flat_heads_first, flat_unaligned, flat_shapes };
typedef struct {
    pkv_tensor tensor;
    unsigned char *memory;
    uint64_t size, offset, token_stride, head_stride;
} flat;

/* A pool whose pages are all held by the caller, its bytes filled with a pattern; checks pkv_pool_layout on the way. */
paged *make_paged(const paged_config *config);
void end_paged(paged *p);
/* The same without the model, for pools too large to fill: only `config`, `pool`, `base` and `strides` are set. */
paged *make_sparse(const paged_config *config);
void end_sparse(paged *p);
/* Where a row lies, from p->bytes on; side 0 is K, 1 is V. */
uint64_t paged_at(const paged *p, int side, uint32_t layer, uint64_t page, uint64_t token, uint64_t head);
/* All bytes are as expected. */
void check_paged(const paged *p);

/* Rows for `num_tokens` tokens of one side, filled with random bytes. */
flat make_flat(const paged *p, int side, uint64_t num_tokens, int shape, test_random *random);
void end_flat(flat *rows);
unsigned char *flat_row(const flat *rows, uint64_t token, uint64_t head);

/* The call, and then the model; checks all bytes. */
void paged_write(paged *p, uint32_t layer, uint64_t num_slots, const pkv_slot *slots, const flat *k, const flat *v);
/* The call, compared with the model, with every byte around the rows; either side may be NULL. */
void paged_gather(paged *p, uint32_t layer, uint64_t num_pages, const pkv_page *pages, uint64_t first, uint64_t count,
                  flat *k, flat *v);
void paged_copy(paged *p, uint64_t num_pages, const pkv_page *src, const pkv_page *dst);

#endif
