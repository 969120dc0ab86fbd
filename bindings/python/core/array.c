/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of Python objects: by the buffer protocol, or by DLPack where an object has only that. Held while a call lasts. */
#include "core.h"

#include <limits.h>

/* ---- memory ---- */

/* A struct-module format of one element: its kind, or 0 for one that cannot be used. */
static char kind_of_format(const char *format, int64_t itemsize) {
    if (format == NULL) return 'u'; /* bytes */
    char order = '@';
    if (strchr("@=<>!", *format) != NULL && *format != '\0') order = *format++;
    if ((order == '>' || order == '!') && itemsize > 1) return 0;
    if (format[0] == '\0' || format[1] != '\0') return 'V';
    switch (*format) {
    case 'b': case 'h': case 'i': case 'l': case 'q': case 'n': return 'i';
    case 'B': case 'H': case 'I': case 'L': case 'Q': case 'N': case 'c': return 'u';
    case 'e': case 'f': case 'd': return 'f';
    default: return 'V';
    }
}

static int open_buffer(PyObject *object, pkvpy_memory *memory, bool writable, const char *what) {
    Py_buffer *const buffer = &memory->buffer;
    if (PyObject_GetBuffer(object, buffer, PyBUF_STRIDES | PyBUF_FORMAT) != 0) return -1;
    memory->data = buffer->buf;
    memory->ndim = buffer->ndim;
    memory->itemsize = buffer->itemsize;
    memory->kind = kind_of_format(buffer->format, buffer->itemsize);
    memory->readonly = buffer->readonly != 0;
    memory->device_type = 1;
    memory->device_id = 0;
    if (memory->kind == 0) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: elements of format '%s' have the other byte order", what, buffer->format);
        return -1;
    }
    if (buffer->ndim > PKVPY_MAX_DIMS) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: %d dimensions, more than %d", what, buffer->ndim, PKVPY_MAX_DIMS);
        return -1;
    }
    for (int i = 0; i < buffer->ndim; ++i) {
        memory->shape[i] = buffer->shape[i];
        memory->strides[i] = buffer->strides[i];
    }
    if (writable && memory->readonly) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: the array is read-only, and the call writes into it", what);
        return -1;
    }
    return 0;
}

int pkvpy_open_memory(PyObject *object, pkvpy_memory *memory, bool writable, const char *what) {
    if (PyObject_CheckBuffer(object)) return open_buffer(object, memory, writable, what);
    if (pkvpy_open_dlpack(object, memory, what) != 0) return -1;
    if (writable && memory->readonly) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: the array is read-only, and the call writes into it", what);
        return -1;
    }
    return 0;
}

void pkvpy_close_memory(pkvpy_memory *memory) {
    if (memory->buffer.obj == NULL && memory->managed == NULL && memory->capsule == NULL) return;
    /* Giving it back may run code of the owner's, also while an exception is on its way. */
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (memory->buffer.obj != NULL) PyBuffer_Release(&memory->buffer);
    pkvpy_close_dlpack(memory);
    if (PyErr_Occurred()) PyErr_WriteUnraisable(NULL);
    PyErr_Restore(type, value, traceback);
}

static bool is_contiguous(const pkvpy_memory *memory) {
    int64_t expected = memory->itemsize;
    for (int i = memory->ndim; i-- > 0;) {
        if (memory->shape[i] != 1 && memory->strides[i] != expected) return memory->shape[i] == 0;
        expected *= memory->shape[i];
    }
    return true;
}

static uint64_t num_elements(const pkvpy_memory *memory) {
    uint64_t count = 1;
    for (int i = 0; i < memory->ndim; ++i) count *= (uint64_t)memory->shape[i];
    return count;
}

/* ---- lists of numbers ---- */

static const struct {
    char kind;
    uint8_t size;
    const char *name;
    long long min;
    unsigned long long max;
} elements[] = {
    [PKVPY_I32] = {'i', 4, "int32", INT32_MIN, INT32_MAX},      [PKVPY_U32] = {'u', 4, "uint32", 0, UINT32_MAX},
    [PKVPY_I64] = {'i', 8, "int64", INT64_MIN, INT64_MAX},      [PKVPY_U64] = {'u', 8, "uint64", 0, UINT64_MAX},
    [PKVPY_F32] = {'f', 4, "float32", 0, 0},                    [PKVPY_U8] = {'u', 1, "uint8", 0, UINT8_MAX},
};

/* A number of one of the other types. */
typedef struct {
    bool negative;
    unsigned long long bits; /* of the two's complement */
} number;

static bool fits(pkvpy_element element, number n) {
    if (n.negative) return (long long)n.bits >= elements[element].min;
    return n.bits <= elements[element].max;
}

static void put(pkvpy_element element, void *data, uint64_t i, number n) {
    switch (elements[element].size) {
    case 1: ((uint8_t *)data)[i] = (uint8_t)n.bits; break;
    case 4: ((uint32_t *)data)[i] = (uint32_t)n.bits; break;
    default: ((uint64_t *)data)[i] = n.bits; break;
    }
}

static int out_of_range(pkvpy_element element, const char *what, uint64_t i) {
    pkvpy_raise(PKV_ERR_INVALID, "%s[%llu] does not fit %s", what, (unsigned long long)i, elements[element].name);
    return -1;
}

static void *make_copy(pkvpy_array *array, uint64_t count, size_t size) {
    array->copy = count < PY_SSIZE_T_MAX / size ? PyMem_Malloc((size_t)count * size + (count == 0)) : NULL;
    if (array->copy == NULL) PyErr_NoMemory();
    array->data = array->copy;
    array->count = count;
    return array->copy;
}

/* A strided or differently typed one-dimensional array. */
static int convert_memory(pkvpy_element element, const char *what, pkvpy_array *array) {
    const pkvpy_memory *const memory = &array->memory;
    const bool floats = elements[element].kind == 'f';
    const int64_t size = memory->itemsize;
    const char *const first = memory->data;
    if (memory->ndim != 1) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: %d dimensions that are not contiguous, or not of %s", what, memory->ndim,
                    elements[element].name);
        return -1;
    }
    const bool good = floats ? memory->kind == 'f' && (size == 4 || size == 8)
                             : (memory->kind == 'i' || memory->kind == 'u') && (size == 1 || size == 2 || size == 4 || size == 8);
    if (!good) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: elements of kind '%c' with %lld bytes do not become %s", what, memory->kind,
                    (long long)size, elements[element].name);
        return -1;
    }
    const uint64_t count = (uint64_t)memory->shape[0];
    void *const data = make_copy(array, count, elements[element].size);
    if (data == NULL) return -1;
    for (uint64_t i = 0; i < count; ++i) {
        const char *const at = first + (int64_t)i * memory->strides[0];
        if (floats) {
            double wide;
            float narrow;
            if (size == 4)
                memcpy(&narrow, at, sizeof narrow);
            else
                memcpy(&wide, at, sizeof wide), narrow = (float)wide;
            ((float *)data)[i] = narrow;
            continue;
        }
        number n = {false, 0};
        memcpy(&n.bits, at, (size_t)size); /* little-endian, as every host of this library */
        const unsigned shift = (unsigned)(64 - 8 * size);
        if (memory->kind == 'i') n.bits = (unsigned long long)((long long)(n.bits << shift) >> shift);
        n.negative = memory->kind == 'i' && (long long)n.bits < 0;
        if (!fits(element, n)) return out_of_range(element, what, i);
        put(element, data, i, n);
    }
    return 0;
}

static int convert_sequence(PyObject *object, pkvpy_element element, const char *what, pkvpy_array *array) {
    PyObject *const fast = PySequence_Fast(object, "");
    if (fast == NULL) {
        PyErr_Format(PyExc_TypeError, "%s: an array or a sequence of %s is wanted, not %.100s", what, elements[element].name,
                     Py_TYPE(object)->tp_name);
        return -1;
    }
    int result = 0;
    const uint64_t count = (uint64_t)PySequence_Fast_GET_SIZE(fast);
    void *const data = make_copy(array, count, elements[element].size);
    for (uint64_t i = 0; data != NULL && i < count && result == 0; ++i) {
        PyObject *const item = PySequence_Fast_GET_ITEM(fast, (Py_ssize_t)i);
        if (element == PKVPY_F32) {
            const double value = PyFloat_AsDouble(item);
            if (value == -1.0 && PyErr_Occurred()) result = -1;
            ((float *)data)[i] = (float)value;
            continue;
        }
        PyObject *const whole = PyNumber_Index(item);
        if (whole == NULL) {
            result = -1;
            break;
        }
        int overflow = 0;
        number n = {false, 0};
        const long long value = PyLong_AsLongLongAndOverflow(whole, &overflow);
        n.bits = (unsigned long long)value;
        n.negative = value < 0;
        bool good = overflow == 0;
        if (overflow > 0) {
            n.bits = PyLong_AsUnsignedLongLong(whole);
            n.negative = false;
            good = !PyErr_Occurred();
            PyErr_Clear();
        }
        Py_DECREF(whole);
        if (!good || !fits(element, n))
            result = out_of_range(element, what, i);
        else
            put(element, data, i, n);
    }
    Py_DECREF(fast);
    return data == NULL ? -1 : result;
}

static bool is_array(PyObject *object) {
    return PyObject_CheckBuffer(object) || PyObject_HasAttrString(object, "__dlpack__");
}

static bool on_host(const pkvpy_memory *memory, const char *what) {
    if (memory->device_type == 1 || memory->device_type == 3) return true; /* 3: host memory that CUDA has pinned */
    pkvpy_raise(PKV_ERR_INVALID, "%s: the array is on device %d:%d, and has to be in host memory", what, (int)memory->device_type,
                (int)memory->device_id);
    return false;
}

/* It can be taken as it is. Memory of no elements may be anywhere. */
static bool lies_as(const pkvpy_memory *memory, pkvpy_element element) {
    return memory->kind == elements[element].kind && memory->itemsize == elements[element].size && is_contiguous(memory) &&
           ((uintptr_t)memory->data % elements[element].size == 0 || num_elements(memory) == 0);
}

int pkvpy_read_array(PyObject *object, pkvpy_element element, const char *what, pkvpy_array *array) {
    if (object == Py_None) return 0;
    if (PyList_Check(object) || PyTuple_Check(object) || !is_array(object)) return convert_sequence(object, element, what, array);
    if (pkvpy_open_memory(object, &array->memory, false, what) != 0) return -1;
    if (!on_host(&array->memory, what)) return -1;
    if (!lies_as(&array->memory, element)) return convert_memory(element, what, array);
    array->data = array->memory.data;
    array->count = num_elements(&array->memory);
    return 0;
}

int pkvpy_write_array(PyObject *object, pkvpy_element element, const char *what, pkvpy_array *array) {
    if (object == Py_None) return 0;
    if (pkvpy_open_memory(object, &array->memory, true, what) != 0) return -1;
    if (!on_host(&array->memory, what)) return -1;
    if (!lies_as(&array->memory, element)) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: written in place, so it has to be a contiguous array of %s", what, elements[element].name);
        return -1;
    }
    array->data = array->memory.data;
    array->count = num_elements(&array->memory);
    return 0;
}

int pkvpy_packed_array(PyObject *object, uint64_t size, bool writable, const char *what, pkvpy_array *array) {
    if (object == Py_None) return 0;
    if (pkvpy_open_memory(object, &array->memory, writable, what) != 0) return -1;
    if (!on_host(&array->memory, what)) return -1;
    if (!is_contiguous(&array->memory)) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: the memory is not contiguous", what);
        return -1;
    }
    array->data = array->memory.data;
    array->count = num_elements(&array->memory) * (uint64_t)array->memory.itemsize / size;
    return 0;
}

int pkvpy_check_extent(const pkvpy_array *array, uint64_t wanted, const char *what) {
    if (array->data == NULL || array->count >= wanted) return 0;
    pkvpy_raise(PKV_ERR_INVALID, "%s has %llu entries, %llu are needed", what, (unsigned long long)array->count,
                (unsigned long long)wanted);
    return -1;
}

void pkvpy_close_array(pkvpy_array *array) {
    PyMem_Free(array->copy);
    pkvpy_close_memory(&array->memory);
}
