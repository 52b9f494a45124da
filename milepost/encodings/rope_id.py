"""RoPE-ID: fast rotations on some of the channels, and none on the others.

    the first `rotary` channels:  pair i turns by p w_i,    w_i = (2 pi turns / length)^(i / (n - 1)),   i = 0 .. n - 1
    the other channels:           as they are

Wertheimer et al., "Frayed RoPE and Long Inputs: A Geometric Perspective", ICLR 2026. arXiv:2603.18017

A slow pair of RoPE makes a part of a circle in training, and in a longer text goes on to angles that no weight has
seen. Here the slowest pair makes `turns` full circles within the trained `length`, so that a longer text meets no new
angle. What is far away is told apart by the channels that do not turn.

Departure: of the paper only the abstract was read, which says what is turned and not the numbers. That half of the
channels turn, that frequencies are spaced evenly in their logarithm, and that one circle is enough are our choices.

Mechanism: turns pairs of some channels of q and k by an angle that grows with position, every pair fast
Information: relative, from two absolute rotations; within one circle of the slowest pair without a doubt
Prior: similarity falls with distance in the channels that turn; none in the others
Content: multiplies it, channel pair by channel pair
Storage: none
Used by: research models
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from milepost.angles import cos_sin
from milepost.encoding import Encoding
from milepost.rotation import PAIRINGS, Pairing, rotary_size, rotate


class RoPEID(Encoding):
    """Rotations of the first ``rotary`` of ``head_dim`` channels (half of them, by default), the slowest of which makes
    ``turns`` circles within ``length`` tokens.
    """

    rotation = True

    def __init__(
        self, head_dim: int, length: int, rotary: int | None = None, turns: float = 1.0, pairing: Pairing = "half"
    ):
        super().__init__()
        size = rotary_size(head_dim, max(2, head_dim // 4 * 2) if rotary is None else rotary)
        self.check_at_least(1, length=length)
        self.check_choice("pairing", pairing, PAIRINGS)
        slowest = 2 * math.pi * turns / length
        if not 0 < slowest <= 1:
            raise ValueError(
                f"the slowest pair would turn by {slowest:.6g} a token, and the fastest turns by 1: 2 pi turns / "
                f"length must be above 0 and at most 1, got turns={turns}, length={length}"
            )
        self.head_dim, self.length, self.rotary, self.turns, self.pairing = head_dim, length, rotary, turns, pairing
        self.size = size
        self.inv_freq = slowest ** torch.linspace(0, 1, size // 2, dtype=torch.float64, device="cpu")

    def turn(self, x: Tensor, pos: Tensor) -> Tensor:
        """Pure rotation of ``x`` (B H L D) by ``pos`` (L or B L)."""
        cos, sin = cos_sin(pos, self.inv_freq, x.dtype)
        return rotate(x, cos.unsqueeze(-3), sin.unsqueeze(-3), self.size, self.pairing)

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        return self.turn(q, pos)

    def key(self, k: Tensor, pos: Tensor) -> Tensor:
        return self.turn(k, pos)

    def rekey(self, k: Tensor, pos: Tensor, was: Encoding, was_pos: Tensor) -> Tensor:
        """One more turn, by the difference of the positions."""
        return self.turn(k, pos - was_pos) if repr(was) == repr(self) else super().rekey(k, pos, was, was_pos)
