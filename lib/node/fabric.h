// SPDX-License-Identifier: Apache-2.0
// The fabric as nodes use it: the plug-in's table behind objects that end by themselves.
#pragma once

#include "core/status.h"
#include "node/fabric_table.h"
#include "node/messages.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

namespace pkv::node {

/// The plug-in, loaded at the first call: PKV_PLUGIN_DIR, or the folder pagedkv/ beside the library. PKV_ERR_UNSUPPORTED with
/// the reason without it.
pkv_status fabric_plugin(const pkv_fabric_table *&table);

class Fabric {
  public:
    static pkv_status open(const char *provider, const char *host, std::shared_ptr<Fabric> &fabric);
    ~Fabric();
    Fabric(const Fabric &) = delete;
    Fabric &operator=(const Fabric &) = delete;

    const pkv_fabric_table &table() const { return table_; }
    pkv_fabric_domain *domain() const { return domain_; }
    const pkv_fabric_modes &modes() const { return modes_; }

  private:
    Fabric(const pkv_fabric_table &table, pkv_fabric_domain *domain);
    const pkv_fabric_table &table_;
    pkv_fabric_domain *domain_;
    pkv_fabric_modes modes_{};
};

/// Registered memory.
class Region {
  public:
    static pkv_status add(std::shared_ptr<Fabric> fabric, void *base, uint64_t bytes, bool remote,
                          std::shared_ptr<Region> &region);
    ~Region();
    Region(const Region &) = delete;
    Region &operator=(const Region &) = delete;

    bool holds(const void *data, uint64_t bytes) const;
    const void *base() const { return base_; }
    pkv_fabric_region *region() const { return region_; }
    std::vector<Window> windows() const;

  private:
    Region(std::shared_ptr<Fabric> fabric, pkv_fabric_region *region, void *base, uint64_t bytes);
    std::shared_ptr<Fabric> fabric_;
    pkv_fabric_region *region_;
    std::byte *base_;
    uint64_t bytes_;
};

/// The endpoint for one peer.
class Endpoint {
  public:
    static pkv_status open(std::shared_ptr<Fabric> fabric, std::shared_ptr<Endpoint> &endpoint);
    ~Endpoint(); ///< after it nothing of the peer's arrives any more
    Endpoint(const Endpoint &) = delete;
    Endpoint &operator=(const Endpoint &) = delete;

    const std::string &name() const { return name_; }
    pkv_status connect(const std::string &peer, const std::vector<Window> &windows);
    /// `done` is called once, unless the call fails. It must not throw.
    pkv_status read(const std::shared_ptr<Region> &target, void *data, uint64_t bytes, uint64_t offset,
                    uint64_t deadline_ns, std::function<void(pkv_status status, int32_t error)> done);
    /// Where the fabric copies (modes().copies): at once, on this thread. PKV_ERR_UNSUPPORTED elsewhere.
    pkv_status copy(const std::shared_ptr<Region> &target, void *data, uint64_t bytes, uint64_t offset,
                    uint64_t deadline_ns);
    bool copies() const { return fabric_->modes().copies != 0; }
    void close(); ///< ends reads under way with PKV_ERR_CANCELLED; from none of their callbacks

  private:
    explicit Endpoint(std::shared_ptr<Fabric> fabric) : fabric_(std::move(fabric)) {}
    std::shared_ptr<Fabric> fabric_;
    std::shared_mutex mutex_; // between reading and closing; never taken by a read's end
    pkv_fabric_endpoint *endpoint_ = nullptr;
    std::string name_;
    std::vector<pkv_fabric_window> windows_; // of the peer
};

} // namespace pkv::node
