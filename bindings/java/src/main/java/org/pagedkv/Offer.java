/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import org.pagedkv.internal.Core;
import org.pagedkv.internal.offer_info;

/**
 * A sequence that other nodes may pull, given its ticket: node.h. It holds the pages, whatever becomes of the table, until it has been
 * pulled, is closed or expires. Closing it withdraws it, unless it has ended. Any thread may call, but for {@link #ready}.
 */
public final class Offer extends NativeObject {
    /** As a group or a layer of {@link #ready}: all of them. */
    public static final int ALL = -1;

    private static final int MAX_TICKET_BYTES = 512;

    /**
     * State of an offer.
     *
     * @param status {@link Status#BUSY} while it is open, OK when it was pulled as often as it may be
     * @param pulls that went well
     * @param readyTokens of those that are offered, ready in all layers
     * @param leftNs until it expires
     */
    public record Info(
            Status status, long pulls, long openPulls, long failedPulls, long numTokens, long readyTokens, long leftNs) {}

    private final Table table;

    Offer(long handle, Table table) {
        super(handle, Core::offer_close, null);
        this.table = table;
    }

    /** The ticket: bytes for the puller, to be sent with the request. */
    public byte[] ticket() {
        ByteBuffer buffer = Bytes.direct(MAX_TICKET_BYTES);
        long[] size = new long[1];
        Core.offer_ticket(handle(), Bytes.address(buffer), buffer.capacity(), size);
        Reference.reachabilityFence(this);
        byte[] ticket = new byte[(int) size[0]];
        buffer.get(ticket);
        return ticket;
    }

    /**
     * Says that the rows of the first tokens are written, and will not change any more: pullers get them from now on. By the thread
     * that has the table.
     *
     * @param group {@link #ALL}: all of them
     * @param layer of the group; {@link #ALL}: all of them, always with all groups
     * @param sync work that still writes the rows; null = none
     */
    public void ready(int group, int layer, long numTokens, Sync sync) {
        table.enter();
        try (org.pagedkv.internal.sync after = Sync.open(sync)) {
            Core.offer_ready(handle(), Bytes.unsigned(group), Bytes.unsigned(layer), numTokens, after);
        } finally {
            table.leave();
            Sync.hold(sync);
            Reference.reachabilityFence(this);
        }
    }

    /** State, without waiting. */
    public Info info() {
        try (offer_info info = new offer_info()) {
            Core.offer_get_info(handle(), info);
            return new Info(Status.of(info.getStatus()), info.getPulls(), info.getOpen_pulls(), info.getFailed_pulls(),
                    info.getNum_tokens(), info.getReady_tokens(), info.getLeft_ns());
        } finally {
            Reference.reachabilityFence(this);
        }
    }
}
