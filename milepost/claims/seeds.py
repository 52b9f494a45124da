"""Numbers of several seeds, with intervals that hold for other seeds and for other texts.

    over seeds    Student's t of the seeds' values:   mean ± t sqrt(variance / n)
    over texts    a bootstrap over test files (or Wilson's interval over rows of a task), of the mean over seeds

The wider side of the two is taken, on each side. One seed alone has the second only, and says so. Student's t knows no bounds: the interval of a share
ends at 0 and 1, that of a difference of two at -1 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np

from milepost.claims.claim import NotMeasured
from milepost.claims.rule import Number
from milepost.measure.intervals import mean, share

Run = dict[str, Any]
T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Student's t for 95% on both sides, by the number of seeds."""


SHARE, LEAD = (0.0, 1.0), (-1.0, 1.0)
"""Between what a share lies, and by how much one can be ahead of another."""


def both(
    values: Sequence[float],
    low: float | None,
    high: float | None,
    over: str,
    ends: tuple[float, float] = (-math.inf, math.inf),
) -> Number:
    """The mean of the seeds' values, with the wider of its two intervals; ``low`` and ``high`` are that over texts. It can't lie outside of ``ends``."""
    value, n = fmean(values), len(values)
    seeds = "one seed" if n == 1 else f"{n} seeds"
    around = 0.0 if n == 1 else T[n] * stdev(values) / math.sqrt(n)
    low, high = (value if side is None else side for side in (low, high))
    return Number(
        value, max(ends[0], min(low, value - around)), min(ends[1], max(high, value + around)), f"{seeds}, {over}"
    )


def shares(values: Sequence[float], trials: int, over: str) -> Number:
    """The seeds' shares of right answers, of so many trials in all."""
    one = share(round(fmean(values) * trials), trials)
    return both(values, one.low, one.high, f"{trials} {over}", SHARE)


def losses(runs: Sequence[Run], length: int, field: str = "loss_by_window") -> np.ndarray[Any, Any]:
    """Losses (seeds x windows) at a length."""
    found = [run.get(field, {}).get(str(length)) for run in runs]
    lost = [
        f"{run['encoding']}, {run['strategy']}, seed {run['seed']}"
        for run, one in zip(runs, found, strict=True)
        if one is None
    ]
    if lost:
        raise NotMeasured(f"there is no loss at {length} tokens for {lost[0]}")
    return np.array(found)


def mean_loss(runs: Sequence[Run], length: int) -> Number:
    """The loss at a length."""
    return _over_files(losses(runs, length), runs)


def rise(runs: Sequence[Run], length: int, trained: int) -> Number:
    """How much more is lost at a length than at the trained one, as a share of the latter; the same targets."""
    before, after = losses(runs, trained), losses(runs, length)
    return _over_files((after - before) / before.mean(), runs)


def gap(a: Sequence[Run], b: Sequence[Run], length: int, *, field: str = "loss_by_window") -> Number:
    """How many nats more ``b`` loses than ``a`` at a length, on the same targets, seed by seed; ``field`` is of b's losses."""
    by_seed = {run["seed"]: run for run in a}
    pairs = [(by_seed[run["seed"]], run) for run in b if run["seed"] in by_seed]
    if not pairs:
        raise NotMeasured("the two were not trained from the same seeds")
    first, second = losses([one for one, _ in pairs], length), losses([two for _, two in pairs], length, field)
    if first.shape != second.shape or any(one["window_files"] != two["window_files"] for one, two in pairs):
        raise NotMeasured("the two were not tested on the same texts")
    return _over_files(second - first, [two for _, two in pairs])


def _over_files(values: np.ndarray[Any, Any], runs: Sequence[Run]) -> Number:
    """Values (seeds x windows): their mean, over seeds and over files."""
    files = np.array(runs[0]["window_files"])
    one = mean(values.mean(0)[:, None], files)
    return both([float(v) for v in values.mean(1)], one.low, one.high, f"{len(set(files.tolist()))} files")


def accuracy(runs: Sequence[Run], task: str, length: int, depth: float | None = None) -> Number:
    """The share of right answers in a task at a length; of recall also at a depth."""
    found = []
    for run in runs:
        row = next((one for one in run["tasks"].get(task, []) if one["length"] == length), None)
        if row is not None and depth is not None:
            row = next((one for one in row.get("by_depth", []) if one["depth"] == depth), None)
        if row is None or row["accuracy"] is None:
            raise NotMeasured(f"{run['encoding']} has no answers to {task} at {length} tokens")
        found.append(row)
    values = [float(row["accuracy"]) for row in found]
    rows = sum(int(row["rows"]) for row in found)  # answers in one row may be alike: rows are counted, not answers
    return shares(values, rows, "rows")
