#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The crates as others get them: packaged and verified without a network, installed as a distribution would, and used by a program
# outside, linked dynamically and statically.

set -u
cd "$(dirname "$0")/../.." || exit 1
. bindings/rust/env.sh
have_cargo
make_pc
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# cargo keeps what it unpacks by name and version: nothing from earlier runs.
export CARGO_HOME=$tmp/home

# A cargo before 1.90 does not know that one crate of the workspace may be the other one's: those are verified below.
minor=$("$cargo" --version | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
if [ "${minor:-0}" -ge 90 ]; then
    in_rust package -q --workspace --offline --allow-dirty > "$tmp/log" 2>&1
    result "cargo package --workspace --offline" $?
    [ "$status" = 0 ] || sed 's/^/    /' "$tmp/log" | tail -n 40
fi

bindings/rust/build.sh install "$tmp/root/usr/share/cargo/registry" > "$tmp/log" 2>&1
result "sources are installed" $?
[ "$status" = 0 ] || sed 's/^/    /' "$tmp/log" | tail -n 40

mkdir -p "$tmp/program/src" "$tmp/program/.cargo"
cat > "$tmp/program/Cargo.toml" << 'END'
[package]
name = "program"
version = "0.0.0"
edition = "2021"
[dependencies]
pagedkv = "0.1"
END
cat > "$tmp/program/.cargo/config.toml" << END
[source.crates-io]
replace-with = "installed"
[source.installed]
directory = "$tmp/root/usr/share/cargo/registry"
END
sed -n '/^```rust$/,/^```$/p' bindings/rust/pagedkv/README.md | grep -v '^```' > "$tmp/program/src/main.rs"
for kind in 0 1; do
    name=$([ $kind = 0 ] && echo dynamically || echo statically)
    (cd "$tmp/program" && PAGEDKV_STATIC=$kind CARGO_TARGET_DIR=$tmp/$kind "$cargo" run -q --offline) > "$tmp/log" 2>&1
    code=$?
    linked=$(ldd "$tmp/$kind/debug/program" 2>&1 | grep -c libpagedkv)
    [ "$code" = 0 ] && [ "$linked" = $((1 - kind)) ]
    result "a program outside, linked $name" $?
    [ "$code" = 0 ] || sed 's/^/    /' "$tmp/log" | tail -n 40
done

(cd "$tmp/program" && PKG_CONFIG_PATH='' PKG_CONFIG_LIBDIR=$tmp CARGO_TARGET_DIR=$tmp/0 "$cargo" build --offline) > "$tmp/log" 2>&1
[ $? != 0 ] && grep -q 'libpagedkv was not found' "$tmp/log" && grep -q PKG_CONFIG_PATH "$tmp/log"
result "a library that is missing is explained" $?
mkdir "$tmp/other" && sed 's/^Version: .*/Version: 0.2.0/' "$CARGO_TARGET_DIR/pkgconfig/pagedkv.pc" > "$tmp/other/pagedkv.pc"
(cd "$tmp/program" && PKG_CONFIG_PATH=$tmp/other CARGO_TARGET_DIR=$tmp/0 "$cargo" build --offline) > "$tmp/log" 2>&1
[ $? != 0 ] && grep -q 'version 0.2.0 is installed; this crate needs 0.1.0 or later, below 0.2.0' "$tmp/log"
result "a library of another version is refused" $?
exit $status
