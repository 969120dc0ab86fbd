/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import org.pagedkv.internal.op_options;

/** How an operation reports: pkv_op_options (tier.h). */
public final class OpOptions {
    private Queue queue;
    private long user;
    private long timeoutNs;

    /** Returned with its end. */
    public OpOptions user(long user) {
        this.user = user;
        return this;
    }

    /** After so many nanoseconds it ends with TIMEOUT for what is not done; 0 = 30 seconds. */
    public OpOptions timeoutNs(long timeoutNs) {
        this.timeoutNs = timeoutNs;
        return this;
    }

    /** Where its end is queued. */
    public OpOptions queue(Queue queue) {
        this.queue = queue;
        return this;
    }

    static op_options open(OpOptions from) {
        return from != null ? from.open() : null;
    }

    /* to be closed */
    op_options open() {
        op_options to = new op_options();
        to.setUser(user);
        to.setTimeout_ns(timeoutNs);
        to.set_queue(NativeObject.handleOf(queue));
        return to;
    }
}
