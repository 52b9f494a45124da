"""bench all: rope, attention, decode, memory and the lab's model, part by part, in one document that is whole after
every part.

Each part runs in processes of its own, its contestants interleaved. A killed benchmark goes on with the parts
that are missing; one part can be done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from milepost.bench.parts import run_apart
from milepost.checks import check_known
from milepost.measure.results import provenance

Tell = Callable[[str], None]
MINUTES = {
    "rotation": 0.5, "forward-4096": 3.0, "content-4096": 3.5, "training-4096": 1.5, "training-ours-4096": 1.0,
    "decode-16384": 2.5, "decode-4096": 0.5, "forward-16384": 3.0, "memory-16384": 2.0, "training-memory-16384": 1.0,
    "memory-65536": 0.5, "others-4096": 3.0, "path-512": 0.1, "lab": 1.0,
}  # fmt: skip
"""About how long each part takes on two cores; the time left is told by how fast the parts before were."""


def parts(tell: Tell) -> dict[str, Callable[[], list[dict[str, Any]]]]:
    """Every part by its name, in the order of the document."""
    return {name: partial(run_apart, name, tell) for name in MINUTES}


def bench_everything(
    known: dict[str, Any] | None = None, again: Sequence[str] = (), tell: Tell = lambda text: None
) -> Iterator[dict[str, Any]]:
    """The document after each part: ``parts`` by name with ``rows`` and ``provenance``; ``rope``, ``lab`` and ``rows``
    of all others.

    Parts that ``known`` holds are kept, but for those named in ``again``.
    """
    pace = _Pace(tell)
    every = parts(pace.tell)
    for name in again:
        check_known("part", name, every)
    held = dict((known or {}).get("parts", {}))
    pace.missing = [name for name in every if name not in held or name in again]
    for name in list(pace.missing):
        pace.begin(name)
        about = provenance(
            heads=8, head_dim=64, dtype="float32", causal=True, device="cpu", threads=torch.get_num_threads()
        )
        held[name] = {"rows": every[name](), "provenance": about}
        pace.done(name)
        yield assemble(held, list(every))
    if held:
        yield assemble(held, list(every))


class _Pace:
    """Says with each message which part it is about, and how long the parts that are missing will take."""

    def __init__(self, say: Tell):
        self.say, self.missing, self.before = say, [""], ""
        self.spent = self.expected = self.begun = 0.0

    def begin(self, name: str) -> None:
        """A part begins."""
        self.begun = time.monotonic()
        rate = self.spent / self.expected if self.expected else 60.0
        left = sum(MINUTES.get(part, 1.0) for part in self.missing) * rate / 60
        self.before = f"{name} ({len(self.missing)} to do, some {max(1, round(left))} min left)"
        self.tell("begins")

    def done(self, name: str) -> None:
        """A part is done."""
        self.spent += time.monotonic() - self.begun
        self.expected += MINUTES.get(name, 1.0)
        self.missing.remove(name)

    def tell(self, text: str) -> None:
        """Pass a message on."""
        self.say(f"{self.before}: {text}")


def assemble(held: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """The document of these parts."""
    parts = {name: held[name] for name in order if name in held}
    rows = [row for name, part in parts.items() if name not in ("rotation", "lab") for row in part["rows"]]
    rotation, lab = (parts[name]["rows"] if name in parts else [] for name in ("rotation", "lab"))
    about = next(iter(parts.values()))["provenance"]
    return {"rope": rotation, "lab": lab, "rows": rows, "parts": parts, "provenance": about}
