-- SPDX-License-Identifier: Apache-2.0
-- libpagedkv for Lua 5.4: pools, tables, batches, tiers, prefetch sessions, nodes. The C headers (include/pagedkv/) are the
-- reference; names are theirs without pkv_. Rows and other bytes are strings, or buffers (pagedkv.buffer) where the library
-- writes; lists are tables. What fails is an error {status =, name =, detail =}. Objects close in <close> variables, by :close(),
-- twice without harm, in any order, or when they are collected. Timeouts are seconds, nil = for ever.

local core = require("pagedkv.core")

local pagedkv = {
    buffer = core.buffer,
    --- As max_match: the whole prompt may match.
    MATCH_ALL = math.huge,
    --- As a number of tokens or blocks: to the end.
    ALL = math.huge,
    status = {},
}
local ALL <const> = math.huge

for _, name in ipairs({
    "INVALID", "HANDLE", "CLOSED", "FORKED", "NO_MEMORY", "NO_PAGES", "NO_SPACE", "NOT_FOUND", "NOT_RESIDENT", "LOST", "STATE",
    "BUSY", "AGAIN", "TIMEOUT", "CANCELLED", "UNSUPPORTED", "MISMATCH", "IO", "LIMIT", "CAPTURE", "INTERNAL",
}) do
    pagedkv.status[name] = core["ERR_" .. name]
end
pagedkv.status.OK = 0

-- ---- options --------------------------------------------------------------------------------------------------------

local choices = {
    dtype = {
        f32 = core.DTYPE_F32, f16 = core.DTYPE_F16, bf16 = core.DTYPE_BF16, f8e4m3 = core.DTYPE_F8_E4M3,
        f8e5m2 = core.DTYPE_F8_E5M2, i8 = core.DTYPE_I8, opaque = core.DTYPE_OPAQUE,
    },
    layout = {nhd = core.LAYOUT_NHD, hnd = core.LAYOUT_HND},
    arrangement = {page_major = core.PAGE_MAJOR, layer_major = core.LAYER_MAJOR},
    attention = {full = core.ATTENTION_FULL, window = core.ATTENTION_WINDOW},
    memory = {pool = core.MEMORY_POOL, none = core.MEMORY_NONE},
    scales = {
        none = core.SCALES_NONE, tensor = core.SCALES_TENSOR, head = core.SCALES_HEAD, token_head = core.SCALES_TOKEN_HEAD,
    },
    huge_pages = {auto = core.HUGE_PAGES_AUTO, never = core.HUGE_PAGES_NEVER, require = core.HUGE_PAGES_REQUIRE},
    engine = {auto = core.IO_AUTO, uring = core.IO_URING, threads = core.IO_THREADS},
    policy = {
        write_back = core.TIER_WRITE_BACK, write_through = core.TIER_WRITE_THROUGH, write_on_hits = core.TIER_WRITE_ON_HITS,
        demote = core.TIER_DEMOTE, read_only = core.TIER_READ_ONLY,
    },
    device = {host = core.DEVICE_HOST, cuda = core.DEVICE_CUDA},
    predict = {sequential = core.PREDICT_SEQUENTIAL, full = core.PREDICT_FULL, hinted = core.PREDICT_HINTED},
}

local function fail(detail) core.fail(core.ERR_INVALID, detail) end

-- The number of a constant, by its name or as it is.
local function choice(kind, value)
    if type(value) ~= "string" then return value end
    return choices[kind][value] or fail(("%s: '%s' is no name that is known"):format(kind, value))
end

-- Sets fields of an options struct from a table; `special` has functions for those that are no plain fields.
local function fill(options, fields, where, special)
    for name, value in pairs(fields or {}) do
        if special and special[name] then
            special[name](options, value)
        elseif type(name) ~= "string" or not pcall(function() options[name] = choices[name] and choice(name, value) or value end) then
            fail(("%s: %s = %s is no option"):format(where, name, value))
        end
    end
    return options
end

local function nanoseconds(seconds)
    if seconds == nil then return ALL end
    if type(seconds) ~= "number" or not (seconds >= 0) then fail(("timeout is %s"):format(seconds)) end
    return seconds < 9e9 and math.floor(seconds * 1e9) or ALL
end

--- What else decides whether KV may be reused: {model =, adapter =, adapter_id =, adapter_generation =, salt =}.
local function namespace(fields)
    if fields == nil then return nil end
    return fill(core.namespace(), fields, "namespace", {
        model = function(ns, value) ns:set_model(value) end,
        adapter = function(ns, value) ns:set_adapter(value) end,
        salt = function(ns, value) ns:set_salt(value) end,
    })
end

-- A prompt: a table of token ids, with `namespace` and `media` ({position, num_tokens, digest} each) from the options.
local function prompt(tokens, options)
    local made = core.prompt()
    made:set_tokens(tokens, #tokens)
    if options and options.namespace then made:set_ns(namespace(options.namespace)) end
    for _, one in ipairs(options and options.media or {}) do made:add_media(one[1], one[2], one[3]) end
    return made
end

local function retention(fields)
    if fields == nil then return nil end
    local made = core.retention()
    made.priority = fields.priority or core.PRIORITY_DEFAULT
    made.pin = fields.pin and 1 or 0
    made.ttl_ns = fields.ttl and math.max(1, nanoseconds(fields.ttl)) or 0
    return made
end

local function matched(native)
    local tiers = {}
    for i = 1, core.MAX_TIERS do tiers[i] = native:get_tier_tokens(i - 1) end
    return {
        tokens = native.tokens, blocks = native.blocks, resident_tokens = native.resident_tokens, tier_tokens = tiers,
    }
end

local function cut(list, count)
    for i = #list, count + 1, -1 do list[i] = nil end
    return list
end

local function flags(options, names)
    local bits = options and options.flags or 0
    for name, bit in pairs(names) do
        if options and options[name] then bits = bits | bit end
    end
    return bits
end

--- A counter that calls wait for: counter:set(value); counter:reached(value, timeout) is the `sync` of a call.
local Counter = {}
Counter.__index = Counter

function pagedkv.counter()
    return setmetatable({memory = core.buffer(8)}, Counter)
end

function Counter:set(value) self.memory:set(1, string.pack("<i8", value)) end

function Counter:reached(value, timeout)
    local sync = core.sync()
    sync.kind = core.SYNC_HOST_COUNTER
    sync.handle_address = self.memory:address()
    sync.value = value
    sync.timeout_ns = math.max(1, nanoseconds(timeout or 1))
    return sync -- valid as long as the counter is
end

--- As `sync` of a call on a pool on a device: in order on a stream of CUDA's, or after an event, given by their addresses. What is
--- passed under a stream stays until the stream has done the work.
function pagedkv.cuda_stream(address)
    local sync = core.sync()
    sync.kind, sync.handle_address = core.SYNC_CUDA_STREAM, address
    return sync
end

function pagedkv.cuda_event(address)
    local sync = core.sync()
    sync.kind, sync.handle_address = core.SYNC_CUDA_EVENT, address
    return sync
end

--- Fails, with the reason, where pools cannot be made on a device: "cuda" and its number.
function pagedkv.device_available(device, index) core.device_available(choice("device", device), index or 0) end

-- ---- pools ----------------------------------------------------------------------------------------------------------

local function group(fields)
    local own = {}
    for name, value in pairs(fields) do own[name] = value end
    local made = core.group_options()
    made.num_layers = own.num_layers or 0 -- scales go by it
    return fill(made, own, "group", {
        k_scales = function(options, value) options:set_k_scales(value, #value) end,
        v_scales = function(options, value) options:set_v_scales(value, #value) end,
    })
end

local pool_fields = {
    page_tokens = true, huge_pages = true, copy_threads = true, seed = true, debug = true, event_capacity = true, flags = true,
    clean_pages = true, staging_bytes = true, device = true, device_index = true, transfer_blocks = true,
}

--- A pool: {page_tokens =, groups = {{num_pages =, num_layers =, num_kv_heads =, k_head_dim =, v_head_dim =, dtype = "f16" ...}},
--- tiers = {{tier, policy = "write_back"}}, ...}, the fields of pkv_pool_options and pkv_group_options; those of a single group may
--- stand with the pool's. device = "cuda" puts pages into the memory of a GPU, device_index = its number, in_place = cuda_stream() of
--- the kernels that use them; rows are there, too: {address =, bytes =}.
function pagedkv.pool(fields)
    local options, single, kept = core.pool_options(), {}, {}
    for name, value in pairs(fields) do
        if pool_fields[name] then
            options[name] = choices[name] and choice(name, value) or value
        elseif name == "in_place" then
            options:set_in_place(value)
        elseif name ~= "groups" and name ~= "tiers" then
            single[name] = value
        end
    end
    if fields.groups and next(single) then fail(("pool: with groups, %s is no option"):format((next(single)))) end
    for _, one in ipairs(fields.groups or {single}) do options:add_group(group(one)) end
    for i, one in ipairs(fields.tiers or {}) do
        local attachment = core.tier_attachment()
        attachment:set_tier(one[1])
        fill(attachment, one, "tier", {
            [1] = function() end,
            exclusive = function(native, value) native.flags = value and core.TIER_EXCLUSIVE or 0 end,
            timeout = function(native, value) native.timeout_ns = math.max(1, nanoseconds(value)) end,
        })
        options:add_tier(attachment)
        kept[i] = one[1]
    end
    local pool = core.pool_create(options)
    core.keep(pool, kept) -- a node's tier needs its node
    return pool
end

local Pool = core.class("Pool")

function Pool:table() return core.table_create(self) end
function Pool:groups() return core.groups(self) end
function Pool:layout(layer, group_index) return core.pool_layout(self, group_index or 0, layer or 0) end
function Pool:stats(group_index) return core.pool_get_stats(self, group_index or 0) end
function Pool:alloc(num_pages, group_index) return core.pool_alloc(self, group_index or 0, num_pages) end
function Pool:retain(pages, group_index) core.pool_retain(self, group_index or 0, #pages, pages) end
function Pool:page_info(page, group_index) return core.pool_page_info(self, group_index or 0, page) end
function Pool:evict(num_pages, group_index) return core.pool_evict(self, group_index or 0, num_pages) end
function Pool:order(sync) core.pool_order(self, sync) end
function Pool:quiesce(timeout) core.pool_quiesce(self, nanoseconds(timeout)) end
function Pool:flush(timeout) core.pool_flush(self, nanoseconds(timeout)) end
function Pool:clear(ns) return core.pool_clear(self, namespace(ns)) end
function Pool:clear_all() return core.pool_clear_all(self) end

--- Gives back one count of each page: all or none.
function Pool:release(pages, group_index, sync) core.pool_release(self, group_index or 0, #pages, pages, false, sync) end

--- Gives back one count of each page that can be: the first failure's status, or 0, and a status for each.
function Pool:release_each(pages, group_index, sync)
    return core.pool_release(self, group_index or 0, #pages, pages, true, sync)
end

--- The longest cached prefix, and its pages in each group, each with a count to be released.
function Pool:lookup(tokens, options)
    local groups = #core.groups(self)
    local capacity = options and options.capacity or #tokens
    local pages, native = core.pool_lookup(self, prompt(tokens, options), options and options.max_match or 0, capacity)
    local match, lists = matched(native), {}
    for g = 1, groups do
        lists[g] = table.move(pages, (g - 1) * capacity + 1, (g - 1) * capacity + match.blocks, 1, {})
    end
    return match, lists
end

function Pool:probe(tokens, options)
    return matched(core.pool_probe(self, prompt(tokens, options), options and options.max_match or 0))
end

--- Makes held pages findable as blocks of a prompt: options first_block, group, namespace, media.
function Pool:publish(tokens, pages, options)
    local given = options or {}
    return core.pool_publish(self, given.group or 0, prompt(tokens, given), given.first_block or 0, #pages, pages)
end

function Pool:set_retention(tokens, fields, options)
    local given = options or {}
    return core.pool_set_retention(
        self, prompt(tokens, given), given.first_token or 0, given.num_tokens or ALL, retention(fields)
    )
end

function Pool:set_namespace_retention(ns, fields)
    core.pool_set_namespace_retention(self, namespace(ns), retention(fields))
end

--- Keys of the prompt's whole blocks: strings of 16 bytes.
function Pool:keys(tokens, options)
    local given = prompt(tokens, options)
    local _, count = core.pool_keys(self, given, 0)
    local packed = core.pool_keys(self, given, count)
    local keys = {}
    for i = 1, count do keys[i] = packed:sub((i - 1) * core.KEY_BYTES + 1, i * core.KEY_BYTES) end
    return keys
end

--- Keys of the images of the prompt's whole blocks: strings of 32 bytes.
function Pool:image_keys(tokens, options)
    local given, group_index = prompt(tokens, options), options and options.group or 0
    local _, count = core.pool_image_keys(self, group_index, given, 0)
    local packed = core.pool_image_keys(self, group_index, given, count)
    local keys = {}
    for i = 1, count do keys[i] = packed:sub((i - 1) * core.TIER_KEY_BYTES + 1, i * core.TIER_KEY_BYTES) end
    return keys
end

--- Events after number `after`, and how many were missed.
function Pool:events(after, capacity)
    local packed, count, missed = core.pool_events(self, after or 0, capacity or 1024)
    local events = {}
    for i = 1, count do
        local at = (i - 1) * core.EVENT_BYTES + 1
        events[i] = {
            sequence = string.unpack("<I8", packed, at + core.EVENT_AT_SEQUENCE),
            kind = string.unpack("<i4", packed, at + core.EVENT_AT_KIND),
            group = string.unpack("<I4", packed, at + core.EVENT_AT_GROUP),
            key = packed:sub(at + core.EVENT_AT_KEY, at + core.EVENT_AT_KEY + core.KEY_BYTES - 1),
            parent = packed:sub(at + core.EVENT_AT_PARENT, at + core.EVENT_AT_PARENT + core.KEY_BYTES - 1),
            block = string.unpack("<I8", packed, at + core.EVENT_AT_BLOCK),
        }
    end
    return events, missed
end

--- Scatters rows of a layer to slots. Rows: a string or buffer, or {data, dtype =, token_stride =, head_stride =, offset =}.
function Pool:write(layer, slots, k, v, options)
    local given = options or {}
    core.pool_write(self, given.group or 0, layer, #slots, slots, k, v, given.sync)
end

--- Gathers rows of a layer through a block table into buffers.
function Pool:gather(layer, pages, first_token, num_tokens, k, v, options)
    local given = options or {}
    core.pool_gather(self, given.group or 0, layer, #pages, pages, first_token, num_tokens, k, v, given.sync)
end

function Pool:copy_pages(src, dst, options)
    if #src ~= #dst then fail(("%d sources, %d destinations"):format(#src, #dst)) end
    local given = options or {}
    core.pool_copy_pages(self, given.group or 0, #src, src, dst, given.sync)
end

local function op_options(given)
    local options = core.op_options()
    if given.queue then options:set_queue(given.queue) end
    options.user = given.user or 0
    options.timeout_ns = given.timeout and math.max(1, nanoseconds(given.timeout)) or 0
    return options
end

local function move(how, self, keys, pages, options)
    local given = options or {}
    return how(self, given.group or 0, #pages, table.concat(keys), pages, given.sync, op_options(given))
end

--- Begins to store images of held pages in the tiers, or to load them: options group, queue, user, timeout, sync.
function Pool:store(keys, pages, options) return move(core.pool_store, self, keys, pages, options) end
function Pool:load(keys, pages, options) return move(core.pool_load, self, keys, pages, options) end

-- ---- tables ---------------------------------------------------------------------------------------------------------

local Table = core.class("Table")

function Table:clear(sync) core.table_clear(self, sync) end
function Table:reserve(num_tokens) core.table_reserve(self, num_tokens) end
function Table:set_tokens(position, tokens) core.table_set_tokens(self, position, #tokens, tokens) end
function Table:commit(num_tokens, sync) core.table_commit(self, num_tokens, sync) end
function Table:fork(sync) return core.table_fork(self, sync) end
function Table:truncate(num_tokens, sync) core.table_truncate(self, num_tokens, sync) end
function Table:accept(positions, sync) core.table_accept(self, #positions, positions, sync) end
function Table:window(sync) core.table_window(self, sync) end
function Table:info() return core.table_get_info(self) end

function Table:destroy(sync) core.table_destroy(self, sync) end

--- Begins a sequence: options max_match, reserve_tokens, watermark, no_match, partial, share, retry, namespace, media.
function Table:admit(tokens, options)
    local native = core.admit_options()
    for _, name in ipairs({"max_match", "reserve_tokens", "watermark"}) do
        if options and options[name] then native[name] = options[name] end
    end
    native.flags = flags(options, {
        no_match = core.ADMIT_NO_MATCH, partial = core.ADMIT_PARTIAL, share = core.ADMIT_SHARE, retry = core.ADMIT_RETRY,
    })
    return matched(core.table_admit(self, prompt(tokens, options), native))
end

-- The rows of one token of a group, in bytes of its own type.
local function token_bytes(self, group_index, side)
    local shape = core.groups(self)[group_index + 1]
    return shape and shape[2] * shape[3 + side] or 0
end

--- Puts rows in: row i belongs to position + i. options: group, num_tokens (as many as k has, in the group's type), sync.
function Table:write(layer, position, k, v, options)
    local given = options or {}
    local group_index = given.group or 0
    local count = given.num_tokens
    if count == nil then
        local bytes, rows = token_bytes(self, group_index, 0), type(k) == "table" and k[1] or k
        local room = type(rows) == "table" and rows.bytes or rows and #rows or 0
        count = bytes > 0 and room // bytes or 0
    end
    core.table_write(self, group_index, layer, position, count, k, v, given.sync)
end

--- Takes rows out: into buffers k and v, or into new ones, which it returns.
function Table:gather(layer, position, num_tokens, k, v, options)
    local given = options or {}
    local group_index = given.group or 0
    if k == nil and v == nil then
        k = core.buffer(num_tokens * token_bytes(self, group_index, 0))
        local bytes = token_bytes(self, group_index, 1)
        v = bytes > 0 and core.buffer(num_tokens * bytes) or nil
    end
    core.table_gather(self, group_index, layer, position, num_tokens, k, v, given.sync)
    return k, v
end

function Table:set_retention(fields, first_token, num_tokens)
    core.table_set_retention(self, first_token or 0, num_tokens or ALL, retention(fields))
end

--- In a pool without memory: {group =, src =, dst =} of each copy that has to be made.
function Table:take_copies()
    local packed, count = core.table_take_copies(self, core.MAX_GROUPS)
    local copies = {}
    for i = 1, count do
        local at = (i - 1) * core.PAGE_COPY_BYTES + 1
        copies[i] = {
            group = string.unpack("<I4", packed, at + core.PAGE_COPY_AT_GROUP),
            src = string.unpack("<i4", packed, at + core.PAGE_COPY_AT_SRC),
            dst = string.unpack("<i4", packed, at + core.PAGE_COPY_AT_DST),
        }
    end
    return copies
end

--- The committed part of the sequence, as a string; and a sequence from one.
function Table:export()
    local _, size = core.table_export(self, 0)
    local data, written = core.table_export(self, size)
    return data:sub(1, written)
end
function Table:import(data) core.table_import(self, data) end

--- The block table of a group: page ids, -1 where a window has passed.
function Table:pages(group_index)
    local _, count = core.table_pages(self, group_index or 0, 0)
    return (core.table_pages(self, group_index or 0, count))
end

function Table:slots(position, num_tokens, group_index)
    return core.table_slots(self, group_index or 0, position, num_tokens)
end

--- Where blocks are: -1 dropped, 0 in a page, 1 + i in tier i.
function Table:residency(first_block, num_blocks, group_index)
    return core.table_residency(self, group_index or 0, first_block or 0, num_blocks or self:info().blocks - (first_block or 0))
end

function Table:spill(first_block, num_blocks, sync) return core.table_spill(self, first_block or 0, num_blocks or ALL, sync) end
function Table:restore(first_block, num_blocks, timeout)
    return core.table_restore(self, first_block or 0, num_blocks or ALL, nanoseconds(timeout))
end

-- ---- batches --------------------------------------------------------------------------------------------------------

local Batch = core.class("Batch")

--- The tables of a decode step: {max_tables =, max_tokens =, max_blocks =, fill =, group =}. Its arrays are buffers of its own:
--- batch:array(name) is a list of block_table, slot_mapping, lengths or last_page_len; batch:memory(name) the buffer itself.
function Pool:batch(fields)
    local options, arrays = core.batch_options(), core.batch_arrays()
    options.max_tables = fields.max_tables or 0
    options.max_tokens = fields.max_tokens or 0
    arrays.group = fields.group or 0
    arrays.fill = fields.fill or 0
    arrays.max_blocks = fields.max_blocks or 0
    -- Sizes that the call refuses need no memory.
    local tables = math.min(options.max_tables, 65536)
    local memory = {
        block_table = core.buffer(4 * tables * math.min(arrays.max_blocks, 1 << 24)),
        slot_mapping = core.buffer(8 * math.min(options.max_tokens, 1 << 32)),
        lengths = core.buffer(4 * tables),
        last_page_len = core.buffer(4 * tables),
    }
    arrays.block_table_address = memory.block_table:address()
    arrays.slot_mapping_address = memory.slot_mapping:address()
    options.lengths_address = memory.lengths:address()
    options.last_page_len_address = memory.last_page_len:address()
    options:add_arrays(arrays)
    local batch = core.batch_create(self, options)
    core.keep(batch, memory)
    return batch
end

function Batch:memory(name) return core.kept(self)[name] end

function Batch:array(name)
    local memory, wide = self:memory(name), name == "slot_mapping"
    local list, data = {}, memory:string()
    for at = 1, #data, wide and 8 or 4 do list[#list + 1] = string.unpack(wide and "<i8" or "<i4", data, at) end
    return list
end

--- Begins a step: the first failing row's status, or 0, and a status for each row. What concerns the whole batch is an error.
function Batch:reserve(tables, num_new) return core.batch_reserve(self, #tables, tables, num_new, true) end
function Batch:set_tokens(tokens) return core.batch_set_tokens(self, #tokens, tokens, true) end
function Batch:commit(num_accepted, sync) return core.batch_commit(self, num_accepted, true, sync) end

function Batch:write(layer, k, v, options)
    local given = options or {}
    core.batch_write(self, given.group or 0, layer, k, v, given.sync)
end

--- Gathers a layer of every row into buffers: options group, first (a list), padded, sync.
function Batch:gather(layer, k, v, options)
    local given = options or {}
    core.batch_gather(self, given.group or 0, layer, given.first, given.padded or 0, k, v, given.sync)
end

-- ---- tiers, operations ----------------------------------------------------------------------------------------------

local Tier, Queue, Op = core.class("Tier"), core.class("Queue"), core.class("Op")

--- Tiers: pagedkv.host_tier{capacity_bytes =}, pagedkv.file_tier{path =, capacity_bytes =, identity =, reset =, ...}.
function pagedkv.host_tier(fields) return core.tier_open_host(fill(core.host_tier_options(), fields, "host_tier")) end

function pagedkv.file_tier(fields)
    local bits = flags(fields, {reset = core.FILE_RESET, buffered = core.FILE_BUFFERED})
    local options = fill(core.file_tier_options(), fields, "file_tier", {
        path = function(native, value) native:set_path(value) end,
        identity = function(native, value) native:set_identity(value) end,
        lock_timeout = function(native, value) native.lock_timeout_ns = math.max(1, nanoseconds(value)) end,
        reset = function() end, buffered = function() end, flags = function() end,
    })
    options.flags = bits
    return core.tier_open_file(options)
end

function Tier:stats() return core.tier_get_stats(self) end

function pagedkv.queue() return core.queue_create() end
function Queue:fileno() return core.queue_handle(self) end

--- Takes results out: {user =, status =, op_value =} of each; an empty list when none came in time.
function Queue:drain(capacity, timeout)
    local good, packed, count = pcall(core.queue_drain, self, capacity or 64, nanoseconds(timeout or 0))
    if not good then
        if packed.status == core.ERR_TIMEOUT then return {} end
        error(packed, 0)
    end
    local ended = {}
    for i = 1, count do
        local at = (i - 1) * core.COMPLETION_BYTES + 1
        ended[i] = {
            user = string.unpack("<i8", packed, at + core.COMPLETION_AT_USER), -- 64 bits, as an integer
            status = string.unpack("<i4", packed, at + core.COMPLETION_AT_STATUS),
        }
    end
    return ended
end

function Op:wait(timeout) core.op_wait(self, nanoseconds(timeout)) end
function Op:cancel() core.op_cancel(self) end

function Op:poll()
    local info = core.op_poll(self, true, 0)
    local statuses
    info, statuses = core.op_poll(self, true, info.num_items)
    return {
        ended = info.state == core.OP_ENDED, status = info.status, num_items = info.num_items, done_items = info.done_items,
        good_items = info.good_items, buffers_free = info.buffers_free ~= 0, statuses = statuses,
    }
end

--- The sequence that node:pull() has brought.
function Op:table() return core.pull_table(self) end

-- ---- prefetch sessions ----------------------------------------------------------------------------------------------

local Session = core.class("Session")

--- A prefetch session: the fields of pkv_prefetch_options; policy by name, layers = {{group, layer} ...}, staging_pages = {...}.
--- lists = false: views have addresses of their lists, for kernels on a device, and no lists.
function Pool:session(fields)
    local bits = flags(fields, {off = core.PREFETCH_OFF, whole_layers = core.PREFETCH_WHOLE_LAYERS})
    local options = fill(core.prefetch_options(), fields, "session", {
        policy = function(native, value) native.policy = choice("predict", value) end,
        layers = function(native, value)
            for _, one in ipairs(value) do native:add_layer(one[1], one[2]) end
        end,
        staging_pages = function(native, value) native:set_staging_pages(value, #value) end,
        off = function() end, whole_layers = function() end, flags = function() end, lists = function() end,
    })
    options.flags = bits
    if fields and fields.lists == false then return core.prefetch_open(self, options) end
    if options.num_buffers == 0 then options.num_buffers = 4 end
    if options.max_tables == 0 then options.max_tables = 256 end
    if options.max_slices == 0 then
        local most = 65536
        for g = 0, #core.groups(self) - 1 do most = math.max(most, 4 * self:stats(g).num_pages) end
        options.max_slices = most
    end
    -- Lists of views are buffers of the session's; sizes that the call refuses need no memory.
    local buffers, tables = math.min(options.num_buffers, 64), math.min(options.max_tables, 65536)
    local memory = {
        slices = core.buffer(4 * buffers * math.min(options.max_slices, 1 << 32)), indptr = core.buffer(4 * buffers * (tables + 1)),
        max_slices = options.max_slices, max_indptr = tables + 1,
    }
    options.slices_address, options.slice_indptr_address = memory.slices:address(), memory.indptr:address()
    local session = core.prefetch_open(self, options)
    core.keep(session, memory)
    return session
end

function Session:cancel() core.prefetch_cancel(self) end
function Session:stats() return core.prefetch_get_stats(self) end
function Session:hint(sequence, scores) core.prefetch_hint(self, sequence, #scores, scores) end
function Session:submit(sequence, position) return core.prefetch_submit(self, sequence, position) end

--- Begins to load a prompt's prefix: what was found, and the operation.
function Session:prompt(tokens, options)
    local native, op = core.prefetch_prompt(self, prompt(tokens, options), op_options(options or {}))
    return matched(native), op
end

function Session:require(sequence, first_block, num_blocks, timeout)
    return core.prefetch_require(self, sequence, first_block or 0, num_blocks or ALL, nanoseconds(timeout))
end

--- Begins a step: a status for each table.
function Session:step_begin(tables, num_tokens)
    local _, statuses = core.prefetch_step_begin(self, #tables, tables, num_tokens, true)
    return statuses
end

local function int32s(memory, first, count)
    local list, data = {}, memory:string(4 * first + 1, 4 * (first + count))
    for i = 1, count do list[i] = string.unpack("<i4", data, 4 * i - 3) end
    return list
end

--- The next range of a layer: index, group, layer, last (true or false), waited_ns; slices, a list of slice ids, -1 for what is
--- not to be had; indptr: table t has slices[indptr[t] + 1] ... slices[indptr[t + 1]]; layout, for kernels that read in place. With
--- lists = false there are slices_address (int32, num_slices of them) and indptr_address (int32, num_tables + 1) in their place, and
--- sync may be a cuda_stream() on a device: the stream waits for the bytes, not the call. Release it in the same stream.
function Session:layer_acquire(index, timeout, sync)
    local memory = core.kept(self)
    if memory and sync then fail("layer_acquire: a sync is for sessions with lists = false") end
    local view = core.prefetch_layer_acquire(self, index, nanoseconds(timeout), sync)
    local range = {
        index = view.index, group = view.group, layer = view.layer, last = view.last ~= 0, waited_ns = view.waited_ns,
        num_tables = view.num_tables, num_slices = view.num_slices, layout = view:get_layout(),
    }
    if memory then
        range.slices = int32s(memory.slices, view.buffer * memory.max_slices, view.num_slices)
        range.indptr = int32s(memory.indptr, view.buffer * memory.max_indptr, view.num_tables + 1)
    else
        range.slices_address, range.indptr_address = view.slices_address, view.indptr_address
    end
    return range
end
function Session:layer_release(index, sync) core.prefetch_layer_release(self, index, sync) end

--- Ends a step: the first failing table's status, or 0, and a status for each table.
function Session:step_end() return core.prefetch_step_end(self, true) end

--- Which blocks are needed next: {page_tokens =, num_tokens =, position =, policy =, lookahead =, scores = ...}.
function pagedkv.predict(fields)
    local scores = fields.scores or {}
    local predictor = core.predictor()
    predictor.policy = choice("predict", fields.policy or "sequential")
    for _, name in ipairs({"page_tokens", "sink_tokens", "recent_tokens", "lookahead"}) do
        if fields[name] then predictor[name] = fields[name] end
    end
    local function ask(capacity)
        return core.prefetch_predict(predictor, fields.num_tokens, fields.position, #scores, scores, capacity)
    end
    local _, count = ask(fields.capacity or 0)
    if fields.capacity == 0 then return {}, count end
    return (ask(fields.capacity or count)), count
end

-- ---- nodes ----------------------------------------------------------------------------------------------------------

local Node, Offer = core.class("Node"), core.class("Offer")

--- A node: {cluster_key =, listen =, tiers = {...}, pools = {...}, promote = true, copy = true, provider = ..., ...}, the fields of
--- pkv_node_options.
function pagedkv.node(fields)
    local special = {
        tiers = function(native, value)
            for _, one in ipairs(value) do native:add_tier(one) end
        end,
        pools = function(native, value)
            for _, one in ipairs(value) do native:add_pool(one) end
        end,
        lease = function(native, value) native.lease_ns = math.max(1, nanoseconds(value)) end,
        timeout = function(native, value) native.timeout_ns = math.max(1, nanoseconds(value)) end,
        promote = function() end, copy = function() end, flags = function() end,
    }
    for _, name in ipairs({
        "cluster_key", "name", "listen", "provider", "fabric_host", "directory", "advertise", "directory_prefix", "identity",
    }) do
        special[name] = function(native, value) native["set_" .. name](native, value) end
    end
    local options = fill(core.node_options(), fields, "node", special)
    options.flags = flags(fields, {promote = core.NODE_PROMOTE, copy = core.NODE_COPY})
    local node = core.node_open(options)
    core.keep(node, {fields.tiers, fields.pools})
    return node
end

function Node:address() return core.node_address(self, core.node_address(self, 0)) end
function Node:connect(address, timeout) core.node_connect(self, address, nanoseconds(timeout or 0)) end
function Node:disconnect(address) core.node_disconnect(self, address) end
function Node:tier() return core.node_tier(self) end
function Node:stats() return core.node_get_stats(self) end

function Node:peers()
    local _, count = core.node_peers(self, 0)
    local packed
    packed, count = core.node_peers(self, count + 4)
    local peers = {}
    for i = 1, count do
        local at = (i - 1) * core.NODE_PEER_BYTES + 1
        peers[i] = {
            address = string.unpack("z", packed, at + core.NODE_PEER_AT_ADDRESS),
            name = string.unpack("z", packed, at + core.NODE_PEER_AT_NAME),
            connected = string.unpack("<i4", packed, at + core.NODE_PEER_AT_CONNECTED) ~= 0,
            status = string.unpack("<i4", packed, at + core.NODE_PEER_AT_STATUS),
        }
    end
    return peers
end

--- Offers a sequence to be pulled: the offer, and the operation that ends when it has been.
function Node:offer(sequence, fields)
    local given = fields or {}
    local options = core.offer_options()
    options.num_tokens = given.num_tokens or 0
    options.lifetime_ns = given.lifetime and math.max(1, nanoseconds(given.lifetime)) or 0
    options.max_pulls = given.max_pulls or 0
    if given.address then options:set_address(given.address) end
    return core.table_offer(self, sequence, options, op_options(given))
end

function Offer:ticket()
    local _, size = core.offer_ticket(self, 0)
    local ticket, written = core.offer_ticket(self, size)
    return ticket:sub(1, written)
end
function Offer:ready(num_tokens, group_index, layer, sync)
    core.offer_ready(self, group_index or core.ALL_GROUPS, layer or core.ALL_LAYERS, num_tokens, sync)
end
function Offer:info() return core.offer_get_info(self) end

--- Begins to pull a sequence into a pool; op:table() gives it when the operation has ended well.
function Node:pull(pool, tickets, fields)
    local given = fields or {}
    local options = core.pull_options()
    if given.namespace then options:set_ns(namespace(given.namespace)) end
    if given.groups then options:set_groups(given.groups, #given.groups) end
    options.flags = flags(given, {no_match = core.PULL_NO_MATCH, no_retention = core.PULL_NO_RETENTION})
    return core.table_pull(self, pool, tickets, options, op_options(given))
end

-- ---- the rest -------------------------------------------------------------------------------------------------------

function pagedkv.version() return core.version_string() end
function pagedkv.cpu_kernels() return core.cpu_kernels() end

--- BLAKE2b-256 of the parts, kept apart from each other: 32 bytes.
function pagedkv.digest(...)
    return string.char(table.unpack(core.digest({...})))
end

--- Statistics in Prometheus' text format: {pools = {name = pool}, tiers = {...}, sessions = {...}, nodes = {...}}.
function pagedkv.prometheus(fields)
    local sources = core.prometheus_sources()
    for what, method in pairs({pools = "add_pool", tiers = "add_tier", sessions = "add_session", nodes = "add_node"}) do
        for name, one in pairs(fields[what] or {}) do sources[method](sources, one, tostring(name)) end
    end
    return core.stats_prometheus(sources, core.stats_prometheus(sources, 0) + 65536)
end

function pagedkv.trace_start(max_events) core.trace_start(max_events or 0) end
function pagedkv.trace_stop(path) return core.trace_stop(path) end

return pagedkv
