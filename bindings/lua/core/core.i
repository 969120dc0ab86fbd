/* SPDX-License-Identifier: Apache-2.0 */
/* pagedkv.core: the C API, name by name, for the classes in pagedkv/init.lua. Handles are userdata (handles.c), lists tables of
 * numbers or buffers, bytes strings or buffers; results come back in order; a status is an error {status, name, detail}. */
%module core

%{
#include "core.h"

#define PKVB_STEP_ROWS handle1->rows
#define PKVB_NUM_GROUPS(pool) (handle1->num_groups != 0 ? handle1->num_groups : PKV_MAX_GROUPS)
%}

/* ---- statuses ---- */

%define PKV_STATUS(type)
%typemap(out) type {
    if ($1 != PKV_OK) {
        PKVLUA_RAISE_##type($1);
        SWIG_fail;
    }
}
%enddef
%{
#define PKVLUA_RAISE_pkv_status(status) (void)pkvlua_fail_last(L, status)
#define PKVLUA_RAISE_pkvb_status(status) (void)pkvlua_fail(L, status, "no memory for a copy")
%}

/* ---- numbers ---- */

%define PKVLUA_UNSIGNED(type, max)
%typemap(in) type {
    uint64_t number = 0;
    if (!pkvlua_unsigned(L, $input, max, "$1_name", &number)) SWIG_fail;
    $1 = (type)number;
}
%typemap(out) type "lua_pushinteger(L, (lua_Integer)$1); SWIG_arg++;"
%enddef
%define PKVLUA_SIGNED(type, min, max)
%typemap(in) type {
    int64_t number = 0;
    if (!pkvlua_signed(L, $input, min, max, "$1_name", &number)) SWIG_fail;
    $1 = (type)number;
}
%typemap(out) type "lua_pushinteger(L, (lua_Integer)$1); SWIG_arg++;"
%enddef
PKVLUA_UNSIGNED(uint64_t, UINT64_MAX)
PKVLUA_UNSIGNED(uint32_t, UINT32_MAX)
PKVLUA_SIGNED(int64_t, INT64_MIN, INT64_MAX)
PKVLUA_SIGNED(int32_t, INT32_MIN, INT32_MAX)
PKVLUA_SIGNED(pkv_page, INT32_MIN, INT32_MAX)
%typemap(in) uint64_t user, uint64_t seed, uint64_t value {
    if (!pkvlua_bits(L, $input, "$1_name", &$1)) SWIG_fail;
}

/* ---- handles ---- */

%define PKV_HANDLE(type, KIND)
%typemap(in) type * (pkvlua_handle *handle = NULL) {
    if (!pkvlua_to_handle(L, $input, PKVLUA_##type, &handle)) SWIG_fail;
    $1 = (type *)(uintptr_t)handle->value;
}
%typemap(in, numinputs=0) type ** (type *value = NULL, int num_args = lua_gettop(L)) "$1 = &value;"
%typemap(argout) type ** {
    pkvlua_push_handle(L, PKVLUA_##type, value$argnum, num_args$argnum); /* made from the arguments */
    SWIG_arg++;
}
%enddef

%define PKV_HANDLES(type, name)
%typemap(in) type *const *name (void **values = NULL, uint64_t count = 0) {
    if (!pkvlua_to_handles(L, $input, PKVLUA_##type, &values, &count)) SWIG_fail;
    $1 = (type **)values;
}
%typemap(check) type *const *name {
    if (count$argnum < arg2) {
        (void)pkvlua_fail(L, PKV_ERR_INVALID, "fewer tables than said");
        SWIG_fail;
    }
}
%typemap(argout) type *const *name ""
%typemap(freearg) type *const *name "free(values$argnum);"
%enddef

/* ---- lists ---- */

%{
#define PKVLUA_ELEMENT_pkv_token PKVLUA_I32
#define PKVLUA_ELEMENT_pkv_page PKVLUA_I32
#define PKVLUA_ELEMENT_pkv_status PKVLUA_I32
#define PKVLUA_ELEMENT_pkv_slot PKVLUA_I64
#define PKVLUA_ELEMENT_int32_t PKVLUA_I32
#define PKVLUA_ELEMENT_uint32_t PKVLUA_U32
#define PKVLUA_ELEMENT_uint64_t PKVLUA_U64
#define PKVLUA_ELEMENT_uint8_t PKVLUA_U8
#define PKVLUA_ELEMENT_float PKVLUA_F32
%}

%define PKVLUA_IN(type, name, read)
%typemap(in) const type *name (pkvlua_array array = {0}) {
    if (!read) SWIG_fail;
    $1 = ($1_ltype)array.data;
}
%typemap(check) const type *name {
    if (!pkvlua_check_extent(L, &array$argnum, (uint64_t)(PKVB_EXTENT_$symname_##name), "$1_name")) SWIG_fail;
}
%typemap(argout) const type *name ""
%typemap(freearg) const type *name "free(array$argnum.copy);"
%enddef
%define PKV_ARRAY_IN(type, name)
PKVLUA_IN(type, name, pkvlua_to_array(L, $input, PKVLUA_ELEMENT_##type, "$1_name", &array))
%enddef
%define PKV_PACKED_IN(type, name)
PKVLUA_IN(type, name, pkvlua_to_packed(L, $input, sizeof(type), "$1_name", &array))
%enddef

/* Lists that are written are results: made when all arguments are there. */
%define PKVLUA_OUT(type, name, push)
%typemap(in, numinputs=0) type *name (pkvlua_array array = {0}) ""
%typemap(check) type *name {
    if (!pkvlua_room(L, (uint64_t)(PKVB_EXTENT_$symname_##name), sizeof(*$1), &array$argnum)) SWIG_fail;
    $1 = array$argnum.data;
    PKVLUA_PREPARE_##type(array$argnum);
}
%typemap(argout) type *name {
    push;
    SWIG_arg++;
}
%typemap(freearg) type *name "free(array$argnum.copy);"
%enddef
/* Statuses: an argument says whether they are wanted; they are, in any case, where the low layer needs them. */
%{
#define PKVLUA_MAY_GO_WITHOUT(function) (strcmp(function, "pool_release") == 0)
%}
%define PKVLUA_STATUSES
%typemap(in) pkv_status *statuses (pkvlua_array array = {0}, bool wanted = false) {
    wanted = lua_toboolean(L, $input) || !PKVLUA_MAY_GO_WITHOUT("$symname");
}
%typemap(check) pkv_status *statuses {
    if (wanted$argnum && !pkvlua_room(L, (uint64_t)(PKVB_EXTENT_$symname_statuses), sizeof(*$1), &array$argnum)) SWIG_fail;
    $1 = array$argnum.data;
    pkvlua_mark(&array$argnum);
}
%enddef
%define PKV_ARRAY_OUT(type, name)
PKVLUA_OUT(type, name, pkvlua_push_array(L, PKVLUA_ELEMENT_##type, &array$argnum))
%enddef
%define PKV_PACKED_OUT(type, name)
PKVLUA_OUT(type, name, lua_pushlstring(L, array$argnum.data != NULL ? array$argnum.data : "", (size_t)array$argnum.count * sizeof(type)))
%enddef
/* Statuses begin as PKVLUA_UNTOUCHED: a call that failed as a whole has written none. */
%{
enum { PKVLUA_UNTOUCHED = 1 };
static void pkvlua_mark(const pkvlua_array *statuses) {
    for (uint64_t i = 0; i < statuses->count; ++i) ((pkv_status *)statuses->data)[i] = PKVLUA_UNTOUCHED;
}
#define PKVLUA_PREPARE_pkv_status(array) (void)0
#define PKVLUA_PREPARE_pkv_page(array) (void)0
#define PKVLUA_PREPARE_pkv_slot(array) (void)0
#define PKVLUA_PREPARE_int32_t(array) (void)0
#define PKVLUA_PREPARE_uint8_t(array) (void)0
#define PKVLUA_PREPARE_uint64_t(array) (void)0
#define PKVLUA_PREPARE_pkv_key(array) (void)0
#define PKVLUA_PREPARE_pkv_tier_key(array) (void)0
#define PKVLUA_PREPARE_pkv_event(array) (void)0
#define PKVLUA_PREPARE_pkv_page_copy(array) (void)0
#define PKVLUA_PREPARE_pkv_completion(array) (void)0
#define PKVLUA_PREPARE_pkv_node_peer(array) if (array.count > 0) *(size_t *)array.data = sizeof(pkv_node_peer)
%}

%define PKV_BYTES_OUT(name)
%typemap(in, numinputs=0) void *name (pkvlua_array array = {0}) ""
%typemap(check) void *name {
    if (!pkvlua_room(L, (uint64_t)(PKVB_EXTENT_$symname_##name), 1, &array$argnum)) SWIG_fail;
    $1 = array$argnum.data;
}
%typemap(argout) void *name {
    lua_pushlstring(L, array$argnum.data != NULL ? array$argnum.data : "", (size_t)array$argnum.count);
    SWIG_arg++;
}
%typemap(freearg) void *name "free(array$argnum.copy);"
%enddef

%define PKV_BYTES_IN
%typemap(in) (const void *data, uint64_t size) (pkvlua_array array = {0}) {
    if (!pkvlua_to_packed(L, $input, 1, "$1_name", &array)) SWIG_fail;
    $1 = array.data;
    $2 = array.count;
}
%typemap(check) (const void *data, uint64_t size) ""
%typemap(argout) (const void *data, uint64_t size) ""
%typemap(freearg) (const void *data, uint64_t size) ""
%enddef

%define PKV_BYTES_LIST
%typemap(in) (const pkv_bytes *parts, uint64_t num_parts) {
    if (!pkvlua_to_pieces(L, $input, (pkv_bytes **)&$1, &$2)) SWIG_fail;
}
%typemap(freearg) (const pkv_bytes *parts, uint64_t num_parts) "free((void *)$1);"
%enddef
%define PKV_TICKETS
%typemap(in) (uint32_t num_tickets, const pkv_bytes *tickets) (uint64_t count = 0) {
    if (!pkvlua_to_pieces(L, $input, (pkv_bytes **)&$2, &count)) SWIG_fail;
    $1 = (uint32_t)count;
}
%typemap(freearg) (uint32_t num_tickets, const pkv_bytes *tickets) "free((void *)$2);"
%enddef

/* Capacity goes in; what comes out is the text, or, for a capacity of 0, the bytes that it takes. */
%define PKV_TEXT_OUT
%typemap(in) (char *buffer, uint64_t capacity, uint64_t *size) (uint64_t needed = 0) {
    if (!pkvlua_unsigned(L, $input, (uint64_t)1 << 40, "capacity", &$2)) SWIG_fail;
    $1 = $2 != 0 ? malloc((size_t)$2) : NULL;
    $3 = &needed;
}
%typemap(argout) (char *buffer, uint64_t capacity, uint64_t *size) {
    if ($1 != NULL)
        lua_pushstring(L, $1);
    else
        lua_pushinteger(L, (lua_Integer)needed$argnum);
    SWIG_arg++;
}
%typemap(freearg) (char *buffer, uint64_t capacity, uint64_t *size) "free($1);"
%enddef

/* ---- results ---- */

%define PKV_VALUE_OUT(type, name)
%typemap(in, numinputs=0) type *name ($*1_ltype value) {
    memset(&value, 0, sizeof value);
    $1 = &value;
}
%typemap(argout) type *name {
    lua_pushinteger(L, (lua_Integer)value$argnum);
    SWIG_arg++;
}
%enddef

%define PKV_STRUCT_OUT(type, name)
%typemap(in, numinputs=0) pkv_##type *name {
    $1 = pkvb_new_##type();
    if ($1 == NULL) {
        (void)pkvlua_fail(L, PKV_ERR_NO_MEMORY, "no memory for a struct");
        SWIG_fail;
    }
}
%typemap(argout) pkv_##type *name {
    SWIG_NewPointerObj(L, $1, $1_descriptor, 1);
    SWIG_arg++;
    $1 = NULL;
}
%typemap(freearg) pkv_##type *name {
    pkvb_free_##type($1);
}
%enddef

/* ---- rows ---- */

/* In every function with rows the handle is the first argument, the group the second. */
%define PKV_TENSOR(name)
%typemap(in) const pkv_tensor *name (pkv_tensor tensor) {
    if (!pkvlua_to_tensor(L, $input, handle1, arg2, PKVLUA_SIDE_##name, PKVB_WRITES_$symname, &tensor, (const pkv_tensor **)&$1)) SWIG_fail;
}
%enddef
%{
#define PKVLUA_SIDE_k 0
#define PKVLUA_SIDE_v 1
%}

%include "pagedkv.i"
PKVLUA_STATUSES

/* ---- calls that are special ---- */

%define PKVLUA_CLOSES(name)
%exception pkv_##name {
    $action
    if (result == PKV_OK) handle1->value = 0;
}
%enddef
PKVLUA_CLOSES(pool_destroy)
PKVLUA_CLOSES(table_destroy)
PKVLUA_CLOSES(batch_destroy)
PKVLUA_CLOSES(tier_close)
PKVLUA_CLOSES(queue_destroy)
PKVLUA_CLOSES(op_close)
PKVLUA_CLOSES(prefetch_close)
PKVLUA_CLOSES(node_close)
PKVLUA_CLOSES(offer_close)

/* A call that gives the failure of a row has done the rest all the same: its status is a result then, before the list of
 * statuses. Which tables are in a step decides how long its lists are. */
%define PKVLUA_ROWS(name, statuses, rows, then)
%exception pkv_##name {
    const uint64_t rows_of_call = rows;
    $action
    if (result == PKV_OK || (rows_of_call > 0 && statuses != NULL && statuses[0] != PKVLUA_UNTOUCHED)) {
        then;
        lua_pushinteger(L, result);
        SWIG_arg++;
        result = PKV_OK;
    }
}
%enddef
PKVLUA_ROWS(pool_release, arg5, arg3, (void)0)
PKVLUA_ROWS(batch_reserve, arg5, arg2, handle1->rows = arg2)
PKVLUA_ROWS(batch_set_tokens, arg4, handle1->rows, (void)0)
PKVLUA_ROWS(batch_commit, arg3, handle1->rows, handle1->rows = 0)
PKVLUA_ROWS(prefetch_step_begin, arg5, arg2, handle1->rows = arg2)
PKVLUA_ROWS(prefetch_step_end, arg2, handle1->rows, handle1->rows = 0)

%include "headers.i"

%{
/* The name under which require("pagedkv.core") looks for it. */
__attribute__((visibility("default"))) int luaopen_pagedkv_core(lua_State *L);
int luaopen_core(lua_State *L);
%}
%wrapper %{
int luaopen_pagedkv_core(lua_State *L) {
    luaL_checkversion(L);
    const int results = luaopen_core(L);
    pkvlua_open(L);
    return results;
}
%}
