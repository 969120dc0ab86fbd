# SPDX-License-Identifier: Apache-2.0
"""Two requests that share a prefix, and a fork of the second: examples/quickstart.c in Python, without numpy."""

from array import array

import pagedkv

LAYERS, HEADS, HEAD_DIM, PROMPT = 2, 2, 4, 40
ROW = HEADS * HEAD_DIM


def model(tokens, first, layer):
    """Stands in for the model: K and V of tokens[first:] in one layer, [tokens, heads, elements], flat."""
    k = array("f", [token * 16 + layer * 8 + i for token in tokens[first:] for i in range(ROW)])
    return k, array("f", [-x for x in k])


def compute(table, tokens, first):
    """Computes tokens[first:] of a sequence, in all layers, and says that they are complete."""
    for layer in range(LAYERS):
        table.write(layer, first, *model(tokens, first, layer))
    table.commit(len(tokens))


def verify(table, tokens):
    """Takes all tokens out again and compares every byte."""
    for layer in range(LAYERS):
        k, v = (array("f", bytes(4 * ROW * len(tokens))) for _ in range(2))
        table.gather(layer, 0, k, v)
        if (k, v) != model(tokens, 0, layer):
            raise SystemExit("other bytes than were written")
    return len(tokens)


first = list(range(1000, 1000 + PROMPT))
second = first[:35] + list(range(2035, 2000 + PROMPT))  # the same system prompt, then another question
answer = second + [2000 + PROMPT]

with pagedkv.Pool(
    page_tokens=16, num_pages=64, num_layers=LAYERS, num_kv_heads=HEADS, k_head_dim=HEAD_DIM, v_head_dim=HEAD_DIM, dtype="f32"
) as pool:
    tables = []
    for i, tokens in enumerate((first, second), 1):
        table = pool.table()
        match = table.admit(tokens)  # takes what is cached, makes room for the rest
        print(f"request {i}: {match.tokens} of {PROMPT} tokens came from the cache")
        compute(table, tokens, match.tokens)
        tables.append(table)

    fork = tables[1].fork()  # another answer to request 2: all pages are shared
    fork.reserve(PROMPT + 1)  # room for a token: the last block becomes private
    fork.set_tokens(PROMPT, answer[PROMPT:])
    compute(fork, answer, PROMPT)
    tables.append(fork)
    for i, (table, tokens) in enumerate(zip(tables, (first, second, answer)), 1):
        print(f"table {i}: {verify(table, tokens)} tokens, every byte as written")

    stats = pool.stats()
    print(f"pool: 3 tables of 3 blocks hold {stats.held_pages} pages; {stats.copied_pages} page was copied for the fork")
    for table in tables:
        table.close()
