// SPDX-License-Identifier: Apache-2.0
// Functions of the CUDA driver that the runtime has no word for, looked up when the first device is asked for: the
// plug-in loads on machines without a driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda.h>

namespace pkv::cuda {

/// CUmemcpyAttributes, as CUDA 12.8 and later have it.
struct BatchAttributes {
    struct Location {
        int type;
        int id;
    };
    int source_order; ///< 1: the source is read in the stream's order
    Location source, target;
    unsigned flags;
};

/// nullptr: the driver lacks it.
struct Driver {
    CUresult (*device_get)(CUdevice *device, int ordinal);
    CUresult (*device_attribute)(int *value, CUdevice_attribute attribute, CUdevice device);
    CUresult (*retain_primary)(CUcontext *context, CUdevice device);
    CUresult (*release_primary)(CUdevice device);
    CUresult (*push)(CUcontext context);
    CUresult (*pop)(CUcontext *context);
    CUresult (*error_name)(CUresult error, const char **name);
    CUresult (*wait_value)(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags);
    CUresult (*write_value)(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags);
    CUresult (*stream_id)(CUstream stream, unsigned long long *id);
    /// Of 13.0, and of 12.8, which also says which copy it refused.
    CUresult (*copy_batch)(CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count, BatchAttributes *attributes,
                           size_t *attribute_from, size_t num_attributes, CUstream stream);
    CUresult (*copy_batch_12)(CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
                              BatchAttributes *attributes, size_t *attribute_from, size_t num_attributes,
                              size_t *failed, CUstream stream);

    bool has_contexts() const {
        return device_get != nullptr && device_attribute != nullptr && retain_primary != nullptr &&
               release_primary != nullptr && push != nullptr && pop != nullptr;
    }
};

/// What the driver of this machine has; all nullptr without one. Looked up once.
const Driver &driver();

} // namespace pkv::cuda
