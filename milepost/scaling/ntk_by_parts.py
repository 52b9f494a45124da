"""NTK-by-parts: each pair by the turns it made over the trained length. Many: keep it. Less than one: interpolate it.
Between: blend.

    r_i  = trained * w_i / 2π                                       turns over the trained length
    γ_i  = clip((r_i - slow) / (fast - slow), 0, 1)                 1 keeps a pair, 0 interpolates it
    w_i' = (1 - γ_i) w_i / factor + γ_i w_i

Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023, section 3.2. arXiv:2309.00071

`yarn` is this with a temperature (and, in its released code, with a ramp over the pair's number instead of its turns).

Departure: form="early" is the code that came before the paper, with four fixed bounds: a first ramp (1.25 to 0.75
turns) goes from interpolation to NTK-aware, a second (16 to 2 turns) from that to the plain frequency; both over the
pair's number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from milepost.scaling.ntk import NTK
from milepost.scaling.ramp import over_pairs, over_turns
from milepost.scaling.scaling import Scaling
from milepost.spectrum import Spectrum


@dataclass(frozen=True, repr=False)
class NTKByParts(Scaling):
    """``factor`` times ``trained`` tokens; pairs with more than ``fast`` turns are kept, those with fewer than ``slow``
    interpolated.
    """

    factor: float
    trained: int
    fast: float = 32.0
    slow: float = 1.0
    form: Literal["paper", "early"] = "paper"

    def __post_init__(self) -> None:
        self.check_factor("factor", self.factor)
        self.check_length("trained", self.trained)
        self.check_choice("form", self.form, ("paper", "early"))
        if not 0 < self.slow < self.fast < float("inf"):
            raise ValueError(
                f"ntk_by_parts wants 0 < slow < fast, in turns over the trained length, got slow={self.slow}, "
                f"fast={self.fast}"
            )
        if self.form == "early" and (self.fast, self.slow) != (32.0, 1.0):
            raise ValueError('form="early" has fixed bounds of its own; fast and slow are of form="paper"')

    def __call__(self, plain: Spectrum) -> Spectrum:
        if self.factor == 1:
            return plain
        if self.form == "paper":
            shares = over_turns(plain, self.trained, self.fast, self.slow)
            return replace(
                plain,
                frequencies=tuple(
                    (1 - y) * w / self.factor + y * w for y, w in zip(shares, plain.frequencies, strict=True)
                ),
            )
        first = over_pairs(plain, self.trained, 1.25, 0.75, truncate=True, most=plain.size - 1)
        second = over_pairs(plain, self.trained, 16, 2, truncate=True, most=plain.size - 1)
        stretched = NTK(self.factor)(plain).frequencies
        inner = [(1 - y) * w / self.factor + y * n for y, w, n in zip(first, plain.frequencies, stretched, strict=True)]
        return replace(
            plain,
            frequencies=tuple((1 - y) * m + y * w for y, m, w in zip(second, inner, plain.frequencies, strict=True)),
        )
