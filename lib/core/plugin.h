// SPDX-License-Identifier: Apache-2.0
// Where plug-ins lie: libraries that are opened when what they are for is used first, so that a program that does not
// use it neither needs nor loads what they are linked with.
#pragma once

#include <string>

namespace pkv {

/// The plug-in in PKV_PLUGIN_DIR, or in the folder pagedkv/ beside the library. Whether it is there is another
/// question.
std::string plugin_path(const char *name);

} // namespace pkv
