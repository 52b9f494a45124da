"""Candidates: what can be done, without training, to make a rotary model read a longer text.

    scalings    base, linear, ntk, ntk_by_parts, yarn, llama3      by 1, 1.5 and 2 times what the target needs; dynamic, which
                                                                   looks at the length of the text
    maps        self-extend, rerope, dual-chunk, streaming         with windows of a half and a quarter of the trained length

A scaling is a RopeSpec, so it can be exported to an engine. A map is not: no config has keys for it. Layers whose window is
shorter than the trained length meet no new distance, and keep their rope. Streaming hides all but the last tokens: it goes on
for ever, and forgets; ``whole`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from milepost.encoding import Encoding
from milepost.encodings.rope import RoPE
from milepost.lab.strategies import fit_self_extend
from milepost.maps.dual_chunk import DualChunk
from milepost.maps.rerope import ReRoPE
from milepost.maps.streaming import Streaming
from milepost.rope.spec import METHODS, RopeSpec

STRETCHES = (1.0, 1.5, 2.0)
"""Factors, in units of the smallest that reaches the target."""
SINKS = 4


@dataclass(frozen=True)
class Candidate:
    """One setting of one method: ``encodings`` by layer, and ``spec`` where a config could say it.

    Without encodings it is the model as it is.
    """

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
    def name(self) -> str:
        return self.method if self.factor is None else f"{self.method} x{self.factor:g}"


UNCHANGED = Candidate("none", "as it is")


def candidates(spec: RopeSpec, trained: int, target: int, layers: int) -> Iterator[Candidate]:
    """All of them; of each method the smallest factor first."""
    plain = replace(spec, trained=trained)
    for method in METHODS:
        for stretch in STRETCHES if method != "dynamic" else STRETCHES[:1]:
            factor = target / trained * stretch
            made = replace(plain.extended(round(factor * trained), method), served=target)  # type: ignore[arg-type]
            shown = None if method == "dynamic" else factor
            yield Candidate(method, repr(made.main.scaling), shown, made, encodings_by_layer(made, layers))
    turning = encodings_by_layer(spec, layers)
    mapped = [n for n in turning if _rope(spec, n) == spec.main]
    for method, make in _maps(trained, target):
        maps = {n: make(replace(_rope(spec, n), scaling=None).encoding()) for n in mapped}  # over the trained rotation
        yield Candidate(method, _numbers(maps[mapped[0]]), None, None, {**turning, **maps})


def encodings_by_layer(spec: RopeSpec, layers: int) -> dict[int, Encoding]:
    """The encoding of each layer that turns."""
    ropes = {n: _rope(spec, n) for n in range(layers)}
    return {n: rope.encoding() for n, rope in ropes.items() if rope is not None}


def _rope(spec: RopeSpec, layer: int) -> Any:
    return spec.layer(layer if spec.layers else 0)


def _maps(trained: int, target: int) -> Iterator[tuple[str, Callable[[RoPE], Encoding]]]:
    windows = sorted({max(1, trained // 2), max(1, trained // 4)})
    yield from (("self-extend", partial(fit_self_extend, window=w, trained=trained, length=target)) for w in windows)
    yield from (("rerope", partial(ReRoPE, window=w)) for w in windows)
    yield "dual-chunk", partial(DualChunk, chunk=max(2, trained * 3 // 4), local=max(1, trained // 8))
    yield "streaming", partial(Streaming, sinks=SINKS, window=max(1, trained - SINKS - 1))


def _numbers(enc: Encoding) -> str:
    """A map's own numbers, without the rope that it stands over."""
    names = [name for name in ("group", "window", "chunk", "local", "sinks") if hasattr(enc, name)]
    return ", ".join(f"{name} {getattr(enc, name):g}" for name in names)
