// SPDX-License-Identifier: Apache-2.0
// Domains of endpoints. As a rule all endpoints of a provider share one. The net provider before 1.18 frees an entry of its domain
// twice when an endpoint is closed in the middle of a read (ofiwg/libfabric pull request 8660): after that reads of the domain's
// other endpoints get each other's bytes. There every endpoint has a domain of its own, in which whatever is lent is registered
// once more, under the same key; its faults end with it.
#pragma once

#include "core/mutex.h"
#include "fabric/why.h"

#include <cstdint>
#include <memory>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <vector>

namespace pkv::fabric {

/// Closes what libfabric opened. Endpoints are not closed this way: that may take several tries (endpoint.cpp).
struct CloseFid {
    template <class T> void operator()(T *opened) const { fi_close(&opened->fid); }
};
template <class T> using Fid = std::unique_ptr<T, CloseFid>;

/// Memory that peers may read, by the key under which it is registered.
struct Lent {
    const void *base;
    uint64_t bytes;
    uint64_t key;
};

/// The domains that endpoints have to themselves, and what is lent in each of them. Thread-safe.
class Domains {
  public:
    /// One more, with all that is lent at present. 0 or a negative error of libfabric's. May throw bad_alloc.
    int open(fid_fabric *fabric, fi_info *info, fid_domain *&domain);
    void close(fid_domain *domain);

    /// In all of them, also in those to come; or, after an error, in none. May throw bad_alloc.
    int lend(const Lent &lent);
    void take_back(uint64_t key);

  private:
    struct Registration {
        uint64_t key;
        Fid<fid_mr> opened;
    };
    struct Domain {
        Fid<fid_domain> opened;
        std::vector<Registration> registrations; // closed first
    };
    static int add(Domain &domain, const Lent &lent);
    static void remove(Domain &domain, uint64_t key);

    Mutex mutex_;
    std::vector<std::unique_ptr<Domain>> domains_ PKV_GUARDED_BY(mutex_);
    std::vector<Lent> lent_ PKV_GUARDED_BY(mutex_);
};

} // namespace pkv::fabric
