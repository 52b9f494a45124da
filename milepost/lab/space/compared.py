"""Compared: two models on the very same test images, as the mean of their differences, image by image.

Strategies are set against the same model without one, encodings against no position at all, and against the learned 1-D table. A positive difference
is a gain in accuracy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.measure.intervals import difference

Run = dict[str, Any]
BASES = ("nope", "learned")


def comparisons(runs: list[Run]) -> list[dict[str, Any]]:
    """For each run and size: how much more often it is right than what it is set against, with an interval."""
    known = [run for run in runs if run.get("right_by_size")]
    found = []
    for run in known:
        for other in _against(run, known):
            name = {
                "encoding": run["encoding"],
                "strategy": run["strategy"],
                "seed": run["seed"],
                "against": f"{other['encoding']}, {other['strategy']}",
            }
            for size, right in run["right_by_size"].items():
                if size in other["right_by_size"]:
                    one = paired(other["right_by_size"][size], right)
                    found.append({**name, "size": [int(side) for side in size.split("x")], **one})
    return found


def paired(before: str, after: str) -> dict[str, Any]:
    """The mean of after - before, image by image; each is a text of 0 (wrong) and 1 (right)."""
    a, b = (np.array([float(letter) for letter in text])[:, None] for text in (before, after))
    one = difference(a, b, np.arange(len(a)))
    return {"difference": one.value, "low": one.low, "high": one.high}


def _against(run: Run, runs: list[Run]) -> list[Run]:
    plain = [
        other for other in runs if other["seed"] == run["seed"] and other["strategy"] == "none" and other is not run
    ]
    if run["strategy"] != "none":
        return [other for other in plain if other["encoding"] == run["encoding"]]
    return [other for other in plain if other["encoding"] in BASES]
