#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs tests, two at a time, and counts what they say.
#
#   tests/run.sh PROGRAM-OR-SCRIPT...
#
# A program is a cmocka test: each of its "[       OK ]" lines is a pass. A script prints "PASS name", "FAIL name" or
# "SKIP name" lines. A test that exits with another status than 0, runs out of time or ends without having tested
# anything is a failure. The output of what fails is shown. The last line is "N passed, N failed"; the exit status is 0
# only if something passed and nothing failed.
#
# TEST_JOBS     tests at a time (2)
# TEST_TIMEOUT  seconds for one test (300; 900 under a sanitizer)
# TEST_WRAPPER  put before a program, for example "valgrind -q"
# BUILD         folder with lib/, bin/ and tests/ of the variant under test (build)
# VARIANT       release, asan, ubsan or tsan

set -u
cd "$(dirname "$0")/.."

jobs=${TEST_JOBS:-2}
limit=${TEST_TIMEOUT:-$([ "${VARIANT:-release}" = release ] && echo 300 || echo 900)}
export BUILD=${BUILD:-$PWD/build} VARIANT=${VARIANT:-release} CC=${CC:-cc} CXX=${CXX:-c++} MAKE=${MAKE:-make}
export CMOCKA_MESSAGE_OUTPUT=stdout
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=0:exitcode=66:second_deadlock_stack=1:die_after_fork=0}

# ThreadSanitizer needs the memory map that it was built for; kernels with more address randomisation break that.
wrapper=${TEST_WRAPPER:-}
if [ "$VARIANT" = tsan ] && setarch -R true 2>/dev/null; then
    wrapper="setarch -R $wrapper"
fi

logs=$(mktemp -d "${TMPDIR:-/tmp}/pagedkv-check.XXXXXX") || exit 1
trap 'rm -rf "$logs"' EXIT
trap 'exit 130' INT TERM

count() { grep -cE "$1" "$2" || true; }

run_one() { # index path: writes $logs/index.{out,result}; the result is "passed failed skipped"
    local path=$2 name=${2#"$BUILD"/} log=$logs/$1.out start=$SECONDS status passed failed skipped why=
    name=${name#build/} && name=${name#*tests/}
    if [ "${path##*.}" = sh ]; then
        { timeout -k 10 "$limit" "$path" > "$log" 2>&1 < /dev/null; status=$?; } 2> /dev/null
        passed=$(count '^PASS ' "$log") failed=$(count '^FAIL ' "$log") skipped=$(count '^SKIP ' "$log")
    else
        # shellcheck disable=SC2086 # the wrapper is a command with its options
        { timeout -k 10 "$limit" $wrapper "$path" > "$log" 2>&1 < /dev/null; status=$?; } 2> /dev/null
        passed=$(count '^\[       OK \]' "$log") skipped=$(grep '^\[  SKIPPED \] [^0-9]' "$log" | sort -u | wc -l)
        failed=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test(s).*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
    fi
    if [ "$failed" = 0 ]; then
        case $status in
            0) [ $((passed + skipped)) != 0 ] || { failed=1 why="no test ran"; } ;;
            124 | 137) failed=1 why="stopped after $limit s" ;;
            *) failed=1 why="exit status $status" && [ "$status" -le 128 ] || why="signal $(kill -l "$status")" ;;
        esac
    fi
    if [ "$failed" = 0 ]; then
        [ "$skipped" = 0 ] || why=", $skipped skipped"
        printf 'ok    %-28s %4d passed%s, %d s\n' "$name" "$passed" "$why" $((SECONDS - start))
        [ "${path##*.}" != sh ] || grep '^SKIP ' "$log"
    else
        { printf 'FAIL  %s: %d passed, %d failed%s\n' "$name" "$passed" "$failed" "${why:+ ($why)}"
          sed 's/^/      | /' "$log"; } > "$log.shown"
        cat "$log.shown"
    fi
    echo "$passed $failed $skipped" > "$logs/$1.result"
}

index=0
for test in "$@"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    index=$((index + 1))
    run_one "$index" "$test" &
done
wait

passed=0 failed=0 skipped=0
for i in $(seq 1 "$index"); do
    if read -r p f s < "$logs/$i.result"; then
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    else
        failed=$((failed + 1))
    fi
done
[ "$skipped" = 0 ] || echo "$skipped skipped"
if [ $((passed + failed)) = 0 ]; then
    echo "no test ran" >&2
    failed=1
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
