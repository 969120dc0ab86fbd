-- SPDX-License-Identifier: Apache-2.0
-- The Lua binding: what the conformance cases do not ask. Prints PASS or FAIL for each test.

local pagedkv = require("pagedkv")
local core = require("pagedkv.core")
local status = pagedkv.status

local tests, failed = {}, 0

local function test(name, how) tests[#tests + 1] = {name, how} end

local function equal(got, wanted)
    if got ~= wanted then error(("%s, not %s"):format(got, wanted), 2) end
end

local function list(values) return table.concat(values, ",") end

-- Raises the error of a status, with these words in its detail.
local function fails(wanted, words, how, ...)
    local good, failure = pcall(how, ...)
    if good then error("no error", 2) end
    if type(failure) ~= "table" then error(failure, 2) end
    if failure.status ~= wanted or not failure.detail:find(words, 1, true) then error(tostring(failure), 2) end
end

local function make_pool(more)
    local fields = {page_tokens = 4, num_pages = 8, num_layers = 1, num_kv_heads = 2, k_head_dim = 4, v_head_dim = 4, dtype = "f32"}
    for name, value in pairs(more or {}) do fields[name] = value end
    return pagedkv.pool(fields)
end

local function rows(count, first)
    local parts = {}
    for i = 0, count * 8 - 1 do parts[#parts + 1] = string.pack("<f", (first or 0) * 8 + i) end
    return table.concat(parts)
end

local function range(first, last)
    local values = {}
    for i = first, last do values[#values + 1] = i end
    return values
end

local function filled(pool, tokens)
    local sequence = pool:table()
    local first = sequence:admit(tokens).tokens
    sequence:write(0, first, rows(#tokens - first, first), rows(#tokens - first, first))
    sequence:commit(#tokens)
    return sequence
end

test("errors have status, name and detail", function()
    local pool <close> = make_pool()
    local good, failure = pcall(pool.alloc, pool, 9)
    equal(good, false)
    equal(failure.status, status.NO_PAGES)
    equal(failure.name, "NO_PAGES")
    equal(failure.detail:match("^9 pages wanted") ~= nil, true)
    equal(tostring(failure), "NO_PAGES: " .. failure.detail)
end)

test("every status has its number", function()
    local count = 0
    for name, number in pairs(status) do
        count = count + 1
        equal(core.status_string(number), number == 0 and "PKV_OK" or "PKV_ERR_" .. name)
    end
    equal(count, 22)
end)

test("case_q04 closing twice is harmless, the low layer says that it is closed", function()
    local pool = make_pool()
    equal(pool:closed(), false)
    pool:close()
    pool:close()
    equal(pool:closed(), true)
    fails(status.HANDLE, "", core.pool_destroy, pool)
end)

test("case_q04 use after close", function()
    local pool = make_pool()
    local sequence = filled(pool, {1, 2, 3})
    local batch = pool:batch({max_tables = 1, max_tokens = 1, max_blocks = 1})
    local queue = pagedkv.queue()
    for _, one in ipairs({queue, batch, sequence, pool}) do one:close() end
    fails(status.HANDLE, "", pool.alloc, pool, 1)
    fails(status.HANDLE, "", pool.table, pool)
    fails(status.HANDLE, "", sequence.info, sequence)
    fails(status.HANDLE, "", sequence.write, sequence, 0, 0, rows(1), rows(1))
    fails(status.HANDLE, "", batch.reserve, batch, {}, {})
    fails(status.HANDLE, "", queue.drain, queue)
end)

test("case_q05 objects are closed in any order", function()
    for turn = 0, 5 do
        local tier = pagedkv.host_tier({capacity_bytes = 1 << 20})
        local pool = make_pool({num_pages = 16, tiers = {{tier}}})
        local objects = {tier, pool, filled(pool, {1, 2, 3, 4, 5}), pool:session()}
        for i = 0, 3 do objects[(i * (turn % 2 == 0 and 1 or 3) + turn) % 4 + 1]:close() end
    end
end)

test("case_q01 case_q05 objects are collected in any order", function()
    for _ = 1, 50 do
        local pool = make_pool()
        local sequence = filled(pool, {1, 2, 3})
        local fork = sequence:fork()
        pool, sequence = nil, nil
        collectgarbage()
        equal(fork:info().committed, 3) -- a child keeps what it was made from
    end
    collectgarbage()
end)

test("a pool that is gone is gone with its last child", function()
    local weak = setmetatable({}, {__mode = "k"})
    local pool = make_pool()
    weak[pool] = true
    local sequence = pool:table()
    pool = nil
    collectgarbage()
    equal(next(weak) ~= nil, true)
    sequence = nil
    collectgarbage()
    collectgarbage()
    equal(next(weak), nil)
end)

test("tables after their pool", function()
    local pool = make_pool()
    local sequence <close> = filled(pool, {1, 2, 3})
    pool:close()
    fails(status.CLOSED, "", sequence.info, sequence)
end)

test("variables that close", function()
    local seen
    do
        local pool <close> = make_pool()
        seen = pool
    end
    equal(seen:closed(), true)
    equal(tostring(seen), "pagedkv.Pool (closed)")
end)

test("other objects than are wanted are refused", function()
    local pool <close> = make_pool()
    local sequence <close> = pool:table()
    for _, bad in ipairs({sequence, 7, "text", {}, io.stdout}) do fails(status.HANDLE, "pagedkv.Pool is wanted", core.pool_alloc, bad, 0, 1) end
    fails(status.HANDLE, "", core.table_get_info, pool)
end)

test("numbers that do not fit are refused", function()
    local pool <close> = make_pool()
    for _, bad in ipairs({1.5, "x", {}, 1 << 62}) do
        equal(pcall(pool.alloc, pool, bad), false)
        fails(status.INVALID, "", pool.probe, pool, {bad, 1, 2, 3, 4})
    end
    fails(status.INVALID, "tokens[2]", pool.probe, pool, {1, 1 << 31})
    fails(status.INVALID, "no whole number", pool.alloc, pool, -1)
    fails(status.INVALID, "no whole number", pool.alloc, pool, 1, 1 << 32)
end)

test("64 bits go in and come out whole", function()
    local tier <close> = pagedkv.host_tier({capacity_bytes = 1 << 20})
    local pool <close> = make_pool({tiers = {{tier}}, seed = -1})
    local queue <close> = pagedkv.queue()
    local op <close> = pool:store(pool:image_keys(range(1, 4)), pool:alloc(1), {queue = queue, user = -1})
    equal(queue:drain(1, 10)[1].user, -1)
    op:wait()
end)

test("token counts above 32 bits", function()
    local tokens = 1 << 33
    local pool <close> = make_pool({memory = "none", page_tokens = 65536, num_pages = 1 << 18})
    local sequence <close> = pool:table()
    sequence:admit({1, 2, 3}, {reserve_tokens = 10})
    sequence:reserve(tokens)
    sequence:commit(tokens - 5)
    local info = sequence:info()
    equal(info.reserved, tokens)
    equal(info.committed, tokens - 5)
    equal(sequence:slots(tokens - 1, 1)[1], sequence:pages()[info.blocks] * 65536 + 65535)
    fails(status.INVALID, "", sequence.slots, sequence, 0, 1 << 40)
    fails(status.LIMIT, "", sequence.reserve, sequence, pagedkv.ALL)
end)

test("options that there are not", function()
    fails(status.INVALID, "colour", make_pool, {colour = 1})
    fails(status.INVALID, "f17", make_pool, {dtype = "f17"})
    fails(status.INVALID, "num_groups", make_pool, {num_groups = 1})
    fails(status.INVALID, "colour", pagedkv.host_tier, {colour = 1})
    fails(status.INVALID, "with groups", pagedkv.pool, {groups = {{}}, num_pages = 3})
    equal(pcall(function() core.pool_options().page_token = 1 end), false)
    local pool <close> = make_pool()
    fails(status.INVALID, "timeout", pool.quiesce, pool, -1)
end)

test("rows: strings and buffers, in and out", function()
    local pool <close> = make_pool()
    local sequence <close> = pool:table()
    sequence:admit(range(1, 8))
    sequence:write(0, 0, rows(8), pagedkv.buffer(rows(8)))
    local k, v = sequence:gather(0, 2, 3)
    equal(k:string(), rows(3, 2))
    equal(v:string(), rows(3, 2))
    local out = pagedkv.buffer(8 * 32)
    sequence:gather(0, 0, 8, nil, out)
    equal(out:string(), rows(8))
    equal(#out, 256)
    fails(status.INVALID, "has to be a buffer", sequence.gather, sequence, 0, 0, 8, rows(8))
    fails(status.INVALID, "", sequence.gather, sequence, 0, 0, 8, pagedkv.buffer(7 * 32))
    fails(status.INVALID, "no multiple", sequence.write, sequence, 0, 0, rows(8) .. "x", rows(8), {num_tokens = 8})
    fails(status.INVALID, "", sequence.write, sequence, 0, 0, rows(8), nil)
    fails(status.INVALID, "", sequence.write, sequence, 0, 0, 7, rows(8), {num_tokens = 8})
end)

test("case_q13 rows: strides, offsets and other types", function()
    local pool <close> = make_pool()
    local sequence <close> = pool:table()
    sequence:admit(range(1, 4))
    sequence:write(0, 0, rows(4), rows(4))
    local wide = pagedkv.buffer(16 + 4 * 64)
    sequence:gather(0, 0, 4, {wide, offset = 16, token_stride = 64})
    for token = 0, 3 do equal(wide:string(17 + 64 * token, 48 + 64 * token), rows(1, token)) end
    equal(wide:string(1, 16), string.rep("\0", 16))
    local heads = pagedkv.buffer(4 * 32)
    sequence:gather(0, 0, 4, {heads, token_stride = 16, head_stride = 64})
    equal(heads:string(65, 68), string.pack("<f", 4))
    sequence:write(0, 0, {heads, token_stride = 16, head_stride = 64}, rows(4), {num_tokens = 4})
    local half = pagedkv.buffer(4 * 16)
    sequence:gather(0, 0, 4, {half, dtype = core.DTYPE_F16})
    equal(half:string(3, 4), "\0\x3c") -- 1.0
    for _, bad in ipairs({
        {wide, offset = 17 + 4 * 64}, {wide, token_stride = 1 << 62}, {wide, head_stride = math.maxinteger}, {wide, num_tokens = 9},
        {wide, offset = -1}, {wide, dtype = 99}, {}, {wide, token_stride = 1.5},
    }) do
        equal(pcall(sequence.gather, sequence, 0, 0, 4, bad), false)
    end
end)

test("buffers", function()
    local buffer = pagedkv.buffer(8)
    equal(buffer:string(), string.rep("\0", 8))
    buffer:set(3, "abc")
    equal(buffer:string(3, 5), "abc")
    equal(buffer:string(-6, -4), "abc")
    equal(buffer:string(9), "")
    equal(buffer:string(5, 4), "")
    for _, bad in ipairs({{0, "x"}, {8, "ab"}, {-1, "x"}, {10, ""}}) do equal(pcall(buffer.set, buffer, bad[1], bad[2]), false) end
    buffer:set(9, "")
    equal(#pagedkv.buffer("text"), 4)
    equal(pcall(pagedkv.buffer, -1), false)
end)

test("a batch", function()
    local pool <close> = make_pool()
    local one <close> = filled(pool, {1, 2, 3, 4})
    local other <close> = filled(pool, {5, 6})
    local batch <close> = pool:batch({max_tables = 3, max_tokens = 4, max_blocks = 2, fill = -1})
    local first, statuses = batch:reserve({one, other}, {1, 2})
    equal(first, 0)
    equal(list(statuses), "0,0")
    equal(list(batch:array("block_table")), "0,2,1,-1,-1,-1")
    equal(list(batch:array("slot_mapping")), "8,6,7,-1")
    fails(status.INVALID, "num_accepted has 1 entries, 2 are needed", batch.commit, batch, {1})
    batch:write(0, rows(3), rows(3))
    equal(list(select(2, batch:commit())), "0,0")
    fails(status.STATE, "", batch.commit, batch)
    fails(status.INVALID, "", batch.reserve, batch, {one, one}, {1, 1})
end)

test("a step over layers", function()
    local tier <close> = pagedkv.host_tier({capacity_bytes = 1 << 22})
    local pool <close> = make_pool({num_pages = 32, tiers = {{tier, policy = "write_through"}}})
    local sequence <close> = filled(pool, range(1, 32))
    equal(sequence:spill(0, 6).spilled_blocks, 6)
    local session <close> = pool:session({num_buffers = 2, staging_pages = {4}})
    equal(list(session:step_begin({sequence})), "0")
    local slices = 0
    repeat
        local view = session:layer_acquire(0, 10)
        equal(view.indptr[2], #view.slices)
        for _, slice in ipairs(view.slices) do equal(slice >= 0, true) end
        slices = slices + #view.slices
        session:layer_release(0)
    until view.last
    equal(slices, 8)
    local first, statuses = session:step_end()
    equal(first, 0)
    equal(list(statuses), "0")
    local stats = session:stats() -- of one moment: loads may still be ending
    equal(stats.needed, 6)
    equal(stats:get_load_times().count, stats.good_loads)
    equal(pagedkv.prometheus({pools = {p = pool}, sessions = {s = session}}):find("pagedkv_") ~= nil, true)
end)

test("a file is found again", function()
    local path = os.tmpname()
    local options = {path = path, capacity_bytes = 1 << 20, max_images = 64, identity = "m", reset = true}
    do
        local tier <close> = pagedkv.file_tier(options)
        local pool <close> = make_pool({tiers = {{tier, policy = "write_through"}}})
        filled(pool, range(1, 8)):close()
        pool:flush(10)
    end
    local tier <close> = pagedkv.file_tier({path = path, identity = "m"})
    local pool <close> = make_pool({tiers = {{tier}}})
    local sequence <close> = pool:table()
    equal(sequence:admit(range(1, 9)).tier_tokens[1], 8)
    equal(sequence:restore(), 2)
    equal(sequence:gather(0, 0, 8):string(), rows(8))
    fails(status.BUSY, "", pagedkv.file_tier, {path = path, lock_timeout = 0.01})
    os.remove(path)
end)

test("namespaces, media, events, keys", function()
    local pool <close> = make_pool({event_capacity = 16, seed = 7})
    local ns, tokens = {model = "m", adapter = "a"}, range(1, 8)
    local pages = pool:alloc(2)
    pool:publish(tokens, pages, {namespace = ns, media = {{1, 2, "image"}}})
    equal(pool:probe(range(1, 9), {namespace = ns, media = {{1, 2, "image"}}}).tokens, 8)
    equal(pool:probe(range(1, 9), {namespace = ns}).tokens, 0)
    equal(pool:probe(range(1, 9), {namespace = {model = "n", adapter = "a"}, media = {{1, 2, "image"}}}).tokens, 0)
    local events = pool:events()
    local keys = pool:keys(tokens, {namespace = ns, media = {{1, 2, "image"}}})
    equal(#events, 2)
    equal(events[2].key, keys[2])
    equal(events[2].parent, keys[1])
    equal(pool:clear(ns).held, 2)
end)

test("a sequence goes out and comes in", function()
    local pool <close> = make_pool()
    local other <close> = make_pool({page_tokens = 2, num_pages = 16})
    local sequence <close> = filled(pool, range(1, 7))
    local copy <close> = other:table()
    copy:import(sequence:export())
    equal(copy:gather(0, 0, 7):string(), rows(7))
end)

test("a sequence is handed to another node", function()
    local key = string.rep("k", 32)
    local good, probe = pcall(pagedkv.node, {cluster_key = key, provider = "tcp"})
    if not good and probe.status == status.UNSUPPORTED then return "no nodes here: " .. probe.detail end
    probe:close()
    local pool <close> = make_pool()
    local other <close> = make_pool()
    local sequence <close> = filled(pool, range(1, 7))
    local giver <close> = pagedkv.node({cluster_key = key, listen = "127.0.0.1:0", provider = "tcp", name = "giver", copy = true, promote = true})
    local taker <close> = pagedkv.node({cluster_key = key, provider = "tcp"})
    taker:connect(giver:address(), 10)
    equal(taker:peers()[1].name, "giver")
    local offer, offered = giver:offer(sequence)
    local closing <close> = offer
    local closing_too <close> = offered
    local op <close> = taker:pull(other, {offer:ticket()}, {timeout = 30})
    op:wait(30)
    local pulled <close> = op:table()
    equal(pulled:gather(0, 0, 7):string(), rows(7))
    offered:wait(10)
end)

test("a device that is not there is said to be so", function()
    pagedkv.device_available("host")
    fails(status.UNSUPPORTED, "", pagedkv.device_available, "cuda", 1000)
    fails(status.UNSUPPORTED, "", make_pool, {device = "cuda", device_index = 1000})
    fails(status.INVALID, "gpu", make_pool, {device = "gpu"})
    fails(status.INVALID, "in_place", make_pool, {in_place = pagedkv.cuda_stream(4096)})
    local pool <close> = make_pool()
    pool:order()
end)

-- What is a device to the library, and memory to a test that knows it (tests/device/fake): check.sh runs this once more, with it.
test("a step whose lists stay with the session", function()
    local tier <close> = pagedkv.host_tier({capacity_bytes = 1 << 22})
    local pool <close> = make_pool({num_pages = 32, tiers = {{tier, policy = "write_through"}}})
    local sequence <close> = filled(pool, range(1, 32))
    equal(sequence:spill(0, 6).spilled_blocks, 6)
    local session <close> = pool:session({num_buffers = 2, staging_pages = {4}, lists = false})
    equal(list(session:step_begin({sequence})), "0")
    fails(status.UNSUPPORTED, "", session.layer_acquire, session, 0, 10, pagedkv.cuda_stream(4096)) -- a host pool
    local slices = 0
    repeat
        local view = session:layer_acquire(0, 10)
        equal(view.slices, nil)
        equal(view.slices_address ~= 0 and view.indptr_address ~= 0, true)
        slices = slices + view.num_slices
        session:layer_release(0)
    until view.last
    equal(slices, 8)
    equal(list(select(2, session:step_end())), "0")
    local other <close> = pool:session({num_buffers = 2, staging_pages = {4}})
    fails(status.INVALID, "lists = false", other.layer_acquire, other, 0, 10, pagedkv.cuda_stream(4096))
end)

if os.getenv("PKV_FAKE_DEVICE") then test("a pool on a device", function()
    pagedkv.device_available("cuda", 0)
    local pool <close> = make_pool({device = "cuda"})
    local there = pagedkv.buffer(rows(8))
    local here = {address = there:address(), bytes = #there}
    local sequence <close> = pool:table()
    sequence:admit(range(1, 8))
    fails(status.UNSUPPORTED, "host memory", sequence.write, sequence, 0, 0, rows(8), rows(8))
    fails(status.INVALID, "besides", sequence.write, sequence, 0, 0, {rows(8), address = 4096, bytes = 4096}, here)
    sequence:write(0, 0, here, here)
    sequence:commit(8)
    pool:order()
    there:set(1, string.rep("\0", #there))
    sequence:gather(0, 0, 8, here)
    equal(there:string(), rows(8))
    fails(status.INVALID, "7", sequence.gather, sequence, 0, 0, 8, {address = there:address(), bytes = #there - 1})
end) end

test("nothing leaks", function()
    local function resident()
        local file = io.open("/proc/self/statm")
        local pages = file:read("n", "n") and file:seek("set") and select(2, file:read("n", "n"))
        file:close()
        return pages * 4096
    end
    local pool <close> = make_pool()
    local data, tokens = rows(4), range(1, 4)
    local function work()
        local sequence <close> = pool:table()
        sequence:admit(tokens, {namespace = {model = string.rep("m", 200)}, media = {{1, 2, "image"}}})
        sequence:write(0, sequence:info().committed, data, data, {num_tokens = 4 - sequence:info().committed})
        pcall(sequence.write, sequence, 0, 0, data, 7)
        pcall(pool.probe, pool, {1, 2, "x"})
        pcall(pool.alloc, pool, 1 << 40)
        sequence:pages()
        sequence:fork():close()
        core.prompt():set_tokens(tokens, 4)
    end
    -- AddressSanitizer finds leaks itself, and keeps freed memory for a while.
    if os.getenv("PKV_SANITIZER") ~= nil then
        for _ = 1, 1000 do work() end
        return
    end
    -- What leaks grows in every window; what the allocator keeps does not.
    local sizes = {}
    repeat
        for _ = 1, 10000 do work() end
        collectgarbage()
        sizes[#sizes + 1] = resident()
        if #sizes > 1 and sizes[#sizes] - sizes[#sizes - 1] < 4 << 20 then return end
    until #sizes == 10
    error("the process grew with every 10000 rounds: " .. table.concat(sizes, " "))
end)

test("digests, versions, prediction", function()
    equal(#pagedkv.digest("ab", "c"), 32)
    equal(pagedkv.digest("ab", "c") ~= pagedkv.digest("a", "bc"), true)
    equal(pagedkv.version(), core.VERSION_STRING)
    equal(list((pagedkv.predict({page_tokens = 4, num_tokens = 40, position = 20, lookahead = 2, sink_tokens = 5}))), "0,1,5,6")
end)

test("everything that is let in is there", function()
    local file = io.open((arg[0]:match("^(.*/)") or "") .. "../../swig/admitted.i")
    local count = 0
    for line in file:lines() do
        local name = line:match("^PKV_FUNCTION%((%w+)%)$") or line:match("^PKV_FUNCTION%(([%w_]+)%)$") or line:match("^PKV_STRUCT%(([%w_]+)%)$")
        if name then
            count = count + 1
            if core[name] == nil then error(name .. " is not there") end
        end
    end
    file:close()
    equal(count > 120, true)
end)

test("the code in the READMEs runs", function()
    local here = arg[0]:match("^(.*/)") or ""
    for _, path in ipairs({here .. "../README.md", here .. "../../../README.md"}) do
        local file = io.open(path)
        local code = file:read("a"):match("\n```lua\n(.-)\n```")
        file:close()
        code = code:gsub("num_pages = 4096", "num_pages = 64"):gsub("8 << 30", "8 << 20")
        local bytes = code:find("num_kv_heads = 2", 1, true) and 2 * 4 * 4 or 8 * 128 * 2
        local data = string.rep("r", 40 * bytes)
        local environment = setmetatable({tokens = range(1, 40), tenant = "t", k = data, v = data,
            model = function() return data, data end}, {__index = _G})
        local match, kept, failure = assert(load(code .. "\nreturn match, (keys or k):string(), failure", path, "t", environment))()
        equal(match.tokens, 0)
        equal(kept, data)
        equal(failure.status, status.NO_PAGES)
    end
end)

for _, one in ipairs(tests) do
    local good, failure = xpcall(one[2], function(failure)
        return type(failure) == "string" and debug.traceback(failure, 2) or failure
    end)
    if good then
        print(type(failure) == "string" and ("SKIP %s: %s"):format(one[1], failure) or "PASS " .. one[1])
    else
        failed = failed + 1
        print(("FAIL %s: %s"):format(one[1], failure))
    end
end
os.exit(failed == 0, true)
