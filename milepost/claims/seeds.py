"""Numbers of several seeds, with intervals that hold for other seeds and for other texts.

    over seeds    Student's t of the seeds' values:   mean ± t sqrt(variance / n)
    over texts    a bootstrap over test files (or Wilson's interval over rows of a task), of the mean over seeds

On each side the wider of the two intervals is taken. One seed alone has the second only, and its number says so.
Student's t knows no bounds: the interval of a share ends at 0 and 1, that of a difference of two shares at -1 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np

from milepost.claims.rule import NotMeasured, Number
from milepost.measure.intervals import mean, share, t_quantile

Run = dict[str, Any]
Numbers = np.ndarray[Any, Any]
MOST_SEEDS = 10
ANY, SHARE, LEAD = (-math.inf, math.inf), (0.0, 1.0), (-1.0, 1.0)
"""The range of any number, of a share, and of a difference of two shares."""


def mean_of_seeds(
    values: Sequence[float], low: float | None, high: float | None, over: str, ends: tuple[float, float] = ANY
) -> Number:
    """The mean of the seeds' values, with the wider of its two intervals, inside ``ends``.

    ``low`` and ``high`` are the interval over texts.
    """
    value, n = fmean(values), len(values)
    around = 0.0 if n == 1 else t_quantile(n) * stdev(values) / math.sqrt(n)
    low, high = (value if side is None else side for side in (low, high))
    low, high = max(ends[0], min(low, value - around)), min(ends[1], max(high, value + around))
    return Number(value, low, high, f"{'one seed' if n == 1 else f'{n} seeds'}, {over}")


def mean_over(
    values: Numbers, unit: str, groups: Sequence[Any] | Numbers | None = None, ends: tuple[float, float] = ANY
) -> Number:
    """The mean of values (seeds x items), over seeds and over items. Items of one group count as one ``unit``."""
    groups = np.arange(values.shape[1]) if groups is None else np.array(groups)
    items = mean(values.mean(0)[:, None], groups)
    by_seed = [float(value) for value in values.mean(1)]
    return mean_of_seeds(by_seed, items.low, items.high, f"{len(set(groups.tolist()))} {unit}", ends)


def shares(values: Sequence[float], trials: int, over: str) -> Number:
    """The seeds' shares of right answers, of so many trials in all."""
    wilson = share(round(fmean(values) * trials), trials)
    return mean_of_seeds(values, wilson.low, wilson.high, f"{trials} {over}", SHARE)


def losses(runs: Sequence[Run], length: int, field: str = "loss_by_window") -> Numbers:
    """Losses (seeds x windows) at a length."""
    by_run = []
    for run in runs:
        by_run.append(run.get(field, {}).get(str(length)))
        if by_run[-1] is None:
            name = f"{run['encoding']}, {run['strategy']}, seed {run['seed']}"
            raise NotMeasured(f"there is no loss at {length} tokens for {name}")
    return np.array(by_run)


def mean_loss(runs: Sequence[Run], length: int) -> Number:
    """The loss at a length."""
    return mean_over(losses(runs, length), "files", runs[0]["window_files"])


def rise(runs: Sequence[Run], length: int, trained: int) -> Number:
    """The rise of the loss from the trained length to another, as a share of the former; on the same targets."""
    before, after = losses(runs, trained), losses(runs, length)
    return mean_over((after - before) / before.mean(), "files", runs[0]["window_files"])


def gap(a: Sequence[Run], b: Sequence[Run], length: int, *, field: str = "loss_by_window") -> Number:
    """The loss of ``b`` minus that of ``a`` in nats, at a length, on the same targets, seed by seed.

    ``field`` names which losses of ``b`` are compared.
    """
    by_seed = {run["seed"]: run for run in a}
    pairs = [(by_seed[run["seed"]], run) for run in b if run["seed"] in by_seed]
    if not pairs:
        raise NotMeasured("the two were not trained from the same seeds")
    first, second = losses([run for run, _ in pairs], length), losses([run for _, run in pairs], length, field)
    if first.shape != second.shape or any(run["window_files"] != other["window_files"] for run, other in pairs):
        raise NotMeasured("the two were not tested on the same texts")
    return mean_over(second - first, "files", pairs[0][1]["window_files"])


def accuracy(runs: Sequence[Run], task: str, length: int, depth: float | None = None) -> Number:
    """The share of right answers in a task at a length; in recall also at a depth."""
    rows = []
    for run in runs:
        row = next((row for row in run["tasks"].get(task, []) if row["length"] == length), None)
        if row is not None and depth is not None:
            row = next((part for part in row.get("by_depth", []) if part["depth"] == depth), None)
        if row is None or row["accuracy"] is None:
            raise NotMeasured(f"{run['encoding']} has no answers to {task} at {length} tokens")
        rows.append(row)
    # answers in one row may be alike: rows are counted, not answers
    return shares([float(row["accuracy"]) for row in rows], sum(int(row["rows"]) for row in rows), "rows")
