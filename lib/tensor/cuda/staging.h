// SPDX-License-Identifier: Apache-2.0
// Arrays of a call's on their way to the device: pinned memory that they are copied to before the call returns, and
// memory of the device where its kernels read them. A piece is used again when the work behind it has passed.
#pragma once

#include "tensor/cuda/errors.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace pkv::cuda {

/// In the context that is current. Thread-safe.
class Staging {
  public:
    struct Piece {
        char *host = nullptr;
        char *device = nullptr;
        uint64_t bytes = 0;
        cudaEvent_t passed = nullptr; ///< behind the last reader
        bool taken = false;
    };

    /// Of all pieces together. Past it arrays have to wait (PKV_ERR_AGAIN) until the device has read others.
    static constexpr uint64_t most_bytes = uint64_t{256} << 20;

    /// Makes pieces for as many calls as a device is mostly behind: allocations may wait for it.
    pkv_status prepare(const Why &why);
    /// A piece for `bytes` bytes that nothing reads any more.
    pkv_status take(uint64_t bytes, Piece *&piece, const Why &why);
    /// Its readers are in `stream`, up to here. Failure: whether they have passed cannot be told, and the piece is not
    /// used again.
    pkv_status give_back(Piece *piece, cudaStream_t stream, const Why &why);
    /// Waits for all readers and frees everything.
    void clear();

  private:
    struct Block { // of memory, on both sides
        void *host = nullptr;
        void *device = nullptr;
    };

    pkv_status make_block(uint64_t bytes, Block &block, const Why &why);
    pkv_status make_piece(const Block &block, uint64_t offset, uint64_t bytes, const Why &why);

    std::mutex mutex_;
    std::vector<Block> blocks_;
    std::vector<std::unique_ptr<Piece>> pieces_;
    size_t next_ = 0;    // the piece to be looked at first: that of the longest ago
    uint64_t total_ = 0; // bytes
};

} // namespace pkv::cuda
