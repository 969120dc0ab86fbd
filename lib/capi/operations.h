// SPDX-License-Identifier: Apache-2.0
// How public functions begin an operation.
#pragma once

#include "capi/boundary.h"
#include "core/op.h"
#include "core/queue.h"

#include <pagedkv/tier.h>

#include <memory>

namespace pkv {

constexpr uint64_t default_op_timeout_ns = 30'000'000'000;

/// Checks how an operation is to report, makes it and its handle, and begins it: `begin(op, timeout_ns)`.
template <class Begin>
pkv_status begin_op(uint64_t num_items, const pkv_op_options *options, pkv_op **op, Begin &&begin) {
    pkv_op_options known = PKV_OP_OPTIONS_INIT;
    if (options != nullptr) PKV_TRY(read_struct(options, known, "options"));
    if (op == nullptr && known.queue == nullptr) return fail(PKV_ERR_INVALID, "op is NULL, and there is no queue");
    std::shared_ptr<Queue> queue;
    if (known.queue != nullptr) {
        Pin<Queue> pin;
        PKV_TRY(pin.acquire(known.queue));
        queue = pin->shared_from_this();
    }
    const auto fresh = std::make_shared<Op>(num_items, std::move(queue), known.user);
    pkv_op *handle = nullptr;
    PKV_TRY(hand_out(fresh, &handle));
    fresh->set_handle(handle);
    pkv_status status = PKV_ERR_NO_MEMORY;
    try {
        status = begin(fresh, known.timeout_ns != 0 ? known.timeout_ns : default_op_timeout_ns);
    } catch (const std::bad_alloc &) {
        fail(status, "no memory to begin the operation");
    }
    if (status != PKV_OK) {
        Pin<Op> pin;
        if (pin.acquire(handle) == PKV_OK) pin.close();
        return status;
    }
    if (op != nullptr) *op = handle;
    return PKV_OK;
}

} // namespace pkv
