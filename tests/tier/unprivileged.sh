#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of file tiers and of sequences as an ordinary user with 8 MiB of lockable memory, as most deployments have it:
# root may lock all it wants, and is refused no file.

set -u
cd "$(dirname "$0")/../.." || exit

build=${BUILD:-$PWD/build}
run=()
if [ "$(id -u)" = 0 ]; then
    if ! command -v setpriv > /dev/null; then
        echo "SKIP tier/unprivileged: no setpriv here, and this is root"
        exit 0
    fi
    run=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    if ! "${run[@]}" true 2> /dev/null; then
        echo "SKIP tier/unprivileged: setpriv may not change the user here"
        exit 0
    fi
fi
ulimit -l 8192 2> /dev/null || echo "(lockable memory stays at $(ulimit -l) KiB)"

# The programs and their library where that user can read them, and a folder where it can write.
scratch=$(mktemp -d "${TMPDIR:-/tmp}/pagedkv-unprivileged.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/lib" "$scratch/tests/tier" "$scratch/tmp"
cp -a "$build"/lib/libpagedkv.so* "$scratch/lib/" || exit 1
chmod 755 "$scratch" "$scratch"/lib "$scratch"/tests "$scratch"/tests/tier && chmod 1777 "$scratch/tmp"

failures=0
for source in tests/tier/file_*.c tests/tier/sequences.c; do
    name=$(basename "$source" .c)
    if ! cp "$build/tests/tier/$name" "$scratch/tests/tier/" 2> /dev/null; then
        echo "FAIL $name as an ordinary user: it is not built"
        failures=$((failures + 1))
        continue
    fi
    if TMPDIR="$scratch/tmp" "${run[@]}" "$scratch/tests/tier/$name" > "$scratch/log" 2>&1; then
        echo "PASS $name as an ordinary user"
        grep '^\[  SKIPPED \] [^0-9]' "$scratch/log" | sort -u | sed "s/^\[  SKIPPED \]/SKIP $name:/"
    else
        echo "FAIL $name as an ordinary user"
        grep -v '^\[ RUN\|^\[       OK' "$scratch/log" | head -n 30 | cut -c 1-300 | sed 's/^/  /'
        failures=$((failures + 1))
    fi
done
if [ -n "$(ls -A "$scratch/tmp")" ]; then
    echo "FAIL nothing is left in the scratch folder: $(ls -A "$scratch/tmp" | head -n 3 | tr '\n' ' ')"
    failures=$((failures + 1))
else
    echo "PASS nothing is left in the scratch folder"
fi
exit $((failures > 0))
