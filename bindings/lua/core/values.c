/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, numbers, lists. */
#include "core.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

static void push_error(lua_State *L, pkv_status status, const char *detail) {
    lua_createtable(L, 0, 3);
    lua_pushinteger(L, status);
    lua_setfield(L, -2, "status");
    const char *const name = pkv_status_string(status);
    lua_pushstring(L, strncmp(name, "PKV_ERR_", 8) == 0 ? name + 8 : name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, detail);
    lua_setfield(L, -2, "detail");
    luaL_setmetatable(L, "pagedkv.Error");
}

bool pkvlua_fail(lua_State *L, pkv_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *const detail = lua_pushvfstring(L, format, args);
    va_end(args);
    push_error(L, status, detail);
    lua_remove(L, -2);
    return false;
}

bool pkvlua_fail_last(lua_State *L, pkv_status status) {
    char detail[1024] = "";
    (void)pkv_last_error(detail, sizeof detail);
    push_error(L, status, detail);
    return false;
}

/* ---- numbers ---- */

static bool no_number(lua_State *L, int index, const char *what) {
    const char *const got = luaL_tolstring(L, index, NULL);
    (void)pkvlua_fail(L, PKV_ERR_INVALID, "%s: %s is no whole number that fits", what, got);
    lua_remove(L, -2);
    return false;
}

bool pkvlua_unsigned(lua_State *L, int index, uint64_t max, const char *what, uint64_t *value) {
    int whole = 0;
    const lua_Integer number = lua_isinteger(L, index) || lua_type(L, index) == LUA_TNUMBER ? lua_tointegerx(L, index, &whole) : 0;
    if (whole && number >= 0 && (uint64_t)number <= max) {
        *value = (uint64_t)number;
        return true;
    }
    if (lua_type(L, index) == LUA_TNUMBER && !whole && isinf(lua_tonumber(L, index)) && lua_tonumber(L, index) > 0 &&
        max == UINT64_MAX) {
        *value = UINT64_MAX;
        return true;
    }
    return no_number(L, index, what);
}

bool pkvlua_signed(lua_State *L, int index, int64_t min, int64_t max, const char *what, int64_t *value) {
    int whole = 0;
    const lua_Integer number = lua_type(L, index) == LUA_TNUMBER ? lua_tointegerx(L, index, &whole) : 0;
    if (!whole || number < min || number > max) return no_number(L, index, what);
    *value = number;
    return true;
}

bool pkvlua_bits(lua_State *L, int index, const char *what, uint64_t *value) {
    if (!lua_isinteger(L, index)) return no_number(L, index, what);
    *value = (uint64_t)lua_tointeger(L, index);
    return true;
}

/* ---- lists ---- */

static const struct {
    uint8_t size;
    int64_t min;
    uint64_t max;
    const char *name;
} elements[] = {
    [PKVLUA_I32] = {4, INT32_MIN, INT32_MAX, "int32"}, [PKVLUA_U32] = {4, 0, UINT32_MAX, "uint32"},
    [PKVLUA_I64] = {8, INT64_MIN, INT64_MAX, "int64"}, [PKVLUA_U64] = {8, 0, INT64_MAX, "uint64"},
    [PKVLUA_F32] = {4, 0, 0, "float"},                 [PKVLUA_U8] = {1, 0, UINT8_MAX, "uint8"},
};

static bool no_memory(lua_State *L, uint64_t count) {
    return pkvlua_fail(L, PKV_ERR_NO_MEMORY, "a list of %I elements", (LUAI_UACINT)count);
}

static void put(pkvlua_element element, void *data, uint64_t i, lua_Integer number) {
    switch (elements[element].size) {
    case 1: ((uint8_t *)data)[i] = (uint8_t)number; break;
    case 4: ((uint32_t *)data)[i] = (uint32_t)number; break;
    default: ((uint64_t *)data)[i] = (uint64_t)number; break;
    }
}

static bool read_table(lua_State *L, int index, pkvlua_element element, const char *what, pkvlua_array *array) {
    const uint64_t count = lua_rawlen(L, index);
    array->data = array->copy = malloc((size_t)count * elements[element].size + 1);
    array->count = count;
    if (array->copy == NULL) return no_memory(L, count);
    for (uint64_t i = 0; i < count; ++i) {
        int whole = 0;
        lua_rawgeti(L, index, (lua_Integer)i + 1);
        const bool is_number = lua_type(L, -1) == LUA_TNUMBER;
        const lua_Integer number = lua_tointegerx(L, -1, &whole);
        const lua_Number real = lua_tonumber(L, -1);
        lua_pop(L, 1);
        const bool good = element == PKVLUA_F32 ? is_number
                                                : is_number && whole && number >= elements[element].min &&
                                                      (number < 0 || (uint64_t)number <= elements[element].max);
        if (!good)
            return pkvlua_fail(L, PKV_ERR_INVALID, "%s[%I] is no %s", what, (LUAI_UACINT)i + 1, elements[element].name);
        if (element == PKVLUA_F32)
            ((float *)array->data)[i] = (float)real;
        else
            put(element, array->data, i, number);
    }
    return true;
}

bool pkvlua_to_array(lua_State *L, int index, pkvlua_element element, const char *what, pkvlua_array *array) {
    if (lua_isnoneornil(L, index)) return true;
    if (lua_istable(L, index)) return read_table(L, index, element, what, array);
    if (luaL_testudata(L, index, "pagedkv.Buffer") != NULL) return pkvlua_to_packed(L, index, elements[element].size, what, array);
    return pkvlua_fail(L, PKV_ERR_INVALID, "%s: a table of %s is wanted, not a %s", what, elements[element].name,
                       luaL_typename(L, index));
}

bool pkvlua_to_packed(lua_State *L, int index, uint64_t size, const char *what, pkvlua_array *array) {
    if (lua_isnoneornil(L, index)) return true;
    if (lua_type(L, index) == LUA_TSTRING) {
        size_t bytes = 0;
        array->data = (void *)lua_tolstring(L, index, &bytes);
        array->count = bytes / size;
        return true;
    }
    array->data = luaL_testudata(L, index, "pagedkv.Buffer");
    array->count = array->data != NULL ? lua_rawlen(L, index) / size : 0;
    if (array->data != NULL) return true;
    return pkvlua_fail(L, PKV_ERR_INVALID, "%s: a string or a buffer is wanted, not a %s", what, luaL_typename(L, index));
}

bool pkvlua_room(lua_State *L, uint64_t count, uint64_t size, pkvlua_array *array) {
    if (count > (UINT64_C(1) << 31)) return true;
    array->data = array->copy = calloc((size_t)count + 1, (size_t)size);
    array->count = count;
    return array->copy != NULL || no_memory(L, count);
}

bool pkvlua_check_extent(lua_State *L, const pkvlua_array *array, uint64_t wanted, const char *what) {
    if (array->data == NULL || array->count >= wanted) return true;
    return pkvlua_fail(L, PKV_ERR_INVALID, "%s has %I entries, %I are needed", what, (LUAI_UACINT)array->count, (LUAI_UACINT)wanted);
}

void pkvlua_push_array(lua_State *L, pkvlua_element element, const pkvlua_array *array) {
    lua_createtable(L, array->data != NULL ? (int)array->count : 0, 0);
    for (uint64_t i = 0; array->data != NULL && i < array->count; ++i) {
        switch (element) {
        case PKVLUA_I32: lua_pushinteger(L, ((int32_t *)array->data)[i]); break;
        case PKVLUA_U32: lua_pushinteger(L, ((uint32_t *)array->data)[i]); break;
        case PKVLUA_U8: lua_pushinteger(L, ((uint8_t *)array->data)[i]); break;
        default: lua_pushinteger(L, ((int64_t *)array->data)[i]); break;
        }
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

bool pkvlua_to_pieces(lua_State *L, int index, pkv_bytes **pieces, uint64_t *count) {
    if (!lua_istable(L, index)) return pkvlua_fail(L, PKV_ERR_INVALID, "a table of strings is wanted, not a %s", luaL_typename(L, index));
    *count = lua_rawlen(L, index);
    *pieces = calloc((size_t)*count + 1, sizeof **pieces);
    if (*pieces == NULL) return no_memory(L, *count);
    for (uint64_t i = 0; i < *count; ++i) {
        size_t size = 0;
        lua_rawgeti(L, index, (lua_Integer)i + 1); /* the table keeps it while the call lasts */
        const bool good = lua_type(L, -1) == LUA_TSTRING;
        (*pieces)[i].data = good ? lua_tolstring(L, -1, &size) : NULL;
        (*pieces)[i].size = size;
        lua_pop(L, 1);
        if (!good) return pkvlua_fail(L, PKV_ERR_INVALID, "piece %I is no string", (LUAI_UACINT)i + 1);
    }
    return true;
}
