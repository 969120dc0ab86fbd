// SPDX-License-Identifier: Apache-2.0
// The check of pkv_retention that pool.h and table.h share.
#pragma once

#include "core/options.h"

#include <pagedkv/pool.h>

namespace pkv {

inline pkv_status read_retention(const pkv_retention *in, pkv_retention &out) {
    PKV_TRY(read_struct(in, out, "retention"));
    if (out.priority > PKV_PRIORITY_HIGHEST)
        return fail(PKV_ERR_INVALID, "retention: priority is %u, more than %d", out.priority, PKV_PRIORITY_HIGHEST);
    if (out.pin != 0 && out.pin != 1) return fail(PKV_ERR_INVALID, "retention: pin is %d, neither 0 nor 1", out.pin);
    return PKV_OK;
}

} // namespace pkv
