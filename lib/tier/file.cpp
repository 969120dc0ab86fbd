// SPDX-License-Identifier: Apache-2.0
#include "tier/file.h"

#include "core/clock.h"
#include "tier/file_tier.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <new>

namespace pkv {

namespace {

bool is_aligned(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer) % PKV_IMAGE_ALIGNMENT == 0; }

pkv_status status_of(const FileIo &io) {
    switch (io.error) {
    case 0: return PKV_OK;
    case ENOSPC:
    case EDQUOT: return PKV_ERR_NO_SPACE;
    case ECANCELED: return io.device_failed ? PKV_ERR_IO : PKV_ERR_CANCELLED;
    case ETIMEDOUT: return io.device_failed ? PKV_ERR_IO : PKV_ERR_TIMEOUT;
    default: return PKV_ERR_IO;
    }
}

/// The bytes are gone: another try would not bring them back.
bool is_lasting(const FileIo &io) {
    return io.device_failed && (io.error == EIO || io.error == ENODATA || io.error == EILSEQ);
}

} // namespace

pkv_status FileTier::submit(const pkv_tier_batch &batch) {
    try {
        switch (batch.kind) {
        case PKV_TIER_STORE:
        case PKV_TIER_LOAD: return submit_transfers(batch);
        case PKV_TIER_LOOKUP:
        case PKV_TIER_REMOVE:
        case PKV_TIER_UNPIN:
        case PKV_TIER_RETAIN:
        case PKV_TIER_PROBE:
        case PKV_TIER_CLEAR: return submit_others(batch);
        default: return fail(PKV_ERR_UNSUPPORTED, "a file tier has no requests of kind %d", batch.kind);
        }
    } catch (const std::bad_alloc &) { // thrown before anything was begun
        return fail(PKV_ERR_NO_MEMORY, "no memory for a request of %llu items",
                    static_cast<unsigned long long>(batch.num_items));
    }
}

// ---- done at once

pkv_status FileTier::submit_others(const pkv_tier_batch &batch) {
    std::vector<Result> results(batch.num_items);
    {
        const Lock lock(mutex_);
        for (uint64_t i = 0; i < batch.num_items; ++i) results[i] = do_other(batch, i);
    }
    if (batch.kind == PKV_TIER_REMOVE || batch.kind == PKV_TIER_RETAIN || batch.kind == PKV_TIER_CLEAR) write_marked();
    pkv_tier_request *const request = batch.request;
    for (uint64_t i = 0; i < results.size(); ++i) pkv_tier_complete(request, i, results[i].status, results[i].value);
    return PKV_OK;
}

FileTier::Result FileTier::do_other(const pkv_tier_batch &batch, uint64_t item) {
    if (batch.kind == PKV_TIER_CLEAR) return {clear(batch.tags[item]), 0};
    const uint32_t id = directory_.find(batch.keys[item]);
    if (id == Directory::no_entry) return {batch.kind == PKV_TIER_REMOVE ? PKV_OK : PKV_ERR_NOT_FOUND, 0};
    switch (batch.kind) {
    case PKV_TIER_LOOKUP:
        directory_.touch(id);
        use(id);
        if ((batch.flags & PKV_TIER_PIN) != 0) directory_.pin(id);
        return {PKV_OK, directory_.size(id)};
    case PKV_TIER_REMOVE:
        if (directory_.pins(id) != 0 && (batch.flags & PKV_TIER_FORCE) == 0) return {PKV_ERR_BUSY, 0};
        directory_.drop(id);
        mark(id);
        return {PKV_OK, 0};
    case PKV_TIER_UNPIN: return {directory_.unpin(id) ? PKV_OK : PKV_ERR_NOT_FOUND, 0};
    case PKV_TIER_RETAIN:
        directory_.set_retention(id, batch.retention[item]);
        mark(id);
        return {PKV_OK, 0};
    default: return {PKV_OK, directory_.size(id)}; // PKV_TIER_PROBE
    }
}

pkv_status FileTier::clear(uint64_t tag) {
    // Stores under way are in it, too. One that comes later must not join them.
    for (Transfer *&bucket : writing_)
        for (Transfer **place = &bucket; *place != nullptr;) {
            const uint64_t its = directory_.tag((*place)->entry);
            if (its == tag || (tag == PKV_TIER_TAG_ALL && its != PKV_TIER_TAG_PRIVATE)) {
                (*place)->cleared = true;
                *place = (*place)->next_writing;
            } else {
                place = &(*place)->next_writing;
            }
        }
    evicted_.clear();
    pkv_status status = PKV_OK;
    try {
        directory_.clear(tag, evicted_);
    } catch (const std::bad_alloc &) {
        status = PKV_ERR_NO_MEMORY;
    }
    for (const uint32_t id : evicted_) mark(id);
    return status;
}

// ---- loads and stores: their beginning

pkv_status FileTier::submit_transfers(const pkv_tier_batch &batch) {
    auto owned = std::make_unique<Batch>();
    owned->transfers = std::make_unique<Transfer[]>(batch.num_items);
    owned->request = batch.request;
    const uint64_t num_items = batch.num_items;
    const bool store = batch.kind == PKV_TIER_STORE;
    owned->open.store(num_items + 1, std::memory_order_relaxed);
    Batch *const list = owned.release();

    FileIoList begun;
    {
        const Lock lock(mutex_);
        for (uint64_t i = 0; i < num_items; ++i) {
            Transfer &transfer = list->transfers[i];
            transfer.batch = list;
            transfer.item = i;
            transfer.write = store;
            transfer.urgent = batch.urgent != 0;
            transfer.deadline_ns = batch.deadline_ns;
            transfer.owner = batch.request;
            if (store ? begin_store(transfer, batch) : begin_load(transfer, batch)) begun.push(transfer);
        }
    }
    // Before any byte of a store is written, the records of what lay in its place are cleared.
    if (store) write_marked();
    if (!begun.empty()) engine_->submit(begun);
    // From here on the batch may have ended, but not the list.
    for (uint64_t i = 0; i < num_items; ++i)
        if (list->transfers[i].at_once) complete(list->transfers[i], list->transfers[i].status);
    release(list);
    return PKV_OK;
}

/// True when there is something to read; else its status is known.
bool FileTier::begin_load(Transfer &transfer, const pkv_tier_batch &batch) {
    const uint64_t i = transfer.item;
    const uint64_t offset = batch.offsets[i], size = batch.sizes[i];
    const uint32_t id = directory_.find(batch.keys[i]);
    transfer.at_once = true;
    transfer.status = PKV_ERR_NOT_FOUND;
    if (id == Directory::no_entry) return false;
    transfer.status = PKV_ERR_INVALID;
    if ((offset | size) % PKV_IMAGE_ALIGNMENT != 0 || !is_aligned(batch.data[i])) return false;
    const uint64_t image = directory_.size(id);
    if (offset > image || size > image - offset) return false;
    transfer.status = PKV_OK;
    if (size == 0) return false;
    transfer.at_once = false;
    transfer.entry = id;
    transfer.data = static_cast<std::byte *>(batch.data[i]);
    transfer.offset = disk_.header().payload_offset + directory_.offset(id) + offset;
    transfer.size = size;
    directory_.begin_use(id);
    return true;
}

/// True when there is something to write. Else its status is known, or it has joined another store of its key.
bool FileTier::begin_store(Transfer &transfer, const pkv_tier_batch &batch) {
    const uint64_t i = transfer.item;
    const pkv_tier_key &key = batch.keys[i];
    const uint64_t size = batch.sizes[i];
    transfer.key = key;
    transfer.pin = (batch.flags & PKV_TIER_PIN) != 0;
    transfer.retention = &batch.retention[i];
    transfer.at_once = true;
    if (const uint32_t id = directory_.find(key); id != Directory::no_entry) {
        renew(id, transfer);
        return false;
    }
    transfer.status = PKV_ERR_INVALID;
    if (size == 0 || size % PKV_IMAGE_ALIGNMENT != 0 || !is_aligned(batch.data[i])) return false;
    Transfer **const place = writing_place(key);
    if (Transfer *const first = *place; first != nullptr) {
        transfer.at_once = false;
        transfer.joined = first->joined;
        first->joined = &transfer;
        return false;
    }
    evicted_.clear();
    transfer.status = PKV_ERR_NO_SPACE;
    try {
        transfer.entry = directory_.reserve(key, size, batch.retention[i], batch.tags[i], evicted_);
    } catch (const std::bad_alloc &) {
        transfer.status = PKV_ERR_NO_MEMORY;
    }
    for (const uint32_t id : evicted_) mark(id);
    if (transfer.entry == Directory::no_entry) return false;
    transfer.at_once = false;
    transfer.data = static_cast<std::byte *>(batch.data[i]);
    transfer.offset = disk_.header().payload_offset + directory_.offset(transfer.entry);
    transfer.size = size;
    *place = &transfer; // at the end of its bucket
    return true;
}

/// A use of an image by one who stores it: it was there already, or it is there now.
void FileTier::renew(uint32_t id, const Transfer &transfer) {
    const pkv_retention &wanted = *transfer.retention;
    const bool same = wanted.priority == directory_.priority(id) && (wanted.pin != 0) == directory_.retention_pin(id) &&
                      wanted.ttl_ns == 0 && directory_.deadline_ns(id) == 0;
    if (same) {
        directory_.touch(id);
    } else {
        directory_.set_retention(id, wanted);
        mark(id);
    }
    use(id);
    if (transfer.pin) directory_.pin(id);
}

/// Where the store of this key that is under way is linked, or would be.
FileTier::Transfer **FileTier::writing_place(const pkv_tier_key &key) {
    uint64_t word;
    std::memcpy(&word, key.bytes, sizeof word);
    Transfer **place = &writing_[(word * 0x9E3779B97F4A7C15u >> 32) % writing_buckets];
    while (*place != nullptr && std::memcmp(&(*place)->key, &key, sizeof key) != 0) place = &(*place)->next_writing;
    return place;
}

void FileTier::unlink_writing(const Transfer &transfer) {
    if (Transfer **const place = writing_place(transfer.key); *place == &transfer) *place = transfer.next_writing;
}

// ---- loads and stores: their end

void FileTier::ended(FileIo &io) {
    auto &transfer = static_cast<Transfer &>(io);
    if (transfer.device_failed) note_error(transfer);
    pkv_status status = status_of(transfer);
    Transfer *joined = nullptr;
    bool marked = false;
    {
        const Lock lock(mutex_);
        if (transfer.write)
            joined = end_store(transfer, status);
        else
            end_load(transfer);
        mark_some_used();
        marked = first_marked_ != end_of_marked;
    }
    if (marked || transfer.write) write_marked();
    // Those that had joined it have asked for no end of their own: another try of theirs may succeed.
    const bool own_end = !closing_.load(std::memory_order_relaxed) && transfer.error != 0 &&
                         (status == PKV_ERR_CANCELLED || status == PKV_ERR_TIMEOUT);
    complete(transfer, status);
    while (joined != nullptr) {
        Transfer *const next = joined->joined;
        complete(*joined, own_end ? PKV_ERR_AGAIN : status);
        joined = next;
    }
}

/// Returns the stores that had joined this one.
FileTier::Transfer *FileTier::end_store(Transfer &transfer, pkv_status &status) {
    unlink_writing(transfer);
    uint32_t id = Directory::no_entry;
    if (transfer.error == 0 && !transfer.cleared) id = directory_.ready(transfer.entry);
    if (id != Directory::no_entry) {
        for (Transfer *each = &transfer; each != nullptr; each = each->joined) renew(id, *each);
        if (directory_.tag(id) != PKV_TIER_TAG_PRIVATE) mark(id);
    } else {
        directory_.drop(transfer.entry);
        if (status == PKV_OK) status = PKV_ERR_CANCELLED; // cleared before it was there
    }
    directory_.end_use(transfer.entry);
    return transfer.joined;
}

void FileTier::end_load(Transfer &transfer) {
    if (is_lasting(transfer) && directory_.is_ready(transfer.entry)) {
        directory_.drop(transfer.entry);
        mark(transfer.entry);
    }
    directory_.end_use(transfer.entry);
}

void FileTier::complete(Transfer &transfer, pkv_status status) {
    Batch *const batch = transfer.batch;
    const uint64_t value = status == PKV_OK && !transfer.write ? transfer.size : 0;
    const uint64_t item = transfer.item;
    for (uint32_t i = 0; i < transfer.deliveries; ++i) pkv_tier_complete(batch->request, item, status, value);
    release(batch);
}

void FileTier::release(Batch *batch) {
    if (batch->open.fetch_sub(1, std::memory_order_acq_rel) == 1) delete batch;
}

/// Counts a failure; the log gets the first one, the second, the fourth and so on.
void FileTier::note_error(const Transfer &transfer) {
    const uint64_t count = io_errors_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (!std::has_single_bit(count)) return;
    log_message(PKV_LOG_WARNING, "%s: %s of %llu bytes at %llu failed: %s (%llu failures so far)", disk_.path(),
                transfer.write ? "write" : "read", static_cast<unsigned long long>(transfer.size),
                static_cast<unsigned long long>(transfer.offset), std::strerror(transfer.error),
                static_cast<unsigned long long>(count));
}

// ---- the rest

void FileTier::cancel(pkv_tier_request *request) {
    FileIoList taken, kept, cancelled;
    engine_->take_back(request, taken);
    {
        const Lock lock(mutex_);
        while (FileIo *const io = taken.pop()) {
            auto &transfer = static_cast<Transfer &>(*io);
            // Others still want this store. Nobody joins one that has left the list.
            if (transfer.joined != nullptr) {
                kept.push(transfer);
                continue;
            }
            if (transfer.write) unlink_writing(transfer);
            cancelled.push(transfer);
        }
    }
    if (!kept.empty()) engine_->submit(kept);
    while (FileIo *const io = cancelled.pop()) {
        io->error = ECANCELED;
        ended(*io);
    }
}

uint64_t FileTier::victims(std::span<pkv_tier_victim> victims) {
    try {
        std::vector<uint32_t> ids(victims.size());
        const Lock lock(mutex_);
        const uint64_t count = directory_.victims(ids);
        const uint64_t now = monotonic_ns();
        for (uint64_t i = 0; i < count; ++i) {
            const uint32_t id = ids[i];
            victims[i] = {directory_.key(id), directory_.size(id), directory_.tag(id), PKV_RETENTION_INIT};
            victims[i].retention.priority = directory_.priority(id);
            if (const uint64_t deadline = directory_.deadline_ns(id); deadline != 0)
                victims[i].retention.ttl_ns = deadline > now ? deadline - now : 1;
        }
        return count;
    } catch (const std::bad_alloc &) {
        return 0;
    }
}

bool FileTier::has(const pkv_tier_key &key) {
    const Lock lock(mutex_);
    const uint32_t id = directory_.find(key);
    return id != Directory::no_entry && directory_.is_shared(id);
}

uint64_t FileTier::list(uint64_t &cursor, std::span<pkv_tier_key> keys) {
    const Lock lock(mutex_);
    return directory_.list(cursor, keys);
}

pkv_tier_usage FileTier::usage() {
    pkv_tier_usage usage = PKV_TIER_USAGE_INIT;
    {
        const Lock lock(mutex_);
        usage.capacity_bytes = directory_.capacity_bytes();
        usage.used_bytes = directory_.used_bytes();
        usage.images = directory_.images();
        usage.pinned_images = directory_.pinned();
        usage.evicted_images = directory_.evicted();
    }
    usage.recovered_images = recovered_;
    usage.io_errors = io_errors_.load(std::memory_order_relaxed);
    usage.engine = engine_->kind();
    usage.registered_buffers = engine_->has_registered_buffers() ? 1 : 0;
    return usage;
}

} // namespace pkv
