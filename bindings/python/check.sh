#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python binding: its tests and the conformance cases under `python -X dev`, types, examples.

set -u
cd "$(dirname "$0")/../.." || exit 1
out=${BUILD:-$PWD/build}/bindings/python
python=${PKV_PYTHON:-}
. bindings/checks.sh

if [ ! -e "$out/pagedkv/_core.so" ]; then
    skip "python" "the binding is not built (swig, python3-dev)"
    exit $status
fi
export PYTHONPATH=$out PYTHONDONTWRITEBYTECODE=1
dev() { "$python" -X dev -W error "$@"; }

dev bindings/python/tests/run.py || status=1
bindings/conformance/compare.sh Python "$python" -X dev -W error bindings/python/tests/conformance.py bindings/conformance/cases.txt ||
    status=1

dev bindings/python/examples/quickstart.py > "$tmp/log" 2>&1 && "${BUILD:-$PWD/build}/bin/quickstart" | diff "$tmp/log" - >> "$tmp/log" 2>&1
result "examples/quickstart.py says what examples/quickstart.c says" $? "$tmp/log"
"$python" -W error bindings/python/examples/replay.py --requests 300 --capacity 200 --host-bytes 32M --check \
    examples/traces/conversation_trace.jsonl > "$tmp/log" 2>&1
result "examples/replay.py" $? "$tmp/log"
hits=$("${BUILD:-$PWD/build}/bin/replay" --json --capacity 200 --requests 300 examples/traces/conversation_trace.jsonl |
    sed -n 's/.*"hit_blocks": *\([0-9]*\).*/\1/p' | head -n 1)
[ -n "$hits" ] && grep -q "8490 blocks, $hits found" "$tmp/log"
result "examples/replay.py finds what examples/replay.c finds: ${hits:-nothing}" $? "$tmp/log"
if "$python" -c 'import matplotlib' 2> /dev/null; then
    MPLCONFIGDIR=$tmp "$python" bindings/python/examples/replay.py --requests 60 --capacity 100 --plot "$tmp/plot.png" \
        examples/traces/conversation_trace.jsonl > "$tmp/log" 2>&1 && [ "$(head -c 4 "$tmp/plot.png" | tail -c 3)" = PNG ]
    result "examples/replay.py --plot" $? "$tmp/log"
else
    echo "SKIP examples/replay.py --plot: matplotlib is not installed"
fi
dev bindings/python/bench/overhead.py --rounds 200 > "$tmp/log" 2>&1
result "bench/overhead.py" $? "$tmp/log"

if "$python" -c 'import mypy' 2> /dev/null || command -v mypy > /dev/null; then
    (cd bindings/python && if "$python" -c 'import mypy' 2> /dev/null; then
        "$python" -m mypy --cache-dir "$tmp/mypy" pagedkv
    else
        mypy --cache-dir "$tmp/mypy" pagedkv
    fi) > "$tmp/log" 2>&1
    result "types are consistent (mypy --strict)" $? "$tmp/log"
else
    echo "SKIP types: mypy is not installed"
fi
exit $status
