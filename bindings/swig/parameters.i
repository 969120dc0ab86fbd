/* SPDX-License-Identifier: Apache-2.0 */
/* What each parameter of the functions is. A language defines the macros in capitals, before it includes pagedkv.i:
 *
 *   PKV_STATUS(type)            a result of that type: PKV_OK, or an error with pkv_last_error (pkv_status), or without
 *                               (pkvb_status)
 *   PKV_HANDLE(type, KIND)      `type *name` a handle, `type **name` a handle that is given out. EXCLUSIVE: one thread at a time
 *                               may be in a call on it; SHARED: any number
 *   PKV_HANDLES(type, name)     `type *const *name`: a list of handles
 *   PKV_ARRAY_IN(type, name)    `const type *name`: numbers that are read; may be NULL
 *   PKV_ARRAY_OUT(type, name)   `type *name`: numbers that are written; may be NULL
 *   PKV_PACKED_IN(type, name), PKV_PACKED_OUT(type, name)   the same for structs without pointers, packed as in C: packed.i
 *                               has their sizes and offsets
 *   PKV_VALUE_OUT(type, name)   `type *name`: one number that is given back
 *   PKV_STRUCT_OUT(type, name)  `pkv_type *name`: a struct that is filled in; it begins as its PKV_*_INIT
 *   PKV_TEXT_OUT                (char *buffer, uint64_t capacity, uint64_t *size): text that is given back
 *   PKV_BYTES_IN                (const void *data, uint64_t size): bytes that are read during the call
 *   PKV_BYTES_OUT(name)         `void *name`: bytes that are written
 *   PKV_BYTES_LIST              (const pkv_bytes *parts, uint64_t num_parts)
 *   PKV_TICKETS                 (uint32_t num_tickets, const pkv_bytes *tickets)
 *   PKV_TENSOR(name)            `const pkv_tensor *name`: rows, read or written: PKVB_WRITES_<function>
 *
 * How many entries a function reads or writes at a pointer says extents.i, so that a language can refuse a shorter array.
 * Structs that go in (const pkv_x *) are objects from structs.i, or NULL. */

PKV_STATUS(pkv_status)
PKV_STATUS(pkvb_status)
%apply int32_t { pkv_status status }; /* fields of structs, and a plain argument */

PKV_HANDLE(pkv_pool, SHARED)
PKV_HANDLE(pkv_table, EXCLUSIVE)
PKV_HANDLE(pkv_batch, EXCLUSIVE)
PKV_HANDLE(pkv_tier, SHARED)
PKV_HANDLE(pkv_queue, SHARED)
PKV_HANDLE(pkv_op, SHARED)
PKV_HANDLE(pkv_prefetch, EXCLUSIVE)
PKV_HANDLE(pkv_node, SHARED)
PKV_HANDLE(pkv_offer, SHARED)
%apply pkv_pool * { struct pkv_pool * };
PKV_HANDLES(pkv_table, tables)

PKV_BYTES_LIST
PKV_TICKETS
PKV_BYTES_IN
%apply (const void *data, uint64_t size) { (const void *buffer, uint64_t size) };
PKV_BYTES_OUT(buffer)
PKV_TEXT_OUT
PKV_ARRAY_OUT(uint8_t, digest)

PKV_ARRAY_IN(pkv_token, tokens)
PKV_ARRAY_IN(pkv_page, pages)
PKV_ARRAY_IN(pkv_page, src)
PKV_ARRAY_IN(pkv_page, dst)
PKV_ARRAY_IN(pkv_slot, slots)
PKV_ARRAY_IN(uint64_t, positions)
PKV_ARRAY_IN(uint64_t, first)
PKV_ARRAY_IN(uint64_t, num_tokens)
PKV_ARRAY_IN(uint64_t, addresses)
PKV_ARRAY_IN(uint64_t, staging_pages)
PKV_ARRAY_IN(uint32_t, num_new)
PKV_ARRAY_IN(uint32_t, num_accepted)
PKV_ARRAY_IN(uint32_t, groups)
PKV_ARRAY_IN(float, scores)
PKV_ARRAY_IN(float, scales)
PKV_PACKED_IN(pkv_tier_key, keys)

PKV_ARRAY_OUT(pkv_page, pages)
PKV_ARRAY_OUT(pkv_page, owner)
PKV_ARRAY_OUT(pkv_slot, slots)
PKV_ARRAY_OUT(pkv_status, statuses)
PKV_ARRAY_OUT(int32_t, where)
PKV_PACKED_OUT(pkv_key, keys)
PKV_PACKED_OUT(pkv_tier_key, keys)
PKV_PACKED_OUT(pkv_event, events)
PKV_PACKED_OUT(pkv_page_copy, copies)
PKV_PACKED_OUT(pkv_completion, completions)
PKV_PACKED_OUT(pkv_node_peer, peers)

PKV_VALUE_OUT(uint64_t, evicted)
PKV_VALUE_OUT(uint64_t, blocks)
PKV_VALUE_OUT(uint64_t, num_keys)
PKV_VALUE_OUT(uint64_t, count)
PKV_VALUE_OUT(uint64_t, missed)
PKV_VALUE_OUT(uint64_t, size)
PKV_VALUE_OUT(uint64_t, num_blocks)
PKV_VALUE_OUT(uint64_t, restored)
PKV_VALUE_OUT(uint64_t, submitted)
PKV_VALUE_OUT(uint64_t, dropped)
PKV_VALUE_OUT(int32_t, fd)
PKV_VALUE_OUT(void *, address)

PKV_STRUCT_OUT(layer_layout, layout)
PKV_STRUCT_OUT(page_info, info)
PKV_STRUCT_OUT(match, match)
PKV_STRUCT_OUT(clear_result, result)
PKV_STRUCT_OUT(spill_result, result)
PKV_STRUCT_OUT(table_info, info)
PKV_STRUCT_OUT(pool_stats, stats)
PKV_STRUCT_OUT(tier_stats, stats)
PKV_STRUCT_OUT(op_info, info)
PKV_STRUCT_OUT(require_result, result)
PKV_STRUCT_OUT(layer_view, view)
PKV_STRUCT_OUT(prefetch_stats, stats)
PKV_STRUCT_OUT(node_stats, stats)
PKV_STRUCT_OUT(offer_info, info)

PKV_TENSOR(k)
PKV_TENSOR(v)
