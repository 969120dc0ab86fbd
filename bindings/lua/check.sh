#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Lua binding: its tests and the conformance cases, again with AddressSanitizer, and the quickstart.

set -u
cd "$(dirname "$0")/../.." || exit 1
out=${BUILD:-$PWD/build}/bindings
lua=${PKV_LUA:-lua5.4}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
status=0

if [ ! -e "$out/lua/pagedkv/core.so" ]; then
    if [ "${PKV_REQUIRE_BINDINGS:-0}" = 1 ]; then
        echo "FAIL lua: the binding is not built (swig, lua5.4, liblua5.4-dev)"
        exit 1
    fi
    echo "SKIP lua: the binding is not built (swig, lua5.4, liblua5.4-dev)"
    exit 0
fi

in_folder() { # folder, command...
    local folder=$1
    shift
    LUA_PATH="$folder/?.lua;$folder/?/init.lua;;" LUA_CPATH="$folder/?.so;;" "$@"
}
sanitized() { # command...: the library and Lua are not instrumented, what they allocate is watched all the same
    ASAN_OPTIONS=detect_leaks=1:halt_on_error=1 UBSAN_OPTIONS=halt_on_error=1 PKV_SANITIZER=address \
        LD_PRELOAD="$(${CC:-cc} -print-file-name=libasan.so) $(${CC:-cc} -print-file-name=libubsan.so)" \
        in_folder "$out/lua-asan" "$@"
}
export -f in_folder sanitized
export out

in_folder "$out/lua" "$lua" bindings/lua/tests/test.lua || status=1
in_folder "$out/lua" bindings/conformance/compare.sh Lua "$lua" bindings/lua/tests/conformance.lua bindings/conformance/cases.txt || status=1

device=${BUILD:-$PWD/build}/tests/device/fake # a device of host memory, that takes symbols of the library
if [ -e "$device/libpagedkv-cuda.so" ]; then
    PKV_FAKE_DEVICE=open PKV_PLUGIN_DIR=$device LD_PRELOAD=${BUILD:-$PWD/build}/lib/libpagedkv.so \
        in_folder "$out/lua" "$lua" bindings/lua/tests/test.lua > "$tmp/log" 2>&1
    code=$?
    grep -E '^(PASS|FAIL) a pool on a device' "$tmp/log"
    if [ $code != 0 ] || ! grep -q '^PASS a pool on a device$' "$tmp/log"; then
        echo "FAIL the tests with a device ($code)"
        grep -v '^PASS' "$tmp/log" | sed 's/^/    /'
        status=1
    fi
else
    echo "SKIP a pool on a device: tests/device/fake is not built"
fi

sanitized "$lua" bindings/lua/tests/test.lua > "$tmp/log" 2>&1
code=$?
if [ $code = 0 ]; then echo "PASS the tests with AddressSanitizer"; else echo "FAIL the tests with AddressSanitizer"; grep -v '^PASS' "$tmp/log" | sed 's/^/    /'; status=1; fi
bindings/conformance/compare.sh "Lua with AddressSanitizer" bash -c "sanitized $lua bindings/lua/tests/conformance.lua bindings/conformance/cases.txt" ||
    status=1

in_folder "$out/lua" "$lua" bindings/lua/examples/quickstart.lua > "$tmp/log" 2>&1
if [ $? = 0 ] && diff "$tmp/log" - > "$tmp/diff" << 'TEXT'; then
request 1: 0 of 40 tokens came from the cache, and all are there: true
request 2: 32 of 40 tokens came from the cache, and all are there: true
TEXT
    echo "PASS examples/quickstart.lua"
else
    echo "FAIL examples/quickstart.lua"
    sed 's/^/    /' "$tmp/log" "$tmp/diff"
    status=1
fi

# An interpreter that ends without closing anything, and one whose state is closed with objects open.
for how in 'os.exit(0)' 'os.exit(0, true)' ''; do
    in_folder "$out/lua" "$lua" -e "
        local pagedkv = require('pagedkv')
        local tier = pagedkv.host_tier({capacity_bytes = 1 << 20})
        local pool = pagedkv.pool({page_tokens = 4, num_pages = 16, num_layers = 1, num_kv_heads = 1, k_head_dim = 4, tiers = {{tier}}})
        local sequence, session = pool:table(), pool:session()
        sequence:admit({1, 2, 3})
        $how" > "$tmp/log" 2>&1
    code=$?
    if [ $code = 0 ] && [ ! -s "$tmp/log" ]; then echo "PASS the end with open objects: $how"; else echo "FAIL the end with open objects: $how ($code)"; sed 's/^/    /' "$tmp/log"; status=1; fi
done

# As `make install-bindings` puts it, beside the library as `make install` does.
(
    MAKEFLAGS=$(sed -E 's/ ?--jobserver-(auth|fds)=[^ ]*//g; s/(^| )-j[0-9]*//g' <<< "${MAKEFLAGS:-}")
    export MAKEFLAGS
    unset MFLAGS MAKELEVEL DESTDIR PREFIX LIBDIR INCLUDEDIR PKGCONFIGDIR
    "${MAKE:-make}" CC="${CC:-cc}" CXX="${CXX:-g++}" LUA="$lua" install-bindings-lua DESTDIR="$tmp/dest" PREFIX=/opt/pagedkv LIBDIR="$tmp/lib" &&
        mkdir "$tmp/lib" && cp -P "${BUILD:-$PWD/build}"/lib/libpagedkv.so* "$tmp/lib/" && cd "$tmp" &&
        LUA_PATH="$tmp/dest/opt/pagedkv/share/lua/5.4/?/init.lua" LUA_CPATH="$tmp/dest/opt/pagedkv/lib/lua/5.4/?.so" \
            "$lua" "$OLDPWD/bindings/lua/examples/quickstart.lua"
) > "$tmp/log" 2>&1
if [ $? = 0 ]; then echo "PASS make install-bindings-lua"; else echo "FAIL make install-bindings-lua"; sed 's/^/    /' "$tmp/log"; status=1; fi
exit $status
