"""Longer tables: more rows than were trained, made of those that were.

    tile            row i is row i mod N of the old N                 the first N rows stay; row N looks like row 0
    interpolate     row i is at i (N - 1) / (M - 1) of the old        the first and the last row stay; neighbours come
                    closer
    stretch         the first K = N / 4 rows stay, the others are interpolated over what is left

stretch is Long-CLIP's: Zhang et al., "Long-CLIP: Unlocking the Long-Text Capability of CLIP", 2024, section 3.2.
arXiv:2403.15378

Departure: it keeps 20 of CLIP's 77 rows, which it found to be the well-trained ones; we keep a quarter. Rows that stay
are copied bit by bit, never computed again. Rows before the first position (OPT has 2) stay as well.
"""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.rope import ConfigError

METHODS = ("tile", "interpolate", "stretch")


def longer(table: Tensor, length: int, method: str, *, offset: int = 0) -> Tensor:
    """``table`` (offset + N, C) with ``length`` rows for positions, M > N: (offset + M, C)."""
    if method not in METHODS:
        raise ConfigError(f"a table is made longer by {', '.join(METHODS)}; got {method!r}")
    rows = len(table) - offset
    if rows < 2 or length <= rows:
        raise ConfigError(
            f"a longer table has more rows than the old one, which needs at least 2; got {length} for {rows} rows"
        )
    old = table[offset:]
    if method == "tile":
        made = old[torch.arange(length, device=table.device) % rows]
    else:
        stay = rows_kept(rows, method) if method == "stretch" else 0
        made = torch.cat([old[:stay], _between(old[stay:], length - stay)])
    return torch.cat([table[:offset], made])


def rows_kept(rows: int, method: str) -> int:
    """How many of the first ``rows`` are bit by bit what they were."""
    return {"tile": rows, "interpolate": 1, "stretch": max(1, rows // 4)}[method]


def _between(rows: Tensor, count: int) -> Tensor:
    """``count`` rows at even distances along ``rows``, the first and the last of which stay."""
    at = torch.arange(count, device=rows.device, dtype=torch.float64) * (len(rows) - 1) / (count - 1)
    low = at.floor().long().clamp_max(len(rows) - 1)
    high = (low + 1).clamp_max(len(rows) - 1)
    share = (at - low)[:, None]
    mixed = (rows[low].double() * (1 - share) + rows[high].double() * share).to(rows.dtype)
    return torch.where(share == 0, rows[low], mixed)
