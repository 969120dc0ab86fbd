/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.histogram;

/** Times in powers of two: bucket 0 counts zeros, bucket b 2^(b-1) .. 2^b - 1 nanoseconds, the last one all above. */
public record Histogram(long count, long sumNs, long[] buckets) {
    private static final int BUCKETS = 48;

    static Histogram of(histogram from) {
        try (from) {
            long[] buckets = new long[BUCKETS];
            for (int i = 0; i < BUCKETS; ++i) {
                buckets[i] = from.get_bucket(i);
            }
            return new Histogram(from.getCount(), from.getSum_ns(), buckets);
        }
    }
}
