/* SPDX-License-Identifier: Apache-2.0 */
/* PKVB_EXTENT_<function>_<parameter>: entries that a function reads or writes at a pointer, from its other arguments (argN
 * is the N-th, as SWIG names them in every language). A pointer without an extent does not compile.
 *
 * What the arguments do not tell: PKVB_STEP_ROWS, the tables of the step that a batch or a session is in; the language
 * defines it, from what it knows of the handle at arg1. */
%{
#define PKVB_EXTENT_digest_digest PKV_DIGEST_BYTES

#define PKVB_EXTENT_pool_alloc_pages arg3
#define PKVB_EXTENT_pool_retain_pages arg3
#define PKVB_EXTENT_pool_release_pages arg3
#define PKVB_EXTENT_pool_release_statuses arg3
#define PKVB_EXTENT_pool_lookup_pages pkvb_times(arg5, PKVB_NUM_GROUPS(arg1))
#define PKVB_EXTENT_pool_publish_pages arg5
#define PKVB_EXTENT_pool_publish_owner arg5
#define PKVB_EXTENT_pool_keys_keys arg4
#define PKVB_EXTENT_pool_events_events arg4
#define PKVB_EXTENT_pool_write_slots arg4
#define PKVB_EXTENT_pool_gather_pages arg4
#define PKVB_EXTENT_pool_copy_pages_src arg3
#define PKVB_EXTENT_pool_copy_pages_dst arg3
#define PKVB_EXTENT_pool_image_keys_keys arg5
#define PKVB_EXTENT_pool_store_keys arg3
#define PKVB_EXTENT_pool_store_pages arg3
#define PKVB_EXTENT_pool_load_keys arg3
#define PKVB_EXTENT_pool_load_pages arg3

#define PKVB_EXTENT_table_set_tokens_tokens arg3
#define PKVB_EXTENT_table_accept_positions arg2
#define PKVB_EXTENT_table_take_copies_copies arg3
#define PKVB_EXTENT_table_export_buffer arg3
#define PKVB_EXTENT_table_import_buffer arg3
#define PKVB_EXTENT_table_pages_pages arg4
#define PKVB_EXTENT_table_slots_slots arg4
#define PKVB_EXTENT_table_residency_where arg4

#define PKVB_EXTENT_batch_reserve_num_new arg2
#define PKVB_EXTENT_batch_reserve_statuses arg2
#define PKVB_EXTENT_batch_set_tokens_tokens arg2
#define PKVB_EXTENT_batch_set_tokens_statuses PKVB_STEP_ROWS
#define PKVB_EXTENT_batch_gather_first PKVB_STEP_ROWS
#define PKVB_EXTENT_batch_commit_num_accepted PKVB_STEP_ROWS
#define PKVB_EXTENT_batch_commit_statuses PKVB_STEP_ROWS

#define PKVB_EXTENT_queue_drain_completions arg3
#define PKVB_EXTENT_op_poll_statuses arg4

#define PKVB_EXTENT_prefetch_predict_scores arg4
#define PKVB_EXTENT_prefetch_predict_blocks arg7
#define PKVB_EXTENT_prefetch_hint_scores arg3
#define PKVB_EXTENT_prefetch_step_begin_num_tokens arg2
#define PKVB_EXTENT_prefetch_step_begin_statuses arg2
#define PKVB_EXTENT_prefetch_step_end_statuses PKVB_STEP_ROWS

#define PKVB_EXTENT_node_peers_peers arg3
#define PKVB_EXTENT_offer_ticket_buffer arg3

/* methods of structs.i */
#define PKVB_EXTENT_group_options_set_k_base_addresses arg3
#define PKVB_EXTENT_group_options_set_v_base_addresses arg3
#define PKVB_EXTENT_group_options_set_k_scales_scales arg3
#define PKVB_EXTENT_group_options_set_v_scales_scales arg3
#define PKVB_EXTENT_prompt_set_tokens_tokens arg3
#define PKVB_EXTENT_pull_options_set_groups_groups arg3
#define PKVB_EXTENT_prefetch_options_set_staging_pages_staging_pages arg3

/* 1: the function writes rows into the caller's tensors; 0: it reads them. */
#define PKVB_WRITES_pool_write 0
#define PKVB_WRITES_pool_gather 1
#define PKVB_WRITES_table_write 0
#define PKVB_WRITES_table_gather 1
#define PKVB_WRITES_batch_write 0
#define PKVB_WRITES_batch_gather 1

static __attribute__((unused)) uint64_t pkvb_times(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

#ifndef PKVB_NUM_GROUPS
static __attribute__((unused)) uint64_t pkvb_num_groups(pkv_pool *pool) {
    uint32_t groups = 0;
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    while (groups < PKV_MAX_GROUPS && pkv_pool_layout(pool, groups, 0, &layout) == PKV_OK) ++groups;
    return groups;
}
#define PKVB_NUM_GROUPS(pool) pkvb_num_groups(pool)
#endif
%}
