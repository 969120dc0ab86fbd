# SPDX-License-Identifier: Apache-2.0
"""Replays a request trace (examples/traces/README.md) through a cache, and plots what it found.

    python replay.py [--capacity N] [--requests N] [--host-bytes N] [--file FILE --file-bytes N] [--check] [--plot FILE] TRACE

A request is admitted whole; what the cache did not have is written, committed, and stays cached. --check gathers all of it and
compares every byte. --plot draws the hit rate over the requests, and over the capacity as examples/replay.c does (it needs
matplotlib; without it everything else works). Hits are counted in blocks of 512 tokens, as the reference rates are.
"""

import argparse
import json
import sys
from array import array

import pagedkv

BLOCK = 512  # tokens behind one hash id
PAGE = 64
ROW = 8  # elements of f32: one head


def requests_of(path, limit):
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file):
            if limit and number == limit:
                return
            yield json.loads(line)["hash_ids"]


def tokens_of(ids):
    """Token ids that are equal where hash ids are: these stand for whole prefixes."""
    tokens = array("i")
    for one in ids:
        tokens.extend(range(one * BLOCK & 0x7FFFFFFF, (one * BLOCK & 0x7FFFFFFF) + BLOCK))
    return tokens


def rows_of(ids):
    """K of these blocks: what a model would have computed."""
    k = array("f")
    for one in ids:
        k.extend(float((one * 31 + i) % 8191) for i in range(BLOCK))
    return array("f", [x for x in k for _ in range(ROW)])


class Replay:
    def __init__(self, options, capacity, ids_only=False):
        self.ids_only = ids_only
        tiers = {} if ids_only else dict(host_bytes=options.host_bytes, file=options.file, file_bytes=options.file_bytes)
        self.cache = pagedkv.PagedCache(
            model="pagedkv replay.py 1",
            page_tokens=PAGE,
            num_pages=capacity * BLOCK // PAGE,
            num_layers=1,
            num_kv_heads=1,
            k_head_dim=ROW,
            dtype="f32",
            memory="none" if ids_only else "pool",
            policy="write_through",
            prefetch=False,  # a session would take pages of the pool as its staging memory
            **tiers,
        )
        self.blocks = self.hits = self.refused = self.wrong = 0

    def request(self, ids, check):
        """Admits a request, and gives its blocks, and those that were found."""
        self.blocks += len(ids)
        try:
            sequence = self.cache.begin(tokens_of(ids), max_match=pagedkv.MATCH_ALL)
        except pagedkv.NoPagesError:
            self.refused += 1
            return 0
        with sequence:
            committed = sequence.info().committed
            if not self.ids_only and committed < len(ids) * BLOCK:
                first = committed // BLOCK
                k = memoryview(rows_of(ids[first:]))[(committed - first * BLOCK) * ROW :]
                sequence.write(0, committed, k)
            sequence.commit(len(ids) * BLOCK)
            if check:
                out = array("f", bytes(4 * ROW * BLOCK * len(ids)))
                sequence.gather(0, 0, out)
                self.wrong += out != rows_of(ids)
        found = committed // BLOCK
        self.hits += found
        return found

    def rate(self):
        return self.hits / self.blocks if self.blocks else 0.0


def bytes_arg(text):
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper())
    return int(text[:-1]) * factor if factor else int(text)


def plot(path, options, running):
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is not installed: nothing is plotted", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    capacities = [2**i * 125 for i in range(8)]
    rates = []
    for capacity in capacities:
        replay = Replay(options, capacity, ids_only=True)
        with replay.cache:
            for ids in requests_of(options.trace, options.requests):
                replay.request(ids, False)
        rates.append(replay.rate())
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    left.plot(range(1, len(running) + 1), running)
    left.set(xlabel="requests", ylabel="hit rate so far", title=f"capacity {options.capacity} blocks", ylim=(0, None))
    right.plot(capacities, rates, marker="o")
    right.axvline(options.capacity, linestyle=":")
    right.set(xlabel="capacity, blocks of 512 tokens", ylabel="hit rate", xscale="log", title="pages alone", ylim=(0, None))
    figure.suptitle(options.trace.rsplit("/", 1)[-1])
    figure.savefig(path)
    print(f"{path}: hit rates of {len(running)} requests, and at {len(capacities)} capacities")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--capacity", type=int, default=1000, help="blocks of 512 tokens in the pool (1000)")
    parser.add_argument("--requests", type=int, default=0, help="replay the first N only")
    parser.add_argument("--host-bytes", type=bytes_arg, default=0, help="host memory below the pool; K, M, G may follow")
    parser.add_argument("--file", help="a file below it; what an earlier run left there is found")
    parser.add_argument("--file-bytes", type=bytes_arg, default=0)
    parser.add_argument("--check", action="store_true", help="compare every byte")
    parser.add_argument("--plot", metavar="FILE", help="draw the hit rates (matplotlib)")
    parser.add_argument("trace")
    options = parser.parse_args()

    replay = Replay(options, options.capacity)
    running = []
    with replay.cache as cache:
        for ids in requests_of(options.trace, options.requests):
            replay.request(ids, options.check)
            running.append(replay.rate())
        stats = cache.pool.stats()
    print(f"{len(running)} requests, {replay.blocks} blocks, {replay.hits} found: hit rate {replay.rate():.4f}")
    print(f"{stats.tier_hit_tokens // BLOCK} of them came from tiers; {replay.refused} requests were larger than the pool")
    if options.check:
        print(f"{replay.wrong} requests had wrong bytes")
    if options.plot:
        plot(options.plot, options, running)
    return 1 if replay.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
