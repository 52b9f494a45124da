"""Loss before and after: the same last tokens of each window, read with the trained and with the target length.

The source and what was written read the same tokens, so the interval of their difference is paired: what makes a text
hard is not in it. Where a model is tuned, or its method chosen, that is done on one half of the text, and the losses
are of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.checkpoints.extension.plan import ExtensionPlan
from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.model.text import read_text
from milepost.checkpoints.model.tune import Tuning, windows_for
from milepost.measure.intervals import Numbers, difference, mean
from milepost.measure.losses import same_targets

WINDOWS = 16
"""At most so many windows."""
TARGETS = 256
"""Tokens of each that are scored, at most; never more than half of the trained length."""


class ExtensionLosses:
    """The text of an extension:

    ``training`` windows of one half, if it is tuned; windows that losses are measured on.
    """

    def __init__(self, subject: Loaded, plan: ExtensionPlan, text: Any, tuning: Tuning | None, chosen: bool):
        whole = read_text(text, subject)
        self.trained_on, self.text = whole.halves() if tuning is not None or chosen else (whole, whole)
        self.training = [] if tuning is None else windows_for(self.trained_on, tuning)
        self.windows, self.groups = self.text.windows(plan.target, WINDOWS)
        self.lengths, self.targets = (plan.trained, plan.target), min(TARGETS, max(1, plan.trained // 2))

    def measure(self, subject: Loaded) -> dict[int, Numbers]:
        """Losses (windows x targets) at both lengths."""
        return {
            length: same_targets(
                subject, self.windows, length, self.targets, subject.device, begin=self.text.begin
            )
            for length in self.lengths
        }  # fmt: skip

    def compare(self, before: Mapping[int, Numbers], after: Mapping[int, Numbers]) -> list[dict[str, Any]]:
        """A row for each length; see `compare_losses`."""
        return [{"length": n, **compare_losses(before[n], after[n], self.groups)} for n in self.lengths]


def compare_losses(before: Numbers, after: Numbers, groups: Numbers) -> dict[str, Any]:
    """Means with intervals, and the paired difference, after - before; null where a loss is not a number."""
    means = {
        "before": mean(before, groups),
        "after": mean(after, groups),
        "difference": difference(before, after, groups),
    }
    sizes = {"windows": before.shape[0], "targets": before.shape[1]}
    return {**sizes, **{name: found.to_json() for name, found in means.items()}}
