#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What nvcc makes of the kernels: none keeps registers in memory (spills, stack frames), and the kernels for the usual case, rows
# and strides of whole 16 bytes, load and store 16 bytes at a time.
#
#   tests/static/cuda_kernels.sh           PASS, FAIL or SKIP for each
#   tests/static/cuda_kernels.sh --report  also a table of all kernels (make cuda-report)
#
# NVCC         the compiler; by default that of CUDA_HOME, of PATH, or of /usr/local/cuda
# CUDA_ARCHS   devices (75 90)

set -u
cd "$(dirname "$0")/../.." || exit 1
report=0
[ "${1:-}" != --report ] || report=1

nvcc=${NVCC:-${CUDA_HOME:+$CUDA_HOME/bin/nvcc}}
nvcc=${nvcc:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
[ -x "$nvcc" ] || { echo "SKIP the kernels: there is no nvcc"; exit 0; }
known=$("$nvcc" --list-gpu-code)
archs=
for arch in ${CUDA_ARCHS:-75 90}; do
    if grep -qx "sm_$arch" <<< "$known"; then archs+=" $arch"; else echo "SKIP sm_$arch: nvcc does not know it"; fi
done
[ -n "$archs" ] || exit 0

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
status=0
fail() { echo "FAIL $1"; status=1; }

codes=()
for arch in $archs; do codes+=(-gencode "arch=compute_$arch,code=sm_$arch"); done
flags=(-std=c++17 -O3 -Iinclude -Ilib)
for source in lib/tensor/cuda/*.cu; do
    name=$(basename "$source" .cu)
    "$nvcc" "${flags[@]}" "${codes[@]}" -Xptxas -v -c -o "$tmp/$name.o" "$source" > "$tmp/$name.log" 2>&1 || {
        fail "$source compiles"
        sed 's/^/    /' "$tmp/$name.log"
        continue
    }
    "$nvcc" "${flags[@]}" -ptx "-arch=compute_${archs##* }" -o "$tmp/$name.ptx" "$source" > "$tmp/log" 2>&1 ||
        fail "$source becomes PTX"
done
[ "$status" = 0 ] || exit 1

# arch, kernel, registers, bytes of stack, of spills
cat "$tmp"/*.log | awk '
    /Compiling entry function/ { split($0, part, "\047"); kernel = part[2]; arch = part[4] }
    /bytes stack frame/ { stack = $1; spills = $5 + $9 }
    /Used [0-9]+ registers/ { for (i = 1; i <= NF; ++i) if ($i == "Used") registers = $(i + 1)
        print arch, kernel, registers, stack, spills }' | sort -u > "$tmp/used"
# kernel, access, how often
cat "$tmp"/*.ptx | awk '
    /\.entry / { match($0, /_Z[A-Za-z0-9_]+/); kernel = substr($0, RSTART, RLENGTH) }
    { for (i = 1; i <= NF; ++i) if ($i ~ /^(ld|st)\.(global|local)[a-z0-9.]*$/) ++count[kernel " " $i] }
    END { for (at in count) print at, count[at] }' | sort > "$tmp/accesses"

short() { c++filt | sed -E 's/void pkv::cuda::run_body<pkv::cuda::(.*)>\(.*/\1/; s/ >/>/g; s/ $//'; }

for arch in $archs; do
    kernels=$(grep -c "^sm_$arch " "$tmp/used")
    spilled=$(awk -v arch="sm_$arch" '$1 == arch && $4 + $5 > 0 { print $2, $4, $5 }' "$tmp/used")
    if [ "$kernels" -lt 80 ]; then
        fail "sm_$arch: $kernels kernels, 80 are expected"
    elif [ -n "$spilled" ]; then
        fail "sm_$arch: no kernel keeps registers in memory"
        short <<< "$spilled" | sed 's/^/    /'
    else
        most=$(awk -v arch="sm_$arch" '$1 == arch && $3 > most { most = $3 } END { print most }' "$tmp/used")
        echo "PASS sm_$arch: none of $kernels kernels keeps registers in memory; they use up to $most of 255"
    fi
done
if grep -q '\.local' "$tmp/accesses"; then fail "no kernel has local memory in PTX"; else echo "PASS no kernel has local memory in PTX"; fi

wide() { # kernel's name in the symbol, accesses that it must have
    local kernel=$1 access missing=
    shift
    for access in "$@"; do
        grep -E "^[^ ]*$kernel[^ ]* $access " "$tmp/accesses" > /dev/null || missing+=" $access"
    done
    if [ -z "$missing" ]; then echo "PASS $(short <<< "_ZN3pkv4cuda8run_bodyINS0_${kernel}EEEvNT_6ParamsE"): $*"; else fail "$kernel lacks$missing"; fi
}
for body in 7WriteOf 8GatherOf 6CopyOf 8SlicesOf; do wide "${body}ILi16EE" ld.global.v4.u32 st.global.v4.u32; done
# f16 and bf16 (2, 3) to e4m3 (4) and back, eight at a time.
for type in 2 3; do
    wide "16WriteConvertedOfILi${type}ELi4ELi8EE" ld.global.v4.u32 st.global.v2.u32
    wide "17GatherConvertedOfILi4ELi${type}ELi8EE" ld.global.v2.u32 st.global.v4.u32
done

# The same in what the device runs, where the toolkit brings the tool to look at it.
cuobjdump=$(dirname "$nvcc")/cuobjdump
[ -x "$cuobjdump" ] || cuobjdump=$(command -v cuobjdump)
if [ -n "$cuobjdump" ] && "$cuobjdump" -sass "$tmp/kernels_move.o" > "$tmp/sass" 2> /dev/null; then
    for arch in $archs; do
        for body in 7WriteOf 8GatherOf 6CopyOf 8SlicesOf; do
            count=$(awk -v arch="sm_$arch" -v kernel="${body}ILi16EE" '
                /^[ \t]*arch = / { device = $3 }
                /Function :/ { ours = device == arch && index($0, kernel) }
                ours && /(LDG|STG)[A-Z.]*\.128/ { ++count[/LDG/ ? "LDG.128" : "STG.128"] }
                ours && /(LDL|STL)/ { ++count["local"] }
                END { print count["LDG.128"] + 0, count["STG.128"] + 0, count["local"] + 0 }' "$tmp/sass")
            read -r loads stores locals <<< "$count"
            if [ "$loads" -ge 4 ] && [ "$stores" -ge 4 ] && [ "$locals" = 0 ]; then
                echo "PASS sm_$arch SASS of ${body#[0-9]}<16>: $loads LDG.128, $stores STG.128, no local memory"
            else
                fail "sm_$arch SASS of ${body#[0-9]}<16>: $loads LDG.128, $stores STG.128, $locals accesses to local memory"
            fi
        done
    done
else
    echo "SKIP SASS: there is no cuobjdump"
fi

if [ "$report" = 1 ]; then
    echo
    echo "registers by device, and accesses in PTX (compute_${archs##* })"
    awk '{ print $2 }' "$tmp/used" | sort -u | while read -r kernel; do
        registers=$(awk -v kernel="$kernel" '$2 == kernel { printf "%s:%s ", substr($1, 4), $3 }' "$tmp/used")
        accesses=$(awk -v kernel="$kernel" '$1 == kernel { printf "%s x%s  ", $2, $3 }' "$tmp/accesses")
        printf '%-32s %s\n%-32s %s\n' "$(short <<< "$kernel")" "$registers" "" "$accesses"
    done
fi
exit $status
