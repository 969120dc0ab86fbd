#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The arrows of lib/README.md: which folder of lib/ includes which. Each line of the map below is one folder and the
# folders that it may include besides itself.

set -u
export LC_ALL=C
status=0

map='
core:
telemetry: core
layout: core
tensor: core layout
device: core tensor
prefix: core
tier: core telemetry
pool: core layout tensor device prefix tier
table: core telemetry layout tensor device prefix tier pool
prefetch: core telemetry layout device prefix tier pool table
directory: core tier
node: core layout tier directory
handover: core layout tensor device prefix tier pool table node
fabric: core node
redis: core directory
capi: core telemetry layout tensor device prefix tier pool table prefetch directory node handover
'

fail() { echo "FAIL $1"; status=1; }

for dir in lib/*/; do
    folder=$(basename "$dir")
    allowed=$(sed -n "s/^$folder://p" <<< "$map")
    if ! grep -q "^$folder:" <<< "$map"; then
        fail "$folder: not in the map of lib/README.md and tests/abi/includes.sh"
        continue
    fi
    wrong=
    while IFS=: read -r file line text; do
        [ -n "$file" ] || continue
        target=$(sed -E 's/^[^"]*"([^"]*)".*/\1/' <<< "$text")
        first=${target%%/*}
        if [ ! -e "lib/$target" ]; then
            wrong+="    $file:$line: \"$target\" is not a path below lib/"$'\n'
        elif [ "$first" != "$folder" ] && [[ " $allowed " != *" $first "* ]]; then
            wrong+="    $file:$line: $folder may not include $first ($target)"$'\n'
        fi
    done < <(grep -rnE '^ *# *include *"' "$dir" --include='*.h' --include='*.cpp' --include='*.cuh' --include='*.cu')
    if [ -z "$wrong" ]; then echo "PASS $folder includes only:${allowed:- nothing else}"; else
        fail "$folder includes only:${allowed:- nothing else}"
        printf '%s' "$wrong"
    fi
done

# The public handle types stand for handle values; capi turns them into objects, a batch holds those of its tables, and a
# request is known to its tier by one.
wrong=$(grep -rnE '(open|pin|close)_handle\(|Pin<' lib --include='*.h' --include='*.cpp' |
    grep -vE '^lib/(core/handles\.|capi/|table/batch\.|tier/(request|tier)\.)')
if [ -z "$wrong" ]; then echo "PASS only capi, batches and requests know handles"; else
    fail "only capi, batches and requests know handles"
    sed 's/^/    /' <<< "$wrong"
fi

# Headers are guarded, and none reaches into a .cpp.
wrong=$(grep -rL '^#pragma once' lib --include='*.h' --include='*.cuh'; grep -rnE '# *include *[<"].*\.cpp[>"]' lib)
if [ -z "$wrong" ]; then echo "PASS every header is guarded, no .cpp is included"; else
    fail "every header is guarded, no .cpp is included"
    sed 's/^/    /' <<< "$wrong"
fi

# Each dependency beyond libc and libstdc++ has one home.
one_home() { # header pattern, allowed files pattern, name
    local wrong
    wrong=$(grep -rnE "# *include *[<\"]$1" lib --include='*.h' --include='*.cpp' --include='*.cuh' --include='*.cu' | grep -vE "^lib/$2")
    if [ -z "$wrong" ]; then echo "PASS $3"; else
        fail "$3"
        sed 's/^/    /' <<< "$wrong"
    fi
}
one_home 'xxhash\.h' '(prefix|core|layout)/' "xxHash is used in prefix, core and layout only"
one_home 'sodium' '(core|pool|table|tier|directory|node|handover)/' "libsodium is used in core, pool, table, tier, directory, node and handover only"
one_home 'liburing' 'tier/' "liburing is used in tier only"
one_home 'rdma/' 'fabric/' "libfabric is used in fabric only"
one_home 'hiredis' 'redis/' "hiredis is used in redis only"
one_home 'cuda[a-z_]*\.h' 'tensor/cuda/' "CUDA is used in tensor/cuda only"
one_home 'openssl/' 'redis/' "OpenSSL is used in redis only"
exit $status
