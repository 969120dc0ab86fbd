// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda/functions.h"

#include <cinttypes>

namespace pkv::cuda {
namespace {

pkv_status allocate(pkv_device_context *context, uint64_t bytes, void **address, char *text, size_t text_bytes) {
    const Why why(text, text_bytes);
    if (address == nullptr || bytes == 0) return why.fail(PKV_ERR_INVALID, "address is NULL, or bytes are 0");
    *address = nullptr;
    return in_context(context, why, [&] {
        char what[64];
        std::snprintf(what, sizeof what, "%" PRIu64 " bytes of device memory", bytes);
        return check(cudaMalloc(address, bytes), what, why);
    });
}

void release(pkv_device_context *context, void *address) {
    if (address == nullptr) return;
    (void)in_context(context, Why(nullptr, 0), [&] {
        (void)cudaFree(address);
        return PKV_OK;
    });
}

pkv_status allocate_pinned(pkv_device_context *context, uint64_t bytes, void **address, char *text, size_t text_bytes) {
    const Why why(text, text_bytes);
    if (address == nullptr || bytes == 0) return why.fail(PKV_ERR_INVALID, "address is NULL, or bytes are 0");
    *address = nullptr;
    return in_context(context, why, [&] {
        char what[64];
        std::snprintf(what, sizeof what, "%" PRIu64 " bytes of pinned memory", bytes);
        return check(cudaHostAlloc(address, bytes, cudaHostAllocPortable | cudaHostAllocMapped), what, why);
    });
}

void release_pinned(pkv_device_context *context, void *address) {
    if (address == nullptr) return;
    (void)in_context(context, Why(nullptr, 0), [&] {
        (void)cudaFreeHost(address);
        return PKV_OK;
    });
}

pkv_status pin(pkv_device_context *context, void *address, uint64_t bytes, char *text, size_t text_bytes) {
    const Why why(text, text_bytes);
    if (address == nullptr || bytes == 0) return why.fail(PKV_ERR_INVALID, "address is NULL, or bytes are 0");
    return in_context(context, why, [&]() -> pkv_status {
        char what[64];
        std::snprintf(what, sizeof what, "pinning %" PRIu64 " bytes", bytes);
        const cudaError_t error = cudaHostRegister(address, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
        if (const pkv_status status = check(error, what, why); status != PKV_OK) return status;
        void *seen = nullptr;
        pkv_status status = check(cudaHostGetDevicePointer(&seen, address, 0), what, why);
        if (status == PKV_OK && seen != address)
            status = why.fail(PKV_ERR_UNSUPPORTED, "pinned memory has another address on device %d", context->index);
        if (status != PKV_OK) (void)cudaHostUnregister(address);
        return status;
    });
}

void unpin(pkv_device_context *context, void *address) {
    if (address == nullptr) return;
    (void)in_context(context, Why(nullptr, 0), [&] {
        (void)cudaHostUnregister(address);
        return PKV_OK;
    });
}

pkv_status address_kind(pkv_device_context *context, const void *address, int32_t *kind, char *text,
                        size_t text_bytes) {
    const Why why(text, text_bytes);
    if (kind == nullptr) return why.fail(PKV_ERR_INVALID, "kind is NULL");
    return in_context(context, why, [&]() -> pkv_status {
        cudaPointerAttributes attributes{};
        if (const pkv_status status = check(cudaPointerGetAttributes(&attributes, address), "an address", why);
            status != PKV_OK)
            return status;
        switch (attributes.type) {
        case cudaMemoryTypeHost: *kind = PKV_ADDRESS_PINNED; break;
        case cudaMemoryTypeDevice:
            *kind = attributes.device == context->index ? PKV_ADDRESS_DEVICE : PKV_ADDRESS_OTHER;
            break;
        case cudaMemoryTypeManaged: *kind = PKV_ADDRESS_MANAGED; break;
        default: *kind = PKV_ADDRESS_HOST; break;
        }
        return PKV_OK;
    });
}

} // namespace

void fill_memory(pkv_device_table &table) {
    table.alloc = allocate;
    table.free = release;
    table.alloc_pinned = allocate_pinned;
    table.free_pinned = release_pinned;
    table.pin = pin;
    table.unpin = unpin;
    table.address_kind = address_kind;
}

} // namespace pkv::cuda
