# SPDX-License-Identifier: Apache-2.0
"""Kernels of vLLM and FlashInfer at the shapes of bench.cpp, where they are installed, as rates and as shares of a device copy
of the same bytes: to be read beside the lines that bench prints. Each result is checked before it is timed."""
import sys

import torch

ROUNDS, PAGE_SIZES, HEADS, DIM = 15, (16, 64), 8, 128


def time_us(run, repeats):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeats):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / repeats


def compare(name, moved, ours, reference):
    """By turns; medians. `moved`: bytes read and written by one run of either."""
    repeats = max(1, (1 << 30) // moved)
    for _ in range(3):
        time_us(ours, repeats), time_us(reference, repeats)
    times = [(time_us(ours, repeats), time_us(reference, repeats)) for _ in range(ROUNDS)]
    a, b = (sorted(t[i] for t in times)[ROUNDS // 2] for i in (0, 1))
    print(f"{name:<58} {moved / a / 1e3:8.1f} GB/s  reference {moved / b / 1e3:8.1f} GB/s  ratio {b / a:.3f}", flush=True)


def setup(tokens, page_tokens):
    pages = tokens // page_tokens + 64
    k, v = (torch.randn(tokens, HEADS, DIM, dtype=torch.float16, device="cuda") for _ in range(2))
    order = torch.randperm(pages, device="cuda")[: tokens // page_tokens]
    offsets = torch.arange(page_tokens, device="cuda")
    slots = (order[:, None] * page_tokens + offsets[None, :]).reshape(-1)
    k_out, v_out = torch.empty_like(k), torch.empty_like(v)

    def copy():
        k_out.copy_(k), v_out.copy_(v)

    return pages, k, v, order, slots, copy, 2 * 2 * k.numel() * 2


def check(name, cache, slots, rows):
    if not torch.equal(cache.reshape(-1, HEADS, DIM)[slots], rows):
        sys.exit(f"{name}: wrong rows")


def vllm(tokens, page_tokens):
    from vllm import _custom_ops as ops

    pages, k, v, _, slots, copy, moved = setup(tokens, page_tokens)
    caches = [torch.full((pages, page_tokens, HEADS, DIM), float("nan"), dtype=torch.float16, device="cuda") for _ in range(2)]
    one = torch.ones(1, device="cuda")

    def write():
        ops.reshape_and_cache_flash(k, v, caches[0], caches[1], slots, "auto", one, one)

    write()
    check("vLLM", caches[0], slots, k), check("vLLM", caches[1], slots, v)
    compare(f"vLLM reshape_and_cache_flash, {tokens} tokens, page {page_tokens}", moved, write, copy)


def flashinfer(tokens, page_tokens):
    import flashinfer

    pages, k, v, order, slots, copy, moved = setup(tokens, page_tokens)
    cache = torch.full((pages, 2, page_tokens, HEADS, DIM), float("nan"), dtype=torch.float16, device="cuda")
    number = lambda *values: torch.tensor(values, dtype=torch.int32, device="cuda")
    positions = torch.arange(tokens, dtype=torch.int32, device="cuda")
    batch, indices, indptr, last = torch.zeros_like(positions), order.int(), number(0, len(order)), number(page_tokens)

    def write():
        flashinfer.append_paged_kv_cache(k, v, batch, positions, cache, indices, indptr, last)

    write()
    check("FlashInfer", cache[:, 0], slots, k), check("FlashInfer", cache[:, 1], slots, v)
    compare(f"FlashInfer append_paged_kv_cache, {tokens} tokens, page {page_tokens}", moved, write, copy)


def main():
    if not torch.cuda.is_available():
        print("SKIP peers: PyTorch has no device")
        return
    for name, bench in (("vllm", vllm), ("flashinfer", flashinfer)):
        try:
            __import__(name)
        except Exception as error:  # not installed, or for another driver
            print(f"SKIP {name}: {error}")
            continue
        for page_tokens in PAGE_SIZES:
            bench(8192, page_tokens)


main()
