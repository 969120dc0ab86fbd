// SPDX-License-Identifier: Apache-2.0
// device.h
#include "device/device.h"
#include "capi/boundary.h"

#include <pagedkv/device.h>

extern "C" {

pkv_status pkv_device_available(int32_t kind, int32_t index) {
    return pkv::boundary([&] { return pkv::Device::available(kind, index); });
}

} // extern "C"
