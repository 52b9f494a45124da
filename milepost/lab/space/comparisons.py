"""Comparisons: two models on the very same test images, as the mean of their differences, image by image.

Strategies are compared with the same model without one, encodings with no position at all, and with the learned 1-D
table. A positive difference is a gain in accuracy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.lab.comparisons import name_pair
from milepost.measure.intervals import difference

Run = dict[str, Any]
BASES = ("nope", "learned")


def comparisons(runs: list[Run]) -> list[dict[str, Any]]:
    """For each run and size: how much more often it is right than what it is compared with, with an interval."""
    known = [run for run in runs if run.get("right_by_size")]
    return [
        {**name_pair(run, other), "size": [int(side) for side in size.split("x")], **paired(before, right)}
        for run in known
        for other in _choose_others(run, known)
        for size, right in run["right_by_size"].items()
        if (before := other["right_by_size"].get(size)) is not None
    ]


def paired(before: str, after: str) -> dict[str, Any]:
    """The mean of after - before, image by image; each is a text of 0 (wrong) and 1 (right)."""
    a, b = (np.array([float(letter) for letter in text])[:, None] for text in (before, after))
    mean = difference(a, b, np.arange(len(a)))
    return {"difference": mean.value, "low": mean.low, "high": mean.high}


def _choose_others(run: Run, runs: list[Run]) -> list[Run]:
    wanted = BASES if run["strategy"] == "none" else (run["encoding"],)
    plain = [other for other in runs if other["strategy"] == "none" and other is not run]
    return [other for other in plain if other["seed"] == run["seed"] and other["encoding"] in wanted]
