#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The lock annotations of lib/ (core/mutex.h), checked by clang: every source compiles under -Wthread-safety -Werror.
# Also shows that clang takes the sources without warnings.

set -u
command -v clang++ > /dev/null || { echo "SKIP clang++ is not installed"; exit 0; }
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
status=0

# The check checks something: a write without its lock is an error.
printf '%s\n' '#include "core/mutex.h"' 'struct S { pkv::Mutex m; int n PKV_GUARDED_BY(m); };' 'void f(S &s);' \
    'void f(S &s) { s.n = 1; }' > "$log.cpp"
if clang++ -std=c++20 -Iinclude -Ilib -Wthread-safety -Werror -fsyntax-only "$log.cpp" > "$log" 2>&1; then
    echo "FAIL a write without its lock is found"
    status=1
elif grep -q 'thread-safety' "$log"; then
    echo "PASS a write without its lock is found"
else
    echo "FAIL a write without its lock is found"
    sed 's/^/    /' "$log"
    status=1
fi
rm -f "$log.cpp"

flags="-std=c++20 -Iinclude -Ilib -Wall -Wextra -Wthread-safety -Werror -fsyntax-only"
flags+=" $(pkg-config --cflags libxxhash libsodium 2> /dev/null)"
for source in lib/*/*.cpp lib/*/*/*.cpp; do
    case $source in *\** | lib/tensor/cuda/* | lib/fabric/*) continue ;; esac
    # shellcheck disable=SC2086 # flags are words
    if clang++ $flags "$source" > "$log" 2>&1; then
        echo "PASS $source"
    else
        echo "FAIL $source"
        sed 's/^/    /' "$log"
        status=1
    fi
done
exit $status
