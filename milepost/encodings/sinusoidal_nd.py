"""Sinusoidal codes of several axes: a part of the channels for each.

    code(p) = [ code(p_0), code(p_1), ... ],     each over size = C/axes channels, w_i = base^(-2i/size)
    code(p_a)[2i] = sin(p_a w_i),   code(p_a)[2i+1] = cos(p_a w_i)

He et al., "Masked Autoencoders Are Scalable Vision Learners", 2022, arXiv:2111.06377; DETR, arXiv:2005.12872

Departure: axis 0, the rows, has the first channels, as in DETR; MAE's code and what follows it put columns first: give
pos.flip(0). order="halves" puts the sines of an axis before its cosines (MAE, ViT codes), "interleaved" is the paper of
2017 (DETR), as in `sinusoidal`, which this is with one axis. A class token has no code in MAE: embed the patches alone.
DETR's coordinates are normalised: see milepost.positions.

Mechanism: adds sines and cosines to the embedding, a part of its channels for each axis
Information: absolute; the offset between two codes is a fixed rotation on every axis
Prior: smooth; code·code falls along the axes, in the shape of a cross
Content: added to it, then mixed by the projections
Storage: none
Used by: MAE, DETR, MoCo v3, DiT
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from milepost.angles import cos_sin
from milepost.encoding import Encoding
from milepost.spectrum import geometric


class SinusoidalND(Encoding):
    """A code of ``width`` channels for each place, ``width / axes`` of them for each axis."""

    shift_invariant = False

    def __init__(
        self, width: int, axes: int = 2, base: float = 10000.0, order: Literal["interleaved", "halves"] = "interleaved"
    ):
        super().__init__()
        if axes < 1 or width < 2 * axes or width % (2 * axes):
            raise ValueError(
                "every axis needs as many channels, in pairs: width must be a multiple of 2 x axes, got "
                f"width={width}, axes={axes}"
            )
        self.check_choice("order", order, ("interleaved", "halves"))
        self.width, self.axes, self.base, self.order = width, axes, base, order
        self.frequencies = geometric(width // axes, base).tensor()

    def code(self, pos: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """The codes of places (axes B L): shape (B, L, width)."""
        parts = []
        for axis in pos if self.axes > 1 else [pos]:
            cos, sin = cos_sin(axis, self.frequencies, dtype)
            parts.append(
                torch.stack([sin, cos], dim=-1).flatten(-2)
                if self.order == "interleaved"
                else torch.cat([sin, cos], dim=-1)
            )
        return torch.cat(parts, dim=-1).to(dtype)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return (x + self.code(pos, torch.promote_types(x.dtype, torch.float32))).to(x.dtype)
