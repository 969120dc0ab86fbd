// SPDX-License-Identifier: Apache-2.0
// Space for images of several sizes. It is cut into units of one size; an extent is a run of units that holds images of one
// size only, side by side, so that an image that goes leaves a hole in which the next one of its size fits. Where extents of a
// size can begin follows from the size and the capacity alone: nothing but images needs to be known to take the space up again
// after a restart.
#pragma once

#include "core/virtual_array.h"

#include <array>
#include <cstdint>

namespace pkv {

class Extents {
  public:
    static constexpr uint32_t max_classes = 64; ///< sizes at once
    static constexpr uint32_t no_class = max_classes;
    struct UnitRange {
        uint32_t begin = 0, end = 0;
    };

    /// False when there is no memory. `capacity` is a multiple of PKV_IMAGE_ALIGNMENT, not 0.
    bool create(uint64_t capacity);

    uint32_t units() const { return units_; }
    uint32_t unit_of(uint64_t offset) const { return static_cast<uint32_t>(offset >> unit_shift_); }

    /// The class of a size, made if it is a new one. no_class for a size that never fits, or when there are too many sizes.
    uint32_t class_for(uint64_t size);
    /// Classes so far: 0 .. num_classes()-1.
    uint32_t num_classes() const { return num_classes_; }

    /// Takes room for one image of the class; false when there is none.
    bool take(uint32_t size_class, uint64_t &offset);
    /// The same at a given place.
    bool take_at(uint32_t size_class, uint64_t offset);
    void give_back(uint32_t size_class, uint64_t offset);

    /// Units of an extent of the class; its extents begin at multiples of that.
    uint32_t extent_units(uint32_t size_class) const { return classes_[size_class].units; }
    /// What must be empty so that an extent of the class can lie over this unit: whole extents. Empty when none can.
    UnitRange around(uint32_t size_class, uint32_t unit) const;

  private:
    static constexpr uint32_t no_extent = UINT32_MAX;
    static constexpr uint8_t no_owner = UINT8_MAX;
    struct Class {
        uint64_t size = 0;          // of an image; 0 = not in use
        uint32_t units = 0;         // of an extent
        uint32_t extents = 0;       // that it has
        uint32_t roomy = no_extent; // first of its extents with room, by their first units
        uint32_t cursor = 0;        // where the search for a free extent goes on
        uint64_t searched = 0;      // returns_ when such a search found none
    };
    struct Unit {
        uint32_t used;           // of the first unit of an extent: images in it
        uint32_t hint;           // first slot that may be free
        uint32_t previous, next; // extents with room, of one class
        uint8_t owner_plus_1;    // class, + 1; 0 = free
    };

    uint64_t slots(const Class &c, uint32_t extent) const;
    bool begin_extent(uint32_t size_class, uint32_t extent);
    bool find_extent(uint32_t size_class);
    void link(Class &c, uint32_t extent);
    void unlink(Class &c, uint32_t extent);
    bool is_used(uint64_t block) const { return (used_blocks_[block / 64] >> block % 64 & 1) != 0; }
    void flip(uint64_t block) { used_blocks_[block / 64] ^= uint64_t{1} << block % 64; }

    uint64_t capacity_ = 0;
    uint32_t unit_shift_ = 0;
    uint32_t units_ = 0;
    uint32_t free_units_ = 0;
    uint64_t returns_ = 1; // extents that were given back, + 1
    std::array<Class, max_classes> classes_;
    uint32_t num_classes_ = 0;
    VirtualArray<Unit> unit_;
    VirtualArray<uint64_t> used_blocks_; // a bit for each PKV_IMAGE_ALIGNMENT bytes, set where an image begins
};

} // namespace pkv
