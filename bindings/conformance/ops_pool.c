/* SPDX-License-Identifier: Apache-2.0 */
/* Operations without an object, and those of pools. */
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const dtypes[] = {"f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "opaque", NULL};
static const char *const layouts[] = {"nhd", "hnd", NULL};
static const char *const arrangements[] = {"page_major", "layer_major", NULL};
static const char *const attentions[] = {"full", "window", NULL};
static const char *const memories[] = {"pool", "caller", "none", NULL};
static const char *const scales[] = {"none", "tensor", "head", "token_head", NULL};
static const char *const policies[] = {"write_back", "write_through", "write_on_hits", "demote", "read_only", NULL};

/* ---- without an object ---- */

static pkv_status version(line *l) {
    out_number(l, "number", (uint64_t)pkv_version_number());
    out_text(l, "text", pkv_version_string());
    return PKV_OK;
}

static pkv_status status_name(line *l) {
    out_text(l, "name", pkv_status_string((pkv_status)number_arg(l, "number", 0)));
    return PKV_OK;
}

static pkv_status dtype_bytes(line *l) {
    out_number(l, "bytes", pkv_dtype_bytes(name_arg(l, "dtype", dtypes, PKV_DTYPE_F32, 0)));
    return PKV_OK;
}

static pkv_status digest(line *l) {
    pkv_bytes parts[16];
    uint64_t count = 0;
    uint8_t bytes[PKV_DIGEST_BYTES] = {0};
    char text[2 * PKV_DIGEST_BYTES + 1];
    const char *at = text_arg(l, "parts", "");
    while (*at != '\0' && count < 16) {
        const size_t size = strcspn(at, ",");
        parts[count++] = bytes_of(l, at, size);
        at += size + (at[size] == ',');
    }
    const pkv_status status = pkv_digest(parts, count, bytes);
    for (int i = 0; i < PKV_DIGEST_BYTES; ++i) (void)sprintf(text + 2 * i, "%02x", bytes[i]);
    out_text(l, "digest", text);
    return status;
}

static pkv_status counter(line *l) {
    object *c = find_object(COUNTER, text_arg(l, "counter", ""));
    if (c == NULL) c = make_object(l, COUNTER, "counter");
    if (c != NULL) c->counter = number_arg(l, "value", 0);
    return PKV_OK;
}

static pkv_status predict(line *l) {
    static const char *const kinds[] = {"sequential", "full", "hinted", NULL};
    pkv_predictor predictor = PKV_PREDICTOR_INIT;
    predictor.policy = name_arg(l, "policy", kinds, 0, 0);
    predictor.page_tokens = (uint32_t)number_arg(l, "page_tokens", 16);
    predictor.sink_tokens = number_arg(l, "sink_tokens", 0);
    predictor.recent_tokens = number_arg(l, "recent_tokens", 0);
    predictor.lookahead = number_arg(l, "lookahead", 0);
    list scores = list_arg(l, "scores");
    float *const floats = malloc((size_t)(scores.count + 1) * sizeof *floats);
    const uint64_t capacity = number_arg(l, "capacity", 64);
    uint64_t blocks[256], num_blocks = 0;
    if (floats == NULL || capacity > 256) abort();
    for (uint64_t i = 0; i < scores.count; ++i) floats[i] = (float)scores.items[i];
    const pkv_status status = pkv_prefetch_predict(&predictor, number_arg(l, "num_tokens", 0), number_arg(l, "position", 0),
                                                   scores.count, floats, blocks, capacity, &num_blocks);
    if (status == PKV_OK && capacity != 0) out_unsigned(l, "blocks", blocks, num_blocks);
    out_number(l, "num_blocks", num_blocks);
    free(floats);
    free_list(&scores);
    return status;
}

/* ---- pools ---- */

pkv_group_options group_args(line *l) {
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    group.num_pages = number_arg(l, "num_pages", 0);
    group.num_layers = (uint32_t)number_arg(l, "num_layers", 0);
    group.first_layer = (uint32_t)number_arg(l, "first_layer", 0);
    group.total_layers = (uint32_t)number_arg(l, "total_layers", 0);
    group.num_kv_heads = (uint32_t)number_arg(l, "num_kv_heads", 0);
    group.k_head_dim = (uint32_t)number_arg(l, "k_head_dim", 0);
    group.v_head_dim = (uint32_t)number_arg(l, "v_head_dim", 0);
    group.dtype = name_arg(l, "dtype", dtypes, PKV_DTYPE_F32, PKV_DTYPE_F16);
    group.k_row_bytes = (uint32_t)number_arg(l, "k_row_bytes", 0);
    group.v_row_bytes = (uint32_t)number_arg(l, "v_row_bytes", 0);
    group.layout = name_arg(l, "layout", layouts, 0, PKV_LAYOUT_NHD);
    group.arrangement = name_arg(l, "arrangement", arrangements, 0, PKV_PAGE_MAJOR);
    group.attention = name_arg(l, "attention", attentions, 0, PKV_ATTENTION_FULL);
    group.window = (uint32_t)number_arg(l, "window", 0);
    group.sinks = (uint32_t)number_arg(l, "sinks", 0);
    group.memory = name_arg(l, "memory", memories, 0, PKV_MEMORY_POOL);
    group.k_strides.page = number_arg(l, "k_page_stride", 0);
    group.max_cached_pages = number_arg(l, "max_cached_pages", 0);
    group.scales = name_arg(l, "scales", scales, 0, PKV_SCALES_NONE);
    group.aux_bytes = (uint32_t)number_arg(l, "aux_bytes", 0);
    return group;
}

static pkv_status group(line *l) {
    object *const g = make_object(l, GROUP, "group");
    if (g != NULL) g->group = group_args(l);
    return PKV_OK;
}

static uint32_t attachments(line *l, pkv_tier_attachment *tiers) {
    const char *at = text_arg(l, "tiers", ""); /* TIER:POLICY/... */
    uint32_t count = 0;
    for (; *at != '\0' && count < PKV_MAX_TIERS; ++count) {
        char name[32] = "", policy[32] = "";
        int length = 0;
        if (sscanf(at, "%31[^:]:%31[^/]%n", name, policy, &length) != 2) return complain(l, "tiers is TIER:POLICY/..."), 0;
        const object *const tier = find_object(TIER, name);
        line one = {.op = l->op, .number = l->number, .num_args = 1, .args = {{"policy", policy, false}}};
        tiers[count] = (pkv_tier_attachment)PKV_TIER_ATTACHMENT_INIT;
        tiers[count].tier = tier != NULL ? tier->handle : NULL;
        tiers[count].policy = name_arg(&one, "policy", policies, 0, 0);
        tiers[count].hits = (uint32_t)number_arg(l, "hits", 0);
        at += length + (at[length] == '/');
    }
    return count;
}

static pkv_status pool_create(line *l) {
    pkv_group_options groups[PKV_MAX_GROUPS];
    pkv_tier_attachment tiers[PKV_MAX_TIERS];
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    const char *at = text_arg(l, "groups", NULL);
    if (at == NULL) {
        groups[options.num_groups++] = group_args(l);
    } else {
        char names[256], *rest = NULL;
        (void)snprintf(names, sizeof names, "%s", at);
        for (char *name = strtok_r(names, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
            const object *const g = find_object(GROUP, name);
            if (g == NULL || options.num_groups == PKV_MAX_GROUPS) return complain(l, "groups=%s", at), PKV_OK;
            groups[options.num_groups++] = g->group;
        }
    }
    options.groups = groups;
    options.page_tokens = (uint32_t)number_arg(l, "page_tokens", 0);
    options.seed = number_arg(l, "seed", 0);
    options.debug = (uint32_t)number_arg(l, "debug", 0);
    options.event_capacity = (uint32_t)number_arg(l, "event_capacity", 0);
    options.copy_threads = (uint32_t)number_arg(l, "copy_threads", 0);
    options.flags = (uint32_t)number_arg(l, "flags", 0);
    options.clean_pages = number_arg(l, "clean_pages", 0);
    options.num_tiers = attachments(l, tiers);
    options.tiers = options.num_tiers != 0 ? tiers : NULL;
    pkv_pool *pool = NULL;
    const pkv_status status = pkv_pool_create(&options, &pool);
    object *const o = make_object(l, POOL, "pool");
    if (o != NULL) o->handle = pool;
    return status;
}

static pkv_status pool_destroy(line *l) { return pkv_pool_destroy(handle_arg(l, POOL, "pool")); }
static pkv_status pool_quiesce(line *l) { return pkv_pool_quiesce(handle_arg(l, POOL, "pool"), number_arg(l, "timeout", 0)); }
static pkv_status pool_flush(line *l) { return pkv_pool_flush(handle_arg(l, POOL, "pool"), number_arg(l, "timeout", 0)); }
static uint32_t group_arg(line *l) { return (uint32_t)number_arg(l, "group", 0); }

static pkv_status pool_layout(line *l) {
    pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
    const pkv_status status =
        pkv_pool_layout(handle_arg(l, POOL, "pool"), group_arg(l), (uint32_t)number_arg(l, "layer", 0), &layout);
    if (status != PKV_OK) return status;
    out_number(l, "k_page_stride", layout.k.page);
    out_number(l, "k_token_stride", layout.k.token);
    out_number(l, "k_head_stride", layout.k.head);
    out_number(l, "v_page_stride", layout.v.page);
    out_number(l, "v_token_stride", layout.v.token);
    out_number(l, "v_head_stride", layout.v.head);
    out_number(l, "k_row_bytes", layout.k_row_bytes);
    out_number(l, "v_row_bytes", layout.v_row_bytes);
    out_number(l, "num_kv_heads", layout.num_kv_heads);
    out_number(l, "page_tokens", layout.page_tokens);
    out_signed(l, "dtype", layout.dtype);
    out_number(l, "scale_page_stride", layout.scale_page_stride);
    out_number(l, "has_memory", layout.k_base != NULL);
    return status;
}

static pkv_status pool_alloc(line *l) {
    const uint64_t count = number_arg(l, "num_pages", 0);
    pkv_page pages[256];
    const pkv_status status = pkv_pool_alloc(handle_arg(l, POOL, "pool"), group_arg(l), count, pages);
    if (status == PKV_OK && count <= 256) out_pages(l, "pages", pages, count);
    return status;
}

static pkv_status pool_retain(line *l) {
    list pages = list_arg(l, "pages");
    int32_t *const ids = narrow(&pages);
    const pkv_status status = pkv_pool_retain(handle_arg(l, POOL, "pool"), group_arg(l), pages.count, ids);
    free(ids);
    free_list(&pages);
    return status;
}

static pkv_status pool_release(line *l) {
    list pages = list_arg(l, "pages");
    int32_t *const ids = narrow(&pages), *const statuses = narrow(&pages);
    const bool each = number_arg(l, "each", 0) != 0;
    pkv_sync sync;
    const pkv_status status = pkv_pool_release(handle_arg(l, POOL, "pool"), group_arg(l), pages.count, ids, each ? statuses : NULL,
                                               sync_arg(l, &sync));
    if (each) out_statuses(l, "statuses", statuses, pages.count);
    free(statuses);
    free(ids);
    free_list(&pages);
    return status;
}

static pkv_status pool_page_info(line *l) {
    pkv_page_info info = PKV_PAGE_INFO_INIT;
    const pkv_status status =
        pkv_pool_page_info(handle_arg(l, POOL, "pool"), group_arg(l), (pkv_page)number_arg(l, "page", 0), &info);
    if (status != PKV_OK) return status;
    out_number(l, "count", info.count);
    out_signed(l, "state", info.state);
    out_signed(l, "published", info.published);
    out_number(l, "block", info.block);
    out_number(l, "priority", info.priority);
    out_signed(l, "pinned", info.pinned);
    return status;
}

static void out_match(line *l, const pkv_match *match) {
    out_number(l, "match", match->tokens);
    out_number(l, "blocks", match->blocks);
    out_number(l, "resident", match->resident_tokens);
    out_number(l, "tier0", match->tier_tokens[0]);
    out_number(l, "tier1", match->tier_tokens[1]);
}

static pkv_status pool_lookup(line *l) {
    prompt_memory memory;
    pkv_match match = PKV_MATCH_INIT;
    const uint64_t capacity = number_arg(l, "capacity", 16);
    pkv_page pages[PKV_MAX_GROUPS * 64];
    if (capacity > 64) abort();
    const pkv_status status = pkv_pool_lookup(handle_arg(l, POOL, "pool"), prompt_arg(l, &memory), number_arg(l, "max_match", 0),
                                              pages, capacity, &match);
    if (status == PKV_OK) {
        out_match(l, &match);
        out_pages(l, "pages", pages, match.blocks);
        out_pages(l, "pages1", pages + capacity, number_arg(l, "groups", 1) > 1 ? match.blocks : 0);
    }
    free_prompt(&memory);
    return status;
}

static pkv_status pool_probe(line *l) {
    prompt_memory memory;
    pkv_match match = PKV_MATCH_INIT;
    const pkv_status status =
        pkv_pool_probe(handle_arg(l, POOL, "pool"), prompt_arg(l, &memory), number_arg(l, "max_match", 0), &match);
    if (status == PKV_OK) out_match(l, &match);
    free_prompt(&memory);
    return status;
}

static pkv_status pool_publish(line *l) {
    prompt_memory memory;
    list pages = list_arg(l, "pages");
    int32_t *const ids = narrow(&pages), *const owner = narrow(&pages);
    const pkv_status status = pkv_pool_publish(handle_arg(l, POOL, "pool"), group_arg(l), prompt_arg(l, &memory),
                                               number_arg(l, "first_block", 0), pages.count, ids, owner);
    if (status == PKV_OK) out_pages(l, "owner", owner, pages.count);
    free(owner);
    free(ids);
    free_list(&pages);
    free_prompt(&memory);
    return status;
}

static pkv_status pool_evict(line *l) {
    uint64_t evicted = 0;
    const pkv_status status =
        pkv_pool_evict(handle_arg(l, POOL, "pool"), group_arg(l), number_arg(l, "num_pages", 0), &evicted);
    if (status == PKV_OK) out_number(l, "evicted", evicted);
    return status;
}

static pkv_retention retention_args(line *l) {
    pkv_retention retention = PKV_RETENTION_INIT;
    retention.priority = (uint32_t)number_arg(l, "priority", PKV_PRIORITY_DEFAULT);
    retention.pin = (int32_t)number_arg(l, "pin", 0);
    retention.ttl_ns = number_arg(l, "ttl", 0);
    return retention;
}

static pkv_status pool_set_retention(line *l) {
    prompt_memory memory;
    uint64_t blocks = 0;
    const pkv_retention retention = retention_args(l);
    const pkv_status status =
        pkv_pool_set_retention(handle_arg(l, POOL, "pool"), prompt_arg(l, &memory), number_arg(l, "first_token", 0),
                               number_arg(l, "num_tokens", UINT64_MAX), &retention, &blocks);
    if (status == PKV_OK) out_number(l, "blocks", blocks);
    free_prompt(&memory);
    return status;
}

static pkv_status pool_set_namespace_retention(line *l) {
    pkv_namespace ns;
    const pkv_retention retention = retention_args(l);
    const bool none = number_arg(l, "none", 0) != 0;
    return pkv_pool_set_namespace_retention(handle_arg(l, POOL, "pool"), namespace_arg(l, &ns), none ? NULL : &retention);
}

static pkv_status pool_clear(line *l) {
    pkv_namespace ns;
    pkv_clear_result result = PKV_CLEAR_RESULT_INIT;
    const bool all = number_arg(l, "all", 0) != 0;
    const pkv_status status = all ? pkv_pool_clear_all(handle_arg(l, POOL, "pool"), &result)
                                  : pkv_pool_clear(handle_arg(l, POOL, "pool"), namespace_arg(l, &ns), &result);
    out_number(l, "freed", result.freed);
    out_number(l, "held", result.held);
    return status;
}

static pkv_status pool_keys(line *l) {
    prompt_memory memory;
    pkv_key keys[64];
    uint64_t count = 0;
    const uint64_t capacity = number_arg(l, "capacity", 64);
    if (capacity > 64) abort();
    const pkv_status status = pkv_pool_keys(handle_arg(l, POOL, "pool"), prompt_arg(l, &memory), keys, capacity, &count);
    out_number(l, "num_keys", count);
    if (status == PKV_OK && capacity != 0) out_digest(l, "digest", keys, count * sizeof *keys);
    free_prompt(&memory);
    return status;
}

static pkv_status pool_events(line *l) {
    pkv_event events[64];
    int64_t kinds[64], blocks[64];
    uint64_t count = 0, missed = 0;
    const uint64_t capacity = number_arg(l, "capacity", 64);
    if (capacity > 64) abort();
    const pkv_status status =
        pkv_pool_events(handle_arg(l, POOL, "pool"), number_arg(l, "after", 0), events, capacity, &count, &missed);
    if (status != PKV_OK) return status;
    for (uint64_t i = 0; i < count; ++i) kinds[i] = events[i].kind, blocks[i] = (int64_t)events[i].block;
    out_number(l, "count", count);
    out_number(l, "missed", missed);
    out_list(l, "kinds", kinds, count);
    out_list(l, "blocks", blocks, count);
    out_number(l, "last", count > 0 ? events[count - 1].sequence : 0);
    return status;
}

static pkv_status pool_write(line *l) {
    pkv_pool *const pool = handle_arg(l, POOL, "pool");
    const uint32_t layer = (uint32_t)number_arg(l, "layer", 0);
    list slots = list_arg(l, "slots");
    row_memory rows;
    pkv_sync sync;
    pkv_status status = PKV_OK;
    if (make_rows(l, pool, group_arg(l), layer, number_arg(l, "position", 0), slots.count, true, &rows))
        status = pkv_pool_write(pool, group_arg(l), layer, slots.count, slots.items, side(&rows, 0), side(&rows, 1),
                                sync_arg(l, &sync));
    free_rows(&rows);
    free_list(&slots);
    return status;
}

static pkv_status pool_gather(line *l) {
    pkv_pool *const pool = handle_arg(l, POOL, "pool");
    const uint32_t layer = (uint32_t)number_arg(l, "layer", 0);
    const uint64_t count = number_arg(l, "num_tokens", 0);
    list pages = list_arg(l, "pages");
    int32_t *const ids = narrow(&pages);
    row_memory rows;
    pkv_sync sync;
    pkv_status status = PKV_OK;
    if (make_rows(l, pool, group_arg(l), layer, 0, count, false, &rows))
        status = pkv_pool_gather(pool, group_arg(l), layer, pages.count, ids, number_arg(l, "first_token", 0), count,
                                 side(&rows, 0), side(&rows, 1), sync_arg(l, &sync));
    if (status == PKV_OK) out_rows(l, &rows);
    free_rows(&rows);
    free(ids);
    free_list(&pages);
    return status;
}

static pkv_status pool_copy_pages(line *l) {
    list src = list_arg(l, "src"), dst = list_arg(l, "dst");
    int32_t *const from = narrow(&src), *const to = narrow(&dst);
    pkv_sync sync;
    const pkv_status status =
        pkv_pool_copy_pages(handle_arg(l, POOL, "pool"), group_arg(l), src.count, from, to, sync_arg(l, &sync));
    if (src.count != dst.count) complain(l, "src and dst have as many pages");
    free(from);
    free(to);
    free_list(&src);
    free_list(&dst);
    return status;
}

static pkv_status pool_stats(line *l) {
    pkv_pool_stats stats = PKV_POOL_STATS_INIT;
    const pkv_status status = pkv_pool_get_stats(handle_arg(l, POOL, "pool"), group_arg(l), &stats);
    if (status != PKV_OK) return status;
#define FIELD(name) out_number(l, #name, stats.name)
    FIELD(num_pages);
    FIELD(free_pages);
    FIELD(held_pages);
    FIELD(cached_pages);
    FIELD(tables);
    FIELD(namespaces);
    FIELD(index_blocks);
    FIELD(page_bytes);
    FIELD(requests);
    FIELD(asked_tokens);
    FIELD(hit_tokens);
    FIELD(retries);
    FIELD(refused);
    FIELD(probes);
    FIELD(allocated_pages);
    FIELD(failed_allocations);
    FIELD(evicted_pages);
    FIELD(cleared_pages);
    FIELD(published_blocks);
    FIELD(unpublished_blocks);
    FIELD(duplicate_blocks);
    FIELD(key_collisions);
    FIELD(copied_pages);
    FIELD(partial_tokens);
    FIELD(shared_duplicates);
    FIELD(events);
    FIELD(pinned_pages);
    FIELD(stored_images);
    FIELD(dropped_images);
    FIELD(loaded_blocks);
    FIELD(spilled_blocks);
    FIELD(lost_blocks);
    FIELD(tier_hit_tokens);
    FIELD(image_bytes);
#undef FIELD
    out_signed(l, "key_seed", stats.key_seed);
    return status;
}

static pkv_status pool_image_keys(line *l) {
    prompt_memory memory;
    pkv_tier_key keys[64];
    uint64_t count = 0;
    const uint64_t capacity = number_arg(l, "capacity", 64);
    if (capacity > 64) abort();
    const pkv_status status =
        pkv_pool_image_keys(handle_arg(l, POOL, "pool"), group_arg(l), prompt_arg(l, &memory), keys, capacity, &count);
    out_number(l, "num_keys", count);
    if (status == PKV_OK && capacity != 0) out_digest(l, "digest", keys, count * sizeof *keys);
    free_prompt(&memory);
    return status;
}

/* Keys are those of the prompt's blocks. */
static pkv_status move(line *l, bool store) {
    pkv_pool *const pool = handle_arg(l, POOL, "pool");
    prompt_memory memory;
    pkv_tier_key keys[64];
    uint64_t count = 0;
    list pages = list_arg(l, "pages");
    int32_t *const ids = narrow(&pages);
    pkv_op_options options = PKV_OP_OPTIONS_INIT;
    pkv_sync sync;
    pkv_op *op = NULL;
    pkv_status status = pkv_pool_image_keys(pool, group_arg(l), prompt_arg(l, &memory), keys, 64, &count);
    if (has(l, "queue")) options.queue = handle_arg(l, QUEUE, "queue");
    options.user = number_arg(l, "user", 0);
    options.timeout_ns = number_arg(l, "timeout", 0);
    if (pages.count > count && status == PKV_OK) complain(l, "%d keys, fewer than pages", (int)count);
    if (status == PKV_OK)
        status = (store ? pkv_pool_store : pkv_pool_load)(pool, group_arg(l), pages.count, keys, ids, sync_arg(l, &sync), &options, &op);
    object *const o = make_object(l, OP, "op");
    if (o != NULL) o->handle = op;
    free(ids);
    free_list(&pages);
    free_prompt(&memory);
    return status;
}
static pkv_status pool_store(line *l) { return move(l, true); }
static pkv_status pool_load(line *l) { return move(l, false); }

const named_operation pool_operations[] = {
    {"version", version},
    {"status_name", status_name},
    {"dtype_bytes", dtype_bytes},
    {"digest", digest},
    {"counter", counter},
    {"predict", predict},
    {"group", group},
    {"pool.create", pool_create},
    {"pool.destroy", pool_destroy},
    {"pool.quiesce", pool_quiesce},
    {"pool.flush", pool_flush},
    {"pool.layout", pool_layout},
    {"pool.alloc", pool_alloc},
    {"pool.retain", pool_retain},
    {"pool.release", pool_release},
    {"pool.page_info", pool_page_info},
    {"pool.lookup", pool_lookup},
    {"pool.probe", pool_probe},
    {"pool.publish", pool_publish},
    {"pool.evict", pool_evict},
    {"pool.set_retention", pool_set_retention},
    {"pool.set_namespace_retention", pool_set_namespace_retention},
    {"pool.clear", pool_clear},
    {"pool.keys", pool_keys},
    {"pool.events", pool_events},
    {"pool.write", pool_write},
    {"pool.gather", pool_gather},
    {"pool.copy_pages", pool_copy_pages},
    {"pool.stats", pool_stats},
    {"pool.image_keys", pool_image_keys},
    {"pool.store", pool_store},
    {"pool.load", pool_load},
    {NULL, NULL},
};
