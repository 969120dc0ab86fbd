/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

/** When a pool stores page images in a tier. */
public enum TierPolicy {
    /** in the background, before pages are evicted */
    WRITE_BACK(0),
    /** in the background, as soon as blocks are published */
    WRITE_THROUGH(1),
    /** in the background, at the n-th hit */
    WRITE_ON_HITS(2),
    /** when the tier above evicts them */
    DEMOTE(3),
    /** never */
    READ_ONLY(4);

    final int code;

    TierPolicy(int code) {
        this.code = code;
    }
}
