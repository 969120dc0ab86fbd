#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The example of a tier of one's own: what goes down comes back, byte by byte.

set -u
cd "$(dirname "$0")/../.." || exit

build=${BUILD:-$PWD/build}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/pagedkv-tier.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
failures=0

check() { # name, a line that the program has to print
    if grep -qxE -- "$2" "$scratch/out"; then
        echo "PASS $1"
    else
        echo "FAIL $1: no line '$2'"
        sed 's/^/  /' "$scratch/out" "$scratch/err"
        failures=$((failures + 1))
    fi
}

"$build/bin/tier" > "$scratch/out" 2> "$scratch/err" < /dev/null
status=$?
if [ "$status" = 0 ] && [ ! -s "$scratch/err" ]; then
    echo "PASS tier"
else
    echo "FAIL tier: exit status $status"
    sed 's/^/  /' "$scratch/err"
    failures=1
fi
check tier-hits 'tokens found in the tier +240 of 240'
check tier-restores 'pages evicted, restored +15, 15'
check tier-images 'images stored, loaded +15, 15'
check tier-bytes 'wrong elements +0'
[ "$failures" = 0 ]
