// SPDX-License-Identifier: Apache-2.0
// For threads of the fabric's, also those that providers start: the host's handlers never run on one of them.
#pragma once

#include "core/signals.h"

namespace pkv::fabric {

using pkv::BlockedSignals;

} // namespace pkv::fabric
