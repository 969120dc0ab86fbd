#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the python3 that the binding is built for: PYTHON if it is set, else the first one with headers in PATH that has numpy
# (for the tests), else the first one with headers. Nothing, and exit status 1, if there is none.

set -u

looks() { # program: prints "headers numpy", each 0 or 1
    timeout 60 "$1" -S -c '
import importlib.machinery, os, site, sys, sysconfig
if sys.version_info < (3, 9):
    print(0, 0)
else:
    there = os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
    site.main()
    print(int(there), int(importlib.machinery.PathFinder.find_spec("numpy") is not None))' 2> /dev/null
}

if [ -n "${PYTHON:-}" ]; then
    command -v "$PYTHON" && exit 0
    exit 1
fi
first=
while read -r program; do
    read -r headers numpy < <(looks "$program") || continue
    [ "$headers" = 1 ] || continue
    if [ "$numpy" = 1 ]; then
        echo "$program"
        exit 0
    fi
    first=${first:-$program}
done < <(type -ap python3 | awk '!seen[$0]++')
[ -n "$first" ] && echo "$first"
