"""Shifted: the same passage read at other positions, with nothing before it.

    difference(first) = loss at positions first, first + 1, ...  -  loss of the same tokens at positions 0, 1, ...

The tokens and their context are the same, so that nothing differs but the positions themselves. A scheme of distances
alone gives 0 up to rounding. A loss that rises with the length and not here comes from how much is read, or from how
far back; one that rises here too comes from the numbers of the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from milepost.measure.intervals import Mean, Numbers, difference, mean
from milepost.measure.losses import in_batches

Placed = Callable[[Tensor, int], Tensor]
"""Tokens (B L + 1) and the position of the first of them, to the loss of each next token (B L)."""
MOST_FAR = 4
"""Positions beyond the trained length that are tried, at most."""


@dataclass(frozen=True)
class Shift:
    """The passage at ``first``.

    Its loss, the paired difference to position 0, and the largest difference of any token.
    """

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

    def score_at(first: int) -> Numbers:
        return in_batches(lambda ids: losses(ids, first), windows, device)

    home = score_at(0)
    shifts = []
    for first in firsts:
        there = home if first == 0 else score_at(first)
        largest = float(np.abs(there - home).max())
        shifts.append(Shift(first, mean(there, groups), difference(home, there, groups), largest))
    return shifts


def choose_firsts(length: int, longest: int, trained: int | None) -> list[int]:
    """Where to put a passage of ``length`` tokens, as far as ``longest`` tokens reach.

    At 0 and 1, and around the trained length and its multiples.
    """
    wanted = {0, 1, longest - length}
    if trained is not None:
        wanted |= {trained // 2, trained - length, *range(trained, longest, trained)}
    firsts = sorted(first for first in wanted if 0 <= first <= longest - length)
    far = [first for first in firsts if trained is not None and first > trained]
    few = far if len(far) <= MOST_FAR else [far[round(n * (len(far) - 1) / (MOST_FAR - 1))] for n in range(MOST_FAR)]
    return [first for first in firsts if first not in far or first in few]
