"""Spectrum: the frequencies of rotary pairs, and the tables made from them.

    angle of pair i at position p = p * w_i,        geometric spectrum: w_i = base^(-2i/size)

Frequencies are Python numbers and angles float64; the cast to the model's precision comes last. In float32 the angle
itself is off by 4e-2 at position 1048575. A spectrum is a plain value, never a buffer: no cast or lazy load can touch it.
A scaling (milepost/scaling/) maps a spectrum to a spectrum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from milepost.positions import memo


@dataclass(frozen=True)
class Spectrum:
    """Frequencies in radians a token, fastest pair first, with what they were made from.

    ``size`` is the number of channels in the exponent. ``temperature`` multiplies logits (where only some channels turn: their
    part of the logits, as published code has it, with its factor on cos and sin); rotations stay pure.
    """

    frequencies: tuple[float, ...]
    base: float
    size: int
    temperature: float = 1.0

    def tensor(self) -> Tensor:
        """The frequencies as float64 on the CPU, also inside ``with torch.device("meta")``."""
        return torch.tensor(self.frequencies, dtype=torch.float64, device="cpu")

    @property
    def wavelengths(self) -> tuple[float, ...]:
        """Tokens in one full turn of each pair (infinite where a pair stands still)."""
        return tuple(2 * torch.pi / w if w else float("inf") for w in self.frequencies)


def geometric(size: int, base: float = 10000.0, pairs: int | None = None) -> Spectrum:
    """``base^(-2i/size)`` for ``size/2`` pairs; with ``pairs``, the first so many, and zero (no rotation) for the rest."""
    if size < 2 or size % 2:
        raise ValueError(f"a rotation turns pairs of channels: the rotary size must be even and at least 2, got {size}")
    if not 1 < base <= 1e300:
        raise ValueError(f"base must be a finite number above 1 (at most 1e300), got {base}")
    live = size // 2 if pairs is None else pairs
    return Spectrum(tuple(float(base) ** (-2 * i / size) if i < live else 0.0 for i in range(size // 2)), float(base), size)


def retuned(plain: Spectrum, base: float) -> Spectrum:
    """The spectrum of another base, with as many pairs that turn, and the same temperature."""
    live = sum(1 for w in plain.frequencies if w)
    return replace(geometric(plain.size, base, pairs=live), temperature=plain.temperature)


def cos_sin(pos: Tensor, frequencies: Tensor, dtype: torch.dtype, key: object = None) -> tuple[Tensor, Tensor]:
    """cos and sin of ``pos * w``: shape ``(*pos.shape, pairs)``, float64 for float64 work, else float32.

    With a ``key`` that names the frequencies, the table is remembered on ``pos``: q, k and all layers share one.
    """
    double = dtype == torch.float64
    if torch.compiler.is_compiling() and not pos.requires_grad:
        cos, sin = torch.ops.milepost.cos_sin(pos, frequencies.to(pos.device), double)
        return cos, sin
    if key is None:
        return _table(pos, frequencies, double)
    return memo(pos, (key, double), lambda: _table(pos, frequencies, double))


def _table(pos: Tensor, frequencies: Tensor, double: bool) -> tuple[Tensor, Tensor]:
    angle = pos.double()[..., None] * frequencies.to(pos.device)
    cos, sin = angle.cos(), angle.sin()
    return (cos, sin) if double else (cos.float(), sin.float())


@torch.library.custom_op("milepost::cos_sin", mutates_args=())
def _opaque_table(pos: Tensor, frequencies: Tensor, double: bool) -> tuple[Tensor, Tensor]:
    """The table as one opaque step of a compiled graph: fused into the rotation it would be computed once a head."""
    return _table(pos, frequencies, double)


@_opaque_table.register_fake
def _(pos: Tensor, frequencies: Tensor, double: bool) -> tuple[Tensor, Tensor]:
    shape = (*pos.shape, frequencies.shape[-1])
    like = torch.empty(shape, dtype=torch.float64 if double else torch.float32, device=pos.device)
    return like, torch.empty_like(like)
