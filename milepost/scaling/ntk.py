"""NTK-aware: a larger base, chosen so that the slowest pair is slowed by exactly the factor, and the fastest not at
all.

    base' = base * factor^(d / (d - 2)),        so that  w'_0 = w_0  and  w'_(d/2-1) = w_(d/2-1) / factor

bloc97, "NTK-Aware Scaled RoPE", 2023; in print in Peng et al., "YaRN", section 3.1. arXiv:2309.00071

Departure: none. (vLLM's `ntk` is another one, after Su: base * factor and frequencies over factor^(2/d); the dialect
says so.)
"""

from __future__ import annotations

from dataclasses import dataclass

from milepost.scaling.scaling import Scaling
from milepost.spectrum import Spectrum, retuned


@dataclass(frozen=True, repr=False)
class NTK(Scaling):
    """A base for ``factor`` times the trained length."""

    factor: float

    def __post_init__(self) -> None:
        self.check_factor("factor", self.factor)

    def __call__(self, plain: Spectrum) -> Spectrum:
        return plain if self.factor == 1 else retuned(plain, plain.base * ntk_stretch(plain, self.factor))


def ntk_stretch(plain: Spectrum, factor: float) -> float:
    """What the base is multiplied by."""
    if plain.size < 4:
        raise ValueError(f"NTK-aware scaling divides by d - 2: the rotary size must be at least 4, got {plain.size}")
    return float(factor ** (plain.size / (plain.size - 2)))
