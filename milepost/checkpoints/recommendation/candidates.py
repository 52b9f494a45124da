"""Candidates: what can be done, without training, to make a rotary model read a longer text.

    scalings    base, linear, ntk, ntk_by_parts, yarn, llama3      by 1, 1.5 and 2 times what the target needs; dynamic, which looks at the text's length
    maps        self-extend, rerope, dual-chunk, streaming         with windows of a half and a quarter of the trained length

A scaling is a RopeSpec, so that it can be written down for an engine. A map is not: no config says it. Layers whose window is shorter than what was
trained meet no new distance, and keep their rope. Streaming hides all but the last tokens: it goes on for ever, and forgets; ``whole`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from milepost.encoding import Encoding
from milepost.encodings.rope import RoPE
from milepost.maps.dual_chunk import DualChunk
from milepost.maps.rerope import ReRoPE
from milepost.maps.self_extend import SelfExtend
from milepost.maps.streaming import Streaming
from milepost.rope.spec import METHODS, RopeSpec

STRETCHES = (1.0, 1.5, 2.0)
"""Factors, in units of the smallest that reaches the target."""
SINKS = 4


@dataclass(frozen=True)
class Candidate:
    """One setting of one method: ``encodings`` by layer, and ``spec`` where a config could say it. No encodings: the model as it is."""

    method: str
    setting: str
    factor: float | None = None
    spec: RopeSpec | None = None
    encodings: dict[int, Encoding] = field(default_factory=dict, compare=False)

    @property
    def whole(self) -> bool:
        """Whether the whole text is seen."""
        return self.method != "streaming"

    @property
    def word(self) -> str:
        return self.method if self.factor is None else f"{self.method} x{self.factor:g}"


NONE = Candidate("none", "as it is")


def candidates(spec: RopeSpec, trained: int, target: int, layers: int) -> Iterator[Candidate]:
    """All of them; of each method the smallest factor first."""
    plain = replace(spec, trained=trained)
    for method in METHODS:
        for stretch in STRETCHES if method != "dynamic" else STRETCHES[:1]:
            factor = target / trained * stretch
            made = replace(plain.extended(round(factor * trained), method), served=target)  # type: ignore[arg-type]
            yield Candidate(
                method, repr(made.main.scaling), None if method == "dynamic" else factor, made, by_layer(made, layers)
            )
    for method, maps in _maps(trained, target).items():
        for make in maps:
            kept = by_layer(spec, layers)
            changed = {n: make(_plain(spec, n)) for n in kept if spec.layer(n if spec.layers else 0) == spec.main}
            yield Candidate(method, _words(next(iter(changed.values()))), None, None, {**kept, **changed})


def by_layer(spec: RopeSpec, layers: int) -> dict[int, Encoding]:
    """The encoding of each layer that turns."""
    ropes = {n: spec.layer(n if spec.layers else 0) for n in range(layers)}
    return {n: rope.encoding() for n, rope in ropes.items() if rope is not None}


def _plain(spec: RopeSpec, layer: int) -> RoPE:
    """A map stands over the trained rotation, not over a scaling of it."""
    rope = spec.layer(layer if spec.layers else 0)
    assert rope is not None
    return replace(rope, scaling=None).encoding()


def _maps(trained: int, target: int) -> dict[str, list[Callable[[RoPE], Encoding]]]:
    windows = sorted({max(1, trained // 2), max(1, trained // 4)})
    chunk, local = max(2, trained * 3 // 4), max(1, trained // 8)
    return {
        "self-extend": [partial(_grouped, window=w, trained=trained, target=target) for w in windows],
        "rerope": [partial(ReRoPE, window=w) for w in windows],
        "dual-chunk": [partial(DualChunk, chunk=chunk, local=local)],
        "streaming": [partial(Streaming, sinks=SINKS, window=max(1, trained - SINKS - 1))],
    }


def _grouped(rope: RoPE, window: int, trained: int, target: int) -> Encoding:
    """The smallest groups that keep every relative position below 2/3 of the trained length, as its authors advise."""
    group = 2
    while SelfExtend(rope, group=group, window=window).reach(target) >= trained * 2 / 3 and group < target:
        group += 1
    return SelfExtend(rope, group=group, window=window)


def _words(enc: Encoding) -> str:
    """A map's own numbers, without the rope that it stands over."""
    given: dict[str, Any] = {
        name: getattr(enc, name) for name in ("group", "window", "chunk", "local", "sinks") if hasattr(enc, name)
    }
    return ", ".join(f"{name} {value:g}" for name, value in given.items())
