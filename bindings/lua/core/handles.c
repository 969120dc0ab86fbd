/* SPDX-License-Identifier: Apache-2.0 */
/* Handles and buffers as userdata, and rows. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const classes[PKVLUA_KINDS] = {"pagedkv.Pool", "pagedkv.Table",   "pagedkv.Batch", "pagedkv.Tier",
                                                  "pagedkv.Queue", "pagedkv.Op",      "pagedkv.Session", "pagedkv.Node",
                                                  "pagedkv.Offer"};

/* ---- handles ---- */

static pkvlua_handle *any_handle(lua_State *L, int index) {
    for (int kind = 0; kind < PKVLUA_KINDS; ++kind) {
        pkvlua_handle *const handle = luaL_testudata(L, index, classes[kind]);
        if (handle != NULL) return handle;
    }
    return NULL;
}

bool pkvlua_to_handle(lua_State *L, int index, pkvlua_kind kind, pkvlua_handle **handle) {
    *handle = luaL_testudata(L, index, classes[kind]);
    if (*handle != NULL) return true;
    return pkvlua_fail(L, PKV_ERR_HANDLE, "a %s is wanted, not a %s", classes[kind], luaL_typename(L, index));
}

bool pkvlua_to_handles(lua_State *L, int index, pkvlua_kind kind, void ***values, uint64_t *count) {
    if (!lua_istable(L, index)) return pkvlua_fail(L, PKV_ERR_INVALID, "a table of handles is wanted, not a %s", luaL_typename(L, index));
    *count = lua_rawlen(L, index);
    *values = calloc((size_t)*count + 1, sizeof **values);
    if (*values == NULL) return pkvlua_fail(L, PKV_ERR_NO_MEMORY, "a list of handles");
    for (uint64_t i = 0; i < *count; ++i) {
        pkvlua_handle *handle = NULL;
        lua_rawgeti(L, index, (lua_Integer)i + 1);
        const bool good = pkvlua_to_handle(L, -1, kind, &handle);
        lua_remove(L, good ? -1 : -2);
        if (!good) return false;
        (*values)[i] = (void *)(uintptr_t)handle->value;
    }
    return true;
}

static void measure(pkvlua_handle *handle) {
    for (uint32_t g = 0; g < PKV_MAX_GROUPS; ++g) {
        pkv_layer_layout layout = PKV_LAYER_LAYOUT_INIT;
        if (pkv_pool_layout((pkv_pool *)(uintptr_t)handle->value, g, 0, &layout) != PKV_OK) return;
        handle->groups[g].dtype = layout.dtype;
        handle->groups[g].heads = layout.num_kv_heads;
        handle->groups[g].row_bytes[0] = layout.k_row_bytes;
        handle->groups[g].row_bytes[1] = layout.v_row_bytes;
        handle->num_groups = g + 1;
        pkv_pool_stats stats = PKV_POOL_STATS_INIT;
        if (pkv_pool_get_stats((pkv_pool *)(uintptr_t)handle->value, g, &stats) == PKV_OK && stats.memory_kind == PKV_MEMORY_KIND_DEVICE)
            handle->on_device = true;
    }
}

void pkvlua_push_handle(lua_State *L, pkvlua_kind kind, void *value, int num_args) {
    pkvlua_handle *const handle = lua_newuserdatauv(L, sizeof *handle, 2); /* what it was made from; what it is given to keep */
    memset(handle, 0, sizeof *handle);
    handle->value = (uint64_t)(uintptr_t)value;
    handle->kind = kind;
    luaL_setmetatable(L, classes[kind]);
    lua_createtable(L, 2, 0);
    for (int i = 1, kept = 0; i <= num_args; ++i) {
        const pkvlua_handle *const from = any_handle(L, i);
        if (from == NULL) continue;
        if (handle->num_groups == 0) {
            memcpy(handle->groups, from->groups, sizeof handle->groups);
            handle->num_groups = from->num_groups;
            handle->on_device = from->on_device;
        }
        if (from->kind == kind) /* a fork: what its source was made from */
            lua_getiuservalue(L, i, 1);
        else
            lua_pushvalue(L, i);
        lua_rawseti(L, -2, ++kept);
    }
    lua_setiuservalue(L, -2, 1);
    if (kind == PKVLUA_pkv_pool) measure(handle);
}

static pkv_status close_value(const pkvlua_handle *handle) {
    void *const value = (void *)(uintptr_t)handle->value;
    switch (handle->kind) {
    case PKVLUA_pkv_pool: return pkv_pool_destroy(value);
    case PKVLUA_pkv_table: return pkv_table_destroy(value, NULL);
    case PKVLUA_pkv_batch: return pkv_batch_destroy(value);
    case PKVLUA_pkv_tier: return pkv_tier_close(value);
    case PKVLUA_pkv_queue: return pkv_queue_destroy(value);
    case PKVLUA_pkv_op: return pkv_op_close(value);
    case PKVLUA_pkv_prefetch: return pkv_prefetch_close(value, NULL);
    case PKVLUA_pkv_node: return pkv_node_close(value);
    case PKVLUA_pkv_offer: return pkv_offer_close(value);
    default: return PKV_ERR_HANDLE;
    }
}

static pkvlua_handle *self_of(lua_State *L) {
    pkvlua_handle *const handle = any_handle(L, 1);
    if (handle == NULL) luaL_argerror(L, 1, "no object of pagedkv");
    return handle;
}

/* Harmless on what is closed. */
static int handle_close(lua_State *L) {
    pkvlua_handle *const handle = self_of(L);
    if (handle->value == 0) return 0;
    const pkv_status status = close_value(handle);
    if (status != PKV_OK) {
        (void)pkvlua_fail_last(L, status);
        return lua_error(L);
    }
    handle->value = 0;
    return 0;
}

static int handle_gc(lua_State *L) {
    pkvlua_handle *const handle = self_of(L);
    if (handle->value != 0) (void)close_value(handle);
    handle->value = 0;
    return 0;
}

static int handle_tostring(lua_State *L) {
    const pkvlua_handle *const handle = self_of(L);
    char value[32];
    (void)snprintf(value, sizeof value, "0x%llx", (unsigned long long)handle->value);
    lua_pushfstring(L, "%s (%s)", classes[handle->kind], handle->value != 0 ? value : "closed");
    return 1;
}

static int handle_closed(lua_State *L) {
    lua_pushboolean(L, self_of(L)->value == 0);
    return 1;
}

/* rows(handle): tables of its step */
static int handle_rows(lua_State *L) {
    lua_pushinteger(L, self_of(L)->rows);
    return 1;
}

/* groups(handle): {dtype, heads, K row bytes, V row bytes} of each group */
static int handle_groups(lua_State *L) {
    const pkvlua_handle *const handle = self_of(L);
    lua_createtable(L, (int)handle->num_groups, 0);
    for (uint32_t g = 0; g < handle->num_groups; ++g) {
        const lua_Integer numbers[] = {handle->groups[g].dtype, handle->groups[g].heads, (lua_Integer)handle->groups[g].row_bytes[0],
                                       (lua_Integer)handle->groups[g].row_bytes[1]};
        lua_createtable(L, 4, 0);
        for (int i = 0; i < 4; ++i) {
            lua_pushinteger(L, numbers[i]);
            lua_rawseti(L, -2, i + 1);
        }
        lua_rawseti(L, -2, (lua_Integer)g + 1);
    }
    return 1;
}

/* keep(handle, value): keeps a value alive as long as the handle; kept(handle) */
static int handle_keep(lua_State *L) {
    (void)self_of(L);
    lua_settop(L, 2);
    lua_setiuservalue(L, 1, 2);
    return 0;
}
static int handle_kept(lua_State *L) {
    (void)self_of(L);
    lua_getiuservalue(L, 1, 2);
    return 1;
}

/* unopened(kind): a handle that is NULL, as one whose making has failed */
static int handle_unopened(lua_State *L) {
    const char *const wanted = luaL_checkstring(L, 1);
    for (int kind = 0; kind < PKVLUA_KINDS; ++kind)
        if (strcmp(strchr(classes[kind], '.') + 1, wanted) == 0) return pkvlua_push_handle(L, (pkvlua_kind)kind, NULL, 0), 1;
    return luaL_argerror(L, 1, "no kind of handle");
}

/* fail(status, detail): raises an error as calls do */
static int raise_error(lua_State *L) {
    const lua_Integer status = luaL_checkinteger(L, 1);
    (void)pkvlua_fail(L, (pkv_status)status, "%s", luaL_checkstring(L, 2));
    return lua_error(L);
}

/* ---- buffers ---- */

/* buffer(size), zeroed, or buffer(string), a copy */
static int buffer_new(lua_State *L) {
    size_t size = 0;
    const char *const text = lua_type(L, 1) == LUA_TSTRING ? lua_tolstring(L, 1, &size) : NULL;
    if (text == NULL) {
        uint64_t number = 0;
        if (!pkvlua_unsigned(L, 1, (uint64_t)1 << 46, "size", &number)) return lua_error(L);
        size = (size_t)number;
    }
    void *const memory = lua_newuserdatauv(L, size, 0);
    if (text != NULL)
        memcpy(memory, text, size);
    else
        memset(memory, 0, size);
    luaL_setmetatable(L, "pagedkv.Buffer");
    return 1;
}

static char *buffer_at(lua_State *L, size_t *size) {
    char *const memory = luaL_checkudata(L, 1, "pagedkv.Buffer");
    *size = lua_rawlen(L, 1);
    return memory;
}

/* b:string(first, last): its bytes, as string.sub counts them */
static int buffer_string(lua_State *L) {
    size_t size = 0;
    const char *const memory = buffer_at(L, &size);
    lua_Integer first = luaL_optinteger(L, 2, 1), last = luaL_optinteger(L, 3, -1);
    const lua_Integer length = (lua_Integer)size;
    if (first < 0) first = first + length < 0 ? 1 : first + length + 1;
    if (last < 0) last = last + length + 1;
    if (first < 1) first = 1;
    if (last > length) last = length;
    lua_pushlstring(L, memory + (first > last ? 0 : first - 1), first > last ? 0 : (size_t)(last - first + 1));
    return 1;
}

/* b:set(at, string): writes a string at a byte, 1 = the first */
static int buffer_set(lua_State *L) {
    size_t size = 0, length = 0;
    char *const memory = buffer_at(L, &size);
    const lua_Integer at = luaL_checkinteger(L, 2);
    const char *const text = luaL_checklstring(L, 3, &length);
    if (at < 1 || (uint64_t)at - 1 > size || length > size - ((uint64_t)at - 1)) {
        (void)pkvlua_fail(L, PKV_ERR_INVALID, "%I bytes at %I, of a buffer of %I", (LUAI_UACINT)length, (LUAI_UACINT)at, (LUAI_UACINT)size);
        return lua_error(L);
    }
    memcpy(memory + at - 1, text, length);
    return 0;
}

static int buffer_address(lua_State *L) {
    size_t size = 0;
    lua_pushinteger(L, (lua_Integer)(uintptr_t)buffer_at(L, &size));
    return 1;
}

static int buffer_length(lua_State *L) {
    size_t size = 0;
    (void)buffer_at(L, &size);
    lua_pushinteger(L, (lua_Integer)size);
    return 1;
}

/* ---- rows ---- */

static bool field_number(lua_State *L, int index, const char *key, uint64_t *value) {
    lua_getfield(L, index, key);
    const bool given = !lua_isnil(L, -1);
    const bool good = !given || pkvlua_unsigned(L, -1, INT64_MAX, key, value);
    lua_remove(L, good ? -1 : -2);
    return good;
}

/* The rows of a table {data, ...} or {address =, bytes =, ...}: its data is put on the stack, and stays there. */
static bool read_fields(lua_State *L, int index, pkv_tensor *tensor, uint64_t *offset, uint64_t *wanted, pkvlua_array *memory) {
    uint64_t dtype = (uint64_t)tensor->dtype, address = 0;
    if (!field_number(L, index, "address", &address) || !field_number(L, index, "bytes", &memory->count)) return false;
    memory->data = (void *)(uintptr_t)address;
    if (!field_number(L, index, "offset", offset) || !field_number(L, index, "num_tokens", wanted) ||
        !field_number(L, index, "token_stride", &tensor->token_stride) ||
        !field_number(L, index, "head_stride", &tensor->head_stride) || !field_number(L, index, "dtype", &dtype))
        return false;
    tensor->dtype = (int32_t)dtype;
    lua_rawgeti(L, index, 1);
    return true;
}

bool pkvlua_to_tensor(lua_State *L, int index, const pkvlua_handle *handle, uint64_t group, int side, bool written,
                      pkv_tensor *tensor, const pkv_tensor **out) {
    static const char *const names[] = {"k", "v"};
    const char *const what = names[side];
    *tensor = (pkv_tensor)PKV_TENSOR_INIT;
    *out = NULL;
    if (lua_isnoneornil(L, index)) return true;
    if (group >= handle->num_groups)
        return pkvlua_fail(L, handle->value == 0 ? PKV_ERR_HANDLE : PKV_ERR_INVALID, "group is %I, of a pool with %d groups",
                           (LUAI_UACINT)group, (int)handle->num_groups);
    const pkvlua_group *const shape = &handle->groups[group];
    uint64_t offset = 0, wanted = UINT64_MAX;
    tensor->dtype = shape->dtype;
    int data = index;
    pkvlua_array memory = {0};
    if (lua_istable(L, index)) {
        if (!read_fields(L, index, tensor, &offset, &wanted, &memory)) return false;
        data = lua_gettop(L);
    }
    const bool addressed = memory.data != NULL; /* what is there is the caller's word */
    if (handle->on_device && !addressed)
        return pkvlua_fail(L, PKV_ERR_UNSUPPORTED, "%s: strings and buffers are in host memory, the pool is on a device: {address =, bytes =}", what);
    if (written && lua_type(L, data) == LUA_TSTRING)
        return pkvlua_fail(L, PKV_ERR_INVALID, "%s: the call writes into it, so it has to be a buffer, not a string", what);
    if (addressed && !lua_isnil(L, data)) return pkvlua_fail(L, PKV_ERR_INVALID, "%s: has an address, and data besides", what);
    if (!addressed && !pkvlua_to_packed(L, data, 1, what, &memory)) return false;
    if (shape->row_bytes[side] == 0) return pkvlua_fail(L, PKV_ERR_INVALID, "%s: group %I has none", what, (LUAI_UACINT)group);
    const uint64_t stored = pkv_dtype_bytes(shape->dtype), element = pkv_dtype_bytes(tensor->dtype);
    if ((stored == 0 || element == 0) && tensor->dtype != shape->dtype)
        return pkvlua_fail(L, PKV_ERR_UNSUPPORTED, "%s: type %d does not convert to type %d", what, (int)tensor->dtype, (int)shape->dtype);
    const uint64_t row = stored != 0 ? shape->row_bytes[side] / stored * element : shape->row_bytes[side];
    const uint64_t head_stride = tensor->head_stride != 0 ? tensor->head_stride : row;
    const uint64_t token_stride = tensor->token_stride != 0 ? tensor->token_stride : row * shape->heads;
    /* The last byte of the last row has to be there. */
    uint64_t token = 0;
    if (__builtin_mul_overflow(head_stride, (uint64_t)shape->heads - 1, &token) || __builtin_add_overflow(token, row, &token))
        return pkvlua_fail(L, PKV_ERR_INVALID, "%s: head_stride is %I", what, (LUAI_UACINT)head_stride);
    const uint64_t room = memory.count > offset ? memory.count - offset : 0;
    const uint64_t rows = room < token ? 0 : (room - token) / token_stride + 1;
    if (wanted != UINT64_MAX && wanted > rows)
        return pkvlua_fail(L, PKV_ERR_INVALID, "%s: num_tokens is %I, %I bytes hold %I", what, (LUAI_UACINT)wanted, (LUAI_UACINT)room,
                           (LUAI_UACINT)rows);
    if (room % (wanted == UINT64_MAX && data == index ? row * shape->heads : 1) != 0)
        return pkvlua_fail(L, PKV_ERR_INVALID, "%s: %I bytes are no multiple of a token's %I", what, (LUAI_UACINT)room,
                           (LUAI_UACINT)(row * shape->heads));
    tensor->data = (char *)memory.data + (rows > 0 ? offset : 0);
    tensor->num_tokens = wanted != UINT64_MAX ? wanted : rows;
    *out = tensor;
    return true;
}

/* ---- the module ---- */

static void make_class(lua_State *L, const char *name, const luaL_Reg *methods, const luaL_Reg *meta) {
    luaL_newmetatable(L, name);
    luaL_setfuncs(L, meta, 0);
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

/* class(name): its methods, to be added to */
static int class_methods(lua_State *L) {
    lua_pushfstring(L, "pagedkv.%s", luaL_checkstring(L, 1));
    luaL_getmetatable(L, lua_tostring(L, -1));
    if (lua_isnil(L, -1)) return luaL_argerror(L, 1, "no class");
    lua_getfield(L, -1, "__index");
    return 1;
}

static int error_tostring(lua_State *L) {
    lua_settop(L, 1);
    lua_getfield(L, 1, "name");
    lua_getfield(L, 1, "detail");
    lua_pushfstring(L, "%s: %s", luaL_tolstring(L, 2, NULL), luaL_tolstring(L, 3, NULL));
    return 1;
}

void pkvlua_open(lua_State *L) {
    static const luaL_Reg handle_methods[] = {{"close", handle_close}, {"closed", handle_closed}, {NULL, NULL}};
    static const luaL_Reg handle_meta[] = {
        {"__gc", handle_gc}, {"__close", handle_close}, {"__tostring", handle_tostring}, {NULL, NULL}};
    static const luaL_Reg buffer_methods[] = {
        {"string", buffer_string}, {"set", buffer_set}, {"address", buffer_address}, {NULL, NULL}};
    static const luaL_Reg buffer_meta[] = {{"__len", buffer_length}, {"__tostring", buffer_string}, {NULL, NULL}};
    static const luaL_Reg error_methods[] = {{NULL, NULL}};
    static const luaL_Reg error_meta[] = {{"__tostring", error_tostring}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"buffer", buffer_new},     {"class", class_methods},       {"groups", handle_groups},
                                         {"rows", handle_rows},       {"keep", handle_keep},          {"kept", handle_kept},
                                         {"unopened", handle_unopened}, {"fail", raise_error},        {NULL, NULL}};
    for (int kind = 0; kind < PKVLUA_KINDS; ++kind) make_class(L, classes[kind], handle_methods, handle_meta);
    make_class(L, "pagedkv.Buffer", buffer_methods, buffer_meta);
    make_class(L, "pagedkv.Error", error_methods, error_meta);
    for (const luaL_Reg *f = functions; f->name != NULL; ++f) { /* the module's table has a metatable of SWIG's */
        lua_pushstring(L, f->name);
        lua_pushcfunction(L, f->func);
        lua_rawset(L, -3);
    }
}
