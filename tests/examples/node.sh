#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several processes: one takes what another one computed, over each provider that is here; a storage node gives out what an
# engine left in its file; answers to bad input.

set -u
cd "$(dirname "$0")/../.." || exit

build=${BUILD:-$PWD/build}
trace=examples/traces/conversation_trace.jsonl
failures=0
pids=()
scratch=$(mktemp -d "${TMPDIR:-/tmp}/pagedkv-node.XXXXXX") || exit 1
end_all() {
    [ ${#pids[@]} = 0 ] || kill -KILL "${pids[@]}" 2> /dev/null
    rm -rf "$scratch"
}
trap end_all EXIT
head -c 32 /dev/urandom > "$scratch/key"
model="pagedkv replay 1" # examples/replay/kv.h

pass() { echo "PASS $1"; }
fail() { # name, what was wrong; shows the last output of the programs
    echo "FAIL $1: $2"
    head -n 5 "$scratch/out" "$scratch/err" "$scratch/server" "$scratch/server.err" 2> /dev/null | cut -c 1-300 | sed 's/^/  /'
    failures=$((failures + 1))
}

program() { # name arguments...: leaves its output in out and err, its exit status in $status
    timeout 120 "$build/bin/$1" "${@:2}" > "$scratch/out" 2> "$scratch/err" < /dev/null
    status=$?
}

# A server in the background: its pid in $server, its output in the files server and server.err. False when it ended before the
# pattern came.
start() { # pattern, file in which it comes, name, arguments...
    local pattern=$1 file=$scratch/$2 i
    : > "$scratch/server.err"
    : > "$scratch/server"
    "$build/bin/$3" "${@:4}" > "$scratch/server" 2> "$scratch/server.err" < /dev/null &
    server=$!
    pids+=("$server")
    for ((i = 0; i < 600; ++i)); do
        grep -q -- "$pattern" "$file" && return 0
        kill -0 "$server" 2> /dev/null || return 1
        sleep 0.1
    done
    return 1
}

stop() { # the server, by SIGTERM: its exit status in $status
    kill -TERM "$server" 2> /dev/null
    wait "$server"
    status=$?
    pids=()
}

field() { # name, file: its value in a JSON object
    sed -n "s/.*\"$1\": \"*\([0-9.a-z:]*\).*/\1/p" "$scratch/$2"
}

# ---- two engines ------------------------------------------------------------------------------------------------------

# What the reader's own pool gives is what a cache of `capacity` blocks gives by itself (replay.sh says where those figures come
# from); the other node has every block, so that all others come from there, but for requests that are larger than the pool
# (37 of 6,006 blocks at a capacity of 100).
test_two_engines() { # provider
    local name="two-engines-$1" capacity own remote
    if ! start "serving at" server.err replay --json --requests 1000 --capacity 1000 --page-tokens 512 --host-bytes 1G \
        --cluster-key "$scratch/key" --serve 127.0.0.1:0 --provider "$1" "$trace"; then
        if grep -q PKV_ERR_UNSUPPORTED "$scratch/server.err"; then
            echo "SKIP $name: $(cut -c 1-120 "$scratch/server.err")"
        else
            fail "$name" "the first engine did not serve"
        fi
        return
    fi
    while read -r capacity own remote; do
        program replay --json --requests 1000 --capacity "$capacity" --page-tokens 512 --cluster-key "$scratch/key" \
            --peer "$(field address server)" --provider "$1" "$trace"
        if [ "$status" != 0 ] || [ "$(field resident_hit_blocks out)" != "$own" ] || [ "$(field wrong_bytes out)" != 0 ] ||
            [ "$(field remote_hit_blocks out)" != "$remote" ] || [ "$(field checksum_failures out)" != 0 ]; then
            fail "$name" "capacity $capacity: exit status $status, hits: $(field resident_hit_blocks out) own, not $own; $(
                field remote_hit_blocks out) of the other node, not $remote"
            stop
            return
        fi
    done << 'END'
100 962 20337
1000 1038 26267
END
    stop
    if [ "$status" = 0 ]; then pass "$name"; else fail "$name" "the first engine ended with $status"; fi
}

# Without the plug-in there is nothing more to see; the first engine's message says what is missing.
test_two_engines tcp
test_two_engines shm

# The reader is told of nobody: it finds the first engine, and what it has, in the directory. It connects in the background, so
# that the first requests may hit less.
test_directory() {
    local name=directory port=0 i
    if ! command -v redis-server > /dev/null || ! command -v redis-cli > /dev/null; then
        echo "SKIP $name: no redis-server"
        return
    fi
    for ((i = 0; i < 20; ++i)); do # a port that is free, or another one
        port=$((20000 + RANDOM % 12000))
        redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$scratch" > "$scratch/redis" 2>&1 &
        local redis=$!
        sleep 0.3
        kill -0 "$redis" 2> /dev/null && break
    done
    local url="redis://127.0.0.1:$port"
    if ! start "serving at" server.err replay --json --requests 200 --capacity 1000 --page-tokens 512 --host-bytes 1G \
        --cluster-key "$scratch/key" --serve 127.0.0.1:0 --directory "$url" --provider tcp "$trace"; then
        if grep -q PKV_ERR_UNSUPPORTED "$scratch/server.err"; then
            echo "SKIP $name: $(cut -c 1-120 "$scratch/server.err")"
        else
            fail "$name" "the first engine did not serve"
        fi
        kill "$redis"
        return
    fi
    local images size=0
    images=$(field host_images server)
    for ((i = 0; i < 200 && size < images; ++i)); do # images are published in the background
        sleep 0.1
        size=$(redis-cli -p "$port" dbsize | tr -dc 0-9)
    done
    program replay --json --requests 200 --capacity 1000 --page-tokens 512 --cluster-key "$scratch/key" --directory "$url" \
        --provider tcp "$trace"
    local hits blocks
    hits=$(field hit_blocks out) blocks=$(field blocks out)
    stop
    kill "$redis" && wait "$redis"
    if [ "$((hits * 10))" -lt "$((blocks * 9))" ] || [ "$(field wrong_bytes out)" != 0 ] || [ "$(field connected_peers out)" != 1 ] ||
        [ "$(field remote_hit_blocks out)" = 0 ]; then
        fail "$name" "$hits of $blocks blocks were hits, with $size entries in the directory for $images images"
    else
        pass "$name"
    fi
}
test_directory

# ---- a storage node ---------------------------------------------------------------------------------------------------

write_geometry() { # head_dim
    printf 'page_tokens = 512\n[group] # as replay makes it\nnum_layers = 2\nnum_kv_heads = 1\n' > "$scratch/geometry"
    printf 'k_head_dim = %s\nv_head_dim = %s\ndtype = f16\n' "$1" "$1" >> "$scratch/geometry"
}

metric() { # line without its value, file
    sed -n "s/^$1 \([0-9]*\)$/\1/p" "$scratch/$2"
}

test_storage_node() {
    local name=storage-node address metrics
    program replay --json --requests 200 --capacity 100 --page-tokens 512 --file "$scratch/kv" --file-bytes 400M "$trace"
    if [ "$status" != 0 ]; then
        fail $name "the engine ended with $status"
        return
    fi
    write_geometry 8
    if ! start . server node --cluster-key "$scratch/key" --file "$scratch/kv" --host-bytes 300M --identity "$model" \
        --geometry "$scratch/geometry" --provider tcp --metrics 127.0.0.1:0; then
        if grep -q PKV_ERR_UNSUPPORTED "$scratch/server.err"; then echo "SKIP $name: no plug-in"; else fail $name "no address"; fi
        return
    fi
    address=$(head -n 1 "$scratch/server")
    # All blocks of the 200 requests are in the file; a pool of 100 blocks alone has no more than a few.
    program replay --json --requests 200 --capacity 100 --page-tokens 512 --cluster-key "$scratch/key" --peer "$address" \
        --provider tcp "$trace"
    local refused_blocks blocks hits
    blocks=$(field blocks out) hits=$(field hit_blocks out)
    refused_blocks=$(head -n 200 "$trace" | awk '{ sub(/.*"hash_ids": *\[/, ""); sub(/\].*/, ""); n = split($0, ids, ","); if (n > 100) sum += n }
        END { print sum + 0 }')
    if [ "$status" != 0 ] || [ "$(field wrong_bytes out)" != 0 ] || [ "$hits" != $((blocks - refused_blocks)) ] ||
        [ "$(field remote_hit_blocks out)" = 0 ]; then
        fail $name "exit status $status, $hits hits, not $((blocks - refused_blocks))"
        stop
        return
    fi
    # What was read from the file is in host memory now: the same again touches the file no more.
    for ((i = 0; i < 100; ++i)); do
        metrics=$(sed -n 's|.*http://\(.*\):\([0-9]*\)/metrics|\1 \2|p' "$scratch/server.err")
        exec 3<> "/dev/tcp/${metrics% *}/${metrics#* }"
        printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
        cat <&3 > "$scratch/metrics"
        exec 3>&-
        [ "$(metric 'pagedkv_tier_images{tier="host"}' metrics)" != 0 ] && break
        sleep 0.1
    done
    if [ "$(head -n 1 "$scratch/metrics" | tr -d '\r')" != "HTTP/1.0 200 OK" ] ||
        [ "$(metric 'pagedkv_tier_images{tier="host"}' metrics)" -lt 100 ]; then
        fail $name "host memory has $(metric 'pagedkv_tier_images{tier="host"}' metrics) images"
        stop
        return
    fi
    kill -USR1 "$server"
    for ((i = 0; i < 100; ++i)); do
        grep -q pagedkv_tier_images "$scratch/server" && break
        sleep 0.1
    done
    if ! grep -q '^pagedkv_tier_images{tier="file"} [1-9]' "$scratch/server" || ! grep -q '^pagedkv_node_' "$scratch/server"; then
        fail $name "SIGUSR1 printed no statistics"
        stop
        return
    fi
    stop
    if [ "$status" != 0 ]; then fail $name "the node ended with $status"; else pass $name; fi
}
test_storage_node

test_other_model_is_refused() {
    if ! start . server node --cluster-key "$scratch/key" --host-bytes 1M --identity other --provider tcp; then
        grep -q PKV_ERR_UNSUPPORTED "$scratch/server.err" || fail other-model "no address"
        return
    fi
    program replay --requests 5 --cluster-key "$scratch/key" --peer "$(head -n 1 "$scratch/server")" --provider tcp "$trace"
    local refused=$status
    stop
    if [ "$refused" != 2 ] || ! grep -q 'PKV_ERR_MISMATCH.*another model' "$scratch/err"; then
        fail other-model "exit status $refused"
    else
        pass other-model
    fi
}
test_other_model_is_refused

# ---- bad input --------------------------------------------------------------------------------------------------------

test_help() {
    local option missing=
    program node --help
    for option in cluster-key listen provider directory advertise name host-bytes file file-bytes identity geometry export-bytes \
        metrics help; do
        grep -q -- "--$option" "$scratch/out" || missing="$missing --$option"
    done
    if [ "$status" != 0 ] || [ -s "$scratch/err" ] || [ -n "$missing" ]; then
        fail help "exit status $status, missing:$missing"
    else
        pass help
    fi
}
test_help

test_bad_input() { # name, exit status, pattern on stderr, program, arguments...
    program "${@:4}"
    if [ "$status" != "$2" ] || [ -s "$scratch/out" ] || ! grep -q -- "$3" "$scratch/err"; then
        fail "$1" "exit status $status"
    else
        pass "$1"
    fi
}
printf 'short' > "$scratch/short"
printf 'page_tokens = 512\n[group]\nnum_layers = two\n' > "$scratch/bad"
printf '[group]\ncolour = 3\n' > "$scratch/worse"
key=(--cluster-key "$scratch/key")
test_bad_input no-key 2 'cluster-key is missing' node --host-bytes 1M
test_bad_input short-key 1 'a cluster key has 32 bytes' node --cluster-key "$scratch/short" --host-bytes 1M
test_bad_input no-key-file 1 'No such file' node --cluster-key "$scratch/none" --host-bytes 1M
test_bad_input nothing-to-serve 2 'nothing to serve' node "${key[@]}"
test_bad_input no-file 1 'PKV_ERR_' node "${key[@]}" --file "$scratch/none"
test_bad_input bad-bytes 2 "'1Q' is not a number" node "${key[@]}" --host-bytes 1Q
test_bad_input no-value 2 'a value is missing' node "${key[@]}" --host-bytes
test_bad_input unknown-option 2 "unknown option '--frobnicate'" node "${key[@]}" --frobnicate 1
test_bad_input bad-geometry 1 ':3: the value is not a whole number' node "${key[@]}" --host-bytes 1M --geometry "$scratch/bad"
test_bad_input worse-geometry 1 ':2: no such name' node "${key[@]}" --host-bytes 1M --geometry "$scratch/worse"
test_bad_input bad-metrics 1 'not of the form host:port' node "${key[@]}" --host-bytes 1M --metrics nowhere
test_bad_input peer-without-key 2 '--cluster-key is missing' replay --peer 127.0.0.1:1 "$trace"
test_bad_input serve-nothing 2 'nothing to serve' replay "${key[@]}" --serve 127.0.0.1:0 "$trace"

exit $((failures > 0))
