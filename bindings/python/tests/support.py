# SPDX-License-Identifier: Apache-2.0
"""What the tests share: small pools, rows with known bytes, and objects that offer memory in one way only."""

import contextlib
import ctypes
import gc
import threading
import unittest
import warnings
from array import array

import pagedkv

try:
    import numpy
except ImportError:
    numpy = None

needs_numpy = unittest.skipUnless(numpy, "numpy is not installed")


def make_pool(**options):
    given = dict(page_tokens=4, num_pages=8, num_layers=2, num_kv_heads=2, k_head_dim=4, v_head_dim=4, dtype="f32")
    given.update(options)
    return pagedkv.Pool(**given)


def rows(count, tag=1, heads=2, dim=4):
    """K and V of some tokens, as array.array of f32: flat."""
    k = array("f", [tag * 1000 + i for i in range(count * heads * dim)])
    return k, array("f", [-value for value in k])


def filled(pool, tokens, tag=1, layers=2):
    """A table with all its tokens written and committed."""
    table = pool.table()
    first = table.admit(tokens).tokens
    k, v = rows(len(tokens), tag)
    for layer in range(layers):
        table.write(layer, first, k[first * 8 :], v[first * 8 :])
    table.commit(len(tokens))
    return table


class Case(unittest.TestCase):
    """No test leaves objects open, threads running or warnings behind."""

    def setUp(self):
        gc.collect()
        self.threads = threading.active_count()
        caught = warnings.catch_warnings(record=True)
        self.caught = caught.__enter__()
        warnings.simplefilter("always")
        self.addCleanup(caught.__exit__, None, None, None)

    def tearDown(self):
        gc.collect()
        self.assertEqual([str(one.message) for one in self.caught], [])
        self.assertEqual(threading.active_count(), self.threads)

    @contextlib.contextmanager
    def fails_with(self, status, *texts):
        """Raises the exception of a status, whose detail has these words."""
        with self.assertRaises(pagedkv.PagedKVError) as context:
            yield context
        self.assertIs(type(context.exception), type(pagedkv.error_of(status)), context.exception)
        self.assertEqual(context.exception.status, status)
        for text in texts:
            self.assertIn(text, context.exception.detail)

    def in_thread(self, function):
        """A thread that runs a function: finish() joins it, and raises what it raised."""
        return Running(self, function)


class Running:
    def __init__(self, case, function):
        self.error = self.result = None
        self.function = function
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        case.addCleanup(self.thread.join)

    def run(self):
        try:
            self.result = self.function()
        except BaseException as error:
            self.error = error

    def finish(self, timeout=30):
        self.thread.join(timeout)
        if self.thread.is_alive():
            raise AssertionError("the thread has not ended")
        if self.error is not None:
            raise self.error
        return self.result


class OnlyDLPack:
    """A numpy array that has nothing but DLPack."""

    def __init__(self, wrapped):
        self.wrapped = wrapped
        self.calls = 0

    def __dlpack__(self, **kwargs):
        self.calls += 1
        return self.wrapped.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.wrapped.__dlpack_device__()


# ---- capsules made by hand, for what numpy cannot make ----


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class DLManaged(ctypes.Structure):
    pass


Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(DLManaged))
DLManaged._fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]


class Versioned(ctypes.Structure):
    pass


VersionedDeleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(Versioned))
Versioned._fields_ = [
    ("major", ctypes.c_uint32),
    ("minor", ctypes.c_uint32),
    ("context", ctypes.c_void_p),
    ("deleter", VersionedDeleter),
    ("flags", ctypes.c_uint64),
    ("tensor", DLTensor),
]

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class HandMade:
    """Memory as a DLPack tensor of any type, device and strides (in elements); counts how often it was given back."""

    def __init__(
        self, memory, shape, code, bits, *, strides=None, device=(1, 0), offset=0, lanes=1, version=None, readonly=False, address=None
    ):
        self.memory = None if memory is None else (ctypes.c_char * len(memory)).from_buffer(memory)
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        self.deleted = 0
        self.device = device
        if address is None:
            address = ctypes.addressof(self.memory)
        tensor = DLTensor(
            address, device[0], device[1], len(shape), code, bits, lanes, self.shape, self.strides, offset
        )

        def deleted(_):
            self.deleted += 1

        if version is None:
            self.name = b"dltensor"
            self.managed = DLManaged(tensor, None, Deleter(deleted))
        else:
            self.name = b"dltensor_versioned"
            self.managed = Versioned(version, 0, None, VersionedDeleter(deleted), int(readonly), tensor)

    def __dlpack__(self, **kwargs):
        return _new_capsule(ctypes.addressof(self.managed), self.name, None)

    def __dlpack_device__(self):
        return self.device
