// SPDX-License-Identifier: Apache-2.0

#include "shim.h"

#include <stdlib.h>

static const pkv_tensor *tensor(pkvgo_rows rows, pkv_tensor *out) {
    if (!rows.given) return NULL;
    *out = (pkv_tensor)PKV_TENSOR_INIT;
    out->data = rows.data;
    out->dtype = rows.dtype;
    out->num_tokens = rows.num_tokens;
    out->token_stride = rows.token_stride;
    out->head_stride = rows.head_stride;
    return out;
}

pkv_status pkvgo_pool_write(pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t num_slots, const pkv_slot *slots, pkvgo_rows k,
                            pkvgo_rows v, const pkv_sync *sync) {
    pkv_tensor a, b;
    return pkv_pool_write(pool, group, layer, num_slots, slots, tensor(k, &a), tensor(v, &b), sync);
}

pkv_status pkvgo_pool_gather(pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t num_pages, const pkv_page *pages,
                             uint64_t first_token, uint64_t num_tokens, pkvgo_rows k, pkvgo_rows v, const pkv_sync *sync) {
    pkv_tensor a, b;
    return pkv_pool_gather(pool, group, layer, num_pages, pages, first_token, num_tokens, tensor(k, &a), tensor(v, &b), sync);
}

pkv_status pkvgo_table_write(pkv_table *table, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens, pkvgo_rows k,
                             pkvgo_rows v, const pkv_sync *sync) {
    pkv_tensor a, b;
    return pkv_table_write(table, group, layer, position, num_tokens, tensor(k, &a), tensor(v, &b), sync);
}

pkv_status pkvgo_table_gather(pkv_table *table, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens, pkvgo_rows k,
                              pkvgo_rows v, const pkv_sync *sync) {
    pkv_tensor a, b;
    return pkv_table_gather(table, group, layer, position, num_tokens, tensor(k, &a), tensor(v, &b), sync);
}

pkv_status pkvgo_batch_write(pkv_batch *batch, uint32_t group, uint32_t layer, pkvgo_rows k, pkvgo_rows v, const pkv_sync *sync) {
    pkv_tensor a, b;
    return pkv_batch_write(batch, group, layer, tensor(k, &a), tensor(v, &b), sync);
}

pkv_status pkvgo_batch_gather(pkv_batch *batch, uint32_t group, uint32_t layer, const uint64_t *first, uint64_t padded, pkvgo_rows k,
                              pkvgo_rows v, const pkv_sync *sync) {
    pkv_tensor a, b;
    return pkv_batch_gather(batch, group, layer, first, padded, tensor(k, &a), tensor(v, &b), sync);
}

pkv_status pkvgo_digest(const void *bytes, const uint64_t *sizes, uint64_t num_parts, uint8_t *digest) {
    const unsigned char *at = bytes;
    pkv_bytes *const parts = malloc((size_t)(num_parts + 1) * sizeof *parts);
    if (parts == NULL) return PKV_ERR_NO_MEMORY;
    for (uint64_t i = 0; i < num_parts; at += sizes[i++]) parts[i] = (pkv_bytes){at, sizes[i]};
    const pkv_status status = pkv_digest(parts, num_parts, digest);
    free(parts);
    return status;
}
