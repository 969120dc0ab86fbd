# SPDX-License-Identifier: Apache-2.0
import gc
import unittest
from array import array

import pagedkv
from pagedkv import Status, _core
from support import Case, filled, make_pool, needs_numpy, numpy, rows


class Views(Case):
    """Memory of pools as arrays."""

    def test_a_layer_in_place(self):
        with make_pool() as pool, filled(pool, [1, 2, 3, 4, 5]) as table:
            k, v = pool.layer_arrays(1)
            self.assertEqual(k.shape, (8, 4, 2, 4))
            self.assertEqual(k.address, pool.layout(1).k_base_address)
            seen = memoryview(k)
            self.assertEqual((seen.format, seen.itemsize, seen.readonly), ("f", 4, False))
            self.assertEqual(seen[1, 0, 1, 2], rows(5)[0][4 * 8 + 4 + 2])
            self.assertEqual(memoryview(v)[0, 3, 0, 1], rows(5)[1][3 * 8 + 1])
            table.reserve(6)
            seen[1, 1, 0, 0] = 77.0  # in place, both ways
            out = array("f", bytes(32))
            pool.gather(1, [1], out, first_token=1)
            self.assertEqual(out[0], 77.0)

    def test_layouts(self):
        for layout in ("nhd", "hnd"):
            for arrangement in ("page_major", "layer_major"):
                with make_pool(layout=layout, arrangement=arrangement, v_head_dim=8) as pool:
                    pool.alloc(1)
                    k, v = pool.layer_arrays(1)
                    pool.write(1, [2], array("f", range(8)), array("f", range(16)))
                    self.assertEqual(memoryview(k)[0, 2, 1, 3], 7.0)
                    self.assertEqual(memoryview(v)[0, 2, 1, 3], 11.0)

    @needs_numpy
    def test_numpy_shares_the_memory(self):
        with make_pool() as pool, filled(pool, [1, 2, 3, 4, 5]):
            k, _ = pool.layer_arrays(0)
            array_of = numpy.asarray(k)
            self.assertEqual(array_of.__array_interface__["data"][0], k.address)
            self.assertEqual(array_of.strides, k.strides)
            self.assertTrue((array_of[0].ravel() == numpy.array(rows(4)[0])).all())
            self.assertEqual(numpy.from_dlpack(k).__array_interface__["data"][0], k.address)

    @needs_numpy
    def test_a_view_outlives_its_pool(self):
        pool = make_pool()
        table = filled(pool, [1, 2, 3, 4])
        arrays = [numpy.asarray(pool.layer_arrays(0)[0]), numpy.from_dlpack(pool.layer_arrays(0)[0])]
        expected = arrays[0].copy()
        self.assertEqual(pool.stats().tables, 2)  # the views have one among them, to keep the memory
        table.close()
        pool.close()
        del pool, table
        gc.collect()
        for one in arrays:
            self.assertTrue((one == expected).all())
        del arrays, one
        gc.collect()

    @needs_numpy
    def test_the_memory_goes_with_the_last_view(self):
        with make_pool() as pool:
            arrays = [numpy.asarray(one) for layer in range(2) for one in pool.layer_arrays(layer)]
            self.assertEqual(pool.stats().tables, 1)
            del arrays
            self.assertEqual(pool.stats().tables, 0)
            first = pool.layer_arrays(0)[0].__dlpack__()
            self.assertEqual(pool.stats().tables, 1)
            del first  # a capsule that nobody took
            self.assertEqual(pool.stats().tables, 0)

    def test_bf16_and_fp8_are_their_bits(self):
        for dtype, letter in (("bf16", "H"), ("f16", "e"), ("f8e4m3", "B"), ("i8", "b")):
            with make_pool(dtype=dtype) as pool:
                self.assertEqual(memoryview(pool.layer_arrays(0)[0]).format, letter)

    def test_dlpack_device_and_versions(self):
        with make_pool(dtype="bf16") as pool:
            view = pool.layer_arrays(0)[0]
            self.assertEqual(view.__dlpack_device__(), (1, 0))
            self.assertIn("dltensor_versioned", repr(view.__dlpack__(max_version=(1, 0))))
            self.assertNotIn("versioned", repr(view.__dlpack__()))
            with self.assertRaises(BufferError):
                view.__dlpack__(copy=True)
            with self.assertRaises(BufferError):
                view.__dlpack__(dl_device=(2, 0))

    def test_read_only_views(self):
        with make_pool() as pool:
            view = _core.memory(pool, pool.layout().k_base_address, _core.DTYPE_F32, (4,), (4,), False)
            self.assertTrue(memoryview(view).readonly)
            with self.assertRaises(BufferError):
                view.__dlpack__()
            self.assertIn("versioned", repr(view.__dlpack__(max_version=(1, 1))))

    def test_pools_of_ids_have_nothing_to_look_at(self):
        with make_pool(memory="none") as pool, self.fails_with(Status.UNSUPPORTED):
            pool.layer_arrays(0)

    def test_aux_bytes(self):
        with make_pool(aux_bytes=16) as pool:
            pages = pool.alloc(2)
            pool.aux(pages[0], size=16)[:5] = b"hello"
            pool.copy_pages([pages[0]], [pages[1]])
            self.assertEqual(bytes(pool.aux(pages[1], size=16)[:6]), b"hello\0")
            with self.fails_with(Status.INVALID):
                pool.aux(99, size=16)


@needs_numpy
class CallersMemory(Case):
    """Pools over the caller's own arrays."""

    def arrays(self, order="nhd", pages=8):
        shape = (pages, 4, 2, 4) if order == "nhd" else (pages, 2, 4, 4)
        return [numpy.zeros(shape, "f4") for _ in range(2)], [numpy.zeros(shape, "f4") for _ in range(2)]

    def pool(self, k, v, **options):
        given = dict(num_layers=2, num_kv_heads=2, k_head_dim=4, v_head_dim=4, dtype="f32", k_arrays=k, v_arrays=v)
        given.update(options)
        return pagedkv.Pool(**given)

    def test_rows_are_in_the_arrays(self):
        for order in ("nhd", "hnd"):
            k, v = self.arrays(order)
            with self.pool(k, v, layout=order) as pool, filled(pool, [1, 2, 3, 4, 5]):
                self.assertEqual((pool.page_tokens, pool.stats().num_pages), (4, 8))
                page = k[1][1, 0, 1] if order == "nhd" else k[1][1, 1, 0]
                self.assertEqual(page.tolist(), list(rows(5)[0][36:40]))
                self.assertEqual(pool.layer_arrays(1)[0].address, k[1].__array_interface__["data"][0])

    def test_strided_arrays(self):
        base = numpy.zeros((2, 8, 4, 4, 8), "f4")  # heads and elements of a larger cache
        k, v = [one[:, :, :2, :4] for one in base], [one[:, :, 2:, 4:] for one in base]
        with self.pool(k, v) as pool, filled(pool, [1, 2, 3, 4, 5]) as table:
            self.assertEqual(base[1, 1, 0, 3, 4:].tolist(), list(rows(5)[1][36:40]))
            out = numpy.zeros((5, 2, 4), "f4")
            table.gather(0, 0, out)
            self.assertEqual(out.ravel().tolist(), list(rows(5)[0]))
        self.assertEqual(numpy.count_nonzero(base[:, :, :, :2, 4:]), 0)

    def test_arrays_live_as_long_as_anything_of_the_pool(self):
        class Counted(numpy.ndarray):
            alive = 0

            def __del__(self):
                Counted.alive -= 1

        k, v = self.arrays()
        k = [one.view(Counted) for one in k]
        Counted.alive = 2
        pool = self.pool(k, v)
        table = filled(pool, [1, 2, 3, 4, 5])
        view = pool.layer_arrays(0)[0]
        k.clear()
        gc.collect()
        pool.close()
        gc.collect()
        self.assertEqual(Counted.alive, 2)
        table.close()
        del pool, table
        gc.collect()
        self.assertEqual(memoryview(view)[0, 0, 0, 1], rows(1)[0][1])
        self.assertEqual(Counted.alive, 2)
        del view
        gc.collect()
        self.assertEqual(Counted.alive, 0)

    def test_arrays_cannot_be_resized_meanwhile(self):
        memory = [bytearray(8 * 4 * 2 * 4 * 4) for _ in range(4)]
        views = [memoryview(one).cast("f", (8, 4, 2, 4)) for one in memory]
        pool = self.pool(views[:2], views[2:])
        views.clear()
        with self.assertRaises(BufferError):
            memory[0].append(0)
        pool.close()
        del pool
        gc.collect()
        memory[0].append(0)

    def test_what_does_not_fit_is_refused_before_anything_is_touched(self):
        k, v = self.arrays()
        readonly = k[0].copy()
        readonly.flags.writeable = False
        bad = {
            "2 arrays, num_layers is 3": dict(k=k, v=v, num_layers=3),
            "dimensions": dict(k=[k[0][0], k[1][0]], v=v),
            "heads": dict(k=[k[0][:, :, :1], k[1][:, :, :1]], v=v),
            "rows of": dict(k=[k[0][:, :, :, :2], k[1][:, :, :, :2]], v=v),
            "above 0": dict(k=[one[::-1] for one in k], v=v),
            "those of layer 0": dict(k=[k[0], numpy.zeros((8, 8, 2, 4), "f4")[:, ::2]], v=v),
            "read-only": dict(k=[readonly, k[1]], v=v),
            "tokens in a page": dict(k=k, v=[one[:, :3] for one in v]),
            "pages of": dict(k=k, v=[one[:4] for one in v], num_pages=8),
        }
        for words, options in bad.items():
            with self.subTest(words), self.fails_with(Status.INVALID, words):
                self.pool(**options)


class Scales(Case):
    def test_scales_of_heads(self):
        options = dict(dtype="i8", num_layers=2, scales="head", k_scales=[[0.5, 1], [2, 4]], v_scales=[[1, 1], [1, 1]])
        with make_pool(**options) as pool:
            pool.alloc(1)
            pool.write(1, [0], array("f", [8.0] * 8), array("f", [8.0] * 8))
            out = bytearray(8)
            pool.gather(1, [0], out, num_tokens=1)
            self.assertEqual(list(out), [4] * 4 + [2] * 4)
        for scales in ([[0.5, 1]], [0.5], []):
            with self.fails_with(Status.INVALID):
                make_pool(**{**options, "k_scales": scales})


if __name__ == "__main__":
    unittest.main()
