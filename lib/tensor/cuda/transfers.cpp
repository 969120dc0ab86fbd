// SPDX-License-Identifier: Apache-2.0
// Bytes and kernels.
#include "tensor/cuda/functions.h"
#include "tensor/cuda/runner.h"

#include <cinttypes>

namespace pkv::cuda {
namespace {

cudaStream_t stream_of(void *stream) { return static_cast<cudaStream_t>(stream); }

/// Copies whose two sides follow each other are one.
std::vector<pkv_device_copy> merge(const pkv_device_copy *copies, uint64_t count) {
    std::vector<pkv_device_copy> merged;
    merged.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
        const pkv_device_copy &next = copies[i];
        if (next.bytes == 0) continue;
        if (!merged.empty()) {
            pkv_device_copy &last = merged.back();
            if (static_cast<char *>(last.dst) + last.bytes == next.dst &&
                static_cast<const char *>(last.src) + last.bytes == next.src) {
                last.bytes += next.bytes;
                continue;
            }
        }
        merged.push_back(next);
    }
    return merged;
}

/// Whether the host's sides of all of them are pinned: a batch does not promise to wait where they are not.
bool all_pinned(const std::vector<pkv_device_copy> &copies, int32_t direction) {
    if (direction == PKV_DEVICE_TO_DEVICE) return true;
    for (const pkv_device_copy &one : copies) {
        cudaPointerAttributes attributes{};
        const void *const host = direction == PKV_DEVICE_TO_HOST ? one.dst : one.src;
        if (cudaPointerGetAttributes(&attributes, host) != cudaSuccess || attributes.type == cudaMemoryTypeUnregistered)
            return false;
    }
    return true;
}

/// All at once. False: the driver cannot, or would not.
bool copy_batch(cudaStream_t stream, const std::vector<pkv_device_copy> &copies) {
    const size_t count = copies.size();
    std::vector<CUdeviceptr> dst(count);
    std::vector<CUdeviceptr> src(count);
    std::vector<size_t> bytes(count);
    for (size_t i = 0; i < count; ++i) {
        dst[i] = static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(copies[i].dst));
        src[i] = static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(copies[i].src));
        bytes[i] = copies[i].bytes;
    }
    BatchAttributes attributes{};
    attributes.source_order = 1;
    size_t from = 0;
    if (driver().copy_batch != nullptr)
        return driver().copy_batch(dst.data(), src.data(), bytes.data(), count, &attributes, &from, 1, stream) ==
               CUDA_SUCCESS;
    size_t failed = 0;
    return driver().copy_batch_12 != nullptr &&
           driver().copy_batch_12(dst.data(), src.data(), bytes.data(), count, &attributes, &from, 1, &failed,
                                  stream) == CUDA_SUCCESS;
}

pkv_status copy(pkv_device_context *context, void *stream, int32_t direction, const pkv_device_copy *copies,
                uint64_t num_copies, char *text, size_t text_bytes) {
    const Why why(text, text_bytes);
    static constexpr cudaMemcpyKind kinds[] = {cudaMemcpyDeviceToHost, cudaMemcpyHostToDevice,
                                               cudaMemcpyDeviceToDevice};
    if (direction < PKV_DEVICE_TO_HOST || direction > PKV_DEVICE_TO_DEVICE || (copies == nullptr && num_copies != 0))
        return why.fail(PKV_ERR_INVALID, "direction %d, or copies are NULL", direction);
    for (uint64_t i = 0; i < num_copies; ++i)
        if (copies[i].bytes != 0 && (copies[i].dst == nullptr || copies[i].src == nullptr))
            return why.fail(PKV_ERR_INVALID, "copies[%" PRIu64 "]: dst or src is NULL", i);
    return in_context(context, why, [&]() -> pkv_status {
        const std::vector<pkv_device_copy> merged = merge(copies, num_copies);
        // Batches are for the context's own streams: they take neither the legacy stream nor one that is being
        // captured. What one refuses, perhaps in the middle, is copied one by one: the same bytes to the same places.
        if (merged.size() > 1 && context->facts.batched_copies != 0 && context->owns(stream_of(stream)) &&
            all_pinned(merged, direction) && copy_batch(stream_of(stream), merged))
            return PKV_OK;
        for (const pkv_device_copy &one : merged) {
            const cudaError_t error = cudaMemcpyAsync(one.dst, one.src, one.bytes, kinds[direction], stream_of(stream));
            if (const pkv_status status = check(error, "a copy", why); status != PKV_OK) return status;
        }
        return PKV_OK;
    });
}

pkv_status fill(pkv_device_context *context, void *stream, void *address, uint8_t value, uint64_t bytes, char *text,
                size_t text_bytes) {
    const Why why(text, text_bytes);
    if (bytes == 0) return PKV_OK;
    if (address == nullptr) return why.fail(PKV_ERR_INVALID, "the address is NULL");
    return in_context(context, why, [&] {
        return check(cudaMemsetAsync(address, value, bytes, stream_of(stream)), "filling memory", why);
    });
}

/// Runs a plan in a stream.
template <class Plan>
pkv_status planned(pkv_device_context *context, void *stream, char *text, size_t text_bytes, const void *arguments,
                   Plan plan) {
    const Why why(text, text_bytes);
    if (arguments == nullptr) return why.fail(PKV_ERR_INVALID, "the arguments are NULL");
    return in_context(context, why, [&]() -> pkv_status {
        DeviceRunner runner(*context, stream_of(stream));
        try {
            return runner.finish(plan(runner, why), why);
        } catch (...) {
            (void)runner.finish(PKV_ERR_NO_MEMORY, why);
            throw;
        }
    });
}

pkv_status write(pkv_device_context *context, void *stream, const pkv_device_write *write, char *text,
                 size_t text_bytes) {
    return planned(context, stream, text, text_bytes, write,
                   [&](Runner &runner, const Why &why) { return plan_write(*write, runner, why); });
}

pkv_status gather(pkv_device_context *context, void *stream, const pkv_device_gather *gather, char *text,
                  size_t text_bytes) {
    return planned(context, stream, text, text_bytes, gather,
                   [&](Runner &runner, const Why &why) { return plan_gather(*gather, runner, why); });
}

pkv_status copy_between(pkv_device_context *context, void *stream, const pkv_device_layer *from,
                        const pkv_device_layer *to, uint32_t num_layers, uint64_t num_pages, const int32_t *src,
                        const int32_t *dst, const uint32_t *tokens, uint32_t max_blocks, char *text,
                        size_t text_bytes) {
    const PagePairs pairs{from, to, num_layers, num_pages, src, dst, tokens, max_blocks};
    return planned(context, stream, text, text_bytes, &pairs,
                   [&](Runner &runner, const Why &why) { return plan_copy(pairs, runner, why); });
}

pkv_status copy_pages(pkv_device_context *context, void *stream, const pkv_device_layer *layers, uint32_t num_layers,
                      uint64_t num_pages, const int32_t *src, const int32_t *dst, const uint32_t *tokens,
                      uint32_t max_blocks, char *text, size_t text_bytes) {
    return copy_between(context, stream, layers, layers, num_layers, num_pages, src, dst, tokens, max_blocks, text,
                        text_bytes);
}

template <bool packs>
pkv_status slices(pkv_device_context *context, void *stream, const pkv_device_layer *layers, uint32_t num_layers,
                  const pkv_device_slice *list, uint64_t num_slices, uint32_t max_blocks, char *text,
                  size_t text_bytes) {
    const SliceList all{layers, num_layers, list, num_slices, max_blocks};
    return planned(context, stream, text, text_bytes, &all,
                   [&](Runner &runner, const Why &why) { return plan_slices(all, packs, runner, why); });
}

} // namespace

void fill_transfers(pkv_device_table &table) {
    table.copy = copy;
    table.fill = fill;
    table.write = write;
    table.gather = gather;
    table.copy_pages = copy_pages;
    table.copy_between = copy_between;
    table.pack = slices<true>;
    table.unpack = slices<false>;
}

} // namespace pkv::cuda
