#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of the safe crate, and the conformance cases, under valgrind: no invalid access, nothing uninitialised, no leak.

set -u
cd "$(dirname "$0")/../.." || exit 1
. bindings/rust/env.sh
have_cargo
if ! command -v valgrind > /dev/null; then
    echo "SKIP rust: valgrind is not installed"
    exit 0
fi
make_pc
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

in_rust build -q --offline -p conformance && in_rust test --offline -p pagedkv --tests --no-run > "$tmp/log" 2>&1 || { sed 's/^/    /' "$tmp/log"; result "tests are built" 1; exit 1; }
export PAGEDKV_VALGRIND=1
# Blocks that only an inner pointer leads to are no leaks.
# Threads take fair turns: one that others only wait for could stand back for minutes otherwise.
# On a busy machine what does not fit into the script's own time is left out, visibly.
budget=$((${TEST_TIMEOUT:-300} - 50))
check() { # program, argument
    local left=$((budget - SECONDS))
    if [ $left -lt 20 ]; then
        echo "SKIP rust: valgrind: $(basename "${1%-????????????????}") (no time left)"
        return
    fi
    timeout -k 10 $left valgrind -q --fair-sched=yes --error-exitcode=99 --leak-check=full --show-leak-kinds=definite \
        --errors-for-leak-kinds=definite "$1" "$2" > "$1.valgrind" 2>&1
    code=$?
    result "valgrind: $(basename "${1%-????????????????}")" $code
    [ $code = 0 ] || grep -v '\.\.\. ok$' "$1.valgrind" | sed 's/^/    /' | head -n 100
}
programs=$(sed -n 's/^ *Executable .*(\(.*\/[a-z]*-[0-9a-f]*\))$/\1/p' "$tmp/log" | grep -v '/pagedkv-[0-9a-f]*$')
[ -n "$programs" ] || { sed 's/^/    /' "$tmp/log"; result "there are tests" 1; }
for program in $programs; do
    case $program in /*) ;; *) program=$PWD/bindings/rust/$program ;; esac
    check "$program" --test-threads=2
done
check "$CARGO_TARGET_DIR/debug/conformance" bindings/conformance/cases.txt
exit $status
