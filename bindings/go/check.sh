#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Go binding: its tests under cgo's strictest checks, go vet and gofmt, the conformance cases, and the module as another one uses it.
# PKV_GO_RACE=1: the tests with the race detector, too.

set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(cd "${BUILD:-build}" && pwd) || exit 1
out=$build/bindings/go
if [ ! -x "$out/pagedkv.test" ]; then
    if [ "${PKV_REQUIRE_BINDINGS:-0}" = 1 ]; then echo "FAIL go: the tests were not built"; exit 1; fi
    echo "SKIP go: the tests were not built (no Go)"
    exit 0
fi
go=${GO:-go}
[ -z "${CC:-}" ] || export CC="${CC#ccache }" # the linker does not know what to make of the two
export GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=1
export PKV_TEST_DEVICE=$build/tests/device/fake # a device of host memory
export PKG_CONFIG_PATH=$out/pkgconfig LD_LIBRARY_PATH=$build/lib
case $("$go" env GOVERSION) in # go.mk says more
    go1.19* | go1.20*) export GODEBUG=cgocheck=2 ;;
    *) export GOEXPERIMENT=cgocheck2 ;;
esac
. bindings/checks.sh
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT # go writes folders that cannot be written

tests() { # program: its results as those of other scripts
    (cd bindings/go && "$1" -test.v) > "$tmp/log" 2>&1
    local code=$?
    sed -nE 's/^ *--- (PASS|FAIL|SKIP): (Test[A-Za-z0-9]+).*/\1 \2/p' "$tmp/log"
    if [ "$code" != 0 ] || ! grep -q '^--- PASS' "$tmp/log"; then
        result "the tests end well ($1)" 1 "$tmp/log"
    fi
}
tests "$out/pagedkv.test"
PKV_CONFORMANCE=$PWD/bindings/conformance/cases.txt bindings/conformance/compare.sh go "$out/pagedkv.test" || status=1

(cd bindings/go && "$go" vet -p 2 ./...) > "$tmp/log" 2>&1
result "go vet has nothing to say" $? "$tmp/log"
if command -v gofmt > /dev/null; then
    gofmt -l bindings/go > "$tmp/log" 2>&1
    [ ! -s "$tmp/log" ]
    result "gofmt has nothing to change" $? "$tmp/log"
fi
if [ -x "$build/bin/quickstart" ]; then
    "$build/bin/quickstart" > "$tmp/wanted" && "$out/quickstart" 2>&1 | diff "$tmp/wanted" - > "$tmp/log" 2>&1
    result "the quickstart prints what the C one does" $? "$tmp/log"
fi

# A program in a module of its own, with the files that are installed and nothing else.
mkdir "$tmp/pagedkv" "$tmp/program"
cp bindings/go/*.go bindings/go/*.[ch] bindings/go/go.mod "$tmp/pagedkv/" && rm "$tmp/pagedkv/"*_test.go
cp bindings/go/examples/quickstart/main.go "$tmp/program/"
(cd "$tmp/program" && "$go" mod init example.org/program && "$go" mod edit -require pagedkv.org/pagedkv@v0.0.0 \
    -replace pagedkv.org/pagedkv=../pagedkv && "$go" build -p 2 -o quickstart . && ./quickstart) > "$tmp/log" 2>&1
result "a module of its own builds and runs with it" $? "$tmp/log"

# The code in README.md, with what it takes from around it, and fewer pages.
{
    cat << 'END'
package main

import (
	"errors"
	"fmt"

	"pagedkv.org/pagedkv"
)

func compute(layer uint32, first uint64) (k, v []uint16) {
	return make([]uint16, 40*8*128), make([]uint16, 40*8*128)
}

func later(err error) error { return err }

func run(tokens []int32, tenant []byte) error {
END
    sed -n '/^```go$/,/^```$/p' README.md | sed '/^```/d; s/NumPages: 4096/NumPages: 64/; s/8 << 30/8 << 20/'
    cat << 'END'
	fmt.Println(match.Tokens, "of", len(tokens))
	return err
}

func main() {
	if err := run(make([]int32, 40), []byte("tenant")); err != nil {
		fmt.Println(err)
	}
}
END
} > "$tmp/program/main.go"
(cd "$tmp/program" && "$go" build -p 2 -o readme . && ./readme) > "$tmp/log" 2>&1 && [ "$(cat "$tmp/log")" = "0 of 40" ]
result "the code in README.md runs" $? "$tmp/log"

if [ "${PKV_GO_RACE:-0}" = 1 ]; then
    (cd bindings/go && "$go" test -p 2 -race -c -o "$tmp/race.test" .) > "$tmp/log" 2>&1
    result "the tests build with the race detector" $? "$tmp/log"
    [ ! -x "$tmp/race.test" ] || tests "$tmp/race.test"
fi
exit $status
