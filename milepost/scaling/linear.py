"""Linear: position interpolation (PI). All positions are squeezed into the trained range.

    w_i' = w_i / factor

Chen et al., "Extending Context Window of Large Language Models via Positional Interpolation", 2023, section 3.
arXiv:2306.15595 (found independently by kaiokendev, 2023)

No pair meets an angle that it has not seen; in return neighbours are `factor` times harder to tell apart.

Departure: the frequencies are divided where the paper divides positions. The angle is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from milepost.scaling.scaling import Scaling
from milepost.spectrum import Spectrum


@dataclass(frozen=True, repr=False)
class Linear(Scaling):
    """Every frequency over ``factor``."""

    factor: float

    def __post_init__(self) -> None:
        self.check_factor("factor", self.factor)

    def __call__(self, plain: Spectrum) -> Spectrum:
        return replace(plain, frequencies=tuple(w / self.factor for w in plain.frequencies))
