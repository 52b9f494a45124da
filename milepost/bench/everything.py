"""bench all: rope, attention, decode and memory, part by part, in one document that is whole after every part.

Each part is one run, its contestants interleaved. A killed benchmark goes on with the parts that are missing; one
part can be done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from milepost.bench.attention import bench_attention, bench_memory
from milepost.bench.contestants import CONTENT, EMBEDDED, GRID, TOEPLITZ
from milepost.bench.decode import bench_decode
from milepost.bench.rope import bench_rope
from milepost.checks import check_known
from milepost.measure.results import provenance

PLAIN = ("rope", *TOEPLITZ)
Tell = Callable[[str], None]


def parts(tell: Tell) -> dict[str, Callable[[], list[dict[str, Any]]]]:
    """Every part by its name, in the order of the document."""
    attention = partial(bench_attention, tell=tell)
    return {
        "rotation": lambda: list(bench_rope(tell=tell)["rows"]),
        "forward-4096": lambda: list(attention((4096,), PLAIN, passes=("forward",), rounds=4)["rows"]),
        "decode-16384": lambda: list(bench_decode(tell=tell)["rows"]),
        "training-4096": lambda: list(attention((4096,), PLAIN, passes=("training",), rounds=2)["rows"]),
        "forward-16384": lambda: list(attention((16384,), PLAIN, passes=("forward",))["rows"]),
        "training-memory-16384": lambda: list(
            attention((16384,), TOEPLITZ, passes=("training",), rounds=0, ours_only=True)["rows"]
        ),
        "memory-65536": lambda: list(bench_memory(tell=tell)),
        "content-4096": lambda: list(attention((4096,), CONTENT, passes=("forward",), rounds=2)["rows"]),
        "content-training-4096": lambda: list(
            attention((4096,), CONTENT, passes=("training",), rounds=2, ours_only=True)["rows"]
        ),
        "content-16384": lambda: list(attention((16384,), CONTENT, passes=("forward",), ours_only=True)["rows"]),
        "others-4096": lambda: list(attention((4096,), (*EMBEDDED, *GRID), passes=("forward",), rounds=2)["rows"]),
    }


def bench_everything(
    known: dict[str, Any] | None = None, again: Sequence[str] = (), tell: Tell = lambda text: None
) -> Iterator[dict[str, Any]]:
    """The document after each part: ``parts`` by name with ``rows`` and ``provenance``; ``rope`` and ``rows`` of all.

    Parts that ``known`` holds are kept, but for those named in ``again``.
    """
    every = parts(tell)
    for name in again:
        check_known("part", name, every)
    held = dict((known or {}).get("parts", {}))
    for name, run in every.items():
        if name not in held or name in again:
            about = provenance(heads=8, head_dim=64, dtype="float32", causal=True, device="cpu")
            held[name] = {"rows": run(), "provenance": about}
            yield assemble(held, list(every))
    if held:
        yield assemble(held, list(every))


def assemble(held: dict[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """The document of these parts."""
    parts = {name: held[name] for name in order if name in held}
    rows = [row for name, part in parts.items() if name != "rotation" for row in part["rows"]]
    rotation = parts["rotation"]["rows"] if "rotation" in parts else []
    return {"rope": rotation, "rows": rows, "parts": parts, "provenance": next(iter(parts.values()))["provenance"]}
