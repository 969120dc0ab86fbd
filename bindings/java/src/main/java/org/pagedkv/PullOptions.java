/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.namespace;
import org.pagedkv.internal.pull_options;

/** How a sequence is pulled: pkv_pull_options (node.h). */
public final class PullOptions {
    /** Flag: transfers blocks that the pool has already, too. */
    public static final int NO_MATCH = 1;
    /** Flag: leaves the giver's retention behind. */
    public static final int NO_RETENTION = 2;

    private Namespace namespace;
    private int[] groups;
    private int flags;

    /** That the sequence has to be of, or the pull ends with {@link Status#MISMATCH}; without it whichever it is. */
    public PullOptions namespace(Namespace namespace) {
        this.namespace = namespace;
        return this;
    }

    /** For each layer group of the pool, the givers' group that it is; without it the one of the same number. */
    public PullOptions groups(int... groups) {
        this.groups = groups.clone();
        return this;
    }

    /** {@link #NO_MATCH}, {@link #NO_RETENTION}. */
    public PullOptions flags(int flags) {
        this.flags = flags;
        return this;
    }

    static pull_options open(PullOptions from) {
        if (from == null) {
            return null;
        }
        pull_options to = new pull_options();
        to.setFlags(Bytes.unsigned(from.flags));
        try (namespace ns = Namespace.open(from.namespace)) {
            to.set_ns(ns);
            if (from.groups != null) {
                to.set_groups(from.groups, from.groups.length);
            }
            return to;
        } catch (RuntimeException e) {
            to.close();
            throw e;
        }
    }
}
