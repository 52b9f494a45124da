"""Onset: from which position on does a model fail? From its losses by position, and confirmed on the same tokens.

    baseline     the earlier buckets within the trained length, without the first, whose tokens have hardly any context
    failing      the paired difference, bucket - baseline of the same window, has its interval above 2% of the baseline;
                 and so has the next bucket, where there is one
    confirmed    the first tokens of that bucket lose more there than when they are read again with less before them, at the end of a
                 text that is no longer than what came before the first bucket that fails: so long a text the model holds

Later tokens may be harder by themselves, which the first two can't see; the third can, for it compares a token with itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from milepost.diagnose.intervals import Mean, mean
from milepost.diagnose.losses import begun

Numbers = np.ndarray[Any, Any]
Edges = Sequence[tuple[int, int]]
LEAST = 0.02
"""The smallest rise that counts, as a share of the baseline."""
NO_NUMBER = Mean(math.inf, math.inf, math.inf, 0)


@dataclass(frozen=True)
class Onset:
    """Where it begins: positions ``start`` to ``end`` - 1 are the first that fail. Losses in nats a token.

    ``rise`` is that bucket's difference to the baseline, ``top`` the highest loss from there on, of which half is reached ``within`` so many
    tokens. ``confirmed`` is the difference of the same tokens to a reading with less before them.
    """

    start: int
    end: int
    baseline: float
    rise: Mean
    top: float
    within: int
    confirmed: Mean


def rises(lost: Sequence[Numbers], edges: Edges, groups: Numbers, trained: int) -> list[tuple[float, Mean] | None]:
    """For each bucket the baseline and the paired difference to it; None where no bucket before it can be one."""
    found: list[tuple[float, Mean] | None] = []
    for number, bucket in enumerate(lost):
        before = [one for (_, end), one in zip(edges[1:number], lost[1:number], strict=True) if end <= trained and np.isfinite(one).all()]
        if not before:
            found.append(None)
            continue
        base = np.concatenate(before, axis=1)
        paired = NO_NUMBER if not np.isfinite(bucket).all() else mean(bucket.mean(1) - base.mean(1), groups)
        found.append((float(base.mean()), paired))
    return found


def failing(found: Sequence[tuple[float, Mean] | None]) -> list[int]:
    """The buckets that fail, each with the next one."""
    clear = [one is not None and one[1].low is not None and one[1].low > LEAST * one[0] for one in found]
    return [number for number, fails in enumerate(clear) if fails and all(clear[number + 1 : number + 2])]


def read_again(
    score: Callable[[Numbers], Numbers], windows: Numbers, lost: Numbers, start: int, length: int, groups: Numbers, begin: int | None = None
) -> Mean:
    """The same tokens from ``start`` on: their loss there, less their loss at the end of a text of ``length`` tokens, half of which is context."""
    count = min(lost.shape[1], length // 2)
    there, end = lost[:, :count], start + count + 1
    if not np.isfinite(there).all():
        return NO_NUMBER
    short = score(begun(windows[:, end - length - 1 : end], begin))[:, -count:]
    return mean(there - short, groups)


def onset(
    score: Callable[[Numbers], Numbers], windows: Numbers, lost: Sequence[Numbers], edges: Edges, groups: Numbers, trained: int, begin: int | None = None
) -> Onset | None:
    """The first bucket that fails and is confirmed; None where none is.

    ``lost`` are the losses (windows x tokens) at each of ``edges``, ``score`` gives those of windows (windows x length + 1) again.
    """
    found, passed = rises(lost, edges, groups, trained), 0
    numbers = failing(found)
    for number in numbers:
        start, end = edges[number]
        if start < passed:
            continue
        again = read_again(score, windows, lost[number], start, edges[numbers[0]][0], groups, begin)
        if again.low is not None and again.low > 0:
            baseline, rise = found[number] or (math.nan, NO_NUMBER)
            return Onset(start, end, baseline, rise, *_height(lost, edges, number, baseline), again)
        passed = start + start // 8  # hard tokens, not a failure: the next place to look is some way on
    return None


def _height(lost: Sequence[Numbers], edges: Edges, number: int, baseline: float) -> tuple[float, int]:
    """The highest loss from a bucket on, and the tokens from its start within which half of that rise is reached."""
    means = [float(one.mean()) if np.isfinite(one).all() else math.inf for one in lost[number:]]
    top = max(means)
    half = next(n for n, value in enumerate(means) if value - baseline >= (top - baseline) / 2 or value == math.inf)
    return top, edges[number + half][1] - edges[number][0]
