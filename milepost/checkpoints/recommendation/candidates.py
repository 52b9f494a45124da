"""Candidates: what can be done, without training, to make a rotary model read a longer text.

    scalings    base, linear, ntk, ntk_by_parts, yarn, llama3      by a factor of at least what the target needs
                dynamic                                            by the length of the text and a factor from 1 on
    maps        self-extend, rerope, dual-chunk, streaming         with a window (or chunk) below the trained length

Every method has one number, which is searched: see `search`. A scaling is a RopeSpec, so it can be exported to an
engine. A map is not: no config has keys for it. Layers whose window is shorter than the trained length meet no new
distance, and keep their rope. Streaming hides all but the last tokens: it goes on for ever, and forgets; ``whole``
says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from milepost.encoding import Encoding
from milepost.encodings.rope import RoPE
from milepost.lab.strategies import fit_self_extend
from milepost.maps.dual_chunk import DualChunk
from milepost.maps.rerope import ReRoPE
from milepost.maps.streaming import Streaming
from milepost.rope.spec import METHODS, RopeSpec
from milepost.scaling import Dynamic

STARTS, LARGEST = (1.0, 1.5, 2.0), 32.0
"""The first factors that are tried, and the largest, in units of the smallest."""
SINKS = 4


@dataclass(frozen=True)
class Candidate:
    """One setting of one method: ``encodings`` by layer, and ``spec`` where a config could say it.

    Without encodings it is the model as it is. ``limit`` says what is beyond it, where it is at the end of a search.
    """

    method: str
    setting: str
    factor: float | None = None
    spec: RopeSpec | None = None
    encodings: dict[int, Encoding] = field(default_factory=dict, compare=False)
    limit: str | None = None

    @property
    def whole(self) -> bool:
        """Whether the whole text is seen."""
        return self.method != "streaming"

    @property
    def name(self) -> str:
        return self.method if self.factor is None else f"{self.method} x{self.factor:g}"


UNCHANGED = Candidate("none", "as it is")


@dataclass(frozen=True)
class Method:
    """A method with one number from ``low`` to ``high``: ``make`` gives its candidate, ``starts`` are tried first.

    ``beyond`` are the reasons why no smaller and no larger number is tried, or what that means.
    """

    name: str
    make: Callable[[float], Candidate]
    starts: tuple[float, ...]
    low: float
    high: float
    beyond: tuple[str, str]
    whole_numbers: bool = False

    def tidy(self, number: float) -> float:
        """A number as it would be written down: sixteenths of a factor, whole tokens of a window."""
        return round(number) if self.whole_numbers else round(16 * number) / 16

    def limit(self, number: float) -> str | None:
        """Why nothing beyond a number is tried, where it is the smallest or the largest."""
        return {self.high: self.beyond[1], self.low: self.beyond[0]}.get(number)


def methods(spec: RopeSpec, trained: int, target: int, layers: int) -> list[Method]:
    """All of them."""
    plain = replace(spec, trained=trained)
    return [_scaling_method(name, plain, target, layers) for name in METHODS] + _map_methods(
        spec, trained, target, layers
    )


def _scaling_method(name: str, spec: RopeSpec, target: int, layers: int) -> Method:
    assert spec.trained is not None
    low = 1.0 if name == "dynamic" else target / spec.trained
    shorter = "1 is the least factor" if name == "dynamic" else "a smaller factor does not reach the target"

    def make(factor: float) -> Candidate:
        made = stretch(spec, name, factor, target)
        return Candidate(name, repr(made.main.scaling), factor, made, encodings_by_layer(made, layers))

    beyond = (shorter, "a larger factor may be better still")
    return Method(name, make, tuple(low * start for start in STARTS), low, low * LARGEST, beyond)


def stretch(spec: RopeSpec, method: str, factor: float, target: int) -> RopeSpec:
    """``spec`` scaled by a method for factor x trained tokens, of which ``target`` are served.

    Dynamic scales by the length of the text; its factor is a number of its own.
    """
    assert spec.trained is not None
    far = target if method == "dynamic" else round(factor * spec.trained)
    made = replace(spec.extended(far, method), served=target)  # type: ignore[arg-type]
    if method != "dynamic":
        return made
    kinds = tuple(
        (kind, replace(rope, scaling=replace(rope.scaling, factor=factor)))
        if rope is not None and isinstance(rope.scaling, Dynamic) else (kind, rope)
        for kind, rope in made.kinds
    )  # fmt: skip
    return replace(made, kinds=kinds)


def _map_methods(spec: RopeSpec, trained: int, target: int, layers: int) -> list[Method]:
    turning = encodings_by_layer(spec, layers)
    mapped = [n for n in turning if _rope(spec, n) == spec.main]

    def method(name: str, build: Callable[[RoPE, int], Encoding], starts: set[int], low: int, high: int) -> Method:
        def make(number: float) -> Candidate:
            ropes = {n: replace(_rope(spec, n), scaling=None).encoding() for n in mapped}  # the trained rotation
            maps = {n: build(rope, int(number)) for n, rope in ropes.items()}
            return Candidate(name, _numbers(maps[mapped[0]]), None, None, {**turning, **maps})

        beyond = (f"{low} is the least", "a larger one meets distances that training never had")
        inside = tuple(sorted(min(max(low, start), high) for start in starts))
        return Method(name, make, tuple(dict.fromkeys(inside)), low, high, beyond, whole_numbers=True)

    halves, last = {trained // 2, trained // 4}, max(1, trained - SINKS - 1)
    return [
        method(
            "self-extend", lambda rope, w: fit_self_extend(rope, w, trained, target), halves, 1,
            max(1, trained * 5 // 8),
        ),
        method("rerope", lambda rope, w: ReRoPE(rope, window=w), halves, 1, max(1, trained - 1)),
        method(
            "dual-chunk", lambda rope, w: DualChunk(rope, chunk=w, local=max(1, w // 6)), {trained * 3 // 4}, 2,
            max(2, trained * 6 // 7),
        ),
        method("streaming", lambda rope, w: Streaming(rope, sinks=SINKS, window=w), {last}, 1, last),
    ]  # fmt: skip


def encodings_by_layer(spec: RopeSpec, layers: int) -> dict[int, Encoding]:
    """The encoding of each layer that turns."""
    ropes = {n: _rope(spec, n) for n in range(layers)}
    return {n: rope.encoding() for n, rope in ropes.items() if rope is not None}


def _rope(spec: RopeSpec, layer: int) -> Any:
    return spec.layer(layer if spec.layers else 0)


def _numbers(enc: Encoding) -> str:
    """A map's own numbers, without the rope that it stands over."""
    names = [name for name in ("group", "window", "chunk", "local", "sinks") if hasattr(enc, name)]
    return ", ".join(f"{name} {getattr(enc, name):g}" for name in names)
