/* SPDX-License-Identifier: Apache-2.0 */
/* A 64-bit counter that calls of the library wait for (PKV_SYNC_HOST_COUNTER). */
#include "core.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    uint64_t value; /* 8-byte aligned, as objects are */
} pkvpy_counter;

static PyObject *counter_get(pkvpy_counter *self, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLongLong(__atomic_load_n(&self->value, __ATOMIC_ACQUIRE));
}

static int counter_set(pkvpy_counter *self, PyObject *value, void *Py_UNUSED(closure)) {
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "value cannot be deleted");
        return -1;
    }
    const unsigned long long number = PyLong_AsUnsignedLongLong(value);
    if (number == (unsigned long long)-1 && PyErr_Occurred()) return -1;
    __atomic_store_n(&self->value, number, __ATOMIC_RELEASE);
    return 0;
}

static PyObject *counter_address(pkvpy_counter *self, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)&self->value);
}

static PyGetSetDef counter_getset[] = {
    {"value", (getter)counter_get, (setter)counter_set, "Read with acquire order, set with release order; from any thread.", NULL},
    {"address", (getter)counter_address, NULL, "Where it lies.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject pkvpy_counter_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "pagedkv._core.Counter",
    .tp_doc = "A 64-bit counter in memory.",
    .tp_basicsize = sizeof(pkvpy_counter),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_getset = counter_getset,
};
