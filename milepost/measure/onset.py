"""Onset: from which position on does a model fail? Found on the same tokens, read with all that comes before them and with less.

Past the trained length, where tokens can be read within it:

    baseline     the same tokens at the end of texts of the trained length, with at least half of it before them
    failing      the paired difference, in the long text - in the short one, has its interval above 2% of the baseline;
                 and so has the next bucket, where there is one

Within the trained length (a table may be trained for less than it declares):

    baseline     the earlier buckets, without the first, whose tokens have hardly any context
    failing      bucket - baseline of the same window, as above
    confirmed    the first tokens of that bucket lose more there than when they are read again, at the end of a text that is no longer
                 than what came before the first bucket that fails: so long a text the model holds

Later tokens may be harder by themselves: a token that is compared with itself does not show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from milepost.measure.intervals import Mean, mean
from milepost.measure.losses import begun

Numbers = np.ndarray[Any, Any]
Edges = Sequence[tuple[int, int]]
LEAST = 0.02
"""The smallest rise that counts, as a share of the baseline."""
NO_NUMBER = Mean(math.inf, math.inf, math.inf, 0)


@dataclass(frozen=True)
class Onset:
    """Where it begins: positions ``start`` to ``end`` - 1 are the first that fail. Losses in nats a token.

    ``rise`` is that bucket's difference to the baseline, ``top`` the baseline and the largest rise from there on, of which half is reached
    ``within`` so many tokens. ``confirmed`` is the difference of the same tokens to a reading with less before them.
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
        before = [
            one
            for (_, end), one in zip(edges[1:number], lost[1:number], strict=True)
            if end <= trained and np.isfinite(one).all()
        ]
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
    score: Callable[[Numbers], Numbers],
    windows: Numbers,
    lost: Numbers,
    start: int,
    length: int,
    groups: Numbers,
    begin: int | None = None,
) -> Mean:
    """The same tokens from ``start`` on: their loss there, less their loss at the end of a text of ``length`` tokens, half of which is context."""
    count = min(lost.shape[1], length // 2)
    there, end = lost[:, :count], start + count + 1
    if not np.isfinite(there).all():
        return NO_NUMBER
    short = score(begun(windows[:, end - length - 1 : end], begin))[:, -count:]
    return mean(there - short, groups)


def read_short(score: Callable[[Numbers], Numbers], windows: Numbers, length: int, begin: int | None = None) -> Numbers:
    """Losses (windows x longest - length) of all tokens from position ``length`` on, read in texts of ``length`` tokens that overlap by half."""
    longest, half = windows.shape[1] - 1, max(1, length // 2)
    done = []
    for start in range(length, longest, half):
        end = min(start + half, longest)
        done.append(score(begun(windows[:, end - length : end + 1], begin))[:, start - end :])
    return np.concatenate(done, axis=1)


def beyond(
    lost: Sequence[Numbers], edges: Edges, short: Numbers, groups: Numbers, trained: int
) -> list[tuple[float, Mean] | None]:
    """For each bucket past the trained length the baseline and the paired difference to it, of the same tokens; None for the others."""
    baseline = float(short.mean())
    found: list[tuple[float, Mean] | None] = []
    for (start, end), bucket in zip(edges, lost, strict=True):
        if start < trained:
            found.append(None)
            continue
        paired = bucket - short[:, start - trained : end - trained]
        found.append((baseline, mean(paired, groups) if np.isfinite(paired).all() else NO_NUMBER))
    return found


def onset(
    score: Callable[[Numbers], Numbers],
    windows: Numbers,
    lost: Sequence[Numbers],
    edges: Edges,
    groups: Numbers,
    trained: int,
    begin: int | None = None,
) -> Onset | None:
    """The first bucket that fails; None where none does.

    ``lost`` are the losses (windows x tokens) at each of ``edges``, ``score`` gives those of windows (windows x length + 1) again.
    """
    inside = _inside(score, windows, lost, edges, groups, trained, begin)
    if inside is not None or edges[-1][1] <= trained:
        return inside
    found = beyond(lost, edges, read_short(score, windows, trained, begin), groups, trained)
    number = next(iter(failing(found)), None)
    if number is None:
        return None
    baseline, rise = found[number] or (math.nan, NO_NUMBER)
    heights = [baseline + one[1].value for one in found[number:] if one is not None]
    return Onset(*edges[number], baseline, rise, *_height(heights, edges, number, baseline), rise)


def _inside(
    score: Callable[[Numbers], Numbers],
    windows: Numbers,
    lost: Sequence[Numbers],
    edges: Edges,
    groups: Numbers,
    trained: int,
    begin: int | None,
) -> Onset | None:
    """The first bucket within the trained length that fails and is confirmed."""
    found, passed = rises(lost, edges, groups, trained), 0
    numbers = [number for number in failing(found) if edges[number][1] <= trained]
    for number in numbers:
        start, end = edges[number]
        if start < passed:
            continue
        again = read_again(score, windows, lost[number], start, edges[numbers[0]][0], groups, begin)
        if again.low is not None and again.low > 0:
            baseline, rise = found[number] or (math.nan, NO_NUMBER)
            heights = [float(one.mean()) if np.isfinite(one).all() else math.inf for one in lost[number:]]
            return Onset(start, end, baseline, rise, *_height(heights, edges, number, baseline), again)
        passed = start + start // 8  # hard tokens, not a failure: the next place to look is some way on
    return None


def _height(heights: Sequence[float], edges: Edges, number: int, baseline: float) -> tuple[float, int]:
    """The highest loss from a bucket on, and the tokens from its start within which half of that rise is reached."""
    top = max(heights)
    half = next(n for n, value in enumerate(heights) if value - baseline >= (top - baseline) / 2 or value == math.inf)
    return top, edges[number + half][1] - edges[number][0]
