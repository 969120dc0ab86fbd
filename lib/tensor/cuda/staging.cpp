// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda/staging.h"

#include <bit>
#include <cinttypes>

namespace pkv::cuda {
namespace {

// Slots of a decode step, and those of a prefill.
constexpr uint64_t small_bytes = uint64_t{16} << 10;
constexpr uint64_t large_bytes = uint64_t{256} << 10;
constexpr uint64_t num_small = 64;
constexpr uint64_t num_large = 8;

uint64_t size_for(uint64_t bytes) {
    return bytes <= small_bytes ? small_bytes : bytes <= large_bytes ? large_bytes : std::bit_ceil(bytes);
}

} // namespace

pkv_status Staging::make_block(uint64_t bytes, Block &block, const Why &why) {
    blocks_.reserve(blocks_.size() + 1);
    const cudaError_t error = cudaHostAlloc(&block.host, bytes, cudaHostAllocPortable);
    if (const pkv_status status = check(error, "pinned memory for arrays", why); status != PKV_OK) return status;
    if (const pkv_status status = check(cudaMalloc(&block.device, bytes), "device memory for arrays", why);
        status != PKV_OK) {
        (void)cudaFreeHost(block.host);
        return status;
    }
    blocks_.push_back(block);
    total_ += bytes;
    return PKV_OK;
}

pkv_status Staging::make_piece(const Block &block, uint64_t offset, uint64_t bytes, const Why &why) {
    auto made = std::make_unique<Piece>();
    pieces_.reserve(pieces_.size() + 1);
    const cudaError_t error = cudaEventCreateWithFlags(&made->passed, cudaEventDisableTiming);
    if (const pkv_status status = check(error, "an event for arrays", why); status != PKV_OK) return status;
    made->host = static_cast<char *>(block.host) + offset;
    made->device = static_cast<char *>(block.device) + offset;
    made->bytes = bytes;
    pieces_.push_back(std::move(made));
    return PKV_OK;
}

pkv_status Staging::prepare(const Why &why) {
    const std::lock_guard lock(mutex_);
    Block block;
    pkv_status status = make_block(num_small * small_bytes + num_large * large_bytes, block, why);
    for (uint64_t i = 0; i < num_small && status == PKV_OK; ++i)
        status = make_piece(block, i * small_bytes, small_bytes, why);
    for (uint64_t i = 0; i < num_large && status == PKV_OK; ++i)
        status = make_piece(block, num_small * small_bytes + i * large_bytes, large_bytes, why);
    return status;
}

pkv_status Staging::take(uint64_t bytes, Piece *&piece, const Why &why) {
    if (bytes > most_bytes)
        return why.fail(PKV_ERR_LIMIT, "host arrays of %" PRIu64 " bytes, above %" PRIu64, bytes, most_bytes);
    const uint64_t wanted = size_for(bytes);
    const std::lock_guard lock(mutex_);
    Piece *best = nullptr;
    const size_t count = pieces_.size();
    for (size_t i = 0; i < count && (best == nullptr || best->bytes != wanted); ++i) {
        Piece *const one = pieces_[(next_ + i) % count].get();
        if (one->taken || one->bytes < wanted || (best != nullptr && best->bytes <= one->bytes)) continue;
        if (cudaEventQuery(one->passed) != cudaSuccess) continue;
        best = one;
        if (one->bytes == wanted) next_ = (next_ + i + 1) % count;
    }
    if (best == nullptr) {
        if (wanted > most_bytes - total_)
            return why.fail(PKV_ERR_AGAIN,
                            "host arrays of %" PRIu64
                            " bytes: the device has still to read those of earlier calls, %" PRIu64
                            " bytes at most at a time",
                            bytes, most_bytes);
        Block block;
        if (const pkv_status status = make_block(wanted, block, why); status != PKV_OK) return status;
        if (const pkv_status status = make_piece(block, 0, wanted, why); status != PKV_OK) return status;
        best = pieces_.back().get();
    }
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

void Staging::clear() {
    const std::lock_guard lock(mutex_);
    bool all_passed = true;
    for (const auto &piece : pieces_) {
        all_passed = all_passed && !piece->taken && cudaEventSynchronize(piece->passed) == cudaSuccess;
        (void)cudaEventDestroy(piece->passed);
    }
    pieces_.clear();
    // Freeing what may still be read is worse than keeping it.
    for (const Block &block : blocks_) {
        if (!all_passed) continue;
        (void)cudaFree(block.device);
        (void)cudaFreeHost(block.host);
    }
    blocks_.clear();
    total_ = 0;
}

} // namespace pkv::cuda
