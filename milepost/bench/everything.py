"""bench all: rope, attention, decode and memory, one after another, in one document that is whole after every part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from milepost.bench.attention import bench_attention, bench_memory
from milepost.bench.contestants import CONTENT, TOEPLITZ
from milepost.bench.decode import bench_decode
from milepost.bench.rope import bench_rope
from milepost.results import provenance

PLAIN = ("rope", *TOEPLITZ)


def bench_everything(tell: Callable[[str], None] = lambda text: None) -> Iterator[dict[str, Any]]:
    """What is known after each part: ``rope`` (rows of `bench rope`), ``rows`` (of attention, decode and memory), ``provenance``."""
    attention = partial(bench_attention, tell=tell)
    parts: list[Callable[[], dict[str, Any]]] = [
        lambda: attention((4096,), PLAIN, passes=("forward",), rounds=4),
        lambda: bench_decode(tell=tell),
        lambda: attention((4096,), PLAIN, passes=("training",), rounds=2),
        lambda: attention((16384,), PLAIN, passes=("forward",)),
        lambda: attention((16384,), TOEPLITZ, passes=("training",), rounds=0, ours_only=True),  # memory alone
        lambda: {"rows": bench_memory(tell=tell)},
        lambda: attention((4096,), CONTENT, passes=("forward",), rounds=2),
    ]
    about = provenance(heads=8, head_dim=64, dtype="float32", causal=True, device="cpu")
    rope, rows = bench_rope(tell=tell)["rows"], []
    for part in parts:
        rows += part()["rows"]
        yield {"rope": rope, "rows": list(rows), "provenance": about}
