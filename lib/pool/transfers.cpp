// SPDX-License-Identifier: Apache-2.0
#include "pool/transfers.h"

#include <map>

namespace pkv {
namespace {

struct Devices {
    std::mutex mutex;
    std::map<int32_t, Transfers> transfers; // its places do not move
};

} // namespace

Transfers &Transfers::of_device(int32_t index) {
    static Devices *const devices = new Devices; // outlives every static object that makes a pool
    const std::lock_guard lock(devices->mutex);
    return devices->transfers[index];
}

} // namespace pkv
