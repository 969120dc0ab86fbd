// SPDX-License-Identifier: Apache-2.0
// Which image goes when a directory needs room: that of the lowest priority, among equals the least recently used one.
//
// An image that goes leaves room for one of its own size only. Space passes from one size to another by whole extents: when a
// size has nothing left to evict, or when all that lies where its new extent would be is less valuable than the image that it
// would evict itself. So the sizes share the space as one order of use would have it.
#include "tier/directory.h"

#include <bit>

namespace pkv {

bool Directory::less_valuable(const Entry &a, const Entry &b) const {
    return a.priority != b.priority ? a.priority < b.priority : a.stamp < b.stamp;
}

/// Puts an entry that is ready where its retention wants it, as the most recently used: into the list of its class and
/// priority, or among the pinned ones.
void Directory::list(uint32_t id) {
    Entry &entry = entries_[id];
    if (entry.state != State::ready) return;
    entry.stamp = ++stamp_;
    if (is_pinned(entry)) {
        ++pinned_;
        return;
    }
    ClassLists &lists = classes_[entry.size_class];
    List &list = lists.lists[entry.priority];
    entry.older = list.newest;
    entry.newer = no_entry;
    (list.newest != no_entry ? entries_[list.newest].newer : list.oldest) = id;
    list.newest = id;
    lists.filled[entry.priority / 64] |= uint64_t{1} << entry.priority % 64;
}

void Directory::unlist(uint32_t id) {
    const Entry &entry = entries_[id];
    if (entry.state != State::ready) return;
    if (is_pinned(entry)) {
        --pinned_;
        return;
    }
    ClassLists &lists = classes_[entry.size_class];
    List &list = lists.lists[entry.priority];
    (entry.older != no_entry ? entries_[entry.older].newer : list.oldest) = entry.newer;
    (entry.newer != no_entry ? entries_[entry.newer].older : list.newest) = entry.older;
    if (list.oldest == no_entry) lists.filled[entry.priority / 64] &= ~(uint64_t{1} << entry.priority % 64);
}

/// The least valuable entry of a class that may go, or the next one after `after`. Those in use are few, and recently used.
uint32_t Directory::next_victim(uint32_t size_class, uint32_t after) const {
    const ClassLists &lists = classes_[size_class];
    uint32_t priority = 0;
    uint32_t id = no_entry;
    if (after != no_entry) {
        priority = entries_[after].priority + 1u;
        id = entries_[after].newer;
    }
    for (;;) {
        for (; id != no_entry; id = entries_[id].newer)
            if (entries_[id].uses == 0) return id;
        while (priority < priorities && lists.filled[priority / 64] >> priority % 64 == 0)
            priority = (priority / 64 + 1) * 64;
        if (priority >= priorities) return no_entry;
        priority += static_cast<uint32_t>(std::countr_zero(lists.filled[priority / 64] >> priority % 64));
        id = lists.lists[priority++].oldest;
    }
}

/// All entries that may go, of all classes but one, the least valuable first.
class Directory::Victims {
  public:
    explicit Victims(const Directory &directory, uint32_t but_class = Extents::no_class) : directory_(directory) {
        for (uint32_t i = 0; i < directory.space_.num_classes(); ++i)
            next_[i] = i != but_class ? directory.next_victim(i, no_entry) : no_entry;
    }
    uint32_t next() {
        uint32_t best = no_entry;
        for (uint32_t i = 0; i < directory_.space_.num_classes(); ++i)
            if (next_[i] != no_entry && (best == no_entry || directory_.less_valuable(directory_.entries_[next_[i]],
                                                                                      directory_.entries_[best])))
                best = next_[i];
        if (best != no_entry) {
            uint32_t &cursor = next_[directory_.entries_[best].size_class];
            cursor = directory_.next_victim(directory_.entries_[best].size_class, best);
        }
        return best;
    }

  private:
    const Directory &directory_;
    uint32_t next_[Extents::max_classes];
};

uint64_t Directory::victims(std::span<uint32_t> out) {
    expire();
    Victims victims(*this);
    uint64_t count = 0;
    for (; count < out.size(); ++count) {
        out[count] = victims.next();
        if (out[count] == no_entry) break;
    }
    return count;
}

void Directory::evict(uint32_t id, std::vector<uint32_t> &evicted) {
    evicted.push_back(id); // first: it may throw
    ++evicted_;
    drop(id);
}

/// Evicts all that lies in these units, if all of it may go, and is less valuable than `limit` (nullptr = whatever it is).
bool Directory::clear(Extents::UnitRange units, const Entry *limit, std::vector<uint32_t> &evicted) {
    if (units.begin == units.end) return false;
    for (uint32_t unit = units.begin; unit < units.end; ++unit)
        for (uint32_t id = units_[unit] - 1; id != no_entry; id = entries_[id].next_in_unit)
            if (!may_go(entries_[id]) || (limit != nullptr && !less_valuable(entries_[id], *limit))) return false;
    for (uint32_t unit = units.begin; unit < units.end; ++unit)
        while (units_[unit] != 0) evict(units_[unit] - 1, evicted);
    return true;
}

/// Makes room for an extent of the class where other classes have theirs.
bool Directory::take_from_others(uint32_t size_class, const Entry *limit, std::vector<uint32_t> &evicted) {
    constexpr int tries = 4;
    if (space_.num_classes() == 1) return false;
    Victims victims(*this, size_class);
    for (int i = 0; i < tries; ++i) {
        const uint32_t id = victims.next();
        if (id == no_entry || (limit != nullptr && !less_valuable(entries_[id], *limit))) return false;
        if (clear(space_.around(size_class, space_.unit_of(entries_[id].offset)), limit, evicted)) return true;
    }
    if (limit != nullptr) return false;
    // The least valuable ones lie beside some that must stay: any place will do.
    const uint64_t step = space_.extent_units(size_class);
    for (uint64_t unit = 0; unit < space_.units(); unit += step)
        if (clear(space_.around(size_class, static_cast<uint32_t>(unit)), nullptr, evicted)) return true;
    return false;
}

bool Directory::find_room(uint32_t size_class, uint64_t &offset, std::vector<uint32_t> &evicted) {
    while (!space_.take(size_class, offset)) {
        const uint32_t own = next_victim(size_class, no_entry);
        if (take_from_others(size_class, own != no_entry ? &entries_[own] : nullptr, evicted)) continue;
        if (own == no_entry) return false;
        evict(own, evicted);
    }
    return true;
}

uint32_t Directory::reserve(const pkv_tier_key &key, uint64_t size, const pkv_retention &retention, uint64_t tag,
                            std::vector<uint32_t> &evicted) {
    expire();
    const uint32_t size_class = space_.class_for(size);
    uint64_t offset = 0;
    if (size_class == Extents::no_class || !find_room(size_class, offset, evicted)) return no_entry;
    uint32_t id = take_id();
    if (id == no_entry) {
        const uint32_t victim = Victims(*this).next();
        if (victim == no_entry) {
            space_.give_back(size_class, offset);
            return no_entry;
        }
        try {
            evict(victim, evicted);
        } catch (...) {
            space_.give_back(size_class, offset);
            throw;
        }
        id = take_id();
    }
    make(id, key, size_class, offset, size, retention, tag);
    entries_[id].generation = ++generation_;
    entries_[id].uses = 1;
    return id;
}

} // namespace pkv
