# SPDX-License-Identifier: Apache-2.0
import random
import time
import unittest
from array import array

import pagedkv
from pagedkv import Status
from support import Case, filled, make_pool, rows


class Threads(Case):
    def wait_until_busy(self, call, thread):
        """Until another thread is inside a call on the object."""
        while True:
            try:
                call()
            except pagedkv.BusyError:
                return
            self.assertTrue(thread.thread.is_alive())
            time.sleep(0.001)

    def test_two_gathers_run_in_parallel(self):
        # Each waits for a counter of its own; the one that began first ends last. With the interpreter lock held, nobody would
        # ever set a counter.
        with make_pool() as pool, filled(pool, [1, 2, 3, 4, 5]) as first, filled(pool, [6, 7, 8, 9]) as second:
            counters = pagedkv.HostCounter(), pagedkv.HostCounter()
            outs = array("f", bytes(5 * 32)), array("f", bytes(4 * 32))

            def gather(table, out, counter):
                table.gather(1, 0, out, sync=counter.reached(1, timeout=60))

            one = self.in_thread(lambda: gather(first, outs[0], counters[0]))
            self.wait_until_busy(first.info, one)
            other = self.in_thread(lambda: gather(second, outs[1], counters[1]))
            self.wait_until_busy(second.info, other)
            counters[1].value = 1
            other.finish()
            self.assertTrue(one.thread.is_alive())
            self.assertEqual(list(outs[0]), [0.0] * 40)
            counters[0].value = 1
            one.finish()
            self.assertEqual((outs[0], outs[1]), (rows(5)[0], rows(4)[0]))

    def test_case_q10_others_go_on_while_a_call_waits(self):
        with pagedkv.Queue() as queue:
            drained = self.in_thread(lambda: queue.drain(timeout=0.5))
            count = 0
            while drained.thread.is_alive() and count < 1000000:
                count += 1
            self.assertGreater(count, 10000)
            self.assertEqual(drained.finish(), [])

    def test_a_table_belongs_to_one_thread_at_a_time(self):
        with make_pool() as pool, filled(pool, [1, 2, 3]) as table:
            counter = pagedkv.HostCounter()
            inside = self.in_thread(lambda: table.truncate(1, counter.reached(1, timeout=60)))
            self.wait_until_busy(table.info, inside)
            for call in (lambda: table.reserve(9), table.fork, lambda: table.pages(), lambda: table.commit(3)):
                with self.fails_with(Status.BUSY, "another thread"):
                    call()
            counter.value = 1
            inside.finish()
            self.assertEqual(table.info().committed, 1)

    def test_a_batch_and_its_tables_belong_to_one_thread_at_a_time(self):
        with make_pool() as pool, filled(pool, [1, 2, 3]) as table, filled(pool, [4, 5, 6]) as other:
            with pool.batch(max_tables=2, max_tokens=4, max_blocks=4) as batch:
                self.assertEqual(list(batch.reserve([table], [1])), [0])
                counter = pagedkv.HostCounter()
                k, v = rows(1)
                inside = self.in_thread(lambda: batch.write(0, k, v, sync=counter.reached(1, timeout=60)))
                self.wait_until_busy(table.info, inside)  # what the batch is in a call on
                other.info()
                with self.fails_with(Status.BUSY):
                    batch.commit()
                counter.value = 1
                inside.finish()

                counter.value = 0
                inside = self.in_thread(lambda: table.write(0, 3, k, v, sync=counter.reached(1, timeout=60)))
                self.wait_until_busy(table.info, inside)
                with self.fails_with(Status.BUSY):
                    batch.write(0, k, v)
                with self.fails_with(Status.BUSY, "table 1"):
                    with pool.batch(max_tables=2, max_tokens=4, max_blocks=4) as second:
                        second.reserve([other, table], [1, 1])
                other.info()  # was not kept
                counter.value = 1
                inside.finish()
                self.assertEqual(list(batch.commit()), [0])

                counter.value = 0  # after the step a table goes its own way
                inside = self.in_thread(lambda: table.truncate(1, counter.reached(1, timeout=60)))
                self.wait_until_busy(table.info, inside)
                self.assertEqual(list(batch.reserve([other], [1])), [0])
                counter.value = 1
                inside.finish()

    def test_closing_while_another_thread_is_inside(self):
        # Over memory of the caller's the library says whether a call is at work.
        memory = [memoryview(bytearray(8 * 4 * 2 * 4 * 4)).cast("f", (8, 4, 2, 4)) for _ in range(4)]
        pool = make_pool(k_arrays=memory[:2], v_arrays=memory[2:])
        table = filled(pool, [1, 2, 3])
        counter = pagedkv.HostCounter()
        out = array("f", bytes(3 * 32))
        inside = self.in_thread(lambda: table.gather(0, 0, out, sync=counter.reached(1, timeout=60)))
        while True:
            try:
                pool.quiesce(0)
            except pagedkv.TimedOutError:
                break
            self.assertTrue(inside.thread.is_alive())
        with self.fails_with(Status.BUSY):
            pool.close()
        table.close()  # takes effect when that call leaves
        self.assertTrue(table.closed)
        counter.value = 1
        inside.finish()
        self.assertEqual(out, rows(3)[0])
        pool.close()

    def test_case_q02_arrays_are_held_while_a_call_lasts(self):
        with make_pool() as pool, filled(pool, [1, 2, 3]) as table:
            counter = pagedkv.HostCounter()
            out = bytearray(3 * 32)
            inside = self.in_thread(lambda: table.gather(0, 0, out, sync=counter.reached(1, timeout=60)))
            self.wait_until_busy(table.info, inside)
            with self.assertRaises(BufferError):
                out.clear()
            counter.value = 1
            inside.finish()
            out.clear()

    def test_many_threads_on_one_pool(self):
        with pagedkv.Tier.host(1 << 22) as tier, make_pool(num_pages=64, tiers=[tier]) as pool:

            def work(seed):
                chance = random.Random(seed)
                for turn in range(40):
                    begin = chance.randrange(3) * 100
                    tokens = list(range(begin, begin + chance.randrange(4, 20)))
                    with pool.table() as table:
                        matched = table.admit(tokens).tokens
                        table.restore(timeout=30)
                        k = array("f", [token * 8 + i for token in tokens for i in range(8)])
                        v = array("f", [-value for value in k])
                        for layer in range(2):
                            if matched < len(tokens):
                                table.write(layer, matched, k[matched * 8 :], v[matched * 8 :])
                        table.commit(len(tokens))
                        if chance.random() < 0.3:
                            table.spill()
                        out = array("f", bytes(len(tokens) * 32)), array("f", bytes(len(tokens) * 32))
                        table.gather(chance.randrange(2), 0, *out)
                        if out != (k, v):
                            raise AssertionError(f"thread {seed}, turn {turn}: other bytes than were written")

            threads = [self.in_thread(lambda seed=seed: work(seed)) for seed in range(8)]
            for one in threads:
                one.finish(120)
            stats = pool.stats()
            self.assertEqual((stats.tables, stats.held_pages), (0, 0))

    def test_many_threads_make_and_close(self):
        with make_pool(num_pages=64) as pool:

            def work():
                for _ in range(300):
                    with pool.table() as table:
                        table.admit([1, 2, 3, 4, 5])
                        with table.fork() as fork:
                            fork.reserve(6)

            threads = [self.in_thread(work) for _ in range(8)]
            for one in threads:
                one.finish(60)
            self.assertEqual(pool.stats().tables, 0)

    def test_one_operation_waited_for_by_many(self):
        with pagedkv.Tier.host(1 << 20) as tier, make_pool(tiers=[tier]) as pool:
            pages = pool.alloc(1)
            with pool.store(pool.image_keys([1, 2, 3, 4]), pages) as op:
                threads = [self.in_thread(lambda: op.wait(30)) for _ in range(8)]
                for one in threads:
                    one.finish()


if __name__ == "__main__":
    unittest.main()
