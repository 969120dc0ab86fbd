// SPDX-License-Identifier: Apache-2.0
// From what the table is asked for to launches: arguments are checked, layers of one shape go into one launch, the
// access width and the share of each team are chosen. Nothing here knows CUDA: a Runner launches, on a device or on an
// emulated grid.
//
// plan_write.cpp, plan_gather.cpp, plan_copy.cpp (pages and slices); plan.cpp: what they share.
#pragma once

#include "tensor/cuda/kernel.h"
#include "tensor/cuda/params.cuh"
#include "tensor/cuda/why.h"
#include "tensor/device_table.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pkv::cuda {

/// What launches.
class Runner {
  public:
    virtual ~Runner() = default;

    virtual uint32_t threads() const = 0;                            ///< of a block
    virtual uint64_t blocks_at_once(const Kernel &kernel) const = 0; ///< that the whole device runs
    /// Copies bytes to where the next launches can read them.
    virtual pkv_status stage(const void *bytes, uint64_t count, const std::byte *&address, const Why &why) = 0;
    virtual pkv_status run(const Kernel &kernel, const void *params, size_t params_bytes, uint64_t blocks,
                           const Why &why) = 0;
};

/// Keeps launches until all is known to be well: a call whose arrays cannot be staged has launched nothing.
class Deferred final : public Runner {
  public:
    explicit Deferred(Runner &runner) : runner_(runner) {}

    uint32_t threads() const override { return runner_.threads(); }
    uint64_t blocks_at_once(const Kernel &kernel) const override { return runner_.blocks_at_once(kernel); }
    pkv_status stage(const void *bytes, uint64_t count, const std::byte *&address, const Why &why) override {
        return runner_.stage(bytes, count, address, why);
    }
    pkv_status run(const Kernel &kernel, const void *params, size_t params_bytes, uint64_t blocks,
                   const Why &why) override;

    /// The plan has come to this: launches, if that is PKV_OK.
    pkv_status finish(pkv_status plan, const Why &why);

  private:
    struct Launch {
        Kernel kernel;
        uint64_t blocks;
        std::vector<std::byte> params;
    };
    Runner &runner_;
    std::vector<Launch> launches_;
};

pkv_status plan_write(const pkv_device_write &write, Runner &runner, const Why &why);
pkv_status plan_gather(const pkv_device_gather &gather, Runner &runner, const Why &why);

/// Pages that are copied; `from` and `to` may be the same.
struct PagePairs {
    const pkv_device_layer *from;
    const pkv_device_layer *to;
    uint32_t num_layers;
    uint64_t num_pages;
    const int32_t *src;
    const int32_t *dst;
    const uint32_t *tokens;
    uint32_t max_blocks;
};
pkv_status plan_copy(const PagePairs &pairs, Runner &runner, const Why &why);

struct SliceList {
    const pkv_device_layer *layers;
    uint32_t num_layers;
    const pkv_device_slice *slices;
    uint64_t num_slices;
    uint32_t max_blocks;
};
pkv_status plan_slices(const SliceList &list, bool pack, Runner &runner, const Why &why);

// ---- what the plans share -------------------------------------------------------------------------------------------

/// The largest power of two, up to 16, that divides all that was added.
class Alignment {
  public:
    void add(uint64_t bytes) { bits_ |= bytes; }
    void add(const void *address) { bits_ |= reinterpret_cast<uintptr_t>(address); }
    /// Steps of a stride, which counts only if there are any.
    void add(uint64_t stride, uint64_t steps) { bits_ |= steps > 1 ? stride : 0; }

    uint32_t unit() const { return uint32_t{1} << std::countr_zero(bits_ | 16); }

  private:
    uint64_t bits_ = 0;
};

/// Arrays of the caller's that kernels read: in the parameters, where they are small, or staged.
class HostArrays {
  public:
    /// Bytes that travel in the parameters, so that also a captured launch may have them.
    static constexpr uint64_t small = PKV_DEVICE_INLINE_BYTES;
    static_assert(small + 2 * sizeof(Plane) <= inline_bytes);

    /// The bytes are copied. Returns where they begin.
    uint64_t add(const void *bytes, uint64_t count);
    /// Once, after the last add(), before the first launch.
    pkv_status stage(Runner &runner, const Why &why);

    uint64_t inline_bytes_used() const { return staged_ == nullptr ? bytes_.size() : 0; }
    /// Into the parameters of a launch.
    void put(Inline &rest) const;
    Array array(uint64_t offset) const;

  private:
    std::vector<std::byte> bytes_;
    const std::byte *staged_ = nullptr;
};

inline Array device_array(const void *address) { return {address, 0}; }

/// Planes that fit beside the arrays.
inline uint64_t planes_that_fit(const HostArrays &arrays) {
    return (inline_bytes - arrays.inline_bytes_used()) / sizeof(Plane);
}
/// Writes planes behind the arrays. Returns where.
uint32_t put_planes(Inline &rest, const HostArrays &arrays, const std::vector<Plane> &planes);

/// Checks what does not depend on a call.
pkv_status check_layer(const pkv_device_layer &layer, uint32_t number, const Why &why);
/// Whether one launch can serve both: all is equal but the addresses.
bool same_shape(const pkv_device_layer &a, const pkv_device_layer &b);

uint64_t element_size(int32_t dtype);
/// Whether rows of `flat` become rows of `stored`, another type, and back.
bool converts(int32_t stored, int32_t flat);

/// a * b * c, or UINT64_MAX.
uint64_t product_of(uint64_t a, uint64_t b, uint64_t c = 1);

/// Threads that share a run of `units` units, of which there are `runs`; at most `most`.
uint32_t team_lanes_log2(uint64_t units, uint64_t runs, uint32_t most, const Runner &runner, uint64_t blocks_at_once);

/// How pages are cut, and who shares a tile. `units` are those of a token, `pages` all that are moved, over all planes.
struct Tiling {
    Cut cut;
    uint32_t lanes_log2;
};
Tiling tile_pages(uint32_t page_tokens, uint64_t units, uint64_t pages, const Runner &runner, uint64_t blocks_at_once);

/// Rows on two sides, as a tile of units.
struct TileSides {
    uint64_t heads;
    uint64_t src_run, dst_run; ///< bytes of a row
    uint64_t src_token, src_head, dst_token, dst_head;
    bool keep_heads; ///< rows are told apart by head
};
/// `unit` is what one access takes on the source's side.
TileShape tile_shape(const TileSides &sides, uint32_t unit);
/// A token's bytes on either side are one run.
bool heads_merge(const TileSides &sides);

/// Launches, unless there are no items. `max_blocks` 0: as many as run at once.
pkv_status launch(Runner &runner, const Kernel &kernel, const void *params, size_t params_bytes, uint64_t items,
                  uint32_t lanes_log2, uint32_t max_blocks, const Why &why);

} // namespace pkv::cuda
