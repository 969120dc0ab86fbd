/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of an object that the library keeps an address of: held as long as the pin lives, so that the object can neither move
 * nor free it (an array that is pinned cannot be resized). */
#include "core.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    pkvpy_memory memory;
} pkvpy_pin;

static PyObject *pin_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"array", "writable", "name", NULL};
    PyObject *object;
    int writable = 1;
    const char *what = "array";
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|ps:Pin", names, &object, &writable, &what)) return NULL;
    pkvpy_pin *const self = (pkvpy_pin *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    if (pkvpy_open_memory(object, &self->memory, writable != 0, what) != 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void pin_dealloc(pkvpy_pin *self) {
    pkvpy_close_memory(&self->memory);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *numbers(const int64_t *values, int count) {
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

static PyObject *pin_shape(pkvpy_pin *self, void *Py_UNUSED(closure)) { return numbers(self->memory.shape, self->memory.ndim); }
static PyObject *pin_strides(pkvpy_pin *self, void *Py_UNUSED(closure)) { return numbers(self->memory.strides, self->memory.ndim); }
static PyObject *pin_address(pkvpy_pin *self, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)self->memory.data);
}
static PyObject *pin_itemsize(pkvpy_pin *self, void *Py_UNUSED(closure)) { return PyLong_FromLongLong(self->memory.itemsize); }
static PyObject *pin_kind(pkvpy_pin *self, void *Py_UNUSED(closure)) { return PyUnicode_FromFormat("%c", self->memory.kind); }
static PyObject *pin_device(pkvpy_pin *self, void *Py_UNUSED(closure)) {
    return Py_BuildValue("(ii)", (int)self->memory.device_type, (int)self->memory.device_id);
}

static PyGetSetDef pin_getset[] = {
    {"shape", (getter)pin_shape, NULL, "Entries of each dimension.", NULL},
    {"strides", (getter)pin_strides, NULL, "Bytes from entry to entry of each dimension.", NULL},
    {"address", (getter)pin_address, NULL, "Where it begins.", NULL},
    {"itemsize", (getter)pin_itemsize, NULL, "Bytes of an element.", NULL},
    {"kind", (getter)pin_kind, NULL, "'i', 'u', 'f' ... as in core.h.", NULL},
    {"device", (getter)pin_device, NULL, "(type, id) as in DLPack.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject pkvpy_pin_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "pagedkv._core.Pin",
    .tp_doc = "Pin(array, writable=True, name='array'): holds an array's memory where it is.",
    .tp_basicsize = sizeof(pkvpy_pin),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = pin_new,
    .tp_dealloc = (destructor)pin_dealloc,
    .tp_getset = pin_getset,
};
