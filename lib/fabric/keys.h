// SPDX-License-Identifier: Apache-2.0
// Keys of registered memory: random ones for registering, and how a key travels in a window.
#pragma once

#include "fabric/provider.h"

#include <cstdint>
#include <vector>

namespace pkv::fabric {

/// A random key as wide as the provider's keys are, and none that means something else. 0 if the system gives no randomness.
uint64_t random_key(size_t key_size);

/// Puts the key of a registration into the window that stands for it. 0 or a negative error of libfabric's.
int write_key(const Provider &provider, fid_mr *region, pkv_fabric_window &window);

/// Keys of a peer's windows, as reads name them. Raw keys are mapped once and stay so until the endpoint is closed.
class PeerKeys {
  public:
    explicit PeerKeys(const Provider &provider) : provider_(provider) {}
    ~PeerKeys();
    PeerKeys(const PeerKeys &) = delete;
    PeerKeys &operator=(const PeerKeys &) = delete;

    /// One thread at a time. May throw bad_alloc.
    pkv_status find(const pkv_fabric_window &window, uint64_t &key);

  private:
    struct Mapped {
        std::vector<uint8_t> raw;
        uint64_t key;
    };

    const Provider &provider_;
    std::vector<Mapped> mapped_;
};

} // namespace pkv::fabric
