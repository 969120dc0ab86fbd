#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The conformance cases over the C ABI, and what the reference runner itself has to notice.

set -u
cd "$(dirname "$0")/../.." || exit 1
runner=${BUILD:-build}/bindings/conformance
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
status=0

result() { # name, status
    if [ "$2" = 0 ]; then echo "PASS $1"; else echo "FAIL $1"; status=1; fi
}

"$runner" > "$tmp/log" 2>&1
code=$?
grep -E '^(FAIL|line) ' "$tmp/log" | sed 's/^/    /'
result "C: $(tail -n 1 "$tmp/log")" "$code"

# A runner that agrees to everything would pass as well.
notices() { # name, cases
    printf '%s\n' "$2" > "$tmp/cases"
    ! "$runner" "$tmp/cases" > "$tmp/log" 2>&1
    result "$1" $?
}
pool='pool.create pool=p page_tokens=16 num_pages=4 num_layers=1 num_kv_heads=1 k_head_dim=4 v_head_dim=4'
notices "another status is noticed" "case x
$pool -> status=INVALID"
notices "another value is noticed" "case x
$pool
pool.alloc pool=p num_pages=2 -> pages=1,0"
notices "other bytes are noticed" "case x
$pool
pool.alloc pool=p num_pages=1
pool.write pool=p slots=0 fill=1
pool.gather pool=p pages=0 num_tokens=1 -> k=0000000000000000"
notices "an output that is not there is noticed" "case x
version -> colour=1"
notices "an unknown operation is noticed" "case x
pool.creat pool=p"
notices "an argument that means nothing is noticed" "case x
version of=p"
notices "an object that is not there is noticed" "case x
pool.stats pool=p"
notices "a file without cases is noticed" "# nothing"
exit $status
