/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.tier_stats;
import org.pagedkv.internal.tier_usage;

/** What a tier says of itself: the fields are those of pkv_tier_usage (tier_ops.h). */
public record TierUsage(
        long capacityBytes, long usedBytes, long images, long pinnedImages, long evictedImages,
        long recoveredImages, long ioErrors, int engine, boolean registeredBuffers) {

    static TierUsage of(tier_usage s) {
        return new TierUsage(
                s.getCapacity_bytes(), s.getUsed_bytes(), s.getImages(), s.getPinned_images(),
                s.getEvicted_images(), s.getRecovered_images(), s.getIo_errors(), s.getEngine(),
                s.getRegistered_buffers() != 0);
    }

    static TierUsage of(tier_stats stats) {
        try (tier_usage usage = stats.get_usage()) {
            return of(usage);
        }
    }
}
