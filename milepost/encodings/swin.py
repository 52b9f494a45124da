"""Swin: a learned bias for each offset inside a window.

    logits[h, i, j] += table[i - j, h],         |i_a - j_a| < side_a on every axis a

Liu et al., "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows", 2021, section 3.2, equation 4.
arXiv:2103.14030

Departure: none; the rows of the table are those of the released checkpoints: offsets (i - j) + side - 1 on each axis,
the first axis slowest. Places are counted inside the window, from 0: what is outside of it is an error, not the row of
another offset. Windows of one image are texts of a layout, told apart by `segment`, or rows of a batch. The offset is
signed: the table is not symmetric.

Mechanism: adds a learned number to the logit
Information: relative on every axis, inside a window
Prior: none; each offset is learned by itself
Content: added to its logit
Storage: product of (2 side - 1) x heads parameters
Used by: Swin, BEiT, MaxViT, Video Swin (three axes)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from milepost.encoding import Encoding

MOST = 1 << 20
"""Offsets."""


class Swin(Encoding):
    """A table of one number for each offset in a window of ``sides`` and each of ``heads`` heads."""

    negative = False
    fractional = False

    def __init__(self, heads: int, sides: tuple[int, ...] = (7, 7)):
        super().__init__()
        self.check_at_least(1, heads=heads)
        if (
            not isinstance(sides, tuple | list)
            or len(sides) < 2
            or any(type(n) is not int or n < 1 for n in sides)
            or 4 * math.prod(sides) > MOST
        ):
            raise ValueError(
                f"sides must be two whole numbers or more, such as (7, 7) for rows and columns, with at most {MOST} "
                f"offsets; got {sides!r}"
            )
        self.heads, self.sides, self.axes = heads, tuple(sides), len(sides)
        self.table = nn.Parameter(torch.randn(math.prod(2 * side - 1 for side in sides), heads) * 0.02)

    def row(self, i: Tensor, j: Tensor) -> Tensor:
        """The row of the table for the offset ``i - j``, axes first."""
        assert self.sides is not None
        row = torch.zeros_like(i[0] - j[0])
        for side, a, b in zip(self.sides, i, j, strict=True):
            row = row * (2 * side - 1) + (a - b + side - 1)
        return row

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.table[self.row(i, j), h]
