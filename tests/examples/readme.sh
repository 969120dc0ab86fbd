#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# README.md tells the truth: its quickstart is the marked part of examples/quickstart.c, its other C code compiles, and
# the make targets and files that it names exist.

set -u
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
status=0

step() { # name, command...
    local name=$1
    shift
    if "$@" > "$tmp/log" 2>&1; then
        echo "PASS $name"
    else
        echo "FAIL $name"
        sed 's/^/    /' "$tmp/log"
        status=1
    fi
}

c_block() { # the n-th ```c block of README.md
    awk -v wanted="$1" '/^```c$/ { n++; inside = 1; next } /^```$/ { inside = 0 } inside && n == wanted' README.md
}

quickstart_is_the_example() {
    sed -n '/quickstart:begin/,/quickstart:end/p' examples/quickstart.c | sed '1d;$d' | sed 's/^    //' > "$tmp/example"
    c_block 1 > "$tmp/readme"
    [ -s "$tmp/example" ] && diff "$tmp/readme" "$tmp/example"
}

decode_step_compiles() {
    {
        echo '#include <pagedkv/pagedkv.h>'
        echo '#define CHECK(call) do { if ((call) != PKV_OK) return; } while (0)'
        echo 'void attention(uint32_t layer, const int32_t *block_table, const int32_t *lengths, const int64_t *slots);'
        echo 'void sit_out(pkv_table *table, pkv_status status);'
        echo 'void decode(pkv_pool *pool, pkv_table **tables, pkv_token *tokens, uint32_t n, uint32_t num_layers,'
        echo '            uint32_t *num_new, pkv_status *statuses, int32_t *block_table, int32_t *lengths,'
        echo '            int64_t *slot_mapping);'
        echo 'void decode(pkv_pool *pool, pkv_table **tables, pkv_token *tokens, uint32_t n, uint32_t num_layers,'
        echo '            uint32_t *num_new, pkv_status *statuses, int32_t *block_table, int32_t *lengths,'
        echo '            int64_t *slot_mapping) {'
        c_block 2
        echo '}'
    } > "$tmp/decode.c"
    [ -n "$(c_block 2)" ] && $CC -std=c99 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only "$tmp/decode.c"
}

# The other pieces of C, each in a function of its own among what the reader has already.
pieces_compile() {
    local last piece
    last=$(grep -c '^```c$' README.md)
    {
        echo '#include <pagedkv/pagedkv.h>'
        echo '#include <stdio.h>'
        echo '#define CHECK(call) do { if ((call) != PKV_OK) return; } while (0)'
        echo 'void attention(const pkv_layer_view *view);'
        echo 'void sit_out(pkv_table *table, pkv_status status);'
        echo 'void write_new_rows(uint32_t layer, pkv_table **tables, uint32_t n);'
        for piece in $(seq 3 "$last"); do
            echo "void piece_$piece(PKV_HAVING);"
        done
        for piece in $(seq 3 "$last"); do
            echo "void piece_$piece(PKV_HAVING) {"
            c_block "$piece" | grep -q 'pkv_[a-z]*_options options = ' || echo 'pkv_pool_options options = PKV_POOL_OPTIONS_INIT;'
            c_block "$piece"
            echo '(void)options;'
            echo '}'
        done
    } > "$tmp/pieces.c"
    local having='pkv_pool *pool, pkv_table *table, pkv_table **tables, uint32_t n, pkv_prompt prompt, pkv_match match, '
    having+='uint64_t timeout_ns, uint64_t *num_tokens_of, uint64_t num_tokens, uint64_t position, pkv_status *statuses, '
    having+='uint32_t group, uint32_t layer, uint32_t num_layers, void *cuda_stream, pkv_tensor k, pkv_tensor v, '
    having+='uint8_t *key, pkv_tier *host_tier, pkv_node *node, pkv_tier *tier, pkv_offer_options offer_options, '
    having+='pkv_offer *offer, pkv_op_options op_options, pkv_op *op'
    # A name that is an array in one piece and a number in another.
    sed -i 's/step_begin(session, n, tables, num_tokens, /step_begin(session, n, tables, num_tokens_of, /' "$tmp/pieces.c"
    [ "$last" -gt 3 ] && $CC -std=c99 -pedantic -Wall -Wextra -Wno-unused-parameter -Werror -Iinclude -fsyntax-only \
        "-DPKV_HAVING=$having" "$tmp/pieces.c"
}

targets_exist() {
    local target missing=0
    while read -r target; do # of code only: "make" is a word, too
        grep -qE "^## $target:|^([a-z-]+ )*$target( [a-z-]+)*:" Makefile bindings/bindings.mk bindings/*/*.mk || { echo "no target $target"; missing=1; }
    done < <(grep -ohE '(^|`|sudo )make( [a-z-]+)+' README.md tests/README.md lib/README.md | sed 's/.*make //' |
        tr ' ' '\n' | sort -u)
    return $missing
}

links_lead_somewhere() {
    local file link missing=0
    for file in README.md CHANGELOG.md lib/README.md tests/README.md bindings/README.md examples/traces/README.md; do
        while read -r link; do
            [ -e "$(dirname "$file")/$link" ] || { echo "$file: $link"; missing=1; }
        done < <(grep -oE '\]\([^)#:]+\)' "$file" | sed 's/^](//; s/)$//')
    done
    return $missing
}

step "README's quickstart is the one in examples/quickstart.c" quickstart_is_the_example
step "README's decode step compiles" decode_step_compiles
step "the other C code of README compiles" pieces_compile
step "the make targets that are named exist" targets_exist
step "links between files lead somewhere" links_lead_somewhere
exit $status
