/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of tiers, queues and asynchronous operations. */
#include "runner.h"

#include <stdlib.h>

static pkv_status tier_host(line *l) {
    pkv_host_tier_options options = PKV_HOST_TIER_OPTIONS_INIT;
    pkv_tier *tier = NULL;
    options.capacity_bytes = number_arg(l, "capacity", 0);
    const pkv_status status = pkv_tier_open_host(&options, &tier);
    object *const o = make_object(l, TIER, "tier");
    if (o != NULL) o->handle = tier;
    return status;
}

static pkv_status tier_file(line *l) {
    static const char *const engines[] = {"auto", "uring", "threads", NULL};
    pkv_file_tier_options options = PKV_FILE_TIER_OPTIONS_INIT;
    pkv_tier *tier = NULL;
    options.path = scratch_path(text_arg(l, "path", "file"));
    options.capacity_bytes = number_arg(l, "capacity", 0);
    options.max_images = number_arg(l, "max_images", 0);
    options.identity = bytes_arg(l, "identity");
    options.engine = name_arg(l, "engine", engines, 0, PKV_IO_AUTO);
    options.threads = (uint32_t)number_arg(l, "threads", 0);
    options.flags = (uint32_t)number_arg(l, "flags", 0);
    options.lock_timeout_ns = number_arg(l, "lock_timeout", 0);
    const pkv_status status = pkv_tier_open_file(&options, &tier);
    object *const o = make_object(l, TIER, "tier");
    if (o != NULL) o->handle = tier;
    return status;
}

static pkv_status tier_close(line *l) { return pkv_tier_close(handle_arg(l, TIER, "tier")); }

static pkv_status tier_stats(line *l) {
    pkv_tier_stats stats = PKV_TIER_STATS_INIT;
    const pkv_status status = pkv_tier_get_stats(handle_arg(l, TIER, "tier"), &stats);
    if (status != PKV_OK) return status;
    out_number(l, "lookups", stats.lookups);
    out_number(l, "hits", stats.hits);
    out_number(l, "loads", stats.loads);
    out_number(l, "failed_loads", stats.failed_loads);
    out_number(l, "stores", stats.stores);
    out_number(l, "failed_stores", stats.failed_stores);
    out_number(l, "bytes_loaded", stats.bytes_loaded);
    out_number(l, "bytes_stored", stats.bytes_stored);
    out_number(l, "checksum_failures", stats.checksum_failures);
    out_number(l, "capacity_bytes", stats.usage.capacity_bytes);
    out_number(l, "used_bytes", stats.usage.used_bytes);
    out_number(l, "images", stats.usage.images);
    out_number(l, "pinned_images", stats.usage.pinned_images);
    out_number(l, "evicted_images", stats.usage.evicted_images);
    out_number(l, "recovered_images", stats.usage.recovered_images);
    out_number(l, "io_errors", stats.usage.io_errors);
    return status;
}

static pkv_status queue_create(line *l) {
    pkv_queue *queue = NULL;
    const pkv_status status = pkv_queue_create(&queue);
    object *const o = make_object(l, QUEUE, "queue");
    if (o != NULL) o->handle = queue;
    return status;
}

static pkv_status queue_destroy(line *l) { return pkv_queue_destroy(handle_arg(l, QUEUE, "queue")); }

static pkv_status queue_handle(line *l) {
    int32_t fd = -1;
    const pkv_status status = pkv_queue_handle(handle_arg(l, QUEUE, "queue"), &fd);
    out_number(l, "valid", fd >= 0);
    return status;
}

static pkv_status queue_drain(line *l) {
    pkv_completion completions[16];
    uint64_t users[16];
    pkv_status statuses[16];
    uint64_t count = 0;
    const uint64_t capacity = number_arg(l, "capacity", 16);
    if (capacity > 16) abort();
    const pkv_status status =
        pkv_queue_drain(handle_arg(l, QUEUE, "queue"), completions, capacity, number_arg(l, "timeout", 0), &count);
    for (uint64_t i = 0; i < count; ++i) users[i] = completions[i].user, statuses[i] = completions[i].status;
    out_unsigned(l, "users", users, count);
    out_statuses(l, "statuses", statuses, count);
    return status;
}

static pkv_status op_poll(line *l) {
    pkv_op_info info = PKV_OP_INFO_INIT;
    pkv_status statuses[64];
    const pkv_status status = pkv_op_poll(handle_arg(l, OP, "op"), &info, statuses, 64);
    if (status != PKV_OK) return status;
    out_signed(l, "state", info.state);
    out_text(l, "result", short_status(info.status));
    out_number(l, "num_items", info.num_items);
    out_number(l, "done_items", info.done_items);
    out_number(l, "good_items", info.good_items);
    if (info.num_items <= 64) out_statuses(l, "statuses", statuses, info.num_items);
    return status;
}

static pkv_status op_wait(line *l) { return pkv_op_wait(handle_arg(l, OP, "op"), number_arg(l, "timeout", UINT64_MAX)); }
static pkv_status op_cancel(line *l) { return pkv_op_cancel(handle_arg(l, OP, "op")); }
static pkv_status op_close(line *l) { return pkv_op_close(handle_arg(l, OP, "op")); }

const named_operation tier_operations[] = {
    {"tier.host", tier_host},
    {"tier.file", tier_file},
    {"tier.close", tier_close},
    {"tier.stats", tier_stats},
    {"queue.create", queue_create},
    {"queue.destroy", queue_destroy},
    {"queue.handle", queue_handle},
    {"queue.drain", queue_drain},
    {"op.poll", op_poll},
    {"op.wait", op_wait},
    {"op.cancel", op_cancel},
    {"op.close", op_close},
    {NULL, NULL},
};
