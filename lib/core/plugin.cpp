// SPDX-License-Identifier: Apache-2.0
#include "core/plugin.h"

#include <cstdlib>
#include <dlfcn.h>

namespace pkv {

std::string plugin_path(const char *name) {
    const char *folder = std::getenv("PKV_PLUGIN_DIR");
    if (folder != nullptr && *folder != 0) return std::string(folder) + '/' + name;
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void *>(&plugin_path), &info) == 0 || info.dli_fname == nullptr) return name;
    const std::string library = info.dli_fname;
    const size_t slash = library.rfind('/');
    return (slash == std::string::npos ? std::string() : library.substr(0, slash + 1)) + "pagedkv/" + name;
}

} // namespace pkv
