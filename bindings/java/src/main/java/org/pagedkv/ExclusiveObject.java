/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.lang.ref.Reference;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * An object that one thread at a time may use: a call while another thread is in one gives {@link Status#BUSY}. Closing it is
 * possible at any time, and takes effect when the call has left.
 */
public abstract class ExclusiveObject extends NativeObject {
    private final AtomicBoolean busy = new AtomicBoolean();

    ExclusiveObject(long handle, Destroyer destroyer, Object kept) {
        super(handle, destroyer, kept);
    }

    final void enter() {
        if (!busy.compareAndSet(false, true)) {
            throw PagedKvException.of(Status.BUSY,
                    "another thread is in a call on this " + getClass().getSimpleName());
        }
    }

    final void leave() {
        busy.set(false);
        Reference.reachabilityFence(this);
    }

    /* All of them, or none. */
    static void enter(ExclusiveObject[] objects) {
        for (int i = 0; i < objects.length; ++i) {
            try {
                objects[i].enter();
            } catch (PagedKvException | NullPointerException e) {
                boolean twice = objects[i] != null && Arrays.asList(objects).indexOf(objects[i]) < i;
                for (int entered = i; entered-- > 0;) {
                    objects[entered].leave();
                }
                throw twice ? PagedKvException.of(Status.INVALID, "number " + i + " is in the list before") : e;
            }
        }
    }

    static void leave(ExclusiveObject[] objects) {
        for (ExclusiveObject object : objects) {
            object.leave();
        }
    }

    static long[] handles(NativeObject[] objects) {
        long[] handles = new long[objects.length];
        for (int i = 0; i < objects.length; ++i) {
            handles[i] = objects[i].handle();
        }
        return handles;
    }
}
