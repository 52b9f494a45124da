"""Compared: two runs on the very same targets, as the mean of their differences, file by file.

Strategies are set against the same model without one, encodings against no position at all (or the first that there is). A negative
difference is a gain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.diagnose.intervals import difference

Run = dict[str, Any]


def comparisons(runs: list[Run]) -> list[dict[str, Any]]:
    """For each run and length: how much more it loses than what it is set against, in nats a token, with an interval."""
    texts = [run for run in runs if run.get("loss_by_window")]
    found = []
    for run in texts:
        other = _against(run, texts)
        if other is None:
            continue
        name = {"encoding": run["encoding"], "strategy": run["strategy"], "seed": run["seed"], "against": f"{other['encoding']}, {other['strategy']}"}
        for length, lost in run["loss_by_window"].items():
            if length in other["loss_by_window"]:
                a, b = (np.array(values)[:, None] for values in (other["loss_by_window"][length], lost))
                one = difference(a, b, np.array(run["window_files"]))
                found.append({**name, "length": int(length), "difference": one.value, "low": one.low, "high": one.high})
    return found


def _against(run: Run, runs: list[Run]) -> Run | None:
    """What a run is set against; None for what the others are set against."""
    plain = [other for other in runs if other["seed"] == run["seed"] and other["strategy"] == "none"]
    if run["strategy"] != "none":
        return next((other for other in plain if other["encoding"] == run["encoding"]), None)
    base = next((other for other in plain if other["encoding"] == "nope"), plain[0])
    return None if base is run else base
