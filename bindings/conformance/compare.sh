#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a language's runner and compares its last line with that of the reference runner: as many cases and checks, none
# failed. For the check.sh of a language.
#
#   bindings/conformance/compare.sh LANGUAGE COMMAND...

set -u
language=$1
shift
wanted=$("${BUILD:-build}/bindings/conformance" bindings/conformance/cases.txt 2> /dev/null | tail -n 1)
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
"$@" > "$log" 2>&1
code=$?
got=$(tail -n 1 "$log")
if [ "$code" = 0 ] && [ -n "$wanted" ] && [ "$got" = "$wanted" ] && [[ "$got" == *", 0 failed" ]]; then
    echo "PASS $language: $got"
else
    echo "FAIL $language: '$got' with exit status $code; in C: '$wanted'"
    sed 's/^/    /' "$log" | tail -n 40
    exit 1
fi
