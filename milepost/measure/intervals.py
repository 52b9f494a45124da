"""Intervals: how sure a mean over tokens is, when tokens of one file are alike.

The files are drawn again with replacement, many times (a bootstrap over files); the middle 95% of the means is the interval. Two models
that scored the same tokens are compared by their differences file by file, which takes out what makes files hard.

A share of right answers has Wilson's interval, which is not empty where all are right, or none:

    (p + z²/2n ± z sqrt(p(1 - p)/n + z²/4n²)) / (1 + z²/n),        z = 1.96
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

DRAWS = 1000
Z = 1.959963984540054
"""Standard deviations on each side that hold 95%."""
Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Mean:
    """A token-weighted mean with its 95% interval; ``tokens`` were scored. Of one file alone there is no interval."""

    value: float
    low: float | None
    high: float | None
    tokens: int


def mean(losses: Numbers, files: Numbers, *, counts: Numbers | None = None, seed: int = 0) -> Mean:
    """The mean of losses (windows x tokens), whose windows are from ``files`` (windows).

    With ``counts``, losses (windows) are sums over so many tokens each: for windows that do not score equally many.
    """
    sums, tokens = _by_file(losses, files, counts)
    value, total = float(sums.sum() / tokens.sum()), int(tokens.sum())
    if len(sums) < 2:
        return Mean(value, None, None, total)
    low, high = _spread(sums, tokens, seed)
    return Mean(value, low, high, total)


def difference(a: Numbers, b: Numbers, files: Numbers, *, seed: int = 0) -> Mean:
    """The mean of b - a on the same targets."""
    if a.shape != b.shape:
        raise ValueError(f"a paired difference wants the same targets, got {a.shape} and {b.shape}")
    return mean(b - a, files, seed=seed)


def share(right: int, trials: int) -> Mean:
    """The share of right answers, with Wilson's interval; ``tokens`` is the number of trials."""
    if not 0 <= right <= trials or trials < 1:
        raise ValueError(
            f"a share wants at least one trial, and no more right answers than trials; got {right} of {trials}"
        )
    p, wide = right / trials, Z * Z / trials
    middle, around = p + wide / 2, Z * math.sqrt(p * (1 - p) / trials + wide / (4 * trials))
    return Mean(p, max(0.0, (middle - around) / (1 + wide)), min(1.0, (middle + around) / (1 + wide)), trials)


def _by_file(losses: Numbers, files: Numbers, counts: Numbers | None) -> tuple[Numbers, Numbers]:
    """The sum and the number of losses of each file."""
    if len(losses) != len(files) or losses.size == 0:
        raise ValueError(
            f"a mean wants at least one loss, and a file's name for each window; got losses of {losses.shape} and {len(files)} names"
        )
    rows = losses.reshape(len(losses), -1)
    if counts is not None and (counts.shape != files.shape or rows.shape[1] != 1 or counts.sum() < 1):
        raise ValueError(
            f"counts want one sum of losses a window, got losses of {losses.shape} and counts of {counts.shape}"
        )
    known, place = np.unique(files, return_inverse=True)
    sums, tokens = np.zeros(len(known)), np.zeros(len(known))
    np.add.at(sums, place, rows.sum(1))
    np.add.at(tokens, place, rows.shape[1] if counts is None else counts)
    return sums, tokens


def _spread(sums: Numbers, counts: Numbers, seed: int) -> tuple[float, float]:
    drawn = np.random.default_rng(seed).integers(0, len(sums), (DRAWS, len(sums)))
    means = sums[drawn].sum(1) / counts[drawn].sum(1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
