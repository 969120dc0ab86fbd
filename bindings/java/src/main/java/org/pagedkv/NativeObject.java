/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.lang.ref.Cleaner;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * An object of the library. Closing it twice does nothing; a call on a closed one gives {@link Status#HANDLE}; objects may be
 * closed in any order. One that is not closed is, some time after it has become unreachable.
 *
 * <p>A handle is a value that the library checks at each use, so that no order of calls on any threads reaches freed memory.
 */
public abstract class NativeObject implements AutoCloseable {
    private static final Cleaner CLEANER = Cleaner.create();
    private static final List<Object> ABANDONED = Collections.synchronizedList(new ArrayList<>());

    interface Destroyer {
        void destroy(long handle);
    }

    /* What outlives the object: must not lead to it. */
    private static final class State implements Runnable {
        final long handle;
        final Destroyer destroyer;
        final Object kept; // memory that the library uses as long as the handle is open
        final AtomicBoolean open;

        State(long handle, Destroyer destroyer, Object kept) {
            this.handle = handle;
            this.destroyer = destroyer;
            this.kept = kept;
            this.open = new AtomicBoolean(handle != 0);
        }

        void close(Destroyer destroyer) {
            if (!open.compareAndSet(true, false)) {
                return;
            }
            try {
                destroyer.destroy(handle);
            } catch (PagedKvException e) {
                open.set(e.status() == Status.BUSY || e.status() == Status.TIMEOUT); // it lives on
                throw e;
            }
        }

        @Override
        public void run() {
            try {
                close(destroyer);
            } catch (PagedKvException e) {
                if (open.get() && kept != null) {
                    ABANDONED.add(kept); // rather kept for ever than freed under the library's hands
                }
            }
        }
    }

    private final State state;
    private final Cleaner.Cleanable cleanable;

    NativeObject(long handle, Destroyer destroyer, Object kept) {
        state = new State(handle, destroyer, kept);
        cleanable = CLEANER.register(this, state);
    }

    final long handle() {
        return state.handle;
    }

    /** Whether {@link #close} has not been called. */
    public final boolean isOpen() {
        return state.open.get();
    }

    /**
     * Closes the object.
     *
     * @throws PagedKvException {@link Status#BUSY} or {@link Status#TIMEOUT}: it is still open
     */
    @Override
    public void close() {
        close(state.destroyer);
    }

    final void close(Destroyer destroyer) {
        state.close(destroyer);
        if (!state.open.get()) {
            cleanable.clean(); // nothing is left to be done: forgets it
        }
    }

    static long handleOf(NativeObject object) {
        return object != null ? object.handle() : 0;
    }
}
