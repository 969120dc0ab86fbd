/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.require_result;

/** Where required blocks came from: pkv_require_result (prefetch.h). */
public record RequireResult(
        long resident, long onTime, long late, long onDemand, long waitedNs) {

    static RequireResult of(require_result s) {
        return new RequireResult(
                s.getResident(), s.getOn_time(), s.getLate(), s.getOn_demand(), s.getWaited_ns());
    }
}
