"""bench all: rope, attention, decode and memory, one after another, in one document."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milepost.bench.attention import bench_attention, bench_memory
from milepost.bench.contestants import CONTENT, TOEPLITZ
from milepost.bench.decode import bench_decode
from milepost.bench.rope import bench_rope
from milepost.results import provenance


def bench_everything(tell: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """``rope`` (rows of `bench rope`), ``rows`` (of attention, decode and memory) and ``provenance``."""
    rope = bench_rope(tell=tell)
    near = bench_attention((4096,), ("rope", *TOEPLITZ, *CONTENT), rounds=3, tell=tell)
    far = bench_attention((16384,), ("rope", *TOEPLITZ), passes=("forward",), tell=tell)
    memory = bench_attention((16384,), ("rope", *TOEPLITZ), passes=("training",), rounds=0, ours_only=True, tell=tell)
    decode = bench_decode(tell=tell)
    rows = [row for part in (near, far, memory, decode) for row in part["rows"]] + bench_memory(tell=tell)
    return {"rope": rope["rows"], "rows": rows, "provenance": provenance(**near["provenance"]["protocol"])}
