/* SPDX-License-Identifier: Apache-2.0 */
/* DLPack, in both directions. The structs are those of its C ABI (https://dmlc.github.io/dlpack/latest/c_api.html), versions
 * 0.x ("dltensor") and 1.x ("dltensor_versioned"). */
#include "core.h"

typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides; /* elements; NULL: contiguous */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags; /* 1: read-only */
    dl_tensor tensor;
} dl_versioned;

enum { CODE_INT = 0, CODE_UINT = 1, CODE_FLOAT = 2, CODE_BFLOAT = 4, CODE_E4M3 = 10, CODE_E5M2 = 12 };

static char kind_of_code(uint8_t code) {
    switch (code) {
    case CODE_INT: return 'i';
    case CODE_UINT: return 'u';
    case CODE_FLOAT: return 'f';
    case CODE_BFLOAT: return 'g';
    case CODE_E4M3: return '4';
    case CODE_E5M2: return '5';
    default: return 'V';
    }
}

/* ---- in ---- */

static int read_tensor(const dl_tensor *tensor, pkvpy_memory *memory, const char *what) {
    if (tensor->ndim < 0 || tensor->ndim > PKVPY_MAX_DIMS) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: %d dimensions, more than %d", what, (int)tensor->ndim, PKVPY_MAX_DIMS);
        return -1;
    }
    if (tensor->lanes != 1 || tensor->bits % 8 != 0 || tensor->bits == 0) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: elements of %d lanes of %d bits", what, (int)tensor->lanes, (int)tensor->bits);
        return -1;
    }
    memory->data = (char *)tensor->data + tensor->byte_offset;
    memory->ndim = tensor->ndim;
    memory->itemsize = tensor->bits / 8;
    memory->kind = kind_of_code(tensor->code);
    memory->device_type = tensor->device_type;
    memory->device_id = tensor->device_id;
    int64_t stride = memory->itemsize;
    for (int i = tensor->ndim; i-- > 0;) {
        memory->shape[i] = tensor->shape[i];
        memory->strides[i] = tensor->strides != NULL ? tensor->strides[i] * memory->itemsize : stride;
        stride *= tensor->shape[i];
    }
    return 0;
}

static int take_capsule(pkvpy_memory *memory, const char *what) {
    PyObject *const capsule = memory->capsule;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dl_versioned *const managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (managed->major != 1) {
            pkvpy_raise(PKV_ERR_UNSUPPORTED, "%s: DLPack version %u.%u", what, (unsigned)managed->major, (unsigned)managed->minor);
            return -1;
        }
        if (read_tensor(&managed->tensor, memory, what) != 0) return -1;
        if (PyCapsule_SetName(capsule, "used_dltensor_versioned") != 0) return -1;
        memory->managed = managed;
        memory->versioned = true;
        memory->readonly = (managed->flags & 1) != 0;
        return 0;
    }
    if (!PyCapsule_IsValid(capsule, "dltensor")) {
        PyErr_Format(PyExc_TypeError, "%s: __dlpack__() gave no capsule named dltensor", what);
        return -1;
    }
    dl_managed *const managed = PyCapsule_GetPointer(capsule, "dltensor");
    if (read_tensor(&managed->tensor, memory, what) != 0) return -1;
    if (PyCapsule_SetName(capsule, "used_dltensor") != 0) return -1;
    memory->managed = managed;
    return 0;
}

int pkvpy_open_dlpack(PyObject *object, pkvpy_memory *memory, const char *what) {
    PyObject *const method = PyObject_GetAttrString(object, "__dlpack__");
    if (method == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
        PyErr_Format(PyExc_TypeError, "%s: %.100s has neither the buffer protocol nor __dlpack__", what, Py_TYPE(object)->tp_name);
        return -1;
    }
    memory->capsule = PyObject_CallNoArgs(method);
    if (memory->capsule == NULL && PyErr_ExceptionMatches(PyExc_BufferError)) { /* read-only: the later kind can say so */
        PyErr_Clear();
        PyObject *const none = PyTuple_New(0), *const version = Py_BuildValue("{s(ii)}", "max_version", 1, 0);
        if (none != NULL && version != NULL) memory->capsule = PyObject_Call(method, none, version);
        Py_XDECREF(none);
        Py_XDECREF(version);
    }
    Py_DECREF(method);
    return memory->capsule != NULL ? take_capsule(memory, what) : -1;
}

void pkvpy_close_dlpack(pkvpy_memory *memory) {
    if (memory->managed != NULL && memory->versioned) {
        dl_versioned *const managed = memory->managed;
        if (managed->deleter != NULL) managed->deleter(managed);
    } else if (memory->managed != NULL) {
        dl_managed *const managed = memory->managed;
        if (managed->deleter != NULL) managed->deleter(managed);
    }
    memory->managed = NULL;
    Py_CLEAR(memory->capsule);
}

/* ---- out ---- */

typedef struct {
    dl_managed plain;
    dl_versioned later;
    PyObject *owner;
    int64_t shape[PKVPY_MAX_DIMS], strides[PKVPY_MAX_DIMS];
} exported;

/* May be called by any thread, with or without the interpreter lock. */
static void drop(exported *self) {
    if (Py_IsInitialized()) {
        const PyGILState_STATE state = PyGILState_Ensure();
        Py_DECREF(self->owner);
        PyGILState_Release(state);
    }
    free(self);
}
static void drop_plain(dl_managed *managed) { drop(managed->context); }
static void drop_later(dl_versioned *managed) { drop(managed->context); }

static void capsule_end(PyObject *capsule) { /* nobody took it */
    exported *self = NULL;
    if (PyCapsule_IsValid(capsule, "dltensor"))
        self = ((dl_managed *)PyCapsule_GetPointer(capsule, "dltensor"))->context;
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        self = ((dl_versioned *)PyCapsule_GetPointer(capsule, "dltensor_versioned"))->context;
    if (self != NULL) drop(self);
}

static void dtype_of(int32_t dtype, const pkvpy_memory *memory, dl_tensor *tensor) {
    tensor->lanes = 1;
    tensor->bits = (uint8_t)(memory->itemsize * 8);
    switch (dtype) {
    case PKV_DTYPE_F32:
    case PKV_DTYPE_F16: tensor->code = CODE_FLOAT; break;
    case PKV_DTYPE_BF16: tensor->code = CODE_BFLOAT; break;
    case PKV_DTYPE_F8_E4M3: tensor->code = CODE_E4M3; break;
    case PKV_DTYPE_F8_E5M2: tensor->code = CODE_E5M2; break;
    case PKV_DTYPE_I8: tensor->code = CODE_INT; break;
    default: tensor->code = memory->kind == 'i' ? CODE_INT : memory->kind == 'f' ? CODE_FLOAT : CODE_UINT; break;
    }
}

PyObject *pkvpy_dlpack_capsule(PyObject *owner, const pkvpy_memory *memory, int32_t dtype, PyObject *max_version) {
    bool later = false;
    if (max_version != NULL && max_version != Py_None) {
        long major = 0, minor = 0;
        if (!PyArg_ParseTuple(max_version, "ll", &major, &minor)) return NULL;
        later = major >= 1;
    }
    if (!later && memory->readonly) {
        PyErr_SetString(PyExc_BufferError, "read-only memory goes out by DLPack 1.0 or later only (max_version)");
        return NULL;
    }
    exported *const self = calloc(1, sizeof *self);
    if (self == NULL) return PyErr_NoMemory();
    dl_tensor *const tensor = later ? &self->later.tensor : &self->plain.tensor;
    tensor->data = memory->data;
    tensor->device_type = memory->device_type;
    tensor->device_id = memory->device_id;
    tensor->ndim = memory->ndim;
    dtype_of(dtype, memory, tensor);
    for (int i = 0; i < memory->ndim; ++i) {
        if (memory->strides[i] % memory->itemsize != 0) {
            free(self);
            PyErr_SetString(PyExc_BufferError, "strides that are no multiple of the element cannot go out by DLPack");
            return NULL;
        }
        self->shape[i] = memory->shape[i];
        self->strides[i] = memory->strides[i] / memory->itemsize;
    }
    tensor->shape = self->shape;
    tensor->strides = self->strides;
    self->owner = owner;
    self->plain.context = self->later.context = self;
    self->plain.deleter = drop_plain;
    self->later.deleter = drop_later;
    self->later.major = 1;
    self->later.flags = memory->readonly ? 1 : 0;
    PyObject *const capsule = later ? PyCapsule_New(&self->later, "dltensor_versioned", capsule_end)
                                    : PyCapsule_New(&self->plain, "dltensor", capsule_end);
    if (capsule == NULL)
        free(self);
    else
        Py_INCREF(owner);
    return capsule;
}
