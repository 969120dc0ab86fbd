# SPDX-License-Identifier: Apache-2.0
"""The log, nodes, leaks, the module itself: what concerns the process."""

import gc
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from array import array

import pagedkv
from pagedkv import Status, _core
from support import Case, HandMade, filled, make_pool, needs_numpy, numpy, rows


def in_process(program, timeout=60):
    """A Python program of its own: its output. It has to end well, and quietly."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(program)],
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if done.returncode != 0 or done.stderr:
        raise AssertionError(f"exit status {done.returncode}: {done.stderr}")
    return done.stdout


POOL = "p.Pool(page_tokens=4, num_pages=8, num_layers=1, num_kv_heads=1, k_head_dim=4, v_head_dim=4, dtype='f32')"


NATIVE_THREADS = """
#include <pagedkv/pagedkv.h>
#include <pthread.h>

static void *make_a_pool(void *failed) {
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    pkv_pool *pool = NULL;
    group.num_pages = 4, group.num_layers = 1, group.num_kv_heads = 1, group.k_head_dim = 4;
    options.page_tokens = 4, options.num_groups = 1, options.groups = &group;
    if (pkv_pool_create(&options, &pool) != PKV_OK || pkv_pool_destroy(pool) != PKV_OK) __atomic_add_fetch((int *)failed, 1, __ATOMIC_RELAXED);
    return NULL;
}

int threads(int count) {
    int failed = 0;
    for (int begun = 0; begun < count; begun += 8) {
        pthread_t these[8];
        for (int i = 0; i < 8; ++i) pthread_create(&these[i], NULL, make_a_pool, &failed);
        for (int i = 0; i < 8; ++i) pthread_join(these[i], NULL);
    }
    return failed;
}
"""


class Log(Case):
    def tearDown(self):
        pagedkv.set_log(None)
        super().tearDown()

    def test_a_function_gets_messages(self):
        got = []
        pagedkv.set_log(lambda level, message: got.append((level, message)), pagedkv.LOG_INFO)
        with make_pool():
            pass
        self.assertTrue(got)
        self.assertTrue(all(1 <= level <= 3 and message for level, message in got))
        pagedkv.set_log(None)
        count = len(got)
        with make_pool():
            pass
        self.assertEqual(len(got), count)

    def test_a_logger_gets_messages(self):
        with self.assertLogs("pagedkv", logging.INFO) as logs:
            pagedkv.set_log(logging.getLogger("pagedkv"), pagedkv.LOG_INFO)
            with make_pool():
                pass
            pagedkv.set_log(None)
        self.assertTrue(logs.output)

    def test_case_q16_exceptions_of_the_function_go_nowhere_else(self):
        unraisable = []
        hook, sys.unraisablehook = sys.unraisablehook, lambda one: unraisable.append(one.exc_type)
        try:
            pagedkv.set_log(lambda level, message: 1 / 0, pagedkv.LOG_INFO)
            with make_pool() as pool:
                self.assertEqual(pool.stats().num_pages, 8)
        finally:
            pagedkv.set_log(None)
            sys.unraisablehook = hook
        self.assertEqual(set(unraisable), {ZeroDivisionError})

    def test_case_q07_threads_that_python_has_not_made_bring_messages(self):
        # A thousand of them, one message each: each is made known to the interpreter, and forgotten when it has left.
        compiler = shutil.which(os.environ.get("CC", "cc").split()[-1])
        top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
        build = os.path.abspath(os.environ.get("BUILD", "build"))
        if compiler is None or not os.path.exists(os.path.join(build, "lib", "libpagedkv.so")):
            self.skipTest("no compiler, or no library that is built")
        with tempfile.TemporaryDirectory() as folder:
            source, library = os.path.join(folder, "threads.c"), os.path.join(folder, "threads.so")
            with open(source, "w") as file:
                file.write(NATIVE_THREADS)
            command = [compiler, "-std=gnu11", "-shared", "-fPIC", "-pthread", "-I" + os.path.join(top, "include"), source]
            subprocess.run(command + ["-o", library, "-L" + os.path.join(build, "lib"), "-lpagedkv"], check=True)
            out = in_process(
                f"""
                import ctypes, sys, threading
                import pagedkv as p
                got, ids = [], set()
                def receive(level, message):
                    got.append(message)
                    ids.add(threading.get_native_id())
                p.set_log(receive, p.LOG_INFO)
                failed = ctypes.CDLL({library!r}).threads(1000)
                p.set_log(None)
                ids.discard(threading.main_thread().native_id)
                print(failed, len(got), len(ids) > 1, len(sys._current_frames()), threading.active_count())
                """
            )
        self.assertEqual(out, "0 1000 True 1 1\n")

    def test_case_q23_a_function_is_taken_away_while_it_runs(self):
        inside, go_on = threading.Event(), threading.Event()

        def receive(level, message):
            inside.set()
            go_on.wait(30)

        pagedkv.set_log(receive, pagedkv.LOG_INFO)
        del receive
        maker = self.in_thread(lambda: make_pool().close())
        self.assertTrue(inside.wait(30))
        pagedkv.set_log(None)
        gc.collect()
        go_on.set()
        maker.finish()

    def test_what_is_no_function_is_refused(self):
        with self.assertRaises(TypeError):
            pagedkv.set_log(7)

    def test_case_q11_threads_that_log_while_the_interpreter_ends(self):
        for _ in range(3):
            out = in_process(
                f"""
                import threading, pagedkv as p
                p.set_log(lambda level, message: None, p.LOG_INFO)
                begun = threading.Barrier(5)
                def work():
                    begun.wait()
                    while True:
                        try:
                            {POOL}.close()
                        except BaseException:
                            return
                for _ in range(4):
                    threading.Thread(target=work, daemon=True).start()
                begun.wait()
                print("end")
                """
            )
            self.assertEqual(out, "end\n")


class Process(Case):
    def test_objects_that_are_open_at_the_end(self):
        # Only the warnings are to be seen that Python is asked for.
        program = f"""
            import warnings; warnings.simplefilter("ignore")
            import pagedkv as p
            tier = p.Tier.host(1 << 20)
            pool = p.Pool(page_tokens=4, num_pages=32, num_layers=1, num_kv_heads=1, k_head_dim=4, v_head_dim=4, tiers=[tier])
            table = pool.table(); table.admit([1, 2, 3])
            session = pool.session()
            queue = p.Queue()
            view = memoryview(pool.layer_arrays(0)[0])
            p.keep = [pool, table, session, view]
            print("end")
            """
        self.assertEqual(in_process(program), "end\n")

    def test_importing_starts_no_thread_and_opens_nothing(self):
        out = in_process(
            """
            import os
            before = len(os.listdir("/proc/self/task"))
            import pagedkv
            print(before, len(os.listdir("/proc/self/task")))
            """
        )
        before, after = out.split()
        self.assertEqual(before, after)

    def test_case_q22_a_child_after_a_fork_can_use_the_library(self):
        out = in_process(
            f"""
            import os, pagedkv as p
            child = os.fork()
            if child == 0:
                with {POOL} as pool, pool.table() as table:
                    table.admit([1, 2, 3])
                os._exit(7)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            """
        )
        self.assertEqual(out, "7\n")


class Module(Case):
    def test_everything_that_is_let_in_is_there(self):
        here = os.path.dirname(os.path.abspath(__file__))
        path = os.path.join(here, "..", "..", "swig", "admitted.i")
        if not os.path.exists(path):
            self.skipTest("the sources are not there")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        functions = re.findall(r"^PKV_FUNCTION\((\w+)\)$", text, re.M)
        structs = re.findall(r"^PKV_STRUCT\((\w+)\)$", text, re.M)
        left_out = re.findall(r"^PKV_LEFT_OUT\((\w+),", text, re.M)
        self.assertGreater(len(functions), 90)
        for name in functions:
            self.assertTrue(callable(getattr(_core, name)), name)
        for name in structs:
            self.assertIsInstance(getattr(_core, name), type, name)
            self.assertTrue(repr(getattr(_core, name)()))
        for name in set(left_out) - {"set_log"}:
            self.assertFalse(hasattr(_core, name), name)
        own = {"Counter", "Handle", "Pin", "View", "memory", "set_log", "end_log", "set_errors"}
        found = {name for name in dir(_core) if not name.startswith("_") and not name.isupper()}
        found = {name for name in found if re.fullmatch(r"[A-Z0-9_]+", name) is None}
        self.assertEqual(found - own, set(functions) | set(structs))

    def test_documentation_comes_from_the_headers(self):
        self.assertIn("Takes `num_pages` pages from a group", _core.pool_alloc.__doc__)
        self.assertIn("position", _core.table_write.__doc__)

    def test_names_of_the_package(self):
        for name in pagedkv.__all__:
            self.assertTrue(hasattr(pagedkv, name), name)
        self.assertEqual(pagedkv.__version__, pagedkv.version())
        self.assertIn(pagedkv.cpu_kernels(), ("avx512", "avx2", "neon", "portable"))

    def test_the_code_in_the_readmes_runs(self):
        here = os.path.dirname(os.path.abspath(__file__))
        paths = [os.path.join(here, "..", "README.md"), os.path.join(here, "..", "..", "..", "README.md")]
        if not all(map(os.path.exists, paths)):
            self.skipTest("the sources are not there")
        for path in paths:
            with open(path, encoding="utf-8") as file:
                (code,) = re.findall(r"^```python$\n(.*?)^```$", file.read(), re.M | re.S)
            code = code.replace("num_pages=4096", "num_pages=64").replace("8 << 30", "8 << 20")
            heads, dim = (2, 4) if "num_kv_heads=2" in code else (8, 128)
            dtype = "f" if 'dtype="f32"' in code else "H"

            def empty(count):
                return array(dtype, [1]) * (count * heads * dim)

            def model(first, second):
                tokens = first if isinstance(first, list) else second
                return empty(len(tokens)), empty(len(tokens))

            class Numpy:  # as much of it as is used
                empty = staticmethod(lambda shape, dtype: array(dtype[0], [0]) * (shape[0] * shape[1] * shape[2]))

            names = {"tokens": list(range(40)), "tenant": "t", "model": model, "k_out": empty(40), "v_out": empty(40), "np": Numpy}
            with self.subTest(path):
                exec(compile(code.replace("import numpy as np\n", ""), path, "exec"), names)
                self.assertEqual(names["match"].tokens, 0)
                self.assertEqual(names["k"][0] if isinstance(names["k"], array) else 1, 1)
                names["pool"].close()
                for one in names.get("tiers", ()):
                    one.close()

    def test_packed_structs_are_read_where_c_has_them(self):
        self.assertEqual((_core.KEY_BYTES, _core.TIER_KEY_BYTES, _core.EVENT_BYTES), (16, 32, 56))
        self.assertEqual((_core.COMPLETION_BYTES, _core.PAGE_COPY_BYTES), (24, 12))

    def test_constants(self):
        self.assertEqual(_core.MATCH_ALL, 2**64 - 1)
        self.assertEqual(_core.NO_PAGE, -1)
        self.assertEqual(_core.ERR_INTERNAL, -21)
        self.assertEqual(_core.DEBUG_POISON, 2)

    def test_structs_begin_as_in_c(self):
        self.assertEqual(_core.group_options().dtype, _core.DTYPE_F16)
        self.assertEqual(_core.retention().priority, 50)
        self.assertEqual(_core.pool_options().num_groups, 0)

    def test_structs_own_what_they_are_given(self):
        options = _core.prompt()
        tokens = array("i", range(100))
        options.set_tokens(tokens, 100)
        tokens[:] = array("i", [0] * 100)
        self.assertEqual(options.num_tokens, 100)
        options.add_media(1, 2, b"digest")
        with self.fails_with(Status.INVALID, "tokens has 3 entries, 4 are needed"):
            options.set_tokens([1, 2, 3], 4)
        group = _core.group_options()
        group.num_layers, group.num_kv_heads, group.scales = 2**32 - 1, 2**32 - 1, _core.SCALES_HEAD
        group.set_k_base([1, 2], 2)  # fewer than layers: the others are NULL, and refused
        group.set_k_scales([1.0], 1)
        pool = _core.pool_options()
        pool.page_tokens = 1
        group.num_layers = group.num_kv_heads = 3
        pool.add_group(group)
        with self.fails_with(Status.INVALID):
            _core.pool_create(pool, pagedkv.Pool.__new__(pagedkv.Pool))


class Leaks(Case):
    def stays_small(self, work, count, most):
        """What leaks grows in every window of so many rounds; what the allocator keeps does not."""

        def resident():
            with open("/proc/self/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        sizes = []
        while len(sizes) < 10:
            for _ in range(count):
                work()
            gc.collect()
            sizes.append(resident())
            if len(sizes) > 1 and sizes[-1] - sizes[-2] < most:
                return
        self.fail(f"the process grew with every {count} rounds: {sizes}")

    def test_tables_and_their_calls(self):
        with make_pool() as pool:
            k, v = rows(4)
            out = bytearray(4 * 32)
            tokens = list(range(4))

            def work():
                with pool.table() as table:
                    table.admit(tokens, namespace=pagedkv.Namespace("m" * 200), media=[(1, 1, b"x" * 200)])
                    table.write(0, 0, k, v)
                    table.info()
                    table.pages()
                    try:
                        table.gather(0, 9, out)
                    except pagedkv.InvalidError:
                        pass
                    table.fork().close()

            self.stays_small(work, 2500, 1 << 20)

    def test_pools_tiers_and_sessions(self):
        def work():
            with pagedkv.Tier.host(1 << 16) as tier, make_pool(tiers=[tier], num_pages=16) as pool:
                with pool.session(max_slices=100, max_tables=2), pool.batch(max_tables=2, max_tokens=2, max_blocks=2):
                    pool.layer_arrays(0)
                try:
                    make_pool(num_pages=0)
                except pagedkv.InvalidError:
                    pass

        self.stays_small(work, 100, 1 << 19)

    def test_structs_and_lists(self):
        def work():
            options = _core.prompt()
            options.set_tokens([1] * 100, 100)
            options.set_ns(pagedkv.Namespace("m" * 100)._native)
            options.add_media(1, 2, b"x" * 100)
            options.set_tokens([2] * 200, 200)
            pool = _core.pool_options()
            group = _core.group_options()
            group.num_layers = 100
            group.set_k_base([1] * 100, 100)
            pool.add_group(group)
            pool.add_group(group)
            file = _core.file_tier_options()
            file.set_path("x" * 100)
            file.set_path("y" * 100)
            sources = _core.prometheus_sources()
            pagedkv.digest(b"x" * 1000)
            try:
                options.set_tokens([1.5] * 100, 100)
            except TypeError:
                pass
            del sources

        self.stays_small(work, 2500, 1 << 20)

    @needs_numpy
    def test_references_of_arrays(self):
        with make_pool() as pool, filled(pool, [1, 2, 3, 4]) as table:
            out = numpy.zeros((4, 2, 4), "f4")

            def work(count):
                for _ in range(count):
                    table.gather(0, 0, out)
                    numpy.from_dlpack(pool.layer_arrays(0)[0])
                gc.collect()
                return sys.getrefcount(out), sys.getrefcount(None)

            before = work(1000)
            after = work(2000)
            self.assertEqual(after[0], before[0])
            self.assertLess(abs(after[1] - before[1]), 1000)


class Devices(Case):
    def test_a_device_that_is_not_there_is_said_to_be_so(self):
        pagedkv.device_available("host")
        for device in ("cuda:1000", "cuda:9999"):
            with self.fails_with(Status.UNSUPPORTED):
                pagedkv.device_available(device)
            with self.assertRaises(pagedkv.UnsupportedError) as context:
                make_pool(device=device)
            self.assertTrue(context.exception.detail)
        for bad in ("gpu", "cuda:", "cuda:x", "cuda:-1", "host:1", "cpu:0", ""):
            if bad == "cuda:":
                continue  # as "cuda"
            with self.fails_with(Status.INVALID, "device"):
                make_pool(device=bad)

    def test_a_host_pool_has_nothing_to_order(self):
        with make_pool(device="cpu") as pool:
            pool.order()

    def test_arrays_of_another_device_are_not_for_a_pool_on_the_host(self):
        arrays = [HandMade(bytearray(8 * 4 * 2 * 4 * 4), (8, 4, 2, 4), 2, 32, device=(2, 0)) for _ in range(4)]
        with self.fails_with(Status.INVALID, "on device 2:0, the pool on 1:0"):
            make_pool(k_arrays=arrays[:2], v_arrays=arrays[2:])

    def test_a_pool_on_a_device_of_host_memory(self):
        # What is a device to the library, and memory to a test that knows it: rows go from one pool's pages to another's, and back.
        build = os.environ.get("BUILD", "build")
        folder = os.path.join(os.path.abspath(build), "tests", "device", "fake")
        if not os.path.exists(os.path.join(folder, "libpagedkv-cuda.so")):
            self.skipTest("no GPU here: and no device of host memory is built")
        os.environ["PKV_PLUGIN_DIR"], os.environ["PKV_FAKE_DEVICE"] = folder, "open"
        try:
            out = in_process(
                """
                import ctypes, os, sys
                sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)  # the device takes symbols of the library
                import pagedkv as p
                from support import HandMade, make_pool, rows
                k, v = rows(8)
                p.device_available("cuda")
                with make_pool(device="cuda:0", num_layers=1) as pool, make_pool(device="cuda", num_layers=1) as other:
                    view, _ = other.layer_arrays(0)
                    assert view.__dlpack_device__() == (2, 0)
                    for stream in (-1, None):
                        view.__dlpack__(stream=stream)
                    try:
                        memoryview(view)
                    except BufferError as error:
                        print(error)
                    here = HandMade(None, (8, 2, 4), 2, 32, device=(2, 0), address=view.address)
                    ctypes.memmove(view.address, k.tobytes(), 256)
                    with pool.table() as table:
                        table.admit(list(range(8)))
                        table.write(0, 0, here, here)
                        table.commit(8)
                        pool.order()
                        ctypes.memset(view.address, 0, 256)
                        table.gather(0, 0, here)
                        print(ctypes.string_at(view.address, 256) == k.tobytes())
                        try:
                            table.write(0, 0, k, v)
                        except p.InvalidError as error:
                            print(error.detail)
                        assert here.deleted == 3
                print(bytes(pool.aux(0, size=1)) if not pool.closed else "end")
                """
            )
        finally:
            del os.environ["PKV_PLUGIN_DIR"], os.environ["PKV_FAKE_DEVICE"]
        self.assertEqual(
            out.splitlines(),
            [
                "the memory is on a device: use DLPack",
                "True",
                "k: the array is on device 1:0, the pool on 2:0 (1 is the host, 2 is CUDA): move it first",
                "end",
            ],
        )

    def test_a_step_in_a_stream_of_a_device_of_host_memory(self):
        build = os.environ.get("BUILD", "build")
        folder = os.path.join(os.path.abspath(build), "tests", "device", "fake")
        if not os.path.exists(os.path.join(folder, "libpagedkv-cuda.so")):
            self.skipTest("no GPU here: and no device of host memory is built")
        os.environ["PKV_PLUGIN_DIR"], os.environ["PKV_FAKE_DEVICE"] = folder, "open"
        try:
            out = in_process(
                f"""
                import ctypes, os, sys
                from array import array
                sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
                import pagedkv as p
                from support import HandMade, make_pool
                p.device_available("cuda")
                plugin = ctypes.CDLL({os.path.join(folder, "libpagedkv-cuda.so")!r})
                plugin.fake_device.restype = ctypes.POINTER(ctypes.c_void_p)
                calls = plugin.fake_device()
                make_stream = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32)(calls[4])
                finish = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(calls[8])
                stream = make_stream(0)
                sync = p.cuda_stream(stream)
                rows = array("f", range(32 * 8))
                here = HandMade(None, (32, 2, 4), 2, 32, device=(2, 0), address=rows.buffer_info()[0])
                with p.Tier.host(1 << 20) as tier, make_pool(device="cuda", num_pages=32, num_layers=1, tiers=[tier]) as pool:
                    with pool.table() as table, pool.session(num_buffers=2, staging_pages=[4]) as session:
                        table.admit(list(range(32)))
                        table.write(0, 0, here, here, sync=sync)
                        table.commit(32, sync)
                        print(table.spill(0, 6).spilled_blocks)
                        for given in (None, sync):
                            seen = 0
                            with session.step([table]) as step:
                                for view in step.layer(0, sync=given):
                                    if given is not None:
                                        assert view.slices is None and view.indptr is None and view.first_block is None
                                        try:
                                            view.k
                                        except p.StateError as error:
                                            message = error.detail
                                        finish(stream)
                                    slices = (ctypes.c_int32 * view.num_slices).from_address(view.slices_address)
                                    assert given is not None or list(view.slices) == list(slices)
                                    for one in slices:
                                        at = view.layout.k_base_address + one * view.layout.k_page_stride
                                        assert ctypes.c_float.from_address(at).value == seen * 32, (seen, one)
                                        seen += 1
                            print(seen, list(step.statuses))
                        finish(stream)
                print(message)
                """
            )
        finally:
            del os.environ["PKV_PLUGIN_DIR"], os.environ["PKV_FAKE_DEVICE"]
        self.assertEqual(
            out.splitlines(),
            ["6", "8 [0]", "8 [0]", "k and v: which slices there are is known in the stream; layout has the addresses"],
        )

    def test_a_pool_on_a_gpu(self):
        try:
            pagedkv.device_available("cuda")
        except pagedkv.UnsupportedError as error:
            self.skipTest(f"no GPU here: {error.detail}")
        with make_pool(device="cuda") as pool, pool.table() as table:
            k, _ = pool.layer_arrays(0)
            self.assertEqual(k.__dlpack_device__(), (2, 0))
            with self.assertRaises(BufferError):
                memoryview(k)
            k.__dlpack__(stream=-1), k.__dlpack__(stream=1), k.__dlpack__()
            table.admit([1, 2, 3])
            with self.fails_with(Status.INVALID, "move it first"):
                table.write(0, 0, *rows(3))


class Nodes(Case):
    def setUp(self):
        super().setUp()
        try:
            pagedkv.Node(bytes(32), provider="tcp").close()
        except pagedkv.UnsupportedError as error:
            self.skipTest(f"no nodes here: {error.detail}")

    def test_images_of_another_node(self):
        self.read_from_another(copy=False)

    def test_copies_of_images_of_another_node(self):
        self.read_from_another(copy=True)

    def read_from_another(self, copy):
        key = os.urandom(32)
        tokens = list(range(1, 9))
        with pagedkv.Tier.host(1 << 20) as tier, make_pool(tiers=[pagedkv.Attachment(tier, "write_through")]) as pool:
            filled(pool, tokens).close()
            pool.flush(10)
            serves = dict(listen="127.0.0.1:0", name="giver", tiers=[tier], pools=[pool], promote=True, copy=copy)
            with pagedkv.Node(key, provider="tcp", **serves) as giver:
                with pagedkv.Node(key, provider="tcp") as reader:
                    reader.connect(giver.address, timeout=10)
                    (peer,) = reader.peers()
                    self.assertEqual((peer.address, peer.name, peer.connected), (giver.address, "giver", True))
                    with reader.tier() as remote, make_pool(tiers=[pagedkv.Attachment(remote, "read_only", timeout=10)]) as other:
                        with other.table() as table:
                            self.assertEqual(table.admit(tokens + [9]).tier_tokens[0], 8)
                            table.restore(timeout=30)
                            out = array("f", bytes(8 * 32))
                            table.gather(1, 0, out)
                            self.assertEqual(out, rows(8)[0])
                    self.assertGreater(reader.stats().bytes_read, 0)
                    self.assertEqual(giver.stats().bytes_served > 0, copy)  # those that were copied for it
                    self.assertIn("tcp", reader.stats().provider)
                    reader.disconnect(giver.address)
                    with self.fails_with(Status.NOT_FOUND):
                        reader.disconnect(giver.address)

    def test_a_sequence_is_handed_over(self):
        key = os.urandom(32)
        with make_pool() as pool, make_pool(page_tokens=8) as other, filled(pool, list(range(1, 8))) as table:
            with pagedkv.Node(key, listen="127.0.0.1:0", provider="tcp") as giver, pagedkv.Node(key, provider="tcp") as taker:
                with giver.offer(table, lifetime=30) as offer:
                    self.assertEqual(offer.info().num_tokens, 7)
                    with taker.pull(other, offer.ticket, timeout=30) as op:
                        op.wait(30)
                        with op.table() as pulled:
                            self.assertEqual(pulled.info().committed, 7)
                            out = array("f", bytes(7 * 32))
                            pulled.gather(1, 0, None, out)
                            self.assertEqual(out, rows(7)[1])
                            self.assertIs(pulled.pool, other)
                    offer.op.wait(10)
                with self.fails_with(Status.INVALID):
                    taker.pull(other, b"no ticket")

    def test_a_sequence_is_handed_over_layer_by_layer(self):
        key, tokens = os.urandom(32), list(range(1, 8))
        with make_pool() as pool, make_pool() as other, pool.table() as table, pagedkv.Queue() as queue:
            table.admit(tokens)
            with pagedkv.Node(key, listen="127.0.0.1:0", provider="tcp") as giver, pagedkv.Node(key, provider="tcp") as taker:
                with self.fails_with(Status.STATE):
                    giver.offer(table)  # nothing is committed
                with giver.offer(table, num_tokens=7, max_pulls=2) as offer:
                    self.assertEqual((offer.info().num_tokens, offer.info().ready_tokens), (7, 0))
                    taker.pull(other, [offer.ticket], queue=queue, user=5, timeout=30)
                    k, v = rows(7)
                    for layer in range(2):
                        table.write(layer, 0, k, v)
                        offer.ready(7, group=0, layer=layer)
                    offer.ready(7)
                    with self.fails_with(Status.INVALID):
                        offer.ready(8)
                    (ended,) = queue.drain(timeout=30)
                    self.assertEqual((ended.user, ended.status), (5, Status.OK))
                    with ended.op.table() as pulled:
                        out = array("f", bytes(7 * 32)), array("f", bytes(7 * 32))
                        pulled.gather(1, 0, *out)
                        self.assertEqual(out, (k, v))
                        with self.fails_with(Status.STATE):
                            ended.op.table()
                    ended.op.close()
                    for _ in range(1000):  # the giver hears of it a moment later
                        if offer.info().pulls:
                            break
                        time.sleep(0.01)
                    self.assertEqual((offer.info().status, offer.info().pulls), (Status.BUSY, 1))
                    ticket = offer.ticket
                with self.fails_with(Status.HANDLE):
                    offer.info()
                with taker.pull(other, ticket, timeout=30) as op:
                    with self.fails_with(Status.NOT_FOUND):  # withdrawn
                        op.wait(30)
                    with self.fails_with(Status.NOT_FOUND):
                        op.table()

    def test_keys_and_addresses_that_are_none(self):
        with self.fails_with(Status.INVALID):
            pagedkv.Node(b"short")
        with pagedkv.Node(os.urandom(32), provider="tcp") as node:
            with self.fails_with(Status.STATE):
                node.address
            with self.fails_with(Status.INVALID):
                node.connect("nowhere")
            with self.assertRaises(TypeError):
                pagedkv.Node(os.urandom(32), colour="red")


if __name__ == "__main__":
    unittest.main()
