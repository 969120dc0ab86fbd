#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The examples: quickstart, and replay with its figures, its output and its answers to bad input.

set -u
cd "$(dirname "$0")/../.." || exit

build=${BUILD:-$PWD/build}
conversation=examples/traces/conversation_trace.jsonl
synthetic=examples/traces/synthetic_trace.jsonl
failures=0
run=()
# ThreadSanitizer needs the memory map that it was built for; kernels with more address randomisation break that.
if [ "${VARIANT:-release}" = tsan ] && setarch -R true 2> /dev/null; then run=(setarch -R); fi

scratch=$(mktemp -d "${TMPDIR:-/tmp}/pagedkv-replay.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT

pass() { echo "PASS $1"; }
fail() { # name, what was wrong; shows the last output of the program
    echo "FAIL $1: $2"
    head -n 5 "$scratch/out" "$scratch/err" 2> /dev/null | cut -c 1-300 | sed 's/^/  /'
    failures=$((failures + 1))
}

program() { # name arguments...: leaves its output in out and err, its exit status in $status
    "${run[@]}" "$build/bin/$1" "${@:2}" > "$scratch/out" 2> "$scratch/err" < /dev/null
    status=$?
}

field() { # name: its value in the JSON object in out
    sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" "$scratch/out"
}

# ---- what is said -----------------------------------------------------------------------------------------------------

test_quickstart() {
    program quickstart
    if [ "$status" != 0 ] || [ -s "$scratch/err" ]; then
        fail quickstart "exit status $status"
    elif ! grep -qx 'request 2: 32 of 40 tokens came from the cache' "$scratch/out"; then
        fail quickstart "request 2 did not hit"
    else
        pass quickstart
    fi
}

test_help() {
    local option missing=
    program replay --help
    for option in capacity requests page-tokens layers heads head-dim json svg help; do
        grep -q -- "--$option" "$scratch/out" || missing="$missing --$option"
    done
    if [ "$status" != 0 ] || [ -s "$scratch/err" ] || [ -n "$missing" ]; then
        fail help "exit status $status, missing:$missing"
    else
        pass help
    fi
}

test_table() {
    program replay --requests 20 "$conversation"
    if [ "$status" != 0 ] || [ -s "$scratch/err" ]; then
        fail table "exit status $status"
    elif ! grep -Eq '^ *wrong bytes +0$' "$scratch/out" || ! grep -Eq '^ *blocks +[0-9]+$' "$scratch/out"; then
        fail table "no such lines"
    else
        pass table
    fi
}

test_json() {
    local name number='[0-9]+(\.[0-9]+)?'
    program replay --json "$conversation" --requests 20
    if [ "$status" != 0 ] || [ -s "$scratch/err" ]; then
        fail json "exit status $status"
        return
    fi
    if [ "$(wc -l < "$scratch/out")" != 1 ] || ! grep -Eqx "\\{(\"[a-z_]+\": $number, )*\"[a-z_]+\": $number\\}" "$scratch/out"; then
        fail json "not one flat object"
        return
    fi
    for name in requests refused tokens hit_tokens blocks hit_blocks hit_rate capacity page_tokens evicted_pages \
        bytes_checked wrong_bytes seconds; do
        if [ -z "$(field $name)" ]; then
            fail json "no $name"
            return
        fi
    done
    # 2 layers x (K + V) x 1 head x 8 elements x 2 bytes = 64 bytes a token
    if [ "$(field wrong_bytes)" != 0 ] || [ "$(field bytes_checked)" != $((64 * $(field tokens))) ]; then
        fail json "$(field bytes_checked) bytes checked, $(field wrong_bytes) wrong"
        return
    fi
    pass json
}

test_svg() {
    program replay --json --requests 40 "$conversation" --svg "$scratch/plot.svg"
    if [ "$status" != 0 ] || [ -s "$scratch/err" ]; then
        fail svg "exit status $status"
    elif [ "$(head -c 5 "$scratch/plot.svg")" != "<svg " ] || [ "$(tail -n 1 "$scratch/plot.svg")" != "</svg>" ]; then
        fail svg "no picture"
    elif ! grep -q '<polyline' "$scratch/plot.svg" || ! grep -q '>unlimited: ' "$scratch/plot.svg" ||
        grep -Eq 'nan|inf[^i]' "$scratch/plot.svg"; then
        fail svg "a line is missing, or not drawn at numbers"
    elif ! grep -q '"sweep": \[{"capacity": ' "$scratch/out"; then
        fail svg "no sweep in the JSON object"
    else
        pass svg
    fi
}

# ---- figures ----------------------------------------------------------------------------------------------------------

# Expected figures come from a simulation of LRU over whole blocks that shares nothing with the library: an ordered
# dictionary of hash ids, least recent first. For each request: count the leading ids that are in it; move its ids, last
# to first, to the recent end, inserting what is new; then drop from the other end until `capacity` ids are left. A
# request of more ids than the capacity is skipped. The number of dropped ids is `evicted`.
test_figures() {
    local name trace requests capacity page blocks hits evicted refused got want
    while read -r trace requests capacity page blocks hits evicted refused; do
        name="$trace-$requests-capacity-$capacity-page-$page"
        # One thread and millions of tokens: ThreadSanitizer would take minutes, and learns as much from one row.
        if [ "${VARIANT:-release}" = tsan ] && [ "$trace" = conversation ]; then
            echo "SKIP $name: too slow under ThreadSanitizer"
            continue
        fi
        [ "$trace" = conversation ] && trace=$conversation || trace=$synthetic
        program replay --json --requests "$requests" --capacity "$capacity" --page-tokens "$page" "$trace"
        want="0 $requests $blocks $hits $((evicted * 512 / page)) $refused 0"
        got="$status $(field requests) $(field blocks) $(field hit_blocks) $(field evicted_pages) $(field refused)"
        got="$got $(field wrong_bytes)"
        if [ "$got" = "$want" ]; then pass "$name"; else fail "$name" "got $got, expected $want"; fi
    done << 'END'
conversation 1000   100  64 27305  962 20237 37
conversation 1000  1000  64 27305 1038 25267  0
conversation 1000  3000  64 27305 1640 22665  0
conversation 1000 10000  64 27305 4723 12582  0
conversation 1000  3000  16 27305 1640 22665  0
conversation 1000  3000 512 27305 1640 22665  0
synthetic     800  3000  32 18882  752 15130  0
END
}

# A model of another shape: more bytes for each token, pieces that end inside a block.
test_geometry() {
    program replay --json --requests 60 --layers 3 --heads 4 --head-dim 128 --capacity 400 --page-tokens 32 "$conversation"
    if [ "$status" = 0 ] && [ "$(field wrong_bytes)" = 0 ] && [ "$(field bytes_checked)" = $((6144 * $(field tokens))) ]; then
        pass geometry
    else
        fail geometry "exit status $status"
    fi
}

# ---- bad input --------------------------------------------------------------------------------------------------------

good='{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}'

test_good_lines() {
    # Another order of fields, white space, fields nobody knows, no newline at the end.
    printf '%s\r\n%s\n%s' "$good" \
        ' { "hash_ids":[1,2] ,"input_length":1024,"x":{"a":[1.5e3,null,"\u00e9\""]},"timestamp":3,"output_length":0 } ' \
        "$good" > "$scratch/good.jsonl"
    program replay --json "$scratch/good.jsonl"
    if [ "$status $(field requests) $(field blocks) $(field hit_blocks)" = "0 3 6 4" ]; then
        pass good-lines
    else
        fail good-lines "exit status $status"
    fi
}

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

test_bad_lines() {
    local name reason line
    while IFS='|' read -r name reason line; do
        printf '%s\n%s\n%s\n' "$good" "$line" "$good" > "$scratch/bad.jsonl"
        program replay --json "$scratch/bad.jsonl"
        refused "bad-line-$name" "$scratch/bad.jsonl:2: $reason"
    done << 'END'
empty|not JSON: the line ends where '{' should be|
no-object|not JSON: '[' at column 1 where '{' should be|[1, 2]
cut|not JSON: the line ends where|{"timestamp": 0, "input_length": 600, "output_le
cut-list|not JSON: the line ends where|{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2
no-comma|not JSON: '"' at column 17 where '}' should be|{"timestamp": 0 "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
leading-zero|not JSON: '1' at column 16 where '}' should be|{"timestamp": 01, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
two-objects|not JSON: '{' at column 79 where the end of the line should be|{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]} {}
bad-escape|not JSON: 'q' at column 4 where an escape should be|{"\q": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
deep|nested deeper than|{"x": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[
no-timestamp|timestamp is missing|{"input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
no-input|input_length is missing|{"timestamp": 0, "output_length": 5, "hash_ids": [1, 2]}
no-output|output_length is missing|{"timestamp": 0, "input_length": 600, "hash_ids": [1, 2]}
no-ids|hash_ids is missing|{"timestamp": 0, "input_length": 600, "output_length": 5}
twice|input_length is given twice|{"timestamp": 0, "input_length": 600, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
twice-escaped|timestamp is given twice|{"timestamp": 0, "input_length": 600, "t\u0069mestamp": 0, "output_length": 5, "hash_ids": [1, 2]}
negative|output_length is negative: -5|{"timestamp": 0, "input_length": 600, "output_length": -5, "hash_ids": [1, 2]}
fraction|timestamp is not a whole number: 0.5|{"timestamp": 0.5, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
text|input_length is not a whole number|{"timestamp": 0, "input_length": "600", "output_length": 5, "hash_ids": [1, 2]}
large|input_length is too large: above 16777216|{"timestamp": 0, "input_length": 16777217, "output_length": 5, "hash_ids": [1, 2]}
huge|output_length is too large|{"timestamp": 0, "input_length": 600, "output_length": 99999999999999999999999, "hash_ids": [1, 2]}
no-tokens|input_length is 0|{"timestamp": 0, "input_length": 0, "output_length": 5, "hash_ids": [1, 2]}
ids-text|hash_ids[1] is not a whole number|{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, "2"]}
ids-fraction|hash_ids[0] is not a whole number: 1.0|{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1.0, 2]}
ids-negative|hash_ids[1] is negative: -2|{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, -2]}
ids-large|hash_ids[1] is too large|{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 9223372036854775808]}
ids-none|hash_ids is empty|{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": []}
ids-no-list|hash_ids is not a list|{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": 1}
ids-few|hash_ids has 1 ids, but input_length 600 makes 2 blocks of 512 tokens|{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1]}
ids-many|hash_ids has 3 ids, but input_length 1024 makes 2 blocks|{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [1, 2, 3]}
END
}

test_bad_files() {
    : > "$scratch/empty.jsonl"
    program replay --json "$scratch/empty.jsonl"
    refused bad-file-empty "$scratch/empty.jsonl:1: the trace is empty"
    printf '%s\n%s' "$good" '{"timestamp": 0, "inp' > "$scratch/cut.jsonl"
    program replay --json "$scratch/cut.jsonl"
    refused bad-file-truncated "$scratch/cut.jsonl:2: not JSON"
    { echo "$good"; head -c 1100000 /dev/zero | tr '\0' ' '; } > "$scratch/long.jsonl"
    program replay --json "$scratch/long.jsonl"
    refused bad-file-long-line "$scratch/long.jsonl:2: longer than 1048576 bytes"
    printf '%s\n\0%s\n' "$good" "$good" > "$scratch/nul.jsonl"
    program replay --json "$scratch/nul.jsonl"
    refused bad-file-nul "$scratch/nul.jsonl:2: not JSON: byte 0x00 at column 1"
    program replay --json "$scratch/none.jsonl"
    refused bad-file-missing "$scratch/none.jsonl: No such file"
    program replay --json "$scratch"
    refused bad-file-folder "$scratch: not a regular file"
    program replay --json "$conversation" --requests 1 --svg "$scratch/none/plot.svg"
    refused bad-file-svg "$scratch/none/plot.svg: No such file"
}

test_bad_options() {
    local name reason options
    while IFS='|' read -r name reason options; do
        # shellcheck disable=SC2086 # the options are words
        program replay $options
        refused "bad-option-$name" "replay: $reason"
    done << END
no-trace|no trace is named|--json
two-traces|more than one trace: '$conversation' and 'b'|$conversation b
unknown|unknown option '--capacty'|--capacty 3 $conversation
short|unknown option '-c'|-c 3 $conversation
flag-value|unknown option '--json=1'|--json=1 $conversation
value-missing|--capacity: a value is missing|$conversation --capacity
zero|--capacity: '0' is not a whole number from 1 to 4000000|$conversation --capacity 0
negative|--requests: '-1' is not a whole number|$conversation --requests -1
suffix|--capacity: '10k' is not a whole number|$conversation --capacity 10k
overflow|--capacity: '18446744073709551617' is not a whole number|$conversation --capacity=18446744073709551617
above|--capacity: '4000001' is not a whole number|--capacity 4000001 $conversation
divisor|--page-tokens: 48 does not divide 512|--page-tokens 48 $conversation
page|--page-tokens: '1024' is not a whole number from 1 to 512|--page-tokens 1024 $conversation
words|--head-dim: 6 is not a multiple of 4|--head-dim 6 $conversation
layers|--layers: '' is not a whole number|--layers= $conversation
heads|--heads: '1.5' is not a whole number|--heads 1.5 $conversation
svg|--svg: the file name is empty|--svg= $conversation
END
}

test_quickstart
test_help
test_table
test_json
test_svg
test_figures
test_geometry
test_good_lines
test_bad_lines
test_bad_files
test_bad_options
[ "$failures" = 0 ]
