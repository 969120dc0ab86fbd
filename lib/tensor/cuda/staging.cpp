// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda/staging.h"

#include <bit>
#include <cinttypes>

namespace pkv::cuda {
namespace {

constexpr uint64_t least_bytes = uint64_t{256} << 10;
constexpr int prepared = 4;

} // namespace

pkv_status Staging::make(uint64_t bytes, Piece *&piece, const Why &why) {
    bytes = bytes <= least_bytes ? least_bytes : std::bit_ceil(bytes);
    if (bytes > most_bytes - total_)
        return why.fail(PKV_ERR_AGAIN,
                        "host arrays of %" PRIu64 " bytes: the device still reads those of earlier calls, %" PRIu64
                        " bytes at most at a time",
                        bytes, most_bytes);
    auto made = std::make_unique<Piece>();
    pkv_status status = check(cudaHostAlloc(&made->host, bytes, cudaHostAllocDefault), "pinned memory for arrays", why);
    if (status == PKV_OK) status = check(cudaMalloc(&made->device, bytes), "device memory for arrays", why);
    if (status == PKV_OK)
        status = check(cudaEventCreateWithFlags(&made->passed, cudaEventDisableTiming), "an event for arrays", why);
    if (status != PKV_OK) {
        if (made->device != nullptr) (void)cudaFree(made->device);
        if (made->host != nullptr) (void)cudaFreeHost(made->host);
        return status;
    }
    made->bytes = bytes;
    pieces_.push_back(std::move(made));
    total_ += bytes;
    piece = pieces_.back().get();
    return PKV_OK;
}

pkv_status Staging::take(uint64_t bytes, Piece *&piece, const Why &why) {
    if (bytes > most_bytes)
        return why.fail(PKV_ERR_LIMIT, "host arrays of %" PRIu64 " bytes, above %" PRIu64, bytes, most_bytes);
    const std::lock_guard lock(mutex_);
    Piece *best = nullptr;
    for (const auto &one : pieces_) {
        if (one->taken || one->bytes < bytes || (best != nullptr && best->bytes <= one->bytes)) continue;
        if (cudaEventQuery(one->passed) == cudaSuccess) best = one.get();
    }
    if (best == nullptr)
        if (const pkv_status status = make(bytes, best, why); status != PKV_OK) return status;
    best->taken = true;
    piece = best;
    return PKV_OK;
}

pkv_status Staging::give_back(Piece *piece, cudaStream_t stream, const Why &why) {
    const pkv_status status = check(cudaEventRecord(piece->passed, stream), "an event behind arrays", why);
    const std::lock_guard lock(mutex_);
    if (status == PKV_OK) piece->taken = false;
    return status;
}

pkv_status Staging::prepare(const Why &why) {
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < prepared; ++i) {
        Piece *piece = nullptr;
        if (const pkv_status status = make(least_bytes, piece, why); status != PKV_OK) return status;
    }
    return PKV_OK;
}

void Staging::clear() {
    const std::lock_guard lock(mutex_);
    for (const auto &piece : pieces_) {
        if (piece->taken) continue; // freeing what may still be read is worse than keeping it
        (void)cudaEventSynchronize(piece->passed);
        (void)cudaEventDestroy(piece->passed);
        (void)cudaFree(piece->device);
        (void)cudaFreeHost(piece->host);
    }
    pieces_.clear();
    total_ = 0;
}

} // namespace pkv::cuda
