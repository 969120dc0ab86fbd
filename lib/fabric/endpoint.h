// SPDX-License-Identifier: Apache-2.0
// What one peer is reached through: an endpoint of libfabric's with a completion queue and an address vector of its own, so
// that closing it ends everything between the two nodes and nothing else.
#pragma once

#include "core/mutex.h"
#include "fabric/keys.h"
#include "fabric/process.h"
#include "fabric/provider.h"
#include "fabric/reads.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace pkv::fabric {
class Progress;
}

/// The table's handle of it. Of its functions, those that say so run on the domain's thread (progress.h).
struct pkv_fabric_endpoint {
  public:
    using Why = pkv::fabric::Why;
    using Read = pkv::fabric::Read;

    /// May throw bad_alloc.
    pkv_fabric_endpoint(pkv::fabric::Provider &provider, pkv::fabric::Progress &progress);
    pkv_fabric_endpoint(const pkv_fabric_endpoint &) = delete;
    pkv_fabric_endpoint &operator=(const pkv_fabric_endpoint &) = delete;
    /// Closes what close() has not.
    ~pkv_fabric_endpoint();

    pkv_status open(void *name, size_t *name_bytes, Why why);
    pkv_status connect(const void *name, size_t name_bytes, Why why);
    /// Once the domain's thread knows it no more: ends the provider's endpoint, then the reads that are left.
    void close();

    /// Makes a read of bytes `offset` and on of the peer's windows. Any thread. May throw bad_alloc.
    pkv_status make_read(const pkv_fabric_window *windows, uint32_t num_windows, uint64_t offset, Read &read);
    /// The same for what make_read() has made, at once, where memory is copied.
    pkv_status copy(const Read &read);
    /// As reads.h says.
    bool failed() const { return reads_.failed(); }
    size_t describe_failure(char *text, size_t bytes) const { return reads_.describe_failure(text, bytes); }
    pkv::fabric::Progress &progress() const { return progress_; }
    bool copies() const { return provider_.copies(); }

    // ---- on the domain's thread ----

    void accept(Read *read) { reads_.accept(read); }
    /// Looks once after everything. True if anything moved.
    bool turn(uint64_t now_ns);
    uint64_t next_deadline() const { return reads_.next_deadline(); }
    bool in_flight() const { return reads_.in_flight(); }
    bool refused() const { return reads_.refused(); }
    int descriptor() const { return descriptor_; }
    /// How the thread may sleep after a look that found nothing.
    enum class Rest { none, in_descriptor, by_time };
    /// `settled`: nothing has moved for a while.
    Rest rest(bool settled);

    pkv_fabric_endpoint *next = nullptr; ///< in lists of the domain's thread

  private:
    pkv_status open_copying(void *name, size_t *name_bytes, Why why);
    int open_objects(const char *&step);
    bool drain();
    bool take_error();
    pkv_status check_name(const void *name, size_t name_bytes, Why why) const;

    pkv::fabric::Provider &provider_;
    pkv::fabric::Progress &progress_;
    pkv::fabric::Reads reads_;
    pkv::fabric::PeerKeys keys_;
    pkv::fabric::PeerProcess process_; ///< instead of what follows, and of keys_, where memory is copied
    std::unique_ptr<pkv::fabric::Permit> permit_;
    pkv::Mutex keys_mutex_; ///< guards keys_, and the keys in process_
    fid_domain *domain_ = nullptr;
    pkv::fabric::Fid<fid_cq> queue_;
    pkv::fabric::Fid<fid_av> addresses_;
    fid_ep *endpoint_ = nullptr;
    size_t name_bytes_ = 0; ///< of its own name
    int descriptor_ = -1;
    bool signalled_ = false; ///< there was a completion: the descriptor may still tell of it
    std::atomic<fi_addr_t> peer_{FI_ADDR_UNSPEC};
    std::atomic<bool> connected_{false};
};
