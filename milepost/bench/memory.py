"""Memory of one forward pass over a long text, beyond that of attention with no position.

Each scheme is measured in a process of its own: memory that another one has freed, and the allocator keeps, hides
nothing there. `python -m milepost.bench.memory SCHEME LENGTH HEADS HEAD_DIM` is such a process; it prints MB.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from milepost.bench.attention import row, step
from milepost.bench.contestants import baseline, encoding, is_causal, milepost
from milepost.measure.memory import peak_mb

WARM = 256
"""Tokens of a first pass, which loads what every pass needs."""


def bench_memory(
    length: int,
    schemes: Sequence[str],
    heads: int = 8,
    head_dim: int = 64,
    tell: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Rows as of `bench attention`: the peak of each scheme, less that of no position."""
    rows, of_none = [], {}
    for scheme in schemes:
        tell(f"{scheme}, {heads} heads, {length}: memory in a process of its own")
        causal = is_causal(encoding(scheme, heads, head_dim))
        if causal not in of_none:
            of_none[causal] = _measured("nope" if causal else "nope both ways", length, heads, head_dim)
        extra = max(0.0, _measured(scheme, length, heads, head_dim) - of_none[causal])
        many = "" if heads == 8 else f", {heads} {'head' if heads == 1 else 'heads'}"
        rows.append(row(scheme, "forward", length, peak=extra, note=f"memory, in a process of its own{many}"))
    return rows


def _measured(scheme: str, length: int, heads: int, head_dim: int) -> float:
    words = [sys.executable, "-P", "-m", "milepost.bench.memory", scheme, *map(str, (length, heads, head_dim))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise RuntimeError(f"the process that measures the memory of {scheme} stopped ({done.returncode}): {last}")
    return float(done.stdout)


def peak_of(scheme: str, length: int, heads: int, head_dim: int) -> float | None:
    """The peak of one forward pass in this process, in MB, after a short one."""
    for size in (WARM, length):
        q, k, v = (torch.randn(1, heads, size, head_dim) for _ in range(3))
        if scheme.startswith("nope"):
            run = partial(baseline, causal=scheme == "nope")
            peak = peak_mb(step(run, None, "forward", q, k, v))
        else:
            enc = encoding(scheme, heads, head_dim, length)
            peak = peak_mb(step(milepost(enc, size, "cpu"), enc, "forward", q, k, v))
    return peak


if __name__ == "__main__":
    peak = peak_of(sys.argv[1], *map(int, sys.argv[2:5]))
    if peak is None:
        sys.exit("this system does not tell the peak of a process")
    print(peak)
