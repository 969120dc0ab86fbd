// SPDX-License-Identifier: Apache-2.0
// The plug-in: its table, and its only exported function.
#include "tensor/cuda/functions.h"

#include <cstring>
#include <memory>

namespace pkv::cuda {
namespace {

pkv_status available(int32_t index, char *text, size_t text_bytes) {
    return device_available(index, Why(text, text_bytes));
}

int32_t count() { return device_count(); }

pkv_status open(int32_t index, pkv_device_context **context, char *text, size_t text_bytes) {
    const Why why(text, text_bytes);
    if (context == nullptr) return why.fail(PKV_ERR_INVALID, "context is NULL");
    *context = nullptr;
    try {
        auto opened = std::make_unique<pkv_device_context>();
        if (const pkv_status status = opened->open(index, why); status != PKV_OK) {
            opened->close();
            return status;
        }
        *context = opened.release();
        return PKV_OK;
    } catch (const std::bad_alloc &) {
        return why.fail(PKV_ERR_NO_MEMORY, "no memory");
    } catch (...) {
        return why.fail(PKV_ERR_INTERNAL, "an exception");
    }
}

void close(pkv_device_context *context) {
    if (context == nullptr) return;
    context->close();
    delete context;
}

pkv_status facts(pkv_device_context *context, pkv_device_facts *facts, char *text, size_t text_bytes) {
    const Why why(text, text_bytes);
    if (context == nullptr || facts == nullptr || facts->struct_size < sizeof(size_t))
        return why.fail(PKV_ERR_INVALID, "context or facts is NULL, or struct_size is not set");
    const size_t size = facts->struct_size;
    std::memcpy(facts, &context->facts, size < sizeof *facts ? size : sizeof *facts);
    facts->struct_size = size;
    return PKV_OK;
}

} // namespace
} // namespace pkv::cuda

extern "C" [[gnu::visibility("default")]] const pkv_device_table *pkv_device_plugin(void) {
    static const pkv_device_table table = [] {
        pkv_device_table filled{};
        filled.struct_size = sizeof filled;
        filled.version = PKV_DEVICE_VERSION;
        filled.kind = "cuda";
        filled.available = pkv::cuda::available;
        filled.count = pkv::cuda::count;
        filled.open = pkv::cuda::open;
        filled.close = pkv::cuda::close;
        filled.facts = pkv::cuda::facts;
        pkv::cuda::fill_memory(filled);
        pkv::cuda::fill_streams(filled);
        pkv::cuda::fill_transfers(filled);
        return filled;
    }();
    return &table;
}
