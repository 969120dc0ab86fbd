/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of tables and batches. */
#include "runner.h"

#include <stdlib.h>
#include <string.h>

/* ---- tables ---- */

static pkv_table *table_arg(line *l) { return handle_arg(l, TABLE, "table"); }

/* The pool that rows have the shape of: pool=, which every operation with rows names. */
static pkv_pool *shape_arg(line *l) { return handle_arg(l, POOL, "pool"); }

static pkv_status table_create(line *l) {
    pkv_table *table = NULL;
    const pkv_status status = pkv_table_create(handle_arg(l, POOL, "pool"), &table);
    object *const o = make_object(l, TABLE, "table");
    if (o != NULL) o->handle = table;
    return status;
}

static pkv_status table_destroy(line *l) {
    pkv_sync sync;
    return pkv_table_destroy(table_arg(l), sync_arg(l, &sync));
}

static pkv_status table_clear(line *l) {
    pkv_sync sync;
    return pkv_table_clear(table_arg(l), sync_arg(l, &sync));
}

static pkv_status table_admit(line *l) {
    prompt_memory memory;
    pkv_admit_options options = PKV_ADMIT_OPTIONS_INIT;
    pkv_match match = PKV_MATCH_INIT;
    options.max_match = number_arg(l, "max_match", 0);
    options.reserve_tokens = number_arg(l, "reserve_tokens", 0);
    options.watermark = number_arg(l, "watermark", 0);
    options.flags = (uint32_t)number_arg(l, "flags", 0);
    const pkv_status status = pkv_table_admit(table_arg(l), prompt_arg(l, &memory), &options, &match);
    if (status == PKV_OK) {
        out_number(l, "match", match.tokens);
        out_number(l, "blocks", match.blocks);
        out_number(l, "resident", match.resident_tokens);
        out_number(l, "tier0", match.tier_tokens[0]);
        out_number(l, "tier1", match.tier_tokens[1]);
    }
    free_prompt(&memory);
    return status;
}

static pkv_status table_reserve(line *l) { return pkv_table_reserve(table_arg(l), number_arg(l, "num_tokens", 0)); }

static pkv_status table_set_tokens(line *l) {
    list tokens = list_arg(l, "tokens");
    int32_t *const ids = narrow(&tokens);
    const pkv_status status = pkv_table_set_tokens(table_arg(l), number_arg(l, "position", 0), tokens.count, ids);
    free(ids);
    free_list(&tokens);
    return status;
}

static pkv_status table_write(line *l) {
    const uint32_t group = (uint32_t)number_arg(l, "group", 0), layer = (uint32_t)number_arg(l, "layer", 0);
    const uint64_t position = number_arg(l, "position", 0), count = number_arg(l, "num_tokens", 0);
    row_memory rows;
    pkv_sync sync;
    pkv_status status = PKV_OK;
    if (make_rows(l, shape_arg(l), group, layer, position, count, true, &rows))
        status = pkv_table_write(table_arg(l), group, layer, position, count, side(&rows, 0), side(&rows, 1), sync_arg(l, &sync));
    free_rows(&rows);
    return status;
}

static pkv_status table_gather(line *l) {
    const uint32_t group = (uint32_t)number_arg(l, "group", 0), layer = (uint32_t)number_arg(l, "layer", 0);
    const uint64_t count = number_arg(l, "num_tokens", 0);
    row_memory rows;
    pkv_sync sync;
    pkv_status status = PKV_OK;
    if (make_rows(l, shape_arg(l), group, layer, 0, count, false, &rows))
        status = pkv_table_gather(table_arg(l), group, layer, number_arg(l, "position", 0), count, side(&rows, 0), side(&rows, 1),
                                  sync_arg(l, &sync));
    if (status == PKV_OK) out_rows(l, &rows);
    free_rows(&rows);
    return status;
}

static pkv_status table_commit(line *l) {
    pkv_sync sync;
    return pkv_table_commit(table_arg(l), number_arg(l, "num_tokens", 0), sync_arg(l, &sync));
}

/* Writes all layers of every group with the pattern of fill=, then commits: from= ... num_tokens=. */
static pkv_status table_fill(line *l) {
    pkv_pool *const pool = shape_arg(l);
    const uint64_t from = number_arg(l, "from", 0), end = number_arg(l, "num_tokens", 0);
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    pkv_status status = PKV_OK;
    for (uint32_t g = 0; status == PKV_OK && pkv_pool_layout(pool, g, 0, &layout) == PKV_OK; ++g)
        for (uint32_t layer = 0; status == PKV_OK && pkv_pool_layout(pool, g, layer, &layout) == PKV_OK; ++layer) {
            row_memory rows;
            if (make_rows(l, pool, g, layer, from, end - from, true, &rows))
                status = pkv_table_write(table_arg(l), g, layer, from, end - from, side(&rows, 0), side(&rows, 1), NULL);
            free_rows(&rows);
        }
    return status == PKV_OK ? pkv_table_commit(table_arg(l), end, NULL) : status;
}

static pkv_status table_fork(line *l) {
    pkv_table *fork = NULL;
    pkv_sync sync;
    const pkv_status status = pkv_table_fork(table_arg(l), sync_arg(l, &sync), &fork);
    object *const o = make_object(l, TABLE, "fork");
    if (o != NULL) o->handle = fork;
    return status;
}

static pkv_status table_truncate(line *l) {
    pkv_sync sync;
    return pkv_table_truncate(table_arg(l), number_arg(l, "num_tokens", 0), sync_arg(l, &sync));
}

static pkv_status table_accept(line *l) {
    list positions = list_arg(l, "positions");
    pkv_sync sync;
    const pkv_status status =
        pkv_table_accept(table_arg(l), positions.count, (const uint64_t *)positions.items, sync_arg(l, &sync));
    free_list(&positions);
    return status;
}

static pkv_status table_window(line *l) {
    pkv_sync sync;
    return pkv_table_window(table_arg(l), sync_arg(l, &sync));
}

static pkv_status table_set_retention(line *l) {
    pkv_retention retention = PKV_RETENTION_INIT;
    retention.priority = (uint32_t)number_arg(l, "priority", PKV_PRIORITY_DEFAULT);
    retention.pin = (int32_t)number_arg(l, "pin", 0);
    retention.ttl_ns = number_arg(l, "ttl", 0);
    return pkv_table_set_retention(table_arg(l), number_arg(l, "first_token", 0), number_arg(l, "num_tokens", UINT64_MAX), &retention);
}

static pkv_status table_take_copies(line *l) {
    pkv_page_copy copies[PKV_MAX_GROUPS];
    int64_t sources[PKV_MAX_GROUPS], targets[PKV_MAX_GROUPS];
    uint64_t count = 0;
    const pkv_status status =
        pkv_table_take_copies(table_arg(l), copies, number_arg(l, "capacity", PKV_MAX_GROUPS), &count);
    out_number(l, "count", count);
    if (status != PKV_OK || number_arg(l, "capacity", 1) == 0) return status;
    for (uint64_t i = 0; i < count; ++i) sources[i] = copies[i].src, targets[i] = copies[i].dst;
    out_list(l, "src", sources, count);
    out_list(l, "dst", targets, count);
    return status;
}

/* Exports, and imports into another table: into=. */
static pkv_status table_export(line *l) {
    uint64_t size = 0;
    pkv_status status = pkv_table_export(table_arg(l), NULL, 0, &size);
    if (status != PKV_OK) return status;
    unsigned char *const buffer = malloc((size_t)size + 1);
    if (buffer == NULL) abort();
    status = pkv_table_export(table_arg(l), buffer, number_arg(l, "capacity", size), &size);
    if (status == PKV_OK && has(l, "damage")) buffer[number_arg(l, "damage", 0)] ^= 1;
    if (status == PKV_OK && has(l, "into")) status = pkv_table_import(handle_arg(l, TABLE, "into"), buffer, size);
    out_number(l, "size", size);
    free(buffer);
    return status;
}

static pkv_status table_pages(line *l) {
    pkv_page pages[256];
    uint64_t count = 0;
    const uint64_t capacity = number_arg(l, "capacity", 256);
    if (capacity > 256) abort();
    const pkv_status status = pkv_table_pages(table_arg(l), (uint32_t)number_arg(l, "group", 0), pages, capacity, &count);
    out_number(l, "num_blocks", count);
    if (status == PKV_OK && capacity != 0) out_pages(l, "pages", pages, count);
    return status;
}

static pkv_status table_slots(line *l) {
    pkv_slot slots[1024];
    const uint64_t count = number_arg(l, "num_tokens", 0);
    if (count > 1024 && count < UINT32_MAX) abort();
    const pkv_status status =
        pkv_table_slots(table_arg(l), (uint32_t)number_arg(l, "group", 0), number_arg(l, "position", 0), count, slots);
    if (status == PKV_OK) out_list(l, "slots", slots, count);
    return status;
}

static pkv_status table_residency(line *l) {
    int32_t where[256];
    const uint64_t count = number_arg(l, "num_blocks", 0);
    if (count > 256) abort();
    const pkv_status status =
        pkv_table_residency(table_arg(l), (uint32_t)number_arg(l, "group", 0), number_arg(l, "first_block", 0), count, where);
    if (status == PKV_OK) out_pages(l, "where", where, count);
    return status;
}

static pkv_status table_spill(line *l) {
    pkv_spill_result result = PKV_SPILL_RESULT_INIT;
    pkv_sync sync;
    const pkv_status status = pkv_table_spill(table_arg(l), number_arg(l, "first_block", 0),
                                              number_arg(l, "num_blocks", UINT64_MAX), sync_arg(l, &sync), &result);
    out_number(l, "spilled", result.spilled_blocks);
    out_number(l, "shared", result.shared_pages);
    return status;
}

static pkv_status table_restore(line *l) {
    uint64_t restored = 0;
    const pkv_status status = pkv_table_restore(table_arg(l), number_arg(l, "first_block", 0),
                                                number_arg(l, "num_blocks", UINT64_MAX), number_arg(l, "timeout", UINT64_MAX), &restored);
    if (status == PKV_OK) out_number(l, "restored", restored);
    return status;
}

static pkv_status table_info(line *l) {
    pkv_table_info info = PKV_TABLE_INFO_INIT;
    const pkv_status status = pkv_table_get_info(table_arg(l), &info);
    if (status != PKV_OK) return status;
    out_number(l, "named", info.named);
    out_number(l, "reserved", info.reserved);
    out_number(l, "committed", info.committed);
    out_number(l, "published", info.published);
    out_number(l, "matched", info.matched);
    out_number(l, "blocks", info.blocks);
    out_number(l, "committed_blocks", info.committed_blocks);
    out_number(l, "valid", info.valid);
    out_number(l, "absent_blocks", info.absent_blocks);
    return status;
}

/* ---- batches ---- */

static void *zeroed(uint64_t count, size_t size) {
    void *const memory = calloc((size_t)count + 1, size);
    if (memory == NULL) abort();
    return memory;
}

static pkv_status batch_create(line *l) {
    pkv_batch_options options = PKV_BATCH_OPTIONS_INIT;
    pkv_batch_arrays arrays = PKV_BATCH_ARRAYS_INIT;
    pkv_batch *batch = NULL;
    object *const o = make_object(l, BATCH, "batch");
    if (o == NULL) return PKV_OK;
    batch_memory *const m = &o->arrays;
    m->max_tables = number_arg(l, "max_tables", 1);
    m->max_tokens = number_arg(l, "max_tokens", 0);
    m->max_blocks = number_arg(l, "max_blocks", 0);
    const bool small = m->max_tables <= 1024 && m->max_blocks <= 1024;
    m->block_table = zeroed(small ? m->max_tables * m->max_blocks : 1, sizeof *m->block_table);
    m->slot_mapping = zeroed(m->max_tokens, sizeof *m->slot_mapping);
    m->lengths = zeroed(small ? m->max_tables : 1, sizeof *m->lengths);
    m->last_page_len = zeroed(small ? m->max_tables : 1, sizeof *m->last_page_len);
    arrays.group = (uint32_t)number_arg(l, "group", 0);
    arrays.fill = (int32_t)number_arg(l, "fill", 0);
    arrays.max_blocks = m->max_blocks;
    arrays.block_table = m->block_table;
    arrays.slot_mapping = m->slot_mapping;
    options.max_tables = (uint32_t)m->max_tables;
    options.max_tokens = m->max_tokens;
    options.num_arrays = 1;
    options.arrays = &arrays;
    options.lengths = m->lengths;
    options.last_page_len = m->last_page_len;
    const pkv_status status = pkv_batch_create(handle_arg(l, POOL, "pool"), &options, &batch);
    o->handle = batch;
    return status;
}

static pkv_status batch_destroy(line *l) { return pkv_batch_destroy(handle_arg(l, BATCH, "batch")); }

static pkv_status batch_arrays_of(line *l) {
    const object *const o = object_arg(l, BATCH, "batch");
    if (o == NULL) return PKV_OK;
    const batch_memory *const m = &o->arrays;
    out_pages(l, "block_table", m->block_table, m->max_tables * m->max_blocks);
    out_list(l, "slot_mapping", m->slot_mapping, m->max_tokens);
    out_pages(l, "lengths", m->lengths, m->max_tables);
    out_pages(l, "last_page_len", m->last_page_len, m->max_tables);
    return PKV_OK;
}

/* tables=a,b,c as handles */
static uint32_t tables_arg(line *l, pkv_table **tables, uint32_t max) {
    char names[512], *rest = NULL;
    uint32_t count = 0;
    (void)strncpy(names, text_arg(l, "tables", ""), sizeof names - 1);
    names[sizeof names - 1] = '\0';
    for (char *name = strtok_r(names, ",", &rest); name != NULL && count < max; name = strtok_r(NULL, ",", &rest)) {
        const object *const table = find_object(TABLE, name);
        if (table == NULL) complain(l, "there is no table %s", name);
        tables[count++] = table != NULL ? table->handle : NULL;
    }
    return count;
}

static pkv_status batch_reserve(line *l) {
    object *const o = object_arg(l, BATCH, "batch");
    pkv_table *tables[64];
    const uint32_t count = tables_arg(l, tables, 64);
    list num_new = list_arg(l, "num_new");
    uint32_t *const numbers = (uint32_t *)narrow(&num_new);
    pkv_status statuses[64] = {0};
    if (num_new.count != count) complain(l, "num_new has as many entries as tables");
    const pkv_status status = pkv_batch_reserve(o != NULL ? o->handle : NULL, count, tables, numbers, statuses);
    if (o != NULL) o->arrays.rows = count;
    out_statuses(l, "statuses", statuses, count);
    free(numbers);
    free_list(&num_new);
    return status;
}

static pkv_status batch_set_tokens(line *l) {
    object *const o = object_arg(l, BATCH, "batch");
    list tokens = list_arg(l, "tokens");
    int32_t *const ids = narrow(&tokens);
    pkv_status statuses[64] = {0};
    const pkv_status status = pkv_batch_set_tokens(o != NULL ? o->handle : NULL, tokens.count, ids, statuses);
    out_statuses(l, "statuses", statuses, o != NULL ? o->arrays.rows : 0);
    free(ids);
    free_list(&tokens);
    return status;
}

static pkv_status batch_write(line *l) {
    const uint32_t group = (uint32_t)number_arg(l, "group", 0), layer = (uint32_t)number_arg(l, "layer", 0);
    row_memory rows;
    pkv_sync sync;
    pkv_status status = PKV_OK;
    if (make_rows(l, shape_arg(l), group, layer, 0, number_arg(l, "num_tokens", 0), true, &rows))
        status = pkv_batch_write(handle_arg(l, BATCH, "batch"), group, layer, side(&rows, 0), side(&rows, 1), sync_arg(l, &sync));
    free_rows(&rows);
    return status;
}

static pkv_status batch_gather(line *l) {
    const uint32_t group = (uint32_t)number_arg(l, "group", 0), layer = (uint32_t)number_arg(l, "layer", 0);
    list first = list_arg(l, "first");
    row_memory rows;
    pkv_sync sync;
    pkv_status status = PKV_OK;
    if (make_rows(l, shape_arg(l), group, layer, 0, number_arg(l, "num_tokens", 0), false, &rows))
        status = pkv_batch_gather(handle_arg(l, BATCH, "batch"), group, layer, first.count != 0 ? (const uint64_t *)first.items : NULL,
                                  number_arg(l, "padded", 0), side(&rows, 0), side(&rows, 1), sync_arg(l, &sync));
    if (status == PKV_OK) out_rows(l, &rows);
    free_rows(&rows);
    free_list(&first);
    return status;
}

static pkv_status batch_commit(line *l) {
    object *const o = object_arg(l, BATCH, "batch");
    list accepted = list_arg(l, "num_accepted");
    uint32_t *const numbers = (uint32_t *)narrow(&accepted);
    pkv_status statuses[64] = {0};
    pkv_sync sync;
    const pkv_status status = pkv_batch_commit(o != NULL ? o->handle : NULL, accepted.count != 0 ? numbers : NULL, statuses,
                                               sync_arg(l, &sync));
    out_statuses(l, "statuses", statuses, o != NULL ? o->arrays.rows : 0);
    free(numbers);
    free_list(&accepted);
    return status;
}

const named_operation table_operations[] = {
    {"table.create", table_create},
    {"table.destroy", table_destroy},
    {"table.clear", table_clear},
    {"table.admit", table_admit},
    {"table.reserve", table_reserve},
    {"table.set_tokens", table_set_tokens},
    {"table.write", table_write},
    {"table.gather", table_gather},
    {"table.commit", table_commit},
    {"table.fill", table_fill},
    {"table.fork", table_fork},
    {"table.truncate", table_truncate},
    {"table.accept", table_accept},
    {"table.window", table_window},
    {"table.set_retention", table_set_retention},
    {"table.take_copies", table_take_copies},
    {"table.export", table_export},
    {"table.pages", table_pages},
    {"table.slots", table_slots},
    {"table.residency", table_residency},
    {"table.spill", table_spill},
    {"table.restore", table_restore},
    {"table.info", table_info},
    {"batch.create", batch_create},
    {"batch.destroy", batch_destroy},
    {"batch.arrays", batch_arrays_of},
    {"batch.reserve", batch_reserve},
    {"batch.set_tokens", batch_set_tokens},
    {"batch.write", batch_write},
    {"batch.gather", batch_gather},
    {"batch.commit", batch_commit},
    {NULL, NULL},
};
