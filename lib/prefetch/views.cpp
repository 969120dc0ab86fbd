// SPDX-License-Identifier: Apache-2.0
#include "prefetch/views.h"

#include <algorithm>
#include <bit>

namespace pkv {
namespace {

constexpr size_t views_per_buffer = 4;
constexpr uint64_t least_slices = 256;

} // namespace

void Views::create(std::shared_ptr<Device> device, uint32_t num_buffers, uint32_t max_tables) {
    device_ = std::move(device);
    max_tables_ = max_tables;
    for (size_t i = 0; i < views_per_buffer * num_buffers; ++i) views_.push_back(std::make_unique<View>());
}

pkv_status Views::make(uint64_t slices, View &view) const {
    const uint64_t tables = max_tables_ + uint64_t{1};
    const uint64_t bytes =
        64 + tables * (sizeof *view.first_block + sizeof *view.indptr) + slices * sizeof *view.slices;
    PKV_TRY(device_->take_pinned(bytes, "a view", view.memory));
    view.word = reinterpret_cast<uint64_t *>(view.memory.data()); // with a cache line to itself
    view.first_block = view.word + 8;
    view.indptr = reinterpret_cast<int32_t *>(view.first_block + tables);
    view.slices = view.indptr + tables;
    view.capacity = slices;
    *view.word = view.turn = 0;
    return PKV_OK;
}

pkv_status Views::find(uint64_t slices, View *&view) {
    slices = std::bit_ceil(std::max(slices, least_slices));
    Order &order = device_->order();
    View *oldest = nullptr;
    view = nullptr;
    for (const bool looked : {false, true}) {
        if (looked) order.look();
        for (const auto &at : views_) {
            if (at->taken) continue;
            if (oldest == nullptr || at->until.ticket < oldest->until.ticket) oldest = at.get();
            if (!order.passed(at->until)) continue;
            if (view == nullptr || view->capacity < slices) view = at.get();
        }
        if (view != nullptr) break;
    }
    if (view == nullptr) { // there are fewer buffers than views
        PKV_TRY(order.wait(oldest->until));
        view = oldest;
    }
    if (view->capacity >= slices) return PKV_OK;
    view->capacity = 0; // until it has its new memory
    device_->keep_pinned(view->memory, {});
    return make(slices, *view);
}

void Views::end(const Fences &until) {
    for (const auto &view : views_) {
        Fences work = view->until;
        device_->keep_pinned(view->memory, work |= until);
    }
    views_.clear();
}

} // namespace pkv
