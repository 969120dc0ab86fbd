/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import org.pagedkv.internal.sync;

/** When a call may touch page bytes, or free pages that work under way may still use: pkv_sync (types.h). */
public final class Sync {
    private final int kind;
    private final long address;
    private final long value;
    private final long timeoutNanos;
    private final ByteBuffer kept;

    private Sync(int kind, long address, long value, long timeoutNanos, ByteBuffer kept) {
        this.kind = kind;
        this.address = address;
        this.value = value;
        this.timeoutNanos = timeoutNanos;
        this.kept = kept;
    }

    /** In order on a CUDA stream. */
    public static Sync cudaStream(long stream) {
        return new Sync(1, stream, 0, 0, null);
    }

    boolean isStream() {
        return kind == 1;
    }

    /** After a CUDA event. */
    public static Sync cudaEvent(long event) {
        return new Sync(2, event, 0, 0, null);
    }

    /**
     * After a counter has reached a value.
     *
     * @param counter direct, 8 bytes from its position on, aligned to 8
     * @param timeoutNanos longest wait; 0 = one second
     */
    public static Sync counter(ByteBuffer counter, long value, long timeoutNanos) {
        if (counter.remaining() < 8) {
            throw new IllegalArgumentException("a counter has 8 bytes, not " + counter.remaining());
        }
        long address = Bytes.address(counter);
        if (address % 8 != 0) {
            throw new IllegalArgumentException("a counter is aligned to 8 bytes");
        }
        return new Sync(3, address, value, timeoutNanos, counter);
    }

    /* null for null; to be closed */
    static sync open(Sync from) {
        if (from == null) {
            return null;
        }
        sync to = new sync();
        to.setKind(from.kind);
        to.setHandle_address(from.address);
        to.setValue(from.value);
        to.setTimeout_ns(from.timeoutNanos);
        return to;
    }

    /* After the call. */
    static void hold(Sync sync) {
        if (sync != null) {
            Reference.reachabilityFence(sync.kept);
        }
    }
}
