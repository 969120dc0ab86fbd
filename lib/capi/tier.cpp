// SPDX-License-Identifier: Apache-2.0
// tier.h and tier_ops.h, but what works on a pool: checks of handles and structs; the work is in tier/ and core/.
#include "tier/tier.h"

#include "capi/boundary.h"
#include "core/op.h"
#include "core/queue.h"
#include "tier/file.h"
#include "tier/host.h"

#include <cinttypes>

using pkv::boundary;
using pkv::check_array;
using pkv::check_out_struct;
using pkv::fail;
using pkv::not_null;
using pkv::Op;
using pkv::Pin;
using pkv::Queue;
using pkv::read_struct;
using pkv::Request;
using pkv::Tier;
using pkv::write_struct;

namespace {

pkv_status check(const pkv_host_tier_options &options) {
    if (options.reserved != 0) return fail(PKV_ERR_UNSUPPORTED, "reserved is %u, not 0", options.reserved);
    if (options.capacity_bytes < PKV_IMAGE_ALIGNMENT)
        return fail(PKV_ERR_INVALID, "capacity_bytes is %" PRIu64 ", less than %d", options.capacity_bytes,
                    PKV_IMAGE_ALIGNMENT);
    if (options.huge_pages < PKV_HUGE_PAGES_AUTO || options.huge_pages > PKV_HUGE_PAGES_REQUIRE)
        return fail(PKV_ERR_INVALID, "huge_pages is %d, none of PKV_HUGE_PAGES_*", options.huge_pages);
    return PKV_OK;
}

} // namespace

extern "C" {

// ---- tiers

pkv_status pkv_tier_open_host(const pkv_host_tier_options *options, pkv_tier **tier) {
    return boundary([&] {
        pkv_host_tier_options known;
        PKV_TRY(read_struct(options, known, "options"));
        PKV_TRY(not_null(tier, "tier"));
        PKV_TRY(check(known));
        std::shared_ptr<Tier> fresh;
        PKV_TRY(pkv::make_host_tier(known, fresh));
        return pkv::hand_out(std::move(fresh), tier);
    });
}

pkv_status pkv_tier_open_file(const pkv_file_tier_options *options, pkv_tier **tier) {
    return boundary([&] {
        pkv_file_tier_options known;
        PKV_TRY(read_struct(options, known, "options"));
        PKV_TRY(not_null(tier, "tier"));
        std::shared_ptr<Tier> fresh;
        PKV_TRY(pkv::make_file_tier(known, fresh));
        return pkv::hand_out(std::move(fresh), tier);
    });
}

pkv_status pkv_tier_open(const pkv_tier_ops *ops, void *context, pkv_tier **tier) {
    return boundary([&] {
        pkv_tier_ops known;
        PKV_TRY(read_struct(ops, known, "ops"));
        PKV_TRY(not_null(tier, "tier"));
        if (known.submit == nullptr) return fail(PKV_ERR_INVALID, "ops has no submit function");
        const auto close = known.close;
        known.close = nullptr; // not before success is certain: after a failure the context is the caller's
        auto fresh = std::make_shared<Tier>(known, context);
        Tier &made = *fresh;
        PKV_TRY(pkv::hand_out(std::move(fresh), tier));
        made.close_with(close); // nobody knows the handle yet
        return PKV_OK;
    });
}

pkv_status pkv_tier_close(pkv_tier *tier) {
    return boundary([&] {
        Pin<Tier> pin;
        PKV_TRY(pin.acquire(tier));
        return pin.close();
    });
}

pkv_status pkv_tier_get_stats(pkv_tier *tier, pkv_tier_stats *stats) {
    return boundary([&] {
        Pin<Tier> pin;
        PKV_TRY(pin.acquire(tier));
        PKV_TRY(check_out_struct(stats, "stats"));
        pkv_tier_stats value;
        pin->stats(value);
        write_struct(stats, value);
        return PKV_OK;
    });
}

pkv_status pkv_tier_complete(pkv_tier_request *request, uint64_t item, pkv_status status, uint64_t value) {
    return boundary([&] {
        const pkv::InCompletion scope; // ends after the pin
        Pin<Request> pin;
        PKV_TRY(pin.acquire(request));
        return pin->complete(item, status, value);
    });
}

// ---- queues

pkv_status pkv_queue_create(pkv_queue **queue) {
    return boundary([&] {
        PKV_TRY(not_null(queue, "queue"));
        std::shared_ptr<Queue> fresh;
        PKV_TRY(Queue::create(fresh));
        return pkv::hand_out(std::move(fresh), queue);
    });
}

pkv_status pkv_queue_destroy(pkv_queue *queue) {
    return boundary([&] {
        Pin<Queue> pin;
        PKV_TRY(pin.acquire(queue));
        PKV_TRY(pin.close());
        pin->close();
        return PKV_OK;
    });
}

pkv_status pkv_queue_handle(pkv_queue *queue, int32_t *fd) {
    return boundary([&] {
        Pin<Queue> pin;
        PKV_TRY(pin.acquire(queue));
        PKV_TRY(not_null(fd, "fd"));
        const int known = pin->fd();
        if (known < 0) return fail(PKV_ERR_HANDLE, "the queue was destroyed");
        *fd = known;
        return PKV_OK;
    });
}

pkv_status pkv_queue_drain(pkv_queue *queue, pkv_completion *completions, uint64_t capacity, uint64_t timeout_ns,
                           uint64_t *count) {
    return boundary([&] {
        Pin<Queue> pin;
        PKV_TRY(pin.acquire(queue));
        PKV_TRY(not_null(count, "count"));
        *count = 0;
        PKV_TRY(check_array(completions, capacity, "completions"));
        if (capacity == 0) return fail(PKV_ERR_INVALID, "capacity is 0");
        return pin->drain({completions, capacity}, timeout_ns, *count);
    });
}

// ---- operations

pkv_status pkv_op_poll(pkv_op *op, pkv_op_info *info, pkv_status *statuses, uint64_t capacity) {
    return boundary([&] {
        Pin<Op> pin;
        PKV_TRY(pin.acquire(op));
        PKV_TRY(check_out_struct(info, "info"));
        if (statuses != nullptr) PKV_TRY(check_array(statuses, capacity, "statuses"));
        pkv_op_info value;
        pin->info(value, {statuses, statuses != nullptr ? capacity : 0});
        write_struct(info, value);
        return PKV_OK;
    });
}

pkv_status pkv_op_wait(pkv_op *op, uint64_t timeout_ns) {
    return boundary([&] {
        Pin<Op> pin;
        PKV_TRY(pin.acquire(op));
        return pin->wait(timeout_ns);
    });
}

pkv_status pkv_op_cancel(pkv_op *op) {
    return boundary([&] {
        Pin<Op> pin;
        PKV_TRY(pin.acquire(op));
        pin->cancel();
        return PKV_OK;
    });
}

pkv_status pkv_op_close(pkv_op *op) {
    return boundary([&] {
        Pin<Op> pin;
        PKV_TRY(pin.acquire(op));
        return pin.close();
    });
}

} // extern "C"
