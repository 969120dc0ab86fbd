/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.lang.ref.Reference;
import java.util.List;
import org.pagedkv.internal.Core;
import org.pagedkv.internal.node_options;
import org.pagedkv.internal.node_stats;
import org.pagedkv.internal.offer_options;
import org.pagedkv.internal.op_options;
import org.pagedkv.internal.pull_options;

/** Page images of this process for others, and those of others for it: node.h. Any thread may call. */
public final class Node extends NativeObject {
    /** A node to read from: connected, or why not. */
    public record Peer(String address, String name, boolean connected, Status status) {}

    /** Opens a node, and begins to listen if it shall. */
    public Node(NodeOptions options) {
        super(open(options), Core::node_close, null);
    }

    private static long open(NodeOptions options) {
        long[] handle = new long[1];
        try (node_options to = options.open()) {
            Core.node_open(to, handle);
        } finally {
            Reference.reachabilityFence(options);
        }
        return handle[0];
    }

    /** "host:port" at which others connect. */
    public String address() {
        try {
            return Bytes.text((buffer, capacity, size) -> Core.node_address(handle(), buffer, capacity, size));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Adds a node to read from.
     *
     * @param timeoutNanos longest wait for the first connection; 0 = do not wait
     */
    public void connect(String address, long timeoutNanos) {
        Core.node_connect(handle(), Bytes.text(address), timeoutNanos);
        Reference.reachabilityFence(this);
    }

    /** Removes a node to read from. */
    public void disconnect(String address) {
        Core.node_disconnect(handle(), Bytes.text(address));
        Reference.reachabilityFence(this);
    }

    /** The images of the nodes it reads from, as a tier, to be attached as {@link TierPolicy#READ_ONLY}. */
    public Tier tier() {
        long[] tier = new long[1];
        Core.node_tier(handle(), tier);
        Reference.reachabilityFence(this);
        return new Tier(tier[0]);
    }

    /** What {@link #offer} gives; {@code op} ends when the offer has been pulled, withdrawn, or is over. */
    public record Offered(Offer offer, Op op) implements AutoCloseable {
        @Override
        public void close() {
            op.close();
            offer.close();
        }
    }

    /**
     * Offers a table's sequence to be pulled. The table may go on, be truncated or closed.
     *
     * @param options null = defaults
     * @param opOptions how the offer's end is reported, or null
     */
    public Offered offer(Table table, OfferOptions options, OpOptions opOptions) {
        long[] offer = new long[1];
        long[] op = new long[1];
        table.enter();
        try (offer_options of = OfferOptions.open(options); op_options with = OpOptions.open(opOptions)) {
            Core.table_offer(handle(), table.handle(), of, with, offer, op);
        } finally {
            table.leave();
            Reference.reachabilityFence(opOptions);
            Reference.reachabilityFence(this);
        }
        return new Offered(new Offer(offer[0], table), new Op(op[0]));
    }

    /**
     * Begins to pull a sequence into a pool; when the operation has ended well, {@link Op#table} is the sequence.
     *
     * @param tickets of {@link Offer#ticket}; several, when only together they have all layers and heads of the pool
     * @param options null = defaults
     * @param opOptions null = defaults
     */
    public Op pull(Pool pool, byte[][] tickets, PullOptions options, OpOptions opOptions) {
        long[] op = new long[1];
        try (pull_options of = PullOptions.open(options); op_options with = OpOptions.open(opOptions)) {
            Core.table_pull(handle(), pool.handle(), tickets, of, with, op);
        } finally {
            Reference.reachabilityFence(pool);
            Reference.reachabilityFence(opOptions);
            Reference.reachabilityFence(this);
        }
        return new Op(op[0], pool);
    }

    /** The nodes it reads from. */
    public List<Peer> peers() {
        try {
            return Packed.peers(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** The node's numbers. */
    public NodeStats stats() {
        try (node_stats stats = new node_stats()) {
            Core.node_get_stats(handle(), stats);
            return NodeStats.of(stats);
        } finally {
            Reference.reachabilityFence(this);
        }
    }
}
