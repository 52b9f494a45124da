"""Hybrid: different scalings for bands of pairs.

    w_i' = (scaling_b w)_i   for pairs i in band b,       edges[b-1] <= i < edges[b]

Ours, for studies: which pairs need what? NTK-by-parts, Llama 3 and LongRoPE are all answers to that question.

    hybrid(edges=(16, 48), scalings=(None, ntk(factor=4.0), linear(factor=4.0)))    keep, then NTK, then PI

Each scaling is worked out on the whole spectrum, and its band is taken from the result.

Departure: logits have one temperature, so scalings that set different ones can't be mixed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from milepost.scaling.scaling import Scaling
from milepost.scaling.staged import Staged
from milepost.spectrum import Spectrum


@dataclass(frozen=True, repr=False)
class Hybrid(Scaling):
    """``scalings`` (None: keep) of len(edges) + 1 bands; ``edges`` are the first pairs of all bands but the first."""

    edges: tuple[int, ...]
    scalings: tuple[Scaling | None, ...]

    def __post_init__(self) -> None:
        for name in ("edges", "scalings"):
            if not isinstance(getattr(self, name), tuple):
                raise ValueError(f"{name} of hybrid is a tuple, got {getattr(self, name)!r}")
        if (
            not self.edges
            or not all(isinstance(e, int) for e in self.edges)
            or any(a >= b for a, b in itertools.pairwise((0, *self.edges)))
        ):
            raise ValueError(f"edges of hybrid are pair numbers above 0 that grow, got {self.edges}")
        if len(self.scalings) != len(self.edges) + 1:
            raise ValueError(
                f"{len(self.edges)} edges make {len(self.edges) + 1} bands, got {len(self.scalings)} scalings"
            )
        if not all(s is None or isinstance(s, Scaling) for s in self.scalings):
            raise ValueError(f"scalings of hybrid are scalings, or None to keep a band, got {self.scalings}")
        if any(isinstance(s, Staged) for s in self.scalings):
            raise ValueError(
                "staged depends on the stage of each query, and one band of a hybrid can't follow it; use dynamic"
            )

    @property
    def length_dependent(self) -> bool:  # type: ignore[override]
        return any(s is not None and s.length_dependent for s in self.scalings)

    def at(self, length: int) -> Hybrid:
        return replace(self, scalings=tuple(None if s is None else s.at(length) for s in self.scalings))

    def __call__(self, plain: Spectrum) -> Spectrum:
        if self.length_dependent:
            return super().__call__(plain)
        pairs = len(plain.frequencies)
        if self.edges[-1] >= pairs:
            raise ValueError(f"the last band of hybrid begins at pair {self.edges[-1]}, and there are {pairs} pairs")
        bands = [plain if s is None else s(plain) for s in self.scalings]
        temperatures = {b.temperature for b, s in zip(bands, self.scalings, strict=True) if s is not None}
        if len(temperatures) > 1:
            raise ValueError(
                "the scalings of hybrid set different temperatures "
                f"({', '.join(f'{t:g}' for t in sorted(temperatures))}), and logits have one"
            )
        edges = (0, *self.edges, pairs)
        joined = [
            w for band, (a, e) in zip(bands, itertools.pairwise(edges), strict=True) for w in band.frequencies[a:e]
        ]
        return replace(
            plain, frequencies=tuple(joined), temperature=temperatures.pop() if temperatures else plain.temperature
        )
