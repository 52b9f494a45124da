"""Intervals: how sure a mean over tokens is, when tokens of one file are alike.

    mean, difference    a bootstrap over files: they are drawn again with replacement, many times, and the middle 95% of
                        the means is the interval. Two models that scored the same tokens are compared by their
                        differences file by file, which takes out what makes files hard
    share               of right answers: Wilson's interval, which is not empty where all answers are right, or none
    t_quantile          Student's t, for a mean of few values

scipy computes all three. It is imported when it is used.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

DRAWS = 1000
Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Mean:
    """A token-weighted mean with its 95% interval; ``tokens`` were scored. Of one file alone there is no interval."""

    value: float
    low: float | None
    high: float | None
    tokens: int

    def to_json(self) -> dict[str, Any]:
        """Plain data; a mean that is not finite is null, and so is its interval."""
        return (
            asdict(self)
            if math.isfinite(self.value)
            else {**dict.fromkeys(("value", "low", "high")), "tokens": self.tokens}
        )


def mean(losses: Numbers, files: Numbers, *, counts: Numbers | None = None, seed: int = 0) -> Mean:
    """The mean of losses (windows x tokens), whose windows are from ``files`` (windows).

    With ``counts``, losses (windows) are sums over so many tokens each: for windows that do not score equally many.
    """
    if len(losses) != len(files) or losses.size == 0:
        raise ValueError(
            f"a mean needs at least one loss, and the name of a file for each window; "
            f"got losses of {losses.shape} and {len(files)} names"
        )
    rows = losses.reshape(len(losses), -1)
    if counts is not None and (counts.shape != files.shape or rows.shape[1] != 1 or counts.sum() < 1):
        raise ValueError(
            f"counts need one sum of losses a window, got losses of {losses.shape} and counts of {counts.shape}"
        )
    sums = sum_by_group(rows.sum(1), files)
    tokens = sum_by_group(np.full(len(files), rows.shape[1]) if counts is None else counts, files)
    value, total = float(sums.sum() / tokens.sum()), int(tokens.sum())
    if len(sums) < 2:
        return Mean(value, None, None, total)
    return Mean(value, *bootstrap_ratio(sums, tokens, seed=seed), total)


def difference(a: Numbers, b: Numbers, files: Numbers, *, seed: int = 0) -> Mean:
    """The mean of b - a on the same targets."""
    if a.shape != b.shape:
        raise ValueError(f"a paired difference needs the same targets, got {a.shape} and {b.shape}")
    return mean(b - a, files, seed=seed)


def share(right: int, trials: int) -> Mean:
    """The share of right answers, with Wilson's interval; ``tokens`` is the number of trials."""
    from scipy.stats import binomtest

    if not 0 <= right <= trials or trials < 1:
        raise ValueError(
            f"a share needs at least one trial, and no more right answers than trials; got {right} of {trials}"
        )
    interval = binomtest(right, trials).proportion_ci(method="wilson")
    return Mean(right / trials, float(interval.low), float(interval.high), trials)


def t_quantile(values: int) -> float:
    """Student's t for the mean of so many values: as many standard errors on each side hold 95%."""
    from scipy.stats import f

    return math.sqrt(f.ppf(0.95, 1, values - 1))  # t squared is F; scipy 1.15 searches t itself to ten digits alone


def sum_by_group(values: Numbers, groups: Numbers) -> Numbers:
    """The sum of the values (windows) of each group (windows), in the order of their names."""
    names, place = np.unique(groups, return_inverse=True)
    return np.bincount(place, values, len(names))


def bootstrap_ratio(over: Numbers, under: Numbers, *, seed: int = 0) -> tuple[float, float]:
    """The middle 95% of sum(over) / sum(under), when their entries are drawn again together."""
    from scipy.stats import bootstrap

    if not np.isfinite(over).all():
        return math.nan, math.nan
    drawn = bootstrap(
        (over, under), _ratio, paired=True, vectorized=True, n_resamples=DRAWS, method="percentile",
        rng=np.random.default_rng(seed),
    )  # fmt: skip
    return float(drawn.confidence_interval.low), float(drawn.confidence_interval.high)


def _ratio(over: Numbers, under: Numbers, axis: int) -> Numbers:
    ratio: Numbers = over.sum(axis) / under.sum(axis)
    return ratio
