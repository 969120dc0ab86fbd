#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The example of a sequence larger than its pool: the same bits with and without prefetch, numbers that add up, a trace and a
# picture that can be read, answers to bad input.

set -u
cd "$(dirname "$0")/../.." || exit

build=${BUILD:-$PWD/build}
failures=0
scratch=$(mktemp -d "${TMPDIR:-/tmp}/pagedkv-longcontext.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch

# Small pages and few of them; the tokens that are decoded begin a new page.
shape=(--layers 4 --heads 2 --queries 3 --head-dim 64 --page-tokens 16)
if [ "${VARIANT:-release}" = release ]; then
    small=("${shape[@]}" --tokens 3997 --steps 8)
else
    small=("${shape[@]}" --tokens 797 --steps 5)
fi

pass() { echo "PASS $1"; }
fail() { # name, what was wrong; shows the last output of the program
    echo "FAIL $1: $2"
    head -n 5 "$scratch/out" "$scratch/err" 2> /dev/null | cut -c 1-300 | sed 's/^/  /'
    failures=$((failures + 1))
}

program() { # arguments...: leaves its output in out and err, its exit status in $status
    "$build/bin/longcontext" "$@" > "$scratch/out" 2> "$scratch/err" < /dev/null
    status=$?
}

field() { # name: its value in the JSON object in out
    sed -n "s/.*\"$1\": \"*\([a-z0-9.]*\).*/\1/p" "$scratch/out"
}

clean_run() { # name: the run ended well and every step was right
    if [ "$status" = 0 ] && [ ! -s "$scratch/err" ] && [ "$(field identical)" = true ] && [ "$(field wrong_steps)" = 0 ]; then
        return 0
    fi
    fail "$1" "exit status $status, identical: $(field identical)"
    return 1
}

# ---- what is said -----------------------------------------------------------------------------------------------------

test_help() {
    local option missing=
    program --help
    for option in tokens steps layers heads queries head-dim page-tokens ratio buffers seed file keep-file trace svg json help; do
        grep -q -- "--$option" "$scratch/out" || missing="$missing --$option"
    done
    if [ "$status" != 0 ] || [ -s "$scratch/err" ] || [ -n "$missing" ]; then
        fail help "exit status $status, missing:$missing"
    else
        pass help
    fi
}

test_table() {
    program "${shape[@]}" --tokens 797 --steps 5
    if [ "$status" != 0 ] || [ -s "$scratch/err" ]; then
        fail table "exit status $status"
    elif ! grep -Eq '^ *identical +5 +5 ' "$scratch/out" || ! grep -Eq '^ *masked +0\.0 % +[0-9.]+ % ' "$scratch/out"; then
        fail table "no such lines"
    elif [ -n "$(find "$scratch" -name 'longcontext*')" ]; then
        fail table "a file was left behind"
    else
        pass table
    fi
}

# Of one run, with the suffix of its fields: what is needed is every absent block in every layer of every step, and each is
# counted once; times and bytes add up, too.
adds_up() {
    local s=$1 needed
    needed=$(($(field steps) * $(field layers) * $(field absent_blocks)))
    [ "$needed" -gt 0 ] && [ "$(field "needed$s")" = "$needed" ] && [ "$(field "failed$s")" = 0 ] &&
        [ $(($(field "on_time$s") + $(field "late$s") + $(field "on_demand$s"))) = "$needed" ] &&
        [ $(($(field "bytes_used$s") + $(field "wasted_bytes$s") + $(field "ready_bytes$s"))) = "$(field "bytes_loaded$s")" ] &&
        [ "$(field "io_ns$s")" -gt 0 ] && [ "$(field "exposed_ns$s")" -le "$(field "io_ns$s")" ] &&
        awk -v io="$(field "io_ns$s")" -v exposed="$(field "exposed_ns$s")" -v told="$(field "masking_efficiency$s")" \
            'BEGIN { d = told - (io - exposed) / io; exit !(d < 2e-6 && d > -2e-6) }'
}

test_json() {
    local name digest missing=
    program "${small[@]}" --json --trace "$scratch/trace.json" --svg "$scratch/steps.svg"
    cp "$scratch/out" "$scratch/first"
    clean_run json || return
    for name in steps identical io_ns exposed_ns masking_efficiency on_time late on_demand wasted_bytes seconds_off seconds_on \
        io_ns_off exposed_ns_off masking_efficiency_off on_time_off late_off on_demand_off wasted_bytes_off pool_bytes \
        sequence_bytes tokens wrong_steps; do
        [ -n "$(field $name)" ] || missing="$missing $name"
    done
    if [ "$(wc -l < "$scratch/out")" != 1 ] || ! grep -Eqx '\{.*\}' "$scratch/out" || [ -n "$missing" ]; then
        fail json "not one object with all fields; missing:$missing"
    elif command -v python3 > /dev/null && ! python3 -c 'import json, sys; json.load(sys.stdin)' < "$scratch/out" 2> "$scratch/err"; then
        fail json "python3 cannot read it"
    else
        pass json
    fi
    if [ "$(field pool_pages)" = $((($(field tokens) + $(field steps) + 127) / 128)) ] &&
        [ "$(field absent_blocks)" -gt $(($(field sequence_bytes) / 10 * 8 / ($(field pool_bytes) / $(field pool_pages)))) ]; then
        pass an-eighth
    else
        fail an-eighth "$(field pool_pages) pages, $(field absent_blocks) blocks absent"
    fi
    if adds_up ""; then pass adds-up; else fail adds-up "numbers of the run with prefetch"; fi
    if adds_up _off && [ "$(field on_demand_off)" = "$(field needed_off)" ]; then
        pass adds-up-off
    else
        fail adds-up-off "numbers of the run without"
    fi

    # Neither the pool nor what a buffer holds has a part in the result; the seed has.
    digest=$(field digest)
    program "${small[@]}" --json --ratio 4 --buffers 2
    if clean_run same-digest; then
        if [ "$(field digest)" = "$digest" ]; then pass same-digest; else fail same-digest "other pool, other result"; fi
    fi
    program "${small[@]}" --json --seed 2
    if clean_run other-digest; then
        if [ "$(field digest)" != "$digest" ]; then pass other-digest; else fail other-digest "other seed, same result"; fi
    fi
}

# Shapes at the ends: one layer, one head, one step; many buffers; pages of which a few tokens are used; long rows.
test_shapes() {
    local name options
    while IFS='|' read -r name options; do
        # shellcheck disable=SC2086 # the options are words
        program --json $options
        clean_run "shape-$name" || continue
        if adds_up "" && adds_up _off; then pass "shape-$name"; else fail "shape-$name" "numbers do not add up"; fi
    done << 'END'
least|--tokens 200 --steps 1 --layers 1 --heads 1 --queries 1 --head-dim 64 --page-tokens 1 --buffers 2
wide|--tokens 900 --steps 2 --layers 3 --heads 1 --queries 2 --head-dim 256 --page-tokens 16 --buffers 3
buffers|--tokens 2600 --steps 3 --layers 2 --heads 1 --queries 1 --head-dim 64 --page-tokens 16 --buffers 16
layers|--tokens 600 --steps 2 --layers 60 --heads 1 --queries 1 --head-dim 64 --page-tokens 16 --buffers 4
END
}

# ---- files ------------------------------------------------------------------------------------------------------------

# Of the run of test_json.
test_trace() {
    cp "$scratch/first" "$scratch/out"
    if ! command -v python3 > /dev/null; then
        echo "SKIP trace: no python3"
        return
    fi
    python3 - "$scratch/trace.json" "$(field ranges)" > "$scratch/err" 2>&1 << 'END'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
spans = [e for e in events if e["ph"] == "X"]
compute = [e for e in spans if lanes[e["pid"], e["tid"]] == "compute" and e["name"] == "compute"]
loads = [e for e in spans if "loads" in lanes[e["pid"], e["tid"]]]
assert len(compute) == int(sys.argv[2]), f"{len(compute)} spans of compute, {sys.argv[2]} ranges"
assert loads, "no span of loads"
assert all(e["ts"] >= 0 and e["dur"] >= 0 for e in spans), "time runs backwards"
END
    # shellcheck disable=SC2181 # the command is long
    if [ $? = 0 ]; then pass trace; else fail trace "not what it should be"; fi
}

test_svg() {
    local file=$scratch/steps.svg
    cp "$scratch/first" "$scratch/out"
    if command -v xmllint > /dev/null; then
        xmllint --noout "$file" 2> "$scratch/err"
    elif command -v python3 > /dev/null; then
        python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$file" 2> "$scratch/err"
    else
        [ "$(tail -n 1 "$file")" = "</svg>" ]
    fi
    # shellcheck disable=SC2181 # whichever it was
    if [ $? != 0 ]; then
        fail svg "not well-formed"
    elif ! grep -q '>loads from file<' "$file" || ! grep -q '>ms since the step began<' "$file" ||
        ! grep -q "step $(field steps)<" "$file" || [ "$(grep -c '<rect' "$file")" -lt 20 ] || grep -Eq '"-|nan|inf' "$file"; then
        fail svg "something is missing, or not drawn at numbers"
    else
        pass svg
    fi
    program "${shape[@]}" --tokens 797 --steps 1 --json --svg "$scratch/alone.svg"
    if clean_run svg-alone; then
        if [ "$(find "$scratch" -name 'alone*' -printf '%f ')" = "alone.svg " ]; then
            pass svg-alone
        else
            fail svg-alone "$(find "$scratch" -name 'alone*')"
        fi
    fi
}

test_file() {
    program "${shape[@]}" --tokens 797 --steps 1 --json --file "$scratch/kept.pkv" --keep-file
    if clean_run keep-file; then
        if [ -s "$scratch/kept.pkv" ]; then pass keep-file; else fail keep-file "it is not there"; fi
    fi
    program "${shape[@]}" --tokens 797 --steps 1 --json --file "$scratch/gone.pkv"
    if clean_run remove-file; then
        if [ ! -e "$scratch/gone.pkv" ]; then pass remove-file; else fail remove-file "it is still there"; fi
    fi
    echo precious > "$scratch/other"
    program "${shape[@]}" --tokens 797 --file "$scratch/other"
    refused bad-file-exists "longcontext: $scratch/other: exists already"
    [ "$(cat "$scratch/other")" = precious ] || fail bad-file-exists "the file was changed"
    program "${shape[@]}" --tokens 797 --file "$scratch/none/new.pkv"
    refused bad-file-folder "longcontext: --file: "
    program "${shape[@]}" --tokens 797 --trace "$scratch/none/trace.json"
    refused bad-trace "longcontext: $scratch/none/trace.json: No such file"
    program "${shape[@]}" --tokens 797 --svg "$scratch/none/steps.svg"
    refused bad-svg "longcontext: $scratch/none/steps.svg: No such file"
}

# ---- bad input --------------------------------------------------------------------------------------------------------

refused() { # name reason: the program ended with status 2, nothing on stdout and this text in its first line on stderr
    if [ "$status" != 2 ]; then
        fail "$1" "exit status $status"
    elif [ -s "$scratch/out" ]; then
        fail "$1" "wrote to stdout"
    elif ! head -n 1 "$scratch/err" | grep -qF -- "$2"; then
        fail "$1" "expected: $2"
    else
        pass "$1"
    fi
}

test_bad_options() {
    local name reason options
    while IFS='|' read -r name reason options; do
        # shellcheck disable=SC2086 # the options are words
        program $options
        refused "bad-option-$name" "longcontext: $reason"
    done << 'END'
unknown|unknown option '--token'|--token 3
short|unknown option '-t'|-t 3
word|'trace.jsonl' is no option|trace.jsonl
flag-value|unknown option '--json=1'|--json=1
value-missing|--tokens: a value is missing|--tokens
zero|--tokens: '0' is not a whole number from 1 to 16777216|--tokens 0
above|--tokens: '16777217' is not a whole number|--tokens 16777217
overflow|--tokens: '18446744073709551617' is not a whole number|--tokens=18446744073709551617
seed-overflow|--seed: '18446744073709551616' is not a whole number|--seed 18446744073709551616
negative|--steps: '-1' is not a whole number from 1 to 10000|--steps -1
suffix|--tokens: '10k' is not a whole number|--tokens 10k
empty|--layers: '' is not a whole number|--layers=
fraction|--heads: '1.5' is not a whole number|--heads 1.5
head-dim|--head-dim: 96 is not a multiple of 64|--head-dim 96
head-dim-small|--head-dim: '32' is not a whole number from 64 to 256|--head-dim 32
page-tokens|--page-tokens: '257' is not a whole number from 1 to 256|--page-tokens 257
ratio|--ratio: '1' is not a whole number from 2|--ratio 1
buffers|--buffers: '17' is not a whole number from 2 to 16|--buffers 17
queries|--queries: '65' is not a whole number from 1 to 64|--queries 65
file|--file: the file name is empty|--file=
svg|--svg: the file name is empty|--svg=
trace-missing|--trace: a value is missing|--trace
small|--tokens: a pool of 4 pages, 1/8 of the sequence's, has no room besides 4 staging pages|--tokens 1000 --page-tokens 32
END
}

# The code in README.md: its steps compile.
test_readme() {
    {
        echo '#include <pagedkv/pagedkv.h>'
        echo '#define CHECK(call) do { if ((call) != PKV_OK) return; } while (0)'
        echo 'void write_new_rows(uint32_t layer, pkv_table **tables, uint32_t n);'
        echo 'void attention(const pkv_layer_view *view);'
        echo 'void sit_out(pkv_table *table, pkv_status status);'
        echo 'void decode(pkv_pool *pool, pkv_table **tables, uint32_t n, const uint64_t *num_tokens, uint32_t num_layers,'
        echo '            uint64_t timeout_ns, pkv_status *statuses);'
        echo 'void decode(pkv_pool *pool, pkv_table **tables, uint32_t n, const uint64_t *num_tokens, uint32_t num_layers,'
        echo '            uint64_t timeout_ns, pkv_status *statuses) {'
        awk '/^```c$/ { text = ""; inside = 1; next } /^```$/ { if (text ~ /pkv_prefetch_step_begin/) printf "%s", text; text = ""; inside = 0 }
             inside { text = text $0 "\n" }' README.md
        echo '}'
    } > "$scratch/step.c"
    if grep -q pkv_prefetch_step_begin "$scratch/step.c" &&
        ${CC:-cc} -std=c99 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only "$scratch/step.c" 2> "$scratch/err"; then
        pass readme
    else
        fail readme "its steps with a prefetch session do not compile"
    fi
}

test_help
test_table
test_json
test_shapes
test_trace
test_svg
test_file
test_bad_options
test_readme
[ "$failures" = 0 ]
