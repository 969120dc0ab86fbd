// SPDX-License-Identifier: Apache-2.0
// The functions of lib/tensor/cuda/emulated.h on a real device: so tests/tensor/cuda_*.c, which are made for the
// emulated kernels, run there as they are. What a call reads and writes of the host's memory is copied to the device,
// at addresses that are as aligned, with guards around it, and copied back.
#include "gpu/device.h"
#include "tensor/cuda/emulated.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <pagedkv/pool.h>

namespace {

constexpr uint64_t guard_bytes = 256;
constexpr unsigned char guard = 0xEE;

/// Memory of the host's, and where it is on the device.
struct Range {
    uintptr_t begin;
    uintptr_t end;
    unsigned char *device;
    unsigned char *memory; ///< with its guards

    uint64_t bytes() const { return end - begin; }
};

class Mirror {
  public:
    ~Mirror() {
        for (const Range &range : ranges_) free_bytes(range.memory);
    }

    void add(const void *address, uint64_t bytes) {
        if (address == nullptr || bytes == 0) return;
        ranges_.push_back(
            {reinterpret_cast<uintptr_t>(address), reinterpret_cast<uintptr_t>(address) + bytes, nullptr, nullptr});
    }

    /// `count` steps of a stride, nested.
    void add_rows(const void *base, uint64_t row, std::initializer_list<std::pair<uint64_t, uint64_t>> steps) {
        if (base == nullptr || row == 0) return;
        uint64_t bytes = row;
        for (const auto &[count, stride] : steps) {
            if (count == 0) return;
            bytes += (count - 1) * stride;
        }
        add(base, bytes);
    }

    void add_layer(const pkv_device_layer &layer) {
        for (const pkv_device_paged *side : {&layer.k, &layer.v}) {
            add_rows(side->base, side->row_bytes,
                     {{layer.num_pages, side->page_stride},
                      {layer.page_tokens, side->token_stride},
                      {layer.heads, side->head_stride}});
            if (side->row_bytes == 0) continue;
            const uint64_t all = uint64_t{layer.page_tokens} * layer.heads;
            if (layer.scales == PKV_SCALES_TOKEN_HEAD)
                add_rows(side->scales, all * sizeof(float), {{layer.num_pages, layer.scale_page_stride}});
            else if (layer.scales != PKV_SCALES_NONE)
                add(side->scales, (layer.scales == PKV_SCALES_HEAD ? layer.heads : 1) * sizeof(float));
        }
    }

    void to_device() {
        std::sort(ranges_.begin(), ranges_.end(), [](const Range &a, const Range &b) { return a.begin < b.begin; });
        std::vector<Range> merged;
        for (const Range &range : ranges_) {
            if (!merged.empty() && range.begin < merged.back().end)
                merged.back().end = std::max(merged.back().end, range.end);
            else
                merged.push_back(range);
        }
        ranges_ = std::move(merged);
        for (Range &range : ranges_) {
            const uint64_t shift = range.begin % guard_bytes;
            const uint64_t room = range.bytes() + shift + 2 * guard_bytes;
            range.memory = static_cast<unsigned char *>(device_bytes(room));
            assert_cuda(cudaMemset(range.memory, guard, room));
            range.device = range.memory + guard_bytes + shift;
            upload(range.device, reinterpret_cast<const void *>(range.begin), range.bytes());
        }
    }

    void from_device() {
        for (const Range &range : ranges_) {
            download(reinterpret_cast<void *>(range.begin), range.device, range.bytes());
            unsigned char around[2 * guard_bytes];
            const uint64_t before = static_cast<uint64_t>(range.device - range.memory);
            download(around, range.memory, before);
            check_guard(around, before);
            download(around, range.device + range.bytes(), guard_bytes);
            check_guard(around, guard_bytes);
        }
    }

    template <class T> T *on_device(T *address) const {
        const auto at = reinterpret_cast<uintptr_t>(address);
        for (const Range &range : ranges_)
            if (at >= range.begin && at < range.end) return reinterpret_cast<T *>(range.device + (at - range.begin));
        return address == nullptr ? nullptr : reinterpret_cast<T *>(uintptr_t{16}); // nothing of it is used
    }

    std::vector<pkv_device_layer> layers(const pkv_device_layer *host, uint32_t count) const {
        std::vector<pkv_device_layer> list(host, host + count);
        for (pkv_device_layer &layer : list)
            for (pkv_device_paged *side : {&layer.k, &layer.v}) {
                side->base = on_device(side->base);
                side->scales = on_device(side->scales);
            }
        return list;
    }

    std::vector<pkv_device_flat> flats(const pkv_device_flat *host, uint32_t count) const {
        std::vector<pkv_device_flat> list;
        for (uint32_t i = 0; host != nullptr && i < count; ++i)
            list.push_back({on_device(host[i].base), host[i].token_stride, host[i].head_stride});
        return list;
    }

  private:
    static void check_guard(const unsigned char *bytes, uint64_t count) {
        for (uint64_t i = 0; i < count; ++i)
            if (bytes[i] != guard) fail_msg("a byte beside the memory of a call was written");
    }

    std::vector<Range> ranges_;
};

/// Bytes of a row of the caller's.
uint64_t flat_row(const pkv_device_layer &layer, const pkv_device_paged &side, int32_t dtype) {
    if (dtype == layer.dtype) return side.row_bytes;
    return side.row_bytes / pkv_dtype_bytes(layer.dtype) * pkv_dtype_bytes(dtype);
}

void add_flats(Mirror &mirror, const pkv_device_layer *layers, uint32_t num_layers, const pkv_device_flat *k,
               const pkv_device_flat *v, int32_t dtype, uint64_t rows) {
    for (uint32_t i = 0; i < num_layers; ++i)
        for (int number = 0; number < 2; ++number) {
            const pkv_device_flat *const list = number == 0 ? k : v;
            const pkv_device_paged &side = number == 0 ? layers[i].k : layers[i].v;
            if (list == nullptr || list[i].base == nullptr) continue;
            mirror.add_rows(list[i].base, flat_row(layers[i], side, dtype),
                            {{rows, list[i].token_stride}, {layers[i].heads, list[i].head_stride}});
        }
}

/// A call that is refused has launched nothing: the memory is not even looked at. Else it is waited for.
template <class Call> pkv_status on_stream(Mirror &mirror, Call call) {
    cudaStream_t stream = nullptr;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    why[0] = '\0';
    const pkv_status status = call(stream);
    if (status == PKV_OK) {
        assert_cuda(cudaStreamSynchronize(stream));
        mirror.from_device();
    }
    assert_cuda(cudaStreamDestroy(stream));
    return status;
}

pkv_status move_slices(const pkv_device_layer *layers, uint32_t num_layers, const pkv_device_slice *slices,
                       uint64_t num_slices, uint32_t max_blocks, bool pack) {
    Mirror mirror;
    for (uint32_t i = 0; i < num_layers; ++i) mirror.add_layer(layers[i]);
    for (uint64_t i = 0; i < num_slices; ++i) {
        const pkv_device_layer &layer = layers[slices[i].layer];
        const uint64_t rows = uint64_t{layer.page_tokens} * layer.heads;
        mirror.add(slices[i].bytes, rows * (layer.k.row_bytes + layer.v.row_bytes));
        mirror.add(slices[i].scales, rows * (layer.v.row_bytes != 0 ? 2 : 1) * sizeof(float));
    }
    mirror.to_device();
    const std::vector<pkv_device_layer> at = mirror.layers(layers, num_layers);
    std::vector<pkv_device_slice> list(slices, slices + num_slices);
    for (pkv_device_slice &slice : list) {
        slice.bytes = mirror.on_device(slice.bytes);
        slice.scales = mirror.on_device(slice.scales);
    }
    const auto function = pack ? gpu->pack : gpu->unpack;
    return on_stream(mirror, [&](void *stream) {
        return function(context, stream, at.data(), num_layers, list.data(), num_slices, max_blocks, WHY);
    });
}

/// Before main: the suites know of no device.
[[gnu::constructor]] void begin() {
    if (open_device(nullptr) == 0 && context != nullptr) return;
    std::printf("SKIP no device: %s\n", why);
    std::exit(77);
}

} // namespace

pkv_status emulated_write(const pkv_device_write *given, emulated_grid grid) {
    pkv_device_write write = *given;
    Mirror mirror;
    for (uint32_t i = 0; i < write.num_layers; ++i) mirror.add_layer(write.layers[i]);
    add_flats(mirror, write.layers, write.num_layers, write.k, write.v, write.flat_dtype, write.num_slots);
    if (write.slots_on_host == 0) mirror.add(write.slots, write.num_slots * write.slot_bytes);
    mirror.to_device();
    const std::vector<pkv_device_layer> layers = mirror.layers(write.layers, write.num_layers);
    const std::vector<pkv_device_flat> k = mirror.flats(write.k, write.num_layers),
                                       v = mirror.flats(write.v, write.num_layers);
    write.layers = layers.data();
    write.k = k.empty() ? nullptr : k.data();
    write.v = v.empty() ? nullptr : v.data();
    if (write.slots_on_host == 0) write.slots = mirror.on_device(static_cast<const unsigned char *>(write.slots));
    write.max_blocks = grid.blocks;
    return on_stream(mirror, [&](void *stream) { return gpu->write(context, stream, &write, WHY); });
}

pkv_status emulated_gather(const pkv_device_gather *given, emulated_grid grid) {
    pkv_device_gather gather = *given;
    const uint64_t n = gather.num_sequences;
    uint64_t rows = 0;
    for (uint64_t s = 0; s < n; ++s) {
        const uint64_t count =
            gather.counts != nullptr ? std::min(gather.counts[s], gather.max_count) : gather.max_count;
        const uint64_t stride = gather.padded != 0 ? gather.padded : gather.max_count;
        const uint64_t first = gather.out_first != nullptr ? gather.out_first[s] : s * stride;
        rows = std::max(rows, first + std::max(count, gather.padded));
    }
    Mirror mirror;
    for (uint32_t i = 0; i < gather.num_layers; ++i) mirror.add_layer(gather.layers[i]);
    add_flats(mirror, gather.layers, gather.num_layers, gather.k, gather.v, gather.flat_dtype, rows);
    if (gather.arrays_on_host == 0) {
        mirror.add(gather.pages, gather.num_pages * sizeof(int32_t));
        mirror.add(gather.indptr, (n + 1) * sizeof(int32_t));
        mirror.add(gather.first, n * sizeof(uint64_t));
        mirror.add(gather.counts, n * sizeof(uint64_t));
        mirror.add(gather.out_first, n * sizeof(uint64_t));
    }
    mirror.to_device();
    const std::vector<pkv_device_layer> layers = mirror.layers(gather.layers, gather.num_layers);
    const std::vector<pkv_device_flat> k = mirror.flats(gather.k, gather.num_layers),
                                       v = mirror.flats(gather.v, gather.num_layers);
    gather.layers = layers.data();
    gather.k = k.empty() ? nullptr : k.data();
    gather.v = v.empty() ? nullptr : v.data();
    if (gather.arrays_on_host == 0) {
        gather.pages = mirror.on_device(gather.pages);
        gather.indptr = mirror.on_device(gather.indptr);
        gather.first = mirror.on_device(gather.first);
        gather.counts = mirror.on_device(gather.counts);
        gather.out_first = mirror.on_device(gather.out_first);
    }
    gather.max_blocks = grid.blocks;
    return on_stream(mirror, [&](void *stream) { return gpu->gather(context, stream, &gather, WHY); });
}

pkv_status emulated_copy_pages(const pkv_device_layer *layers, uint32_t num_layers, uint64_t num_pages,
                               const int32_t *src, const int32_t *dst, const uint32_t *tokens, emulated_grid grid) {
    Mirror mirror;
    for (uint32_t i = 0; i < num_layers; ++i) mirror.add_layer(layers[i]);
    mirror.to_device();
    const std::vector<pkv_device_layer> at = mirror.layers(layers, num_layers);
    return on_stream(mirror, [&](void *stream) {
        return gpu->copy_pages(context, stream, at.data(), num_layers, num_pages, src, dst, tokens, grid.blocks, WHY);
    });
}

pkv_status emulated_copy_between(const pkv_device_layer *from, const pkv_device_layer *to, uint32_t num_layers,
                                 uint64_t num_pages, const int32_t *src, const int32_t *dst, const uint32_t *tokens,
                                 emulated_grid grid) {
    Mirror mirror;
    for (uint32_t i = 0; i < num_layers; ++i) mirror.add_layer(from[i]), mirror.add_layer(to[i]);
    mirror.to_device();
    const std::vector<pkv_device_layer> from_at = mirror.layers(from, num_layers),
                                        to_at = mirror.layers(to, num_layers);
    return on_stream(mirror, [&](void *stream) {
        return gpu->copy_between(context, stream, from_at.data(), to_at.data(), num_layers, num_pages, src, dst, tokens,
                                 grid.blocks, WHY);
    });
}

pkv_status emulated_pack(const pkv_device_layer *layers, uint32_t num_layers, const pkv_device_slice *slices,
                         uint64_t num_slices, emulated_grid grid) {
    return move_slices(layers, num_layers, slices, num_slices, grid.blocks, true);
}

pkv_status emulated_unpack(const pkv_device_layer *layers, uint32_t num_layers, const pkv_device_slice *slices,
                           uint64_t num_slices, emulated_grid grid) {
    return move_slices(layers, num_layers, slices, num_slices, grid.blocks, false);
}

const char *emulated_why(void) { return why; }
uint64_t emulated_misaligned(void) {
    return 0;
} // a misaligned access ends the context: the call would not have succeeded
