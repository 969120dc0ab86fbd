/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

/**
 * What happened to the prefix index: pkv_event (pool.h).
 *
 * @param sequence 1, 2, 3 ... without gaps
 * @param kind {@link #STORED}, {@link #REMOVED}, {@link #CLEARED}
 */
public record Event(long sequence, int kind, int group, Key key, Key parent, long block) {
    /** A block became findable in a group. */
    public static final int STORED = 1;
    /** A block's page of a group is not findable any more. */
    public static final int REMOVED = 2;
    /** A namespace was cleared. */
    public static final int CLEARED = 3;

    /** Of a block: depends on all before it. */
    public record Key(long low, long high) {}
}
