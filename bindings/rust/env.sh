# SPDX-License-Identifier: Apache-2.0
# What the scripts of this folder have in common; sourced by them, in the top folder. The crates are built over the library in
# BUILD (build), as if it were installed.

build=$(cd "${BUILD:-build}" && pwd) || exit 1
cargo=${CARGO:-cargo}
export CARGO_TARGET_DIR=$build/bindings/rust
export PKG_CONFIG_PATH=$CARGO_TARGET_DIR/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export RUST_BACKTRACE=0 CARGO_TERM_COLOR=never
status=0

make_pc() {
    mkdir -p "$CARGO_TARGET_DIR/pkgconfig"
    local pc=$CARGO_TARGET_DIR/pkgconfig/pagedkv.pc version
    version=$(sed -n 's/^.define PKV_VERSION_STRING "\(.*\)"$/\1/p' include/pagedkv/types.h)
    sed -e "s|@PREFIX@|$PWD|" -e "s|@LIBDIR@|$build/lib|" -e "s|@INCLUDEDIR@|$PWD/include|" -e "s|@VERSION@|$version|" \
        -e "s|@LIBS_PRIVATE@|$(pkg-config --libs libsodium liburing 2> /dev/null || echo -lsodium -luring)|" \
        pkgconfig/pagedkv.pc.in > "$pc.$$"
    # An unchanged file keeps its time: cargo looks at it.
    if cmp -s "$pc.$$" "$pc"; then rm "$pc.$$"; else mv "$pc.$$" "$pc"; fi
}

result() { # name, status
    if [ "$2" = 0 ]; then echo "PASS rust: $1"; else echo "FAIL rust: $1"; status=1; fi
}

have_cargo() { # a visible skip where there is none, a failure where there has to be one
    if command -v "$cargo" > /dev/null && "$cargo" --version > /dev/null 2>&1; then return 0; fi
    if [ "${PKV_REQUIRE_BINDINGS:-0}" = 1 ]; then echo "FAIL rust: cargo is not installed"; exit 1; fi
    echo "SKIP rust: cargo is not installed"
    exit 0
}

in_rust() { (cd bindings/rust && "$cargo" "$@"); }

# Packages a crate and unpacks it into a folder that cargo takes crates from; the second one finds the first one there, also with a
# cargo that cannot package a workspace.
vendor() { # folder, crate
    local version file
    version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "bindings/rust/$2/Cargo.toml")
    file=$CARGO_TARGET_DIR/package/$2-$version.crate
    in_rust package -q --offline --allow-dirty --no-verify -p "$2" \
        --config "source.crates-io.replace-with='here'" --config "source.here.directory='$1'" || return
    rm -rf "$1/$2-$version" && tar -xzf "$file" -C "$1" && echo '{"files":{}}' > "$1/$2-$version/.cargo-checksum.json"
}
