// SPDX-License-Identifier: Apache-2.0
// stats.h
#include "capi/boundary.h"
#include "pool/pool.h"

#include <pagedkv/stats.h>

extern "C" {

pkv_status pkv_pool_get_stats(pkv_pool *pool, uint32_t group, pkv_pool_stats *stats) {
    return pkv::boundary([&] {
        pkv::Pin<pkv::Pool> pin;
        PKV_TRY(pin.acquire(pool));
        PKV_TRY(pin->check_group(group));
        PKV_TRY(pkv::check_out_struct(stats, "stats"));
        pkv_pool_stats value = PKV_POOL_STATS_INIT;
        pin->stats(group, value);
        pkv::write_struct(stats, value);
        return PKV_OK;
    });
}

} // extern "C"
