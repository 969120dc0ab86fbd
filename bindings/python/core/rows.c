/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of rows as the library's tensors, prompts, and pieces of bytes. Strides are honoured or refused, never ignored. */
#include "core.h"

/* ---- rows ---- */

static const char side_names[2][2] = {"k", "v"};

static int32_t dtype_of_kind(char kind, int64_t itemsize) {
    if (kind == 'f' && itemsize == 4) return PKV_DTYPE_F32;
    if (kind == 'f' && itemsize == 2) return PKV_DTYPE_F16;
    if (kind == 'g' && itemsize == 2) return PKV_DTYPE_BF16;
    if (kind == '4' && itemsize == 1) return PKV_DTYPE_F8_E4M3;
    if (kind == '5' && itemsize == 1) return PKV_DTYPE_F8_E5M2;
    if (kind == 'i' && itemsize == 1) return PKV_DTYPE_I8;
    return 0;
}

/* The innermost dimensions [heads, elements], or what stands for both, as the group has them. `width` is the elements of a
 * row. Sets the strides, 0 = as the library takes them to be. */
static int place_rows(const pkvpy_memory *memory, uint32_t heads, uint64_t width, const char *what, pkv_tensor *tensor) {
    const int64_t *const shape = memory->shape, *const strides = memory->strides;
    const int64_t size = memory->itemsize;
    const uint64_t all = heads * width;
    const int last = memory->ndim - 1;
    if (memory->ndim == 0 || memory->ndim > 3) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: %d dimensions; rows are [tokens, heads, elements], [tokens, heads * elements] or flat", what,
                    memory->ndim);
        return -1;
    }
    if (shape[last] > 1 && strides[last] != size) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: the elements of a row are %lld bytes apart, not %lld: make the last dimension contiguous",
                    what, (long long)strides[last], (long long)size);
        return -1;
    }
    if (memory->ndim == 1) {
        if ((uint64_t)shape[0] % all != 0) {
            pkvpy_raise(PKV_ERR_INVALID, "%s: %lld elements are no multiple of a token's %llu", what, (long long)shape[0],
                        (unsigned long long)all);
            return -1;
        }
        tensor->num_tokens = (uint64_t)shape[0] / all;
        return 0;
    }
    if (memory->ndim == 3 && (uint64_t)shape[1] != heads) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: %lld heads, the group has %u", what, (long long)shape[1], heads);
        return -1;
    }
    const uint64_t wanted = memory->ndim == 3 ? width : all;
    if ((uint64_t)shape[last] != wanted) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: %lld elements in the last dimension, %llu are wanted", what, (long long)shape[last],
                    (unsigned long long)wanted);
        return -1;
    }
    tensor->num_tokens = (uint64_t)shape[0];
    const int64_t head_stride = memory->ndim == 3 ? strides[1] : (int64_t)width * size;
    /* Of strides that are negative, or 0 where they matter, the library would make something else. */
    if ((shape[0] > 1 && strides[0] <= 0) || (heads > 1 && head_stride <= 0)) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: strides of %lld and %lld bytes: reversed and broadcast arrays have to be copied first",
                    what, (long long)strides[0], (long long)head_stride);
        return -1;
    }
    tensor->token_stride = shape[0] > 1 ? (uint64_t)strides[0] : 0;
    tensor->head_stride = heads > 1 ? (uint64_t)head_stride : 0;
    return 0;
}

int pkvpy_open_rows(PyObject *object, const pkvpy_handle *handle, uint32_t group, int side, bool written, pkvpy_rows *rows) {
    if (object == Py_None) return 0;
    const pkvpy_geometry *const geometry = handle->geometry;
    const char *const what = side_names[side];
    pkvpy_memory *const memory = &rows->memory;
    pkv_tensor *const tensor = &rows->tensor;
    if (geometry == NULL || group >= geometry->num_groups) { /* the library says so, too, but looks at the rows first */
        pkvpy_raise(geometry == NULL ? PKV_ERR_HANDLE : PKV_ERR_INVALID, "group is %u, of a pool with %u groups", group,
                    geometry != NULL ? geometry->num_groups : 0);
        return -1;
    }
    if (pkvpy_open_memory(object, memory, written, what) != 0) return -1;
    const bool host = memory->device_type == 1 || memory->device_type == 3;
    if (host != (geometry->device_type == 1) || (!host && (memory->device_type != geometry->device_type || memory->device_id != geometry->device_id))) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: the array is on device %d:%d, the pool on %d:%d (1 is the host, 2 is CUDA): move it first",
                    what, (int)memory->device_type, (int)memory->device_id, (int)geometry->device_type, (int)geometry->device_id);
        return -1;
    }
    const int32_t dtype = geometry->groups[group].dtype;
    const uint32_t heads = geometry->groups[group].heads;
    const uint64_t row_bytes = geometry->groups[group].row_bytes[side];
    const uint64_t element = pkv_dtype_bytes(dtype);
    const int32_t known = dtype_of_kind(memory->kind, memory->itemsize);
    if (row_bytes == 0) {
        pkvpy_raise(PKV_ERR_INVALID, "%s: group %u has none", what, group);
        return -1;
    }
    tensor->struct_size = sizeof *tensor;
    tensor->data = memory->data;
    uint64_t width;
    if (known != 0 && element != 0) { /* a type that the library knows: its own, or to be converted */
        tensor->dtype = known;
        width = row_bytes / element;
    } else if (memory->kind == 'u' || memory->kind == 'V' || dtype == PKV_DTYPE_OPAQUE) { /* bytes, in the group's type */
        if (row_bytes % (uint64_t)memory->itemsize != 0) {
            pkvpy_raise(PKV_ERR_INVALID, "%s: elements of %lld bytes do not divide a row of %llu bytes", what,
                        (long long)memory->itemsize, (unsigned long long)row_bytes);
            return -1;
        }
        tensor->dtype = dtype;
        width = row_bytes / (uint64_t)memory->itemsize;
    } else {
        pkvpy_raise(PKV_ERR_UNSUPPORTED, "%s: elements of kind '%c' with %lld bytes", what, memory->kind, (long long)memory->itemsize);
        return -1;
    }
    return place_rows(memory, heads, width, what, tensor) == 0 ? 1 : -1;
}

void pkvpy_close_rows(pkvpy_rows *rows) { pkvpy_close_memory(&rows->memory); }

/* ---- prompts ---- */

static int open_media(PyObject *list, pkvpy_prompt *prompt) {
    PyObject *const fast = PySequence_Fast(list, "media is a list of (position, num_tokens, digest)");
    if (fast == NULL) return -1;
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
    prompt->media = PyMem_Calloc((size_t)count + 1, sizeof *prompt->media);
    prompt->digests = PyMem_Calloc((size_t)count + 1, sizeof *prompt->digests);
    int result = prompt->media != NULL && prompt->digests != NULL ? 0 : -1;
    if (result != 0) PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count && result == 0; ++i) {
        unsigned long long position = 0, tokens = 0;
        PyObject *const item = PySequence_Tuple(PySequence_Fast_GET_ITEM(fast, i));
        if (item == NULL || !PyArg_ParseTuple(item, "KKy*:media", &position, &tokens, &prompt->digests[i])) {
            result = -1;
        } else {
            ++prompt->num_digests;
            prompt->media[i].position = position;
            prompt->media[i].num_tokens = tokens;
            prompt->media[i].digest.data = prompt->digests[i].buf;
            prompt->media[i].digest.size = (uint64_t)prompt->digests[i].len;
        }
        Py_XDECREF(item);
    }
    prompt->prompt.media = prompt->media;
    prompt->prompt.num_media = (uint64_t)count;
    Py_DECREF(fast);
    return result;
}

int pkvpy_open_prompt(PyObject *object, pkv_namespace *(*to_namespace)(PyObject *), pkvpy_prompt *prompt) {
    PyObject *tokens, *ns, *media;
    if (!PyTuple_Check(object) || !PyArg_ParseTuple(object, "OOO:prompt", &tokens, &ns, &media)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a prompt is (tokens, namespace, media)");
        return -1;
    }
    prompt->prompt.struct_size = sizeof prompt->prompt;
    if (ns != Py_None) {
        prompt->prompt.ns = to_namespace(ns);
        if (prompt->prompt.ns == NULL) return -1;
    }
    if (pkvpy_read_array(tokens, PKVPY_I32, "tokens", &prompt->tokens) != 0) return -1;
    prompt->prompt.tokens = prompt->tokens.data;
    prompt->prompt.num_tokens = prompt->tokens.count;
    return media != Py_None ? open_media(media, prompt) : 0;
}

void pkvpy_close_prompt(pkvpy_prompt *prompt) {
    pkvpy_close_array(&prompt->tokens);
    for (uint64_t i = 0; i < prompt->num_digests; ++i) PyBuffer_Release(&prompt->digests[i]);
    PyMem_Free(prompt->media);
    PyMem_Free(prompt->digests);
}

/* ---- pieces ---- */

int pkvpy_open_pieces(PyObject *object, pkvpy_pieces *pieces) {
    PyObject *const fast = PySequence_Fast(object, "a sequence of bytes-like objects is wanted");
    if (fast == NULL) return -1;
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
    int result = 0;
    pieces->parts = PyMem_Calloc((size_t)count + 1, sizeof *pieces->parts);
    pieces->views = PyMem_Calloc((size_t)count + 1, sizeof *pieces->views);
    if (pieces->parts == NULL || pieces->views == NULL) {
        PyErr_NoMemory();
        result = -1;
    }
    for (Py_ssize_t i = 0; i < count && result == 0; ++i) {
        result = PyObject_GetBuffer(PySequence_Fast_GET_ITEM(fast, i), &pieces->views[i], PyBUF_SIMPLE);
        if (result != 0) break;
        ++pieces->count;
        pieces->parts[i].data = pieces->views[i].buf;
        pieces->parts[i].size = (uint64_t)pieces->views[i].len;
    }
    Py_DECREF(fast);
    return result;
}

void pkvpy_close_pieces(pkvpy_pieces *pieces) {
    for (uint64_t i = 0; i < pieces->count; ++i) PyBuffer_Release(&pieces->views[i]);
    PyMem_Free(pieces->parts);
    PyMem_Free(pieces->views);
}
