/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.retention;

/**
 * How long cached blocks are kept in comparison with others.
 *
 * @param priority 0 .. 100
 * @param pin not evicted at all
 * @param ttlNanos after so long the blocks go back to the default; 0 = never
 */
public record Retention(int priority, boolean pin, long ttlNanos) {
    /** Of blocks about which nothing is said. */
    public static final Retention DEFAULT = new Retention(50, false, 0);

    /* null for null; to be closed */
    static retention open(Retention from) {
        if (from == null) {
            return null;
        }
        retention to = new retention();
        to.setPriority(Bytes.unsigned(from.priority));
        to.setPin(from.pin ? 1 : 0);
        to.setTtl_ns(from.ttlNanos);
        return to;
    }
}
