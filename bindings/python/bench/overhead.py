# SPDX-License-Identifier: Apache-2.0
"""What a call costs beside the same call in C: an empty one, and writes and gathers of one token.

    PYTHONPATH=build/bindings/python python bindings/python/bench/overhead.py

C is measured by overhead.c (built on the spot, if there is a compiler). Slices of both alternate; medians are shown, with the
quartiles. Nothing passes or fails by it.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from array import array

import pagedkv

try:
    import numpy
except ImportError:
    numpy = None

CALLS = 1000


def measure(call, rounds):
    """ns a call: median and quartiles over rounds."""
    clock = time.perf_counter_ns
    times = []
    for _ in range(rounds):
        repeat = range(CALLS)
        begin = clock()
        for _ in repeat:
            call()
        times.append((clock() - begin) / CALLS)
    return statistics.quantiles(times, n=4) if len(times) > 1 else times * 3


def nothing():
    pass


def build_c(folder):
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.join(here, "..", "..", "..")
    program = os.path.join(folder, "overhead")
    lib = os.path.join(root, "build", "lib")
    command = [os.environ.get("CC", "cc").split()[-1], "-O2", "-std=c11", "-D_GNU_SOURCE", os.path.join(here, "overhead.c")]
    command += ["-I" + os.path.join(root, "include"), "-o", program, "-L" + lib, "-lpagedkv", "-Wl,-rpath," + os.path.abspath(lib)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return program


def run_c(program, rounds):
    if program is None:
        return {}
    out = subprocess.run([program, str(rounds)], check=True, capture_output=True, text=True).stdout
    return {name: list(map(float, numbers)) for name, *numbers in (line.split() for line in out.splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=1000, help="rounds of 1000 calls (1000)")
    rounds = max(2, parser.parse_args().rounds // 4)

    # 1 layer, 8 heads of 128 f16 elements: a token's K and V are 4 KiB, as in overhead.c
    options = dict(page_tokens=16, num_pages=64, num_layers=1, num_kv_heads=8, k_head_dim=128, v_head_dim=128, dtype="f16")
    with pagedkv.Pool(**options) as pool, pool.table() as table, tempfile.TemporaryDirectory() as folder:
        table.admit(list(range(17)))
        flat = bytearray(8 * 128 * 2), bytearray(8 * 128 * 2)
        table.write(0, 0, bytes(17 * 2048), bytes(17 * 2048))
        table.commit(16)
        slots = array("q", [table.slots(16, 1)[0]])
        calls = {
            "a call of nothing": (nothing, None),
            "table.info": (table.info, "info"),
            "table.reserve, nothing to do": (lambda: table.reserve(17), "reserve"),
            "table.write, 1 token, bytearrays": (lambda: table.write(0, 16, *flat), "write"),
            "table.gather, 1 token, bytearrays": (lambda: table.gather(0, 15, *flat), "gather"),
            "pool.write, 1 token": (lambda: pool.write(0, slots, *flat), "pool_write"),
        }
        if numpy is not None:
            rows = numpy.zeros((1, 8, 128), "f2"), numpy.zeros((1, 8, 128), "f2")
            calls["table.write, 1 token, numpy"] = (lambda: table.write(0, 16, *rows), "write")
            calls["table.gather, 1 token, numpy"] = (lambda: table.gather(0, 15, *rows), "gather")
        program = build_c(folder)
        slices = {name: [] for name in calls}
        reference = {}
        for _ in range(4):  # short slices in turn
            for name, (call, _) in calls.items():
                slices[name].append(measure(call, rounds))
            for name, quartiles in run_c(program, rounds).items():
                reference.setdefault(name, []).append(quartiles)

    def middle(parts):
        return [statistics.median(part[i] for part in parts) for i in range(3)]

    print(f"{'ns a call: median (quartiles)':36} {'Python':>22} {'C':>22} {'more':>8}")
    for name, (_, counterpart) in calls.items():
        low, median, high = middle(slices[name])
        line = f"{name:36} {median:8.0f} ({low:.0f} - {high:.0f})".ljust(60)
        if counterpart in reference:
            c_low, c_median, c_high = middle(reference[counterpart])
            line += f"{c_median:8.0f} ({c_low:.0f} - {c_high:.0f})".ljust(22) + f"{median - c_median:8.0f}"
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
