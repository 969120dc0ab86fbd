// SPDX-License-Identifier: Apache-2.0
// A pool on a device: its memory, and in which order what its callers do comes.
#include "core/options.h"
#include "core/status.h"
#include "pool/pool.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace pkv {
namespace {

pkv_device_paged paged_side(const PagedRows &rows, const RowScales &scales) {
    return {rows.base, rows.strides.page, rows.strides.token, rows.strides.head, rows.row_bytes, scales.address()};
}

std::vector<pkv_device_layer> layers_of(const Geometry &geometry, const PageMemory &memory) {
    std::vector<pkv_device_layer> layers(memory.num_layers());
    for (uint32_t i = 0; i < memory.num_layers(); ++i) {
        pkv_device_layer &layer = layers[i];
        layer.k = paged_side(memory.layer(i).k, memory.scales(i).k);
        layer.v = paged_side(memory.layer(i).v, memory.scales(i).v);
        layer.page_tokens = geometry.page_tokens;
        layer.heads = geometry.heads;
        layer.dtype = geometry.dtype;
        layer.scales = geometry.scales;
        layer.scale_page_stride = memory.scales(i).k.page_stride;
        layer.num_pages = geometry.num_pages;
    }
    return layers;
}

} // namespace

// ---- creation ------------------------------------------------------------------------------------------------------

pkv_status Pool::open_device(const pkv_pool_options &options) {
    if (options.reserved != 0) return fail(PKV_ERR_UNSUPPORTED, "reserved is %u, not 0", options.reserved);
    PKV_TRY(Device::open(options.device, options.device_index, device_));
    transfer_blocks_ = options.transfer_blocks;
    if (device_ == nullptr) {
        if (options.in_place != nullptr)
            return fail(PKV_ERR_INVALID, "in_place is given, but the pool is of host memory");
        return PKV_OK;
    }
    if (options.huge_pages == PKV_HUGE_PAGES_REQUIRE)
        return fail(PKV_ERR_INVALID, "huge_pages is %d, which is for host memory", options.huge_pages);
    if (options.in_place == nullptr) return PKV_OK;
    pkv_sync known;
    PKV_TRY(read_struct(options.in_place, known, "in_place"));
    if (known.kind != PKV_SYNC_CUDA_STREAM || known.reserved != 0)
        return fail(PKV_ERR_INVALID, "in_place: kind %d is not PKV_SYNC_CUDA_STREAM, or reserved is not 0", known.kind);
    has_in_place_ = true;
    in_place_ = known.handle;
    return PKV_OK;
}

pkv_status Pool::place_device_scales(Group &group) {
    const Geometry &geometry = group.geometry;
    std::vector<float> fixed = geometry.k_scales;
    fixed.insert(fixed.end(), geometry.v_scales.begin(), geometry.v_scales.end());
    uint64_t row_scale_bytes = 0;
    PKV_TRY(PageMemory::row_scale_bytes(geometry, row_scale_bytes));
    PKV_TRY(group.row_scales.create(device_, row_scale_bytes, "memory for scales"));
    PKV_TRY(group.fixed_scales.create(device_, fixed.size() * sizeof(float), "memory for scales"));
    if (fixed.empty()) return PKV_OK;
    PinnedMemory source;
    PKV_TRY(source.create(device_, fixed.size() * sizeof(float), "memory for scales"));
    std::memcpy(source.data(), fixed.data(), source.bytes());
    Turn turn;
    PKV_TRY(turn.begin(device_, nullptr));
    void *stream = nullptr;
    PKV_TRY(turn.stream(stream));
    const pkv_device_copy copy{group.fixed_scales.data(), source.data(), source.bytes()};
    PKV_TRY(device_->call("a copy of scales", &pkv_device_table::copy, stream, PKV_HOST_TO_DEVICE, &copy, uint64_t{1}));
    return turn.end();
}

/// Allocates a group's memory, zeroed, or poisoned.
pkv_status Pool::create_device_memory(Group &group) {
    const Geometry &geometry = group.geometry;
    PKV_TRY(group.order.create(geometry.num_pages));
    PKV_TRY(group.pages.create_quarantine());
    if (geometry.memory == PKV_MEMORY_NONE) return group.memory.create_on_device(geometry, {});
    PKV_TRY(place_device_scales(group));
    if (geometry.memory == PKV_MEMORY_POOL) {
        PKV_TRY(group.rows.create(device_, geometry.memory_bytes, "memory for pages"));
        Turn turn;
        PKV_TRY(turn.begin(device_, nullptr));
        void *stream = nullptr;
        PKV_TRY(turn.stream(stream));
        for (const DeviceMemory *part : {&group.rows, &group.row_scales})
            if (part->bytes() != 0)
                PKV_TRY(device_->call("memory for pages", &pkv_device_table::fill, stream, part->data(), uint8_t{0},
                                      part->bytes()));
        PKV_TRY(turn.end());
    }
    PKV_TRY(group.memory.create_on_device(
        geometry, {group.rows.data(), group.row_scales.data(), reinterpret_cast<float *>(group.fixed_scales.data())}));
    group.layers = layers_of(geometry, group.memory);
    group.bare_layers = group.layers;
    for (pkv_device_layer &layer : group.bare_layers) layer.scales = PKV_SCALES_NONE;
    if (geometry.memory != PKV_MEMORY_CALLER) return PKV_OK;
    for (const pkv_device_layer &layer : group.layers) {
        PKV_TRY(device_->check_readable(layer.k.base, "k_base"));
        if (layer.v.row_bytes != 0) PKV_TRY(device_->check_readable(layer.v.base, "v_base"));
    }
    return PKV_OK;
}

/// Fills a page that becomes free, after all that is still in it. What comes later finds this work as the page's own.
void Pool::poison_on_device(uint32_t group, pkv_page page) {
    Group &at = groups_[group];
    const Geometry &shape = at.geometry;
    const bool page_major = shape.arrangement == PKV_PAGE_MAJOR;
    const uint64_t slice = uint64_t{shape.page_tokens} * shape.heads * (shape.k_row_bytes + shape.v_row_bytes);
    Fences point;
    pkv_status status = poison_stream_ != nullptr ? PKV_OK : device_->take_stream(false, poison_stream_);
    if (status == PKV_OK) status = device_->order().order(poison_stream_, at.order.before_writing(page));
    const uint32_t pieces = page_major ? 1 : shape.num_layers;
    for (uint32_t i = 0; i < pieces && status == PKV_OK; ++i)
        status = device_->call("poison", &pkv_device_table::fill, poison_stream_,
                               static_cast<void *>(at.memory.layer(i).k.row(static_cast<uint64_t>(page), 0, 0)),
                               uint8_t{0xFF}, page_major ? slice * shape.num_layers : slice);
    if (const RowScales &scales = at.memory.scales(0).k; scales.rows != nullptr && status == PKV_OK)
        status =
            device_->call("poison", &pkv_device_table::fill, poison_stream_,
                          static_cast<void *>(at.row_scales.data() + static_cast<uint64_t>(page) * scales.page_stride),
                          uint8_t{0xFF}, scales.page_stride);
    if (status == PKV_OK) status = device_->order().mark(poison_stream_, point);
    if (status == PKV_OK) at.order.wrote(page, point);
}

// ---- order ---------------------------------------------------------------------------------------------------------

pkv_status Pool::make_ready(const Fences &waits) const {
    if (device_ == nullptr || device_->order().passed_by_now(waits)) return PKV_OK;
    if (has_in_place_) {
        int32_t capturing = 0;
        PKV_TRY(device_->call("the pool's stream", &pkv_device_table::capturing, in_place_, &capturing));
        if (capturing == 0) return device_->order().order(in_place_, waits);
    }
    return device_->order().wait(waits);
}

pkv_status Pool::order(Turn &turn) {
    if (device_ == nullptr) return PKV_OK;
    Fences waits;
    {
        const Lock lock(mutex_);
        waits = handed_out_;
    }
    if (waits.none()) return PKV_OK;
    if (device_->order().passed_by_now(waits)) {
        const Lock lock(mutex_);
        if (handed_out_.ticket == waits.ticket && handed_out_.streams == waits.streams) handed_out_ = {};
        return PKV_OK;
    }
    return turn.waits() ? device_->order().wait(waits) : turn.after(waits);
}

void Pool::note_written(const BlockLists &lists, uint64_t first, uint64_t end, const Fences &work) {
    if (work.none()) return;
    const Lock lock(mutex_);
    for (uint32_t group = 0; group < num_groups_; ++group)
        for (uint64_t block = first; block < end && block < lists[group].size(); ++block)
            if (lists[group][block] != PKV_NO_PAGE) groups_[group].order.wrote(lists[group][block], work);
}

Fences Pool::before_writing(uint32_t group, pkv_page page) {
    if (device_ == nullptr) return {};
    const Lock lock(mutex_);
    return groups_[group].order.before_writing(page);
}

Fences Pool::before_reading(uint32_t group, pkv_page page) {
    if (device_ == nullptr) return {};
    const Lock lock(mutex_);
    return groups_[group].order.before_reading(page);
}

bool Pool::is_in_use(uint32_t group, pkv_page page) {
    PageOrder &order = groups_[group].order;
    const Fences work = order.before_writing(page);
    if (work.none()) return false;
    if (!device_->order().passed_by_now(work)) return true;
    order.forget(page);
    return false;
}

/// Pages whose work has passed are free like others.
void Pool::end_quarantine() {
    bool looked = false;
    for (uint32_t group = 0; group < num_groups_; ++group) {
        PageSet &set = pages(group);
        PageOrder &order = groups_[group].order;
        for (pkv_page page = set.oldest_quarantined(); page != PKV_NO_PAGE; page = set.oldest_quarantined()) {
            if (!looked) device_->order().look();
            looked = true;
            if (!device_->order().passed(order.before_writing(page))) break;
            order.forget(page);
            set.release_quarantined();
        }
    }
}

} // namespace pkv
