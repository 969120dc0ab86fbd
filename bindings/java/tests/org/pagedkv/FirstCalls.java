/* SPDX-License-Identifier: Apache-2.0 */
package org.pagedkv;

import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicReference;

/* Field case Q08: the first calls of a process, and its first exceptions, come from 16 threads at the same time. */
final class FirstCalls {
    private FirstCalls() {}

    public static void main(String[] args) {
        Tests.test("case_q08 16 threads make the first calls", FirstCalls::run);
        System.exit(Tests.failures() == 0 ? 0 : 1);
    }

    private static void run() throws Exception {
        CyclicBarrier begin = new CyclicBarrier(16);
        AtomicReference<Throwable> wrong = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < 16; ++n) {
            threads.add(new Thread(() -> {
                try {
                    begin.await();
                    Tests.fails(Status.INVALID, () -> new Pool(new PoolOptions().pageTokens(0).group(new GroupOptions())));
                    try (Pool pool = Tests.pool(); Table table = Tests.filled(pool, 1, 20)) {
                        Tests.check(table.info().committed() == 20, "a table");
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
        File[] taken = new File(System.getProperty("java.io.tmpdir")).listFiles((folder, name) -> name.startsWith("pagedkv"));
        Tests.check(taken.length == 1, taken.length + " folders with a native library");
    }
}
