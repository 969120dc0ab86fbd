/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.lang.ref.Reference;
import java.util.List;
import org.pagedkv.internal.Core;
import org.pagedkv.internal.node_options;
import org.pagedkv.internal.node_stats;

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
