# SPDX-License-Identifier: Apache-2.0
import mmap
import sys
import unittest
from array import array

import pagedkv
from pagedkv import Status, _core
from support import Case, HandMade, OnlyDLPack, make_pool, needs_numpy, numpy, rows


class Rows(Case):
    """Rows of K and V, in and out."""

    def setUp(self):
        super().setUp()
        self.pool = make_pool()
        self.table = self.pool.table()
        self.table.admit(list(range(8)))
        self.addCleanup(self.pool.close)
        self.addCleanup(self.table.close)

    def put(self, k, v, **options):
        self.table.write(0, 0, k, v, **options)

    def got(self, count=8):
        k, v = array("f", bytes(count * 32)), array("f", bytes(count * 32))
        self.table.gather(0, 0, k, v)
        return k, v

    def test_flat_arrays_without_numpy(self):
        k, v = rows(8)
        self.put(k, v)
        self.assertEqual(self.got(), (k, v))

    def test_memoryviews_with_three_dimensions(self):
        k, v = rows(8)
        self.put(*(memoryview(one.tobytes()).cast("f", (8, 2, 4)) for one in (k, v)))
        self.assertEqual(self.got(), (k, v))

    def test_bytes_are_rows_of_the_groups_type(self):
        k, v = rows(8)
        self.put(k.tobytes(), bytearray(v.tobytes()))
        self.assertEqual(self.got(), (k, v))
        out = bytearray(8 * 32)
        self.table.gather(0, 0, out)
        self.assertEqual(bytes(out), k.tobytes())

    def test_the_number_of_tokens_is_that_of_the_array(self):
        k, v = rows(8)
        self.put(k, v)
        out = array("f", bytes(3 * 32))
        self.table.gather(0, 4, out)
        self.assertEqual(out, k[32 : 32 + 24])
        self.table.gather(0, 4, out, num_tokens=2)
        with self.fails_with(Status.INVALID):
            self.table.gather(0, 4, out, num_tokens=4)

    def test_what_is_no_array_is_refused(self):
        k, v = rows(8)
        for bad in (7, "text", object(), [1.0] * 64):
            with self.assertRaises(TypeError, msg=repr(bad)):
                self.put(bad, v)
        with self.assertRaises(TypeError):
            self.put(k)  # there is a V
            self.put(k, None, nothing=1)

    def test_none_is_no_rows(self):
        k, v = rows(8)
        self.put(k, v)
        out = array("f", bytes(8 * 32))
        self.table.gather(0, 0, None, out)
        self.assertEqual(out, v)
        with self.fails_with(Status.INVALID):
            self.put(k, None)
        with self.fails_with(Status.INVALID, "group 0 has none"):
            with make_pool(v_head_dim=0) as pool:
                pool.alloc(1)
                pool.write(0, [0], bytes(32), bytes(32))

    def test_shapes_that_are_not_the_groups(self):
        k, v = rows(8)
        for shape in ((8, 4, 2), (4, 2, 8), (16, 1, 4), (2, 4, 2, 4), (8, 3, 4)):
            size = 4
            for one in shape:
                size *= one
            with self.fails_with(Status.INVALID):
                self.put(memoryview(bytes(size)).cast("f", shape), v)
        with self.fails_with(Status.INVALID, "no multiple"):
            self.put(array("f", bytes(4 * 63)), v)
        with self.fails_with(Status.INVALID):
            self.put(rows(7)[0], v, num_tokens=8)

    def test_read_only_memory_is_read_and_not_written(self):
        k, v = rows(8)
        self.put(bytes(k.tobytes()), memoryview(v).toreadonly())
        with self.fails_with(Status.INVALID, "read-only"):
            self.table.gather(0, 0, bytes(8 * 32))
        with self.fails_with(Status.INVALID, "read-only"):
            self.table.gather(0, 0, bytearray(8 * 32), memoryview(bytearray(8 * 32)).toreadonly())

    def test_arrays_are_let_go_of(self):
        k, v = bytearray(8 * 32), bytearray(8 * 32)
        self.put(k, v)
        self.table.gather(0, 0, k, v)
        with self.fails_with(Status.INVALID):
            self.table.gather(0, 100, k, v)
        with self.fails_with(Status.INVALID):
            self.put(k, bytes(31))
        before = sys.getrefcount(k), sys.getrefcount(v)
        for _ in range(100):
            self.put(k, v)
            with self.fails_with(Status.INVALID):
                self.put(k, v, num_tokens=9)
        self.assertEqual((sys.getrefcount(k), sys.getrefcount(v)), before)
        k.append(0)  # a bytearray that is still exported cannot be resized
        v.append(0)

    def test_other_byte_orders_are_refused(self):
        if sys.byteorder == "little" and numpy is not None:
            with self.fails_with(Status.INVALID, "byte order"):
                self.put(numpy.zeros((8, 2, 4), ">f4"), numpy.zeros((8, 2, 4), "f4"))

    def test_types_that_do_not_convert(self):
        k, v = rows(8)
        with self.fails_with(Status.UNSUPPORTED):
            self.put(array("d", bytes(8 * 8 * 8)), v)
        with self.fails_with(Status.UNSUPPORTED):
            self.put(array("i", bytes(8 * 8 * 4)), v)

    @needs_numpy
    def test_gather_into_numpy_adds_no_copy(self):
        k, v = rows(8)
        self.put(k, v)
        out = numpy.zeros((8, 2, 4), "f4")
        address = out.__array_interface__["data"][0]
        pin = _core.Pin(out)
        self.assertEqual(pin.address, address)  # what the library gets is the array's own memory
        self.table.gather(0, 0, out)
        self.assertEqual(out.__array_interface__["data"][0], address)
        self.assertEqual(out.ravel().tolist(), k.tolist())
        whole = numpy.full((8, 3, 6), 9, "f4")  # a part of a larger array: nothing around it is touched
        self.table.gather(0, 0, whole[:, 1:, 1:5])
        self.assertEqual(whole[:, 1:, 1:5].ravel().tolist(), k.tolist())
        self.assertTrue((whole[:, 0] == 9).all() and (whole[:, :, 0] == 9).all() and (whole[:, :, 5] == 9).all())

    @needs_numpy
    def test_case_q13_strides_are_honoured(self):
        k = numpy.arange(8 * 2 * 4, dtype="f4").reshape(8, 2, 4)
        v = -k
        views = {
            "every other token": (numpy.repeat(k, 2, axis=0)[::2], numpy.repeat(v, 2, axis=0)[::2]),
            "heads first": (k.transpose(1, 0, 2).copy().transpose(1, 0, 2), v.transpose(1, 0, 2).copy().transpose(1, 0, 2)),
            "part of the columns": (numpy.pad(k, ((0, 0), (0, 0), (0, 3)))[:, :, :4], numpy.pad(v, ((1, 1), (2, 2), (0, 0)))[1:9, 2:4]),
            "two dimensions": (k.reshape(8, 8), numpy.pad(v.reshape(8, 8), ((0, 0), (0, 5)))[:, :8]),
        }
        for name, (one, other) in views.items():
            with self.subTest(name):
                self.put(one, other)
                out = numpy.empty((8, 2, 4), "f4"), numpy.empty((8, 2, 4), "f4")
                self.table.gather(0, 0, *out)
                self.assertTrue((out[0] == k).all() and (out[1] == v).all())

    @needs_numpy
    def test_strides_that_cannot_be_honoured_are_refused_with_a_reason(self):
        k = numpy.zeros((8, 2, 4), "f4")
        bad = {
            "reversed and broadcast": [k[::-1], k[:, ::-1], numpy.broadcast_to(k[:1], k.shape), numpy.broadcast_to(k[:, :1], k.shape)],
            "last dimension contiguous": [numpy.zeros((8, 2, 8), "f4")[:, :, ::2], numpy.zeros((4, 2, 8), "f4").T, k[:, :, ::-1]],
        }
        for reason, arrays in bad.items():
            for one in arrays:
                with self.subTest(strides=one.strides), self.fails_with(Status.INVALID, reason):
                    self.put(one, k)
                with self.subTest(strides=one.strides, side="v"), self.fails_with(Status.INVALID, "v: "):
                    self.put(k, one)

    @needs_numpy
    def test_single_rows_may_have_any_stride(self):
        k = numpy.arange(8, dtype="f4").reshape(1, 2, 4)
        self.put(k[::-1], numpy.broadcast_to(k, (1, 2, 4)))  # strides of a dimension of one mean nothing
        self.assertEqual(self.got(1)[0].tolist(), k.ravel().tolist())

    @needs_numpy
    def test_rows_of_other_types_are_converted(self):
        k = numpy.arange(8 * 2 * 4, dtype="f2").reshape(8, 2, 4)
        self.put(k, -k)
        self.assertEqual(self.got()[0].tolist(), k.ravel().tolist())
        out = numpy.empty((8, 2, 4), "f2")
        self.table.gather(0, 0, out)
        self.assertTrue((out == k).all())

    @needs_numpy
    def test_case_g13_strides_above_32_bits(self):
        stride = (1 << 32) + 4096
        memory = mmap.mmap(-1, 3 * stride + 4096)  # touched where the rows are
        wide = numpy.ndarray((4, 2, 4), "f4", buffer=memory, strides=(stride, 16, 4))
        k = numpy.arange(4 * 2 * 4, dtype="f4").reshape(4, 2, 4)
        wide[:] = k
        self.put(wide, -k)
        out = numpy.empty((4, 2, 4), "f4")
        self.table.gather(0, 0, out)
        self.assertTrue((out == k).all())
        wide[:] = 0
        self.table.gather(0, 0, wide)
        self.assertTrue((wide == k).all())
        del wide
        memory.close()


class DLPack(Case):
    @needs_numpy
    def test_in_and_out(self):
        with make_pool() as pool, pool.table() as table:
            table.admit(list(range(8)))
            k = numpy.arange(8 * 2 * 4, dtype="f4").reshape(8, 2, 4)
            wrapped = OnlyDLPack(k), OnlyDLPack(-k[:, :, :])
            table.write(0, 0, *wrapped)
            self.assertEqual([one.calls for one in wrapped], [1, 1])
            out = OnlyDLPack(numpy.zeros((8, 2, 4), "f4"))
            table.gather(0, 0, out)
            self.assertTrue((out.wrapped == k).all())
            strided = OnlyDLPack(numpy.zeros((16, 2, 4), "f4")[::2])
            table.gather(0, 0, strided)
            self.assertTrue((strided.wrapped == k).all())

    def test_tensors_are_given_back_once(self):
        with make_pool() as pool, pool.table() as table:
            table.admit(list(range(8)))
            k, v = rows(8)
            for version in (None, 1):
                good = HandMade(bytearray(k.tobytes()), (8, 2, 4), 2, 32, version=version)
                table.write(0, 0, good, v)
                self.assertEqual(good.deleted, 1)
                bad = HandMade(bytearray(k.tobytes()), (4, 2, 8), 2, 32, version=version)
                with self.fails_with(Status.INVALID):
                    table.write(0, 0, bad, v)
                self.assertEqual(bad.deleted, 1)

    def test_offsets_and_element_strides(self):
        with make_pool() as pool, pool.table() as table:
            table.admit(list(range(8)))
            k, v = rows(8)
            tensor = HandMade(bytearray(64 + 2 * len(k.tobytes())), (8, 2, 4), 2, 32, strides=(16, 4, 1), offset=64)
            table.write(0, 0, k, v)
            table.gather(0, 0, tensor)
            for token in range(8):
                at = 64 + token * 64
                self.assertEqual(bytes(tensor.memory[at : at + 32]), k[token * 8 : token * 8 + 8].tobytes())

    def test_bf16_and_fp8(self):
        for dtype, code, size in (("bf16", 4, 2), ("f8e4m3", 10, 1), ("f8e5m2", 12, 1), ("i8", 0, 1), ("f16", 2, 2)):
            with self.subTest(dtype), make_pool(dtype=dtype) as pool, pool.table() as table:
                table.admit(list(range(4)))
                data = bytearray(range(4 * 8 * size))
                tensor = HandMade(data, (4, 2, 4), code, 8 * size)
                table.write(0, 0, tensor, bytes(data))
                out = bytearray(len(data))
                table.gather(0, 0, out)
                self.assertEqual(out, bytearray(range(len(data))))

    def test_read_only_tensors(self):
        with make_pool() as pool, pool.table() as table:
            table.admit(list(range(8)))
            k, v = rows(8)
            tensor = HandMade(bytearray(k.tobytes()), (8, 2, 4), 2, 32, version=1, readonly=True)
            table.write(0, 0, tensor, v)
            with self.fails_with(Status.INVALID, "read-only"):
                table.gather(0, 0, tensor)
            self.assertEqual(tensor.deleted, 2)

    def test_tensors_on_a_device_are_not_for_a_pool_on_the_host(self):
        with make_pool() as pool, pool.table() as table:
            table.admit(list(range(8)))
            k, v = rows(8)
            tensor = HandMade(bytearray(k.tobytes()), (8, 2, 4), 2, 32, device=(2, 1))
            with self.fails_with(Status.INVALID, "device 2:1", "move it first"):
                table.write(0, 0, tensor, v)
            with self.fails_with(Status.INVALID, "device 2:1"):
                table.gather(0, 0, tensor)
            with self.fails_with(Status.INVALID, "device 2:0"):
                pool.alloc(1)
                pool.retain(Sized(HandMade(bytearray(4), (1,), 0, 32, device=(2, 0)), 1))

    def test_what_dlpack_can_say_and_the_library_cannot(self):
        with make_pool() as pool, pool.table() as table:
            table.admit(list(range(8)))
            memory = bytearray(8 * 32)
            with self.fails_with(Status.INVALID, "lanes"):
                table.write(0, 0, HandMade(memory, (8, 2, 4), 2, 32, lanes=2), memory)
            with self.fails_with(Status.INVALID, "bits"):
                table.write(0, 0, HandMade(memory, (8, 2, 4), 2, 4), memory)
            with self.fails_with(Status.UNSUPPORTED, "version 2"):
                table.write(0, 0, HandMade(memory, (8, 2, 4), 2, 32, version=2), memory)

    def test_errors_of_dlpack_itself(self):
        class Broken:
            def __dlpack__(self, **kwargs):
                raise RuntimeError("out of order")

        class NoCapsule:
            def __dlpack__(self, **kwargs):
                return 7

        with make_pool() as pool, pool.table() as table:
            table.admit(list(range(8)))
            with self.assertRaisesRegex(RuntimeError, "out of order"):
                table.write(0, 0, Broken(), bytes(8 * 32))
            with self.assertRaisesRegex(TypeError, "capsule"):
                table.write(0, 0, NoCapsule(), bytes(8 * 32))

    def test_torch_tensors(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        with make_pool(dtype="bf16") as pool, pool.table() as table:
            table.admit(torch.arange(8))
            k = torch.arange(64).reshape(8, 2, 4).to(torch.bfloat16)
            table.write(0, 0, k, -k)
            out = torch.zeros(8, 2, 4, dtype=torch.bfloat16)
            table.gather(0, 0, out)
            self.assertTrue(torch.equal(out, k))
            view = torch.from_dlpack(pool.layer_arrays(0)[0])
            self.assertTrue(torch.equal(view[0], k[:4]))


class Sized:
    """DLPack with a length."""

    def __init__(self, tensor, length):
        self.tensor, self.length = tensor, length

    def __len__(self):
        return self.length

    def __dlpack__(self, **kwargs):
        return self.tensor.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


class Numbers(Case):
    """Lists of tokens, pages, slots ..."""

    def test_any_integers_that_fit(self):
        with make_pool() as pool:
            pool.alloc(1)
            pool.publish(list(range(4)), [0])
            same = [range(5), tuple(range(5)), array("q", range(5)), array("H", range(5)), array("b", range(5)), bytearray(range(5))]
            if numpy is not None:
                same += [numpy.arange(5), numpy.arange(5, dtype="u1"), numpy.arange(10)[::2] // 2, numpy.arange(5, dtype="u8")]
                same += [numpy.arange(4, -1, -1)[::-1], [numpy.int64(i) for i in range(5)], OnlySized(numpy.arange(5))]
            for tokens in same:
                self.assertEqual(pool.probe(tokens).tokens, 4, tokens)

    def test_numbers_that_do_not_fit_are_refused(self):
        with make_pool() as pool:
            for bad in ([2**31], [-(2**31) - 1], array("q", [2**40]), array("Q", [2**63]), [2**100], array("I", [2**32 - 1])):
                with self.fails_with(Status.INVALID, "tokens[0] does not fit int32"):
                    pool.probe(bad)
            for bad in ([1.5], ["1"], 7, [None], array("f", [1.0])):
                with self.assertRaises((TypeError, pagedkv.InvalidError), msg=repr(bad)):
                    pool.probe(bad)
            with self.fails_with(Status.INVALID):
                _core.pool_retain(pool, 0, 5, [0])  # fewer than said

    def test_lists_that_are_written_have_to_be_of_the_type(self):
        with make_pool() as pool, pool.table() as table:
            table.admit(list(range(8)))
            out = array("i", bytes(8))
            self.assertEqual(table.pages(out=out), 2)
            self.assertEqual(list(out), [0, 1])
            for bad in (array("q", bytes(16)), array("f", bytes(8)), bytes(8)):
                with self.fails_with(Status.INVALID):
                    table.pages(out=bad)
            with self.fails_with(Status.NO_SPACE):
                table.pages(out=array("i", bytes(4)))
            if numpy is not None:
                wide = numpy.zeros(4, "i4")
                with self.fails_with(Status.INVALID, "contiguous"):
                    table.pages(out=wide[::2])
                self.assertEqual(table.pages(out=wide), 2)

    def test_token_counts_above_32_bits(self):
        tokens = 1 << 33
        with make_pool(memory="none", page_tokens=65536, num_pages=1 << 18) as pool, pool.table() as table:
            table.admit([1, 2, 3], reserve_tokens=10)
            table.reserve(tokens)
            table.commit(tokens - 5)
            info = table.info()
            self.assertEqual((info.reserved, info.committed, info.blocks), (tokens, tokens - 5, tokens // 65536))
            slots = table.slots(tokens - 2, 2)
            self.assertEqual(slots[1], table.pages()[-1] * 65536 + 65535)
            self.assertGreater(slots[1], 2**32)
            table.truncate(2**32 + 1)
            self.assertEqual(table.info().committed, 2**32 + 1)
        self.assertEqual(pagedkv.predict(page_tokens=1 << 16, num_tokens=1 << 40, position=1 << 39, lookahead=1), [1 << 23])

    def test_case_g14_64_bits_come_back_unsigned(self):
        with pagedkv.Tier.host(1 << 20) as tier, make_pool(tiers=[tier], seed=2**64 - 1) as pool, pagedkv.Queue() as queue:
            pages = pool.alloc(1)
            with pool.store(pool.image_keys([1, 2, 3, 4]), pages, queue=queue, user=2**64 - 1) as op:
                (ended,) = queue.drain(timeout=10)
                self.assertEqual((ended.user, ended.op), (2**64 - 1, op))
            self.assertTrue(all(0 <= key < 2**128 for key in pool.keys([1, 2, 3, 4])))

    def test_packed_lists_are_bytes(self):
        with pagedkv.Tier.host(1 << 20) as tier, make_pool(tiers=[tier]) as pool:
            pages = pool.alloc(2)
            keys = pool.image_keys(list(range(8)))
            with self.assertRaises(ValueError):
                pool.store(keys[:1], pages)
            with self.assertRaises(ValueError):
                pool.store([b"short", b"keys"], pages)

    def test_digests(self):
        import hashlib

        def expected(*parts):
            data = len(parts).to_bytes(8, "little") + b"".join(len(p).to_bytes(8, "little") + p for p in parts)
            return hashlib.blake2b(data, digest_size=32).digest()

        self.assertEqual(pagedkv.digest(b"ab", "c"), expected(b"ab", b"c"))
        self.assertEqual(pagedkv.digest(), expected())
        self.assertEqual(pagedkv.digest(array("H", [1, 2]), b""), expected(b"\1\0\2\0", b""))


class OnlySized(OnlyDLPack):
    def __len__(self):
        return len(self.wrapped)


if __name__ == "__main__":
    unittest.main()
