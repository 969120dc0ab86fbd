/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.lang.ref.Reference;
import org.pagedkv.internal.Core;
import org.pagedkv.internal.op_info;

/** An asynchronous operation: tier.h. One that is closed goes on, unseen. Any thread may call. */
public final class Op extends NativeObject {
    /**
     * State of an operation.
     *
     * @param status of one that has ended
     * @param buffersFree nothing of it touches pages or buffers any more
     * @param statuses of each item; {@link Status#BUSY} while it is under way
     */
    public record Info(
            boolean ended, Status status, long numItems, long doneItems, long goodItems, boolean buffersFree, Status[] statuses) {}

    private final Pool pool; // of a pull

    Op(long handle) {
        this(handle, null);
    }

    Op(long handle, Pool pool) {
        super(handle, Core::op_close, null);
        this.pool = pool;
    }

    /** State, without waiting. */
    public Info poll() {
        try (op_info info = new op_info()) {
            Core.op_poll(handle(), info, null, 0);
            int[] statuses = new int[Math.toIntExact(info.getNum_items())];
            if (statuses.length != 0) {
                Core.op_poll(handle(), info, statuses, statuses.length);
            }
            return new Info(info.getState() != 0, Status.of(info.getStatus()), info.getNum_items(), info.getDone_items(),
                    info.getGood_items(), info.getBuffers_free() != 0, Status.of(statuses));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Waits until it has ended.
     *
     * @param timeoutNanos 0 = look once, {@link PagedKv#ALL} = for ever
     * @throws PagedKvException what it ended with, or {@link Status#TIMEOUT} while it is under way
     */
    public void await(long timeoutNanos) {
        Core.op_wait(handle(), timeoutNanos);
        Reference.reachabilityFence(this);
    }

    /**
     * The sequence that {@link Node#pull} has brought, once.
     *
     * @throws PagedKvException {@link Status#BUSY} while it is under way; what it failed with; {@link Status#STATE} for an operation that
     *     is no pull, or whose table was taken
     */
    public Table table() {
        long[] table = new long[1];
        Core.pull_table(handle(), table);
        Reference.reachabilityFence(this);
        return new Table(pool, table[0]);
    }

    /** Asks it to end early. */
    public void cancel() {
        Core.op_cancel(handle());
        Reference.reachabilityFence(this);
    }
}
