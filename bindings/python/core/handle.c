/* SPDX-License-Identifier: Apache-2.0 */
/* Handles as Python objects. A child keeps the object of its parent alive; what is still open when the last reference goes is
 * closed, with a ResourceWarning. */
#include "core.h"

#include <stdio.h>
#include <structmember.h>

static const char *const kind_names[] = {"object", "pool", "table", "batch", "tier", "queue", "operation", "session", "node", "offer"};

/* ---- geometry ---- */

static void geometry_dealloc(pkvpy_geometry *self) {
    PyObject_GC_UnTrack(self);
    Py_CLEAR(self->keep);
    PyObject_GC_Del(self);
}

static int geometry_traverse(pkvpy_geometry *self, visitproc visit, void *arg) {
    Py_VISIT(self->keep);
    return 0;
}

PyTypeObject pkvpy_geometry_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "pagedkv._core.Geometry",
    .tp_basicsize = sizeof(pkvpy_geometry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_dealloc = (destructor)geometry_dealloc,
    .tp_traverse = (traverseproc)geometry_traverse,
};

/* Asks an open pool for its shape. */
static pkvpy_geometry *measure(uint64_t value, PyObject *keep, int device_type, int device_id) {
    pkvpy_geometry *const geometry = PyObject_GC_New(pkvpy_geometry, &pkvpy_geometry_type);
    if (geometry == NULL) return NULL;
    geometry->num_groups = 0;
    geometry->page_tokens = 0;
    geometry->device_type = device_type;
    geometry->device_id = device_id;
    geometry->anchor = NULL;
    Py_INCREF(keep);
    geometry->keep = keep;
    memset(geometry->groups, 0, sizeof geometry->groups);
    PyObject_GC_Track((PyObject *)geometry);
    for (uint32_t g = 0; g < PKV_MAX_GROUPS; ++g) {
        pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
        const pkv_status status = pkv_pool_layout((pkv_pool *)(uintptr_t)value, g, 0, &layout);
        if (status == PKV_ERR_INVALID && g > 0) break; /* there is no such group */
        if (status != PKV_OK) {
            pkvpy_raise_last(status);
            Py_DECREF(geometry);
            return NULL;
        }
        geometry->groups[g].dtype = layout.dtype;
        geometry->groups[g].heads = layout.num_kv_heads;
        geometry->groups[g].row_bytes[0] = layout.k_row_bytes;
        geometry->groups[g].row_bytes[1] = layout.v_row_bytes;
        geometry->page_tokens = layout.page_tokens;
        geometry->num_groups = g + 1;
    }
    return geometry;
}

/* ---- calls ---- */

/* Calls on one thread follow each other: only another thread's matter. */
static bool calls_elsewhere(const pkvpy_handle *handle) {
    return handle != NULL && handle->calls != 0 && handle->thread != PyThread_get_thread_ident();
}

static bool in_use(const pkvpy_handle *handle) {
    return calls_elsewhere(handle) || handle->users != 0 || calls_elsewhere(handle->step[0]) || calls_elsewhere(handle->step[1]);
}

static void begin_call(pkvpy_handle *handle) {
    ++handle->calls;
    handle->thread = PyThread_get_thread_ident();
    for (int i = 0; i < 2; ++i)
        if (handle->step[i] != NULL) ++handle->step[i]->users;
}

static void end_call(pkvpy_handle *handle) {
    --handle->calls;
    for (int i = 0; i < 2; ++i)
        if (handle->step[i] != NULL) --handle->step[i]->users;
}

static pkvpy_handle *check_handle(PyObject *object, pkvpy_kind kind) {
    pkvpy_handle *const handle = (pkvpy_handle *)object;
    if (PyObject_TypeCheck(object, &pkvpy_handle_type) && (handle->kind == kind || handle->kind == PKVPY_NONE)) return handle;
    PyErr_Format(PyExc_TypeError, "a %s is wanted, not %.100s", kind_names[kind], Py_TYPE(object)->tp_name);
    return NULL;
}

pkvpy_handle *pkvpy_enter(PyObject *object, pkvpy_kind kind, bool exclusive) {
    pkvpy_handle *const handle = check_handle(object, kind);
    if (handle == NULL || !exclusive) return handle;
    if (in_use(handle)) {
        pkvpy_raise(PKV_ERR_BUSY, "another thread is in a call on this %s, or on what is in its step", kind_names[kind]);
        return NULL;
    }
    begin_call(handle);
    return handle;
}

void pkvpy_leave(pkvpy_handle *handle, bool exclusive) {
    if (handle != NULL && exclusive) end_call(handle);
}

int pkvpy_enter_list(PyObject *object, pkvpy_kind kind, pkvpy_handles *handles) {
    handles->list = PySequence_List(object);
    if (handles->list == NULL) return -1;
    const Py_ssize_t count = PyList_GET_SIZE(handles->list);
    handles->values = PyMem_Calloc((size_t)count + 1, sizeof *handles->values);
    if (handles->values == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; ++i) {
        pkvpy_handle *const handle = check_handle(PyList_GET_ITEM(handles->list, i), kind);
        if (handle == NULL) return -1;
        if (in_use(handle) && handle->calls == 0) { /* not by this very list, which may name it twice */
            pkvpy_raise(PKV_ERR_BUSY, "another thread is in a call on %s %zd, or on what is in its step", kind_names[kind], i);
            return -1;
        }
        if (calls_elsewhere(handle)) {
            pkvpy_raise(PKV_ERR_BUSY, "another thread is in a call on %s %zd", kind_names[kind], i);
            return -1;
        }
        handles->values[i] = (void *)(uintptr_t)handle->value;
        ++handle->calls;
        handle->thread = PyThread_get_thread_ident();
        ++handles->count;
    }
    return 0;
}

void pkvpy_leave_list(pkvpy_handles *handles) {
    for (uint64_t i = 0; i < handles->count; ++i) --((pkvpy_handle *)PyList_GET_ITEM(handles->list, (Py_ssize_t)i))->calls;
    PyMem_Free(handles->values);
    Py_CLEAR(handles->list);
}

void pkvpy_set_step(pkvpy_handle *owner, const pkvpy_handles *tables) {
    const int place = owner->kind == PKVPY_pkv_batch ? 0 : 1;
    PyObject *const former = owner->tables;
    owner->tables = NULL;
    for (Py_ssize_t i = 0; former != NULL && i < PyList_GET_SIZE(former); ++i) {
        pkvpy_handle *const table = (pkvpy_handle *)PyList_GET_ITEM(former, i);
        if (table->step[place] == owner) Py_CLEAR(table->step[place]);
    }
    Py_XDECREF(former);
    owner->rows = 0;
    if (tables == NULL) return;
    owner->rows = (uint32_t)tables->count;
    Py_INCREF(tables->list);
    owner->tables = tables->list;
    for (uint64_t i = 0; i < tables->count; ++i) {
        pkvpy_handle *const table = (pkvpy_handle *)PyList_GET_ITEM(tables->list, (Py_ssize_t)i);
        Py_INCREF(owner);
        Py_XSETREF(table->step[place], owner);
    }
}

/* ---- life ---- */

pkvpy_handle *pkvpy_blank(PyObject *object) {
    if (!PyObject_TypeCheck(object, &pkvpy_handle_type)) {
        PyErr_SetString(PyExc_TypeError, "a handle to be opened is wanted");
        return NULL;
    }
    pkvpy_handle *const handle = (pkvpy_handle *)object;
    if (handle->value != 0) {
        pkvpy_raise(PKV_ERR_STATE, "this %s is open already", kind_names[handle->kind]);
        return NULL;
    }
    return handle;
}

void pkvpy_opened(pkvpy_handle *handle, pkvpy_kind kind, uint64_t value) {
    handle->kind = kind;
    handle->value = value;
}

void pkvpy_closed(pkvpy_handle *handle) { handle->value = 0; }

/* Without the interpreter lock: a close may wait for a call on another thread. */
static pkv_status close_value(pkvpy_kind kind, uint64_t value) {
    void *const handle = (void *)(uintptr_t)value;
    pkv_status status = PKV_OK;
    Py_BEGIN_ALLOW_THREADS
    switch (kind) {
    case PKVPY_pkv_pool: status = pkv_pool_destroy(handle); break;
    case PKVPY_pkv_table: status = pkv_table_destroy(handle, NULL); break;
    case PKVPY_pkv_batch: status = pkv_batch_destroy(handle); break;
    case PKVPY_pkv_tier: status = pkv_tier_close(handle); break;
    case PKVPY_pkv_queue: status = pkv_queue_destroy(handle); break;
    case PKVPY_pkv_op: status = pkv_op_close(handle); break;
    case PKVPY_pkv_prefetch: status = pkv_prefetch_close(handle, NULL); break;
    case PKVPY_pkv_node: status = pkv_node_close(handle); break;
    case PKVPY_pkv_offer: status = pkv_offer_close(handle); break;
    case PKVPY_NONE: break;
    }
    Py_END_ALLOW_THREADS
    return status;
}

static void handle_finalize(pkvpy_handle *self) {
    if (self->value == 0) return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (PyErr_ResourceWarning((PyObject *)self, 1, "unclosed %R", self) != 0) PyErr_WriteUnraisable((PyObject *)self);
    const uint64_t handle = self->value;
    self->value = 0;
    if (close_value(self->kind, handle) == PKV_ERR_BUSY && self->geometry != NULL && self->geometry->keep != NULL) {
        /* A transfer is still at work on the caller's arrays: better never to free them than too early. */
        Py_INCREF(self->geometry);
    }
    PyErr_Restore(type, value, traceback);
}

static int handle_clear(pkvpy_handle *self) {
    Py_CLEAR(self->step[0]);
    Py_CLEAR(self->step[1]);
    Py_CLEAR(self->tables);
    Py_CLEAR(self->parent);
    Py_CLEAR(self->keep);
    Py_CLEAR(self->geometry);
    return 0;
}

static int handle_traverse(pkvpy_handle *self, visitproc visit, void *arg) {
    Py_VISIT(self->step[0]);
    Py_VISIT(self->step[1]);
    Py_VISIT(self->tables);
    Py_VISIT(self->parent);
    Py_VISIT(self->keep);
    Py_VISIT(self->geometry);
    return 0;
}

static void handle_dealloc(pkvpy_handle *self) {
    if (PyObject_CallFinalizerFromDealloc((PyObject *)self) < 0) return;
    PyObject_GC_UnTrack(self);
    if (self->weak != NULL) PyObject_ClearWeakRefs((PyObject *)self);
    (void)handle_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* ---- methods ---- */

static PyObject *handle_adopt(pkvpy_handle *self, PyObject *parent) {
    if (parent != Py_None && !PyObject_TypeCheck(parent, &pkvpy_handle_type)) {
        PyErr_SetString(PyExc_TypeError, "the parent is no handle");
        return NULL;
    }
    if (parent == Py_None) {
        Py_CLEAR(self->parent);
        Py_RETURN_NONE;
    }
    pkvpy_geometry *const geometry = ((pkvpy_handle *)parent)->geometry;
    Py_XINCREF(geometry);
    Py_XSETREF(self->geometry, geometry);
    Py_INCREF(parent);
    Py_XSETREF(self->parent, parent);
    Py_RETURN_NONE;
}

static PyObject *handle_measure(pkvpy_handle *self, PyObject *args) {
    PyObject *keep;
    int device_type = 1, device_id = 0;
    if (!PyArg_ParseTuple(args, "O|ii:_measure", &keep, &device_type, &device_id)) return NULL;
    pkvpy_geometry *const geometry = measure(self->value, keep, device_type, device_id);
    if (geometry == NULL) return NULL;
    Py_XSETREF(self->geometry, geometry);
    Py_RETURN_NONE;
}

static PyObject *handle_keep(pkvpy_handle *self, PyObject *objects) {
    Py_INCREF(objects);
    Py_XSETREF(self->keep, objects);
    Py_RETURN_NONE;
}

static PyObject *handle_end_step(pkvpy_handle *self, PyObject *Py_UNUSED(args)) {
    pkvpy_set_step(self, NULL);
    Py_RETURN_NONE;
}

static PyObject *handle_groups(pkvpy_handle *self, PyObject *Py_UNUSED(args)) {
    if (self->geometry == NULL) return PyTuple_New(0);
    PyObject *const groups = PyTuple_New((Py_ssize_t)self->geometry->num_groups);
    for (uint32_t g = 0; groups != NULL && g < self->geometry->num_groups; ++g) {
        PyObject *const group = Py_BuildValue("(iIKK)", self->geometry->groups[g].dtype, self->geometry->groups[g].heads,
                                              (unsigned long long)self->geometry->groups[g].row_bytes[0],
                                              (unsigned long long)self->geometry->groups[g].row_bytes[1]);
        if (group == NULL) {
            Py_DECREF(groups);
            return NULL;
        }
        PyTuple_SET_ITEM(groups, (Py_ssize_t)g, group);
    }
    return groups;
}

static PyObject *handle_get_closed(pkvpy_handle *self, void *Py_UNUSED(closure)) { return PyBool_FromLong(self->value == 0); }
static PyObject *handle_get_value(pkvpy_handle *self, void *Py_UNUSED(closure)) { return PyLong_FromUnsignedLongLong(self->value); }
static PyObject *handle_get_rows(pkvpy_handle *self, void *Py_UNUSED(closure)) { return PyLong_FromUnsignedLong(self->rows); }
static PyObject *handle_get_page_tokens(pkvpy_handle *self, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLong(self->geometry != NULL ? self->geometry->page_tokens : 0);
}
static PyObject *handle_get_parent(pkvpy_handle *self, void *Py_UNUSED(closure)) {
    PyObject *const parent = self->parent != NULL ? self->parent : Py_None;
    Py_INCREF(parent);
    return parent;
}

static PyObject *handle_repr(pkvpy_handle *self) {
    if (self->value == 0) return PyUnicode_FromFormat("<%s closed>", Py_TYPE(self)->tp_name);
    char value[32];
    (void)snprintf(value, sizeof value, "0x%llx", (unsigned long long)self->value);
    return PyUnicode_FromFormat("<%s %s>", Py_TYPE(self)->tp_name, value);
}

static PyMethodDef handle_methods[] = {
    {"_adopt", (PyCFunction)handle_adopt, METH_O, "_adopt(parent): keeps the parent's object alive, and takes its geometry."},
    {"_measure", (PyCFunction)handle_measure, METH_VARARGS,
     "_measure(keep, device_type=1, device_id=0): asks a pool for its shape; keep: arrays under its pages."},
    {"_keep", (PyCFunction)handle_keep, METH_O, "_keep(objects): keeps objects alive as long as this one."},
    {"_end_step", (PyCFunction)handle_end_step, METH_NOARGS, "_end_step(): the step has ended, its tables are free."},
    {"_groups", (PyCFunction)handle_groups, METH_NOARGS, "_groups(): (dtype, heads, K row bytes, V row bytes) of each group."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef handle_getset[] = {
    {"closed", (getter)handle_get_closed, NULL, "True once it was closed.", NULL},
    {"_value", (getter)handle_get_value, NULL, "The handle's value; 0 when it is closed.", NULL},
    {"_rows", (getter)handle_get_rows, NULL, "Tables of the step that it is in.", NULL},
    {"_page_tokens", (getter)handle_get_page_tokens, NULL, "Tokens of a page.", NULL},
    {"_parent", (getter)handle_get_parent, NULL, "What it was made from.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject pkvpy_handle_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "pagedkv._core.Handle",
    .tp_doc = "A handle of the library: made empty, opened by a function of this module.",
    .tp_basicsize = sizeof(pkvpy_handle),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)handle_dealloc,
    .tp_finalize = (destructor)handle_finalize,
    .tp_traverse = (traverseproc)handle_traverse,
    .tp_clear = (inquiry)handle_clear,
    .tp_repr = (reprfunc)handle_repr,
    .tp_methods = handle_methods,
    .tp_getset = handle_getset,
    .tp_weaklistoffset = offsetof(pkvpy_handle, weak),
};
