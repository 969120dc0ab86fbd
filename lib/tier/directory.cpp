// SPDX-License-Identifier: Apache-2.0
// Entries, the table of their keys, and timers; which of them goes is in victims.cpp.
#include "tier/directory.h"

#include "core/clock.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstring>

namespace pkv {
namespace {

constexpr uint64_t tag_buckets = 1 << 16;
constexpr uint64_t most_images = uint64_t{1} << 31;

/// Keys are digests or random, but a caller may have made up its own: every byte counts.
uint32_t hash_of(const pkv_tier_key &key) {
    uint64_t words[4];
    static_assert(sizeof words == sizeof key.bytes);
    std::memcpy(words, key.bytes, sizeof words);
    uint64_t hash = 0;
    for (const uint64_t word : words) hash = (std::rotl(hash, 32) ^ word) * 0x9E3779B97F4A7C15u;
    return static_cast<uint32_t>(hash >> 32);
}

} // namespace

pkv_status Directory::create(uint64_t capacity_bytes, uint64_t max_images) {
    if (capacity_bytes == 0 || capacity_bytes % PKV_IMAGE_ALIGNMENT != 0)
        return fail(PKV_ERR_INVALID, "capacity_bytes is %" PRIu64 ", not a multiple of %d above 0", capacity_bytes,
                    PKV_IMAGE_ALIGNMENT);
    if (max_images == 0 || max_images > most_images)
        return fail(PKV_ERR_LIMIT, "max_images is %" PRIu64 ", not between 1 and 2^31", max_images);
    capacity_bytes_ = capacity_bytes;
    max_images_ = max_images;
    const uint64_t places = 2 * std::bit_ceil(max_images); // so that few keys share a place
    hash_shift_ = 32 - static_cast<uint32_t>(std::countr_zero(places));
    classes_ = std::make_unique<ClassLists[]>(Extents::max_classes);
    if (!space_.create(capacity_bytes) || !entries_.reserve(max_images) || !places_.reserve(places) ||
        !timers_.reserve(max_images) || !units_.reserve(space_.units()) || !tags_.reserve(tag_buckets))
        return fail(PKV_ERR_NO_MEMORY, "no address space for the names of %" PRIu64 " images", max_images);
    return PKV_OK;
}

// ---- keys

// An open table: what is at a place, or after it without a gap, may belong there. A key that is not there costs one look into
// the table, and none at an entry.

uint32_t Directory::find(const pkv_tier_key &key) {
    const uint32_t hash = hash_of(key);
    for (uint64_t at = home(hash); places_[at] != 0; at = after(at))
        if (places_[at] >> 32 == hash) {
            const uint32_t id = static_cast<uint32_t>(places_[at]) - 1;
            if (std::memcmp(&entries_[id].key, &key, sizeof key) == 0) return id;
        }
    return no_entry;
}

/// Makes an entry ready.
void Directory::show(uint32_t id) {
    Entry &entry = entries_[id];
    entry.hash = hash_of(entry.key);
    uint64_t at = home(entry.hash);
    while (places_[at] != 0) at = after(at);
    places_[at] = uint64_t{entry.hash} << 32 | (id + 1);
    entry.state = State::ready;
    ++images_;
    list(id);
    tell_of(entry);
}

void Directory::tell_of(const Entry &entry) {
    if (watches_ != nullptr && entry.tag != PKV_TIER_TAG_PRIVATE) watches_->changed(entry.key);
}

/// The opposite.
void Directory::hide(uint32_t id) {
    unlist(id);
    --images_;
    uint64_t gap = home(entries_[id].hash);
    while (static_cast<uint32_t>(places_[gap]) != id + 1) gap = after(gap);
    // What comes after moves up, unless it would come before its home.
    const uint64_t mask = places_.size() - 1;
    for (uint64_t at = after(gap); places_[at] != 0; at = after(at)) {
        const uint64_t from_home = (at - home(static_cast<uint32_t>(places_[at] >> 32))) & mask;
        if (from_home < ((at - gap) & mask)) continue;
        places_[gap] = places_[at];
        gap = at;
    }
    places_[gap] = 0;
    tell_of(entries_[id]);
}

// ---- entries

uint32_t Directory::take_id() {
    if (free_ != no_entry) {
        const uint32_t id = free_;
        free_ = entries_[id].next_in_unit;
        return id;
    }
    while (fresh_ < max_images_ && entries_[fresh_].state != State::free) ++fresh_; // restored ones
    return fresh_ < max_images_ ? fresh_++ : no_entry;
}

/// Fills in a free entry, whose space was taken; it is being written then.
void Directory::make(uint32_t id, const pkv_tier_key &key, uint32_t size_class, uint64_t offset, uint64_t size,
                     const pkv_retention &retention, uint64_t tag) {
    Entry &entry = entries_[id];
    entry = Entry{};
    end_ = std::max<uint64_t>(end_, uint64_t{id} + 1);
    entry.key = key;
    entry.offset = offset;
    entry.size = size;
    entry.size_class = static_cast<uint8_t>(size_class);
    entry.state = State::writing;
    uint32_t &head = units_[space_.unit_of(offset)];
    entry.before_in_unit = no_entry;
    entry.next_in_unit = head != 0 ? head - 1 : no_entry;
    if (head != 0) entries_[head - 1].before_in_unit = id;
    head = id + 1;
    used_bytes_ += size;
    entry.tag = tag;
    add_to_tag(id);
    apply_retention(id, retention);
}

void Directory::make_free(uint32_t id) {
    Entry &entry = entries_[id];
    if (entry.before_in_unit != no_entry)
        entries_[entry.before_in_unit].next_in_unit = entry.next_in_unit;
    else
        units_[space_.unit_of(entry.offset)] = entry.next_in_unit + 1; // no_entry + 1 = 0
    if (entry.next_in_unit != no_entry) entries_[entry.next_in_unit].before_in_unit = entry.before_in_unit;
    space_.give_back(entry.size_class, entry.offset);
    used_bytes_ -= entry.size;
    entry.state = State::free;
    if (id >= fresh_) return; // take_id() will come by
    entry.next_in_unit = free_;
    free_ = id;
}

uint32_t Directory::ready(uint32_t id) {
    if (entries_[id].state == State::doomed) return no_entry;
    const uint32_t other = find(entries_[id].key);
    if (other == no_entry)
        show(id);
    else if (other != id)
        drop(id);
    return other == no_entry ? id : other;
}

bool Directory::drop(uint32_t id) {
    Entry &entry = entries_[id];
    if (entry.state == State::doomed) return false; // by clear()
    if (entry.state == State::ready) hide(id);
    take_from_tag(id);
    set_timer(id, 0);
    entry.pins = 0;
    entry.retention_pin = false;
    entry.state = State::doomed;
    if (entry.uses != 0) return false;
    make_free(id);
    return true;
}

bool Directory::restore(uint32_t id, const pkv_tier_key &key, uint64_t offset, uint64_t size,
                        const pkv_retention &retention, uint64_t tag, uint64_t generation) {
    if (id >= max_images_ || id < fresh_ || entries_[id].state != State::free || find(key) != no_entry) return false;
    const uint32_t size_class = space_.class_for(size);
    if (size_class == Extents::no_class || !space_.take_at(size_class, offset)) return false;
    make(id, key, size_class, offset, size, retention, tag);
    entries_[id].generation = generation;
    generation_ = std::max(generation_, generation);
    show(id);
    return true;
}

uint64_t Directory::list(uint64_t &cursor, std::span<pkv_tier_key> keys) const {
    constexpr uint64_t at_once = 4096;
    const uint64_t end = std::min(end_, cursor + at_once);
    uint64_t count = 0;
    for (; cursor < end && count < keys.size(); ++cursor) {
        const Entry &entry = entries_[cursor];
        if (entry.state == State::ready && entry.tag != PKV_TIER_TAG_PRIVATE) keys[count++] = entry.key;
    }
    if (cursor >= end_) cursor = 0;
    return count;
}

// ---- tags

uint32_t &Directory::tag_bucket(uint64_t tag) { return tags_[(tag ^ tag >> 32) * 0x9E3779B97F4A7C15u >> 48]; }

void Directory::add_to_tag(uint32_t id) {
    Entry &entry = entries_[id];
    uint32_t &head = tag_bucket(entry.tag);
    entry.before_of_tag = no_entry;
    entry.next_of_tag = head != 0 ? head - 1 : no_entry;
    if (head != 0) entries_[head - 1].before_of_tag = id;
    head = id + 1;
}

void Directory::take_from_tag(uint32_t id) {
    const Entry &entry = entries_[id];
    if (entry.before_of_tag != no_entry)
        entries_[entry.before_of_tag].next_of_tag = entry.next_of_tag;
    else
        tag_bucket(entry.tag) = entry.next_of_tag + 1; // no_entry + 1 = 0
    if (entry.next_of_tag != no_entry) entries_[entry.next_of_tag].before_of_tag = entry.before_of_tag;
}

void Directory::clear(uint64_t tag, std::vector<uint32_t> &dropped) {
    const bool all = tag == PKV_TIER_TAG_ALL;
    const uint64_t first = all ? 0 : static_cast<uint64_t>(&tag_bucket(tag) - tags_.data());
    const uint64_t end = all ? tag_buckets : first + 1;
    for (uint64_t i = first; i < end; ++i)
        for (uint32_t id = tags_[i] - 1, next; id != no_entry; id = next) {
            next = entries_[id].next_of_tag;
            if (all ? entries_[id].tag == PKV_TIER_TAG_PRIVATE : entries_[id].tag != tag) continue;
            dropped.push_back(id); // first: it may throw
            drop(id);
        }
}

// ---- uses and pins

void Directory::touch(uint32_t id) {
    unlist(id);
    list(id);
}

void Directory::pin(uint32_t id) {
    unlist(id);
    ++entries_[id].pins;
    list(id);
}

bool Directory::unpin(uint32_t id) {
    if (entries_[id].pins == 0) return false;
    unlist(id);
    --entries_[id].pins;
    list(id);
    return true;
}

void Directory::begin_use(uint32_t id) { ++entries_[id].uses; }

bool Directory::end_use(uint32_t id) {
    Entry &entry = entries_[id];
    if (--entry.uses != 0 || entry.state != State::doomed) return false;
    make_free(id);
    return true;
}

uint64_t Directory::pinned() {
    expire();
    return pinned_;
}

// ---- retention

void Directory::set_retention(uint32_t id, const pkv_retention &retention) { apply_retention(id, retention); }

void Directory::apply_retention(uint32_t id, const pkv_retention &retention) {
    if (entries_[id].state == State::doomed) return;
    unlist(id);
    entries_[id].priority = static_cast<uint8_t>(std::min<uint32_t>(retention.priority, PKV_PRIORITY_HIGHEST));
    entries_[id].retention_pin = retention.pin != 0;
    list(id);
    uint64_t deadline = 0;
    if (retention.ttl_ns != 0 && __builtin_add_overflow(monotonic_ns(), retention.ttl_ns, &deadline)) deadline = 0;
    set_timer(id, deadline);
}

pkv_retention Directory::retention(uint32_t id) const {
    const Entry &entry = entries_[id];
    pkv_retention retention = PKV_RETENTION_INIT;
    retention.priority = entry.priority;
    retention.pin = entry.retention_pin ? 1 : 0;
    if (entry.deadline_ns == 0) return retention;
    const uint64_t now = monotonic_ns();
    if (entry.deadline_ns <= now) return PKV_RETENTION_INIT;
    retention.ttl_ns = entry.deadline_ns - now;
    return retention;
}

void Directory::expire() {
    if (num_timers_ == 0) return;
    const uint64_t now = monotonic_ns();
    while (num_timers_ != 0 && entries_[timers_[0]].deadline_ns <= now)
        apply_retention(timers_[0], pkv_retention PKV_RETENTION_INIT);
}

/// Sets, moves or (0) removes the time at which the entry's retention ends.
void Directory::set_timer(uint32_t id, uint64_t deadline_ns) {
    Entry &entry = entries_[id];
    entry.deadline_ns = deadline_ns;
    if (deadline_ns != 0) {
        if (entry.timer == 0) {
            timers_[num_timers_++] = id;
            entry.timer = num_timers_;
        }
        sift_timer(entry.timer - 1);
    } else if (entry.timer != 0) {
        const uint32_t place = entry.timer - 1;
        entry.timer = 0;
        const uint32_t last = timers_[--num_timers_];
        if (last == id) return;
        timers_[place] = last;
        entries_[last].timer = place + 1;
        sift_timer(place);
    }
}

/// Moves the timer at this place of the heap to where it belongs.
void Directory::sift_timer(uint32_t place) {
    const auto deadline = [this](uint64_t at) { return entries_[timers_[at]].deadline_ns; };
    const auto exchange = [this](uint64_t a, uint64_t b) {
        std::swap(timers_[a], timers_[b]);
        entries_[timers_[a]].timer = static_cast<uint32_t>(a + 1);
        entries_[timers_[b]].timer = static_cast<uint32_t>(b + 1);
    };
    uint64_t at = place;
    for (; at != 0 && deadline(at) < deadline((at - 1) / 2); at = (at - 1) / 2) exchange(at, (at - 1) / 2);
    for (;;) {
        uint64_t child = 2 * at + 1;
        if (child >= num_timers_) return;
        if (child + 1 < num_timers_ && deadline(child + 1) < deadline(child)) ++child;
        if (deadline(at) <= deadline(child)) return;
        exchange(at, child);
        at = child;
    }
}

} // namespace pkv
