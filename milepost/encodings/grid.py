"""Grid: learned tables for the places of a grid.

    how="cells":   x_p -> x_p + table[p],                   a row for each cell, row by row
    how="sum":     x_p -> x_p + sum over axes a of table_a[p_a]

Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021, section 3.1, arXiv:2010.11929

Departure: the sides are said, never guessed: 36 rows may be 6 x 6, 4 x 9 or 35 and a class token. The table is laid out
as in checkpoints: `prefix` rows for class and distillation tokens, then the cells (how="sum": the rows' table, then the
columns'). Token n of the prefix stands at place (-1, n): see milepost.positions.prefixed. After those with a row may
come `bare` ones, registers that get nothing. Another grid needs a resized table (milepost.resize_table): a place that
is not on the grid is an error.

Mechanism: adds a row of a table to the embedding, or one for each axis
Information: absolute
Prior: none; each cell (or row and column) is learned by itself
Content: added to it, then mixed by the projections
Storage: (prefix + cells) x width parameters
Used by: ViT, DeiT, DINOv2, CLIP, SigLIP
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.encoding import Encoding
from milepost.layout import Layout

MOST = 1 << 20
"""Cells."""


class Grid(Encoding):
    """Tables for ``sides`` (rows, columns, or more axes), with ``prefix`` tokens that have rows of their own and
    ``bare`` ones that have none.
    """

    shift_invariant = False
    negative = False
    fractional = False

    def __init__(
        self,
        width: int,
        sides: tuple[int, ...] = (14, 14),
        prefix: int = 0,
        bare: int = 0,
        how: Literal["cells", "sum"] = "cells",
    ):
        super().__init__()
        if (
            not isinstance(sides, tuple | list)
            or len(sides) < 2
            or any(type(n) is not int or n < 1 for n in sides)
            or math.prod(sides) > MOST
        ):
            raise ValueError(
                f"sides must be two whole numbers or more, such as (14, 14) for rows and columns, with at most {MOST} "
                f"cells; got {sides!r}"
            )
        if width < 1 or not 0 <= prefix <= MOST or not 0 <= bare <= MOST:
            raise ValueError(
                f"width must be at least 1, prefix and bare from 0 to {MOST}, got width={width}, prefix={prefix}, "
                f"bare={bare}"
            )
        self.check_choice("how", how, ("cells", "sum"))
        self.width, self.sides, self.prefix, self.bare, self.how = width, tuple(sides), prefix, bare, how
        self.axes = len(sides)
        self.table = nn.Parameter(
            torch.randn(prefix + (math.prod(sides) if how == "cells" else sum(sides)), width) * 0.02
        )

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        assert self.sides is not None
        before = pos[0] < 0
        if self.how == "cells":
            cell = torch.zeros_like(pos[0])
            for side, p in zip(self.sides, pos, strict=True):
                cell = cell * side + p
            places = [cell]
        else:
            places = [p + sum(self.sides[:a]) for a, p in enumerate(pos)]
        mine = [F.embedding(torch.where(before, 0, self.prefix + p), self.table) for p in places]
        code = sum(mine[1:], mine[0])
        if self.prefix:
            code = torch.where(
                before[..., None],
                F.embedding(torch.where(before, pos[1].clamp(max=self.prefix - 1), 0), self.table),
                code,
            )
        if self.bare or not self.prefix:
            code = code.masked_fill((before & (pos[1] >= self.prefix))[..., None], 0.0)
        return x + code.to(x.dtype)

    def check(self, where: Layout | Tensor) -> None:
        """Places must be on the grid, or at (-1, n) with n below prefix + bare."""
        pos = where.pos if isinstance(where, Layout) else where
        if pos.dim() != 3 or pos.is_floating_point() or not bool((before := pos[0] == -1).any()):
            super().check(pos)
            return
        numbers = pos[1][before]
        if int(numbers.min()) < 0 or int(numbers.max()) >= self.prefix + self.bare:
            raise ValueError(
                f"{self!r} has {self.prefix + self.bare} tokens before the grid, at places (-1, 0) and on; got (-1, "
                f"{int(numbers.max())}): "
                "give prefix= (tokens with a row of their own) or bare= (registers, which have none)"
            )
        super().check(pos[:, ~before][:, None])
