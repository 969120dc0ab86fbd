#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What Prometheus' own tool says of the texts that prometheus.c, sessions.c and nodes.c compare. Runs on the programs in $BUILD.

set -u
export LC_ALL=C
command -v promtool > /dev/null || { echo "SKIP promtool is not installed"; exit 0; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
status=0

for program in prometheus sessions nodes; do
    PKV_TEST_PROMETHEUS=$tmp/text "$BUILD/tests/telemetry/$program" > "$tmp/log" 2>&1
    if [ -s "$tmp/text" ] && promtool check metrics < "$tmp/text" > "$tmp/log" 2>&1; then
        echo "PASS promtool takes the text of $program.c"
    else
        echo "FAIL promtool takes the text of $program.c"
        sed 's/^/    /' "$tmp/log"
        status=1
    fi
    rm -f "$tmp/text"
done
exit $status
