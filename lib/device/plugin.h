// SPDX-License-Identifier: Apache-2.0
// The table of a device back end, out of its plug-in.
#pragma once

#include "core/status.h"
#include "tensor/device_table.h"

namespace pkv {

/// Of the plug-in for CUDA, which is opened at the first call and stays open. PKV_ERR_UNSUPPORTED with the reason without it,
/// and for one of another version. Functions that it does not know are nullptr.
pkv_status cuda_table(const pkv_device_table *&table);

} // namespace pkv
