"""Onset: from which position on does a model fail?

Found on the same tokens, read with all that comes before them and with less.

Past the trained length, where tokens can be read within it:

    baseline     the same tokens at the end of texts of the trained length, with at least half of it before them
    failing      the paired difference, in the long text - in the short one, has its interval above 2% of the baseline;
                 and so has the next bucket, where there is one

Within the trained length (a table may be trained for less than it declares):

    baseline     the earlier buckets, without the first, whose tokens have hardly any context
    failing      bucket - baseline of the same window, as above
    confirmed    the first tokens of that bucket have a higher loss there than when they are read again, at the end of a
                 text that is no longer than what came before the first bucket that fails: so long a text the model
                 reads well

Later tokens may be harder by themselves: a token that is compared with itself does not show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from milepost.measure.intervals import Mean, Numbers, mean
from milepost.measure.losses import TOLERATED_RISE, with_first_token

Edges = Sequence[tuple[int, int]]
Score = Callable[[Numbers], Numbers]
"""Windows (windows x length + 1) to the loss of each next token (windows x length)."""
Rise = tuple[float, Mean]
"""A baseline, and the paired difference of a bucket to it."""
INFINITE = Mean(math.inf, math.inf, math.inf, 0)
"""The rise of a loss that is not finite."""


@dataclass(frozen=True)
class Onset:
    """Where the failure begins: positions ``start`` to ``end`` - 1 are the first that fail. Losses are in nats a token.

    ``rise`` is that bucket's difference to the baseline, ``top`` the baseline and the largest rise from there on, half
    of which is reached ``within`` so many tokens. ``confirmed`` is the difference of the same tokens to a reading with
    less before them.
    """

    start: int
    end: int
    baseline: float
    rise: Mean
    top: float
    within: int
    confirmed: Mean


def onset(
    score: Score, windows: Numbers, losses: Sequence[Numbers], edges: Edges, groups: Numbers, trained: int,
    begin: int | None = None,
) -> Onset | None:  # fmt: skip
    """The first bucket that fails; None where none does.

    ``losses`` (windows x tokens) are those at each of ``edges``; ``score`` reads windows again.
    """
    within = _onset_within(score, windows, losses, edges, groups, trained, begin)
    if within is not None or edges[-1][1] <= trained:
        return within
    return first_failure(
        rises_beyond(losses, edges, read_short(score, windows, trained, begin), groups, trained), edges
    )


def first_failure(rises: Sequence[Rise | None], edges: Edges) -> Onset | None:
    """The first bucket that fails, of those whose rise is known; None where none does."""
    for number in failing(rises):
        baseline, rise = rises[number] or (math.nan, INFINITE)
        heights = [baseline + later[1].value for later in rises[number:] if later is not None]
        return Onset(*edges[number], baseline, rise, *_height(heights, edges, number, baseline), rise)
    return None


def _onset_within(
    score: Score, windows: Numbers, losses: Sequence[Numbers], edges: Edges, groups: Numbers, trained: int,
    begin: int | None,
) -> Onset | None:  # fmt: skip
    """The first bucket within the trained length that fails and is confirmed."""
    rises, passed = rises_within(losses, edges, groups, trained), 0
    numbers = [number for number in failing(rises) if edges[number][1] <= trained]
    for number in numbers:
        start, end = edges[number]
        if start < passed:
            continue
        again = read_again(score, windows, losses[number], start, edges[numbers[0]][0], groups, begin)
        if again.low is not None and again.low > 0:
            baseline, rise = rises[number] or (math.nan, INFINITE)
            heights = [float(later.mean()) if np.isfinite(later).all() else math.inf for later in losses[number:]]
            return Onset(start, end, baseline, rise, *_height(heights, edges, number, baseline), again)
        passed = start + start // 8  # hard tokens, not a failure: the next place to look is some way on
    return None


def rises_within(losses: Sequence[Numbers], edges: Edges, groups: Numbers, trained: int) -> list[Rise | None]:
    """For each bucket the baseline of the buckets before it and the paired difference to that.

    None where there is none.
    """
    rises: list[Rise | None] = []
    for number, bucket in enumerate(losses):
        before = [
            earlier
            for (_, end), earlier in zip(edges[1:number], losses[1:number], strict=True)
            if end <= trained and np.isfinite(earlier).all()
        ]
        base = np.concatenate(before, axis=1) if before else None
        rises.append(None if base is None else (float(base.mean()), paired_rise(bucket.mean(1) - base.mean(1), groups)))
    return rises


def rises_beyond(
    losses: Sequence[Numbers], edges: Edges, short: Numbers, groups: Numbers, trained: int
) -> list[Rise | None]:
    """For each bucket past the trained length the paired difference to the same tokens in ``short`` texts.

    None for the buckets before.
    """
    return [
        None if start < trained
        else (float(short.mean()), paired_rise(bucket - short[:, start - trained : end - trained], groups))
        for (start, end), bucket in zip(edges, losses, strict=True)
    ]  # fmt: skip


def paired_rise(paired: Numbers, groups: Numbers) -> Mean:
    """The mean of paired differences; infinite where one of them is not a number."""
    return mean(paired, groups) if np.isfinite(paired).all() else INFINITE


def failing(rises: Sequence[Rise | None]) -> list[int]:
    """The numbers of the buckets that fail and whose next bucket fails too."""
    clear = [rise is not None and rise[1].low is not None and rise[1].low > TOLERATED_RISE * rise[0] for rise in rises]
    return [number for number, fails in enumerate(clear) if fails and all(clear[number + 1 : number + 2])]


def read_again(
    score: Score, windows: Numbers, losses: Numbers, start: int, length: int, groups: Numbers, begin: int | None = None
) -> Mean:
    """The same tokens from ``start`` on: their loss there, less their loss at the end of a text of ``length`` tokens.

    Half of that text is context.
    """
    count = min(losses.shape[1], length // 2)
    there, end = losses[:, :count], start + count + 1
    if not np.isfinite(there).all():
        return INFINITE
    short = score(with_first_token(windows[:, end - length - 1 : end], begin))[:, -count:]
    return mean(there - short, groups)


def read_short(score: Score, windows: Numbers, length: int, begin: int | None = None) -> Numbers:
    """Losses (windows x longest - length) of all tokens from position ``length`` on.

    They are read in texts of ``length`` tokens that overlap by half.
    """
    longest, half = windows.shape[1] - 1, max(1, length // 2)
    ends = [(start, min(start + half, longest)) for start in range(length, longest, half)]
    short = (windows[:, end - length : end + 1] for _, end in ends)
    losses = [score(with_first_token(cut, begin))[:, a - e :] for (a, e), cut in zip(ends, short, strict=True)]
    return np.concatenate(losses, axis=1)


def _height(heights: Sequence[float], edges: Edges, number: int, baseline: float) -> tuple[float, int]:
    """The highest loss from a bucket on, and the tokens from its start within which half of that rise is reached."""
    top = max(heights)
    half = next(n for n, value in enumerate(heights) if value - baseline >= (top - baseline) / 2 or value == math.inf)
    return top, edges[number + half][1] - edges[number][0]
