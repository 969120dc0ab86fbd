# SPDX-License-Identifier: Apache-2.0
# For scripts that check a binding (sourced): a folder of their own, $tmp, and how they say what came of a check, with $status for
# their end.

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
status=0

result() { # name, status, log
    if [ "$2" = 0 ]; then
        echo "PASS $1"
    else
        echo "FAIL $1"
        sed 's/^/    /' "$3" | tail -n 40
        status=1
    fi
}

skip() { # name, reason: where bindings are required it is a failure
    if [ "${PKV_REQUIRE_BINDINGS:-0}" = 1 ]; then
        echo "FAIL $1: $2"
        status=1
    else
        echo "SKIP $1: $2"
    fi
}
