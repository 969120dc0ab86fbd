/* SPDX-License-Identifier: Apache-2.0 */
/* What the wrapper (core.i) is made of, besides what SWIG writes: handles, buffers, lists, rows, errors.
 *
 * Functions that can fail push an error and return false; the caller then goes to the wrapper's `fail`, which frees the arguments
 * before it raises. Nothing here jumps out of a wrapper, but for want of memory. */
#ifndef PKV_LUA_CORE_H
#define PKV_LUA_CORE_H

#include <lauxlib.h>
#include <lua.h>

#include <pagedkv/pagedkv.h>
#include <stdbool.h>
#include <stdint.h>

#define PKVLUA __attribute__((visibility("hidden")))

/* ---- errors ---- */

/* {status =, name =, detail =} with the metatable "pagedkv.Error"; false. */
PKVLUA bool pkvlua_fail(lua_State *L, pkv_status status, const char *format, ...);
/* The same with pkv_last_error. */
PKVLUA bool pkvlua_fail_last(lua_State *L, pkv_status status);

/* ---- numbers ---- */

/* A whole number of an argument, within bounds; math.huge stands for the largest one. */
PKVLUA bool pkvlua_unsigned(lua_State *L, int index, uint64_t max, const char *what, uint64_t *value);
PKVLUA bool pkvlua_signed(lua_State *L, int index, int64_t min, int64_t max, const char *what, int64_t *value);
/* 64 bits that mean nothing to the library: any integer. */
PKVLUA bool pkvlua_bits(lua_State *L, int index, const char *what, uint64_t *value);

/* ---- handles ---- */

typedef enum {
    PKVLUA_pkv_pool,
    PKVLUA_pkv_table,
    PKVLUA_pkv_batch,
    PKVLUA_pkv_tier,
    PKVLUA_pkv_queue,
    PKVLUA_pkv_op,
    PKVLUA_pkv_prefetch,
    PKVLUA_pkv_node,
    PKVLUA_pkv_offer,
    PKVLUA_KINDS
} pkvlua_kind;

typedef struct {
    int32_t dtype;
    uint32_t heads;
    uint64_t row_bytes[2]; /* K, V */
} pkvlua_group;

/* The userdata "pagedkv.<Kind>"; what it was made from is kept alive by its user values. */
typedef struct {
    uint64_t value; /* 0: closed */
    pkvlua_kind kind;
    uint32_t rows; /* tables of the step that it is in */
    uint32_t num_groups;
    bool on_device; /* its pages are not in host memory */
    pkvlua_group groups[PKV_MAX_GROUPS]; /* of its pool */
} pkvlua_handle;

PKVLUA bool pkvlua_to_handle(lua_State *L, int index, pkvlua_kind kind, pkvlua_handle **handle);
/* Pushes a new one; the first `num_args` values on the stack are what it was made from. */
PKVLUA void pkvlua_push_handle(lua_State *L, pkvlua_kind kind, void *value, int num_args);
/* Handles of a list; to be freed. */
PKVLUA bool pkvlua_to_handles(lua_State *L, int index, pkvlua_kind kind, void ***values, uint64_t *count);

/* ---- lists ---- */

typedef enum { PKVLUA_I32, PKVLUA_U32, PKVLUA_I64, PKVLUA_U64, PKVLUA_F32, PKVLUA_U8 } pkvlua_element;

typedef struct {
    void *data; /* NULL for nil */
    uint64_t count;
    void *copy;
} pkvlua_array;

/* A table of numbers, copied; a buffer as it is. */
PKVLUA bool pkvlua_to_array(lua_State *L, int index, pkvlua_element element, const char *what, pkvlua_array *array);
/* A string or a buffer, in elements of `size` bytes. */
PKVLUA bool pkvlua_to_packed(lua_State *L, int index, uint64_t size, const char *what, pkvlua_array *array);
/* Room for a result of `count` elements; NULL where there are too many: the library refuses that. */
PKVLUA bool pkvlua_room(lua_State *L, uint64_t count, uint64_t size, pkvlua_array *array);
PKVLUA bool pkvlua_check_extent(lua_State *L, const pkvlua_array *array, uint64_t wanted, const char *what);
PKVLUA void pkvlua_push_array(lua_State *L, pkvlua_element element, const pkvlua_array *array);

/* A table of strings; to be freed. */
PKVLUA bool pkvlua_to_pieces(lua_State *L, int index, pkv_bytes **pieces, uint64_t *count);

/* ---- rows ---- */

/* Rows of a group: a string or a buffer, dense; or a table {data, offset =, num_tokens =, token_stride =, head_stride =, dtype =},
 * the strides in bytes. nil: NULL. */
PKVLUA bool pkvlua_to_tensor(lua_State *L, int index, const pkvlua_handle *handle, uint64_t group, int side, bool written,
                             pkv_tensor *tensor, const pkv_tensor **out);

/* Adds classes and functions to the module at the top of the stack. */
PKVLUA void pkvlua_open(lua_State *L);

#endif
