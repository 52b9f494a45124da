"""Space: positions of several axes, as data: shape (axes, batch, tokens), in the order in which a model reads its tokens.

    positions.grid(14, 14)        0 .. 13 on each axis, row by row                          ViT, Qwen-VL, Pixtral, rope-vit
    centred(14, 14)               the same, from -6.5 to 6.5: zero in the middle
    normalised(14, 14)            -1 + 1/14 .. 1 - 1/14: the middles of patches on an image that goes from -1 to 1
    normalised(14, 14, reach=tau) the same times 2 pi                                        DINOv3
    prefixed(pos, 1)              class or register tokens before the patches
    multimodal(5, (4, 6), 3)      text, an image of 4 rows and 6 columns, text               Qwen2-VL

The first axis is always the rows (frames, for a video): a model that wants columns first (rope-vit, Llama 4, MAE's codes) takes pos.flip(0).
Give them to a layout: ``Layout.dense(196).told(grid(14, 14))``.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from milepost.positions import check_dtype, grid

AXES = 3
"""Of text with images: frame, row, column."""


def centred(*sides: int) -> Tensor:
    """Places on a grid with zero in its middle: float64, shape (axes, 1, tokens)."""
    middle = torch.tensor([(side - 1) / 2 for side in sides], dtype=torch.float64)
    return grid(*sides).double() - middle[:, None, None]


def normalised(*sides: int, reach: float = 1.0) -> Tensor:
    """The middles of patches on an image whose every axis goes from -reach to reach, whatever its size: float64, shape (axes, 1, tokens)."""
    if not 0 < reach < float("inf"):
        raise ValueError(f"reach must be above 0 and finite, got {reach}")
    half = torch.tensor([side / 2 for side in sides], dtype=torch.float64)
    return centred(*sides) / half[:, None, None] * reach


def prefixed(pos: Tensor, count: int, place: Literal["above", "zero"] = "above") -> Tensor:
    """``pos`` (axes, B, L) with ``count`` tokens before it, such as a class token and registers: (axes, B, count + L).

    place="above" puts token n at (-1, n, 0, ...), a row above the image, where `grid` tables keep its own row. place="zero" puts all of
    them at zero, where a rotation leaves a vector as it is: rope-vit, DINOv3 and Llama 4 do not turn them.
    """
    check_dtype(pos)
    if pos.dim() != 3 or pos.shape[0] < 2:
        raise ValueError(f"tokens are put before positions of shape (axes, B, L) with two axes or more, got {tuple(pos.shape)}")
    if count < 0 or place not in ("above", "zero"):
        raise ValueError(f'count must be at least 0 and place "above" or "zero", got count={count}, place={place!r}')
    before = pos.new_zeros(pos.shape[0], pos.shape[1], count)
    if place == "above":
        before[0], before[1] = -1, torch.arange(count, device=pos.device)
    return torch.cat([before, pos], dim=-1)


def multimodal(*parts: int | tuple[int, ...], start: int = 0) -> Tensor:
    """Positions of text, images and videos in a row, as M-RoPE wants them: int64, shape (3, 1, tokens), axes frame, row, column.

    A number is so many tokens of text, which count on all three axes alike. (rows, columns) is an image and (frames, rows, columns) a video, after
    merging of patches: its places are counted from where it begins. What follows begins one after the largest number so far: an image
    advances by max(rows, columns), not by its rows * columns tokens. Generation goes on at ``int(pos.max()) + 1``.
    """
    found, here = [], start
    for part in parts:
        sides = (part,) if isinstance(part, int) and not isinstance(part, bool) else part
        if not isinstance(sides, tuple | list) or len(sides) not in (1, 2, 3) or any(type(n) is not int or n < 1 for n in sides):
            raise ValueError(f"a part is a number of text tokens, (rows, columns) or (frames, rows, columns), each at least 1; got {part!r}")
        places = grid(*sides).expand(AXES, -1, -1) if len(sides) == 1 else grid(*((1,) * (AXES - len(sides)) + tuple(sides)))
        found.append(here + places)
        here += max(sides)
    if not found:
        raise ValueError("there is nothing to place: give at least one part, such as multimodal(5, (4, 6), 3)")
    return torch.cat(found, dim=-1)
