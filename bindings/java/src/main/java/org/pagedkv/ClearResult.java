/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.clear_result;

/** What {@link Pool#clear} did: cached pages that became free, and pages still held by somebody. */
public record ClearResult(
        long freed, long held) {

    static ClearResult of(clear_result s) {
        return new ClearResult(
                s.getFreed(), s.getHeld());
    }
}
