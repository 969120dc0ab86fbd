/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.pagedkv.internal.Core;
import org.pagedkv.internal.CoreConstants;
import org.pagedkv.internal.prompt;

/* Arrays of C structs, as bytes; sizes and offsets are the C compiler's. */
final class Packed {
    static final int KEY = (int) CoreConstants.KEY_BYTES;
    static final int TIER_KEY = (int) CoreConstants.TIER_KEY_BYTES;
    static final int EVENT = (int) CoreConstants.EVENT_BYTES;
    static final int PAGE_COPY = (int) CoreConstants.PAGE_COPY_BYTES;
    static final int COMPLETION = (int) CoreConstants.COMPLETION_BYTES;
    static final int NODE_PEER = (int) CoreConstants.NODE_PEER_BYTES;

    private Packed() {}

    interface KeyCall {
        void call(prompt of, byte[] keys, long capacity, long[] count);
    }

    static byte[] keys(Prompt prompt, int bytes, KeyCall call) {
        long[] count = new long[1];
        try (prompt of = prompt.open()) {
            call.call(of, null, 0, count);
            byte[] keys = new byte[Math.multiplyExact(Math.toIntExact(count[0]), bytes)];
            if (count[0] != 0) {
                call.call(of, keys, count[0], count);
            }
            return keys;
        }
    }

    static List<Event> events(byte[] bytes, int count) {
        ByteBuffer at = Bytes.view(bytes);
        List<Event> events = new ArrayList<>(count);
        for (int i = 0; i < count; ++i) {
            int base = i * EVENT;
            events.add(new Event(at.getLong(base + (int) CoreConstants.EVENT_AT_SEQUENCE),
                    at.getInt(base + (int) CoreConstants.EVENT_AT_KIND), at.getInt(base + (int) CoreConstants.EVENT_AT_GROUP),
                    key(at, base + (int) CoreConstants.EVENT_AT_KEY), key(at, base + (int) CoreConstants.EVENT_AT_PARENT),
                    at.getLong(base + (int) CoreConstants.EVENT_AT_BLOCK)));
        }
        return events;
    }

    private static Event.Key key(ByteBuffer at, int offset) {
        return new Event.Key(at.getLong(offset), at.getLong(offset + 8));
    }

    static List<Table.PageCopy> copies(byte[] bytes, int count) {
        ByteBuffer at = Bytes.view(bytes);
        List<Table.PageCopy> copies = new ArrayList<>(count);
        for (int i = 0; i < count; ++i) {
            int base = i * PAGE_COPY;
            copies.add(new Table.PageCopy(at.getInt(base + (int) CoreConstants.PAGE_COPY_AT_GROUP),
                    at.getInt(base + (int) CoreConstants.PAGE_COPY_AT_SRC), at.getInt(base + (int) CoreConstants.PAGE_COPY_AT_DST)));
        }
        return copies;
    }

    static List<Queue.Completion> completions(byte[] bytes, int count) {
        ByteBuffer at = Bytes.view(bytes);
        List<Queue.Completion> completions = new ArrayList<>(count);
        for (int i = 0; i < count; ++i) {
            int base = i * COMPLETION;
            completions.add(new Queue.Completion(at.getLong(base + (int) CoreConstants.COMPLETION_AT_USER),
                    Status.of(at.getInt(base + (int) CoreConstants.COMPLETION_AT_STATUS))));
        }
        return completions;
    }

    static List<Node.Peer> peers(long node) {
        long[] count = new long[1];
        Core.node_peers(node, null, 0, count);
        while (true) {
            int capacity = Math.toIntExact(count[0]);
            byte[] bytes = new byte[Math.multiplyExact(Math.max(capacity, 1), NODE_PEER)];
            ByteBuffer at = Bytes.view(bytes);
            at.putLong(0, NODE_PEER);
            try {
                Core.node_peers(node, bytes, capacity, count);
            } catch (PagedKvException e) {
                if (e.status() == Status.NO_SPACE && count[0] > capacity) {
                    continue;
                }
                throw e;
            }
            List<Node.Peer> peers = new ArrayList<>();
            for (int i = 0; i < Math.min(count[0], capacity); ++i) {
                int base = i * NODE_PEER;
                int address = (int) CoreConstants.NODE_PEER_AT_ADDRESS;
                int name = (int) CoreConstants.NODE_PEER_AT_NAME;
                int connected = (int) CoreConstants.NODE_PEER_AT_CONNECTED;
                peers.add(new Node.Peer(Bytes.text(at, base + address, name - address), Bytes.text(at, base + name, connected - name),
                        at.getInt(base + connected) != 0,
                        Status.of(at.getInt(base + (int) CoreConstants.NODE_PEER_AT_STATUS))));
            }
            return peers;
        }
    }

    static int[] cut(int[] array, long count) {
        return count == array.length ? array : Arrays.copyOf(array, (int) count);
    }
}
