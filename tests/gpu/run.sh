#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All that there is for a machine with a GPU, in less than ten minutes: the tests, some of them under compute-sanitizer's
# memcheck and racecheck where the toolkit brings it, the benchmarks, and, where PyTorch and vLLM or FlashInfer are
# installed, their kernels beside ours. Without a device it says so and is done.
#
#   tests/gpu/run.sh [check] [sanitize] [bench] [peers]     default: all, in the order check, bench, peers, sanitize
#
# `make check-gpu` and `make bench-gpu` build what is run here. BUILD is the folder that was built in (build), GPU_TIME the
# seconds for all of it (570), PKV_TEST_DEVICE the device (0).

set -u
cd "$(dirname "$0")/../.." || exit 1
export BUILD=${BUILD:-$PWD/build}
programs=$BUILD/tests/gpu
status=0
begin=$SECONDS
left() { local rest=$((${GPU_TIME:-570} - (SECONDS - begin))); echo $((rest > 5 ? rest : 5)); }

[ -x "$programs/bench" ] || { echo "SKIP $programs is not built: make check-gpu bench-gpu"; exit 0; }
probe=$(PKV_TEST_PROBE=1 timeout 120 "$programs/memory" 2>&1)
case $? in
    0) ;;
    77) echo "SKIP ${probe#*no device: }" && exit 0 ;;
    *) echo "FAIL the device cannot be opened: $probe" && exit 1 ;;
esac

check() { # the suites of tests/tensor for the emulated kernels, those for devices alone, those of tests/device for pools
    TEST_JOBS=1 TEST_TIMEOUT=$(left) tests/run.sh "$programs"/{rows,convert,pages,order,graphs,memory} \
        "$programs"/device_{bytes,capture,order,tiers,prefetch} || status=1
}

sanitize() {
    local tool program programs_of log
    tool=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2> /dev/null)
    [ -n "$tool" ] || { echo "SKIP compute-sanitizer is not installed"; return; }
    log=$(mktemp)
    for check in memcheck racecheck; do
        programs_of="graphs order pages rows"
        [ "$check" = racecheck ] || programs_of+=" device_tiers device_prefetch" # the kernels are the same
        for program in $programs_of; do
            timeout -k 5 "$(($(left) < 60 ? $(left) : 60))" "$tool" --tool "$check" --report-api-errors no \
                --error-exitcode 9 "$programs/$program" > "$log" 2>&1
            case $? in
                0) echo "PASS $check of $program: $(grep -o 'ERROR SUMMARY.*\|RACECHECK SUMMARY.*' "$log" | tail -n 1)" ;;
                124 | 137) if grep -qE '=========.*(Invalid|hazard)' "$log"; then echo "FAIL $check of $program"; status=1
                           else echo "SKIP $check of $program: it took too long; it had found nothing"; fi ;;
                *) echo "FAIL $check of $program"; grep -E '^=========|FAILED' "$log" | head -n 40; status=1 ;;
            esac
        done
    done
    rm -f "$log"
}

bench() { timeout -k 5 "$(left)" "$programs/bench" || status=1; }

peers() { # vLLM's and FlashInfer's kernels, where they are
    python3 -c 'import torch' 2> /dev/null || { echo "SKIP peers: PyTorch is not installed"; return; }
    timeout -k 5 "$(left)" python3 tests/gpu/peers.py || status=1
}

[ $# -gt 0 ] || set -- check bench peers sanitize
for part in "$@"; do
    case $part in
        check | sanitize | bench | peers) echo "== $part"; "$part" ;;
        *) echo "no such part: $part" >&2; exit 2 ;;
    esac
done
exit $status
