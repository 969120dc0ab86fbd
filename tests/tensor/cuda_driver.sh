#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The plug-in for CUDA devices beside drivers that are of no use: too old, the toolkit's stub, none. All tests of
# cuda_plugin.c pass with each, and the reason is the right one.

set -u
status=0
program=$BUILD/tests/tensor/cuda_plugin
[ -e "$BUILD/lib/pagedkv/libpagedkv-cuda.so" ] || { echo "SKIP the plug-in is not built"; exit 0; }
[ -x "$program" ] || { echo "SKIP $program is not built"; exit 0; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

try() { # name, folder of libcuda.so.1, words of the reason
    local output
    output=$(LD_LIBRARY_PATH="$2" timeout 60 "$program" 2>&1)
    if [ $? = 0 ] && grep -q "^no device: .*$3" <<< "$output"; then
        echo "PASS $1: $(grep -m 1 '^no device: ' <<< "$output")"
    else
        echo "FAIL $1: \"$3\" is not the reason"
        sed 's/^/    /' <<< "$output"
        status=1
    fi
}

# As much of a driver as the runtime asks for before it gives up: a version.
mkdir "$tmp/old"
cat > "$tmp/driver.c" << 'C'
int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuInit(unsigned flags) { (void)flags; return 0; }
int cuDriverGetVersion(int *version) { *version = 11040; return 0; }
C
if $CC -shared -fPIC -o "$tmp/old/libcuda.so.1" "$tmp/driver.c" 2> "$tmp/log"; then
    try "a driver that is too old" "$tmp/old" "too old: it is for CUDA 11.4"
else
    echo "FAIL $CC makes a driver"
    sed 's/^/    /' "$tmp/log"
    status=1
fi
mkdir "$tmp/none"
: > "$tmp/none/libcuda.so.1" # no library at all
try "no driver" "$tmp/none" "no CUDA driver"
for stub in "${CUDA_HOME:-/usr/local/cuda}"/lib64/stubs/libcuda.so; do
    [ -e "$stub" ] || { echo "SKIP the toolkit's stub: it is not there"; continue; }
    mkdir "$tmp/stub"
    ln -s "$(readlink -f "$stub")" "$tmp/stub/libcuda.so.1"
    try "the toolkit's stub" "$tmp/stub" "stub"
done
exit $status
