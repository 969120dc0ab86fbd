// SPDX-License-Identifier: Apache-2.0
// The table, and the domain behind it: checks of arguments, and the catch-all. Nothing is exported but its entry.
#include "fabric/endpoint.h"
#include "fabric/memory.h"
#include "fabric/progress.h"
#include "fabric/provider.h"
#include "fabric/signals.h"

#include <cstring>
#include <memory>
#include <new>

using pkv::fabric::BlockedSignals;
using pkv::fabric::Progress;
using pkv::fabric::Provider;
using pkv::fabric::Read;
using pkv::fabric::Why;

/// The table's handle of it. The thread ends before the provider is closed.
struct pkv_fabric_domain {
    Provider provider;
    Progress progress{provider};
};

namespace {

/// Runs a function of the table: what the standard library throws ends here.
template <class Body> pkv_status guarded(Why why, Body body) noexcept {
    try {
        return body();
    } catch (const std::bad_alloc &) {
        return why.fail(PKV_ERR_NO_MEMORY, "no memory");
    } catch (...) {
        return why.fail(PKV_ERR_INTERNAL, "an exception");
    }
}

pkv_status open_domain(const char *provider, const char *host, pkv_fabric_domain **domain, char *why_text,
                       size_t why_bytes) {
    const Why why(why_text, why_bytes);
    if (domain == nullptr) return why.fail(PKV_ERR_INVALID, "domain is NULL");
    *domain = nullptr;
    return guarded(why, [&]() -> pkv_status {
        const BlockedSignals blocked; // for the threads that providers start
        auto opened = std::make_unique<pkv_fabric_domain>();
        if (const pkv_status status = opened->provider.open(provider, host, why); status != PKV_OK) return status;
        if (const pkv_status status = opened->progress.start(why); status != PKV_OK) return status;
        *domain = opened.release();
        return PKV_OK;
    });
}

void close_domain(pkv_fabric_domain *domain) { delete domain; }

void read_modes(pkv_fabric_domain *domain, pkv_fabric_modes *modes) {
    const pkv_fabric_modes all = domain->provider.modes();
    const size_t size = modes->struct_size;
    std::memcpy(modes, &all, size < sizeof all ? size : sizeof all);
    modes->struct_size = size;
}

pkv_status add_memory(pkv_fabric_domain *domain, void *base, uint64_t bytes, int32_t remote, pkv_fabric_region **region,
                      char *why_text, size_t why_bytes) {
    const Why why(why_text, why_bytes);
    if (domain == nullptr || base == nullptr || bytes == 0 || region == nullptr)
        return why.fail(PKV_ERR_INVALID, "domain, base, bytes or region is NULL or 0");
    *region = nullptr;
    return guarded(why, [&]() -> pkv_status {
        auto added = std::make_unique<pkv_fabric_region>(domain->provider, base, bytes);
        if (const pkv_status status = added->add(remote != 0, why); status != PKV_OK) return status;
        *region = added.release();
        return PKV_OK;
    });
}

void remove_memory(pkv_fabric_region *region) { delete region; }

uint32_t list_windows(const pkv_fabric_region *region, pkv_fabric_window *windows, uint32_t capacity) {
    return region->windows(windows, capacity);
}

pkv_status open_endpoint(pkv_fabric_domain *domain, pkv_fabric_endpoint **endpoint, void *name, size_t *name_bytes,
                         char *why_text, size_t why_bytes) {
    const Why why(why_text, why_bytes);
    if (domain == nullptr || endpoint == nullptr || name == nullptr || name_bytes == nullptr)
        return why.fail(PKV_ERR_INVALID, "domain, endpoint, name or name_bytes is NULL");
    *endpoint = nullptr;
    return guarded(why, [&]() -> pkv_status {
        const BlockedSignals blocked;
        auto opened = std::make_unique<pkv_fabric_endpoint>(domain->provider, domain->progress);
        if (const pkv_status status = opened->open(name, name_bytes, why); status != PKV_OK) return status;
        if (const pkv_status status = domain->progress.add(opened.get(), why); status != PKV_OK) return status;
        *endpoint = opened.release();
        return PKV_OK;
    });
}

pkv_status connect_endpoint(pkv_fabric_endpoint *endpoint, const void *name, size_t name_bytes, char *why_text,
                            size_t why_bytes) {
    const Why why(why_text, why_bytes);
    if (endpoint == nullptr || name == nullptr) return why.fail(PKV_ERR_INVALID, "endpoint or name is NULL");
    return guarded(why, [&] { return endpoint->connect(name, name_bytes, why); });
}

void close_endpoint(pkv_fabric_endpoint *endpoint) {
    if (endpoint == nullptr) return;
    endpoint->progress().remove(endpoint);
    endpoint->close();
    delete endpoint;
}

pkv_status read_peer(pkv_fabric_endpoint *endpoint, pkv_fabric_region *target, void *data, uint64_t bytes,
                     const pkv_fabric_window *windows, uint32_t num_windows, uint64_t offset, uint64_t deadline_ns,
                     void (*done)(void *user, pkv_status status, int32_t error), void *user) {
    if (endpoint == nullptr || target == nullptr || done == nullptr || !target->holds(data, bytes))
        return PKV_ERR_INVALID;
    if (windows == nullptr && bytes != 0) return PKV_ERR_INVALID;
    return guarded(Why(nullptr, 0), [&]() -> pkv_status {
        auto read = std::make_unique<Read>();
        read->data = static_cast<char *>(data);
        read->bytes = bytes;
        read->target = target;
        read->endpoint = endpoint;
        read->deadline_ns = deadline_ns;
        read->done = done;
        read->user = user;
        if (const pkv_status status = endpoint->make_read(windows, num_windows, offset, *read); status != PKV_OK)
            return status;
        endpoint->progress().submit(read.release());
        return PKV_OK;
    });
}

pkv_status copy_peer(pkv_fabric_endpoint *endpoint, pkv_fabric_region *target, void *data, uint64_t bytes,
                     const pkv_fabric_window *windows, uint32_t num_windows, uint64_t offset, uint64_t deadline_ns) {
    if (endpoint == nullptr || target == nullptr || !target->holds(data, bytes)) return PKV_ERR_INVALID;
    if (windows == nullptr && bytes != 0) return PKV_ERR_INVALID;
    if (!endpoint->copies()) return PKV_ERR_UNSUPPORTED;
    return guarded(Why(nullptr, 0), [&]() -> pkv_status {
        Read read = {};
        read.data = static_cast<char *>(data);
        read.bytes = bytes;
        read.deadline_ns = deadline_ns;
        if (const pkv_status status = endpoint->make_read(windows, num_windows, offset, read); status != PKV_OK)
            return status;
        return endpoint->copy(read);
    });
}

size_t describe_failure(pkv_fabric_endpoint *endpoint, char *text, size_t bytes) {
    return endpoint->describe_failure(text, bytes);
}

} // namespace

extern "C" [[gnu::visibility("default")]] const pkv_fabric_table *pkv_fabric_plugin(uint32_t version, char *why_text,
                                                                                    size_t why_bytes) {
    static char libfabric[32];
    static pkv_fabric_table table;
    static const bool filled = [] {
        Provider::prepare();
        const uint32_t runs = fi_version();
        std::snprintf(libfabric, sizeof libfabric, "%u.%u", FI_MAJOR(runs), FI_MINOR(runs));
        table = {sizeof table,   PKV_FABRIC_VERSION, 0,
                 libfabric,      open_domain,        close_domain,
                 read_modes,     add_memory,         remove_memory,
                 list_windows,   open_endpoint,      connect_endpoint,
                 close_endpoint, read_peer,          describe_failure,
                 copy_peer};
        return true;
    }();
    const Why why(why_text, why_bytes);
    if (!filled || version != PKV_FABRIC_VERSION) {
        why.fail(PKV_ERR_UNSUPPORTED, "the plug-in speaks version %d, the library version %u", PKV_FABRIC_VERSION,
                 version);
        return nullptr;
    }
    return &table;
}
