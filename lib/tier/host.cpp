// SPDX-License-Identifier: Apache-2.0
// The host tier: a directory and an arena. Everything is done inside submit(); images are copied outside of the lock, while
// their entries are in use.
#include "tier/host.h"

#include "core/mutex.h"
#include "tier/directory.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <new>
#include <span>
#include <sys/mman.h>
#include <vector>

namespace pkv {
namespace {

constexpr uint64_t huge_page = uint64_t{2} << 20;
// The names of images take memory, too, and as a tier grows small images become unlikely: up to a million of the smallest size
// (a header and a slice) find a name, above that one for each 64 KiB.
constexpr uint64_t smallest_image = 2 * PKV_IMAGE_ALIGNMENT;
constexpr uint64_t usual_image = 65536;

uint64_t names_for(uint64_t bytes) {
    return std::max({uint64_t{1}, std::min(bytes / smallest_image, uint64_t{1} << 20), bytes / usual_image});
}

uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

class HostTier {
  public:
    HostTier() = default;
    ~HostTier() {
        if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
    }
    HostTier(const HostTier &) = delete;
    HostTier &operator=(const HostTier &) = delete;

    pkv_status create(const pkv_host_tier_options &options);

    pkv_status submit(const pkv_tier_batch &batch);
    const void *address(const pkv_tier_key &key);
    const void *lend(const pkv_tier_key &key, uint32_t &number);
    void give_back(uint32_t number);
    uint64_t victims(std::span<pkv_tier_victim> list);
    void usage(pkv_tier_usage &out);

    // TierInside
    TierWatches &watches() { return watches_; }
    bool has(const pkv_tier_key &key);
    uint64_t list(uint64_t &cursor, std::span<pkv_tier_key> keys);
    std::span<std::byte> memory() const { return {base_, bytes_}; }

  private:
    struct Result {
        pkv_status status = PKV_OK;
        uint64_t value = 0;
    };
    pkv_status map(uint64_t bytes, int32_t huge_pages);
    Result serve(const pkv_tier_batch &batch, uint64_t item);
    Result look_up(const pkv_tier_batch &batch, uint64_t item);
    Result store(const pkv_tier_batch &batch, uint64_t item);
    Result load(const pkv_tier_batch &batch, uint64_t item);
    Result change(const pkv_tier_batch &batch, uint64_t item);
    void renew(uint32_t id, const pkv_tier_batch &batch, uint64_t item) PKV_REQUIRES(mutex_);
    std::byte *image(uint64_t offset) const { return base_ + offset; }

    void *mapping_ = nullptr;
    uint64_t mapping_bytes_ = 0;
    std::byte *base_ = nullptr; // inside the mapping, aligned to a huge page
    uint64_t bytes_ = 0;        // for images, from there on
    TierWatches watches_;
    Mutex mutex_;
    Directory directory_ PKV_GUARDED_BY(mutex_);
    std::vector<uint32_t> gone_ PKV_GUARDED_BY(mutex_); // what the directory evicts or drops: no record to erase here
};

pkv_status HostTier::map(uint64_t bytes, int32_t huge_pages) {
    constexpr int access = PROT_READ | PROT_WRITE;
    const bool reserved = huge_pages == PKV_HUGE_PAGES_REQUIRE;
    // Reserved huge pages are taken at once (no MAP_NORESERVE): a missing one must be an error now, not a SIGBUS later.
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (reserved ? MAP_HUGETLB : MAP_NORESERVE);
    mapping_bytes_ = round_up(bytes, huge_page) + (reserved ? 0 : huge_page); // so that the base can be aligned
    void *memory = mmap(nullptr, mapping_bytes_, access, flags, -1, 0);
    if (memory == MAP_FAILED)
        return fail(PKV_ERR_NO_MEMORY, "%" PRIu64 " bytes for a host tier%s: %s", mapping_bytes_,
                    reserved ? " in reserved huge pages (see vm.nr_hugepages)" : "", std::strerror(errno));
    mapping_ = memory;
    base_ = reinterpret_cast<std::byte *>(round_up(reinterpret_cast<uintptr_t>(memory), huge_page));
    if (huge_pages == PKV_HUGE_PAGES_AUTO && bytes >= huge_page &&
        madvise(base_, round_up(bytes, huge_page), MADV_HUGEPAGE) != 0)
        log_message(PKV_LOG_WARNING, "host tier of %" PRIu64 " bytes without transparent huge pages: %s", bytes,
                    std::strerror(errno));
    return PKV_OK;
}

pkv_status HostTier::create(const pkv_host_tier_options &options) {
    const uint64_t bytes = options.capacity_bytes / PKV_IMAGE_ALIGNMENT * PKV_IMAGE_ALIGNMENT;
    if (bytes == 0 || bytes > uint64_t{1} << 46)
        return fail(PKV_ERR_INVALID, "capacity_bytes is %" PRIu64 ", not between %d and 2^46", options.capacity_bytes,
                    PKV_IMAGE_ALIGNMENT);
    PKV_TRY(map(bytes, options.huge_pages));
    bytes_ = bytes;
    const Lock lock(mutex_);
    directory_.tell(watches_);
    return directory_.create(bytes, names_for(bytes));
}

// ---- items

/// A use of an image by one who stores it: it was there already, or it is there now.
void HostTier::renew(uint32_t id, const pkv_tier_batch &batch, uint64_t item) {
    directory_.set_retention(id, batch.retention[item]); // counts as a use
    if ((batch.flags & PKV_TIER_PIN) != 0) directory_.pin(id);
}

HostTier::Result HostTier::look_up(const pkv_tier_batch &batch, uint64_t item) {
    const Lock lock(mutex_);
    const uint32_t id = directory_.find(batch.keys[item]);
    if (id == Directory::no_entry) return {PKV_ERR_NOT_FOUND};
    if (batch.kind == PKV_TIER_LOOKUP) {
        directory_.touch(id);
        if ((batch.flags & PKV_TIER_PIN) != 0) directory_.pin(id);
    }
    return {PKV_OK, directory_.size(id)};
}

HostTier::Result HostTier::store(const pkv_tier_batch &batch, uint64_t item) {
    const pkv_tier_key &key = batch.keys[item];
    uint32_t id;
    uint64_t offset;
    {
        const Lock lock(mutex_);
        id = directory_.find(key);
        if (id != Directory::no_entry) {
            renew(id, batch, item);
            return {PKV_OK};
        }
        gone_.clear();
        id = directory_.reserve(key, batch.sizes[item], batch.retention[item], batch.tags[item], gone_);
        if (id == Directory::no_entry) return {PKV_ERR_NO_SPACE};
        offset = directory_.offset(id);
    }
    std::memcpy(image(offset), batch.data[item], batch.sizes[item]);
    const Lock lock(mutex_);
    const uint32_t found = directory_.ready(id);
    directory_.end_use(id);
    if (found == Directory::no_entry) return {PKV_ERR_CANCELLED}; // cleared meanwhile
    renew(found, batch, item);
    return {PKV_OK};
}

HostTier::Result HostTier::load(const pkv_tier_batch &batch, uint64_t item) {
    uint32_t id;
    uint64_t offset = batch.offsets[item];
    const uint64_t size = batch.sizes[item];
    {
        const Lock lock(mutex_);
        id = directory_.find(batch.keys[item]);
        if (id == Directory::no_entry) return {PKV_ERR_NOT_FOUND};
        if (size > directory_.size(id) || offset > directory_.size(id) - size) return {PKV_ERR_INVALID};
        offset += directory_.offset(id);
        directory_.begin_use(id);
    }
    std::memcpy(batch.data[item], image(offset), size);
    const Lock lock(mutex_);
    directory_.end_use(id);
    return {PKV_OK, size};
}

HostTier::Result HostTier::change(const pkv_tier_batch &batch, uint64_t item) {
    const Lock lock(mutex_);
    if (batch.kind == PKV_TIER_CLEAR) {
        gone_.clear();
        directory_.clear(batch.tags[item], gone_);
        return {PKV_OK};
    }
    const uint32_t id = directory_.find(batch.keys[item]);
    if (batch.kind == PKV_TIER_REMOVE) {
        if (id == Directory::no_entry) return {PKV_OK};
        if (directory_.pins(id) != 0 && (batch.flags & PKV_TIER_FORCE) == 0) return {PKV_ERR_BUSY};
        directory_.drop(id);
        return {PKV_OK};
    }
    if (id == Directory::no_entry) return {PKV_ERR_NOT_FOUND};
    if (batch.kind == PKV_TIER_UNPIN) return {directory_.unpin(id) ? PKV_OK : PKV_ERR_NOT_FOUND};
    directory_.set_retention(id, batch.retention[item]);
    return {PKV_OK};
}

HostTier::Result HostTier::serve(const pkv_tier_batch &batch, uint64_t item) {
    switch (batch.kind) {
    case PKV_TIER_LOOKUP:
    case PKV_TIER_PROBE: return look_up(batch, item);
    case PKV_TIER_STORE: return store(batch, item);
    case PKV_TIER_LOAD: return load(batch, item);
    default: return change(batch, item);
    }
}

pkv_status HostTier::submit(const pkv_tier_batch &batch) {
    if (batch.kind < PKV_TIER_LOOKUP || batch.kind > PKV_TIER_CLEAR)
        return fail(PKV_ERR_UNSUPPORTED, "host tier: kind %d is none of PKV_TIER_*", batch.kind);
    // The batch may be gone with its last completion.
    pkv_tier_request *const request = batch.request;
    const uint64_t count = batch.num_items;
    for (uint64_t item = 0; item < count; ++item) {
        Result result;
        try {
            result = serve(batch, item);
        } catch (const std::bad_alloc &) {
            result = {PKV_ERR_NO_MEMORY};
        }
        pkv_tier_complete(request, item, result.status, result.value);
    }
    return PKV_OK;
}

// ---- the rest

const void *HostTier::address(const pkv_tier_key &key) {
    const Lock lock(mutex_);
    const uint32_t id = directory_.find(key);
    return id != Directory::no_entry ? image(directory_.offset(id)) : nullptr;
}

const void *HostTier::lend(const pkv_tier_key &key, uint32_t &number) {
    const Lock lock(mutex_);
    number = directory_.find(key);
    if (number == Directory::no_entry) return nullptr;
    directory_.begin_use(number);
    return image(directory_.offset(number));
}

void HostTier::give_back(uint32_t number) {
    const Lock lock(mutex_);
    directory_.end_use(number);
}

uint64_t HostTier::victims(std::span<pkv_tier_victim> list) {
    uint32_t ids[64];
    const Lock lock(mutex_);
    const uint64_t count = directory_.victims({ids, std::min(list.size(), std::size(ids))});
    for (uint64_t i = 0; i < count; ++i)
        list[i] = {directory_.key(ids[i]), directory_.size(ids[i]), directory_.tag(ids[i]),
                   directory_.retention(ids[i])};
    return count;
}

void HostTier::usage(pkv_tier_usage &out) {
    const Lock lock(mutex_);
    out.capacity_bytes = directory_.capacity_bytes();
    out.used_bytes = directory_.used_bytes();
    out.images = directory_.images();
    out.pinned_images = directory_.pinned();
    out.evicted_images = directory_.evicted();
}

bool HostTier::has(const pkv_tier_key &key) {
    const Lock lock(mutex_);
    const uint32_t id = directory_.find(key);
    return id != Directory::no_entry && directory_.is_shared(id);
}

uint64_t HostTier::list(uint64_t &cursor, std::span<pkv_tier_key> keys) {
    const Lock lock(mutex_);
    return directory_.list(cursor, keys);
}

HostTier &host(void *context) { return *static_cast<HostTier *>(context); }

constexpr TierInside inside = {
    .watches = [](void *context) -> TierWatches & { return host(context).watches(); },
    .has = [](void *context, const pkv_tier_key &key) { return host(context).has(key); },
    .list = [](void *context, uint64_t &cursor,
               std::span<pkv_tier_key> keys) { return host(context).list(cursor, keys); },
    .memory = [](void *context) { return host(context).memory(); },
    .lend = [](void *context, const pkv_tier_key &key,
               uint32_t &number) { return host(context).lend(key, number); },
    .give_back = [](void *context, uint32_t number) { host(context).give_back(number); },
};

pkv_tier_ops host_ops() {
    pkv_tier_ops ops{};
    ops.struct_size = sizeof ops;
    ops.name = "host";
    ops.submit = [](void *context, const pkv_tier_batch *batch) { return host(context).submit(*batch); };
    ops.address = [](void *context, const pkv_tier_key *key) { return host(context).address(*key); };
    ops.victims = [](void *context, pkv_tier_victim *list, uint64_t capacity) {
        return host(context).victims({list, capacity});
    };
    ops.usage = [](void *context, pkv_tier_usage *usage) { host(context).usage(*usage); };
    ops.close = [](void *context) { delete &host(context); };
    return ops;
}

} // namespace

pkv_status make_host_tier(const pkv_host_tier_options &options, std::shared_ptr<Tier> &tier) {
    auto arena = std::make_unique<HostTier>();
    PKV_TRY(arena->create(options));
    tier = std::make_shared<Tier>(host_ops(), arena.get(), &inside);
    arena.release(); // the tier closes it
    return PKV_OK;
}

} // namespace pkv
