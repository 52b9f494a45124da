"""Parity: do two specs give the same table? If not, where, and by how much.

Two specs may be written differently and turn every pair alike (ntk, and a larger base); or be written alike and differ.
So the numbers are compared: for every kind of layer the pairing, the frequency of every pair and the temperature of the
logits, at every length that matters to one of them; what queries are multiplied by at positions up to a million; the
rope of an indexer; whether values turn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from milepost.rope.spec import LayerRope, RopeSpec
from milepost.rope.temperature import PLACES, QueryTemperature

CLOSE = 1e-6
"""Relative difference up to which two numbers are the same: engines compute frequencies in float32."""


@dataclass(frozen=True)
class Difference:
    """One number, or word, that differs. ``pair`` and ``length`` are None where it is not about one pair or length."""

    kind: str
    what: str
    a: float | str
    b: float | str
    pair: int | None = None
    length: int | None = None

    @property
    def relative(self) -> float:
        """The difference as a share of the larger number; infinite where it is no number."""
        if isinstance(self.a, str) or isinstance(self.b, str):
            return math.inf
        return abs(self.a - self.b) / max(abs(self.a), abs(self.b), 1e-300)

    def sentence(self, a: str = "A", b: str = "B") -> str:
        """The difference in words."""
        place = "" if self.kind == "all" else f" in {self.kind} layers"
        pair = "" if self.pair is None else f" of pair {self.pair}"
        length = "" if self.length is None else f" for a text of {self.length} tokens"
        shown = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in (self.a, self.b)]
        return f"{self.what}{pair}{place}{length}: {shown[0]} ({a}), {shown[1]} ({b})"


def differences(a: RopeSpec, b: RopeSpec, *, close: float = CLOSE) -> list[Difference]:
    """Everything in which the tables of two specs differ; nothing if they are the same."""
    different: list[Difference] = []
    pairs = {(x, y) for x, y in zip(a.layers, b.layers, strict=False)} if a.layers and b.layers else set()
    if a.layers and b.layers and len(a.layers) != len(b.layers):
        different.append(Difference("all", "number of layers", float(len(a.layers)), float(len(b.layers))))
    mine, yours = dict(a.kinds), dict(b.kinds)
    if not pairs:
        pairs = {(kind, kind if kind in yours else next(iter(yours))) for kind in mine}
    for kind, other in sorted(pairs):
        different += _of_temperatures(kind, dict(a.temperatures).get(kind), dict(b.temperatures).get(other), close)
        x, y = mine[kind], yours[other]
        if x is None or y is None:
            if (x is None) != (y is None):
                different.append(
                    Difference(kind, "rotation", "none" if x is None else "rotary", "none" if y is None else "rotary")
                )
            continue
        different += _of_ropes(kind, x, y, _lengths(a, b, x, y), close)
    return different


def _lengths(a: RopeSpec, b: RopeSpec, x: LayerRope, y: LayerRope) -> list[int | None]:
    """The lengths at which to look: one is enough, unless a scaling depends on it."""
    if not any(rope.scaling is not None and rope.scaling.length_dependent for rope in (x, y)):
        return [None]
    trained = {n for n in (a.trained, b.trained, x.trained, y.trained) if n is not None}
    served = {n for n in (a.served, b.served) if n is not None}
    return [*sorted({m for n in trained for m in (max(1, n - 1), n, n + 1, 2 * n, 4 * n)} | served)]


def _of_temperatures(
    kind: str, x: QueryTemperature | None, y: QueryTemperature | None, close: float
) -> list[Difference]:
    """The first position at which queries are multiplied by different numbers."""
    for p in PLACES:
        t, s = (1.0 if tau is None else tau.at(p) for tau in (x, y))
        if not math.isclose(t, s, rel_tol=close):
            return [Difference(kind, f"temperature of the query at position {p}", t, s)]
    return []


def _of_ropes(kind: str, x: LayerRope, y: LayerRope, lengths: list[int | None], close: float) -> list[Difference]:
    different = [
        Difference(kind, name, str(getattr(x, field)), str(getattr(y, field)))
        for name, field in (
            ("head size", "head_dim"),
            ("rotary size", "rotary"),
            ("pairing", "pairing"),
            ("M-RoPE sections", "sections"),
            ("whether the last channels turn", "suffix"),
            ("whether values turn", "values"),
        )
        if getattr(x, field) != getattr(y, field)
    ]
    if (x.indexer is None) != (y.indexer is None):
        there = ["none" if rope.indexer is None else "rotary" for rope in (x, y)]
        different.append(Difference(kind, "the indexer's rope", there[0], there[1]))
    elif x.indexer is not None and y.indexer is not None:
        inner = _of_ropes(kind, x.indexer, y.indexer, lengths, close)
        different += [replace(d, what=f"the indexer's {d.what}") for d in inner]
    if x.rotary != y.rotary:
        return different
    for length in lengths:
        mine, yours = x.spectrum(length), y.spectrum(length)
        for i, (w, u) in enumerate(zip(mine.frequencies, yours.frequencies, strict=True)):
            if not math.isclose(w, u, rel_tol=close):
                different.append(Difference(kind, "frequency", w, u, i, length))
        t, s = mine.temperature * x.softmax, yours.temperature * y.softmax
        if not math.isclose(t, s, rel_tol=close):
            different.append(Difference(kind, "temperature on logits", t, s, None, length))
    return different
