/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.tier_stats;

/** Statistics of a tier: the fields are those of pkv_tier_stats and its usage (tier.h). */
public record TierStats(
        long lookups, long hits, long loads, long failedLoads, long stores, long failedStores, long bytesLoaded,
        long bytesStored, long checksumFailures, long timeouts, long doubleCompletions, long openRequests,
        long breakerTrips, boolean resting, TierUsage usage) {

    static TierStats of(tier_stats s) {
        return new TierStats(
                s.getLookups(), s.getHits(), s.getLoads(), s.getFailed_loads(), s.getStores(),
                s.getFailed_stores(), s.getBytes_loaded(), s.getBytes_stored(), s.getChecksum_failures(),
                s.getTimeouts(), s.getDouble_completions(), s.getOpen_requests(), s.getBreaker_trips(),
                s.getResting() != 0, TierUsage.of(s));
    }
}
