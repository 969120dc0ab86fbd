// SPDX-License-Identifier: Apache-2.0
// Extents: which units belong to which size, and which places in them are taken.
#include "tier/extents.h"

#include <pagedkv/tier_ops.h>

#include <algorithm>

namespace pkv {
namespace {

constexpr uint64_t block = PKV_IMAGE_ALIGNMENT;
constexpr uint32_t most_units = 65536;
constexpr uint64_t waste_limit = 16; // an extent may leave one part in 16 unused at its end

} // namespace

bool Extents::create(uint64_t capacity) {
    capacity_ = capacity;
    unit_shift_ = static_cast<uint32_t>(__builtin_ctzll(block));
    while ((capacity - 1) >> unit_shift_ >= most_units) ++unit_shift_;
    units_ = static_cast<uint32_t>(((capacity - 1) >> unit_shift_) + 1);
    free_units_ = units_;
    return unit_.reserve(units_) && used_blocks_.reserve(capacity / block / 64 + 1);
}

uint32_t Extents::class_for(uint64_t size) {
    uint32_t unused = no_class;
    for (uint32_t i = num_classes_; i-- > 0;) {
        if (classes_[i].size == size) return i;
        if (classes_[i].extents == 0) unused = i;
    }
    if (size == 0 || size % block != 0 || size > capacity_) return no_class;
    if (unused == no_class) {
        if (num_classes_ == max_classes) return no_class;
        unused = num_classes_++;
    }
    const uint64_t unit = uint64_t{1} << unit_shift_;
    uint64_t units = (size + unit - 1) / unit;
    while (units < units_ && units * unit % size > units * unit / waste_limit) ++units;
    classes_[unused] = Class{};
    classes_[unused].size = size;
    classes_[unused].units = static_cast<uint32_t>(std::min<uint64_t>(units, units_));
    return unused;
}

/// Images that fit into the extent that begins at this unit: the last one ends with the capacity.
uint64_t Extents::slots(const Class &c, uint32_t extent) const {
    const uint64_t begin = uint64_t{extent} << unit_shift_;
    return std::min(uint64_t{c.units} << unit_shift_, capacity_ - begin) / c.size;
}

void Extents::link(Class &c, uint32_t extent) {
    unit_[extent].previous = no_extent;
    unit_[extent].next = c.roomy;
    if (c.roomy != no_extent) unit_[c.roomy].previous = extent;
    c.roomy = extent;
}

void Extents::unlink(Class &c, uint32_t extent) {
    const Unit &unit = unit_[extent];
    (unit.previous != no_extent ? unit_[unit.previous].next : c.roomy) = unit.next;
    if (unit.next != no_extent) unit_[unit.next].previous = unit.previous;
}

/// Makes an extent of the class at this unit, if the units are free and an image fits.
bool Extents::begin_extent(uint32_t size_class, uint32_t extent) {
    Class &c = classes_[size_class];
    const uint32_t end = std::min(extent + c.units, units_);
    for (uint32_t unit = extent; unit < end; ++unit)
        if (unit_[unit].owner_plus_1 != 0) return false;
    if (slots(c, extent) == 0) return false;
    for (uint32_t unit = extent; unit < end; ++unit) unit_[unit].owner_plus_1 = static_cast<uint8_t>(size_class + 1);
    unit_[extent].used = 0;
    unit_[extent].hint = 0;
    free_units_ -= end - extent;
    ++c.extents;
    link(c, extent);
    return true;
}

bool Extents::find_extent(uint32_t size_class) {
    Class &c = classes_[size_class];
    if (free_units_ == 0 || c.searched == returns_) return false;
    const uint32_t places = (units_ + c.units - 1) / c.units;
    for (uint32_t i = 0; i < places; ++i) {
        const uint32_t extent = c.cursor;
        if (begin_extent(size_class, extent)) return true;
        c.cursor = extent + c.units < units_ ? extent + c.units : 0;
    }
    c.searched = returns_; // not again before something is given back
    return false;
}

bool Extents::take(uint32_t size_class, uint64_t &offset) {
    Class &c = classes_[size_class];
    if (c.roomy == no_extent && !find_extent(size_class)) return false;
    const uint32_t extent = c.roomy;
    uint64_t slot = unit_[extent].hint;
    const uint64_t begin = uint64_t{extent} << unit_shift_;
    while (is_used((begin + slot * c.size) / block)) ++slot;
    unit_[extent].hint = static_cast<uint32_t>(slot + 1);
    offset = begin + slot * c.size;
    flip(offset / block);
    if (++unit_[extent].used == slots(c, extent)) unlink(c, extent);
    return true;
}

bool Extents::take_at(uint32_t size_class, uint64_t offset) {
    Class &c = classes_[size_class];
    if (offset > capacity_ - c.size) return false;
    const uint32_t unit = unit_of(offset);
    const uint32_t extent = unit / c.units * c.units;
    const uint64_t inside = offset - (uint64_t{extent} << unit_shift_);
    if (inside % c.size != 0 || inside / c.size >= slots(c, extent)) return false;
    if (unit_[extent].owner_plus_1 == size_class + 1) {
        if (is_used(offset / block)) return false;
    } else if (!begin_extent(size_class, extent)) {
        return false;
    }
    flip(offset / block);
    if (++unit_[extent].used == slots(c, extent)) unlink(c, extent);
    return true;
}

void Extents::give_back(uint32_t size_class, uint64_t offset) {
    Class &c = classes_[size_class];
    const uint32_t extent = unit_of(offset) / c.units * c.units;
    Unit &unit = unit_[extent];
    flip(offset / block);
    const uint64_t slot = (offset - (uint64_t{extent} << unit_shift_)) / c.size;
    unit.hint = std::min(unit.hint, static_cast<uint32_t>(slot));
    if (unit.used-- == slots(c, extent)) link(c, extent);
    if (unit.used != 0) return;
    unlink(c, extent);
    const uint32_t end = std::min(extent + c.units, units_);
    for (uint32_t i = extent; i < end; ++i) unit_[i].owner_plus_1 = 0;
    free_units_ += end - extent;
    --c.extents;
    c.cursor = extent; // it is often this class that needs it next
    ++returns_;
}

Extents::UnitRange Extents::around(uint32_t size_class, uint32_t unit) const {
    const Class &c = classes_[size_class];
    UnitRange range;
    range.begin = unit / c.units * c.units;
    if (slots(c, range.begin) == 0) return {};
    range.end = std::min(range.begin + c.units, units_);
    if (const uint32_t owner = unit_[range.begin].owner_plus_1; owner != 0)
        range.begin = range.begin / classes_[owner - 1].units * classes_[owner - 1].units;
    if (const uint32_t owner = unit_[range.end - 1].owner_plus_1; owner != 0) {
        const uint32_t length = classes_[owner - 1].units;
        range.end = std::min((range.end - 1) / length * length + length, units_);
    }
    return range;
}

} // namespace pkv
