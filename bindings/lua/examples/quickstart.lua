-- SPDX-License-Identifier: Apache-2.0
local pagedkv = require("pagedkv")
local pool <close> = pagedkv.pool{page_tokens = 16, num_pages = 64, num_layers = 1, num_kv_heads = 2, k_head_dim = 4,
    v_head_dim = 4, dtype = "f32"}

local function model(tokens, first) -- stands in for one: K and V of tokens[first + 1 ...], as bytes
    local rows = {}
    for i = first + 1, #tokens do rows[#rows + 1] = string.rep(string.pack("<f", tokens[i]), 8) end
    return table.concat(rows), table.concat(rows)
end

for request = 1, 2 do
    local tokens = {}
    for i = 1, 40 do tokens[i] = (i <= 35 and 1000 or request * 1000) + i end -- the same system prompt, then another question
    local sequence <close> = pool:table()
    local match = sequence:admit(tokens) -- takes what is cached, makes room for the rest
    sequence:write(0, match.tokens, model(tokens, match.tokens))
    sequence:commit(#tokens)
    print(("request %d: %d of 40 tokens came from the cache, and all are there: %s"):format(
        request, match.tokens, sequence:gather(0, 0, 40):string() == model(tokens, 0)))
end
