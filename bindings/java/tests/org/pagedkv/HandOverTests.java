/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/* Sequences that go from one node to another. */
final class HandOverTests {
    private static final int ROW = 2 * 4 * 4; // two heads of four floats
    private static final long LONG = 30_000_000_000L;

    private HandOverTests() {}

    private interface Between {
        void run(Node giver, Node taker) throws Exception;
    }

    private static void nodes(Between body) throws Exception {
        byte[] key = PagedKv.digest("secret".getBytes(StandardCharsets.UTF_8));
        Node giver;
        try {
            giver = new Node(new NodeOptions(key).listen("127.0.0.1:0").provider("tcp").flags(NodeOptions.COPY));
        } catch (PagedKvException e) {
            Tests.check(e.status() == Status.UNSUPPORTED, e.toString());
            System.out.println("SKIP hand-over: " + e.detail());
            return;
        }
        try (giver; Node taker = new Node(new NodeOptions(key).provider("tcp"))) {
            body.run(giver, taker);
        }
    }

    /* Rows that tell tokens and layers apart. */
    private static ByteBuffer patterned(Table table, int layer, int count) {
        ByteBuffer k = Tests.bytes(count * ROW);
        for (int i = 0; i < count * ROW; i += 4) {
            k.putFloat(i, layer * 100000 + i);
        }
        Rows rows = Rows.of(k, DType.F32, count);
        table.write(0, layer, 0, count, rows, rows);
        return k;
    }

    private static void same(Table table, int layer, ByteBuffer want) {
        int count = want.capacity() / ROW;
        ByteBuffer got = Tests.bytes(want.capacity());
        table.gather(0, layer, 0, count, Rows.of(got, DType.F32, count), null);
        Tests.check(got.equals(want), "rows of layer " + layer);
    }

    static void whole() throws Exception {
        nodes((giver, taker) -> {
            try (Pool pool = Tests.pool(); Pool other = Tests.pool(); Table table = pool.table()) {
                Namespace tenant = new Namespace().salt("tenant".getBytes(StandardCharsets.UTF_8));
                table.admit(Prompt.of(Tests.tokens(1, 41)).namespace(tenant));
                ByteBuffer[] want = {patterned(table, 0, 41), patterned(table, 1, 41)};
                table.commit(41);
                Node.Offered offered = giver.offer(table, null, null);
                Offer.Info info = offered.offer().info();
                Tests.check(info.status() == Status.BUSY && info.numTokens() == 41 && info.readyTokens() == 41 && info.leftNs() > 0,
                        info.toString());
                table.close((Sync) null); // the offer has the pages
                byte[] ticket = offered.offer().ticket();
                PullOptions options = new PullOptions().namespace(tenant).groups(0);
                try (Op op = taker.pull(other, new byte[][] {ticket}, options, null)) {
                    op.await(LONG);
                    try (Table pulled = op.table()) {
                        Tests.fails(Status.STATE, op::table);
                        Tests.check(pulled.info().committed() == 41 && pulled.pool() == other, "pulled");
                        same(pulled, 0, want[0]);
                        same(pulled, 1, want[1]);
                    }
                }
                offered.op().await(LONG);
                Tests.check(offered.offer().info().pulls() == 1 && offered.offer().info().status() == Status.OK, "pulled once");
                Tests.check(taker.stats().pulls() == 1, taker.stats() + "");
                offered.close();
                offered.close();
                Tests.fails(Status.HANDLE, offered.offer()::ticket);
                Tests.fails(Status.HANDLE, offered.op()::poll);
            }
        });
    }

    static void layerByLayer() throws Exception {
        nodes((giver, taker) -> {
            try (Pool pool = Tests.pool(); Pool other = Tests.pool(); Table table = pool.table(); Queue queue = new Queue()) {
                table.admit(Prompt.of(Tests.tokens(1, 40)));
                Tests.fails(Status.STATE, () -> giver.offer(table, null, null)); // nothing is committed
                OfferOptions options = new OfferOptions().numTokens(40).lifetimeNs(2 * LONG).maxPulls(OfferOptions.UNLIMITED);
                try (Node.Offered offered = giver.offer(table, options, null);
                        Op op = taker.pull(other, new byte[][] {offered.offer().ticket()}, null,
                                new OpOptions().queue(queue).user(7).timeoutNs(LONG))) {
                    Offer offer = offered.offer();
                    Tests.fails(Status.BUSY, op::table);
                    ByteBuffer first = patterned(table, 0, 40);
                    offer.ready(0, 0, 40, null);
                    Tests.fails(Status.INVALID, () -> offer.ready(0, 9, 40, null));
                    Tests.fails(Status.INVALID, () -> offer.ready(Offer.ALL, Offer.ALL, 41, null));
                    ByteBuffer second = patterned(table, 1, 40);
                    offer.ready(Offer.ALL, Offer.ALL, 40, null);
                    Queue.Completion end = queue.drain(1, LONG).get(0);
                    Tests.check(end.user() == 7 && end.status() == Status.OK, end.toString());
                    try (Table pulled = op.table()) {
                        same(pulled, 0, first);
                        same(pulled, 1, second);
                    }
                    Tests.check(offer.info().status() == Status.BUSY, "pulled as often as one likes");
                }
            }
        });
    }

    static void refused() throws Exception {
        nodes((giver, taker) -> {
            try (Pool pool = Tests.pool(); Pool other = Tests.pool(); Table table = Tests.filled(pool, 1, 20)) {
                Tests.fails(Status.STATE, () -> taker.offer(table, null, null)); // listens at nothing
                Tests.fails(Status.INVALID, () -> taker.pull(other, new byte[][] {new byte[100]}, null, null));
                Tests.fails(Status.INVALID, () -> taker.pull(other, new byte[0][], null, null));
                Node.Offered offered = giver.offer(table, null, null);
                byte[][] tickets = {offered.offer().ticket()};
                PullOptions another = new PullOptions().namespace(new Namespace().model("another"));
                try (Op op = taker.pull(other, tickets, another, null)) {
                    Tests.fails(Status.MISMATCH, () -> op.await(LONG));
                    Tests.fails(Status.MISMATCH, op::table);
                }
                offered.offer().close();
                Tests.fails(Status.CANCELLED, () -> offered.op().await(LONG));
                offered.op().close();
                try (Op op = taker.pull(other, tickets, null, null)) {
                    Tests.fails(Status.NOT_FOUND, () -> op.await(LONG));
                }
                Tests.check(other.stats(0).heldPages() == 0 && other.stats(0).cachedPages() == 0, "nothing is left");
            }
        });
    }
}
