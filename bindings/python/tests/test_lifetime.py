# SPDX-License-Identifier: Apache-2.0
import copy
import gc
import itertools
import os
import pickle
import unittest
import warnings
import weakref

import pagedkv
from pagedkv import Status, _core
from support import Case, filled, make_pool


def everything():
    """One of each kind, in the order in which they have to be made."""
    tier = pagedkv.Tier.host(1 << 20)
    pool = make_pool(num_pages=32, tiers=[tier])
    table = filled(pool, list(range(1, 7)))
    batch = pool.batch(max_tables=2, max_tokens=4, max_blocks=4)
    session = pool.session()
    queue = pagedkv.Queue()
    op = session.prompt([1, 2, 3, 4], queue=queue)
    op.wait(10)
    return [tier, pool, table, batch, session, queue, op]


class Lifetime(Case):
    def test_case_q04_closing_twice_is_harmless(self):
        for one in everything():
            self.assertFalse(one.closed)
            one.close()
            self.assertTrue(one.closed)
            one.close()

    def test_the_low_layer_says_that_it_is_closed(self):
        with make_pool() as pool:
            pass
        with self.fails_with(Status.HANDLE):
            _core.pool_destroy(pool)

    def test_case_q04_use_after_close(self):
        tier, pool, table, batch, session, queue, op = objects = everything()
        for one in reversed(objects):
            one.close()
        calls = [
            tier.stats,
            pool.stats,
            lambda: pool.alloc(1),
            pool.table,
            lambda: pool.layer_arrays(0),
            table.info,
            lambda: table.write(0, 0, bytes(32), bytes(32)),
            lambda: table.gather(0, 0, bytearray(32), bytearray(32)),
            table.fork,
            lambda: batch.reserve([], []),
            batch.commit,
            session.stats,
            session.step_end,
            queue.fileno,
            queue.drain,
            op.poll,
            op.wait,
        ]
        for call in calls:
            with self.fails_with(Status.HANDLE):
                call()

    def test_case_q01_the_last_use_of_an_object_is_a_call(self):
        stop = []

        def collect():
            while not stop:
                gc.collect()

        def last_use():
            for _ in range(1000):
                pool = make_pool(num_pages=2, num_layers=1)
                self.assertEqual(pool.table().info().blocks, 0)
                pool.layer_arrays(0)[0].shape
                pool.close()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            collector = self.in_thread(collect)
            try:
                last_use()
            finally:
                stop.append(True)
            collector.finish()

    def test_any_order_of_closing(self):
        for order in itertools.permutations(range(4)):
            tier = pagedkv.Tier.host(1 << 20)
            pool = make_pool(num_pages=32, tiers=[tier])
            table = filled(pool, [1, 2, 3, 4, 5])
            session = pool.session()
            objects = [tier, pool, table, session]
            for i in order:
                objects[i].close()

    def test_any_order_of_collection(self):
        for first in range(7):
            objects = everything()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                del objects[first]
                gc.collect()
                while objects:
                    objects.pop()
                    gc.collect()

    def test_case_q05_a_child_keeps_its_parent(self):
        pool = make_pool()
        gone = weakref.ref(pool)
        table = pool.table()
        del pool
        gc.collect()
        self.assertIsNotNone(gone())
        table.admit([1, 2, 3])
        self.assertEqual(table.pool.stats().tables, 1)
        table.pool.close()
        table.close()
        del table
        gc.collect()
        self.assertIsNone(gone())

    def test_a_fork_keeps_its_pool(self):
        pool = make_pool()
        table = filled(pool, [1, 2, 3])
        fork = table.fork()
        table.close()
        del pool, table
        gc.collect()
        self.assertEqual(fork.info().committed, 3)
        fork.pool.close()
        fork.close()

    def test_a_pool_keeps_its_tiers(self):
        tier = pagedkv.Tier.host(1 << 20)
        pool = make_pool(tiers=[pagedkv.Attachment(tier, "write_through")])
        tier.close()
        filled(pool, list(range(1, 9))).close()
        pool.flush(10)
        self.assertEqual(pool.stats().stored_images, 2)
        pool.close()

    def test_tables_after_their_pool(self):
        pool = make_pool()
        table = filled(pool, [1, 2, 3])
        pool.close()
        with self.fails_with(Status.CLOSED):
            table.info()
        with self.fails_with(Status.HANDLE):
            pool.table()
        table.close()

    def test_what_is_not_closed_is_closed_with_a_warning(self):
        pool = make_pool()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            table = pool.table()
            del table
            gc.collect()
        self.assertEqual([one.category for one in caught], [ResourceWarning])
        self.assertIn("unclosed <Table", str(caught[0].message))
        self.assertEqual(pool.stats().tables, 0)
        pool.close()

    def test_what_is_not_closed_in_a_cycle_is_closed(self):
        pool = make_pool()
        table = pool.table()
        table.myself = [table]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del table
            gc.collect()
        self.assertEqual(pool.stats().tables, 0)
        pool.close()

    def test_a_constructor_that_fails_leaves_nothing(self):
        with make_pool(num_pages=4) as pool:
            with self.fails_with(Status.STATE):
                pool.session()  # no tiers
            with self.fails_with(Status.INVALID):
                pool.batch(max_tables=0, max_tokens=1)
            self.assertEqual(pool.stats().tables, 0)
        with self.fails_with(Status.INVALID):
            pagedkv.Tier.host(0)

    def test_exceptions_leave_a_with_closed(self):
        with self.assertRaises(ZeroDivisionError):
            with make_pool() as pool:
                1 / 0
        self.assertTrue(pool.closed)

    def test_handles_are_not_copied(self):
        with make_pool() as pool:
            for bad in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaises(TypeError):
                    bad(pool)

    def test_objects_of_another_kind_are_refused(self):
        with make_pool() as pool, pool.table() as table:
            with self.assertRaisesRegex(TypeError, "a table is wanted"):
                _core.table_get_info(pool)
            with self.assertRaisesRegex(TypeError, "a pool is wanted"):
                _core.pool_alloc(table, 0, 0, None)
            with self.assertRaises(TypeError):
                _core.table_get_info(7)
            with self.fails_with(Status.STATE):
                _core.table_create(pool, table)  # open already

    def test_handles_of_the_parent_process_after_a_fork(self):
        pool = make_pool()
        table = filled(pool, [1, 2, 3])
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            answer = b"nothing"
            try:
                table.info()
            except pagedkv.ForkedError:
                try:
                    pool.table()
                except pagedkv.ForkedError:
                    with make_pool() as own, filled(own, [1, 2, 3, 4]) as fresh:
                        answer = b"forked, %d" % fresh.info().committed
            finally:
                os.write(write, answer)
                os._exit(0)
        os.close(write)
        self.assertEqual(os.read(read, 100), b"forked, 4")
        os.close(read)
        os.waitpid(child, 0)
        self.assertEqual(table.info().committed, 3)
        table.close()
        pool.close()


if __name__ == "__main__":
    unittest.main()
