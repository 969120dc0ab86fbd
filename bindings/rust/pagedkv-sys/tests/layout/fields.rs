// SPDX-License-Identifier: Apache-2.0
// Written by generate.py from the headers: not to be edited.
// What main.rs compares with a C compiler's.

each_struct! {
    pkv_admit_options { struct_size, max_match, reserve_tokens, watermark, flags, reserved }
    pkv_batch_arrays { struct_size, group, fill, max_blocks, max_indices, block_table, block_indptr, block_indices, slot_mapping }
    pkv_batch_options { struct_size, max_tables, num_arrays, arrays, max_tokens, lengths, last_page_len }
    pkv_bytes { data, size }
    pkv_clear_result { struct_size, freed, held }
    pkv_completion { user, op, status, reserved }
    pkv_event { sequence, kind, group, key, parent, block }
    pkv_file_event { struct_size, write, reserved, offset, data, size, result }
    pkv_file_tier_options { struct_size, path, capacity_bytes, max_images, identity, engine, depth, threads, flags, lock_timeout_ns, fault, fault_user }
    pkv_group_options { struct_size, num_pages, num_layers, first_layer, total_layers, num_kv_heads, first_head, total_heads, k_head_dim, v_head_dim, dtype, k_row_bytes, v_row_bytes, layout, arrangement, attention, window, sinks, memory, reserved, k_base, v_base, k_strides, v_strides, max_cached_pages, scales, aux_bytes, k_scales, v_scales }
    pkv_histogram { count, sum_ns, buckets }
    pkv_host_tier_options { struct_size, capacity_bytes, huge_pages, reserved }
    pkv_key { low, high }
    pkv_layer_layout { struct_size, k_base, v_base, k, v, k_row_bytes, v_row_bytes, num_kv_heads, page_tokens, dtype, scales, k_scales, v_scales, scale_page_stride }
    pkv_layer_ref { group, layer }
    pkv_layer_view { struct_size, index, group, layer, buffer, num_tables, last, num_slices, slices, indptr, first_block, layout, waited_ns }
    pkv_match { struct_size, tokens, blocks, resident_tokens, tier_tokens }
    pkv_media { position, num_tokens, digest }
    pkv_namespace { struct_size, model, adapter, adapter_id, adapter_generation, salt }
    pkv_node_options { struct_size, cluster_key, name, listen, provider, fabric_host, tiers, num_tiers, num_pools, pools, identity, export_bytes, max_guests, max_leases, lease_ns, timeout_ns, flags, directory_peers, directory, advertise, directory_prefix, heartbeat_ns, entry_ttl_ns }
    pkv_node_peer { struct_size, address, name, connected, status }
    pkv_node_stats { struct_size, provider, guests, accepted, refused, lookups_served, fetches_served, bytes_served, leases, expired_leases, bad_messages, peers, connected_peers, reads, failed_reads, bytes_read, late_answers, reconnects, promoted, open_offers, offers, expired_offers, pulls_served, failed_pulls_served, handed_bytes, pulls, failed_pulls, pulled_bytes, directory_endpoints, directory_endpoints_up, directory_peers, directory_lookups, directory_hits, directory_failures, directory_published, directory_dropped, directory_bad_entries }
    pkv_offer_info { struct_size, status, pulls, open_pulls, failed_pulls, num_tokens, ready_tokens, left_ns }
    pkv_offer_options { struct_size, num_tokens, lifetime_ns, address, max_pulls, reserved }
    pkv_op_info { struct_size, state, status, num_items, done_items, good_items, buffers_free, reserved }
    pkv_op_options { struct_size, queue, user, timeout_ns }
    pkv_page_copy { group, src, dst }
    pkv_page_info { struct_size, count, state, published, block, priority, pinned }
    pkv_pool_options { struct_size, page_tokens, num_groups, groups, huge_pages, copy_threads, seed, debug, event_capacity, tiers, num_tiers, flags, clean_pages, staging_bytes, device, device_index, in_place, transfer_blocks, reserved }
    pkv_pool_stats { struct_size, num_pages, free_pages, held_pages, cached_pages, quarantined_pages, tables, namespaces, index_blocks, page_bytes, metadata_bytes, usage, memory_kind, key_seed, requests, asked_tokens, hit_tokens, retries, refused, probes, allocated_pages, failed_allocations, evicted_pages, cleared_pages, published_blocks, unpublished_blocks, duplicate_blocks, key_collisions, copied_pages, partial_tokens, shared_duplicates, expired_blocks, events, pinned_pages, unstored_pages, stored_images, failed_stores, dropped_images, loaded_blocks, adopted_blocks, joined_loads, spilled_blocks, lost_blocks, exposed_ns, tier_hit_tokens, image_bytes }
    pkv_predictor { struct_size, policy, page_tokens, sink_tokens, recent_tokens, lookahead }
    pkv_prefetch_options { struct_size, policy, flags, sink_tokens, recent_tokens, max_lookahead, max_block_pages, num_buffers, num_layers, layers, staging_pages, max_tables, reserved, max_slices, slices, slice_indptr, max_bytes_in_flight, load_timeout_ns }
    pkv_prefetch_stats { struct_size, needed, on_time, late, on_demand, failed, requests, ready_requests, steps, ranges, prompts, io_ns, exposed_ns, masked_ns, other_wait_ns, loads, good_loads, failed_loads, cancelled_loads, bytes_loaded, bytes_used, wasted_bytes, checksum_failures, ready_bytes, bytes_in_flight, loads_in_flight, depth, lookahead, block_pages, staging_pages, buffer_slices, masking_efficiency, load, queue, exposed }
    pkv_prometheus_sources { struct_size, pools, pool_names, num_pools, tiers, tier_names, num_tiers, sessions, session_names, num_sessions, nodes, node_names, num_nodes }
    pkv_prompt { struct_size, ns, tokens, num_tokens, media, num_media }
    pkv_pull_options { struct_size, ns, groups, num_groups, flags }
    pkv_require_result { struct_size, resident, on_time, late, on_demand, waited_ns }
    pkv_retention { struct_size, priority, pin, ttl_ns }
    pkv_spill_result { struct_size, spilled_blocks, shared_pages }
    pkv_strides { page, token, head }
    pkv_sync { struct_size, kind, reserved, handle, value, timeout_ns }
    pkv_table_info { struct_size, named, reserved, committed, published, matched, blocks, committed_blocks, valid, absent_blocks }
    pkv_tensor { struct_size, data, dtype, reserved, num_tokens, token_stride, head_stride }
    pkv_tier_attachment { struct_size, tier, policy, hits, flags, reserved, timeout_ns }
    pkv_tier_batch { struct_size, kind, flags, num_items, keys, data, offsets, sizes, retention, tags, deadline_ns, urgent, request }
    pkv_tier_key { bytes }
    pkv_tier_ops { struct_size, name, submit, cancel, address, victims, memory, usage, close }
    pkv_tier_stats { struct_size, usage, lookups, hits, loads, failed_loads, stores, failed_stores, bytes_loaded, bytes_stored, checksum_failures, timeouts, double_completions, open_requests, breaker_trips, resting, reserved }
    pkv_tier_usage { struct_size, capacity_bytes, used_bytes, images, pinned_images, evicted_images, recovered_images, io_errors, engine, registered_buffers }
    pkv_tier_victim { key, bytes, tag, retention }
}

each_init! {
    PKV_ADMIT_OPTIONS_INIT: pkv_admit_options { struct_size, max_match, reserve_tokens, watermark, flags, reserved }
    PKV_BATCH_ARRAYS_INIT: pkv_batch_arrays { struct_size, group, fill, max_blocks, max_indices, block_table, block_indptr, block_indices, slot_mapping }
    PKV_BATCH_OPTIONS_INIT: pkv_batch_options { struct_size, max_tables, num_arrays, arrays, max_tokens, lengths, last_page_len }
    PKV_CLEAR_RESULT_INIT: pkv_clear_result { struct_size, freed, held }
    PKV_FILE_TIER_OPTIONS_INIT: pkv_file_tier_options { struct_size, path, capacity_bytes, max_images, identity, engine, depth, threads, flags, lock_timeout_ns, fault, fault_user }
    PKV_GROUP_OPTIONS_INIT: pkv_group_options { struct_size, num_pages, num_layers, first_layer, total_layers, num_kv_heads, first_head, total_heads, k_head_dim, v_head_dim, dtype, k_row_bytes, v_row_bytes, layout, arrangement, attention, window, sinks, memory, reserved, k_base, v_base, k_strides, v_strides, max_cached_pages, scales, aux_bytes, k_scales, v_scales }
    PKV_HISTOGRAM_INIT: pkv_histogram { count, sum_ns, buckets }
    PKV_HOST_TIER_OPTIONS_INIT: pkv_host_tier_options { struct_size, capacity_bytes, huge_pages, reserved }
    PKV_LAYER_LAYOUT_INIT: pkv_layer_layout { struct_size, k_base, v_base, k, v, k_row_bytes, v_row_bytes, num_kv_heads, page_tokens, dtype, scales, k_scales, v_scales, scale_page_stride }
    PKV_LAYER_VIEW_INIT: pkv_layer_view { struct_size, index, group, layer, buffer, num_tables, last, num_slices, slices, indptr, first_block, layout, waited_ns }
    PKV_MATCH_INIT: pkv_match { struct_size, tokens, blocks, resident_tokens, tier_tokens }
    PKV_NAMESPACE_INIT: pkv_namespace { struct_size, model, adapter, adapter_id, adapter_generation, salt }
    PKV_NODE_OPTIONS_INIT: pkv_node_options { struct_size, cluster_key, name, listen, provider, fabric_host, tiers, num_tiers, num_pools, pools, identity, export_bytes, max_guests, max_leases, lease_ns, timeout_ns, flags, directory_peers, directory, advertise, directory_prefix, heartbeat_ns, entry_ttl_ns }
    PKV_NODE_PEER_INIT: pkv_node_peer { struct_size, address, name, connected, status }
    PKV_NODE_STATS_INIT: pkv_node_stats { struct_size, provider, guests, accepted, refused, lookups_served, fetches_served, bytes_served, leases, expired_leases, bad_messages, peers, connected_peers, reads, failed_reads, bytes_read, late_answers, reconnects, promoted, open_offers, offers, expired_offers, pulls_served, failed_pulls_served, handed_bytes, pulls, failed_pulls, pulled_bytes, directory_endpoints, directory_endpoints_up, directory_peers, directory_lookups, directory_hits, directory_failures, directory_published, directory_dropped, directory_bad_entries }
    PKV_OFFER_INFO_INIT: pkv_offer_info { struct_size, status, pulls, open_pulls, failed_pulls, num_tokens, ready_tokens, left_ns }
    PKV_OFFER_OPTIONS_INIT: pkv_offer_options { struct_size, num_tokens, lifetime_ns, address, max_pulls, reserved }
    PKV_OP_INFO_INIT: pkv_op_info { struct_size, state, status, num_items, done_items, good_items, buffers_free, reserved }
    PKV_OP_OPTIONS_INIT: pkv_op_options { struct_size, queue, user, timeout_ns }
    PKV_PAGE_INFO_INIT: pkv_page_info { struct_size, count, state, published, block, priority, pinned }
    PKV_POOL_OPTIONS_INIT: pkv_pool_options { struct_size, page_tokens, num_groups, groups, huge_pages, copy_threads, seed, debug, event_capacity, tiers, num_tiers, flags, clean_pages, staging_bytes, device, device_index, in_place, transfer_blocks, reserved }
    PKV_POOL_STATS_INIT: pkv_pool_stats { struct_size, num_pages, free_pages, held_pages, cached_pages, quarantined_pages, tables, namespaces, index_blocks, page_bytes, metadata_bytes, usage, memory_kind, key_seed, requests, asked_tokens, hit_tokens, retries, refused, probes, allocated_pages, failed_allocations, evicted_pages, cleared_pages, published_blocks, unpublished_blocks, duplicate_blocks, key_collisions, copied_pages, partial_tokens, shared_duplicates, expired_blocks, events, pinned_pages, unstored_pages, stored_images, failed_stores, dropped_images, loaded_blocks, adopted_blocks, joined_loads, spilled_blocks, lost_blocks, exposed_ns, tier_hit_tokens, image_bytes }
    PKV_PREDICTOR_INIT: pkv_predictor { struct_size, policy, page_tokens, sink_tokens, recent_tokens, lookahead }
    PKV_PREFETCH_OPTIONS_INIT: pkv_prefetch_options { struct_size, policy, flags, sink_tokens, recent_tokens, max_lookahead, max_block_pages, num_buffers, num_layers, layers, staging_pages, max_tables, reserved, max_slices, slices, slice_indptr, max_bytes_in_flight, load_timeout_ns }
    PKV_PREFETCH_STATS_INIT: pkv_prefetch_stats { struct_size, needed, on_time, late, on_demand, failed, requests, ready_requests, steps, ranges, prompts, io_ns, exposed_ns, masked_ns, other_wait_ns, loads, good_loads, failed_loads, cancelled_loads, bytes_loaded, bytes_used, wasted_bytes, checksum_failures, ready_bytes, bytes_in_flight, loads_in_flight, depth, lookahead, block_pages, staging_pages, buffer_slices, masking_efficiency, load, queue, exposed }
    PKV_PROMETHEUS_SOURCES_INIT: pkv_prometheus_sources { struct_size, pools, pool_names, num_pools, tiers, tier_names, num_tiers, sessions, session_names, num_sessions, nodes, node_names, num_nodes }
    PKV_PROMPT_INIT: pkv_prompt { struct_size, ns, tokens, num_tokens, media, num_media }
    PKV_PULL_OPTIONS_INIT: pkv_pull_options { struct_size, ns, groups, num_groups, flags }
    PKV_REQUIRE_RESULT_INIT: pkv_require_result { struct_size, resident, on_time, late, on_demand, waited_ns }
    PKV_RETENTION_INIT: pkv_retention { struct_size, priority, pin, ttl_ns }
    PKV_SPILL_RESULT_INIT: pkv_spill_result { struct_size, spilled_blocks, shared_pages }
    PKV_SYNC_INIT: pkv_sync { struct_size, kind, reserved, handle, value, timeout_ns }
    PKV_TABLE_INFO_INIT: pkv_table_info { struct_size, named, reserved, committed, published, matched, blocks, committed_blocks, valid, absent_blocks }
    PKV_TENSOR_INIT: pkv_tensor { struct_size, data, dtype, reserved, num_tokens, token_stride, head_stride }
    PKV_TIER_ATTACHMENT_INIT: pkv_tier_attachment { struct_size, tier, policy, hits, flags, reserved, timeout_ns }
    PKV_TIER_STATS_INIT: pkv_tier_stats { struct_size, usage, lookups, hits, loads, failed_loads, stores, failed_stores, bytes_loaded, bytes_stored, checksum_failures, timeouts, double_completions, open_requests, breaker_trips, resting, reserved }
    PKV_TIER_USAGE_INIT: pkv_tier_usage { struct_size, capacity_bytes, used_bytes, images, pinned_images, evicted_images, recovered_images, io_errors, engine, registered_buffers }
}

each_number! {
    PKV_ADMIT_NO_MATCH
    PKV_ADMIT_PARTIAL
    PKV_ADMIT_RETRY
    PKV_ADMIT_SHARE
    PKV_ALL_GROUPS
    PKV_ALL_LAYERS
    PKV_ATTENTION_FULL
    PKV_ATTENTION_WINDOW
    PKV_BLOCK_DROPPED
    PKV_BLOCK_RESIDENT
    PKV_BLOCK_TIER
    PKV_CLUSTER_KEY_BYTES
    PKV_DEBUG_EQUAL_KEYS
    PKV_DEBUG_HOT_PAGES
    PKV_DEBUG_POISON
    PKV_DEVICE_CUDA
    PKV_DEVICE_HOST
    PKV_DIGEST_BYTES
    PKV_DTYPE_BF16
    PKV_DTYPE_F16
    PKV_DTYPE_F32
    PKV_DTYPE_F8_E4M3
    PKV_DTYPE_F8_E5M2
    PKV_DTYPE_I8
    PKV_DTYPE_OPAQUE
    PKV_ERR_AGAIN
    PKV_ERR_BUSY
    PKV_ERR_CANCELLED
    PKV_ERR_CAPTURE
    PKV_ERR_CLOSED
    PKV_ERR_FORKED
    PKV_ERR_HANDLE
    PKV_ERR_INTERNAL
    PKV_ERR_INVALID
    PKV_ERR_IO
    PKV_ERR_LIMIT
    PKV_ERR_LOST
    PKV_ERR_MISMATCH
    PKV_ERR_NOT_FOUND
    PKV_ERR_NOT_RESIDENT
    PKV_ERR_NO_MEMORY
    PKV_ERR_NO_PAGES
    PKV_ERR_NO_SPACE
    PKV_ERR_STATE
    PKV_ERR_TIMEOUT
    PKV_ERR_UNSUPPORTED
    PKV_EVENT_CLEARED
    PKV_EVENT_REMOVED
    PKV_EVENT_STORED
    PKV_FAULT_DROP
    PKV_FAULT_LATE
    PKV_FAULT_NONE
    PKV_FAULT_TWICE
    PKV_FILE_BUFFERED
    PKV_FILE_RESET
    PKV_HISTOGRAM_BUCKETS
    PKV_HUGE_PAGES_AUTO
    PKV_HUGE_PAGES_NEVER
    PKV_HUGE_PAGES_REQUIRE
    PKV_IMAGE_ALIGNMENT
    PKV_IO_AUTO
    PKV_IO_THREADS
    PKV_IO_URING
    PKV_KEY_SEED_FIXED
    PKV_KEY_SEED_RANDOM
    PKV_LAYER_MAJOR
    PKV_LAYOUT_HND
    PKV_LAYOUT_NHD
    PKV_LOG_ERROR
    PKV_LOG_INFO
    PKV_LOG_WARNING
    PKV_MATCH_ALL
    PKV_MAX_GROUPS
    PKV_MAX_HEADS
    PKV_MAX_LAYERS
    PKV_MAX_MEDIA_DIGEST
    PKV_MAX_PAGE_TOKENS
    PKV_MAX_ROW_BYTES
    PKV_MAX_TICKETS
    PKV_MAX_TICKET_BYTES
    PKV_MAX_TIERS
    PKV_MEMORY_CALLER
    PKV_MEMORY_KIND_CALLER
    PKV_MEMORY_KIND_DEVICE
    PKV_MEMORY_KIND_HUGETLB
    PKV_MEMORY_KIND_NONE
    PKV_MEMORY_KIND_PAGES
    PKV_MEMORY_KIND_TRANSPARENT_HUGE
    PKV_MEMORY_NONE
    PKV_MEMORY_POOL
    PKV_NODE_COPY
    PKV_NODE_PROMOTE
    PKV_NO_PAGE
    PKV_NO_SLOT
    PKV_OK
    PKV_OP_ENDED
    PKV_OP_RUNNING
    PKV_PAGE_CACHED
    PKV_PAGE_FREE
    PKV_PAGE_HELD
    PKV_PAGE_MAJOR
    PKV_POOL_KEEP_UNSTORED
    PKV_PREDICT_FULL
    PKV_PREDICT_HINTED
    PKV_PREDICT_SEQUENTIAL
    PKV_PREFETCH_MAX_BUFFERS
    PKV_PREFETCH_OFF
    PKV_PREFETCH_WHOLE_LAYERS
    PKV_PRIORITY_DEFAULT
    PKV_PRIORITY_HIGHEST
    PKV_PRIORITY_LOWEST
    PKV_PULLS_UNLIMITED
    PKV_PULL_NO_MATCH
    PKV_PULL_NO_RETENTION
    PKV_SCALES_HEAD
    PKV_SCALES_NONE
    PKV_SCALES_TENSOR
    PKV_SCALES_TOKEN_HEAD
    PKV_SYNC_CUDA_EVENT
    PKV_SYNC_CUDA_STREAM
    PKV_SYNC_HOST_COUNTER
    PKV_SYNC_NONE
    PKV_TIER_CLEAR
    PKV_TIER_DEMOTE
    PKV_TIER_EXCLUSIVE
    PKV_TIER_FORCE
    PKV_TIER_LOAD
    PKV_TIER_LOOKUP
    PKV_TIER_PIN
    PKV_TIER_PROBE
    PKV_TIER_READ_ONLY
    PKV_TIER_REMOVE
    PKV_TIER_RETAIN
    PKV_TIER_STORE
    PKV_TIER_TAG_ALL
    PKV_TIER_TAG_PRIVATE
    PKV_TIER_UNPIN
    PKV_TIER_WRITE_BACK
    PKV_TIER_WRITE_ON_HITS
    PKV_TIER_WRITE_THROUGH
    PKV_VERSION_MAJOR
    PKV_VERSION_MINOR
    PKV_VERSION_NUMBER
    PKV_VERSION_PATCH
}

each_string! {
    PKV_VERSION_STRING
}
