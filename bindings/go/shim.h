// SPDX-License-Identifier: Apache-2.0

// Calls whose structs would hold Go pointers: they come by value here, so that cgo sees, and checks, what is passed.
#ifndef PKVGO_SHIM_H
#define PKVGO_SHIM_H

#include <pagedkv/pagedkv.h>
#include <stdint.h>

typedef struct {
    void *data;
    uint64_t num_tokens;
    uint64_t token_stride;
    uint64_t head_stride;
    int32_t dtype;
    int32_t given; // 0: NULL
} pkvgo_rows;

pkv_status pkvgo_pool_write(pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t num_slots, const pkv_slot *slots, pkvgo_rows k,
                            pkvgo_rows v, const pkv_sync *sync);
pkv_status pkvgo_pool_gather(pkv_pool *pool, uint32_t group, uint32_t layer, uint64_t num_pages, const pkv_page *pages,
                             uint64_t first_token, uint64_t num_tokens, pkvgo_rows k, pkvgo_rows v, const pkv_sync *sync);
pkv_status pkvgo_table_write(pkv_table *table, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens, pkvgo_rows k,
                             pkvgo_rows v, const pkv_sync *sync);
pkv_status pkvgo_table_gather(pkv_table *table, uint32_t group, uint32_t layer, uint64_t position, uint64_t num_tokens, pkvgo_rows k,
                              pkvgo_rows v, const pkv_sync *sync);
pkv_status pkvgo_batch_write(pkv_batch *batch, uint32_t group, uint32_t layer, pkvgo_rows k, pkvgo_rows v, const pkv_sync *sync);
pkv_status pkvgo_batch_gather(pkv_batch *batch, uint32_t group, uint32_t layer, const uint64_t *first, uint64_t padded, pkvgo_rows k,
                              pkvgo_rows v, const pkv_sync *sync);

// One piece after another: their sizes, and all bytes together.
pkv_status pkvgo_digest(const void *bytes, const uint64_t *sizes, uint64_t num_parts, uint8_t *digest);

// A PKV_*_INIT of each struct: macros with braces are nothing that cgo knows.
#define PKVGO_INITS(each)                                                                                              \
    each(sync, PKV_SYNC_INIT) each(group_options, PKV_GROUP_OPTIONS_INIT) each(tier_attachment, PKV_TIER_ATTACHMENT_INIT) \
    each(pool_options, PKV_POOL_OPTIONS_INIT) each(layer_layout, PKV_LAYER_LAYOUT_INIT) each(page_info, PKV_PAGE_INFO_INIT) \
    each(namespace, PKV_NAMESPACE_INIT) each(prompt, PKV_PROMPT_INIT) each(match, PKV_MATCH_INIT)                        \
    each(retention, PKV_RETENTION_INIT) each(clear_result, PKV_CLEAR_RESULT_INIT) each(admit_options, PKV_ADMIT_OPTIONS_INIT) \
    each(spill_result, PKV_SPILL_RESULT_INIT) each(table_info, PKV_TABLE_INFO_INIT) each(batch_arrays, PKV_BATCH_ARRAYS_INIT) \
    each(batch_options, PKV_BATCH_OPTIONS_INIT) each(pool_stats, PKV_POOL_STATS_INIT)                                    \
    each(prometheus_sources, PKV_PROMETHEUS_SOURCES_INIT) each(host_tier_options, PKV_HOST_TIER_OPTIONS_INIT)            \
    each(file_tier_options, PKV_FILE_TIER_OPTIONS_INIT) each(tier_stats, PKV_TIER_STATS_INIT) each(op_info, PKV_OP_INFO_INIT) \
    each(op_options, PKV_OP_OPTIONS_INIT) each(predictor, PKV_PREDICTOR_INIT) each(prefetch_options, PKV_PREFETCH_OPTIONS_INIT) \
    each(require_result, PKV_REQUIRE_RESULT_INIT) each(layer_view, PKV_LAYER_VIEW_INIT)                                  \
    each(prefetch_stats, PKV_PREFETCH_STATS_INIT) each(node_options, PKV_NODE_OPTIONS_INIT)                              \
    each(node_stats, PKV_NODE_STATS_INIT) each(node_peer, PKV_NODE_PEER_INIT)                                            \
    each(offer_options, PKV_OFFER_OPTIONS_INIT) each(offer_info, PKV_OFFER_INFO_INIT) each(pull_options, PKV_PULL_OPTIONS_INIT)
#define PKVGO_INIT(name, ...)                                                                                          \
    static inline pkv_##name pkvgo_##name(void) {                                                                      \
        const pkv_##name fresh = __VA_ARGS__;                                                                          \
        return fresh;                                                                                                  \
    }
PKVGO_INITS(PKVGO_INIT)

#endif
