/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a pool as an object: the buffer protocol and DLPack, without a copy. The memory stays mapped as long as a view
 * lives, also after the pool was closed: an anchor, an empty table, keeps it (types.h, convention 3). */
#include "core.h"

#include <structmember.h>

/* ---- anchors ---- */

/* Shared by the views of a pool; the geometry knows it as long as there is one. */
typedef struct pkvpy_anchor {
    PyObject_HEAD
    pkvpy_geometry *geometry;
    pkv_table *table; /* NULL over memory of the caller's, which the geometry keeps */
    uint64_t pool;    /* its handle */
} pkvpy_anchor;

static void anchor_dealloc(pkvpy_anchor *self) {
    if (self->geometry != NULL && self->geometry->anchor == self) self->geometry->anchor = NULL;
    if (self->table != NULL) {
        Py_BEGIN_ALLOW_THREADS
        (void)pkv_table_destroy(self->table, NULL);
        Py_END_ALLOW_THREADS
    }
    Py_XDECREF(self->geometry);
    PyObject_Free(self);
}

static PyTypeObject anchor_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "pagedkv._core.Anchor",
    .tp_basicsize = sizeof(pkvpy_anchor),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = (destructor)anchor_dealloc,
};

static uint64_t pool_of(const pkvpy_handle *handle) {
    while (handle != NULL && handle->kind != PKVPY_pkv_pool) handle = (const pkvpy_handle *)handle->parent;
    return handle != NULL ? handle->value : 0;
}

static PyObject *anchor_of(const pkvpy_handle *handle) {
    pkvpy_geometry *const geometry = handle->geometry;
    if (geometry->anchor != NULL) {
        Py_INCREF(geometry->anchor);
        return (PyObject *)geometry->anchor;
    }
    pkvpy_anchor *const anchor = PyObject_New(pkvpy_anchor, &anchor_type);
    if (anchor == NULL) return NULL;
    anchor->table = NULL;
    anchor->pool = pool_of(handle);
    Py_INCREF(geometry);
    anchor->geometry = geometry;
    if (geometry->keep == Py_None) {
        const pkv_status status = pkv_table_create((pkv_pool *)(uintptr_t)pool_of(handle), &anchor->table);
        if (status != PKV_OK) {
            pkvpy_raise_last(status);
            Py_DECREF(anchor);
            return NULL;
        }
    }
    geometry->anchor = anchor;
    return (PyObject *)anchor;
}

/* ---- views ---- */

typedef struct {
    PyObject_HEAD
    PyObject *anchor;
    pkvpy_memory memory;
    int32_t dtype;
    const char *format;
} pkvpy_view;

static const char *format_of(int32_t dtype) {
    switch (dtype) {
    case PKV_DTYPE_F32: return "f";
    case PKV_DTYPE_F16: return "e";
    case PKV_DTYPE_BF16: return "H"; /* no format of the buffer protocol: its bits */
    case PKV_DTYPE_I8: return "b";
    default: return "B";
    }
}

static int read_dims(PyObject *object, int64_t *dims, int *count, const char *what) {
    PyObject *const fast = PySequence_Fast(object, what);
    if (fast == NULL) return -1;
    *count = (int)PySequence_Fast_GET_SIZE(fast);
    int result = *count >= 1 && *count <= PKVPY_MAX_DIMS ? 0 : -1;
    if (result != 0) PyErr_Format(PyExc_ValueError, "%s: 1 to %d numbers", what, PKVPY_MAX_DIMS);
    for (int i = 0; i < *count && result == 0; ++i) {
        dims[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast, i));
        if (dims[i] < 0) result = -1;
        if (result != 0 && !PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "%s: below 0", what);
    }
    Py_DECREF(fast);
    return result;
}

PyObject *pkvpy_make_view(PyObject *Py_UNUSED(module), PyObject *args) {
    pkvpy_handle *handle;
    unsigned long long address;
    int dtype, writable, host = 0, ndim = 0, num_strides = 0;
    PyObject *shape, *strides;
    pkvpy_memory memory = {0};
    if (!PyArg_ParseTuple(args, "O!KiOOp|p:memory", &pkvpy_handle_type, &handle, &address, &dtype, &shape, &strides, &writable, &host))
        return NULL;
    if (handle->geometry == NULL || handle->value == 0 || address == 0) {
        pkvpy_raise(handle->value == 0 ? PKV_ERR_HANDLE : PKV_ERR_UNSUPPORTED, "there is no memory to look at");
        return NULL;
    }
    if (read_dims(shape, memory.shape, &ndim, "shape") != 0 || read_dims(strides, memory.strides, &num_strides, "strides") != 0)
        return NULL;
    if (ndim != num_strides) {
        PyErr_SetString(PyExc_ValueError, "as many strides as dimensions");
        return NULL;
    }
    PyObject *const anchor = anchor_of(handle);
    pkvpy_view *const view = anchor != NULL ? PyObject_New(pkvpy_view, &pkvpy_view_type) : NULL;
    if (view == NULL) {
        Py_XDECREF(anchor);
        return NULL;
    }
    const uint64_t bytes = pkv_dtype_bytes(dtype);
    memory.data = (void *)(uintptr_t)address;
    memory.ndim = ndim;
    memory.itemsize = bytes != 0 ? (int64_t)bytes : 1;
    memory.kind = dtype == PKV_DTYPE_I8 ? 'i' : dtype == PKV_DTYPE_F32 || dtype == PKV_DTYPE_F16 ? 'f' : 'u';
    memory.readonly = !writable;
    memory.device_type = host ? 1 : handle->geometry->device_type;
    memory.device_id = host ? 0 : handle->geometry->device_id;
    view->anchor = anchor;
    view->memory = memory;
    view->dtype = dtype;
    view->format = format_of(dtype);
    return (PyObject *)view;
}

static void view_dealloc(pkvpy_view *self) {
    Py_CLEAR(self->anchor);
    PyObject_Free(self);
}

static bool view_contiguous(const pkvpy_memory *memory) {
    int64_t expected = memory->itemsize;
    for (int i = memory->ndim; i-- > 0;) {
        if (memory->shape[i] > 1 && memory->strides[i] != expected) return false;
        expected *= memory->shape[i];
    }
    return true;
}

static int view_getbuffer(pkvpy_view *self, Py_buffer *buffer, int flags) {
    pkvpy_memory *const memory = &self->memory;
    const char *problem = NULL;
    if (memory->device_type != 1) problem = "the memory is on a device: use DLPack";
    if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE && memory->readonly) problem = "the view is read-only";
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !view_contiguous(memory)) problem = "the view is not contiguous";
    if ((flags & (PyBUF_C_CONTIGUOUS | PyBUF_F_CONTIGUOUS | PyBUF_ANY_CONTIGUOUS) & ~PyBUF_STRIDES) != 0 && !view_contiguous(memory))
        problem = "the view is not contiguous";
    if (problem != NULL) {
        buffer->obj = NULL;
        PyErr_SetString(PyExc_BufferError, problem);
        return -1;
    }
    buffer->buf = memory->data;
    buffer->itemsize = memory->itemsize;
    buffer->readonly = memory->readonly;
    buffer->ndim = memory->ndim;
    buffer->len = memory->itemsize;
    for (int i = 0; i < memory->ndim; ++i) buffer->len *= memory->shape[i];
    buffer->format = (flags & PyBUF_FORMAT) == PyBUF_FORMAT ? (char *)self->format : NULL;
    buffer->shape = (flags & PyBUF_ND) == PyBUF_ND ? (Py_ssize_t *)memory->shape : NULL;
    buffer->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? (Py_ssize_t *)memory->strides : NULL;
    buffer->suboffsets = NULL;
    buffer->internal = NULL;
    Py_INCREF(self);
    buffer->obj = (PyObject *)self;
    return 0;
}

/* What calls have handed out is ready for kernels in the consumer's stream: its address, or 1 and 2 for CUDA's default streams; -1
 * for "do nothing". Without a stream it is waited for. */
static int order_stream(const pkvpy_view *self, PyObject *stream) {
    pkv_sync sync = PKV_SYNC_INIT;
    const bool named = stream != NULL && stream != Py_None;
    if (named) {
        const long long number = PyLong_AsLongLong(stream);
        if (number == -1) return PyErr_Occurred() ? -1 : 0;
        sync.kind = PKV_SYNC_CUDA_STREAM;
        sync.handle = (void *)(uintptr_t)number;
    }
    pkv_pool *const pool = (pkv_pool *)(uintptr_t)((pkvpy_anchor *)self->anchor)->pool;
    pkv_status status;
    Py_BEGIN_ALLOW_THREADS
    status = pkv_pool_order(pool, named ? &sync : NULL);
    Py_END_ALLOW_THREADS
    if (status == PKV_OK || status == PKV_ERR_HANDLE) return 0; /* of a pool that is closed nothing is under way */
    pkvpy_raise_last(status);
    return -1;
}

static PyObject *view_dlpack(pkvpy_view *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = NULL, *version = NULL, *device = NULL, *copy = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &version, &device, &copy)) return NULL;
    if (copy == Py_True) {
        PyErr_SetString(PyExc_BufferError, "a view is never copied");
        return NULL;
    }
    if (device != NULL && device != Py_None) {
        int type = 0, id = 0;
        if (!PyArg_ParseTuple(device, "ii", &type, &id)) return NULL;
        if (type != self->memory.device_type || id != self->memory.device_id) {
            PyErr_SetString(PyExc_BufferError, "the memory is on another device");
            return NULL;
        }
    }
    if (self->memory.device_type == 2 && order_stream(self, stream) != 0) return NULL;
    return pkvpy_dlpack_capsule((PyObject *)self, &self->memory, self->dtype, version);
}

static PyObject *view_dlpack_device(pkvpy_view *self, PyObject *Py_UNUSED(args)) {
    return Py_BuildValue("(ii)", (int)self->memory.device_type, (int)self->memory.device_id);
}

static PyObject *dims(const int64_t *values, int count) {
    PyObject *const tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; ++i) {
        PyObject *const value = PyLong_FromLongLong(values[i]);
        if (value == NULL) {
            Py_DECREF(tuple);
            return NULL;
        }
        PyTuple_SET_ITEM(tuple, i, value);
    }
    return tuple;
}

static PyObject *view_shape(pkvpy_view *self, void *Py_UNUSED(closure)) { return dims(self->memory.shape, self->memory.ndim); }
static PyObject *view_strides(pkvpy_view *self, void *Py_UNUSED(closure)) { return dims(self->memory.strides, self->memory.ndim); }
static PyObject *view_address(pkvpy_view *self, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)self->memory.data);
}
static PyObject *view_dtype(pkvpy_view *self, void *Py_UNUSED(closure)) { return PyLong_FromLong(self->dtype); }

static PyMethodDef view_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))view_dlpack, METH_VARARGS | METH_KEYWORDS, "The memory as a DLPack capsule."},
    {"__dlpack_device__", (PyCFunction)view_dlpack_device, METH_NOARGS, "(device type, device id)"},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef view_getset[] = {
    {"shape", (getter)view_shape, NULL, "Entries of each dimension.", NULL},
    {"strides", (getter)view_strides, NULL, "Bytes from entry to entry of each dimension.", NULL},
    {"address", (getter)view_address, NULL, "Where it begins.", NULL},
    {"dtype", (getter)view_dtype, NULL, "DTYPE_* of the elements.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyBufferProcs view_buffer = {(getbufferproc)view_getbuffer, NULL};

PyTypeObject pkvpy_view_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "pagedkv.View",
    .tp_doc = "Memory of a pool: an array by the buffer protocol (numpy.asarray) or DLPack (torch.from_dlpack), without a copy.",
    .tp_basicsize = sizeof(pkvpy_view),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = (destructor)view_dealloc,
    .tp_as_buffer = &view_buffer,
    .tp_methods = view_methods,
    .tp_getset = view_getset,
};

int pkvpy_ready_anchor(void) { return PyType_Ready(&anchor_type); }
