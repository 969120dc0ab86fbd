#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of host pools again, on the fake device: suites.list says which, and how; or another list, which is the argument. Of
# suites.list comes the other way round, too: of a device on which nothing is ordered that the library orders, the random test has
# to complain.

set -u
cd "$(dirname "$0")/../.."
build=${BUILD:-$PWD/build}
export PKV_PLUGIN_DIR=$build/tests/device/fake PKV_FAKE_DEVICE=open
list=${1:-suites}
status=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

if [ ! -e "$PKV_PLUGIN_DIR/libpagedkv-cuda.so" ]; then
    echo "FAIL no fake device in $PKV_PLUGIN_DIR"
    exit 1
fi

run() { # name, or name:steps of a random test; mode: the program's tests count as one
    case $1 in *:*) local -x PKV_TEST_STEPS=${1#*:} ;; esac
    PKV_TEST_DEVICE=$2 "$build/tests/${1%:*}" > "$log" 2>&1
}

while read -r name modes; do
    case $name in '' | '#'*) continue ;; esac
    for mode in $modes; do
        if run "$name" "$mode"; then echo "PASS $name ($mode)"; else
            echo "FAIL $name ($mode)"
            sed 's/^/    /' "$log" | tail -n 60
            status=1
        fi
    done
done < "tests/device/$list.list"
[ "$list" = suites ] || exit $status

if PKV_FAKE_DEVICE='open unordered' PKV_TEST_STEPS=480 run shadow/model streams; then
    echo "FAIL without order the random test sees wrong bytes"
    status=1
elif grep -q 'has other bytes\|holds other bytes' "$log"; then
    echo "PASS without order the random test sees wrong bytes"
else
    echo "FAIL without order the random test fails for another reason"
    tail -n 20 "$log"
    status=1
fi
exit $status
