"""Comparisons: two runs on the very same targets, as the mean of their differences, file by file.

Strategies are compared with the same model without one, encodings with no position at all (or the first that there
is). A negative difference is a gain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.measure.intervals import difference

Run = dict[str, Any]


def comparisons(runs: list[Run]) -> list[dict[str, Any]]:
    """For each run and length: its loss less that of the run it is compared with, in nats a token, with an interval.

    Rows with ``fixed`` are of the one setting that the longest length needs: what each length pays for it.
    """
    texts = [run for run in runs if run.get("loss_by_window")]
    rows = []
    for run in texts:
        if (other := _choose_other(run, texts)) is not None:
            names = name_pair(run, other)
            rows += [{**names, **row} for row in _differences(other, run, "loss_by_window")]
            rows += [{**names, **row, "fixed": True} for row in _differences(other, run, "fixed_by_window")]
    return rows


def name_pair(run: Run, other: Run) -> dict[str, Any]:
    """What is compared with what."""
    against = f"{other['encoding']}, {other['strategy']}"
    return {"encoding": run["encoding"], "strategy": run["strategy"], "seed": run["seed"], "against": against}


def _differences(other: Run, run: Run, field: str) -> list[dict[str, Any]]:
    """By length, where both have one: ``run``'s loss less ``other``'s, paired window by window."""
    rows = []
    for length, losses in run.get(field, {}).items():
        if length in other["loss_by_window"]:
            a, b = (np.array(values)[:, None] for values in (other["loss_by_window"][length], losses))
            mean = difference(a, b, np.array(run["window_files"]))
            rows.append({"length": int(length), "difference": mean.value, "low": mean.low, "high": mean.high})
    return rows


def _choose_other(run: Run, runs: list[Run]) -> Run | None:
    """What a run is compared with; None for what the others are compared with."""
    plain = [other for other in runs if other["seed"] == run["seed"] and other["strategy"] == "none"]
    if run["strategy"] != "none":
        return next((other for other in plain if other["encoding"] == run["encoding"]), None)
    base = next((other for other in plain if other["encoding"] == "nope"), plain[0])
    return None if base is run else base
