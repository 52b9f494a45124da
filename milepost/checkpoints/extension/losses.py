"""Loss before and after: the same last tokens of each window, read with the trained and with the target length, by the source and by what was written.

The difference is of the same tokens, so its interval is paired: what makes a text hard is not in it. Where a model is tuned, or its method chosen, that
is done on one half of the text, and the losses are of the other.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from milepost.checkpoints.extension.plan import Plan
from milepost.checkpoints.files.source import SourceFiles
from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.model.text import read_text
from milepost.checkpoints.model.tune import Tuning, windows_for
from milepost.measure.intervals import Mean, difference, mean
from milepost.measure.losses import same_targets

Numbers = np.ndarray[Any, Any]
WINDOWS = 16
"""At most so many windows."""
TARGETS = 256
"""Tokens of each that are scored, at most; never more than half of the trained length."""


class Measured:
    """The text of an extension: ``training`` windows of one half, if it is tuned; the windows that losses are measured on."""

    def __init__(
        self,
        source: SourceFiles,
        made: Plan,
        text: Any,
        tuning: Tuning | None,
        chosen: bool,
        device: str,
        dtype: str,
        tell: Callable[[str], None],
    ):
        tell(f"reading {text}")
        self.folder, self.trained, self.target = source.folder, made.trained, made.target
        self.how = {"device": device, "dtype": dtype}
        whole = read_text(text, load(source.folder, **self.how))
        self.trained_on, self.text = whole.halves() if tuning is not None or chosen else (whole, whole)
        self.training = [] if tuning is None else windows_for(self.trained_on, tuning)
        self.windows, self.groups = self.text.windows(made.target, WINDOWS)

    def rows(self, folder: Path, tell: Callable[[str], None]) -> list[dict[str, Any]]:
        """Loss before and after, at both lengths."""
        found = {}
        for when, where in (("before", self.folder), ("after", folder)):
            tell(f"measuring the loss {when}, at {self.trained} and {self.target} tokens")
            gc.collect()  # one model at a time
            found[when] = lost(load(where, **self.how), self.windows, self.trained, self.target, self.text.begin)
        return compared(found["before"], found["after"], self.groups)


def lost(subject: Loaded, windows: Numbers, trained: int, target: int, begin: int | None) -> dict[int, Numbers]:
    """Losses (windows x targets) at both lengths."""
    targets = min(TARGETS, max(1, trained // 2))
    return {
        length: same_targets(subject, windows, length, targets, subject.device, begin=begin)
        for length in (trained, target)
    }


def compared(before: dict[int, Numbers], after: dict[int, Numbers], groups: Numbers) -> list[dict[str, Any]]:
    """A row for each length: means with intervals, and the paired difference, after - before; None where a loss is no number."""
    rows = []
    for length, a in before.items():
        b = after[length]
        found = {"before": mean(a, groups), "after": mean(b, groups), "difference": difference(a, b, groups)}
        rows.append(
            {
                "length": length,
                "windows": a.shape[0],
                "targets": a.shape[1],
                **{name: _plain(one) for name, one in found.items()},
            }
        )
    return rows


def _plain(one: Mean) -> dict[str, Any]:
    return asdict(one) if np.isfinite(one.value) else {"value": None, "low": None, "high": None, "tokens": one.tokens}
