"""Larger base: slower rotations for every pair but the first, usually with more training ("adjusted base frequency").

    w_i = base'^(-2i/d)
    base' for a length N = base^(ln(N / 2π) / ln(trained / 2π))

Xiong et al., "Effective Long-Context Scaling of Foundation Models", 2023, section 4.1. arXiv:2309.16039
The base for a length: Liu et al., "Scaling Laws of RoPE-based Extrapolation", 2023, section 3. arXiv:2310.05209

With that base, the pair that made exactly one turn over the trained length makes exactly one over N: pairs that have
seen every angle still have, and those that have not are as many as before. A model wants to be trained a little at the
new base.

Departure: none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from milepost.scaling.scaling import Scaling
from milepost.spectrum import Spectrum, geometric, retuned


@dataclass(frozen=True, repr=False)
class LargerBase(Scaling):
    """The spectrum of ``base``, whatever the model's own base was."""

    base: float

    def __post_init__(self) -> None:
        geometric(2, self.base)  # the same condition, the same sentence

    def __call__(self, plain: Spectrum) -> Spectrum:
        return retuned(plain, self.base)

    @staticmethod
    def needed(length: int, *, trained: int, base: float = 10000.0) -> float:
        """The base at which ``length`` tokens turn as many pairs full circle as ``trained`` tokens do at ``base``."""
        if not 2 * math.pi < trained <= length < float("inf"):
            raise ValueError(
                f"the base for a length wants 7 <= trained <= length, got trained={trained}, length={length}"
            )
        return float(base ** (math.log(length / (2 * math.pi)) / math.log(trained / (2 * math.pi))))
