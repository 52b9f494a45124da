"""Sinusoidal: absolute position as a bank of clocks.

    code(p)[2i] = sin(p w_i),   code(p)[2i+1] = cos(p w_i),       w_i = base^(-2i/C),   base = 10000

Vaswani et al., "Attention Is All You Need", 2017, section 3.5. arXiv:1706.03762

Departure: the paper interleaves sin and cos; its released code, and most since, puts all sines before all cosines.
order="interleaved" is the paper (default), order="halves" the code: the same channels in another order.
how="concat" appends the code to the embedding instead of adding it (C grows by `width`).

Mechanism: adds (or appends) sines and cosines to the embedding
Information: absolute; the offset between two codes is a fixed rotation
Prior: smooth, code·code falls with distance
Content: added to it, then mixed by the projections
Storage: none
Used by: the original Transformer, Pegasus, Speech encoders
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from milepost.angles import cos_sin
from milepost.encoding import Encoding
from milepost.spectrum import geometric


class Sinusoidal(Encoding):
    """A code of ``width`` channels for each position, added to the embedding or appended to it."""

    shift_invariant = False

    def __init__(
        self,
        width: int,
        base: float = 10000.0,
        order: Literal["interleaved", "halves"] = "interleaved",
        how: Literal["add", "concat"] = "add",
    ):
        super().__init__()
        self.check_choice("order", order, ("interleaved", "halves"))
        self.check_choice("how", how, ("add", "concat"))
        self.width, self.base, self.order, self.how = width, base, order, how
        self.spectrum = geometric(width, base)
        self.frequencies = self.spectrum.tensor()

    @property
    def added_width(self) -> int:
        return (self.width or 0) if self.how == "concat" else 0

    def code(self, pos: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """The codes of positions: shape ``(*pos.shape, width)``."""
        cos, sin = cos_sin(pos, self.frequencies, dtype)
        both = (
            torch.stack([sin, cos], dim=-1).flatten(-2)
            if self.order == "interleaved"
            else torch.cat([sin, cos], dim=-1)
        )
        return both.to(dtype)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        code = self.code(pos, torch.promote_types(x.dtype, torch.float32))
        if self.how == "add":
            return (x + code).to(x.dtype)
        return torch.cat([x, code.to(x.dtype).expand(*x.shape[:-1], -1)], dim=-1)
