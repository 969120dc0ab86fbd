/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.nio.ByteBuffer;
import java.util.Arrays;
import org.pagedkv.internal.Core;

/*
 * Pools on a device. With the argument "pool" the plug-in is a device of host memory (tests/device/fake): a device to the library, and
 * memory to a test that knows it.
 */
final class DeviceTests {
    private static final int BYTES = 20 * 2 * 4 * 4; // 20 tokens, two heads of four floats

    private DeviceTests() {}

    static void notThere() throws Exception {
        Device.HOST.require();
        PagedKvException e = Tests.fails(Status.UNSUPPORTED, () -> Device.cuda(1000).require());
        Tests.check(!e.detail().isEmpty(), "the reason");
        Tests.fails(Status.UNSUPPORTED, () -> new Pool(options().device(Device.cuda(1000))));
        Tests.fails(Status.INVALID, () -> new Device(7, 0).require());
        try (Pool pool = Tests.pool()) {
            pool.order(null); // a host pool has nothing to order
        }
    }

    private static PoolOptions options() {
        return new PoolOptions().pageTokens(16).group(Tests.group());
    }

    private static void pool() throws Exception {
        Device.cuda(0).require();
        PoolOptions options = options().device(Device.cuda(0)).transferBlocks(4);
        try (Pool pool = new Pool(options); Pool other = new Pool(options); Table table = pool.table()) {
            long address = other.layout(0, 0).kBase();
            Rows here = Rows.at(address, BYTES, DType.F32, 20, 0, 0);
            byte[] pattern = new byte[BYTES];
            for (int i = 0; i < BYTES; ++i) {
                pattern[i] = (byte) i;
            }
            Core.memory_from_bytes(address, BYTES, pattern);
            table.admit(Prompt.of(Tests.tokens(1, 20)));
            for (int layer = 0; layer < 2; ++layer) {
                table.write(0, layer, 0, 20, here, here);
            }
            table.commit(20);
            pool.order(null);
            Core.memory_from_bytes(address, BYTES, new byte[BYTES]);
            table.gather(0, 1, 0, 20, here, null);
            byte[] back = new byte[BYTES];
            Core.memory_to_bytes(address, BYTES, back);
            Tests.check(Arrays.equals(back, pattern), "rows on the device");
            Tests.throwing(IndexOutOfBoundsException.class,
                    () -> table.gather(0, 1, 0, 20, Rows.at(address, BYTES - 1, DType.F32, 20, 0, 0), null));
        }
        ByteBuffer counter = Tests.bytes(8);
        PagedKvException e = Tests.fails(Status.INVALID, () -> new Pool(options.inPlace(Sync.counter(counter, 1, 0))));
        Tests.check(e.detail().contains("in_place"), e.detail());
    }

    /* Without a stream the call waits, and the lists are there. */
    private static void step() throws Exception {
        ByteBuffer memory = Tests.bytes(5 * BYTES); // the device reads all memory of the host
        for (int i = 0; i < 5 * BYTES; i += 4) {
            memory.putInt(i, i);
        }
        Rows here = Rows.of(memory, DType.F32, 100);
        try (Tier tier = Tier.host(8 << 20);
                Pool pool = new Pool(options().device(Device.cuda(0)).tier(tier, TierPolicy.WRITE_BACK));
                Table table = pool.table()) {
            table.admit(Prompt.of(Tests.tokens(1, 100)));
            for (int layer = 0; layer < 2; ++layer) {
                table.write(0, layer, 0, 100, here, here);
            }
            table.commit(100);
            Tests.check(table.spill(0, 4).spilledBlocks() == 4, "spilled");
            try (PrefetchSession session = pool.openPrefetch(new PrefetchOptions().numBuffers(2).maxTables(2).stagingPages(16))) {
                session.stepBegin(new Table[] {table}, null);
                int seen = 0;
                LayerView view;
                do {
                    view = session.acquire(0, PagedKv.ALL, null);
                    for (int slice : view.slices()) {
                        int[] got = new int[1];
                        Core.memory_to_ints(view.layout().kBase() + slice * view.layout().kPageStride(), 1, got);
                        Tests.check(got[0] == seen * 16 * 32, "slice " + seen + ": " + got[0]);
                        ++seen;
                    }
                    Tests.check(view.numSlices() == view.slices().length && view.numTables() == 1 && view.slicesAddress() != 0
                            && view.indptrAddress() != 0 && view.firstBlockAddress() != 0, view.toString());
                    session.release(0, null);
                } while (!view.last());
                Tests.check(seen == 7, seen + " slices");
                Tests.check(session.stepEnd()[0] == Status.OK, "ended");
            }
        }
    }

    public static void main(String[] args) {
        Tests.test("a pool on a device", DeviceTests::pool);
        Tests.test("a step on a device", DeviceTests::step);
        System.exit(Tests.failures() == 0 ? 0 : 1);
    }
}
