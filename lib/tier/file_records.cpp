// SPDX-License-Identifier: Apache-2.0
// Records of a file tier. What changes is marked; write_marked() writes what the directory says by then. So one list of
// numbers is enough, each in it once, and a record is never older than another thread's last word about it.
#include "core/clock.h"
#include "tier/file_tier.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <ctime>

namespace pkv {

namespace {

constexpr uint64_t used_interval_ns = 1'000'000'000; // between two turns that write last uses
constexpr uint64_t used_words_at_once = 4096;
constexpr uint32_t used_at_once = 1024;

} // namespace

pkv_status FileTier::create_records(uint64_t max_images) {
    const Lock lock(mutex_);
    if (!last_use_.reserve(max_images) || !marked_.reserve(max_images) || !used_.reserve(max_images / 64 + 1))
        return fail(PKV_ERR_NO_MEMORY, "no address space for the records of %llu images",
                    static_cast<unsigned long long>(max_images));
    return PKV_OK;
}

/// A use of an image: written now and then, and when the tier is closed.
void FileTier::use(uint32_t id) {
    last_use_[id] = ++uses_;
    used_[id / 64] |= uint64_t{1} << id % 64;
}

void FileTier::mark(uint32_t id) {
    if (marked_[id] != 0) return;
    marked_[id] = first_marked_ == end_of_marked ? end_of_marked : first_marked_ + 1;
    first_marked_ = id;
}

/// Called as reads and writes end: once in a while marks some entries whose last use is not in the file.
void FileTier::mark_some_used() {
    const uint64_t now = monotonic_ns();
    if (now < next_used_ns_) return;
    next_used_ns_ = now + used_interval_ns;
    uint32_t count = 0;
    for (uint64_t turn = 0; turn < std::min(used_words_at_once, used_.size()) && count < used_at_once; ++turn) {
        for (uint64_t bits = used_[next_used_word_]; bits != 0; bits &= bits - 1, ++count)
            mark(static_cast<uint32_t>(next_used_word_ * 64) + static_cast<uint32_t>(std::countr_zero(bits)));
        if (++next_used_word_ == used_.size()) next_used_word_ = 0;
    }
}

void FileTier::mark_all_used() {
    for (uint64_t word = 0; word < used_.size(); ++word)
        for (uint64_t bits = used_[word]; bits != 0; bits &= bits - 1)
            mark(static_cast<uint32_t>(word * 64) + static_cast<uint32_t>(std::countr_zero(bits)));
}

FileRecord FileTier::record(uint32_t id) {
    FileRecord record{};
    // Nobody finds an image of one live sequence after the end of the process.
    if (!directory_.is_ready(id) || directory_.tag(id) == PKV_TIER_TAG_PRIVATE) return record;
    record.magic = FileRecord::magic_value;
    record.number = id;
    record.life = disk_.header().life;
    record.key = directory_.key(id);
    record.offset = directory_.offset(id);
    record.size = directory_.size(id);
    record.generation = directory_.generation(id);
    record.last_use = last_use_[id];
    record.tag = directory_.tag(id);
    record.priority = directory_.priority(id);
    record.pin = directory_.retention_pin(id) ? 1 : 0;
    if (const uint64_t deadline = directory_.deadline_ns(id); deadline != 0) {
        // On the wall clock, which goes on while no process runs.
        const uint64_t now = monotonic_ns();
        record.deadline_ns = wall_ns() + (deadline > now ? deadline - now : 0);
    }
    seal(record);
    return record;
}

void FileTier::write_marked() {
    constexpr size_t at_once = 64;
    std::array<uint32_t, at_once> ids;
    std::array<FileRecord, at_once> records;
    // Held across the writes: whoever comes after them finds what it marked, or what somebody else took for it, written.
    const std::lock_guard order(records_mutex_);
    for (;;) {
        size_t count = 0;
        {
            const Lock lock(mutex_);
            for (; count < at_once && first_marked_ != end_of_marked; ++count) {
                const uint32_t id = first_marked_;
                first_marked_ = marked_[id] == end_of_marked ? end_of_marked : marked_[id] - 1;
                marked_[id] = 0;
                ids[count] = id;
            }
            std::sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count));
            for (size_t i = 0; i < count; ++i) {
                records[i] = record(ids[i]);
                used_[ids[i] / 64] &= ~(uint64_t{1} << ids[i] % 64);
            }
        }
        if (count == 0) return;
        for (size_t first = 0, end = 0; first < count; first = end) {
            for (end = first + 1; end < count && ids[end] == ids[end - 1] + 1;) ++end;
            // A record that cannot be written costs its image at the next restart, or leads there to bytes that are not its
            // image; nothing else depends on it.
            if (disk_.write_records(ids[first], {&records[first], end - first}) != 0)
                io_errors_.fetch_add(1, std::memory_order_relaxed);
        }
        if (count < at_once) return;
    }
}

} // namespace pkv
