"""Spectrum: the frequencies of rotary pairs.

    angle of pair i at position p = p * w_i,        geometric spectrum: w_i = base^(-2i/size)

Frequencies are Python numbers. A spectrum is a plain value, never a buffer: no cast or lazy load can touch it, and a
config can be read without torch. Its tables of cosines and sines are made in `angles`; a scaling (milepost/scaling/)
maps a spectrum to a spectrum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Spectrum:
    """Frequencies in radians a token, fastest pair first, with what they were made from.

    ``size`` is the number of channels in the exponent. ``temperature`` multiplies logits (where only some channels
    turn: their part of the logits, as published code has it, with its factor on cos and sin); rotations stay pure.
    """

    frequencies: tuple[float, ...]
    base: float
    size: int
    temperature: float = 1.0

    def tensor(self) -> Tensor:
        """The frequencies as float64 on the CPU, also inside ``with torch.device("meta")``."""
        import torch

        return torch.tensor(self.frequencies, dtype=torch.float64, device="cpu")

    @property
    def wavelengths(self) -> tuple[float, ...]:
        """Tokens in one full turn of each pair (infinite where a pair stands still)."""
        return tuple(2 * math.pi / w if w else float("inf") for w in self.frequencies)


def geometric(size: int, base: float = 10000.0, pairs: int | None = None) -> Spectrum:
    """``base^(-2i/size)`` for ``size/2`` pairs; with ``pairs``, the first so many, and zero (no rotation) for the
    rest.
    """
    if size < 2 or size % 2:
        raise ValueError(f"a rotation turns pairs of channels: the rotary size must be even and at least 2, got {size}")
    if not 1 < base <= 1e300:
        raise ValueError(f"base must be a finite number above 1 (at most 1e300), got {base}")
    live = size // 2 if pairs is None else pairs
    return Spectrum(
        tuple(float(base) ** (-2 * i / size) if i < live else 0.0 for i in range(size // 2)), float(base), size
    )


def retuned(plain: Spectrum, base: float) -> Spectrum:
    """The spectrum of another base, with as many pairs that turn, and the same temperature."""
    live = sum(1 for w in plain.frequencies if w)
    return replace(geometric(plain.size, base, pairs=live), temperature=plain.temperature)
