// SPDX-License-Identifier: Apache-2.0
#include "core/clock.h"
#include "core/prefetch.h"
#include "tier/file.h"
#include "tier/file_tier.h"

#include <algorithm>
#include <cstring>

namespace pkv {

namespace {

constexpr uint32_t default_depth = 64, max_depth = 1024;
constexpr uint32_t default_threads = 4, max_threads = 64;
constexpr uint64_t max_identity_bytes = 4096;
constexpr uint64_t prefetched = 12; // records ahead, when the directory is filled

pkv_status check_options(const pkv_file_tier_options &options) {
    if (options.path == nullptr || options.path[0] == '\0') return fail(PKV_ERR_INVALID, "path is NULL or empty");
    if (options.engine != PKV_IO_AUTO && options.engine != PKV_IO_URING && options.engine != PKV_IO_THREADS)
        return fail(PKV_ERR_INVALID, "engine is %d, no PKV_IO_*", options.engine);
    if (options.depth > max_depth) return fail(PKV_ERR_INVALID, "depth is %u, more than %u", options.depth, max_depth);
    if (options.threads > max_threads)
        return fail(PKV_ERR_INVALID, "threads is %u, more than %u", options.threads, max_threads);
    if ((options.flags & ~(PKV_FILE_RESET | PKV_FILE_BUFFERED)) != 0)
        return fail(PKV_ERR_INVALID, "flags is %#x: not only PKV_FILE_*", options.flags);
    if (options.identity.size > max_identity_bytes)
        return fail(PKV_ERR_LIMIT, "identity has %llu bytes, more than %llu",
                    static_cast<unsigned long long>(options.identity.size),
                    static_cast<unsigned long long>(max_identity_bytes));
    if (options.identity.size != 0 && options.identity.data == nullptr)
        return fail(PKV_ERR_INVALID, "identity.data is NULL");
    return PKV_OK;
}

// pkv_tier_ops

FileTier &tier_of(void *context) { return *static_cast<FileTier *>(context); }

constexpr pkv_tier_ops ops = {
    .struct_size = sizeof(pkv_tier_ops),
    .name = "file",
    .submit = [](void *context, const pkv_tier_batch *batch) { return tier_of(context).submit(*batch); },
    .cancel = [](void *context, pkv_tier_request *request) { tier_of(context).cancel(request); },
    .address = nullptr,
    .victims =
        [](void *context, pkv_tier_victim *victims, uint64_t capacity) {
            return tier_of(context).victims({victims, capacity});
        },
    .memory = [](void *context, void *base, uint64_t bytes,
                 int32_t add) { tier_of(context).memory(base, bytes, add != 0); },
    .usage = [](void *context, pkv_tier_usage *usage) { *usage = tier_of(context).usage(); },
    .close = [](void *context) { delete &tier_of(context); },
};

constexpr TierInside inside = {
    .watches = [](void *context) -> TierWatches & { return tier_of(context).watches(); },
    .has = [](void *context, const pkv_tier_key &key) { return tier_of(context).has(key); },
    .list = [](void *context, uint64_t &cursor,
               std::span<pkv_tier_key> keys) { return tier_of(context).list(cursor, keys); },
    .memory = nullptr,
    .lend = nullptr,
    .give_back = nullptr,
};

} // namespace

pkv_status make_file_tier(const pkv_file_tier_options &options, std::shared_ptr<Tier> &out) {
    std::unique_ptr<FileTier> tier;
    PKV_TRY(FileTier::open(options, tier));
    out = std::make_shared<Tier>(ops, tier.get(), &inside);
    tier.release(); // the tier's now: its destructor calls ops.close
    return PKV_OK;
}

pkv_status FileTier::open(const pkv_file_tier_options &options, std::unique_ptr<FileTier> &out) {
    PKV_TRY(check_options(options));
    std::unique_ptr<FileTier> tier(new FileTier);
    PKV_TRY(tier->disk_.open(options));
    pkv_status status = tier->restore();
    if (status == PKV_OK) status = tier->make_engine(options);
    if (status != PKV_OK)
        tier->disk_.remove_if_made();
    else
        out = std::move(tier);
    return status;
}

pkv_status FileTier::restore() {
    const FileHeader &header = disk_.header();
    PKV_TRY(create_records(header.max_images));
    {
        const Lock lock(mutex_);
        directory_.tell(watches_);
        PKV_TRY(directory_.create(header.capacity_bytes, header.max_images));
    }
    if (disk_.is_new()) return PKV_OK;
    const uint64_t begun = monotonic_ns();
    uint64_t unsound = 0;
    PKV_TRY(fill_directory(unsound));
    log_message(unsound != 0 ? PKV_LOG_WARNING : PKV_LOG_INFO,
                "%s: %llu images found, %llu records not usable, %s, in %llu ms", disk_.path(),
                static_cast<unsigned long long>(recovered_), static_cast<unsigned long long>(unsound),
                disk_.was_closed() ? "closed by its last user" : "not closed by its last user",
                static_cast<unsigned long long>((monotonic_ns() - begun) / 1'000'000));
    return PKV_OK;
}

/// Fills the directory from the records; those that are of no use are cleared with the first store.
pkv_status FileTier::fill_directory(uint64_t &unsound) {
    const FileHeader &header = disk_.header();
    const Lock lock(mutex_);
    const uint64_t wall_now = wall_ns();
    VirtualArray<FileRecord> found; // never moved as it grows
    uint64_t num_found = 0;
    if (!found.reserve(header.max_images))
        return fail(PKV_ERR_NO_MEMORY, "no address space for the records of %s", disk_.path());
    const auto visit = [&](uint64_t first, std::span<const FileRecord> records) PKV_REQUIRES(mutex_) {
        for (uint64_t i = 0; i < records.size(); ++i) {
            const FileRecord &record = records[i];
            if (record.magic == 0) continue;
            if (is_sound(record, first + i, header)) {
                found[num_found++] = record;
            } else {
                ++unsound;
                mark(static_cast<uint32_t>(first + i));
            }
        }
    };
    if (const int error = disk_.read_records(visit); error != 0)
        return fail(PKV_ERR_IO, "reading the records of %s: %s", disk_.path(), std::strerror(error));

    // The least recently used first: so they get their places in the order of eviction. 16 bytes each are sorted, not records.
    struct Use {
        uint64_t last_use;
        uint32_t index, entry;
    };
    std::vector<Use> order(num_found);
    for (uint64_t i = 0; i < num_found; ++i) order[i] = {found[i].last_use, static_cast<uint32_t>(i), found[i].number};
    std::sort(order.begin(), order.end(), [](const Use &a, const Use &b) { return a.last_use < b.last_use; });
    for (uint64_t i = 0; i < num_found; ++i) {
        // That order is none in memory: what comes up is on its way before it is needed.
        if (i + prefetched < num_found) {
            const Use &later = order[i + prefetched];
            for (size_t line = 0; line < sizeof(FileRecord); line += 64)
                prefetch(reinterpret_cast<const std::byte *>(&found[later.index]) + line);
            for (size_t line = 0; line < 192; line += 64)
                prefetch<true>(reinterpret_cast<const std::byte *>(&directory_.key(later.entry)) + line);
            prefetch<true>(&last_use_[later.entry]);
        }
        const FileRecord &record = found[order[i].index];
        pkv_retention retention = PKV_RETENTION_INIT;
        if (record.deadline_ns == 0 || record.deadline_ns > wall_now) {
            retention.priority = record.priority;
            retention.pin = record.pin != 0 ? 1 : 0;
            retention.ttl_ns = record.deadline_ns != 0 ? record.deadline_ns - wall_now : 0;
        }
        const bool inside = record.offset <= header.capacity_bytes &&
                            record.size <= header.capacity_bytes - record.offset &&
                            (record.offset | record.size) % PKV_IMAGE_ALIGNMENT == 0 && record.size != 0;
        if (inside && directory_.restore(record.number, record.key, record.offset, record.size, retention, record.tag,
                                         record.generation)) {
            last_use_[record.number] = record.last_use;
            uses_ = record.last_use;
            ++recovered_;
        } else {
            ++unsound;
            mark(record.number);
        }
    }
    return PKV_OK;
}

pkv_status FileTier::make_engine(const pkv_file_tier_options &options) {
    FileEngineOptions wanted;
    wanted.fd = disk_.fd();
    wanted.depth = options.depth != 0 ? options.depth : default_depth;
    wanted.threads = options.threads != 0 ? options.threads : default_threads;
    wanted.fault = options.fault;
    wanted.fault_user = options.fault_user;
    if (options.engine != PKV_IO_THREADS) {
        const int error = make_uring_engine(wanted, *this, engine_);
        if (error == 0) return PKV_OK;
        if (options.engine == PKV_IO_URING)
            return fail(PKV_ERR_UNSUPPORTED, "io_uring with %u entries: %s", wanted.depth, std::strerror(error));
        log_message(PKV_LOG_WARNING, "%s: no io_uring (%s); %u threads with pread and pwrite instead", disk_.path(),
                    std::strerror(error), wanted.threads);
    }
    return make_threads_engine(wanted, *this, engine_);
}

FileTier::~FileTier() {
    closing_.store(true, std::memory_order_relaxed);
    if (engine_ != nullptr) engine_->stop();
    if (disk_.fd() < 0) return;
    if (engine_ != nullptr) {
        {
            const Lock lock(mutex_);
            mark_all_used();
        }
        write_marked();
    }
    disk_.write_state(FileState::closed);
}

} // namespace pkv
