// SPDX-License-Identifier: Apache-2.0
#include "device/plugin.h"

#include "core/plugin.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <string>

namespace pkv {
namespace {

constexpr char cuda_file[] = "libpagedkv-cuda.so";
// What every version 1 has; functions that were added later may be missing.
constexpr size_t first_size = offsetof(pkv_device_table, stream_id);

} // namespace

pkv_status cuda_table(const pkv_device_table *&table) {
    static std::mutex mutex;
    static pkv_device_table known{};
    static bool loaded = false; // never unloaded: contexts and threads of the runtime live in it
    const std::lock_guard lock(mutex);
    if (!loaded) {
        const std::string path = plugin_path(cuda_file);
        void *const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            const char *why = dlerror();
            return fail(PKV_ERR_UNSUPPORTED, "the plug-in for CUDA: %s", why != nullptr ? why : path.c_str());
        }
        const auto entry = reinterpret_cast<pkv_device_entry>(dlsym(library, PKV_DEVICE_ENTRY));
        const pkv_device_table *const found = entry != nullptr ? entry() : nullptr;
        if (found == nullptr || found->version != PKV_DEVICE_VERSION || found->struct_size < first_size) {
            const pkv_status status =
                found == nullptr
                    ? fail(PKV_ERR_UNSUPPORTED, "the plug-in %s has no table", path.c_str())
                    : fail(PKV_ERR_UNSUPPORTED, "the plug-in %s is of another version: %u (%zu bytes), not %u (%zu)",
                           path.c_str(), found->version, found->struct_size, PKV_DEVICE_VERSION, first_size);
            dlclose(library);
            return status;
        }
        std::memcpy(&known, found, std::min(found->struct_size, sizeof known));
        loaded = true;
    }
    table = &known;
    return PKV_OK;
}

} // namespace pkv
