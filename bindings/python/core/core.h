/* SPDX-License-Identifier: Apache-2.0 */
/* What the wrapper (core.i) is made of, besides what SWIG writes: handles, arrays, rows, views, errors, the log. All of it
 * is called with the interpreter lock held, unless it says otherwise. */
#ifndef PKV_PYTHON_CORE_H
#define PKV_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pagedkv/pagedkv.h>
#include <stdbool.h>
#include <stdint.h>

/* Hidden from other modules of the process. */
#define PKVPY __attribute__((visibility("hidden")))

/* ---- errors (error.c) ---- */

/* {status: exception class}; the class of status 0 stands for those that are not listed. */
PKVPY PyObject *pkvpy_set_errors(PyObject *classes);
/* Raises the exception of a status: with pkv_last_error of this thread, or with a text. */
PKVPY void pkvpy_raise_last(pkv_status status);
PKVPY void pkvpy_raise(pkv_status status, const char *format, ...);

/* ---- handles (handle.c) ---- */

typedef enum {
    PKVPY_NONE,
    PKVPY_pkv_pool,
    PKVPY_pkv_table,
    PKVPY_pkv_batch,
    PKVPY_pkv_tier,
    PKVPY_pkv_queue,
    PKVPY_pkv_op,
    PKVPY_pkv_prefetch,
    PKVPY_pkv_node,
    PKVPY_pkv_offer
} pkvpy_kind;

/* The shape of a pool's rows, and what has to live as long as anything of the pool: known to the pool and to all that was
 * made from it. */
typedef struct {
    PyObject_HEAD
    uint32_t num_groups;
    uint32_t page_tokens;
    struct {
        int32_t dtype;
        uint32_t heads;
        uint64_t row_bytes[2]; /* K, V; 0: there is no V */
    } groups[PKV_MAX_GROUPS];
    int32_t device_type; /* where pages lie, as DLPack numbers it: 1 the host, 2 CUDA */
    int32_t device_id;
    PyObject *keep;       /* the caller's arrays under the pages */
    struct pkvpy_anchor *anchor; /* not owned: view.c */
} pkvpy_geometry;

/* A handle: the base of the classes in Python. Made empty; a function with a `pkv_x **` parameter opens it. */
typedef struct pkvpy_handle {
    PyObject_HEAD
    uint64_t value; /* 0: not open */
    pkvpy_kind kind;
    uint32_t calls;       /* under way that want it for themselves, all on `thread` */
    unsigned long thread;
    uint32_t users;       /* calls under way on tables of this one's step */
    uint32_t rows;        /* tables of the step */
    struct pkvpy_handle *step[2]; /* a table's: the batch and the session in whose step it is */
    PyObject *tables;     /* a batch's or session's: a list of those in its step, or NULL */
    PyObject *parent;
    PyObject *keep;
    pkvpy_geometry *geometry;
    PyObject *weak;
} pkvpy_handle;

extern PKVPY PyTypeObject pkvpy_handle_type;
extern PKVPY PyTypeObject pkvpy_geometry_type;

/* The handle of a call's argument, or NULL with an exception. With `exclusive`, a table, batch or session that another
 * thread is in a call on raises the exception of PKV_ERR_BUSY: the library wants these from one thread at a time. */
PKVPY pkvpy_handle *pkvpy_enter(PyObject *object, pkvpy_kind kind, bool exclusive);
PKVPY void pkvpy_leave(pkvpy_handle *handle, bool exclusive);
/* The same for a list of tables. */
typedef struct {
    PyObject *list;
    void **values;
    uint64_t count; /* that were entered */
} pkvpy_handles;
PKVPY int pkvpy_enter_list(PyObject *object, pkvpy_kind kind, pkvpy_handles *handles);
PKVPY void pkvpy_leave_list(pkvpy_handles *handles);
/* From now on these are the tables of the step that `owner` is in; NULL: it is in none. What runs on one of them keeps other
 * threads from the owner, and the other way round. */
PKVPY void pkvpy_set_step(pkvpy_handle *owner, const pkvpy_handles *tables);

/* An object that is not open yet, or NULL with an exception. */
PKVPY pkvpy_handle *pkvpy_blank(PyObject *object);
PKVPY void pkvpy_opened(pkvpy_handle *handle, pkvpy_kind kind, uint64_t value);
PKVPY void pkvpy_closed(pkvpy_handle *handle);

/* ---- arrays (array.c, dlpack.c) ---- */

enum { PKVPY_MAX_DIMS = 8 };

/* Memory that an object offers, by the buffer protocol or by DLPack, while the call lasts. */
typedef struct {
    void *data;
    int ndim;
    int64_t shape[PKVPY_MAX_DIMS];
    int64_t strides[PKVPY_MAX_DIMS]; /* bytes */
    int64_t itemsize;
    char kind; /* 'i' 'u' 'f', 'g' bf16, '4' fp8 e4m3, '5' fp8 e5m2, 'V' any other */
    bool readonly;
    int32_t device_type, device_id;
    Py_buffer buffer; /* buffer.obj: in use */
    PyObject *capsule;
    void *managed; /* a DLManagedTensor, or with `versioned` the later kind */
    bool versioned;
} pkvpy_memory;

/* 0, or -1 with an exception. `what` names the argument. */
PKVPY int pkvpy_open_memory(PyObject *object, pkvpy_memory *memory, bool writable, const char *what);
PKVPY void pkvpy_close_memory(pkvpy_memory *memory);
PKVPY int pkvpy_open_dlpack(PyObject *object, pkvpy_memory *memory, const char *what);
PKVPY void pkvpy_close_dlpack(pkvpy_memory *memory);

typedef enum { PKVPY_I32, PKVPY_U32, PKVPY_I64, PKVPY_U64, PKVPY_F32, PKVPY_U8 } pkvpy_element;

/* A list of numbers: an array as it lies, or a copy of what has another type or is a sequence. */
typedef struct {
    void *data; /* NULL for None */
    uint64_t count;
    void *copy;
    pkvpy_memory memory;
} pkvpy_array;

PKVPY int pkvpy_read_array(PyObject *object, pkvpy_element element, const char *what, pkvpy_array *array);
/* Written in place: of exactly this type, contiguous, writable. */
PKVPY int pkvpy_write_array(PyObject *object, pkvpy_element element, const char *what, pkvpy_array *array);
/* Bytes, whatever they stand for: any contiguous memory; count is in elements of `size` bytes. */
PKVPY int pkvpy_packed_array(PyObject *object, uint64_t size, bool writable, const char *what, pkvpy_array *array);
PKVPY int pkvpy_check_extent(const pkvpy_array *array, uint64_t wanted, const char *what);
PKVPY void pkvpy_close_array(pkvpy_array *array);

/* ---- rows (rows.c) ---- */

typedef struct {
    pkv_tensor tensor;
    pkvpy_memory memory;
} pkvpy_rows;

/* Rows of K (side 0) or V (1) of a layer group, for a call on `handle`: 1 with rows, 0 for None, -1 with an exception. */
PKVPY int pkvpy_open_rows(PyObject *object, const pkvpy_handle *handle, uint32_t group, int side, bool written,
                          pkvpy_rows *rows);
PKVPY void pkvpy_close_rows(pkvpy_rows *rows);

/* A prompt: the tuple (tokens, namespace or None, media or None), media being a list of (position, num_tokens, digest). */
typedef struct {
    pkv_prompt prompt;
    pkvpy_array tokens;
    pkv_media *media;
    Py_buffer *digests;
    uint64_t num_digests;
} pkvpy_prompt;
PKVPY int pkvpy_open_prompt(PyObject *object, pkv_namespace *(*to_namespace)(PyObject *), pkvpy_prompt *prompt);
PKVPY void pkvpy_close_prompt(pkvpy_prompt *prompt);

/* Pieces of bytes. */
typedef struct {
    pkv_bytes *parts;
    Py_buffer *views;
    uint64_t count;
} pkvpy_pieces;
PKVPY int pkvpy_open_pieces(PyObject *object, pkvpy_pieces *pieces);
PKVPY void pkvpy_close_pieces(pkvpy_pieces *pieces);

/* ---- memory that is given out (view.c) ---- */

extern PKVPY PyTypeObject pkvpy_view_type;
PKVPY int pkvpy_ready_anchor(void);
/* memory(handle, address, dtype, shape, strides, writable, host=False): memory of the handle's pool, which stays mapped as long
 * as the view, and what was made from it, lives; `host`: not where pages lie, but in host memory. */
PKVPY PyObject *pkvpy_make_view(PyObject *module, PyObject *args);
/* A capsule for the view's memory; versioned if max_version, a tuple or NULL, is (1, 0) or later. */
PKVPY PyObject *pkvpy_dlpack_capsule(PyObject *owner, const pkvpy_memory *memory, int32_t dtype, PyObject *max_version);

/* ---- a counter to wait for (counter.c) ---- */

extern PKVPY PyTypeObject pkvpy_counter_type;

/* ---- memory that the library keeps an address of (pin.c) ---- */

extern PKVPY PyTypeObject pkvpy_pin_type;

/* ---- log (log.c) ---- */

/* set_log(function or None, max_level) */
PKVPY PyObject *pkvpy_set_log(PyObject *module, PyObject *args);
/* end_log(): for Python's atexit */
PKVPY PyObject *pkvpy_end_log(PyObject *module, PyObject *none);

/* Adds types and functions to the module: 0, or -1 with an exception. */
PKVPY int pkvpy_init(PyObject *module);

#endif
