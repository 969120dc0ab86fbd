// SPDX-License-Identifier: Apache-2.0
// One provider of libfabric: how it is found and opened, and what it asks of those who use it.
#pragma once

#include "fabric/domains.h"
#include "fabric/why.h"
#include "node/fabric_table.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

namespace pkv::fabric {

struct FreeInfo {
    void operator()(fi_info *info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

class Provider {
  public:
    /// Before anything else is asked of libfabric, once.
    static void prepare();

    /// By name, or NULL for the first that works. `host`: address or interface, NULL for loopback.
    pkv_status open(const char *name, const char *host, Why why);

    fi_info *info() const { return info_.get(); }
    fid_fabric *fabric() const { return fabric_.get(); }
    /// The one that endpoints share.
    fid_domain *domain() const { return domain_.get(); }
    /// Each endpoint has one of domains() to itself, besides.
    bool separates() const { return separates_; }
    Domains &domains() { return domains_; }
    const char *name() const { return info_->fabric_attr->prov_name; }

    /// "shm": nothing of libfabric's is open, memory of peers is copied (process.h).
    bool copies() const { return domain_ == nullptr; }
    bool has_mode(int mr_mode) const { return (info_->domain_attr->mr_mode & mr_mode) != 0; }
    /// Completion queues have a descriptor to sleep in.
    bool sleeps() const { return sleeps_; }
    /// Bytes of one read.
    uint64_t max_message() const;
    /// Reads of one endpoint that are with the provider at a time.
    uint32_t max_in_flight() const;
    pkv_fabric_modes modes() const;

    /// Opens a completion queue in a domain, with a descriptor if it can have one (`descriptor`, else -1). 0 or a negative error.
    int open_queue(fid_domain *domain, Fid<fid_cq> &queue, int &descriptor) const;

    // What registering has taught (memory.cpp).
    std::atomic<uint64_t> max_region{UINT64_MAX}; ///< bytes that one registration takes, as far as it is known
    std::atomic<uint64_t> registered{0};          ///< bytes registered now

  private:
    pkv_status open_named(const char *name, const char *host, Why why);
    pkv_status open_copying(Why why);
    /// Opens everything of one entry of fi_getinfo's list; 0, or a negative error and the step that gave it.
    int open_entry(const fi_info *entry, const char *&step);

    // In the order of opening: the last is closed first.
    Info info_;
    Fid<fid_fabric> fabric_;
    Fid<fid_domain> domain_;
    Domains domains_;
    bool separates_ = false;
    bool sleeps_ = false;
};

} // namespace pkv::fabric
