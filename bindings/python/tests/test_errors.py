# SPDX-License-Identifier: Apache-2.0
import unittest

import pagedkv
from pagedkv import Status, _core
from support import Case, filled, make_pool


class Errors(Case):
    def test_every_status_has_an_exception_of_its_own(self):
        classes = set()
        for status in Status:
            if status != Status.OK:
                error = pagedkv.error_of(status, "why")
                classes.add(type(error))
                self.assertEqual(error.status, status)
                self.assertEqual(_core.status_string(status), "PKV_ERR_" + status.name)
                self.assertEqual(str(error), status.name + ": why")
        self.assertEqual(len(classes), 21)
        self.assertTrue(all(issubclass(cls, pagedkv.PagedKVError) for cls in classes))

    def test_a_status_that_is_not_known_is_the_base_class(self):
        error = pagedkv.error_of(-4711, "why")
        self.assertIs(type(error), pagedkv.PagedKVError)
        self.assertEqual(error.status, -4711)

    def test_some_are_also_what_python_programs_expect(self):
        self.assertTrue(issubclass(pagedkv.TimedOutError, TimeoutError))
        self.assertTrue(issubclass(pagedkv.NoMemoryError, MemoryError))
        self.assertTrue(issubclass(pagedkv.InvalidError, ValueError))
        self.assertTrue(issubclass(pagedkv.NotFoundError, LookupError))

    def test_detail_has_the_values_at_fault(self):
        with self.fails_with(Status.LIMIT, "page_tokens is 65537"):
            make_pool(page_tokens=65537)
        with make_pool() as pool:
            with self.fails_with(Status.NO_PAGES, "9 pages wanted"):
                pool.alloc(9)
            with self.fails_with(Status.INVALID):
                pool.page_info(8)
            with self.fails_with(Status.STATE):
                pool.release([0])

    def test_detail_is_that_of_this_thread(self):
        with make_pool() as pool:
            first = self.in_thread(lambda: self.assertRaises(pagedkv.NoPagesError, pool.alloc, 1000))
            first.finish()
            with self.fails_with(Status.NO_PAGES, "77 pages wanted"):
                pool.alloc(77)

    def test_statuses_that_calls_lead_to(self):
        with pagedkv.Tier.host(1 << 20) as tier, make_pool(tiers=[tier], num_pages=8) as pool:
            with filled(pool, range(1, 9)) as table:
                table.spill()
                with self.fails_with(Status.NOT_RESIDENT):
                    table.pages()
            with pool.table() as table:
                table.admit([1, 2, 3])
                with self.fails_with(Status.STATE):
                    table.admit([1])
                with self.fails_with(Status.INVALID):
                    table.commit(5)
                counter = pagedkv.HostCounter()
                with self.fails_with(Status.TIMEOUT):
                    table.commit(3, counter.reached(1, timeout=0.001))
                pool.close()
                with self.fails_with(Status.CLOSED):
                    table.reserve(4)
        with make_pool(memory="none") as pool, self.fails_with(Status.UNSUPPORTED):
            pool.alloc(1)
            pool.write(0, [0], bytes(32), bytes(32))

    def test_a_failed_call_changes_nothing(self):
        with make_pool() as pool, pool.table() as table:
            table.admit([1, 2, 3])
            before = pagedkv.as_dict(table.info()), table.pages()
            for bad in (lambda: table.reserve(2**41), lambda: table.set_tokens(9, [1]), lambda: table.truncate(-1)):
                with self.assertRaises((pagedkv.PagedKVError, OverflowError, TypeError)):
                    bad()
            self.assertEqual((pagedkv.as_dict(table.info()), table.pages()), before)

    def test_numbers_that_are_none_are_refused(self):
        with make_pool() as pool, pool.table() as table:
            table.admit([1, 2, 3])
            for bad in (-1, 2**64, 1.5, "4", None):
                with self.assertRaises((OverflowError, TypeError), msg=repr(bad)):
                    table.reserve(bad)
            with self.assertRaises((OverflowError, TypeError)):
                pool.alloc(1, group=2**32)

    def test_unknown_options_and_names_are_refused(self):
        for bad in ({"colour": 1}, {"_x": 1}, {"set_ns": 1}, {"this": 1}):
            with self.assertRaises(TypeError, msg=repr(bad)):
                make_pool(**bad)
            with self.assertRaises(TypeError, msg=repr(bad)):
                pagedkv.Tier.host(1 << 20, **bad)
        with self.fails_with(Status.INVALID, "f17"):
            make_pool(dtype="f17")
        with make_pool() as pool, self.assertRaises(TypeError):
            pool.session(colour=1)

    def test_structs_take_no_unknown_attributes(self):
        options = _core.pool_options()
        with self.assertRaises(AttributeError):
            options.page_token = 16
        with self.assertRaises((AttributeError, TypeError)):
            options.num_groups = 3

    def test_a_sequence_that_is_lost_says_what_is_left(self):
        with pagedkv.Tier.host(1 << 20) as tier, make_pool(tiers=[pagedkv.Attachment(tier, "write_through")]) as pool:
            filled(pool, list(range(1, 9))).close()
            pool.flush(10)
            pool.evict(8)
            with pool.table() as table:
                self.assertEqual(table.admit(list(range(1, 10))).tier_tokens[0], 8)
                pool.clear()
                with self.fails_with(Status.LOST):
                    table.restore()
                self.assertEqual(table.info().valid, 0)
                table.truncate(0)
                table.reserve(4)


if __name__ == "__main__":
    unittest.main()
