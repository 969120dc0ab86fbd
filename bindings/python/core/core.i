/* SPDX-License-Identifier: Apache-2.0 */
/* pagedkv._core: the C API, name by name, for the classes in pagedkv/. Handles are objects (handle.c), arrays whatever has
 * the buffer protocol or DLPack, statuses exceptions; results that are several come as a list. Everything that may wait or
 * copy runs without the interpreter lock. */
%module(package="pagedkv") core

%{
#include "core.h"

/* Whether a call wants a table, batch or session for itself: all do, but for these. The compiler answers it. */
#define PKVPY_EXCLUSIVE(function)                                                                                      \
    (strcmp(function, "table_destroy") != 0 && strcmp(function, "batch_destroy") != 0 &&                               \
     strcmp(function, "prefetch_close") != 0 && strcmp(function, "prefetch_get_stats") != 0)
#define PKVPY_SHARED(function) 0

#define PKVB_STEP_ROWS handle1->rows
#define PKVB_NUM_GROUPS(pool) (handle1->geometry != NULL ? handle1->geometry->num_groups : PKV_MAX_GROUPS)
%}

/* A struct has its fields, and no others. */
%pythonnondynamic;

/* ---- calls ---- */

%define PKV_LANGUAGE_FUNCTION(name)
%exception pkv_##name {
    Py_BEGIN_ALLOW_THREADS
    $action
    Py_END_ALLOW_THREADS
}
%enddef

/* ---- statuses ---- */

%define PKV_STATUS(type)
%typemap(out) type {
    if ($1 != PKV_OK) {
        PKVPY_RAISE_##type($1);
        SWIG_fail;
    }
    $result = SWIG_Py_Void();
}
%enddef
%{
#define PKVPY_RAISE_pkv_status(status) pkvpy_raise_last(status)
#define PKVPY_RAISE_pkvb_status(status) pkvpy_raise(status, "no memory for a copy")
%}

/* ---- handles ---- */

%define PKV_HANDLE(type, KIND)
%typemap(in) type * (pkvpy_handle *handle = NULL) {
    handle = pkvpy_enter($input, PKVPY_##type, PKVPY_##KIND("$symname"));
    if (handle == NULL) SWIG_fail;
    $1 = (type *)(uintptr_t)handle->value;
}
%typemap(freearg) type * {
    pkvpy_leave(handle$argnum, PKVPY_##KIND("$symname"));
}
%typemap(in) type ** (pkvpy_handle *opened = NULL, type *value = NULL) {
    opened = pkvpy_blank($input);
    if (opened == NULL) SWIG_fail;
    $1 = &value;
}
%typemap(argout) type ** {
    pkvpy_opened(opened$argnum, PKVPY_##type, (uint64_t)(uintptr_t)value$argnum);
}
%enddef

%define PKV_HANDLES(type, name)
%typemap(in) type *const *name (pkvpy_handles handles = {0}) {
    if (pkvpy_enter_list($input, PKVPY_##type, &handles) != 0) SWIG_fail;
    $1 = (type **)handles.values;
}
%typemap(check) type *const *name {
    if (handles$argnum.count < arg2) {
        pkvpy_raise(PKV_ERR_INVALID, "%llu tables, %llu are needed", (unsigned long long)handles$argnum.count,
                    (unsigned long long)arg2);
        SWIG_fail;
    }
}
%typemap(argout) type *const *name "" /* not that of type ** */
%typemap(freearg) type *const *name "pkvpy_leave_list(&handles$argnum);"
%enddef

/* ---- arrays ---- */

%{
#define PKVPY_ELEMENT_pkv_token PKVPY_I32
#define PKVPY_ELEMENT_pkv_page PKVPY_I32
#define PKVPY_ELEMENT_pkv_status PKVPY_I32
#define PKVPY_ELEMENT_pkv_slot PKVPY_I64
#define PKVPY_ELEMENT_int32_t PKVPY_I32
#define PKVPY_ELEMENT_uint32_t PKVPY_U32
#define PKVPY_ELEMENT_uint64_t PKVPY_U64
#define PKVPY_ELEMENT_uint8_t PKVPY_U8
#define PKVPY_ELEMENT_float PKVPY_F32
%}

%define PKVPY_ARRAY(type, parameter, name, open)
%typemap(in) parameter (pkvpy_array array = {0}) {
    if (open != 0) SWIG_fail;
    $1 = ($1_ltype)array.data;
}
%typemap(check) parameter {
    if (pkvpy_check_extent(&array$argnum, (uint64_t)(PKVB_EXTENT_$symname_##name), "$1_name") != 0) SWIG_fail;
}
%typemap(argout) parameter ""
%typemap(freearg) parameter "pkvpy_close_array(&array$argnum);"
%enddef

%define PKV_ARRAY_IN(type, name)
PKVPY_ARRAY(type, const type *name, name, pkvpy_read_array($input, PKVPY_ELEMENT_##type, "$1_name", &array))
%enddef
%define PKV_ARRAY_OUT(type, name)
PKVPY_ARRAY(type, type *name, name, pkvpy_write_array($input, PKVPY_ELEMENT_##type, "$1_name", &array))
%enddef
%define PKV_PACKED_IN(type, name)
PKVPY_ARRAY(type, const type *name, name, pkvpy_packed_array($input, sizeof(type), 0, "$1_name", &array))
%enddef
%define PKV_PACKED_OUT(type, name)
PKVPY_ARRAY(type, type *name, name, pkvpy_packed_array($input, sizeof(type), 1, "$1_name", &array))
%enddef
%define PKV_BYTES_OUT(name)
PKVPY_ARRAY(void, void *name, name, pkvpy_packed_array($input, 1, 1, "$1_name", &array))
%enddef

%define PKV_BYTES_IN
%typemap(in) (const void *data, uint64_t size) (pkvpy_array array = {0}) {
    if (pkvpy_packed_array($input, 1, 0, "$1_name", &array) != 0) SWIG_fail;
    $1 = array.data;
    $2 = array.count;
}
%typemap(freearg) (const void *data, uint64_t size) "pkvpy_close_array(&array$argnum);"
%enddef

%define PKV_BYTES_LIST
%typemap(in) (const pkv_bytes *parts, uint64_t num_parts) (pkvpy_pieces pieces = {0}) {
    if (pkvpy_open_pieces($input, &pieces) != 0) SWIG_fail;
    $1 = pieces.parts;
    $2 = pieces.count;
}
%typemap(freearg) (const pkv_bytes *parts, uint64_t num_parts) "pkvpy_close_pieces(&pieces$argnum);"
%enddef

%define PKV_TICKETS
%typemap(in) (uint32_t num_tickets, const pkv_bytes *tickets) (pkvpy_pieces pieces = {0}) {
    if (pkvpy_open_pieces($input, &pieces) != 0) SWIG_fail;
    $1 = (uint32_t)pieces.count;
    $2 = pieces.parts;
}
%typemap(freearg) (uint32_t num_tickets, const pkv_bytes *tickets) "pkvpy_close_pieces(&pieces$argnum);"
%enddef

/* Capacity goes in; what comes out is the text, or, for a capacity of 0, the bytes that it takes. */
%define PKV_TEXT_OUT
%typemap(in) (char *buffer, uint64_t capacity, uint64_t *size) (uint64_t needed = 0) {
    $2 = PyLong_AsUnsignedLongLong($input);
    if (PyErr_Occurred()) SWIG_fail;
    $1 = $2 != 0 ? PyMem_Malloc((size_t)$2) : NULL;
    if ($2 != 0 && $1 == NULL) {
        PyErr_NoMemory();
        SWIG_fail;
    }
    $3 = &needed;
}
%typemap(argout) (char *buffer, uint64_t capacity, uint64_t *size) {
    $result = SWIG_Python_AppendOutput($result, $1 != NULL ? PyUnicode_DecodeUTF8($1, (Py_ssize_t)strlen($1), "replace")
                                                           : PyLong_FromUnsignedLongLong(needed$argnum));
}
%typemap(freearg) (char *buffer, uint64_t capacity, uint64_t *size) "PyMem_Free($1);"
%enddef

%typemap(in) const char *path (PyObject *encoded = NULL) {
    if ($input != Py_None) {
        if (!PyUnicode_FSConverter($input, &encoded)) SWIG_fail;
        $1 = PyBytes_AS_STRING(encoded);
    }
}
%typemap(freearg) const char *path "Py_XDECREF(encoded$argnum);"

/* ---- results ---- */

%define PKV_VALUE_OUT(type, name)
%typemap(in, numinputs=0) type *name ($*1_ltype value) {
    memset(&value, 0, sizeof value);
    $1 = &value;
}
%typemap(argout) type *name "$result = SWIG_Python_AppendOutput($result, PyLong_FromUnsignedLongLong((uint64_t)value$argnum));"
%enddef

%define PKV_STRUCT_OUT(type, name)
%typemap(in, numinputs=0) pkv_##type *name {
    $1 = pkvb_new_##type();
    if ($1 == NULL) {
        PyErr_NoMemory();
        SWIG_fail;
    }
}
%typemap(argout) pkv_##type *name {
    $result = SWIG_Python_AppendOutput($result, SWIG_NewPointerObj($1, $1_descriptor, SWIG_POINTER_OWN));
    $1 = NULL;
}
%typemap(freearg) pkv_##type *name {
    pkvb_free_##type($1);
}
%enddef

/* ---- rows and prompts ---- */

/* In every function with rows the handle is the first argument, the group the second. */
%define PKV_TENSOR(name)
%typemap(in) const pkv_tensor *name (pkvpy_rows rows = {0}) {
    const int given = pkvpy_open_rows($input, handle1, arg2, PKVPY_SIDE_##name, PKVB_WRITES_$symname, &rows);
    if (given < 0) SWIG_fail;
    $1 = given ? &rows.tensor : NULL;
}
%typemap(check) const pkv_tensor *name {
    if ($1 != NULL) PKVPY_COUNT_ROWS_$symname($1->num_tokens);
}
%typemap(freearg) const pkv_tensor *name "pkvpy_close_rows(&rows$argnum);"
%enddef
/* A number of tokens of UINT64_MAX means all rows of the array. */
%{
#define PKVPY_COUNT_ROWS_table_write(count) if (arg5 == UINT64_MAX) arg5 = (count)
#define PKVPY_COUNT_ROWS_table_gather(count) if (arg5 == UINT64_MAX) arg5 = (count)
#define PKVPY_COUNT_ROWS_pool_write(count) (void)0
#define PKVPY_COUNT_ROWS_pool_gather(count) if (arg7 == UINT64_MAX) arg7 = (count)
#define PKVPY_COUNT_ROWS_batch_write(count) (void)0
#define PKVPY_COUNT_ROWS_batch_gather(count) (void)0
%}
%{
#define PKVPY_SIDE_k 0
#define PKVPY_SIDE_v 1
%}

%{
static pkv_namespace *pkvpy_to_namespace(PyObject *object) {
    void *found = NULL;
    if (SWIG_IsOK(SWIG_ConvertPtr(object, &found, SWIGTYPE_p_pkv_namespace, 0)) && found != NULL) return found;
    PyErr_SetString(PyExc_TypeError, "a namespace is wanted");
    return NULL;
}
%}
%typemap(in) const pkv_prompt *prompt (pkvpy_prompt given = {0}) {
    if (pkvpy_open_prompt($input, pkvpy_to_namespace, &given) != 0) SWIG_fail;
    $1 = &given.prompt;
}
%typemap(freearg) const pkv_prompt *prompt "pkvpy_close_prompt(&given$argnum);"

%include "pagedkv.i"

/* ---- calls that are special ---- */

/* Nothing that waits or copies: the lock is kept. */
%define PKVPY_QUICK(name)
%exception pkv_##name "$action"
%enddef
PKVPY_QUICK(version_number)
PKVPY_QUICK(version_string)
PKVPY_QUICK(status_string)
PKVPY_QUICK(dtype_bytes)
PKVPY_QUICK(cpu_kernels)
PKVPY_QUICK(table_get_info)

%define PKVPY_THEN(name, what)
%exception pkv_##name {
    Py_BEGIN_ALLOW_THREADS
    $action
    Py_END_ALLOW_THREADS
    what
}
%enddef
%define PKVPY_CLOSES(name)
PKVPY_THEN(name, if (result == PKV_OK) pkvpy_closed(handle1);)
%enddef
PKVPY_CLOSES(pool_destroy)
PKVPY_CLOSES(table_destroy)
PKVPY_CLOSES(batch_destroy)
PKVPY_CLOSES(tier_close)
PKVPY_CLOSES(queue_destroy)
PKVPY_CLOSES(op_close)
PKVPY_CLOSES(prefetch_close)
PKVPY_CLOSES(node_close)
PKVPY_CLOSES(offer_close)

/* Steps: which tables are in one decides how long its lists are. A call that gives the failure of a row has done the rest all the
 * same, and written every status; one that failed as a whole has written none. */
%{
enum { PKVPY_UNTOUCHED = 1 };
static void pkvpy_mark(pkv_status *statuses, uint64_t rows) {
    for (uint64_t i = 0; statuses != NULL && i < rows; ++i) statuses[i] = PKVPY_UNTOUCHED;
}
#define PKVPY_DONE(statuses, rows) (result == PKV_OK || ((rows) > 0 && (statuses) != NULL && (statuses)[0] != PKVPY_UNTOUCHED))
%}
%define PKVPY_STEP(name, statuses, rows, tables)
%exception pkv_##name {
    if (statuses == NULL && rows > 0) {
        PyErr_SetString(PyExc_TypeError, "an array of statuses is needed");
        SWIG_fail;
    }
    const uint64_t rows_of_step = rows;
    pkvpy_mark(statuses, rows_of_step);
    Py_BEGIN_ALLOW_THREADS
    $action
    Py_END_ALLOW_THREADS
    if (PKVPY_DONE(statuses, rows_of_step)) pkvpy_set_step(handle1, tables);
}
%enddef
PKVPY_STEP(batch_reserve, arg5, arg2, &handles3)
PKVPY_STEP(batch_commit, arg3, handle1->rows, NULL)
PKVPY_STEP(prefetch_step_begin, arg5, arg2, &handles3)
PKVPY_STEP(prefetch_step_end, arg2, handle1->rows, NULL)

%include "headers.i"

%init %{
    if (pkvpy_init(m) != 0) {
#if PY_VERSION_HEX >= 0x03000000
        return NULL;
#else
        return;
#endif
    }
%}
