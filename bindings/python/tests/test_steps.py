# SPDX-License-Identifier: Apache-2.0
import os
import select
import tempfile
import unittest
from array import array

import pagedkv
from pagedkv import Status, _core
from support import Case, filled, make_pool, needs_numpy, numpy, rows


class Batches(Case):
    def test_a_decode_step(self):
        with make_pool() as pool, filled(pool, [1, 2, 3, 4]) as one, filled(pool, [5, 6], tag=2) as other:
            with pool.batch(max_tables=3, max_tokens=4, max_blocks=2, fill=-1) as batch:
                self.assertEqual(list(batch.reserve([one, other], [1, 2])), [0, 0])
                self.assertEqual(list(batch.lengths), [5, 4, 0])
                self.assertEqual(list(batch.last_page_len), [1, 4, 0])
                self.assertEqual(list(batch.block_table), [0, 2, 1, -1, -1, -1])
                self.assertEqual(list(batch.slot_mapping), [8, 6, 7, -1])
                self.assertEqual(list(batch.set_tokens([9, 7, 8])), [0, 0])
                k, v = rows(3, tag=3)
                for layer in range(2):
                    batch.write(layer, k, v)
                out = array("f", bytes(9 * 32))
                batch.gather(1, out)
                self.assertEqual(out[4 * 8 : 5 * 8], k[:8])
                self.assertEqual(out[7 * 8 :], k[8:])
                padded = array("f", [5.0] * (2 * 6 * 8))
                batch.gather(1, None, padded, padded=6)
                self.assertEqual(list(padded[5 * 8 : 6 * 8]), [0.0] * 8)
                self.assertEqual(list(batch.commit()), [0, 0])
                self.assertEqual(other.info().published, 4)

    def test_rows_that_fail_have_a_status_and_others_go_on(self):
        with make_pool(num_pages=3) as pool, filled(pool, [1, 2, 3, 4]) as one, filled(pool, [5, 6, 7, 8]) as other:
            with pool.batch(max_tables=3, max_tokens=4, max_blocks=2) as batch:
                self.assertEqual(list(batch.reserve([one, other], [1, 1])), [Status.OK, Status.NO_PAGES])
                self.assertEqual(list(batch.set_tokens([9, 9])), [Status.OK, Status.NO_PAGES])
                self.assertEqual(list(batch.commit()), [Status.OK, Status.NO_PAGES])
                self.assertEqual(one.info().committed, 5)

    def test_what_concerns_the_whole_batch_is_an_exception(self):
        with make_pool() as pool, make_pool() as foreign, filled(pool, [1, 2]) as one, filled(foreign, [1, 2]) as other:
            with pool.batch(max_tables=2, max_tokens=2, max_blocks=2) as batch:
                with self.fails_with(Status.STATE):
                    batch.set_tokens([])
                with self.fails_with(Status.INVALID):
                    batch.reserve([one, one], [0, 0])
                with self.fails_with(Status.INVALID):
                    batch.reserve([other], [0])
                with self.fails_with(Status.LIMIT):
                    batch.reserve([one, one, one], [0, 0, 0])
                with self.assertRaises(ValueError):
                    batch.reserve([one], [0, 0])
                with self.assertRaises(TypeError):
                    batch.reserve([one, pool], [0, 0])
                self.assertEqual(list(batch.reserve([one], [1])), [0])
                with self.fails_with(Status.INVALID):  # the step under way stays what it was
                    batch.reserve([one, one], [1, 1])
                with self.fails_with(Status.INVALID):
                    batch.set_tokens([1, 2])
                self.assertEqual(list(batch.set_tokens([3])), [0])
                self.assertEqual(list(batch.commit([1])), [0])
                with self.fails_with(Status.STATE):
                    batch.commit()

    def test_lists_shorter_than_the_step_are_refused(self):
        with make_pool() as pool, filled(pool, [1, 2]) as one, filled(pool, [3, 4]) as other:
            with pool.batch(max_tables=2, max_tokens=4, max_blocks=2) as batch:
                batch.reserve([one, other], [1, 1])
                with self.fails_with(Status.INVALID, "num_accepted has 1 entries, 2 are needed"):
                    batch.commit([1])
                with self.fails_with(Status.INVALID, "first has 1 entries, 2 are needed"):
                    batch.gather(0, bytearray(6 * 32), first=[0])
                with self.fails_with(Status.INVALID, "statuses has 1 entries, 2 are needed"):
                    _core.batch_set_tokens(batch, 2, [5, 6], array("i", [0]))
                with self.assertRaises(TypeError):
                    _core.batch_commit(batch, None, None, None)
                self.assertEqual(list(batch.commit()), [0, 0])

    @needs_numpy
    def test_arrays_of_the_callers(self):
        table = numpy.zeros((2, 3), "i4")
        slots, lengths = numpy.zeros(4, "i8"), numpy.zeros(2, "i4")
        with make_pool() as pool, filled(pool, [1, 2, 3, 4]) as one:
            arrays = [pagedkv.BatchArrays(fill=-1, max_blocks=3, block_table=table, slot_mapping=slots)]
            with pool.batch(max_tables=2, max_tokens=4, arrays=arrays, lengths=lengths) as batch:
                batch.reserve([one], [1])
                self.assertEqual((table.tolist(), lengths.tolist()), ([[0, 1, -1], [-1, -1, -1]], [5, 0]))
                self.assertEqual(slots.tolist(), [4, -1, -1, -1])
                with self.assertRaises(ValueError):
                    table.resize(100, 100)  # pinned
            bad = {
                "int32": table.astype("i8"),
                "contiguous": numpy.zeros((2, 6), "i4")[:, ::2],
                "entries": numpy.zeros(5, "i4"),
                "read-only": numpy.broadcast_to(numpy.zeros(3, "i4"), (2, 3)),
            }
            for words, one in bad.items():
                with self.subTest(words), self.fails_with(Status.INVALID, words):
                    pool.batch(max_tables=2, max_tokens=4, arrays=[pagedkv.BatchArrays(max_blocks=3, block_table=one)])

    def test_csr(self):
        with make_pool() as pool, filled(pool, list(range(5))) as one, filled(pool, list(range(9))) as other:
            arrays = [pagedkv.BatchArrays(max_indices=8, fill=-1)]
            with pool.batch(max_tables=3, max_tokens=4, arrays=arrays) as batch:
                batch.reserve([one, other], [0, 0])
                self.assertEqual(list(batch.arrays[0].block_indptr), [0, 2, 5, 5])
                pages = list(one.pages()) + list(other.pages())
                self.assertEqual(list(batch.arrays[0].block_indices[:5]), pages)


class Tiers(Case):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "kv")

    def test_a_restart_finds_the_file(self):
        for path in (self.path, os.fsencode(self.path) + b"\xff", __import__("pathlib").Path(self.path + "2")):
            options = dict(capacity_bytes=1 << 20, max_images=64, identity="m")
            with pagedkv.Tier.file(path, **options) as tier, make_pool(tiers=[pagedkv.Attachment(tier, "write_through")]) as pool:
                filled(pool, list(range(1, 9))).close()
                pool.flush(10)
            with pagedkv.Tier.file(path, identity="m") as tier, make_pool(tiers=[tier]) as pool, pool.table() as table:
                self.assertEqual(tier.stats().get_usage().recovered_images, 2)
                self.assertEqual(table.admit(list(range(1, 10))).tier_tokens, (8, 0, 0, 0))
                self.assertEqual(table.restore(), 2)
                out = array("f", bytes(8 * 32))
                table.gather(1, 0, out)
                self.assertEqual(out, rows(8)[0])
            with self.fails_with(Status.MISMATCH):
                pagedkv.Tier.file(path, identity="n")
            with pagedkv.Tier.file(path, 1 << 20, max_images=64, identity="n", reset=True) as tier:
                self.assertEqual(tier.stats().get_usage().images, 0)

    def test_a_file_is_of_one_at_a_time(self):
        with pagedkv.Tier.file(self.path, 1 << 20, max_images=64, engine="threads", threads=1):
            with self.fails_with(Status.BUSY):
                pagedkv.Tier.file(self.path, lock_timeout=0.01)
        with self.fails_with(Status.IO):
            pagedkv.Tier.file(os.path.join(self.folder.name, "no", "where"), 1 << 20)

    def test_tiers_are_made_by_their_functions(self):
        with self.assertRaises(TypeError):
            pagedkv.Tier()
        with self.assertRaises(TypeError):
            pagedkv.Op()

    def test_operations_end_in_queues(self):
        with pagedkv.Tier.host(1 << 20) as tier, make_pool(tiers=[tier]) as pool, pagedkv.Queue() as queue:
            pages = pool.alloc(4)
            pool.write(0, range(8), *rows(8))
            keys = pool.image_keys(list(range(1, 9)))
            self.assertEqual([len(key) for key in keys], [32, 32])
            self.assertEqual(queue.drain(), [])
            op = pool.store(keys, pages[:2], queue=queue, user=5)
            readable, _, _ = select.select([queue], [], [], 10)
            self.assertEqual(readable, [queue])
            (ended,) = queue.drain()
            self.assertEqual((ended.user, ended.status, ended.op), (5, Status.OK, op))
            self.assertEqual(op.poll(), (True, Status.OK, 2, 2, 2, (0, 0), True))
            op.close()
            with pool.load(keys, pages[2:], queue=queue) as op:
                op.wait(10)
                op.cancel()
                self.assertEqual(op.poll().status, Status.OK)
            self.assertEqual(len(queue.drain(timeout=10)), 1)
            out = array("f", bytes(8 * 32))
            pool.gather(0, pages[2:], out)
            self.assertEqual(out, rows(8)[0])
            with pool.load([bytes(32)], pages[:1]) as op:
                with self.fails_with(Status.NOT_FOUND):
                    op.wait(10)
                self.assertEqual(op.poll().statuses, (Status.NOT_FOUND,))

    def test_events_and_keys_agree(self):
        with make_pool(event_capacity=64, seed=7) as pool:
            tokens = list(range(1, 9))
            filled(pool, tokens).close()
            events, missed = pool.events()
            self.assertEqual([(e.sequence, e.kind, e.block) for e in events], [(1, "stored", 0), (2, "stored", 1)])
            self.assertEqual([e.key for e in events], pool.keys(tokens))
            self.assertEqual((events[1].parent, missed), (events[0].key, 0))
            pool.clear_all()
            self.assertEqual([e.kind for e in pool.events(2)[0]][-1], "cleared")

    def test_namespaces(self):
        one, same, other = (pagedkv.Namespace(*args, adapter="a") for args in (("m",), (b"m",), ("n",)))
        self.assertEqual((one, hash(one)), (same, hash(same)))
        self.assertNotEqual(one, other)
        with make_pool() as pool, pool.table() as table:
            table.admit([1, 2, 3, 4], namespace=one, media=[pagedkv.Media(1, 2, b"image")])
            table.write(0, 0, *rows(4))
            table.commit(4)
            media = [(1, 2, bytearray(b"image"))]
            self.assertEqual(pool.probe([1, 2, 3, 4, 5], namespace=same, media=media).tokens, 4)
            self.assertEqual(pool.probe([1, 2, 3, 4, 5], namespace=other, media=media).tokens, 0)
            self.assertEqual(pool.probe([1, 2, 3, 4, 5], namespace=same).tokens, 0)
            for bad in ([(1, 2)], [(1, 2, "text")], 7):
                with self.assertRaises((TypeError, ValueError)):
                    pool.probe([1, 2, 3, 4, 5], media=bad)
            self.assertEqual(pool.clear(one).held, 1)

    def test_retention(self):
        with make_pool() as pool, filled(pool, list(range(8))) as table:
            table.set_retention(pagedkv.Retention(90), num_tokens=4)
            self.assertEqual([pool.page_info(page).priority for page in (0, 1)], [90, 50])
            self.assertEqual(pool.set_retention(list(range(8)), pagedkv.Retention(pin=True, ttl=100.0)), 2)
            self.assertEqual(pool.page_info(0).pinned, 1)
            pool.set_namespace_retention(None, pagedkv.Retention(10))
            pool.set_namespace_retention(None, None)


class Prefetch(Case):
    def setUp(self):
        super().setUp()
        self.tier = pagedkv.Tier.host(1 << 22)
        self.pool = make_pool(num_pages=32, tiers=[self.tier])
        self.addCleanup(self.tier.close)
        self.addCleanup(self.pool.close)

    def test_a_step_has_every_row(self):
        tokens = list(range(1, 63))
        k, v = rows(62)
        with filled(self.pool, tokens) as table, self.pool.session(num_buffers=2, staging_pages=[4], max_tables=2) as session:
            self.assertEqual(table.spill(num_blocks=12).spilled_blocks, 12)
            for _ in range(3):
                with session.step([table]) as step:
                    self.assertEqual(list(step.statuses), [0])
                    for layer in range(2):
                        seen = 0
                        for view in step.layer(layer):
                            self.assertEqual((view.layer, view.num_tables, len(view.indptr)), (layer, 1, 2))
                            self.assertEqual(len(view.slices), view.indptr[1])
                            arrays = memoryview(view.k), memoryview(view.v)
                            self.assertTrue(arrays[0].readonly)
                            for i, one in enumerate(view.slices):
                                block = view.first_block[0] + i
                                for offset in range(min(4, 62 - block * 4)):
                                    for memory, wanted in zip(arrays, (k, v)):
                                        at = (block * 4 + offset) * 8
                                        got = [memory[one, offset, h, d] for h in range(2) for d in range(4)]
                                        self.assertEqual(got, list(wanted[at : at + 8]))
                                        seen += 1
                        self.assertEqual(seen, 62 * 2)
                self.assertEqual(list(step.statuses), [0])
            stats = session.stats()
            self.assertEqual((stats.steps, stats.failed), (3, 0))
            self.assertEqual(stats.needed, 3 * 2 * 12)
            self.assertEqual(stats.needed, stats.on_time + stats.late + stats.on_demand)
            self.assertEqual(stats.get_load_times().count, stats.good_loads)
            self.assertIn('pagedkv_', pagedkv.prometheus(pools={"p": self.pool}, tiers={"h": self.tier}, sessions={"s": session}))

    def test_a_step_that_is_left_by_an_exception_has_ended(self):
        with filled(self.pool, list(range(1, 9))) as table, self.pool.session() as session:
            table.spill()
            with self.assertRaises(ZeroDivisionError):
                with session.step([table]) as step:
                    for _ in step.layer(0):
                        1 / 0
            with session.step([table]):
                pass

    def test_views_of_slices_outlive_the_session(self):
        with filled(self.pool, list(range(1, 9))) as table:
            session = self.pool.session()
            table.spill()
            session.step_begin([table])
            view = session.layer_acquire(0)
            k = view.k
            session.close()
            self.assertEqual(len(view.slices), 2)
            memoryview(k)[0, 0, 0, 0]

    def test_blocks_ahead_of_use(self):
        with filled(self.pool, list(range(1, 33))) as table, self.pool.session(max_lookahead=4, max_block_pages=4) as session:
            table.spill()
            self.assertEqual(session.submit(table, 0), 4)
            result = session.require(table, 0, 2, timeout=10)
            self.assertEqual(result.on_time + result.late + result.on_demand, 2)
            self.assertEqual(list(table.residency(0, 3)), [0, 0, 1])
            session.hint(table, [1.0, 2.0])
            session.hint(table, [])
            session.cancel()

    def test_a_prompt_ahead_of_its_request(self):
        tokens = list(range(1, 14))
        filled(self.pool, tokens).close()
        self.pool.flush(10)
        self.pool.evict(32)
        with self.pool.session() as session, session.prompt(tokens) as op:
            self.assertEqual((op.match.tokens, op.match.resident_tokens), (12, 0))
            op.wait(10)
            self.assertEqual(self.pool.probe(tokens).tokens, 12)

    def test_prediction(self):
        given = dict(page_tokens=4, num_tokens=40, position=20, lookahead=2)
        self.assertEqual(pagedkv.predict(**given, sink_tokens=5, recent_tokens=6), [0, 1, 3, 4, 5, 6])
        self.assertEqual(pagedkv.predict(**given, policy="hinted", scores=[1.0, float("nan"), 3.0, 2.0]), [2, 3])
        with self.fails_with(Status.INVALID):
            pagedkv.predict(page_tokens=0, num_tokens=4, position=0)

    def test_traces(self):
        import json

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            with filled(self.pool, list(range(1, 9))) as table, self.pool.session() as session, pagedkv.trace(path):
                table.spill()
                with session.step([table]) as step:
                    for _ in step.layer(0):
                        pass
                with self.fails_with(Status.STATE):
                    pagedkv.trace_start()
            with open(path, encoding="utf-8") as file:
                self.assertTrue(json.load(file))
        with self.fails_with(Status.STATE):
            pagedkv.trace_stop(None)


class Caches(Case):
    def options(self, **more):
        return dict(page_tokens=4, num_pages=16, num_layers=2, num_kv_heads=2, k_head_dim=4, v_head_dim=4, dtype="f32", **more)

    def put(self, cache, tokens):
        with cache.begin(tokens) as sequence:
            begin = sequence.info().committed
            k, v = rows(len(tokens))
            for layer in range(2):
                sequence.write(layer, begin, k[begin * 8 :], v[begin * 8 :])
            sequence.commit(len(tokens))
            out = array("f", bytes(len(tokens) * 32)), array("f", bytes(len(tokens) * 32))
            sequence.gather(1, 0, *out)
            self.assertEqual(out, (k, v))
            return begin

    def test_memory_alone(self):
        with pagedkv.PagedCache(**self.options()) as cache:
            self.assertEqual([self.put(cache, list(range(10))) for _ in range(2)], [0, 8])
            self.assertIsNone(cache.session)
            self.assertIsNone(cache.prefetch([1, 2, 3]))

    def test_tiers_and_a_restart(self):
        with tempfile.TemporaryDirectory() as folder:
            where = dict(model="m", host_bytes=1 << 20, file=os.path.join(folder, "kv"))
            with pagedkv.PagedCache(**where, file_bytes=1 << 22, **self.options()) as cache:
                self.assertEqual(self.put(cache, list(range(20))), 0)
                cache.flush(10)
                cache.pool.evict(16)
                with cache.prefetch(list(range(20))) as op:
                    op.wait(10)
                self.assertEqual(self.put(cache, list(range(20))), 16)
            for session in (True, False):
                with pagedkv.PagedCache(**where, prefetch=session, **self.options()) as cache:
                    self.assertEqual(self.put(cache, list(range(20))), 16)
                    self.assertEqual(cache.pool.stats().tier_hit_tokens, 16)
            with self.fails_with(Status.MISMATCH):
                pagedkv.PagedCache(**{**where, "model": "n"}, **self.options())

    def test_what_is_lost_is_computed_again(self):
        for session in (True, False):
            cache = pagedkv.PagedCache(host_bytes=1 << 20, prefetch=session, policy="write_through", **self.options())
            with cache:
                tokens = list(range(20))
                self.put(cache, tokens)
                cache.flush(10)
                cache.pool.evict(16)
                restore, lost = cache._restore, []

                def lose(table, timeout):
                    if not lost:
                        lost.append(cache.pool.clear(cache.namespace))
                    restore(table, timeout)

                cache._restore = lose
                self.assertEqual(self.put(cache, tokens), 0)
                self.assertEqual(len(lost), 1)

    def test_bad_options_leave_nothing_open(self):
        with self.fails_with(Status.INVALID):
            pagedkv.PagedCache(host_bytes=1 << 20, **{**self.options(), "num_pages": 0})
        with self.assertRaises(TypeError):
            pagedkv.PagedCache(host_bytes=1 << 20, colour=1, **self.options())
        with pagedkv.PagedCache(**self.options()) as cache:
            with self.fails_with(Status.NO_PAGES):
                cache.begin(list(range(100)))
            self.assertEqual(cache.pool.stats().tables, 0)
        cache.close()


if __name__ == "__main__":
    unittest.main()
