// SPDX-License-Identifier: Apache-2.0
// Memory that was given to a provider: for peers to read, or as a target of reads.
#pragma once

#include "fabric/process.h"
#include "fabric/provider.h"

#include <cstdint>
#include <memory>
#include <vector>

/// The table's handle of it.
struct pkv_fabric_region {
  public:
    using Provider = pkv::fabric::Provider;

    pkv_fabric_region(Provider &provider, void *base, uint64_t bytes)
        : provider_(provider), base_(static_cast<char *>(base)), bytes_(bytes) {}
    ~pkv_fabric_region();
    pkv_fabric_region(const pkv_fabric_region &) = delete;
    pkv_fabric_region &operator=(const pkv_fabric_region &) = delete;

    /// Registers it, in as many pieces as it takes. After a failure nothing is registered. May throw bad_alloc.
    pkv_status add(bool remote, pkv::fabric::Why why);

    bool holds(const void *data, uint64_t bytes) const {
        const auto at = reinterpret_cast<uintptr_t>(data), base = reinterpret_cast<uintptr_t>(base_);
        return at >= base && at - base <= bytes_ && bytes <= bytes_ - (at - base);
    }
    /// What a read into `data` has to name (NULL where targets need no registration), and how many bytes from there on it
    /// stands for.
    void *descriptor(const char *data, uint64_t &bytes) const;

    uint32_t windows(pkv_fabric_window *windows, uint32_t capacity) const;

  private:
    struct Piece {
        uint64_t begin;
        uint64_t bytes;
        pkv::fabric::Fid<fid_mr> registration;
        uint64_t lent_key;                           ///< in the domains of endpoints; 0: it is not lent there
        std::unique_ptr<pkv::fabric::Permit> permit; ///< where peers copy
        pkv_fabric_window window;                    ///< of memory that peers may read
    };

    int add_piece(uint64_t begin, uint64_t bytes, bool remote);
    int lend_piece(uint64_t begin, uint64_t bytes);
    pkv_status refused(int error, uint64_t bytes, pkv::fabric::Why why) const;

    Provider &provider_;
    char *base_;
    uint64_t bytes_;
    std::vector<Piece> pieces_;
};
