"""Search: the number at which a loss is lowest, in few steps.

bracket    from the first numbers outwards, by factors of 2, until both neighbours of the best one are worse, or until
           a limit is reached
refine     golden section between these neighbours, on a logarithmic scale, while they can be told from the best one
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

STEP, REFINEMENTS, CLOSE = 2.0, 3, 1.15
"""How far the bracket goes at a time, the most refinements, and the ratio of neighbours that is close enough."""
GOLDEN = (3 - math.sqrt(5)) / 2


def search(
    loss: Callable[[float], float],
    starts: Iterable[float],
    low: float,
    high: float,
    *,
    tidy: Callable[[float], float] = float,
    as_good: Callable[[float, float], bool] = lambda best, other: False,
) -> float:
    """The number from ``low`` to ``high`` with the lowest loss, among those that were tried; each is tried once.

    ``tidy`` rounds a number that is to be tried. ``as_good(best, other)`` says that the two can't be told apart.
    """
    losses = {start: loss(start) for start in starts}
    while True:
        best, tried = min(losses, key=lambda number: losses[number]), sorted(losses)
        if best == tried[-1] and best < high:
            further = min(high, tidy(best * STEP))
        elif best == tried[0] and best > low:
            further = max(low, tidy(best / STEP))
        else:
            break
        losses[further] = loss(further)
    for _ in range(REFINEMENTS):
        best, tried = min(losses, key=lambda number: losses[number]), sorted(losses)
        place = tried.index(best)
        neighbours = tried[max(0, place - 1) : place] + tried[place + 1 : place + 2]
        between = [
            tidy(best * (other / best) ** GOLDEN) for other in sorted(neighbours, key=lambda n: -_ratio(n, best))
        ]
        new = [number for number in between if number not in losses and low <= number <= high]
        near = all(_ratio(other, best) < CLOSE or as_good(best, other) for other in neighbours)
        if near or not new or math.isinf(losses[best]):
            break
        losses[new[0]] = loss(new[0])
    return min(losses, key=lambda number: losses[number])


def _ratio(a: float, b: float) -> float:
    return max(a / b, b / a)
