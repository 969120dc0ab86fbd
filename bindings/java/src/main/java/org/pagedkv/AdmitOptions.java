/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.admit_options;

/** How a table is admitted: pkv_admit_options (table.h). */
public final class AdmitOptions {
    /** Flag: take nothing from the cache. */
    public static final int NO_MATCH = 1;
    /** Flag: the request was admitted before and is coming back. */
    public static final int RETRY = 2;
    /** Flag: a match may end inside a block. */
    public static final int PARTIAL = 4;
    /** Flag: take published pages in place of own ones with the same content. */
    public static final int SHARE = 8;

    private long maxMatch;
    private long reserveTokens;
    private long watermark;
    private int flags;

    /** At most this many tokens may match; 0 = all but the last one, {@link Match#ALL} = no bound. */
    public AdmitOptions maxMatch(long maxMatch) {
        this.maxMatch = maxMatch;
        return this;
    }

    /** Room to make after the matched tokens; 0 = the rest of the prompt. */
    public AdmitOptions reserveTokens(long reserveTokens) {
        this.reserveTokens = reserveTokens;
        return this;
    }

    /** Pages that must stay free or evictable afterwards. */
    public AdmitOptions watermark(long watermark) {
        this.watermark = watermark;
        return this;
    }

    public AdmitOptions flags(int flags) {
        this.flags = flags;
        return this;
    }

    static admit_options open(AdmitOptions from) {
        if (from == null) {
            return null;
        }
        admit_options to = new admit_options();
        to.setMax_match(from.maxMatch);
        to.setReserve_tokens(from.reserveTokens);
        to.setWatermark(from.watermark);
        to.setFlags(Bytes.unsigned(from.flags));
        return to;
    }
}
