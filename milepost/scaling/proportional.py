"""Proportional: only the fastest share of the pairs turns; the slow rest stands still, and carries content alone.

    w_i' = w_i / factor  for i < floor(share * d/2),        0 beyond

Barbero et al., "Round and Round We Go! What makes Rotary Positional Encodings useful?", 2024, section 6 (p-RoPE).
arXiv:2410.06205 The factor as in transformers' rope type `proportional` (Gemma 4)

Exponents go over the whole size d: the pairs that turn, turn as they did. `rope(partial="proportional", rotary=...)` is
the same with factor 1, said of the encoding; this page says it of a spectrum, so that it can be one band of a `hybrid`.

Departure: none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from milepost.scaling.scaling import Scaling
from milepost.spectrum import Spectrum


@dataclass(frozen=True, repr=False)
class Proportional(Scaling):
    """``share`` of the pairs turns, its frequencies over ``factor``."""

    share: float
    factor: float = 1.0

    def __post_init__(self) -> None:
        self.check_factor("factor", self.factor)
        if not 0 < self.share <= 1:
            raise ValueError(f"share of proportional must be above 0 and at most 1, got {self.share}")

    def __call__(self, plain: Spectrum) -> Spectrum:
        live = int(self.share * plain.size // 2)
        if live < 1:
            raise ValueError(
                f"a share of {self.share} of {plain.size // 2} pairs turns none of them; a model without positions is "
                "'nope'"
            )
        return replace(
            plain, frequencies=tuple(w / self.factor if i < live else 0.0 for i, w in enumerate(plain.frequencies))
        )
