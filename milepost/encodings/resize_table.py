"""Resize: the learned table of one grid, resampled for another.

    table (prefix + h w, C)  ->  prefix rows as they are, then the h x w image of C channels resampled to h' x w', row
                                 by row

Grids are always said, never guessed from the number of rows: 16 rows may be 4 x 4 or 2 x 8, and 196 may be 14 x 14 or a
class token and 195. The target is a size, never a factor (37 -> 39 as a factor gives 38 rows: rounding down). Work is
in float32 or better, the result in the table's dtype. The same grid gives the same bits.

Resampling is torch's, pixel middles aligned (align_corners=False), bicubic without antialiasing: what transformers does
for ViT, DeiT and DINOv2. timm, and DINOv2 with registers, have antialias=True, which is another kernel (a = -0.5, not
-0.75) even where the grid grows. One axis, source=(512,), is resampled linearly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F


def resize_table(
    table: Tensor,
    *,
    source: Sequence[int],
    target: Sequence[int],
    prefix: int = 0,
    mode: Literal["bicubic", "bilinear"] = "bicubic",
    antialias: bool = False,
) -> Tensor:
    """``table`` (rows C, or 1 rows C) of the grid ``source`` (rows, columns), after ``prefix`` rows of its own, for the
    grid ``target``.

    ``source=(n,)`` is a table of one axis, whose rows are resampled linearly.
    """
    for word, sides in (("source", source), ("target", target)):
        if isinstance(sides, int | str) or len(sides) not in (1, 2) or any(type(n) is not int or n < 1 for n in sides):
            raise ValueError(
                f"{word} must be (rows, columns), or (rows,) for a table of one axis, whole numbers of at least 1; "
                f"got {sides!r}"
            )
    if len(source) != len(target):
        raise ValueError(f"source and target must have as many axes, got {tuple(source)} and {tuple(target)}")
    if table.dim() not in (2, 3) or (table.dim() == 3 and table.shape[0] != 1) or not table.is_floating_point():
        raise ValueError(
            f"a table has floating numbers of shape (rows, C) or (1, rows, C), got {str(table.dtype)[6:]} of "
            f"{tuple(table.shape)}"
        )
    if mode not in ("bicubic", "bilinear"):
        raise ValueError(f'mode must be "bicubic" or "bilinear", got {mode!r}')
    rows, width = table.shape[-2:]
    if prefix < 0 or rows != prefix + math.prod(source):
        grid = " x ".join(map(str, source))
        raise ValueError(
            f"a grid of {grid} and a prefix of {prefix} make {prefix + math.prod(source)} rows, and the table has "
            f"{rows}: "
            "say the grid that it was trained on (source=), and how many rows stand before it (prefix=1 for a class "
            "token)"
        )
    if tuple(source) == tuple(target):
        return table.clone()
    flat = table.reshape(rows, width)
    image = flat[prefix:].T.reshape(1, width, *source).to(torch.promote_types(table.dtype, torch.float32))
    if len(source) == 1:
        done = F.interpolate(image, size=tuple(target), mode="linear", align_corners=False)
    else:
        done = F.interpolate(image, size=tuple(target), mode=mode, align_corners=False, antialias=antialias)
    new = torch.cat([flat[:prefix], done.reshape(width, -1).T.to(table.dtype)])
    return new.reshape(*table.shape[:-2], -1, width)
