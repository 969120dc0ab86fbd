#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What is exported: the shared library's symbols = the version script = the declarations in the headers; and what the
# libraries need from outside. Runs on the libraries in $BUILD/lib.

set -u
export LC_ALL=C
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
status=0
version=$(sed -n 's/^#define PKV_VERSION_STRING "\(.*\)"$/\1/p' include/pagedkv/types.h)
shared=$BUILD/lib/libpagedkv.so.$version
static=$BUILD/lib/libpagedkv.a

check() { # name, then a command that prints what is wrong, if anything
    local name=$1 wrong
    shift
    wrong=$("$@" 2>&1)
    if [ $? = 0 ] && [ -z "$wrong" ]; then
        echo "PASS $name"
    else
        echo "FAIL $name"
        printf '%s\n' "$wrong" | sed 's/^/    /'
        status=1
    fi
}

# A declaration is PKV_API ... pkv_name(...);
cat include/pagedkv/*.h | tr '\n' ' ' | grep -oE 'PKV_API [^;(]*\(' | grep -oE 'pkv_[a-z0-9_]+ ?\(' | tr -d ' (' |
    sort > "$tmp/headers"
sed -n 's/^ *\(pkv_[a-z0-9_]*\);$/\1/p' lib/pagedkv.map | sort > "$tmp/script"
# Version nodes (PAGEDKV_0.1) are listed as absolute symbols (A).
nm -D --defined-only "$shared" | awk '$2 != "A" { print $3 }' | sed 's/@.*//' | sort > "$tmp/exports"

declarations_are_found() {
    [ "$(wc -l < "$tmp/headers")" = "$(grep -c '^PKV_API' <(cat include/pagedkv/*.h))" ] ||
        echo "PKV_API declarations and names found differ in number"
    [ -s "$tmp/headers" ] || echo "no declaration found"
    uniq -d "$tmp/headers"
}
all_declarations_are_marked() { # a prototype without PKV_API would be hidden
    grep -nE '^[a-z][a-z0-9_ *]*\bpkv_[a-z0-9_]+\(' include/pagedkv/*.h | grep -v typedef
    return 0
}
exports_have_the_version() {
    nm -D --defined-only "$shared" | awk '$2 != "A" && $3 !~ /@@PAGEDKV_[0-9.]+$/ { print $3 }'
}
soname() {
    readelf -d "$shared" | grep -q "SONAME.*\[libpagedkv\.so\.${version%%.*}\]" || readelf -d "$shared" | grep SONAME
}
symlinks() {
    local link
    for link in "libpagedkv.so.${version%%.*}" libpagedkv.so; do
        [ "$(readlink -f "$BUILD/lib/$link")" = "$(readlink -f "$shared")" ] || echo "$link leads elsewhere"
    done
}
needed_libraries() {
    readelf -d "$shared" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -vxE 'lib(c|m|stdc\+\+|gcc_s|pthread|sodium|uring)\.so\.[0-9]+|ld-linux.*'
    return 0
}
no_undefined_of_our_own() { nm -D --undefined-only "$shared" | grep -E 'pkv_|3pkv' ; return 0; }
no_text_relocations() { readelf -d "$shared" | grep -E 'TEXTREL'; return 0; }
stack_is_not_executable() { readelf -lW "$shared" | grep GNU_STACK | grep -E 'RWE'; return 0; }
binding_is_immediate_and_read_only() {
    readelf -dW "$shared" | grep -qE 'BIND_NOW|FLAGS.*NOW' || echo "lazy binding"
    readelf -lW "$shared" | grep -q GNU_RELRO || echo "no RELRO segment"
}
no_path_of_the_build() { readelf -d "$shared" | grep -E 'RPATH|RUNPATH'; return 0; }
# The static library: pkv_* and the C++ names of namespace pkv; weak symbols are templates and inline functions.
static_names_are_prefixed() {
    nm --defined-only --extern-only "$static" 2> /dev/null | awk 'NF == 3 && $2 !~ /[VWuU]/ { print $3 }' |
        grep -vE '^pkv_|^_ZN?[A-Z]*K?3pkv|^_Z(TV|TI|TS|GV|GR|TH|TW|TC|ThN?[0-9_]*N?)N?K?3pkv|^_ZZN?K?3pkv'
    return 0
}
static_has_all_functions() {
    nm --defined-only --extern-only "$static" 2> /dev/null | awk 'NF == 3 { print $3 }' | sort -u |
        comm -23 "$tmp/headers" -
}

check "declarations in the headers can be listed" declarations_are_found
check "every prototype in the headers carries PKV_API" all_declarations_are_marked
check "version script = headers" diff "$tmp/headers" "$tmp/script"
check "exported symbols = headers" diff "$tmp/headers" "$tmp/exports"
check "every exported symbol has a version" exports_have_the_version
check "SONAME is libpagedkv.so.MAJOR" soname
check "the links lead to the library" symlinks
check "needs only libc, libstdc++, libgcc_s, libsodium and liburing" needed_libraries
check "no name of its own is undefined" no_undefined_of_our_own
check "no text relocations" no_text_relocations
check "no executable stack" stack_is_not_executable
check "immediate binding, read-only relocations" binding_is_immediate_and_read_only
check "no run path" no_path_of_the_build
check "static library: every strong name is pkv_ or in namespace pkv" static_names_are_prefixed
check "static library: has all functions of the headers" static_has_all_functions
exit $status
