-- SPDX-License-Identifier: Apache-2.0
-- Runs the conformance cases (bindings/conformance/README.md) through the classes; where a case wants what these do not let happen,
-- through the low layer below them.
--
--   lua5.4 conformance.lua CASES

local pagedkv = require("pagedkv")
local core = require("pagedkv.core")

-- ---- values ---------------------------------------------------------------------------------------------------------

local MAX <const> = math.huge

-- Decimal, hexadecimal, or "max"; beyond 2^63 an integer with these bits.
local function number(text)
    if text == "max" then return MAX end
    local value = math.tointeger(text)
    if value and not text:find("[.eE]") then return value end
    local bits = 0
    for digit in text:gmatch("%d") do bits = bits * 10 + tonumber(digit) end
    return bits
end

local function numbers(text)
    local list = {}
    if text == nil or text == "" or text == "none" then return list end
    for item in (text .. ","):gmatch("(.-),") do
        local first, last = item:match("^(-?%w+)%.%.(-?%w+)$")
        local value, times = item:match("^(-?%w+)%*(%w+)$")
        if first then
            for i = number(first), number(last) do list[#list + 1] = i end
        elseif value then
            for _ = 1, number(times) do list[#list + 1] = number(value) end
        else
            list[#list + 1] = number(item)
        end
    end
    return list
end

local function as_bytes(text)
    if text:sub(1, 1) ~= "@" then return text end
    return (text:sub(2):gsub("%x%x", function(digits) return string.char(tonumber(digits, 16)) end))
end

local function unsigned(value)
    if math.type(value) == "integer" and value < 0 then
        local tens = (value >> 1) // 5
        return ("%d%d"):format(tens, value - tens * 10)
    end
    return ("%d"):format(value)
end

local function listed(list, show)
    if #list == 0 then return "none" end
    local texts = {}
    for i, value in ipairs(list) do texts[i] = (show or tostring)(value) end
    return table.concat(texts, ",")
end

local function expanded(text)
    if text:find("..", 1, true) or text:find("*", 1, true) then return listed(numbers(text)) end
    return text
end

local function short(status)
    local name = core.status_string(status)
    return name:match("^PKV_ERR_(.+)$") or name:match("^PKV_(.+)$")
end

local function fnv(data)
    local digest = 0xcbf29ce484222325
    for i = 1, #data do digest = (digest ~ data:byte(i)) * 0x100000001b3 end
    return ("%016x"):format(digest)
end

-- ---- objects of a case ----------------------------------------------------------------------------------------------

local objects, files = {}, {}

local function add(kind, name, thing)
    objects[#objects + 1] = {kind = kind, name = name, thing = thing}
    return thing
end

local function find(kind, name)
    for i = #objects, 1, -1 do
        if objects[i].kind == kind and objects[i].name == name then return objects[i].thing end
    end
    error(("there is no %s %s"):format(kind, name))
end

-- A new object; one that could not be made is a handle that is NULL.
local function make(kind, name, how)
    local result = table.pack(pcall(how))
    if not result[1] then
        add(kind, name, core.unopened(kind))
        error(result[2], 0)
    end
    add(kind, name, result[2])
    return table.unpack(result, 2, result.n)
end

local function end_case()
    for i = #objects, 1, -1 do
        local thing = objects[i].thing
        if type(thing) == "userdata" then pcall(thing.close, thing) end
    end
    objects = {}
    for _, path in pairs(files) do os.remove(path) end
    files = {}
end

local function path_of(name)
    if files[name] == nil then
        files[name] = os.tmpname()
        os.remove(files[name]) -- a file of no bytes is no tier's
    end
    return files[name]
end

-- ---- arguments ------------------------------------------------------------------------------------------------------

local Line = {}
Line.__index = Line

function Line:number(key, otherwise)
    if self.args[key] == nil then return otherwise or 0 end
    return number(self.args[key])
end
function Line:list(key) return numbers(self.args[key]) end
function Line:name(key)
    local value = self.args[key]
    return value and (math.tointeger(value) or value)
end
function Line:seconds(key, otherwise)
    local value = self:number(key, otherwise or MAX)
    return value ~= MAX and value / 1e9 or nil
end
function Line:object(kind, key) return find(kind, self.args[key or kind:lower()]) end
function Line:sync()
    if self.args.sync == nil then return nil end
    local name, value = self.args.sync:match("^(.-):(.+)$")
    return find("Counter", name):reached(number(value), self:number("sync_timeout", 1000000) / 1e9)
end
function Line:fields(names)
    local fields = {}
    for name in names:gmatch("%S+") do
        local value = self.args[name]
        if value and (tonumber(value) or value == "max") then value = number(value) end
        fields[name] = value
    end
    return fields
end

local function namespace(line)
    local a = line.args
    if not (a.model or a.adapter or a.adapter_id or a.generation or a.salt) then return nil end
    return {
        model = as_bytes(a.model or ""), adapter = as_bytes(a.adapter or ""), adapter_id = line:number("adapter_id"),
        adapter_generation = line:number("generation"), salt = as_bytes(a.salt or ""),
    }
end

-- Tokens, and options with namespace and media.
local function prompt(line, more)
    local options = more or {}
    options.namespace = namespace(line)
    if line.args.media then
        options.media = {}
        for item in (line.args.media .. "/"):gmatch("(.-)/") do
            local position, count, digest = item:match("^(%d+):(%d+):(.*)$")
            table.insert(options.media, {number(position), number(count), as_bytes(digest)})
        end
    end
    return line:list("tokens"), options
end

-- ---- rows -----------------------------------------------------------------------------------------------------------

local dtypes = {"f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "opaque"}

-- Rows of K and V for some tokens, by the pattern or empty: {k =, v =} as a call takes them, with their buffers.
local function rows(line, pool, position, count, filled, overrides)
    local group = (overrides and overrides.group) or line:number("group")
    local layer = (overrides and overrides.layer) or line:number("layer")
    local shape = (pool:closed() and {} or core.groups(pool))[group + 1] or {1, 1, 0, 0}
    local dtype, heads = shape[1], shape[2]
    local stored = core.dtype_bytes(dtype)
    if stored == 0 then stored = 1 end
    local values = line.args.dtype == "f32" and dtypes[dtype] ~= "f32"
    local tag, made = line:number("fill"), {buffers = {}}
    for side = 0, 1 do
        local name, bytes = side == 0 and "k" or "v", shape[3 + side]
        if (line.args.sides or "kv"):find(name, 1, true) and bytes > 0 then
            local width = values and bytes // stored or bytes
            local parts = {}
            for t = position, position + (filled and count or 0) - 1 do
                for h = 0, heads - 1 do
                    for i = 0, width - 1 do
                        if values then
                            parts[#parts + 1] = string.pack("<f", (tag + side * 5 + layer * 3 + t * 7 + h * 2 + i) % 17 - 8)
                        else
                            parts[#parts + 1] = string.char(
                                (tag * 7 + side * 101 + layer * 53 + t * 29 + (t >> 8) * 11 + h * 17 + i * 3) & 255
                            )
                        end
                    end
                end
            end
            local data = filled and table.concat(parts) or core.buffer(count * heads * width * (values and 4 or 1))
            made.buffers[name] = data
            made[name] = values and {data, dtype = core.DTYPE_F32} or data
        end
    end
    return made
end

local function digests(made)
    local outputs = {}
    for name, buffer in pairs(made.buffers) do outputs[name] = fnv(buffer:string()) end
    return outputs
end

-- ---- operations -----------------------------------------------------------------------------------------------------

-- Outputs of an operation whose status is not OK.
local function with_outputs(status, outputs)
    if status == 0 then return outputs end
    error({status = status, outputs = outputs}, 0)
end

local run = {}

run["version"] = function() return {number = core.version_number(), text = pagedkv.version()} end
run["status_name"] = function(line) return {name = core.status_string(line:number("number"))} end
run["dtype_bytes"] = function(line)
    local name = line:name("dtype")
    for i, known in ipairs(dtypes) do
        if known == name then name = i end
    end
    return {bytes = core.dtype_bytes(name)}
end
run["digest"] = function(line)
    local parts = {}
    for part in (line.args.parts .. ","):gmatch("(.-),") do parts[#parts + 1] = as_bytes(part) end
    return {digest = (pagedkv.digest(table.unpack(parts)):gsub(".", function(c) return ("%02x"):format(c:byte()) end))}
end
run["counter"] = function(line)
    local good, counter = pcall(find, "Counter", line.args.counter)
    if not good then counter = add("Counter", line.args.counter, pagedkv.counter()) end
    counter:set(line:number("value"))
end
run["predict"] = function(line)
    local fields = line:fields("policy sink_tokens recent_tokens lookahead")
    fields.page_tokens = line:number("page_tokens", 16)
    fields.num_tokens, fields.position = line:number("num_tokens"), line:number("position")
    fields.scores, fields.capacity = line:list("scores"), line:number("capacity", 64)
    local good, blocks, count = pcall(pagedkv.predict, fields)
    if good then
        return {num_blocks = count, blocks = fields.capacity ~= 0 and listed(table.move(blocks, 1, count, 1, {})) or nil}
    end
    local failure = blocks
    if failure.status == core.ERR_NO_SPACE then
        fields.capacity = 0
        _, failure.outputs = nil, {num_blocks = select(2, pagedkv.predict(fields))}
    end
    error(failure, 0)
end

local group_fields = "num_pages num_layers first_layer total_layers num_kv_heads k_head_dim v_head_dim k_row_bytes v_row_bytes "
    .. "window sinks k_page_stride max_cached_pages aux_bytes dtype layout arrangement attention memory scales"
run["group"] = function(line) add("Group", line.args.group, line:fields(group_fields)) end

run["pool.create"] = function(line)
    local fields = line:fields("page_tokens seed debug event_capacity copy_threads flags clean_pages")
    if line.args.groups then
        fields.groups = {}
        for name in (line.args.groups .. ","):gmatch("(.-),") do table.insert(fields.groups, find("Group", name)) end
    else
        fields.groups = {line:fields(group_fields)}
    end
    if line.args.tiers then
        fields.tiers = {}
        for name, policy in line.args.tiers:gmatch("([^:/]+):([^/]+)") do
            table.insert(fields.tiers, {find("Tier", name), policy = policy})
        end
    end
    make("Pool", line.args.pool, function() return pagedkv.pool(fields) end)
end

local function on_pool(name, how)
    run["pool." .. name] = function(line) return how(line, line:object("Pool"), line:number("group")) end
end

on_pool("destroy", function(_, pool) core.pool_destroy(pool) end)
on_pool("quiesce", function(line, pool) pool:quiesce(line:seconds("timeout", 0)) end)
on_pool("flush", function(line, pool) pool:flush(line:seconds("timeout", 0)) end)
on_pool("layout", function(line, pool, group)
    local layout = pool:layout(line:number("layer"), group)
    local outputs = {has_memory = layout.k_base_address ~= 0 and 1 or 0}
    for name in ("k_page_stride k_token_stride k_head_stride v_page_stride v_token_stride v_head_stride k_row_bytes v_row_bytes "
        .. "num_kv_heads page_tokens dtype scale_page_stride"):gmatch("%S+") do outputs[name] = layout[name] end
    return outputs
end)
on_pool("alloc", function(line, pool, group) return {pages = listed(pool:alloc(line:number("num_pages"), group))} end)
on_pool("retain", function(line, pool, group) pool:retain(line:list("pages"), group) end)
on_pool("release", function(line, pool, group)
    if line:number("each") == 0 then return pool:release(line:list("pages"), group, line:sync()) end
    local status, statuses = pool:release_each(line:list("pages"), group, line:sync())
    return with_outputs(status, {statuses = listed(statuses, short)})
end)

local function fields_of(native, names)
    local outputs = {}
    for name in names:gmatch("%S+") do outputs[name] = native[name] end
    return outputs
end
on_pool("page_info", function(line, pool, group)
    return fields_of(pool:page_info(line:number("page"), group), "count state published block priority pinned")
end)

local function found(match)
    return {
        match = match.tokens, blocks = match.blocks, resident = match.resident_tokens, tier0 = match.tier_tokens[1],
        tier1 = match.tier_tokens[2],
    }
end
on_pool("lookup", function(line, pool)
    local tokens, options = prompt(line, {max_match = line:number("max_match"), capacity = line:number("capacity", 16)})
    local match, lists = pool:lookup(tokens, options)
    local outputs = found(match)
    outputs.pages, outputs.pages1 = listed(lists[1]), lists[2] and listed(lists[2])
    return outputs
end)
on_pool("probe", function(line, pool) return found(pool:probe(prompt(line, {max_match = line:number("max_match")}))) end)
on_pool("publish", function(line, pool, group)
    local tokens, options = prompt(line, {group = group, first_block = line:number("first_block")})
    return {owner = listed(pool:publish(tokens, line:list("pages"), options))}
end)
on_pool("evict", function(line, pool, group) return {evicted = pool:evict(line:number("num_pages"), group)} end)

local function retention(line)
    local ttl = line:number("ttl")
    return {priority = line:number("priority", 50), pin = line:number("pin") ~= 0, ttl = ttl ~= 0 and ttl / 1e9 or nil}
end
on_pool("set_retention", function(line, pool)
    local tokens, options = prompt(line, {first_token = line:number("first_token"), num_tokens = line:number("num_tokens", MAX)})
    return {blocks = pool:set_retention(tokens, retention(line), options)}
end)
on_pool("set_namespace_retention", function(line, pool)
    pool:set_namespace_retention(namespace(line), line:number("none") == 0 and retention(line) or nil)
end)
on_pool("clear", function(line, pool)
    local result = line:number("all") ~= 0 and pool:clear_all() or pool:clear(namespace(line))
    return {freed = result.freed, held = result.held}
end)

-- With a capacity of its own the low layer is asked; else the class.
local function keys(line, size, high, low)
    local capacity = line:number("capacity", 64)
    local native = core.prompt()
    local tokens = line:list("tokens")
    native:set_tokens(tokens, #tokens)
    if capacity == 64 then
        local list = high(prompt(line, {group = line:number("group")}))
        return {num_keys = #list, digest = fnv(table.concat(list))}
    end
    local good, packed, count = pcall(low, native, capacity)
    if not good then
        packed.outputs = {num_keys = select(2, low(native, 0))}
        error(packed, 0)
    end
    return {num_keys = count, digest = capacity ~= 0 and fnv(packed:sub(1, count * size)) or nil}
end
on_pool("keys", function(line, pool)
    return keys(line, 16, function(...) return pool:keys(...) end, function(...) return core.pool_keys(pool, ...) end)
end)
on_pool("image_keys", function(line, pool, group)
    return keys(line, 32, function(...) return pool:image_keys(...) end, function(...)
        return core.pool_image_keys(pool, group, ...)
    end)
end)
on_pool("events", function(line, pool)
    local events, missed = pool:events(line:number("after"), line:number("capacity", 64))
    return {
        count = #events, missed = missed, kinds = listed(events, function(event) return tostring(event.kind) end),
        blocks = listed(events, function(event) return tostring(event.block) end),
        last = #events > 0 and events[#events].sequence or 0,
    }
end)
on_pool("write", function(line, pool, group)
    local slots = line:list("slots")
    local made = rows(line, pool, line:number("position"), #slots, true)
    pool:write(line:number("layer"), slots, made.k, made.v, {group = group, sync = line:sync()})
end)
on_pool("gather", function(line, pool, group)
    local count = line:number("num_tokens")
    local made = rows(line, pool, 0, count, false)
    pool:gather(line:number("layer"), line:list("pages"), line:number("first_token"), count, made.k, made.v, {
        group = group, sync = line:sync(),
    })
    return digests(made)
end)
on_pool("copy_pages", function(line, pool, group)
    pool:copy_pages(line:list("src"), line:list("dst"), {group = group, sync = line:sync()})
end)
on_pool("stats", function(_, pool, group)
    return fields_of(pool:stats(group), "num_pages free_pages held_pages cached_pages tables namespaces index_blocks page_bytes "
        .. "requests asked_tokens hit_tokens retries refused probes allocated_pages failed_allocations evicted_pages cleared_pages "
        .. "published_blocks unpublished_blocks duplicate_blocks key_collisions copied_pages partial_tokens shared_duplicates events "
        .. "pinned_pages stored_images dropped_images loaded_blocks spilled_blocks lost_blocks tier_hit_tokens image_bytes key_seed")
end)

local function move(how)
    return function(line, pool, group)
        local pages, timeout = line:list("pages"), line:number("timeout")
        local options = {
            group = group, sync = line:sync(), user = line:number("user"), timeout = timeout ~= 0 and timeout / 1e9 or nil,
            queue = line.args.queue and line:object("Queue"),
        }
        make("Op", line.args.op, function()
            local list = pool:image_keys(prompt(line, {group = group}))
            return how(pool, table.move(list, 1, #pages, 1, {}), pages, options)
        end)
    end
end
on_pool("store", move(function(pool, ...) return pool:store(...) end))
on_pool("load", move(function(pool, ...) return pool:load(...) end))

-- ---- tables ----

run["table.create"] = function(line)
    make("Table", line.args.table, function() return line:object("Pool"):table() end)
end

local function on_table(name, how)
    run["table." .. name] = function(line) return how(line, line:object("Table"), line:number("group")) end
end

on_table("destroy", function(line, sequence) sequence:destroy(line:sync()) end)
on_table("clear", function(line, sequence) sequence:clear(line:sync()) end)
on_table("admit", function(line, sequence)
    return found(sequence:admit(prompt(line, line:fields("max_match reserve_tokens watermark flags"))))
end)
on_table("reserve", function(line, sequence) sequence:reserve(line:number("num_tokens")) end)
on_table("set_tokens", function(line, sequence) sequence:set_tokens(line:number("position"), line:list("tokens")) end)
on_table("write", function(line, sequence, group)
    local position, count = line:number("position"), line:number("num_tokens")
    local made = rows(line, line:object("Pool"), position, count, true)
    sequence:write(line:number("layer"), position, made.k, made.v, {group = group, num_tokens = count, sync = line:sync()})
end)
on_table("gather", function(line, sequence, group)
    local count = line:number("num_tokens")
    local made = rows(line, line:object("Pool"), 0, count, false)
    sequence:gather(line:number("layer"), line:number("position"), count, made.k, made.v, {group = group, sync = line:sync()})
    return digests(made)
end)
on_table("commit", function(line, sequence) sequence:commit(line:number("num_tokens"), line:sync()) end)
on_table("fill", function(line, sequence)
    local pool, first, last = line:object("Pool"), line:number("from"), line:number("num_tokens")
    for group = 0, #core.groups(pool) - 1 do
        local layer = 0
        while pcall(pool.layout, pool, layer, group) do
            local made = rows(line, pool, first, last - first, true, {group = group, layer = layer})
            sequence:write(layer, first, made.k, made.v, {group = group, num_tokens = last - first})
            layer = layer + 1
        end
    end
    sequence:commit(last)
end)
on_table("fork", function(line, sequence)
    make("Table", line.args.fork, function() return sequence:fork(line:sync()) end)
end)
on_table("truncate", function(line, sequence) sequence:truncate(line:number("num_tokens"), line:sync()) end)
on_table("accept", function(line, sequence) sequence:accept(line:list("positions"), line:sync()) end)
on_table("window", function(line, sequence) sequence:window(line:sync()) end)
on_table("set_retention", function(line, sequence)
    sequence:set_retention(retention(line), line:number("first_token"), line:number("num_tokens", MAX))
end)
on_table("take_copies", function(line, sequence)
    if line.args.capacity == "0" then return {count = select(2, core.table_take_copies(sequence, 0))} end
    local copies = sequence:take_copies()
    return {
        count = #copies, src = listed(copies, function(copy) return tostring(copy.src) end),
        dst = listed(copies, function(copy) return tostring(copy.dst) end),
    }
end)
on_table("export", function(line, sequence)
    if line.args.capacity then core.table_export(sequence, line:number("capacity")) end
    local data = sequence:export()
    if line.args.damage then
        local at = line:number("damage") + 1
        data = data:sub(1, at - 1) .. string.char(data:byte(at) ~ 1) .. data:sub(at + 1)
    end
    if line.args.into then find("Table", line.args.into):import(data) end
    return {size = #data}
end)
on_table("pages", function(line, sequence, group)
    if line.args.capacity == nil then
        local pages = sequence:pages(group)
        return {num_blocks = #pages, pages = listed(pages)}
    end
    local good, pages, count = pcall(core.table_pages, sequence, group, line:number("capacity"))
    if not good then
        pages.outputs = {num_blocks = select(2, core.table_pages(sequence, group, 0))}
        error(pages, 0)
    end
    return {num_blocks = count}
end)
on_table("slots", function(line, sequence, group)
    return {slots = listed(sequence:slots(line:number("position"), line:number("num_tokens"), group))}
end)
on_table("residency", function(line, sequence, group)
    return {where = listed(sequence:residency(line:number("first_block"), line:number("num_blocks"), group))}
end)
on_table("spill", function(line, sequence)
    local result = sequence:spill(line:number("first_block"), line:number("num_blocks", MAX), line:sync())
    return {spilled = result.spilled_blocks, shared = result.shared_pages}
end)
on_table("restore", function(line, sequence)
    return {restored = sequence:restore(line:number("first_block"), line:number("num_blocks", MAX), line:seconds("timeout"))}
end)
on_table("info", function(_, sequence)
    return fields_of(sequence:info(), "named reserved committed published matched blocks committed_blocks valid absent_blocks")
end)

-- ---- batches ----

run["batch.create"] = function(line)
    local fields = line:fields("max_tokens max_blocks group fill")
    fields.max_tables = line:number("max_tables", 1)
    make("Batch", line.args.batch, function() return line:object("Pool"):batch(fields) end)
end

local function on_batch(name, how)
    run["batch." .. name] = function(line) return how(line, line:object("Batch"), line:number("group")) end
end
local function tables_of(line)
    local list = {}
    for name in (line.args.tables and line.args.tables .. "," or ""):gmatch("(.-),") do list[#list + 1] = find("Table", name) end
    return list
end
local function rows_result(status, statuses) return with_outputs(status, {statuses = listed(statuses, short)}) end

on_batch("destroy", function(_, batch) core.batch_destroy(batch) end)
on_batch("arrays", function(_, batch)
    local outputs = {}
    for name in ("block_table slot_mapping lengths last_page_len"):gmatch("%S+") do outputs[name] = listed(batch:array(name)) end
    return outputs
end)
on_batch("reserve", function(line, batch) return rows_result(batch:reserve(tables_of(line), line:list("num_new"))) end)
on_batch("set_tokens", function(line, batch) return rows_result(batch:set_tokens(line:list("tokens"))) end)
on_batch("write", function(line, batch, group)
    local made = rows(line, line:object("Pool"), 0, line:number("num_tokens"), true)
    batch:write(line:number("layer"), made.k, made.v, {group = group, sync = line:sync()})
end)
on_batch("gather", function(line, batch, group)
    local made = rows(line, line:object("Pool"), 0, line:number("num_tokens"), false)
    batch:gather(line:number("layer"), made.k, made.v, {
        first = line.args.first and line:list("first"), padded = line:number("padded"), group = group, sync = line:sync(),
    })
    return digests(made)
end)
on_batch("commit", function(line, batch)
    return rows_result(batch:commit(line.args.num_accepted and line:list("num_accepted"), line:sync()))
end)

-- ---- tiers, queues, operations ----

run["tier.host"] = function(line)
    make("Tier", line.args.tier, function() return pagedkv.host_tier({capacity_bytes = line:number("capacity")}) end)
end
run["tier.file"] = function(line)
    local fields = line:fields("max_images engine threads flags")
    fields.path, fields.capacity_bytes = path_of(line.args.path), line:number("capacity")
    fields.identity = as_bytes(line.args.identity or "")
    if line.args.lock_timeout then fields.lock_timeout = line:number("lock_timeout") / 1e9 end
    make("Tier", line.args.tier, function() return pagedkv.file_tier(fields) end)
end
run["tier.close"] = function(line) core.tier_close(line:object("Tier")) end
run["tier.stats"] = function(line)
    local stats = line:object("Tier"):stats()
    local outputs = fields_of(stats, "lookups hits loads failed_loads stores failed_stores bytes_loaded bytes_stored checksum_failures")
    local usage = fields_of(stats:get_usage(),
        "capacity_bytes used_bytes images pinned_images evicted_images recovered_images io_errors")
    for name, value in pairs(usage) do outputs[name] = value end
    return outputs
end

run["queue.create"] = function(line) make("Queue", line.args.queue, pagedkv.queue) end
run["queue.destroy"] = function(line) core.queue_destroy(line:object("Queue")) end
run["queue.handle"] = function(line) return {valid = line:object("Queue"):fileno() >= 0 and 1 or 0} end
run["queue.drain"] = function(line)
    local ended = line:object("Queue"):drain(line:number("capacity", 16), line:seconds("timeout", 0))
    local outputs = {
        users = listed(ended, function(one) return unsigned(one.user) end),
        statuses = listed(ended, function(one) return short(one.status) end),
    }
    return with_outputs(#ended > 0 and 0 or core.ERR_TIMEOUT, outputs) -- the class gives an empty list for it
end
run["op.poll"] = function(line)
    local info = line:object("Op"):poll()
    return {
        state = info.ended and 1 or 0, result = short(info.status), num_items = info.num_items, done_items = info.done_items,
        good_items = info.good_items, statuses = listed(info.statuses, short),
    }
end
run["op.wait"] = function(line) line:object("Op"):wait(line:seconds("timeout")) end
run["op.cancel"] = function(line) line:object("Op"):cancel() end
run["op.close"] = function(line) core.op_close(line:object("Op")) end

-- ---- prefetch ----

run["prefetch.open"] = function(line)
    local fields = line:fields("policy flags sink_tokens recent_tokens max_lookahead max_block_pages num_buffers max_tables")
    if line.args.staging then fields.staging_pages = line:list("staging") end
    make("Session", line.args.session, function() return line:object("Pool"):session(fields) end)
end

local function on_session(name, how)
    run["prefetch." .. name] = function(line) return how(line, line:object("Session")) end
end

on_session("close", function(line, session) core.prefetch_close(session, line:sync()) end)
on_session("cancel", function(_, session) session:cancel() end)
on_session("prompt", function(line, session)
    local match
    make("Op", line.args.op, function()
        local op
        local options = {queue = line.args.queue and line:object("Queue"), user = line:number("user")}
        match, op = session:prompt(prompt(line, options))
        return op
    end)
    return {match = match.tokens, resident = match.resident_tokens}
end)
on_session("hint", function(line, session) session:hint(line:object("Table"), line:list("scores")) end)
on_session("submit", function(line, session)
    return {submitted = session:submit(line:object("Table"), line:number("position"))}
end)
on_session("require", function(line, session)
    local result = session:require(
        line:object("Table"), line:number("first_block"), line:number("num_blocks", MAX), line:seconds("timeout")
    )
    return {resident = result.resident, absent = result.on_time + result.late + result.on_demand}
end)
on_session("step_begin", function(line, session)
    local num_tokens = line.args.num_tokens and line:list("num_tokens")
    return {statuses = listed(session:step_begin(tables_of(line), num_tokens), short)}
end)
on_session("acquire", function(line, session)
    local view = session:layer_acquire(line:number("index"), line:seconds("timeout"))
    local missing = 0
    for _, slice in ipairs(view.slices) do missing = missing + (slice < 0 and 1 or 0) end
    return {
        group = view.group, layer = view.layer, num_tables = view.num_tables, num_slices = #view.slices, missing = missing,
        last = view.last and 1 or 0,
    }
end)
on_session("release", function(line, session) session:layer_release(line:number("index"), line:sync()) end)
on_session("step_end", function(_, session) return rows_result(session:step_end()) end)
on_session("stats", function(_, session)
    local stats = session:stats()
    local outputs = fields_of(stats, "needed failed steps ranges prompts staging_pages checksum_failures")
    outputs.balance = stats.needed - stats.on_time - stats.late - stats.on_demand
    return outputs
end)

-- ---- the file -------------------------------------------------------------------------------------------------------

local function parse(text)
    local left, right = text:match("^(.-)%s*%->%s*(.*)$")
    local line = setmetatable({args = {}, wanted = {}}, Line)
    line.op = (left or text):match("^%S+")
    for key, value in (left or text):gmatch("(%S-)=(%S*)") do line.args[key] = value end
    for key, value in (right or ""):gmatch("(%S-)=(%S*)") do line.wanted[key] = value end
    return line
end

-- What a line gave that is not as wanted, and how many checks it has.
local function run_line(text)
    local line = parse(text)
    local operation = run[line.op] or error("there is no operation " .. line.op)
    local good, outputs = pcall(operation, line)
    local status = "OK"
    if not good then
        if type(outputs) ~= "table" then error(outputs, 0) end
        status, outputs = short(outputs.status), outputs.outputs
    end
    local wrong, checks = {}, 1
    if status ~= (line.wanted.status or "OK") then
        wrong[1] = ("status is %s, not %s"):format(status, line.wanted.status or "OK")
    end
    for key, value in pairs(line.wanted) do
        if key ~= "status" then
            checks = checks + 1
            local got = tostring(outputs and outputs[key])
            if got ~= expanded(value) then wrong[#wrong + 1] = ("%s is %s, not %s"):format(key, got, expanded(value)) end
        end
    end
    return wrong, checks
end

local cases, checks, failed, name, number_of_line = 0, 0, 0, "", 0
for text in io.lines(arg[1]) do
    number_of_line = number_of_line + 1
    text = text:gsub("#.*", ""):match("^%s*(.-)%s*$")
    if text:match("^case ") then
        end_case()
        cases, name = cases + 1, text:sub(6)
    elseif text ~= "" then
        local wrong, count = run_line(text)
        checks, failed = checks + count, failed + #wrong
        for _, what in ipairs(wrong) do
            print(("FAIL %s, line %d: %s: %s"):format(name, number_of_line, text:match("^%S+"), what))
        end
    end
end
end_case()
print(("conformance: %d cases, %d checks, %d failed"):format(cases, checks, failed))
os.exit(cases > 0 and failed == 0 and 0 or 1, true)
