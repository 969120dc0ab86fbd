// SPDX-License-Identifier: Apache-2.0
#include "tensor/cuda/driver.h"

#include <dlfcn.h>

namespace pkv::cuda {
namespace {

template <class Function> void look_up(void *library, const char *name, Function &function) {
    if (function == nullptr) function = reinterpret_cast<Function>(dlsym(library, name));
}

Driver load() {
    Driver d{};
    void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return d;
    // Names carry the version of their signature.
    look_up(library, "cuDeviceGet", d.device_get);
    look_up(library, "cuDeviceGetAttribute", d.device_attribute);
    look_up(library, "cuDevicePrimaryCtxRetain", d.retain_primary);
    look_up(library, "cuDevicePrimaryCtxRelease_v2", d.release_primary);
    look_up(library, "cuCtxPushCurrent_v2", d.push);
    look_up(library, "cuCtxPopCurrent_v2", d.pop);
    look_up(library, "cuGetErrorName", d.error_name);
    look_up(library, "cuStreamWaitValue64_v2", d.wait_value);
    look_up(library, "cuStreamWriteValue64_v2", d.write_value);
    look_up(library, "cuStreamGetId", d.stream_id);
    look_up(library, "cuMemcpyBatchAsync_v2", d.copy_batch);
    look_up(library, "cuMemcpyBatchAsync", d.copy_batch_12);
    return d; // the library stays: the runtime has it open as well
}

} // namespace

const Driver &driver() {
    static const Driver loaded = load();
    return loaded;
}

} // namespace pkv::cuda
