// SPDX-License-Identifier: Apache-2.0
// Which images a tier holds, where each lies, and which goes when room is needed. Bookkeeping only: no bytes move here, and
// no lock is taken (the owner has one). Shared by the host and the file tier.
//
// An entry's number (0 .. max_images-1) is also its record number in a file. Its way:
//
//   reserve() -> being written -> ready() -> found by find() -> drop(), or evicted by a later reserve()
//
// Space is not used again while somebody reads or writes it: reserve() begins a use (the write), begin_use() another, and
// an entry that is dropped before the last end_use() cannot be found any more, but keeps its number and space until then.
#pragma once

#include "core/status.h"
#include "core/virtual_array.h"
#include "tier/extents.h"
#include "tier/watch.h"

#include <pagedkv/pool.h>
#include <pagedkv/tier_ops.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace pkv {

class Directory {
  public:
    static constexpr uint32_t no_entry = UINT32_MAX;

    Directory() = default;
    Directory(const Directory &) = delete;
    Directory &operator=(const Directory &) = delete;

    /// @param capacity_bytes  a multiple of PKV_IMAGE_ALIGNMENT; where images may lie follows from it alone, so that
    ///                        restore() needs the same one
    /// @param max_images      1 .. 2^31
    /// PKV_ERR_INVALID, PKV_ERR_LIMIT, PKV_ERR_NO_MEMORY; may throw std::bad_alloc.
    pkv_status create(uint64_t capacity_bytes, uint64_t max_images);

    /// Who hears of images that become findable or cease to be, with the owner's lock held.
    void tell(TierWatches &watches) { watches_ = &watches; }

    /// The entry that is ready under this key, or no_entry.
    uint32_t find(const pkv_tier_key &key);

    /// Makes an entry that is being written, with one use begun: end_use() ends it, after ready() or drop(). Entries that had
    /// to go are added to `evicted`: their numbers and space are free, one of them may be the new entry's number. Evicts by
    /// priority, then least recent use; never pinned ones or ones in use. no_entry when there is no room (then, too, some may
    /// have been evicted), or for a size that is 0, unaligned or too large. Throws std::bad_alloc when `evicted` cannot
    /// grow; all that is in it is evicted, nothing else.
    /// @param tag  for clear(): the namespace, or PKV_TIER_TAG_PRIVATE
    uint32_t reserve(const pkv_tier_key &key, uint64_t size, const pkv_retention &retention, uint64_t tag,
                     std::vector<uint32_t> &evicted);

    /// An entry that was written can be found from now on. When another one of this key became ready meanwhile, this one is
    /// dropped. Returns the one that is found now; no_entry when clear() has dropped it.
    uint32_t ready(uint32_t id);

    /// Forgets an entry, ready or being written, pinned or not. True when its space and number are free now, false when uses
    /// are under way: then end_use() frees them.
    bool drop(uint32_t id);

    /// Drops all entries with this tag (PKV_TIER_TAG_ALL: all but private ones), ready, pinned or being written, and adds
    /// them to `dropped`; those in use are freed by end_use(). Throws std::bad_alloc as reserve() does.
    void clear(uint64_t tag, std::vector<uint32_t> &dropped);

    /// Puts an entry where it was before a restart: ready, unpinned, used more recently than all before it. False, with
    /// nothing changed, when it does not fit: number or key in use, outside the capacity, across other images. Before the
    /// first reserve() only.
    /// @param retention   its ttl_ns counts from now
    /// @param generation  as generation() was; later entries get higher ones
    bool restore(uint32_t id, const pkv_tier_key &key, uint64_t offset, uint64_t size, const pkv_retention &retention,
                 uint64_t tag, uint64_t generation);

    // Of entries that are ready or being written (on one that clear() has dropped they change nothing):

    void touch(uint32_t id); ///< a use for the order of eviction
    void pin(uint32_t id);
    bool unpin(uint32_t id); ///< false when it has no pin
    void set_retention(uint32_t id, const pkv_retention &retention);
    void begin_use(uint32_t id);
    /// Also of entries that were dropped meanwhile. True when it was the last use of such an entry: it is free now.
    bool end_use(uint32_t id);

    bool is_ready(uint32_t id) const { return entries_[id].state == State::ready; }
    const pkv_tier_key &key(uint32_t id) const { return entries_[id].key; }
    uint64_t offset(uint32_t id) const { return entries_[id].offset; }
    uint64_t size(uint32_t id) const { return entries_[id].size; }
    uint64_t tag(uint32_t id) const { return entries_[id].tag; }
    uint32_t pins(uint32_t id) const { return entries_[id].pins; }             ///< of pin(), without the retention's
    uint32_t uses(uint32_t id) const { return entries_[id].uses; }             ///< reads and writes under way
    uint64_t generation(uint32_t id) const { return entries_[id].generation; } ///< grows with each reserve()
    uint32_t priority(uint32_t id) const { return entries_[id].priority; }
    bool retention_pin(uint32_t id) const { return entries_[id].retention_pin; }
    uint64_t deadline_ns(uint32_t id) const { return entries_[id].deadline_ns; } ///< of its retention; 0 = none

    /// Its retention as of now: what is left of its time.
    pkv_retention retention(uint32_t id) const;

    /// The entries that would be evicted next, the first one first. Returns how many.
    uint64_t victims(std::span<uint32_t> out);

    /// Keys of findable images that are not private, from entry `cursor` on (0 = the first), a few thousand entries looked at.
    /// Returns how many; the cursor goes on, to 0 after the last entry.
    uint64_t list(uint64_t &cursor, std::span<pkv_tier_key> keys) const;
    bool is_shared(uint32_t id) const { return entries_[id].tag != PKV_TIER_TAG_PRIVATE; }

    uint64_t capacity_bytes() const { return capacity_bytes_; }
    uint64_t max_images() const { return max_images_; }
    uint64_t used_bytes() const { return used_bytes_; } ///< of all entries, also dropped ones still in use
    uint64_t images() const { return images_; }         ///< that can be found
    uint64_t pinned();                                  ///< of them pinned, by pin() or retention
    uint64_t evicted() const { return evicted_; }

  private:
    enum class State : uint8_t { free, writing, ready, doomed };
    struct Entry {
        pkv_tier_key key;
        uint64_t offset;
        uint64_t size;
        uint64_t generation;
        uint64_t stamp;       // of its last use; orders entries of one priority
        uint64_t deadline_ns; // of its retention
        uint64_t tag;
        uint32_t hash;                         // of the key
        uint32_t older, newer;                 // in the list of its class and priority
        uint32_t before_in_unit, next_in_unit; // images that begin in one unit of space; next also links free entries
        uint32_t before_of_tag, next_of_tag;   // entries whose tags share a bucket
        uint32_t timer;                        // its place in timers_, + 1; 0 = none
        uint32_t pins;
        uint32_t uses;
        State state;
        uint8_t priority;
        uint8_t size_class;
        bool retention_pin;
    };
    struct List {
        uint32_t oldest = no_entry, newest = no_entry;
    };
    static constexpr uint32_t priorities = PKV_PRIORITY_HIGHEST + 1;
    struct ClassLists {
        List lists[priorities];
        uint64_t filled[2] = {}; // bit = list with entries
    };

    uint64_t home(uint32_t hash) const { return hash >> hash_shift_; }
    uint64_t after(uint64_t place) const { return place + 1 < places_.size() ? place + 1 : 0; }
    void hide(uint32_t id);
    void tell_of(const Entry &entry);
    uint32_t take_id();
    void make(uint32_t id, const pkv_tier_key &key, uint32_t size_class, uint64_t offset, uint64_t size,
              const pkv_retention &retention, uint64_t tag);
    void show(uint32_t id);
    uint32_t &tag_bucket(uint64_t tag);
    void add_to_tag(uint32_t id);
    void take_from_tag(uint32_t id);
    void make_free(uint32_t id);
    bool is_pinned(const Entry &entry) const { return entry.pins != 0 || entry.retention_pin; }
    bool may_go(const Entry &entry) const {
        return entry.state == State::ready && entry.uses == 0 && !is_pinned(entry);
    }
    bool less_valuable(const Entry &a, const Entry &b) const;

    void list(uint32_t id);
    void unlist(uint32_t id);
    class Victims;
    uint32_t next_victim(uint32_t size_class, uint32_t after) const;
    bool find_room(uint32_t size_class, uint64_t &offset, std::vector<uint32_t> &evicted);
    bool take_from_others(uint32_t size_class, const Entry *limit, std::vector<uint32_t> &evicted);
    bool clear(Extents::UnitRange units, const Entry *limit, std::vector<uint32_t> &evicted);
    void evict(uint32_t id, std::vector<uint32_t> &evicted);

    void apply_retention(uint32_t id, const pkv_retention &retention);
    void expire();
    void set_timer(uint32_t id, uint64_t deadline_ns);
    void sift_timer(uint32_t place);

    uint64_t capacity_bytes_ = 0, max_images_ = 0;
    Extents space_;
    VirtualArray<Entry> entries_;
    VirtualArray<uint64_t> places_; // the hash table: hash << 32 | entry + 1; 0 = empty
    uint32_t hash_shift_ = 0;
    VirtualArray<uint32_t> units_; // first entry of each unit of space, + 1
    VirtualArray<uint32_t> tags_;  // first entry of each bucket of tags, + 1: all that is ready or being written
    std::unique_ptr<ClassLists[]> classes_;
    VirtualArray<uint32_t> timers_; // a heap of entries, the first deadline first
    uint32_t num_timers_ = 0;
    TierWatches *watches_ = nullptr;
    uint32_t fresh_ = 0; // entries from here on were never taken, unless restored
    uint64_t end_ = 0;   // entries from here on were never taken
    uint32_t free_ = no_entry;
    uint64_t stamp_ = 0, generation_ = 0;
    uint64_t used_bytes_ = 0, images_ = 0, pinned_ = 0, evicted_ = 0;
};

} // namespace pkv
