// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/why.h"

namespace pkv::cuda {

using pkv::Why;

} // namespace pkv::cuda
