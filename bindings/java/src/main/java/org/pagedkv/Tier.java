/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.lang.ref.Reference;
import org.pagedkv.internal.Core;
import org.pagedkv.internal.file_tier_options;
import org.pagedkv.internal.host_tier_options;
import org.pagedkv.internal.tier_stats;

/** A place below pools that keeps page images: tier.h. Pools that use it keep it alive. Any thread may call. */
public final class Tier extends NativeObject {
    Tier(long handle) {
        super(handle, Core::tier_close, null);
    }

    /** A tier of host memory. */
    public static Tier host(long capacityBytes) {
        return host(capacityBytes, 0);
    }

    /** The same, in huge pages: 0 = where the kernel gives them, 1 = never, 2 = reserved ones only. */
    public static Tier host(long capacityBytes, int hugePages) {
        long[] handle = new long[1];
        try (host_tier_options to = new host_tier_options()) {
            to.setCapacity_bytes(capacityBytes);
            to.setHuge_pages(hugePages);
            Core.tier_open_host(to, handle);
        }
        return new Tier(handle[0]);
    }

    /** A tier in a file: a new one, or what an earlier process left there. */
    public static Tier file(FileTierOptions options) {
        long[] handle = new long[1];
        try (file_tier_options to = options.open()) {
            Core.tier_open_file(to, handle);
        }
        return new Tier(handle[0]);
    }

    /** The tier's numbers. */
    public TierStats stats() {
        try (tier_stats stats = new tier_stats()) {
            Core.tier_get_stats(handle(), stats);
            return TierStats.of(stats);
        } finally {
            Reference.reachabilityFence(this);
        }
    }
}
