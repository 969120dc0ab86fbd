#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs into a scratch DESTDIR, builds a program outside the tree with nothing but pkg-config, dynamically and
# statically, runs both, uninstalls, and looks at what is left.

set -u
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
status=0
root=$PWD
dest=$tmp/dest
prefix=/opt/pagedkv
version=$(sed -n 's/^#define PKV_VERSION_STRING "\(.*\)"$/\1/p' include/pagedkv/types.h)

# This make is no part of the one that runs the tests: it keeps the variables but not the job server.
MAKEFLAGS=$(sed -E 's/ ?--jobserver-(auth|fds)=[^ ]*//g; s/(^| )-j[0-9]*//g' <<< "${MAKEFLAGS:-}")
export MAKEFLAGS
unset MFLAGS MAKELEVEL DESTDIR PREFIX LIBDIR INCLUDEDIR PKGCONFIGDIR

step() { # name, command...
    local name=$1
    shift
    if "$@" > "$tmp/log" 2>&1; then
        echo "PASS $name"
    else
        echo "FAIL $name"
        sed 's/^/    /' "$tmp/log"
        status=1
    fi
}

installed_files() {
    local file missing=0
    for file in include/pagedkv/{batch,pagedkv,pool,stats,table,tensor,types}.h lib/libpagedkv.{a,so} \
        "lib/libpagedkv.so.${version%%.*}" "lib/libpagedkv.so.$version" lib/pkgconfig/pagedkv.pc; do
        [ -e "$dest$prefix/$file" ] || { echo "missing: $file"; missing=1; }
    done
    [ "$(find "$dest$prefix/include" -name '*.h' | wc -l)" = "$(ls include/pagedkv/*.h | wc -l)" ] ||
        { echo "headers differ in number"; missing=1; }
    return $missing
}

no_build_paths() {
    ! grep -rn -e "$root" -e "$tmp" "$dest$prefix/lib/pkgconfig" "$dest$prefix/include"
}

pc() { # pkg-config as a user would call it, were $dest the root
    PKG_CONFIG_PATH=$dest$prefix/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR='' \
        pkg-config --define-variable=prefix="$dest$prefix" "$@"
}

cat > "$tmp/program.c" <<'C'
#include <pagedkv/pagedkv.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    pkv_group_options group = PKV_GROUP_OPTIONS_INIT;
    pkv_pool_options options = PKV_POOL_OPTIONS_INIT;
    pkv_pool *pool = NULL;
    pkv_page pages[2];
    group.num_pages = 4;
    group.num_layers = 2;
    group.num_kv_heads = 2;
    group.k_head_dim = 8;
    group.v_head_dim = 8;
    options.page_tokens = 16;
    options.num_groups = 1;
    options.groups = &group;
    if (strcmp(pkv_version_string(), PKV_VERSION_STRING) != 0 || pkv_version_number() != PKV_VERSION_NUMBER) return 1;
    if (pkv_pool_create(&options, &pool) != PKV_OK) return 2;
    if (pkv_pool_alloc(pool, 0, 2, pages) != PKV_OK) return 3;
    if (pkv_pool_release(pool, 0, 2, pages, NULL, NULL) != PKV_OK) return 4;
    if (pkv_pool_destroy(pool) != PKV_OK || pkv_pool_destroy(pool) != PKV_ERR_HANDLE) return 5;
    puts(pkv_version_string());
    return 0;
}
C

version_is() { [ "$(pc --modversion pagedkv)" = "$version" ]; }
# shellcheck disable=SC2046,SC2086 # flags are words
build_shared() {
    (cd "$tmp" && $CC -std=c99 -pedantic -Wall -Werror program.c -o shared $(pc --cflags --libs pagedkv))
}
run_shared() { [ "$(LD_LIBRARY_PATH=$dest$prefix/lib "$tmp/shared")" = "$version" ]; }
needs_soname() { readelf -d "$tmp/shared" | grep "NEEDED.*\[libpagedkv\.so\.${version%%.*}\]"; }
# The static library is chosen by taking the shared one away; the rest comes from --static.
build_static() {
    mkdir -p "$tmp/static" && cp "$dest$prefix/lib/libpagedkv.a" "$tmp/static/" &&
        (cd "$tmp" && $CC -std=c99 program.c -o static-program \
            $(pc --cflags --libs --static pagedkv | sed "s|-L$dest$prefix/lib|-L$tmp/static|g"))
}
run_static() { [ "$("$tmp/static-program")" = "$version" ] && ! readelf -d "$tmp/static-program" | grep libpagedkv; }
nothing_left() {
    local left
    left=$(find "$dest" ! -type d; find "$dest" -type d -name 'pagedkv' -path '*/include/*')
    [ -z "$left" ] || { echo "$left"; return 1; }
}
other_files_stay() { [ -e "$dest$prefix/lib/other" ] && rm "$dest$prefix/lib/other"; }
split_dirs() {
    "$MAKE" -s install DESTDIR="$tmp/split" PREFIX=/usr LIBDIR=/usr/lib/some-triplet INCLUDEDIR=/usr/include/x &&
        [ -e "$tmp/split/usr/lib/some-triplet/libpagedkv.so.$version" ] &&
        [ -e "$tmp/split/usr/include/x/pagedkv/pool.h" ] &&
        grep -q '^libdir=${prefix}/lib/some-triplet$' "$tmp/split/usr/lib/some-triplet/pkgconfig/pagedkv.pc"
}

step "install" "$MAKE" -s install DESTDIR="$dest" PREFIX=$prefix
step "all files are there" installed_files
step "no path of the build in what is installed" no_build_paths
step "pkg-config knows the version" version_is
step "a C99 program builds through pkg-config" build_shared
step "it runs" run_shared
step "it needs the library by its SONAME" needs_soname
step "it builds with the static library through pkg-config --static" build_static
step "it runs without the shared library" run_static
step "LIBDIR and INCLUDEDIR are followed" split_dirs
touch "$dest$prefix/lib/other"
step "uninstall" "$MAKE" -s uninstall DESTDIR="$dest" PREFIX=$prefix
step "uninstall leaves other files alone" other_files_stay
step "uninstall leaves nothing behind" nothing_left
exit $status
