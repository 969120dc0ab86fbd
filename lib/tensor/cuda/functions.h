// SPDX-License-Identifier: Apache-2.0
// The functions of the table, by what they are about: memory.cpp, streams.cpp, transfers.cpp. device_table.h says what
// each does.
#pragma once

#include "tensor/cuda/device.h"

#include <new>

namespace pkv::cuda {

/// Runs a function of the table in the scope of its context: what the standard library throws ends here.
template <class Body> pkv_status in_context(pkv_device_context *context, const Why &why, Body body) noexcept {
    if (context == nullptr) return why.fail(PKV_ERR_INVALID, "the context is NULL");
    try {
        const Scope scope(context->primary);
        if (const pkv_status status = scope.entered(why); status != PKV_OK) return status;
        return body();
    } catch (const std::bad_alloc &) {
        return why.fail(PKV_ERR_NO_MEMORY, "no memory");
    } catch (...) {
        return why.fail(PKV_ERR_INTERNAL, "an exception");
    }
}

void fill_memory(pkv_device_table &table);
void fill_streams(pkv_device_table &table);
void fill_transfers(pkv_device_table &table);

} // namespace pkv::cuda
