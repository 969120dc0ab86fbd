// SPDX-License-Identifier: Apache-2.0
// pkv_sync on a host pool.
#pragma once

#include "core/status.h"

namespace pkv {

/// Waits until the work that `sync` names has passed; nullptr = nothing to wait for.
pkv_status wait_sync(const pkv_sync *sync);

} // namespace pkv
