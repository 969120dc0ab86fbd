// SPDX-License-Identifier: Apache-2.0
// The reason of a failure, in the buffer that the caller of the table gave for it.
#pragma once

#include "core/why.h"

namespace pkv::fabric {

using pkv::Why;

} // namespace pkv::fabric
