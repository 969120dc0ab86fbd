/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.ReadOnlyBufferException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.pagedkv.internal.Core;

/* Tests of what is Java's own: objects and their ends, buffers, numbers, exceptions, threads. What operations do is in the
 * conformance cases. */
final class Tests {
    private static final int ROW = 2 * 4 * 4; // two heads of four floats
    private static int failed;

    interface Body {
        void run() throws Exception;
    }

    private Tests() {}

    static int failures() {
        return failed;
    }

    static void test(String name, Body body) {
        try {
            body.run();
            System.out.println("PASS " + name);
        } catch (Throwable e) {
            ++failed;
            System.out.println("FAIL " + name);
            e.printStackTrace(System.out);
        }
    }

    static void check(boolean good, String what) {
        if (!good) {
            throw new AssertionError(what);
        }
    }

    static PagedKvException fails(Status status, Body body) throws Exception {
        try {
            body.run();
        } catch (PagedKvException e) {
            check(e.status() == status, e + " in place of " + status);
            return e;
        }
        throw new AssertionError("no " + status);
    }

    static <T extends Throwable> T throwing(Class<T> type, Body body) throws Exception {
        try {
            body.run();
        } catch (Throwable e) {
            check(type.isInstance(e), e + " in place of " + type);
            return type.cast(e);
        }
        throw new AssertionError("no " + type);
    }

    static GroupOptions group() {
        return new GroupOptions().numPages(64).numLayers(2).numKvHeads(2).kHeadDim(4).vHeadDim(4).dtype(DType.F32);
    }

    static Pool pool() {
        return new Pool(new PoolOptions().pageTokens(16).group(group()));
    }

    static ByteBuffer bytes(int count) {
        return ByteBuffer.allocateDirect(count).order(ByteOrder.nativeOrder());
    }

    static Rows rows(int tokens) {
        return Rows.of(bytes(tokens * ROW), DType.F32, tokens);
    }

    static int[] tokens(int from, int count) {
        int[] tokens = new int[count];
        Arrays.setAll(tokens, i -> from + i);
        return tokens;
    }

    static Table filled(Pool pool, int from, int count) {
        Table table = pool.table();
        int found = (int) table.admit(Prompt.of(tokens(from, count))).tokens();
        for (int layer = 0; layer < 2; ++layer) {
            table.write(0, layer, found, count - found, rows(count - found), rows(count - found));
        }
        table.commit(count);
        return table;
    }

    // ---- exceptions

    private static void exceptions() throws Exception {
        PagedKvException e = fails(Status.INVALID, () -> new Pool(new PoolOptions().pageTokens(0).group(group())));
        check(e.detail().contains("page_tokens"), "the detail names the field: " + e.detail());
        check(e.getMessage().startsWith("INVALID: "), e.getMessage());
        check(e.code() == -1, "code");
        e = fails(Status.INVALID, () -> Tier.host(1 << 20, 3));
        check(e.detail().contains("huge_pages is 3"), e.detail());
        e = fails(Status.LIMIT, () -> new Pool(new PoolOptions().pageTokens(70000).group(group())));
        check(e.detail().contains("70000"), "the detail has the value: " + e.detail());
        for (Status status : Status.values()) {
            check(status == Status.UNKNOWN || Status.of(status.code()) == status, status + "");
            if (status != Status.UNKNOWN) {
                String name = status == Status.OK ? "PKV_OK" : "PKV_ERR_" + status;
                check(Core.status_string(status.code()).equals(name), name);
            }
        }
        check(Status.of(-1000) == Status.UNKNOWN && Status.of(7) == Status.UNKNOWN, "numbers that are none");
        Path path = Path.of("/nowhere/\u00e9\u4e2d\ud83d\ude00");
        e = fails(Status.IO, () -> Tier.file(new FileTierOptions(path).capacityBytes(1 << 20)));
        check(e.detail().contains(path.toString()), "texts keep their characters: " + e.detail());
    }

    // ---- ends

    private static void ends() throws Exception {
        Pool pool = pool();
        Table table = filled(pool, 1, 20);
        check(table.isOpen() && pool.isOpen(), "open");
        table.close();
        table.close();
        check(!table.isOpen(), "closed");
        fails(Status.HANDLE, table::info);
        fails(Status.HANDLE, () -> table.write(0, 0, 0, 1, rows(1), rows(1)));
        fails(Status.HANDLE, () -> table.fork());
        pool.close();
        pool.close();
        fails(Status.HANDLE, () -> pool.stats(0));
        fails(Status.HANDLE, pool::table);
        fails(Status.HANDLE, () -> pool.alloc(0, 1));

        // Parents first.
        Pool parent = pool();
        Table child = filled(parent, 1, 20);
        Table fork = child.fork();
        BatchOptions options = new BatchOptions().maxTables(2).maxTokens(2).arrays(new BatchArrays(0).maxBlocks(4));
        Batch batch = new Batch(parent, options);
        parent.close();
        fails(Status.CLOSED, child::info);
        fails(Status.CLOSED, () -> batch.reserve(new Table[] {child}, new int[] {1}));
        batch.close();
        child.close();
        fork.close();

        Queue queue = new Queue();
        Tier tier = Tier.host(1 << 20);
        Pool tiered = new Pool(new PoolOptions().pageTokens(16).group(group()).tier(tier, TierPolicy.WRITE_BACK));
        tier.close();
        PrefetchSession session = tiered.openPrefetch(null);
        tiered.close();
        fails(Status.CLOSED, session::cancel);
        session.close();
        session.close();
        queue.close();
        queue.close();
        fails(Status.HANDLE, () -> queue.drain(1, 0));
        fails(Status.HANDLE, tier::stats);
    }

    private static void cleaner() throws Exception {
        Pool pool = pool();
        for (int i = 0; i < 2000; ++i) {
            pool.table().info();
        }
        long tables = -1;
        for (int i = 0; i < 200; ++i) {
            System.gc();
            Thread.sleep(20);
            tables = pool.stats(0).tables();
            if (tables == 0) {
                break;
            }
        }
        check(tables == 0, tables + " tables are left of those that were not closed");
        // The parent is dropped first; its tables keep it.
        Table child = filled(pool(), 1, 20);
        System.gc();
        Thread.sleep(50);
        check(child.info().committed() == 20, "a table keeps its pool");
        child.close();
        pool.close();
    }

    private static void collectedDuringCalls() throws Exception {
        AtomicInteger stop = new AtomicInteger();
        Thread collector = new Thread(() -> {
            while (stop.get() == 0) {
                System.gc();
            }
        });
        collector.start();
        try (Pool pool = pool()) {
            for (int i = 0; i < 2000; ++i) { // the last use of table and buffers is the call
                Table table = pool.table();
                table.admit(Prompt.of(tokens(i, 20)));
                table.write(0, 0, table.info().committed(), 1, rows(1), rows(1));
                if (i % 16 == 0) {
                    new Queue().fd();
                }
                table.close();
            }
        } finally {
            stop.set(1);
            collector.join();
        }
    }

    private static void leaks() throws Exception {
        // What leaks grows in every window; what the JVM keeps for itself does not.
        List<Long> sizes = new ArrayList<>();
        while (sizes.size() < 10) {
            for (int i = 0; i < 2000; ++i) {
                cycle();
            }
            System.gc();
            sizes.add(residentKilobytes());
            int last = sizes.size() - 1;
            if (last > 0 && sizes.get(last) - sizes.get(last - 1) < 4096) {
                return;
            }
        }
        check(false, "the process grew with every 2000 rounds: " + sizes + " KiB");
    }

    private static void cycle() throws Exception {
        Namespace namespace = new Namespace().model(new byte[4096]).adapter("a").salt("tenant");
        try (Tier tier = Tier.host(1 << 20);
                Pool pool = new Pool(new PoolOptions().pageTokens(16).group(group()).tier(tier, TierPolicy.WRITE_BACK));
                Table table = pool.table();
                Queue queue = new Queue()) {
            Prompt prompt = Prompt.of(tokens(0, 4096 / 8)).namespace(namespace).media(3, 2, new byte[200]);
            table.admit(prompt);
            pool.keys(prompt);
            pool.imageKeys(0, prompt);
            pool.stats(0);
            check(queue.fd() >= 0, "a queue");
            PagedKv.digest(new byte[10000], new byte[10]);
            PagedKv.prometheus(Map.of("p", pool), Map.of("t", tier), Map.of());
            fails(Status.INVALID, () -> table.commit(1L << 41));
        }
    }

    private static long residentKilobytes() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", ""));
            }
        }
        throw new AssertionError("no VmRSS");
    }

    // ---- buffers

    private static void buffers() throws Exception {
        try (Pool pool = pool(); Table table = pool.table()) {
            table.admit(Prompt.of(tokens(1, 20)));
            throwing(IllegalArgumentException.class, () -> Rows.of(ByteBuffer.allocate(1024), DType.F32, 1));
            IndexOutOfBoundsException e = throwing(IndexOutOfBoundsException.class,
                    () -> table.write(0, 0, 0, 20, Rows.of(bytes(20 * ROW - 1), DType.F32, 20), rows(20)));
            check(e.getMessage().contains("" + 20 * ROW) && e.getMessage().contains("" + (20 * ROW - 1)), e.getMessage());
            throwing(IndexOutOfBoundsException.class, () -> table.write(0, 0, 0, 20, rows(20), Rows.of(bytes(19 * ROW), DType.F32, 20)));
            // What remains counts, not the capacity.
            ByteBuffer limited = bytes(21 * ROW);
            limited.position(ROW + 1);
            throwing(IndexOutOfBoundsException.class, () -> table.write(0, 0, 0, 20, Rows.of(limited, DType.F32, 20), rows(20)));
            fails(Status.INVALID, () -> table.write(0, 0, 0, 20, rows(19), rows(20)));
            throwing(ReadOnlyBufferException.class, () -> table.gather(0, 0, 0, 0,
                    Rows.of(bytes(ROW).asReadOnlyBuffer(), DType.F32, 1), null));
            table.write(0, 0, 0, 1, Rows.of(bytes(ROW).asReadOnlyBuffer(), DType.F32, 1), rows(1));
            throwing(IllegalArgumentException.class, () -> Rows.of(bytes(ROW), DType.F32, -1));
            throwing(IllegalArgumentException.class, () -> Rows.of(bytes(ROW), DType.F32, 1, -4, 0));
            // Sizes whose product has no place in 64 bits.
            throwing(IndexOutOfBoundsException.class,
                    () -> table.write(0, 0, 0, 1, Rows.of(bytes(ROW), DType.F32, Long.MAX_VALUE), rows(1)));
            throwing(IndexOutOfBoundsException.class,
                    () -> table.write(0, 0, 0, 1, Rows.of(bytes(ROW), DType.F32, 3, Long.MAX_VALUE / 2, 0), rows(1)));
        }
    }

    private static void strides() throws Exception {
        try (Pool pool = pool(); Table table = pool.table()) {
            table.admit(Prompt.of(tokens(1, 20)));
            // Token after token with a gap, heads swapped far apart: written from, and gathered to.
            int token = 48;
            int head = 20 * token;
            ByteBuffer from = bytes(2 * head);
            for (int t = 0; t < 20; ++t) {
                for (int h = 0; h < 2; ++h) {
                    for (int i = 0; i < 4; ++i) {
                        from.putFloat(t * token + h * head + i * 4, 100 * t + 10 * h + i);
                    }
                }
            }
            Rows sparse = Rows.of(from, DType.F32, 20, token, head);
            for (int layer = 0; layer < 2; ++layer) {
                table.write(0, layer, 0, 20, sparse, sparse);
            }
            table.commit(20);
            ByteBuffer dense = bytes(20 * ROW + 8);
            dense.position(8);
            table.gather(0, 1, 0, 20, Rows.of(dense, DType.F32, 20), null);
            for (int t = 0; t < 20; ++t) {
                for (int h = 0; h < 2; ++h) {
                    for (int i = 0; i < 4; ++i) {
                        check(dense.getFloat(8 + t * ROW + h * 16 + i * 4) == 100 * t + 10 * h + i, "row " + t + " of head " + h);
                    }
                }
            }
            check(dense.getLong(0) == 0, "nothing before the position is written");
            throwing(IndexOutOfBoundsException.class, () -> table.gather(0, 0, 0, 20,
                    Rows.of(bytes(2 * head - (token - 16) - 1), DType.F32, 20, token, head), null));
            table.gather(0, 0, 0, 20, Rows.of(bytes(2 * head - (token - 16)), DType.F32, 20, token, head), null);
        }
    }

    private static void callerMemory() throws Exception {
        ByteBuffer[] k = {bytes(4 * 16 * ROW), bytes(4 * 16 * ROW)};
        ByteBuffer[] v = {bytes(4 * 16 * ROW), bytes(4 * 16 * ROW)};
        GroupOptions options = group().numPages(4).memory(Memory.CALLER).base(k, v);
        try (Pool pool = new Pool(new PoolOptions().pageTokens(16).group(options))) {
            int[] pages = pool.alloc(0, 4);
            ByteBuffer row = bytes(ROW);
            row.putFloat(0, 42);
            pool.write(0, 1, new long[] {3 * 16 + 5}, Rows.of(row, DType.F32, 1), Rows.of(row, DType.F32, 1), null);
            check(k[1].getFloat((3 * 16 + 5) * ROW) == 42 && v[1].getFloat((3 * 16 + 5) * ROW) == 42, "rows are in the buffers");
            pool.release(0, pages);
        }
        ByteBuffer[] small = {bytes(4 * 16 * ROW), bytes(4 * 16 * ROW - 1)};
        throwing(IndexOutOfBoundsException.class, () -> new Pool(new PoolOptions().pageTokens(16)
                .group(group().numPages(4).memory(Memory.CALLER).base(small, v))));
        ByteBuffer[] one = {bytes(4 * 16 * ROW)}; // a layer without memory
        fails(Status.INVALID, () -> new Pool(new PoolOptions().pageTokens(16)
                .group(group().numPages(4).memory(Memory.CALLER).base(one, v))));
    }

    private static void auxBytes() throws Exception {
        try (Pool pool = new Pool(new PoolOptions().pageTokens(16).group(group().auxBytes(5)))) {
            pool.setAux(0, 3, new byte[] {1, 2, 3, 4, 5});
            check(Arrays.equals(pool.aux(0, 3), new byte[] {1, 2, 3, 4, 5}), "aux bytes");
            throwing(IndexOutOfBoundsException.class, () -> pool.setAux(0, 3, new byte[6]));
            fails(Status.INVALID, () -> pool.aux(0, 64));
        }
    }

    // ---- numbers

    private static void largeNumbers() throws Exception {
        // Pages 8 GiB apart: more than 2^32 from the first one on; only what is touched takes memory.
        GroupOptions wide = group().numPages(3).kPageStride(8L << 30).numLayers(1);
        try (Pool pool = new Pool(new PoolOptions().pageTokens(16).group(wide))) {
            check(pool.layout(0, 0).kPageStride() == 8L << 30, "stride");
            pool.alloc(0, 3);
            ByteBuffer row = bytes(ROW);
            row.putFloat(4, 7);
            pool.write(0, 0, new long[] {2 * 16 + 15}, Rows.of(row, DType.F32, 1), Rows.of(row, DType.F32, 1), null);
            ByteBuffer back = bytes(ROW);
            pool.gather(0, 0, new int[] {2}, 15, 1, Rows.of(back, DType.F32, 1), null, null);
            check(back.getFloat(4) == 7, "a row that is 16 GiB away");
        } catch (PagedKvException e) {
            check(e.status() == Status.NO_MEMORY, e.toString()); // no address space here
            System.out.println("SKIP rows 16 GiB apart: " + e.detail());
        }
        try (Pool pool = pool(); Table table = pool.table()) {
            table.admit(Prompt.of(1, 2, 3));
            fails(Status.NO_PAGES, () -> table.reserve((1L << 32) + 7));
            PagedKvException e = fails(Status.LIMIT, () -> table.reserve(-1));
            check(e.detail().contains("18446744073709551615"), "unsigned in the text: " + e.detail());
            fails(Status.INVALID, () -> table.slots(0, 0, (1L << 32) + 7));
            fails(Status.INVALID, () -> table.gather(0, 0, 1L << 33, 1, rows(1), null));
            table.truncate(PagedKv.ALL);
            check(table.info().named() == 3, "truncating to the largest number does nothing");
            // A stride above 2^32, of rows that are in memory: there is one token.
            Rows far = Rows.of(bytes(ROW), DType.F32, 1, 5L << 30, 0);
            table.write(0, 0, 0, 1, far, far);
            throwing(IndexOutOfBoundsException.class, () -> table.write(0, 0, 0, 2, Rows.of(bytes(2 * ROW), DType.F32, 2, 5L << 30, 0),
                    rows(2)));
            // Token counts above 2^31 in rows.
            throwing(IndexOutOfBoundsException.class, () -> table.write(0, 0, 0, 1, Rows.of(bytes(ROW), DType.F32, (1L << 31) + 1),
                    rows(1)));
            throwing(IllegalArgumentException.class, () -> Core.table_write(table.handle(), 1L << 32, 0, 0, 1, null, null, null));
            fails(Status.INVALID, () -> pool.layout(-1, 0)); // 2^32 - 1 as a uint32_t
        }
        try (Queue queue = new Queue();
                Tier tier = Tier.host(1 << 20);
                Pool pool = new Pool(new PoolOptions().pageTokens(16).group(group()).tier(tier, TierPolicy.READ_ONLY))) {
            int[] pages = pool.alloc(0, 1);
            byte[] keys = pool.imageKeys(0, Prompt.of(tokens(0, 16)));
            try (Op op = pool.load(0, keys, pages, null, new OpOptions().queue(queue).user(-2))) {
                fails(Status.NOT_FOUND, () -> op.await(PagedKv.ALL));
                Queue.Completion end = queue.drain(4, PagedKv.ALL).get(0);
                check(end.user() == -2 && end.status() == Status.NOT_FOUND, "all 64 bits of a user number come back: " + end);
            }
            throwing(IndexOutOfBoundsException.class, () -> pool.load(0, keys, new int[] {pages[0], pages[0]}, null, null));
        }
        long[] blocks = PrefetchSession.predict(PredictPolicy.SEQUENTIAL, 1, 0, 0, 3, 1L << 40, (1L << 40) - 5, null);
        check(blocks[0] == (1L << 40) - 5 && blocks.length == 3, Arrays.toString(blocks));
    }

    // ---- threads

    private static void threads() throws Exception {
        AtomicReference<Throwable> wrong = new AtomicReference<>();
        try (Pool pool = new Pool(new PoolOptions().pageTokens(16).group(group().numPages(512)))) {
            List<Thread> threads = new ArrayList<>();
            for (int n = 0; n < 16; ++n) {
                int from = n * 1000;
                threads.add(new Thread(() -> {
                    try {
                        for (int i = 0; i < 60; ++i) {
                            sequence(pool, from, i);
                        }
                    } catch (Throwable e) {
                        wrong.compareAndSet(null, e);
                    }
                }));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
            if (wrong.get() != null) {
                throw new AssertionError(wrong.get());
            }
            check(pool.stats(0).heldPages() == 0, "all pages were given back");
        }
    }

    private static void sequence(Pool pool, int from, int round) throws Exception {
        ByteBuffer k = bytes(20 * ROW);
        for (int i = 0; i < 20 * ROW; i += 4) {
            k.putInt(i, from + i);
        }
        try (Table table = pool.table()) {
            int found = (int) table.admit(Prompt.of(tokens(from, 20))).tokens();
            for (int layer = 0; layer < 2; ++layer) {
                ByteBuffer rest = k.slice(found * ROW, (20 - found) * ROW).order(k.order());
                table.write(0, layer, found, 20 - found, Rows.of(rest, DType.F32, 20 - found), Rows.of(rest, DType.F32, 20 - found));
            }
            table.commit(20);
            ByteBuffer back = bytes(20 * ROW);
            table.gather(0, round % 2, 0, 20, Rows.of(back, DType.F32, 20), null);
            check(back.equals(k), "rows of thread " + from);
            // Each thread sees the text of its own failure.
            PagedKvException e = fails(Status.INVALID, () -> table.slots(0, from, 1000000 + from));
            check(e.detail().contains("" + (1000000 + from)) || e.detail().contains("" + from), e.detail());
        }
    }

    private static void exclusive() throws Exception {
        try (Pool pool = pool(); Table table = filled(pool, 1, 20)) {
            ByteBuffer cell = bytes(8);
            Thread waiting = new Thread(() -> {
                for (boolean in = false; !in;) {
                    try {
                        table.commit(20, Sync.counter(cell, 1, 20_000_000_000L));
                        in = true;
                    } catch (PagedKvException e) {
                        check(e.status() == Status.BUSY, e.toString()); // the other thread's look at it
                    }
                }
            });
            waiting.start();
            boolean refused = false;
            while (!refused && waiting.isAlive()) { // until the other thread is inside
                try {
                    table.info();
                } catch (PagedKvException e) {
                    refused = e.status() == Status.BUSY;
                }
            }
            check(refused, "a table that another thread is using is refused");
            fails(Status.BUSY, () -> new Batch(pool, new BatchOptions().maxTables(2).maxTokens(2))
                    .reserve(new Table[] {table}, new int[] {1}));
            java.lang.invoke.MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.nativeOrder()).setRelease(cell, 0, 1L);
            waiting.join();
            check(table.info().committed() == 20, "usable again");
        }
    }

    private static void closedWhileInUse() throws Exception {
        for (int i = 0; i < 50; ++i) {
            Pool pool = pool();
            List<Thread> threads = new ArrayList<>();
            AtomicReference<Throwable> wrong = new AtomicReference<>();
            for (int n = 0; n < 4; ++n) {
                int from = n * 100;
                threads.add(new Thread(() -> {
                    try {
                        while (true) {
                            sequence(pool, from, 0);
                        }
                    } catch (PagedKvException e) {
                        if (e.status() != Status.HANDLE && e.status() != Status.CLOSED) {
                            wrong.set(e);
                        }
                    } catch (Throwable e) {
                        if (!String.valueOf(e.getMessage()).contains("CLOSED") && !String.valueOf(e.getMessage()).contains("HANDLE")) {
                            wrong.set(e);
                        }
                    }
                }));
            }
            threads.forEach(Thread::start);
            Thread.sleep(1 + i % 5);
            pool.close();
            for (Thread thread : threads) {
                thread.join();
            }
            if (wrong.get() != null) {
                throw new AssertionError(wrong.get());
            }
        }
    }

    private static void waitsLetOthersRun() throws Exception {
        AtomicReference<Throwable> wrong = new AtomicReference<>();
        try (Pool pool = pool(); Table table = filled(pool, 1, 20); Table other = filled(pool, 100, 20)) {
            ByteBuffer cell = bytes(8);
            Thread waiting = new Thread(() -> {
                try {
                    table.commit(20, Sync.counter(cell, 1, 60_000_000_000L));
                } catch (Throwable e) {
                    wrong.set(e); // TIMEOUT: nobody else came so far as to let it go on
                }
            });
            waiting.start();
            for (int i = 0; i < 10; ++i) {
                check(other.info().committed() == 20, "another table");
                System.gc(); // a thread that waits in the library holds nothing up
            }
            java.lang.invoke.MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.nativeOrder()).setRelease(cell, 0, 1L);
            waiting.join();
            check(wrong.get() == null, wrong + "");
        }
    }

    /* What a call was given is overwritten while the operation goes on. */
    private static void arraysAfterCalls() throws Exception {
        try (Tier tier = Tier.host(8 << 20);
                Queue queue = new Queue();
                Pool pool = new Pool(new PoolOptions().pageTokens(16).group(group()).tier(tier, TierPolicy.WRITE_THROUGH))) {
            int[] held = pool.alloc(0, 32);
            for (int i = 0; i < 32; ++i) {
                ByteBuffer row = bytes(ROW);
                row.putInt(0, i);
                pool.write(0, 1, new long[] {held[i] * 16L}, Rows.of(row, DType.F32, 1), Rows.of(row, DType.F32, 1), null);
            }
            int[] fresh = pool.alloc(0, 32);
            for (int[] pages : new int[][] {held, fresh}) {
                int[] given = pages.clone();
                byte[] keys = pool.imageKeys(0, Prompt.of(tokens(0, 32 * 16)));
                OpOptions options = new OpOptions().queue(queue);
                try (Op op = pages == held ? pool.store(0, keys, given, null, options) : pool.load(0, keys, given, null, options)) {
                    Arrays.fill(given, -1);
                    Arrays.fill(keys, (byte) 0);
                    System.gc();
                    check(queue.drain(1, PagedKv.ALL).get(0).status() == Status.OK, "ended");
                    check(op.poll().goodItems() == 32, op.poll().toString());
                }
            }
            for (int i = 0; i < 32; ++i) {
                ByteBuffer row = bytes(ROW);
                pool.gather(0, 1, fresh, i * 16L, 1, Rows.of(row, DType.F32, 1), null, null);
                check(row.getInt(0) == i, "page " + i);
            }
        }
    }

    // ---- batches, exports, nodes

    private static void batches() throws Exception {
        try (Pool pool = pool(); Table a = filled(pool, 1, 20); Table b = filled(pool, 500, 33)) {
            BatchOptions options = new BatchOptions().maxTables(4).maxTokens(8)
                    .arrays(new BatchArrays(0).maxBlocks(4).fill(-9));
            try (Batch batch = new Batch(pool, options)) {
                Status[] statuses = batch.reserve(new Table[] {a, b}, new int[] {1, 2});
                check(Arrays.equals(statuses, new Status[] {Status.OK, Status.OK}), Arrays.toString(statuses));
                System.gc(); // the arrays stay where they are
                ByteBuffer lengths = batch.lengths();
                check(lengths.getInt(0) == 21 && lengths.getInt(4) == 35 && lengths.getInt(8) == 0, "lengths");
                check(batch.arrays(0).blockTable().getInt(0) == a.pages(0)[0], "block table");
                check(batch.arrays(0).blockTable().getInt(3 * 4) == -9, "fill");
                check(batch.arrays(0).slotMapping().getLong(0) == a.slots(0, 20, 1)[0], "slots");
                batch.setTokens(7, 8, 9);
                for (int layer = 0; layer < 2; ++layer) {
                    batch.write(0, layer, rows(3), rows(3), null);
                }
                throwing(IllegalArgumentException.class, () -> batch.commit(new int[] {1}, null));
                throwing(IllegalArgumentException.class, () -> batch.gather(0, 0, new long[] {1}, 0, rows(60), rows(60), null));
                batch.commit(new int[] {1, 1}, null);
                check(a.info().committed() == 21 && b.info().committed() == 34, "committed");
                statuses = batch.reserve(new Table[] {a, b}, new int[] {0, 1});
                batch.commit();
                fails(Status.INVALID, () -> batch.reserve(new Table[] {a, a}, new int[] {1, 1}));
                throwing(NullPointerException.class, () -> batch.reserve(new Table[] {a, null}, new int[] {1, 1}));
                throwing(IllegalArgumentException.class, () -> batch.reserve(new Table[] {a}, new int[] {1, 1}));
                check(a.info().committed() == 21, "a table is free again after a refusal");
                throwing(IllegalStateException.class, () -> new Batch(pool, options));
            }
            fails(Status.LIMIT, () -> new Batch(pool, new BatchOptions().maxTables(4).maxTokens(1L << 40)
                    .arrays(new BatchArrays(0).maxBlocks(4))));
            try (Batch compressed = new Batch(pool, new BatchOptions().maxTables(2).maxTokens(2)
                    .arrays(new BatchArrays(0).compressed(16)))) {
                compressed.reserve(new Table[] {a, b}, new int[] {1, 1});
                check(compressed.arrays(0).blockIndptr().getInt(8) == a.pages(0).length + b.pages(0).length, "indptr");
                check(compressed.arrays(0).blockTable() == null, "no block table");
            }
        }
    }

    private static void exports() throws Exception {
        try (Pool pool = pool(); Table table = filled(pool, 1, 20); Pool other = pool(); Table copy = other.table()) {
            ByteBuffer bytes = table.export();
            check(bytes.remaining() == table.exportSize(), "size");
            copy.importFrom(bytes);
            check(copy.info().committed() == 20, "imported");
            fails(Status.NO_SPACE, () -> table.exportTo(bytes(100)));
            throwing(IllegalArgumentException.class, () -> table.exportTo(ByteBuffer.allocate(1 << 20)));
            throwing(ReadOnlyBufferException.class, () -> table.exportTo(bytes(1 << 20).asReadOnlyBuffer()));
            ByteBuffer large = bytes(1 << 16);
            large.position(16);
            table.exportTo(large);
            check(large.position() == 16 + bytes.capacity() && large.getLong(0) == 0, "from the position on");
        }
    }

    private static void sessions() throws Exception {
        try (Tier tier = Tier.host(64 << 20);
                Pool pool = new Pool(new PoolOptions().pageTokens(16).group(group()).tier(tier, TierPolicy.WRITE_BACK));
                Table table = filled(pool, 1, 100)) {
            check(table.spill(0, 4).spilledBlocks() == 4, "spilled");
            ByteBuffer slices = bytes(2 * 64 * 4);
            ByteBuffer indptr = bytes(2 * 3 * 4);
            throwing(IndexOutOfBoundsException.class, () -> pool.openPrefetch(new PrefetchOptions().numBuffers(2).maxSlices(65)
                    .maxTables(2).arrays(slices, indptr)));
            try (PrefetchSession session = pool.openPrefetch(new PrefetchOptions().numBuffers(2).maxSlices(64).maxTables(2)
                    .stagingPages(16).arrays(slices, indptr))) {
                check(session.stepBegin(new Table[] {table}, null)[0] == Status.OK, "begun");
                for (int layer = 0; layer < 2; ++layer) {
                    int at = layer;
                    fails(Status.UNSUPPORTED, () -> session.acquire(at, PagedKv.ALL, Sync.cudaStream(4096))); // a host pool
                    LayerView view;
                    int seen = 0;
                    do {
                        view = session.acquire(layer, PagedKv.ALL);
                        seen += view.slices().length;
                        check(slices.getInt(view.buffer() * 64 * 4) == view.slices()[0], "the caller's array has the slices");
                        session.release(layer, null);
                    } while (!view.last());
                    check(seen == 7, seen + " slices");
                }
                check(session.stepEnd()[0] == Status.OK, "ended");
                check(session.stats().needed() == 8, session.stats() + "");
                check(session.require(table, 0, PagedKv.ALL, PagedKv.ALL).resident() == 3, "required");
            }
        }
    }

    private static void nodes() throws Exception {
        byte[] key = PagedKv.digest("secret".getBytes(StandardCharsets.UTF_8));
        Node giver;
        Tier store = Tier.host(4 << 20);
        try {
            giver = new Node(new NodeOptions(key).listen("127.0.0.1:0").provider("tcp").name("giver \u00e9").tier(store));
        } catch (PagedKvException e) {
            check(e.status() == Status.UNSUPPORTED, e.toString());
            System.out.println("SKIP nodes: " + e.detail());
            return;
        }
        try (giver; store;
                Pool pool = new Pool(new PoolOptions().pageTokens(16).group(group()).seed(5).tier(store, TierPolicy.WRITE_THROUGH));
                Node taker = new Node(new NodeOptions(key).provider("tcp"))) {
            filled(pool, 1, 48).close();
            pool.flush(10_000_000_000L);
            taker.connect(giver.address(), 10_000_000_000L);
            Node.Peer peer = taker.peers().get(0);
            check(peer.connected() && peer.name().equals("giver \u00e9") && peer.address().equals(giver.address()), peer.toString());
            try (Tier remote = taker.tier();
                    Pool other = new Pool(new PoolOptions().pageTokens(16).group(group()).seed(5).tier(remote, TierPolicy.READ_ONLY));
                    Table table = other.table()) {
                check(table.admit(Prompt.of(tokens(1, 49))).tokens() == 48, "found there");
                check(table.restore(0, PagedKv.ALL, 10_000_000_000L) == 3, "read from there");
            }
            String text = PagedKv.prometheus(Map.of(), Map.of("store", store), Map.of(), Map.of("reader", taker));
            check(text.contains("node=\"reader\"") && text.contains("tier=\"store\""), text);
            check(taker.stats().provider().contains("tcp"), taker.stats().provider());
            fails(Status.STATE, taker::address);
            taker.disconnect(giver.address());
            fails(Status.NOT_FOUND, () -> taker.disconnect("127.0.0.1:1"));
            check(taker.peers().isEmpty(), "no peers");
        }
    }

    private static void texts() throws Exception {
        try (Pool pool = pool()) {
            String text = PagedKv.prometheus(Map.of("a\"b\u00e9", pool), Map.of(), Map.of());
            check(text.contains("pool=\"a\\\"b\u00e9\""), text.substring(0, 300));
            throwing(IllegalArgumentException.class, () -> PagedKv.prometheus(Map.of("a\0b", pool), Map.of(), Map.of()));
        }
        check(PagedKv.version().matches("[0-9]+\\.[0-9]+\\.[0-9]+") && PagedKv.versionNumber() > 0, PagedKv.version());
        check(!PagedKv.cpuKernels().isEmpty(), "kernels");
        Path trace = Files.createTempFile("pagedkv", ".json");
        PagedKv.traceStart(1000);
        PagedKv.traceStop(trace);
        check(Files.readString(trace).startsWith("{") || Files.readString(trace).startsWith("["), "a trace");
        Files.delete(trace);
    }

    public static void main(String[] args) {
        test("failures are exceptions with status and detail", Tests::exceptions);
        test("case_q04 case_q05 closing twice, use after close, parents first", Tests::ends);
        test("case_q05 what is not closed is closed some time later, and keeps what it needs", Tests::cleaner);
        test("case_q01 nothing is collected while a call uses it", Tests::collectedDuringCalls);
        test("buffers are measured, heap and read-only ones refused", Tests::buffers);
        test("case_q13 strides are honoured", Tests::strides);
        test("pools in the caller's buffers", Tests::callerMemory);
        test("aux bytes", Tests::auxBytes);
        test("numbers above 2^32 and 2^63", Tests::largeNumbers);
        test("16 threads on one pool", Tests::threads);
        test("one thread at a time for a table", Tests::exclusive);
        test("case_q23 a pool that is closed while others use it", Tests::closedWhileInUse);
        test("case_q10 a call that waits lets others run", Tests::waitsLetOthersRun);
        test("batches and their arrays", Tests::batches);
        test("exports", Tests::exports);
        test("prefetch sessions and the caller's arrays", Tests::sessions);
        test("nodes", Tests::nodes);
        test("a sequence is handed over", HandOverTests::whole);
        test("a sequence is handed over layer by layer", HandOverTests::layerByLayer);
        test("hand-overs that are refused leave nothing", HandOverTests::refused);
        test("a device that is not there is said to be so", DeviceTests::notThere);
        test("texts", Tests::texts);
        test("case_q02 arrays are not used after a call", Tests::arraysAfterCalls);
        test("no memory is leaked", Tests::leaks);
        Reference.reachabilityFence(args);
        System.exit(failed == 0 ? 0 : 1);
    }
}
