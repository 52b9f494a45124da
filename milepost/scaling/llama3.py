"""Llama 3: fast pairs are kept, slow ones interpolated, those between blended by their turns.

    r_i = trained * w_i / 2π                                                         turns over the trained length
    t_i = clip((r_i - low_freq_factor) / (high_freq_factor - low_freq_factor), 0, 1)
    w_i' = (1 - t_i) w_i / factor + t_i w_i

Meta, "The Llama 3 Herd of Models", 2024, and the released code of Llama 3.1. arXiv:2407.21783

The same shape as NTK-by-parts, with 1 and 4 turns where YaRN has 1 and 32, and no temperature. Equal factors make a
step: Llama 4 has 1 and 1.

Departure: none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from milepost.scaling.ramp import over_turns
from milepost.scaling.scaling import Scaling
from milepost.spectrum import Spectrum


@dataclass(frozen=True, repr=False)
class Llama3(Scaling):
    """``factor`` times ``trained`` tokens."""

    factor: float = 8.0
    trained: int = 8192
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __post_init__(self) -> None:
        self.check_factor("factor", self.factor)
        self.check_length("trained", self.trained)
        if not 0 < self.low_freq_factor <= self.high_freq_factor < float("inf"):
            raise ValueError(
                f"llama3 wants 0 < low_freq_factor <= high_freq_factor, got {self.low_freq_factor} and "
                f"{self.high_freq_factor}"
            )

    def __call__(self, plain: Spectrum) -> Spectrum:
        if self.factor == 1:
            return plain
        shares = over_turns(plain, self.trained, self.high_freq_factor, self.low_freq_factor)
        return replace(
            plain,
            frequencies=tuple(
                (1 - t) * w / self.factor + t * w for t, w in zip(shares, plain.frequencies, strict=True)
            ),
        )
