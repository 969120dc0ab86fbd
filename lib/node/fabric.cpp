// SPDX-License-Identifier: Apache-2.0
#include "node/fabric.h"

#include "core/plugin.h"

#include <csignal>
#include <cstring>
#include <dlfcn.h>

namespace pkv::node {
namespace {

/// Libraries that libfabric brings along put handlers of their own on signals when they are loaded (libinfinipath, unless
/// IPATH_NO_BACKTRACE is set: SIGINT, SIGILL, SIGABRT, SIGBUS, SIGSEGV, SIGTERM). They are the host's.
class SignalsAsTheyWere {
  public:
    SignalsAsTheyWere() {
        for (int number = 1; number < end; ++number) sigaction(number, nullptr, &actions_[number]);
    }
    ~SignalsAsTheyWere() {
        for (int number = 1; number < end; ++number) {
            struct sigaction now {};
            if (sigaction(number, nullptr, &now) == 0 && now.sa_sigaction != actions_[number].sa_sigaction)
                sigaction(number, &actions_[number], nullptr);
        }
    }
    SignalsAsTheyWere(const SignalsAsTheyWere &) = delete;
    SignalsAsTheyWere &operator=(const SignalsAsTheyWere &) = delete;

  private:
    static constexpr int end = 32; // those after it are the program's own by convention
    struct sigaction actions_[end] {};
};

} // namespace

pkv_status fabric_plugin(const pkv_fabric_table *&table) {
    static std::mutex mutex;
    static const pkv_fabric_table *loaded = nullptr; // never unloaded: its threads and callbacks live in it
    const std::lock_guard lock(mutex);
    if (loaded == nullptr) {
        const std::string path = plugin_path(PKV_FABRIC_PLUGIN);
        void *library = nullptr;
        {
            const SignalsAsTheyWere scope;
            library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        }
        if (library == nullptr) {
            const char *why = dlerror();
            return fail(PKV_ERR_UNSUPPORTED, "the plug-in for libfabric: %s", why != nullptr ? why : path.c_str());
        }
        const auto entry = reinterpret_cast<pkv_fabric_entry>(dlsym(library, PKV_FABRIC_ENTRY));
        char why[256] = "it has no entry";
        const pkv_fabric_table *const found = entry != nullptr ? entry(PKV_FABRIC_VERSION, why, sizeof why) : nullptr;
        if (found == nullptr || found->version != PKV_FABRIC_VERSION || found->struct_size < sizeof *found) {
            const pkv_status status =
                fail(PKV_ERR_UNSUPPORTED, "the plug-in %s is of another version: %s", path.c_str(), why);
            dlclose(library);
            return status;
        }
        loaded = found;
    }
    table = loaded;
    return PKV_OK;
}

// ---- domain and memory

Fabric::Fabric(const pkv_fabric_table &table, pkv_fabric_domain *domain) : table_(table), domain_(domain) {
    modes_.struct_size = sizeof modes_;
    table_.modes(domain_, &modes_);
}

Fabric::~Fabric() { table_.close(domain_); }

pkv_status Fabric::open(const char *provider, const char *host, std::shared_ptr<Fabric> &fabric) {
    const pkv_fabric_table *table = nullptr;
    PKV_TRY(fabric_plugin(table));
    pkv_fabric_domain *domain = nullptr;
    char why[256] = "";
    const SignalsAsTheyWere scope; // the first time, providers in libraries of their own are loaded
    const pkv_status status = table->open(provider, host, &domain, why, sizeof why);
    if (status != PKV_OK) return fail(status, "fabric: %s", why);
    fabric.reset(new Fabric(*table, domain));
    return PKV_OK;
}

Region::Region(std::shared_ptr<Fabric> fabric, pkv_fabric_region *region, void *base, uint64_t bytes)
    : fabric_(std::move(fabric)), region_(region), base_(static_cast<std::byte *>(base)), bytes_(bytes) {}

Region::~Region() { fabric_->table().remove_memory(region_); }

pkv_status Region::add(std::shared_ptr<Fabric> fabric, void *base, uint64_t bytes, bool remote,
                       std::shared_ptr<Region> &region) {
    pkv_fabric_region *added = nullptr;
    char why[256] = "";
    const pkv_status status =
        fabric->table().add_memory(fabric->domain(), base, bytes, remote ? 1 : 0, &added, why, sizeof why);
    if (status != PKV_OK) return fail(status, "fabric memory: %s", why);
    region.reset(new Region(std::move(fabric), added, base, bytes));
    return PKV_OK;
}

bool Region::holds(const void *data, uint64_t bytes) const {
    const auto *at = static_cast<const std::byte *>(data);
    return at >= base_ && bytes <= bytes_ && static_cast<uint64_t>(at - base_) <= bytes_ - bytes;
}

std::vector<Window> Region::windows() const {
    std::vector<pkv_fabric_window> list(PKV_FABRIC_MAX_REGIONS);
    list.resize(fabric_->table().windows(region_, list.data(), PKV_FABRIC_MAX_REGIONS));
    std::vector<Window> windows;
    for (const pkv_fabric_window &at : list) {
        const auto *key = reinterpret_cast<const std::byte *>(at.key);
        windows.push_back({at.bytes, at.address, {key, key + at.key_bytes}});
    }
    return windows;
}

// ---- endpoints

pkv_status Endpoint::open(std::shared_ptr<Fabric> fabric, std::shared_ptr<Endpoint> &endpoint) {
    std::shared_ptr<Endpoint> fresh(new Endpoint(std::move(fabric)));
    char why[256] = "";
    char name[PKV_FABRIC_MAX_NAME];
    size_t bytes = sizeof name;
    const pkv_status status = fresh->fabric_->table().endpoint_open(fresh->fabric_->domain(), &fresh->endpoint_, name,
                                                                    &bytes, why, sizeof why);
    if (status != PKV_OK) return fail(status, "fabric endpoint: %s", why);
    fresh->name_.assign(name, bytes);
    endpoint = std::move(fresh);
    return PKV_OK;
}

Endpoint::~Endpoint() { close(); }

void Endpoint::close() {
    const std::lock_guard lock(mutex_);
    if (endpoint_ != nullptr) fabric_->table().endpoint_close(endpoint_);
    endpoint_ = nullptr;
}

pkv_status Endpoint::connect(const std::string &peer, const std::vector<Window> &windows) {
    windows_.clear();
    for (const Window &at : windows) {
        pkv_fabric_window window{};
        window.bytes = at.bytes;
        window.address = at.address;
        window.key_bytes = static_cast<uint32_t>(at.key.size());
        std::memcpy(window.key, at.key.data(), at.key.size());
        windows_.push_back(window);
    }
    char why[256] = "";
    const pkv_status status = fabric_->table().endpoint_connect(endpoint_, peer.data(), peer.size(), why, sizeof why);
    return status == PKV_OK ? PKV_OK : fail(status, "fabric endpoint: %s", why);
}

pkv_status Endpoint::read(const std::shared_ptr<Region> &target, void *data, uint64_t bytes, uint64_t offset,
                          uint64_t deadline_ns, std::function<void(pkv_status, int32_t)> done) {
    struct Read {
        std::shared_ptr<Region> target;
        std::function<void(pkv_status, int32_t)> done;
    };
    const std::shared_lock lock(mutex_);
    if (endpoint_ == nullptr) return fail(PKV_ERR_STATE, "the endpoint is closed");
    auto read = std::make_unique<Read>(Read{target, std::move(done)});
    auto end = [](void *user, pkv_status status, int32_t error) {
        const std::unique_ptr<Read> ended(static_cast<Read *>(user));
        ended->done(status, error);
    };
    const pkv_status status =
        fabric_->table().read(endpoint_, target->region(), data, bytes, windows_.data(),
                              static_cast<uint32_t>(windows_.size()), offset, deadline_ns, end, read.get());
    if (status == PKV_OK) (void)read.release();
    return status;
}

pkv_status Endpoint::copy(const std::shared_ptr<Region> &target, void *data, uint64_t bytes, uint64_t offset,
                          uint64_t deadline_ns) {
    const std::shared_lock lock(mutex_);
    if (endpoint_ == nullptr) return PKV_ERR_CLOSED;
    return fabric_->table().copy(endpoint_, target->region(), data, bytes, windows_.data(),
                                 static_cast<uint32_t>(windows_.size()), offset, deadline_ns);
}

} // namespace pkv::node
