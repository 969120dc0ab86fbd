// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda/runner.h"

#include "tensor/cuda/kernels.h"

#include <cinttypes>

namespace pkv::cuda {

uint32_t DeviceRunner::threads() const { return block_threads; }

pkv_status DeviceRunner::stage(const void *bytes, uint64_t count, const std::byte *&address, const Why &why) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (const pkv_status status = check(cudaStreamIsCapturing(stream_, &capture), "the stream", why); status != PKV_OK)
        return status;
    if (capture != cudaStreamCaptureStatusNone)
        return why.fail(PKV_ERR_CAPTURE,
                        "host arrays of %" PRIu64 " bytes, above %d, in a stream that is being captured", count,
                        PKV_DEVICE_INLINE_BYTES);
    taken_.reserve(taken_.size() + 1);
    Staging::Piece *piece = nullptr;
    if (const pkv_status status = context_.staging.take(count, piece, why); status != PKV_OK) return status;
    taken_.push_back(piece);
    std::memcpy(piece->host, bytes, count);
    address = reinterpret_cast<const std::byte *>(piece->device);
    return check(cudaMemcpyAsync(piece->device, piece->host, count, cudaMemcpyHostToDevice, stream_),
                 "a copy of arrays", why);
}

pkv_status DeviceRunner::run(const Kernel &kernel, const void *params, size_t, uint64_t blocks, const Why &why) {
    const void *const function = kernel_of(kernel);
    if (function == nullptr) return why.fail(PKV_ERR_INTERNAL, "there is no such kernel");
    void *arguments[] = {const_cast<void *>(params)};
    return check(
        cudaLaunchKernel(function, dim3(static_cast<unsigned>(blocks)), dim3(block_threads), arguments, 0, stream_),
        "a launch", why);
}

pkv_status DeviceRunner::finish(pkv_status plan, const Why &why) {
    for (Staging::Piece *piece : taken_) {
        // The plan's failure is the one to be told.
        const pkv_status status = context_.staging.give_back(piece, stream_, plan == PKV_OK ? why : Why(nullptr, 0));
        if (plan == PKV_OK) plan = status;
    }
    return plan;
}

} // namespace pkv::cuda
