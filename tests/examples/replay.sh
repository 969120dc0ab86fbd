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
    for option in capacity requests last page-tokens layers heads head-dim json svg host-bytes file file-bytes help; do
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

# ---- tiers ------------------------------------------------------------------------------------------------------------

# One page a block; an image is 12,288 bytes, so that a tier of 12 KiB x n holds n blocks.
tiered=(--json --page-tokens 512 --layers 1 --head-dim 4 --capacity 300)
if [ "${VARIANT:-release}" = release ]; then tiered_requests=1000; else tiered_requests=300; fi

fields() { # names: their values
    local name
    for name in "$@"; do printf '%s ' "$(field "$name")"; done
}

clean_run() { # name: the run ended well, every byte was right, and nothing was lost on the way
    if [ "$status" = 0 ] && [ ! -s "$scratch/err" ] &&
        [ "$(fields wrong_bytes dropped_pages lost_blocks checksum_failures)" = "0 0 0 0 " ] &&
        [ $(($(field resident_hit_blocks) + $(field host_hit_blocks) + $(field file_hit_blocks))) = "$(field hit_blocks)" ]; then
        return 0
    fi
    fail "$1" "exit status $status"
    return 1
}

test_tiers_absent() { # without the options nothing is said of tiers, and with them the rest stays
    program replay --json --requests 100 --capacity 300 "$conversation"
    local plain
    plain=$(sed 's/"seconds.*//' "$scratch/out")
    if grep -q '"file_hit_blocks"' "$scratch/out"; then
        fail tiers-absent "there are numbers of tiers"
        return
    fi
    program replay --json --requests 100 --capacity 300 --host-bytes 4K "$conversation" # no image fits
    if [ "$status" = 0 ] && [ "$(sed 's/"seconds.*//' "$scratch/out")" = "$plain" ]; then
        pass tiers-absent
    else
        fail tiers-absent "other figures"
    fi
}

# Room for every block: the hits are those of a cache without a limit. A second run computes nothing.
test_tiers_unlimited() {
    local blocks hits distinct name=tiers-unlimited
    # The simulation of test_figures, with room for everything: blocks, hits, ids in the dictionary at the end.
    if [ "$tiered_requests" = 1000 ]; then read -r blocks hits distinct <<< '27305 5791 21514'; else read -r blocks hits distinct <<< '8490 676 7814'; fi
    program replay "${tiered[@]}" --requests $tiered_requests --file "$scratch/all.pkv" --file-bytes 288M "$conversation"
    clean_run $name || return
    if [ "$(fields blocks hit_blocks host_hit_blocks recovered_images file_images image_bytes)" != "$blocks $hits 0 0 $distinct 12288 " ] ||
        [ "$(field file_hit_blocks)" = 0 ] || [ "$(field bytes_stored)" != $((distinct * 12288)) ]; then
        fail $name "other figures"
        return
    fi
    pass $name
    name=tiers-restart
    program replay "${tiered[@]}" --requests $tiered_requests --file "$scratch/all.pkv" "$conversation"
    clean_run $name || return
    if [ "$(fields hit_blocks recovered_blocks recovered_images bytes_written bytes_stored)" != "$blocks $distinct $distinct 0 0 " ]; then
        fail $name "other figures"
        return
    fi
    program replay "${tiered[@]}" --requests $tiered_requests --last 1 --file "$scratch/all.pkv" --file-bytes 288M "$conversation"
    clean_run $name || return
    if [ "$(field requests)" != 1 ] || [ "$(field file_hit_blocks)" = 0 ] || [ "$(field file_hit_blocks)" != "$(field blocks)" ]; then
        fail $name "the first request was not served from the file"
    else
        pass $name
    fi
}

test_tiers_pages() { # pages smaller than blocks, several layers
    local name=tiers-pages
    program replay --json --requests 60 --capacity 200 --host-bytes 30M --file "$scratch/pages.pkv" --file-bytes 160M "$conversation"
    clean_run $name || return
    # 8 pages a block; 4096 bytes of header and of each layer
    if [ "$(fields blocks hit_blocks file_images host_images image_bytes)" != "1486 59 $((1427 * 8)) 2560 12288 " ]; then
        fail $name "other figures"
        return
    fi
    program replay --json --requests 60 --capacity 200 --host-bytes 30M --file "$scratch/pages.pkv" "$conversation"
    clean_run $name || return
    if [ "$(fields hit_blocks recovered_blocks recovered_images)" != "1486 1427 $((1427 * 8)) " ]; then
        fail $name "other figures at the restart"
    else
        pass $name
    fi
    rm -f "$scratch/pages.pkv"
}

# A pool of 300 blocks, 2,048 in host memory, 10,240 in the file. All stores go to both, so that the reach is the file's: a
# cache of 10,240 blocks by itself has 4,735 hits. Which image goes first when several do is the tiers' own: 1 % is theirs.
test_tiers_three() {
    local name=tiers-three hits
    if [ "$tiered_requests" != 1000 ]; then
        echo "SKIP $name: too slow under a sanitizer"
        return
    fi
    program replay "${tiered[@]}" --requests 1000 --host-bytes 24M --file "$scratch/three.pkv" --file-bytes 120M "$conversation"
    clean_run $name || return
    hits=$(field hit_blocks)
    if [ "$hits" -lt $((4735 * 99 / 100)) ] || [ "$hits" -gt $((4735 * 101 / 100)) ]; then
        fail $name "$hits hits"
    elif [ "$(fields host_images file_images)" != "2048 10240 " ]; then
        fail $name "the tiers are not full"
    elif [ "$(field resident_hit_blocks)" -lt 100 ] || [ "$(field host_hit_blocks)" -lt 100 ] || [ "$(field file_hit_blocks)" -lt 100 ]; then
        fail $name "a place served nothing"
    else
        pass $name
    fi
    program replay "${tiered[@]:1}" --requests 100 --host-bytes 24M --file "$scratch/three.pkv" "$conversation"
    if [ "$status" = 0 ] && grep -Eq '^ *blocks recovered +10,240 ' "$scratch/out" && grep -Eq '^ *file, 0\.12 GiB, (io_uring|threads) ' "$scratch/out"; then
        pass tiers-table
    else
        fail tiers-table "no such lines"
    fi
    rm -f "$scratch/three.pkv"
}

# Bytes of images in a file, or of what says where they are, are other ones than were written.
test_tiers_damage() {
    local name=tiers-damaged-images bytes=$((288 << 20)) size i before
    [ -f "$scratch/all.pkv" ] || return
    cp "$scratch/all.pkv" "$scratch/bad.pkv"
    size=$(stat -c %s "$scratch/bad.pkv")
    for ((i = 0; i < 40; ++i)); do # images stand behind everything else, one after the other
        printf 'damage' | dd of="$scratch/bad.pkv" bs=1 seek=$((size - bytes + i * 100 * 12288 + i * 300)) conv=notrunc 2> /dev/null
    done
    program replay "${tiered[@]}" --requests $tiered_requests --file "$scratch/bad.pkv" "$conversation"
    if [ "$status" != 0 ] || [ "$(field wrong_bytes)" != 0 ]; then
        fail $name "exit status $status"
    elif [ "$(field checksum_failures)" -lt 20 ] || [ "$(field checksum_failures)" -gt 40 ] || [ "$(field lost_blocks)" = 0 ]; then
        fail $name "$(field checksum_failures) checksum failures, $(field lost_blocks) lost blocks"
    elif [ "$(field file_hit_blocks)" = 0 ] || [ $(($(field hit_blocks) + $(field bytes_written) / 8192)) != "$(field blocks)" ]; then
        fail $name "what was lost was not computed again"
    else
        pass $name
    fi
    program replay "${tiered[@]}" --requests $tiered_requests --file "$scratch/bad.pkv" "$conversation"
    if clean_run tiers-repaired; then
        [ "$(field bytes_written)" = 0 ] && pass tiers-repaired || fail tiers-repaired "not all of it was stored again"
    fi

    name=tiers-damaged-records
    cp "$scratch/all.pkv" "$scratch/bad.pkv"
    before=$(field recovered_images)
    head -c 65536 /dev/urandom | dd of="$scratch/bad.pkv" bs=4096 seek=2 conv=notrunc 2> /dev/null
    program replay "${tiered[@]}" --requests $tiered_requests --file "$scratch/bad.pkv" "$conversation"
    if [ "$status" != 0 ] || [ "$(field wrong_bytes)" != 0 ]; then
        fail $name "exit status $status"
    elif [ "$(field recovered_images)" -ge "$before" ] || [ "$(field recovered_images)" = 0 ]; then
        fail $name "$(field recovered_images) images recovered"
    else
        pass $name
    fi
    rm -f "$scratch/bad.pkv" "$scratch/all.pkv"
}

test_bad_tiers() {
    program replay --requests 1 --file "$scratch/new.pkv" "$conversation"
    refused bad-tier-no-size "replay: $scratch/new.pkv: a new file needs --file-bytes"
    [ ! -e "$scratch/new.pkv" ] || fail bad-tier-no-size "the file was made"
    program replay --requests 1 --file "$scratch/none/new.pkv" --file-bytes 1M "$conversation"
    refused bad-tier-folder "replay: --file: "
    program replay --requests 1 --file "$scratch" --file-bytes 1M "$conversation"
    refused bad-tier-is-folder "replay: --file: "
    cp "$synthetic" "$scratch/other"
    program replay --requests 1 --file "$scratch/other" "$conversation"
    refused bad-tier-other-file "replay: --file: "
    cmp -s "$synthetic" "$scratch/other" || fail bad-tier-other-file "the file was changed"
    program replay --json --requests 1 --file "$scratch/new.pkv" --file-bytes 1M "$conversation"
    program replay --requests 1 --file "$scratch/new.pkv" --file-bytes 2M "$conversation"
    refused bad-tier-other-size "replay: --file: "
    program replay --requests 1 --file "$scratch/new.pkv" "$conversation" --svg "$scratch/none/plot.svg"
    refused bad-tier-svg "$scratch/none/plot.svg: No such file"
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
last|--last: '0' is not a whole number|--last 0 $conversation
file|--file: the file name is empty|--file= $conversation
file-missing|--file: a value is missing|$conversation --file
no-file|--file-bytes: of which --file?|--file-bytes 1M $conversation
host-zero|--host-bytes: '0' is not a number of bytes from 4096 to 1024G|--host-bytes 0 $conversation
host-small|--host-bytes: '4095' is not a number of bytes|--host-bytes 4095 $conversation
bytes-suffix|--host-bytes: '10T' is not a number of bytes|--host-bytes 10T $conversation
bytes-two-suffixes|--host-bytes: '10KK' is not a number of bytes|--host-bytes 10KK $conversation
bytes-fraction|--file-bytes: '1.5G' is not a number of bytes|--file x --file-bytes 1.5G $conversation
bytes-negative|--file-bytes: '-1' is not a number of bytes|--file x --file-bytes -1 $conversation
bytes-large|--file-bytes: '1025G' is not a number of bytes|--file x --file-bytes 1025G $conversation
bytes-overflow|--file-bytes: '18446744073709551617' is not a number of bytes|--file x --file-bytes 18446744073709551617 $conversation
bytes-shifted|--file-bytes: '17179869184G' is not a number of bytes|--file x --file-bytes 17179869184G $conversation
END
}

test_quickstart
test_help
test_table
test_json
test_svg
test_figures
test_geometry
test_tiers_absent
test_tiers_unlimited
test_tiers_pages
test_tiers_three
test_tiers_damage
test_bad_tiers
test_good_lines
test_bad_lines
test_bad_files
test_bad_options
[ "$failures" = 0 ]
