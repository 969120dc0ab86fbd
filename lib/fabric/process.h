// SPDX-License-Identifier: Apache-2.0
// What the provider "shm" is here: memory of another process of this machine, copied by the kernel (process_vm_readv). libfabric's
// own provider of that name copies the same way, but takes a lock in shared memory for each read, which nobody gives back when
// its holder is killed: the peers' threads then wait for it for ever. Here nothing is shared: a process that ends takes nothing
// with it, and leaves nothing behind.
//
// The kernel does not know what a process lends. So a permit stands in the memory of the owner, at a place that its key names, for
// each piece of memory, and whoever reads compares it first, and once more after the bytes. That is against mistakes: who may
// read a process may read all of it.
#pragma once

#include "core/mutex.h"
#include "fabric/why.h"
#include "node/fabric_table.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <sys/types.h>
#include <vector>

namespace pkv::fabric {

/// What others compare before they read. Its address is what its key names; gone, it equals no key.
class Permit {
  public:
    static constexpr size_t key_bytes = 3 * sizeof(uint64_t);

    /// For a piece of memory; of no bytes for an endpoint. NULL if the system gives no randomness. May throw bad_alloc.
    static std::unique_ptr<Permit> make(const void *base, uint64_t bytes);
    ~Permit();
    Permit(const Permit &) = delete;
    Permit &operator=(const Permit &) = delete;

    void write_key(unsigned char *key) const;

    struct Text {
        uint64_t secret[2];
        uint64_t base;
        uint64_t bytes;
    };

  private:
    Permit() = default;
    Text text_ = {};
};

/// A peer that is another process, or this one.
class PeerProcess {
  public:
    /// Names an endpoint of this process: `permit` stands for it.
    static constexpr size_t name_bytes = 2 * sizeof(uint64_t) + Permit::key_bytes;
    static void write_name(const Permit &permit, unsigned char *name);

    /// Finds the process of a name, and whether it may be read. PKV_ERR_INVALID: no name; PKV_ERR_NOT_FOUND: the endpoint is gone;
    /// PKV_ERR_UNSUPPORTED: the system does not let this process read that one.
    pkv_status open(const void *name, size_t bytes, Why why);

    /// A key of the peer's as read() takes it, good as long as this object. One thread at a time. May throw bad_alloc.
    pkv_status find(const pkv_fabric_window &window, uint64_t &key);

    /// Copies bytes that one key stands for. 0, or the system's error: EACCES for what the peer does not lend. Thread-safe.
    int read(void *data, uint64_t address, uint64_t bytes, uint64_t key) const;

  private:
    struct Lent {
        uint64_t at = 0; ///< of the permit, in the peer
        unsigned char key[Permit::key_bytes] = {};
        Permit::Text text = {}; ///< once it is known
        std::atomic<bool> known{false};
    };

    int look_at(Lent &lent) const;
    int copy(void *data, uint64_t from, uint64_t bytes, void *more, uint64_t more_from, uint64_t more_bytes) const;

    pid_t process_ = 0;
    mutable Mutex mutex_; ///< for the first look at a permit
    std::vector<std::unique_ptr<Lent>> lent_;
};

} // namespace pkv::fabric
