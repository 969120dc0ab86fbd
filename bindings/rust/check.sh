#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Rust crates: what is written from the headers is what they say; tests, also those in the documentation, among them programs
# that must not compile; the example says what the one in C says; the conformance cases; warnings, documentation and format.

set -u
cd "$(dirname "$0")/../.." || exit 1
. bindings/rust/env.sh
have_cargo
make_pc
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

if command -v python3 > /dev/null; then
    python3 bindings/rust/generate.py --check > "$tmp/log" 2>&1
    result "what is generated is what the headers say" $?
    [ "$status" = 0 ] || sed 's/^/    /' "$tmp/log"
else
    echo "SKIP rust: what is generated is what the headers say (python3 is not installed)"
fi

# Each test is a line of its own. What a test prints is shown, so that one that is skipped says so.
in_rust test --offline --workspace --no-fail-fast -- --show-output > "$tmp/out" 2> "$tmp/err"
code=$?
awk '
    /^running [0-9]+ test/ { next }
    /^test .* \.\.\. (ok|FAILED|ignored)/ {
        name = $0; sub(/^test /, "", name); sub(/ \.\.\. .*/, "", name); sub(/^[^ ]*src\//, "doc: ", name)
        print ($NF == "ok" ? "PASS" : $NF == "FAILED" ? "FAIL" : "SKIP") " rust: " name
    }
    /^SKIP/ { print }' "$tmp/out" | tee "$tmp/names"
if [ "$code" != 0 ]; then
    status=1
    grep -v '\.\.\. ok$' "$tmp/out" | sed 's/^/    /' | tail -n 100
    tail -n 100 "$tmp/err" | sed 's/^/    /'
    grep -q '^FAIL' "$tmp/names" || echo "FAIL rust: cargo test"
fi

if [ -x "$build/bin/quickstart" ]; then
    in_rust run -q --offline --example quickstart > "$tmp/rust" 2>&1 && "$build/bin/quickstart" > "$tmp/c" 2>&1 && cmp "$tmp/rust" "$tmp/c"
    result "the quickstart says what the one in C says" $?
fi

code_of() { sed -n '/^```rust$/,/^```$/p' "$1"; }
if grep -q '^```rust$' README.md; then
    [ "$(code_of README.md)" = "$(code_of bindings/rust/pagedkv/README.md)" ]
    result "the code in README.md is the code that was tested" $?
fi

runner=$CARGO_TARGET_DIR/debug/conformance
bindings/conformance/compare.sh Rust "$runner" bindings/conformance/cases.txt || status=1
# A runner that agrees to everything would pass as well.
pool='pool.create pool=p page_tokens=16 num_pages=4 num_layers=1 num_kv_heads=1 k_head_dim=4 v_head_dim=4'
while read -r line; do
    printf 'case x\n%s\n%s\n' "$pool" "$line" > "$tmp/cases"
    ! "$runner" "$tmp/cases" > "$tmp/log" 2>&1 && grep -q '1 failed$' "$tmp/log"
    result "the runner notices: $line" $?
done << 'END'
pool.alloc pool=p num_pages=2 -> status=NO_PAGES
pool.alloc pool=p num_pages=2 -> pages=1,0
pool.alloc pool=p num_pages=1 -> colour=1
pool.alloc pool=p num_pages=1 colour=1
pool.creat pool=q
END

RUSTDOCFLAGS='-D warnings' in_rust doc -q --offline --workspace --no-deps > "$tmp/log" 2>&1
result "documentation without warnings" $?
[ "$status" = 0 ] || sed 's/^/    /' "$tmp/log" | tail -n 40

# Other versions have other opinions: theirs are shown, and are failures where warnings are errors.
if "$cargo" clippy --version > /dev/null 2>&1; then
    strict=() && [ "${WERROR:-0}" = 0 ] || strict=(-- -D warnings)
    in_rust clippy -q --offline --workspace --all-targets "${strict[@]}" > "$tmp/log" 2>&1
    result "clippy" $?
    sed 's/^/    /' "$tmp/log" | tail -n 60
else
    echo "SKIP rust: clippy is not installed"
fi
case $("$cargo" fmt --version 2> /dev/null) in
    *' 1.'[89].*)
        in_rust fmt --all --check > "$tmp/log" 2>&1
        result "format" $?
        head -n 40 "$tmp/log"
        ;;
    *) echo "SKIP rust: rustfmt is not installed, or too old" ;;
esac
exit $status
