"""Shifted: the same passage read at other positions, with nothing before it.

    difference(first) = loss at positions first, first + 1, ...  -  loss of the same tokens at positions 0, 1, ...

The tokens and their context are the same, so that nothing differs but the positions themselves. A scheme of distances alone gives 0
up to rounding. A loss that rises with the length and not here comes from how much is read, or from how far back; one that rises here
too comes from the numbers of the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milepost.measure.intervals import Mean, difference, mean
from milepost.measure.losses import AT_ONCE

Placed = Callable[[Tensor, int], Tensor]
"""Tokens (B L + 1) and the position of the first of them, to the loss of each next token (B L)."""
Numbers = np.ndarray[Any, Any]
MOST = 4
"""Places beyond the trained length that are tried."""


@dataclass(frozen=True)
class Shift:
    """The passage at ``first``: its loss, the paired difference to position 0, and the largest difference of any token."""

    first: int
    loss: Mean
    difference: Mean
    largest: float


@torch.no_grad()
def shifted(
    losses: Placed, windows: Numbers, firsts: Sequence[int], groups: Numbers, device: torch.device | str = "cpu"
) -> list[Shift]:
    """The losses of windows (windows x length + 1) placed at each of ``firsts``, against the same at 0."""
    if any(first < 0 for first in firsts):
        raise ValueError(f"a passage begins at a position of at least 0, got {min(firsts)}")

    rows = max(1, AT_ONCE // windows.shape[1])

    def at(first: int) -> Numbers:
        some = [
            torch.from_numpy(np.ascontiguousarray(windows[n : n + rows])).to(device)
            for n in range(0, len(windows), rows)
        ]
        return np.concatenate([losses(ids, first).cpu().numpy().astype(np.float64) for ids in some])

    home = at(0)
    found = []
    for first in firsts:
        lost = home if first == 0 else at(first)
        found.append(Shift(first, mean(lost, groups), difference(home, lost, groups), float(np.abs(lost - home).max())))
    return found


def places(length: int, longest: int, trained: int | None) -> list[int]:
    """Where to put a passage of ``length`` tokens: 0, 1, around the trained length and its multiples, as far as ``longest`` tokens reach."""
    wanted = {0, 1, longest - length}
    if trained is not None:
        wanted |= {trained // 2, trained - length, *range(trained, longest, trained)}
    kept = sorted(first for first in wanted if 0 <= first <= longest - length)
    far = [first for first in kept if trained is not None and first > trained]
    few = set(far) if len(far) <= MOST else {far[round(n * (len(far) - 1) / (MOST - 1))] for n in range(MOST)}
    return [first for first in kept if first not in far or first in few]
