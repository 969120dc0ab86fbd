/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.match;

/**
 * How much of a prompt was found, in tokens from the first, and the blocks that hold them.
 *
 * @param residentTokens of them, in pages
 * @param tierTokens of them, in each tier
 */
public record Match(long tokens, long blocks, long residentTokens, long[] tierTokens) {
    private static final int MAX_TIERS = 4;

    /** As a bound: the whole prompt may match. */
    public static final long ALL = -1;

    static Match of(match from) {
        long[] tiers = new long[MAX_TIERS];
        for (int i = 0; i < MAX_TIERS; ++i) {
            tiers[i] = from.get_tier_tokens(i);
        }
        return new Match(from.getTokens(), from.getBlocks(), from.getResident_tokens(), tiers);
    }
}
