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

ORDERS = ("chunked", "interleaved", "tail", "balanced")
"""How the pairs of one spectrum are dealt out to several axes."""


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


def usual_sections(pairs: int, order: str) -> tuple[int, ...]:
    """Sections for frame, row, column where none are given: equal parts when all take turns, else a quarter (one more
    where rows and columns would differ) and the rest in halves.
    """
    frames = pairs // 4 if order in ("chunked", "tail") else -(-pairs // 3)
    frames += order == "tail" and (pairs - frames) % 2
    return frames, -(-(pairs - frames) // 2), (pairs - frames) // 2


def deal(sections: tuple[int, ...], order: str) -> tuple[int, ...]:
    """The axis of each rotary pair, fastest first, where ``sections`` says how many each axis has (M-RoPE)."""
    if order == "chunked":
        return tuple(axis for axis, count in enumerate(sections) for _ in range(count))
    axes = len(sections)
    if order == "tail":
        if len(set(sections[1:])) > 1:
            raise ValueError(
                f"the axes after the first take turns in order 'tail' and need equal sections, got {sections}"
            )
        return tuple(range(1, axes)) * sections[1] + (0,) * sections[0]
    if order == "balanced":
        return _balanced(sections)
    pairs = tuple(i % axes if i < axes * sections[i % axes] else 0 for i in range(sum(sections)))
    counts = tuple(pairs.count(axis) for axis in range(axes))
    if counts != sections:
        raise ValueError(
            f"interleaved sections {sections} can't be dealt in turn: {sum(sections)} pairs would be {counts}; "
            "axis 0 must have no fewer than the others"
        )
    return pairs


def _balanced(sections: tuple[int, ...]) -> tuple[int, ...]:
    """Each pair to the axis that has the smallest share of its own so far, but not twice in a row while others have
    some left; of three axes, the first keeps one of its pairs for the end.
    """
    ends = len(sections) == 3
    wanted = [count - (ends and axis == 0) for axis, count in enumerate(sections)]
    if min(wanted) < 0:
        raise ValueError(f"axis 0 has the last pair in order 'balanced' and needs one at least, got {sections}")
    dealt: list[int] = []
    while len(dealt) < sum(wanted):
        left = [axis for axis, count in enumerate(wanted) if dealt.count(axis) < count]
        others = [axis for axis in left if axis != (dealt[-1] if dealt else None)]
        dealt.append(min(others or left, key=lambda axis: dealt.count(axis) / wanted[axis]))
    return (*dealt, 0) if ends else tuple(dealt)
