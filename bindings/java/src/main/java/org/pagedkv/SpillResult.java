/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.spill_result;

/** What {@link Table#spill} did: blocks now in tiers, and pages that stayed because somebody else holds them. */
public record SpillResult(
        long spilledBlocks, long sharedPages) {

    static SpillResult of(spill_result s) {
        return new SpillResult(
                s.getSpilled_blocks(), s.getShared_pages());
    }
}
