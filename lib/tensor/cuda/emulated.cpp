// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda/emulated.h"

#include "tensor/cuda/kernel_list.h"
#include "tensor/cuda/plan.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>

namespace pkv::cuda {
namespace {

std::atomic<uint64_t> misaligned_accesses{0};

thread_local char last_why[512];
thread_local uint64_t last_staged;
thread_local uint32_t last_launches;
thread_local uint32_t last_unit;

using Work = void (*)(const void *params, const Grid &grid);

template <class Body> struct EmulatedOf {
    static Work value() {
        return [](const void *params, const Grid &grid) {
            Body::work(*static_cast<const typename Body::Params *>(params), grid);
        };
    }
};

Work work_of(const Kernel &kernel) {
    switch (kernel.op) {
    case Kernel::Op::write:
        return kernel.unit != 0 ? moving<EmulatedOf, WriteOf, Work>(kernel.unit) : writing<EmulatedOf, Work>(kernel);
    case Kernel::Op::gather:
        return kernel.unit != 0 ? moving<EmulatedOf, GatherOf, Work>(kernel.unit) : gathering<EmulatedOf, Work>(kernel);
    case Kernel::Op::copy: return moving<EmulatedOf, CopyOf, Work>(kernel.unit);
    case Kernel::Op::slices: return moving<EmulatedOf, SlicesOf, Work>(kernel.unit);
    }
    return nullptr;
}

/// 0 .. n - 1 in an order drawn from the seed.
std::vector<uint32_t> order_of(uint32_t n, uint64_t seed) {
    std::vector<uint32_t> order(n);
    for (uint32_t i = 0; i < n; ++i) order[i] = i;
    for (uint32_t i = n; seed != 0 && i > 1; --i) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        std::swap(order[i - 1], order[(seed >> 33) % i]);
    }
    return order;
}

class Emulator final : public Runner {
  public:
    explicit Emulator(const emulated_grid &grid) : grid_(grid) {
        if (grid_.threads == 0) grid_.threads = 256;
        last_staged = 0;
        last_launches = 0;
        last_unit = 16;
    }

    uint32_t threads() const override { return grid_.threads; }
    uint64_t blocks_at_once(const Kernel &) const override { return grid_.blocks != 0 ? grid_.blocks : 1024; }

    pkv_status stage(const void *bytes, uint64_t count, const std::byte *&address, const Why &) override {
        // As aligned as what the parameters hold; freed when the work is done.
        staged_.push_back(std::make_unique<Line[]>((count + sizeof(Line) - 1) / sizeof(Line)));
        std::memcpy(staged_.back().get(), bytes, count);
        address = reinterpret_cast<const std::byte *>(staged_.back().get());
        last_staged += count;
        return PKV_OK;
    }

    pkv_status run(const Kernel &kernel, const void *params, size_t, uint64_t blocks, const Why &why) override {
        const Work work = work_of(kernel);
        if (work == nullptr) return why.fail(PKV_ERR_INTERNAL, "no such kernel");
        if (grid_.blocks != 0) blocks = grid_.blocks;
        ++last_launches;
        const int unit = kernel.unit != 0 ? kernel.unit
                         : kernel.vector  ? 16
                                          : std::max(element_bytes(kernel.from), element_bytes(kernel.to));
        last_unit = std::min(last_unit, static_cast<uint32_t>(unit));
        const auto n = static_cast<uint32_t>(blocks);
        const std::vector<uint32_t> threads = order_of(grid_.threads, grid_.seed);
        for (const uint32_t block : order_of(n, grid_.seed))
            for (const uint32_t thread : threads) work(params, Grid{n, grid_.threads, block, thread});
        return PKV_OK;
    }

  private:
    struct alignas(16) Line {
        std::byte bytes[16];
    };
    emulated_grid grid_;
    std::vector<std::unique_ptr<Line[]>> staged_;
};

template <class Plan> pkv_status emulate(const emulated_grid &grid, Plan plan) noexcept {
    const Why why(last_why, sizeof last_why);
    try {
        Emulator emulator(grid);
        return plan(emulator, why);
    } catch (const std::bad_alloc &) {
        return why.fail(PKV_ERR_NO_MEMORY, "no memory");
    } catch (...) {
        return why.fail(PKV_ERR_INTERNAL, "an exception");
    }
}

} // namespace

void misaligned(const void *, int) { misaligned_accesses.fetch_add(1, std::memory_order_relaxed); }

} // namespace pkv::cuda

using namespace pkv::cuda;

pkv_status emulated_write(const pkv_device_write *write, emulated_grid grid) {
    return emulate(grid, [&](Runner &runner, const Why &why) { return plan_write(*write, runner, why); });
}

pkv_status emulated_gather(const pkv_device_gather *gather, emulated_grid grid) {
    return emulate(grid, [&](Runner &runner, const Why &why) { return plan_gather(*gather, runner, why); });
}

pkv_status emulated_copy_pages(const pkv_device_layer *layers, uint32_t num_layers, uint64_t num_pages,
                               const int32_t *src, const int32_t *dst, const uint32_t *tokens, emulated_grid grid) {
    return emulated_copy_between(layers, layers, num_layers, num_pages, src, dst, tokens, grid);
}

pkv_status emulated_copy_between(const pkv_device_layer *from, const pkv_device_layer *to, uint32_t num_layers,
                                 uint64_t num_pages, const int32_t *src, const int32_t *dst, const uint32_t *tokens,
                                 emulated_grid grid) {
    const PagePairs pairs{from, to, num_layers, num_pages, src, dst, tokens, 0};
    return emulate(grid, [&](Runner &runner, const Why &why) { return plan_copy(pairs, runner, why); });
}

pkv_status emulated_pack(const pkv_device_layer *layers, uint32_t num_layers, const pkv_device_slice *slices,
                         uint64_t num_slices, emulated_grid grid) {
    const SliceList list{layers, num_layers, slices, num_slices, 0};
    return emulate(grid, [&](Runner &runner, const Why &why) { return plan_slices(list, true, runner, why); });
}

pkv_status emulated_unpack(const pkv_device_layer *layers, uint32_t num_layers, const pkv_device_slice *slices,
                           uint64_t num_slices, emulated_grid grid) {
    const SliceList list{layers, num_layers, slices, num_slices, 0};
    return emulate(grid, [&](Runner &runner, const Why &why) { return plan_slices(list, false, runner, why); });
}

const char *emulated_why(void) { return last_why; }
uint64_t emulated_staged_bytes(void) { return last_staged; }
uint32_t emulated_launches(void) { return last_launches; }
uint32_t emulated_unit(void) { return last_unit; }
uint64_t emulated_misaligned(void) { return misaligned_accesses.load(); }
