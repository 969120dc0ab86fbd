#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each public header compiles alone, twice in a row, in C99 and C11 and in C++11, C++17 and C++20, with every compiler
# that is there, without a warning; every *_INIT initialises its struct.

set -u
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
status=0

result() { # name, exit status, log
    if [ "$2" = 0 ]; then
        echo "PASS $1"
    else
        echo "FAIL $1"
        sed 's/^/    /' "$3"
        status=1
    fi
}

# All headers of one language at once: a file each, and one with every *_INIT.
for header in include/pagedkv/*.h; do
    name=$(basename "$header" .h)
    printf '#include <pagedkv/%s.h>\n#include <pagedkv/%s.h>\nint use_%s;\n' "$name" "$name" "$name" > "$tmp/$name.c"
done
{
    echo '#include <pagedkv/pagedkv.h>'
    for init in $(grep -hoE '#define PKV_[A-Z_]+_INIT' include/pagedkv/*.h | awk '{ print $2 }'); do
        struct=$(echo "${init%_INIT}" | tr '[:upper:]' '[:lower:]')
        echo "int init_$struct(void);"
        echo "int init_$struct(void) { $struct s = $init; return s.struct_size == sizeof(s); }"
    done
} > "$tmp/init.c"
for file in "$tmp"/*.c; do cp "$file" "${file%.c}.cc"; done

compile() { # compiler, extension, flags...
    local compiler=$1 extension=$2 log=$tmp/log
    shift 2
    "$compiler" "$@" -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only "$tmp"/*."$extension" > "$log" 2>&1
    result "$(basename "$compiler") $*" $? "$log"
}

for compiler in gcc clang; do
    command -v "$compiler" > /dev/null || { echo "SKIP $compiler is not installed"; continue; }
    for std in c99 c11; do compile "$compiler" c "-std=$std" -Wstrict-prototypes; done
done
for compiler in g++ clang++; do
    command -v "$compiler" > /dev/null || { echo "SKIP $compiler is not installed"; continue; }
    for std in c++11 c++17 c++20; do compile "$compiler" cc "-std=$std"; done
done

# No #if in the headers but include guards, __cplusplus and the compiler's way to mark exports.
grep -nE '^ *# *(if|ifdef|elif)\b' include/pagedkv/*.h | grep -vE '__cplusplus|defined\(__GNUC__\)' > "$tmp/log"
[ ! -s "$tmp/log" ]
result "headers do not depend on the build" $? "$tmp/log"
# Macros and types of the headers stay in the library's name space.
grep -hoE '^ *# *define +[A-Za-z_0-9]+' include/pagedkv/*.h | awk '$NF !~ /^(PKV_|PAGEDKV_)/' > "$tmp/log"
[ ! -s "$tmp/log" ]
result "every macro begins with PKV_ or PAGEDKV_" $? "$tmp/log"
exit $status
