// SPDX-License-Identifier: Apache-2.0
// Page images of a device pool: its pages meet them in pinned staging memory, moved by a kernel, or by copies where a slice of a
// page lies in one piece as the image has it. Sums are the host's work.
#include "pool/device_images.h"

#include "core/clock.h"
#include "core/status.h"
#include "pool/pool.h"
#include "pool/transfers.h"

#include <algorithm>
#include <cstring>

namespace pkv {
namespace {

/// Slots that one call keeps at once before it waits for the device: others want some, too.
constexpr size_t most_kept = 16;

std::byte *writable(const std::byte *image) { return const_cast<std::byte *>(image); }

} // namespace

Staging::Supply Pool::staging_supply() const {
    if (device_ == nullptr) return {};
    return [device = device_](uint64_t bytes, std::shared_ptr<std::byte> &memory) {
        struct Kept {
            std::shared_ptr<Device> device;
            PinnedMemory memory;
            ~Kept() { device->keep_pinned(memory, {}); }
        };
        auto kept = std::make_shared<Kept>();
        kept->device = device;
        PKV_TRY(device->take_pinned(bytes, "staging memory", kept->memory));
        memory = std::shared_ptr<std::byte>(kept, kept->memory.data());
        return PKV_OK;
    };
}

// ---- one page ------------------------------------------------------------------------------------------------------

/// Puts the copies of a page's slices and scales into a stream; `image` is in memory that the device reads.
pkv_status Pool::copy_image(uint32_t group, pkv_page page, std::byte *image, bool to_page, void *stream) const {
    const Group &at = groups_[group];
    std::vector<pkv_device_copy> copies;
    const auto add = [&](void *in_page, void *in_image, uint64_t bytes) {
        copies.push_back({to_page ? in_page : in_image, to_page ? in_image : in_page, bytes});
    };
    for (uint32_t layer = 0; layer < at.memory.num_layers(); ++layer)
        add(at.memory.layer(layer).k.row(static_cast<uint64_t>(page), 0, 0), at.image.slice(image, layer),
            at.image.slice_bytes());
    if (at.image.scale_bytes() != 0)
        add(at.memory.scales(0).k.row(static_cast<uint64_t>(page), 0, 0), at.image.scales(image, 0),
            at.image.scale_bytes());
    return device_->call("a copy of a page image", &pkv_device_table::copy, stream,
                         to_page ? PKV_HOST_TO_DEVICE : PKV_DEVICE_TO_HOST, copies.data(),
                         static_cast<uint64_t>(copies.size()));
}

/// The same by a kernel.
pkv_status Pool::launch_image(uint32_t group, pkv_page page, std::byte *image, int32_t layout, uint32_t tokens,
                              bool to_page, void *stream) const {
    const Group &at = groups_[group];
    const auto num_layers = static_cast<uint32_t>(at.layers.size());
    std::vector<pkv_device_slice> slices(num_layers);
    for (uint32_t layer = 0; layer < num_layers; ++layer)
        slices[layer] = {layer, page, layout, tokens, at.image.slice(image, layer), at.image.scales(image, layer)};
    return device_->call("a page image", to_page ? &pkv_device_table::unpack : &pkv_device_table::pack, stream,
                         at.layers.data(), num_layers, slices.data(), uint64_t{num_layers}, transfer_blocks_);
}

pkv_status Pool::pack_on_device(uint32_t group, pkv_page page, const ImageName &name, std::byte *image,
                                const Fences &after) const {
    const Group &at = groups_[group];
    Turn turn;
    void *stream = nullptr;
    PKV_TRY(turn.begin(device_, nullptr));
    PKV_TRY(turn.after(after));
    PKV_TRY(turn.stream(stream));
    PKV_TRY(at.by_copies ? copy_image(group, page, image, false, stream)
                         : launch_image(group, page, image, at.image.layout(),
                                        std::min<uint32_t>(name.rows, page_tokens_), false, stream));
    PKV_TRY(turn.end());
    at.image.finish(groups_[group].memory, page, name, image);
    return PKV_OK;
}

pkv_status Pool::unpack_slice_on_device(uint32_t group, pkv_page page, uint32_t layer, const std::byte *slice,
                                        const float *scales, int32_t layout, const Fences &after) const {
    const Group &at = groups_[group];
    Turn turn;
    void *stream = nullptr;
    PKV_TRY(turn.begin(device_, nullptr));
    PKV_TRY(turn.after(after));
    PKV_TRY(turn.stream(stream));
    const pkv_device_slice one{layer, page, layout, page_tokens_, writable(slice), const_cast<float *>(scales)};
    PKV_TRY(device_->call("a slice of a page image", &pkv_device_table::unpack, stream, at.layers.data(),
                          static_cast<uint32_t>(at.layers.size()), &one, uint64_t{1}, transfer_blocks_));
    return turn.end();
}

namespace {

TransferShape shape_of(const Geometry &geometry) {
    return {geometry.dtype,       geometry.layout, geometry.arrangement, geometry.scales,     geometry.num_layers,
            geometry.page_tokens, geometry.heads,  geometry.k_row_bytes, geometry.v_row_bytes};
}

} // namespace

/// Whether copies move this group's pages faster than a kernel. With a bound on the kernel's blocks copies are taken where they can
/// be: they need none.
pkv_status Pool::choose_transfer(uint32_t group) {
    Group &at = groups_[group];
    at.by_copies = false;
    if (at.geometry.memory != PKV_MEMORY_POOL) return PKV_OK;
    at.by_copies = true;
    if (transfer_blocks_ != 0) return PKV_OK;
    const auto slot = tiers_->staging().acquire(0);
    if (slot == nullptr) return PKV_OK;
    return Transfers::of_device(device_->index()).choose(shape_of(at.geometry), at.by_copies, [&](bool &by_copies) {
        return measure_transfer(group, slot.get(), by_copies);
    });
}

/// Of a pool that is new: what is put into page 0 is what was there.
pkv_status Pool::measure_transfer(uint32_t group, std::byte *image, bool &by_copies) const {
    constexpr int rounds = 3; // and one to warm up
    const Group &at = groups_[group];
    uint64_t best[2] = {UINT64_MAX, UINT64_MAX};
    for (int round = 0; round <= rounds; ++round)
        for (const bool copies : {false, true}) {
            Turn turn;
            void *stream = nullptr;
            PKV_TRY(turn.begin(device_, nullptr));
            PKV_TRY(turn.stream(stream));
            const uint64_t start = monotonic_ns();
            for (const bool to_page : {false, true})
                PKV_TRY(copies ? copy_image(group, 0, image, to_page, stream)
                               : launch_image(group, 0, image, at.image.layout(), page_tokens_, to_page, stream));
            PKV_TRY(turn.end());
            if (round != 0) best[copies] = std::min(best[copies], monotonic_ns() - start);
        }
    by_copies = best[1] < best[0];
    return PKV_OK;
}

/// Arenas of host tiers are read by the device where they are, if they can be pinned; else images go through staging memory.
void Pool::pin_arenas() {
    for (uint32_t i = 0; i < tiers_->size(); ++i) {
        const std::span<std::byte> arena = (*tiers_)[i].tier->image_memory();
        if (arena.empty()) continue;
        PinnedRange pinned;
        if (pinned.create(device_, arena.data(), arena.size()) == PKV_OK) {
            pinned_arenas_.push_back(std::move(pinned));
            continue;
        }
        char why[256];
        copy_last_error(why, sizeof why);
        log_message(PKV_LOG_WARNING, "tier %u: %zu bytes are not pinned, and loads from there are slower: %s", i,
                    arena.size(), why);
    }
}

// ---- many ----------------------------------------------------------------------------------------------------------

pkv_status DeviceImages::put(uint32_t group, pkv_page page, const std::byte *image, int32_t layout) {
    const Group &at = pool_.group(group);
    void *stream = nullptr;
    if (!begun_) PKV_TRY(turn_.begin(pool_.device(), nullptr));
    begun_ = true;
    PKV_TRY(turn_.after(after_));
    PKV_TRY(turn_.stream(stream));
    if (at.by_copies && layout == at.image.layout())
        return pool_.copy_image(group, page, writable(image), true, stream);
    return pool_.launch_image(group, page, writable(image), layout, pool_.page_tokens(), true, stream);
}

bool DeviceImages::add(uint32_t group, pkv_page page, const ImageName &name, const std::byte *image, uint64_t bytes,
                       const std::shared_ptr<std::byte> &slot, uint64_t deadline_ns, const char **why) {
    const ImageFormat &format = pool_.group(group).image;
    std::shared_ptr<std::byte> stays = slot;
    bool readable = slot != nullptr;
    if (!readable) {
        int32_t kind = PKV_ADDRESS_HOST;
        readable = pool_.device()->kind_of(image, kind) == PKV_OK && kind == PKV_ADDRESS_PINNED;
    }
    if (!readable && bytes == format.image_bytes()) {
        // In memory of a tier's that the device cannot read. What is checked is the copy.
        Staging &staging = pool_.tiers()->staging();
        stays = staging.acquire(0);
        if (stays == nullptr) {
            let_go();
            stays = staging.acquire(deadline_ns);
        }
        if (stays == nullptr) {
            note(PKV_ERR_TIMEOUT);
            return true;
        }
        std::memcpy(stays.get(), image, bytes);
        image = stays.get();
    }
    int32_t layout = 0;
    if (!format.check(image, bytes, name, layout, why)) return false;
    if (status_ == PKV_OK) note(put(group, page, image, layout));
    if (status_ == PKV_OK) format.unpack_aux(image, pool_.memory(group), page);
    if (stays != nullptr) kept_.push_back(std::move(stays));
    if (slot == nullptr || kept_.size() >= most_kept) let_go();
    return true;
}

void DeviceImages::let_go() {
    if (begun_) note(turn_.finish());
    kept_.clear();
}

pkv_status DeviceImages::end() {
    if (begun_) note(turn_.end());
    kept_.clear();
    return status_;
}

} // namespace pkv
