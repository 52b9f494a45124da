"""What a table of positions looks like, before and after.

How alike the place in its middle is to every other, and neighbours to each other.

    alike(p) = cos(e_m, e_p)                        m the middle place, e the table's rows after its prefix
    neighbours = mean of cos(e_p, e_q)              p, q one step apart along an axis

Stretched for a larger grid, a table keeps its picture, and neighbours come nearer to each other than the model has
seen. Work is in float64; a row of zeros has no direction, so its cosine is None and no part of the mean.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SHOWN = 48
"""Places along an axis that are kept, evenly spread, the first and the last among them."""


def alike(table: Tensor, sides: tuple[int, ...], prefix: int) -> dict[str, Any]:
    """``table`` (rows C, or 1 rows C) of ``sides`` after ``prefix`` rows.

    ``middle``, ``places`` along each axis, their ``cosine``, and ``neighbours``.

    ``cosine`` has a row for each row of a grid, and one row for a text.
    """
    rows = table.detach().reshape(-1, table.shape[-1])[prefix:].to(torch.float64)
    units = (rows / rows.norm(dim=-1, keepdim=True)).reshape(*sides, -1)
    middle = tuple(side // 2 for side in sides)
    places = [_spread(side) for side in sides]
    cosine = units @ units[middle]
    for axis, chosen in enumerate(places):
        cosine = cosine.index_select(axis, torch.tensor(chosen))
    steps = torch.cat(
        [
            (units.narrow(n, 1, side - 1) * units.narrow(n, 0, side - 1)).sum(-1).flatten()
            for n, side in enumerate(sides)
        ]
    )
    known = steps[steps.isfinite()]
    return {
        "middle": list(middle),
        "places": places,
        "cosine": [
            [value if abs(value) <= 2 else None for value in row]
            for row in cosine.reshape(-1, len(places[-1])).tolist()
        ],
        "neighbours": known.mean().item() if known.numel() else None,
    }


def _spread(side: int) -> list[int]:
    """At most SHOWN of the places 0 to side - 1."""
    return sorted({round(n * (side - 1) / max(1, min(side, SHOWN) - 1)) for n in range(min(side, SHOWN))})
