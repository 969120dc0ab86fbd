/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.lang.ref.Reference;
import java.util.List;
import org.pagedkv.internal.Core;

/** Where operations end: tier.h. Any thread may call. */
public final class Queue extends NativeObject {
    /**
     * An operation that has ended.
     *
     * @param user as given when it was begun ({@link OpOptions#user})
     */
    public record Completion(long user, Status status) {}

    public Queue() {
        this(create());
    }

    private Queue(long handle) {
        super(handle, Core::queue_destroy, null);
    }

    /* One that could not be made: for tests. */
    static Queue none() {
        return new Queue(0);
    }

    private static long create() {
        long[] handle = new long[1];
        Core.queue_create(handle);
        return handle[0];
    }

    /** The eventfd, readable while results wait; neither to be read nor closed. */
    public int fd() {
        long[] fd = new long[1];
        Core.queue_handle(handle(), fd);
        Reference.reachabilityFence(this);
        return (int) fd[0];
    }

    /**
     * Takes results out, in the order in which the operations ended, each once.
     *
     * @param timeoutNanos longest wait for the first one; 0 = none, {@link PagedKv#ALL} = for ever
     * @throws PagedKvException {@link Status#TIMEOUT} when there is none
     */
    public List<Completion> drain(int capacity, long timeoutNanos) {
        byte[] completions = new byte[Math.multiplyExact(Math.max(capacity, 0), Packed.COMPLETION)];
        long[] count = new long[1];
        Core.queue_drain(handle(), completions, Math.max(capacity, 0), timeoutNanos, count);
        Reference.reachabilityFence(this);
        return Packed.completions(completions, (int) count[0]);
    }
}
