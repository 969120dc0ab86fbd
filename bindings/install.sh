#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `make install-bindings` puts each language's files where that language looks for them, below DESTDIR and PREFIX alone, and
# `make uninstall-bindings` takes all of them away again. That what is installed works is tested by each language's own scripts.

set -u
cd "$(dirname "$0")/.." || exit 1
. bindings/checks.sh
out=${BUILD:-$PWD/build}/bindings
inner_make() { # no part of the make that runs the tests: it keeps the variables but not the job server
    (
        MAKEFLAGS=$(sed -E 's/ ?--jobserver-(auth|fds)=[^ ]*//g; s/(^| )-j[0-9]*//g' <<< "${MAKEFLAGS:-}")
        export MAKEFLAGS PKV_REQUIRE_BINDINGS=0 CI=
        unset MFLAGS MAKELEVEL LIBDIR INCLUDEDIR PKGCONFIGDIR PYTHONDIR
        "${MAKE:-make}" CC="${CC:-cc}" CXX="${CXX:-g++}" PYTHON="${PKV_PYTHON:-}" DESTDIR="$tmp/dest" PREFIX=/opt/pagedkv "$@"
    )
}
files() { (cd "$tmp/dest" 2> /dev/null && find . ! -type d | sort); }

mkdir "$tmp/dest" && touch "$tmp/dest/of-others"
inner_make install install-bindings > "$tmp/log" 2>&1
result "make install install-bindings" $? "$tmp/log"
files > "$tmp/files"
wants() { # language, what its build made, files (patterns)
    local language=$1 made=$2 pattern
    shift 2
    if [ ! -e "$made" ]; then echo "SKIP $language: not built"; return; fi
    for pattern in "$@"; do grep -qE "^\./opt/pagedkv/$pattern\$" "$tmp/files" || echo "$pattern"; done > "$tmp/wrong"
    [ ! -s "$tmp/wrong" ]
    result "$language: files are where it looks for them" $? "$tmp/wrong"
}
wants Python "$out/python/pagedkv/_core.so" 'lib/python3[.0-9]*/[a-z]*-packages/pagedkv/__init__.py' \
    'lib/python3[.0-9]*/[a-z]*-packages/pagedkv/py.typed' 'lib/python3[.0-9]*/[a-z]*-packages/pagedkv/_core.pyi' \
    'lib/python3[.0-9]*/[a-z]*-packages/pagedkv/_core[^/]*\.so' 'lib/python3[.0-9]*/[a-z]*-packages/pagedkv-[.0-9]*\.dist-info/METADATA'
wants Java "$out/java/libpagedkv-java.so" 'share/java/pagedkv-[.0-9]*\.jar' share/java/pagedkv.jar lib/jni/libpagedkv-java.so
wants Lua "$out/lua/pagedkv/core.so" share/lua/5.4/pagedkv/init.lua lib/lua/5.4/pagedkv/core.so
wants Go "$out/go/pagedkv.test" share/gocode/src/pagedkv.org/pagedkv/{go.mod,pool.go,shim.c,shim.h}
wants Rust "$out/rust/debug" 'share/cargo/registry/pagedkv-[.0-9]*/Cargo.toml' 'share/cargo/registry/pagedkv-sys-[.0-9]*/Cargo.toml'
grep -v '^\./opt/pagedkv/' "$tmp/files" | grep -vx './of-others' > "$tmp/wrong"
[ ! -s "$tmp/wrong" ]
result "nothing is put elsewhere" $? "$tmp/wrong"

inner_make uninstall uninstall-bindings > "$tmp/log" 2>&1
result "make uninstall uninstall-bindings" $? "$tmp/log"
files | grep -vx './of-others' > "$tmp/wrong"
[ ! -s "$tmp/wrong" ] && [ -e "$tmp/dest/of-others" ]
result "nothing is left" $? "$tmp/wrong"
exit $status
