"""Loss by position of a model that is moved: before, right after the swap, and after recovery, of the same tokens.

    share recovered = (swapped - recovered) / (swapped - before)        mean losses inside the old length

Its interval is a bootstrap over the windows (or files) that all three read. Where the swap lost nothing that could be told from chance there is nothing to be
recovered, and no share. A model is tuned on one half of the text, and measured on the other. More than 100% is tuning's own doing: the source was not tuned.

Past the old end: the same last tokens, read with the old length and with twice that. As `recommend` has it, a model works there where they lose at most 2%
more, or no more than chance explains.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from milepost.checkpoints.extension.losses import compared
from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.model.text import read_text
from milepost.checkpoints.model.tune import Tuning, windows_for
from milepost.checkpoints.recommendation.candidates import encodings_by_layer
from milepost.measure.intervals import DRAWS, Mean, mean
from milepost.measure.losses import TOLERATED_RISE, buckets, same_targets, token_losses

Numbers = np.ndarray[Any, Any]
WINDOWS, TOKENS = 24, 1 << 16
"""At most so many windows are measured, or so many tokens where windows are short."""
TARGETS = 256
STRETCHED = ("linear", "ntk")
"""What a rotary model is given at inference, to read more than it was tuned for: PI and NTK."""
ENOUGH = 0.9
"""The share of the loss that has to be recovered to be called so."""


class Measured:
    """The text of a migration: ``training`` windows of one half, and the windows of the other (n x far + 1) that every stage is measured on."""

    def __init__(self, subject: Loaded, text: Any, tuning: Tuning | None, old: int, far: int):
        whole = read_text(text, subject)
        self.trained_on, self.text = whole.halves()
        self.training = [] if tuning is None else windows_for(self.trained_on, tuning)
        self.old, self.far = old, far
        self.windows, self.groups = self.text.windows(far, max(WINDOWS, TOKENS // far))

    def losses(self, subject: Loaded) -> Numbers:
        """Losses (windows x tokens) up to ``far``, or to where the model ends."""
        end = self.far if subject.end is None else min(self.far, subject.end)
        return token_losses(subject, self.windows[:, : end + 1])

    def choosing(self, subject: Loaded, length: int) -> float:
        """The mean loss on the half that is tuned on: what a choice may look at."""
        windows, _ = self.trained_on.windows(length, WINDOWS, least=1)
        return float(token_losses(subject, windows).mean())

    def by_position(self, stages: dict[str, Numbers]) -> list[dict[str, Any]]:
        """A row for each stretch of positions, with every stage's mean there; None where a model ends before."""
        rows = []
        for start, end in buckets(self.far, self.old):
            means = {
                name: _plain(mean(lost[:, start:end], self.groups)) if lost.shape[1] >= end else None
                for name, lost in stages.items()
            }
            rows.append({"start": start, "end": end, **means})
        return rows

    def inside(self, stages: dict[str, Numbers]) -> dict[str, Any]:
        """Means inside the old length."""
        return {name: _plain(mean(lost[:, : self.old], self.groups)) for name, lost in stages.items()}

    def in_and_past(self, lost: Numbers) -> dict[str, Any]:
        """Means of one model inside the old length, and past it."""
        return {
            "inside": _plain(mean(lost[:, : self.old], self.groups)),
            "past": _plain(mean(lost[:, self.old :], self.groups)),
        }

    def share(self, stages: dict[str, Numbers]) -> dict[str, Any] | None:
        """The share recovered, with its interval; None where the swap lost nothing, or nothing was tuned."""
        if "recovered" not in stages:
            return None
        before, swapped, after = (
            _sums(stages[name][:, : self.old], self.groups) for name in ("before", "swapped", "recovered")
        )
        return recovered(before, swapped, after)

    def past(self, subject: Loaded) -> list[dict[str, Any]]:
        """Loss of the same last tokens with the old length and with ``far``: as it is, and stretched where it turns.

        ``difference`` is of the longer text from the shorter one as it is: a stretch that spoils short texts gains nothing by being as bad with long ones.
        """
        if (subject.end is not None and subject.end < self.far) or self.far <= self.old:
            return []
        targets = min(TARGETS, max(1, self.old // 2))

        def read(length: int) -> Numbers:
            return same_targets(subject, self.windows, length, targets, subject.device, begin=self.text.begin)

        own = read(self.old)
        rows = [self._past("as it is", 1.0, own, own, read(self.far))]
        spec = subject.spec
        if spec is not None and spec.trained is not None and spec.trained < self.far:
            for method in STRETCHED:
                made = spec.extended(self.far, method)  # type: ignore[arg-type]
                with subject.turned(encodings_by_layer(made, int(subject.model.config.num_hidden_layers))):  # type: ignore[arg-type, union-attr]
                    rows.append(self._past(method, self.far / spec.trained, own, read(self.old), read(self.far)))
        return rows

    def _past(self, served: str, factor: float, own: Numbers, short: Numbers, long: Numbers) -> dict[str, Any]:
        row: dict[str, Any] = compared({self.far: own}, {self.far: long}, self.groups)[0]
        counts, gap, base = (
            {"windows": row["windows"], "targets": row["targets"]},
            row["difference"],
            row["before"]["value"],
        )
        works = gap["value"] is not None and (
            gap["value"] <= TOLERATED_RISE * base or (gap["low"] is not None and gap["low"] <= 0)
        )
        losses = {"short": _plain(mean(short, self.groups)), "long": row["after"], "difference": gap}
        return {"served": served, "factor": factor, **losses, "works": works, **counts}


def _sums(losses: Numbers, groups: Numbers) -> Numbers:
    """Sums of losses by group."""
    known, place = np.unique(groups, return_inverse=True)
    found = np.zeros(len(known))
    np.add.at(found, place, losses.sum(1))
    return found


def recovered(before: Numbers, swapped: Numbers, after: Numbers) -> dict[str, Any] | None:
    """The share of swapped - before that after has made up for, from sums of the same tokens by group; with the middle 95% of a bootstrap."""
    if len(before) < 2:
        return None
    drawn = np.random.default_rng(0).integers(0, len(before), (DRAWS, len(before)))
    gaps, made_up = (swapped - before)[drawn].sum(1), (swapped - after)[drawn].sum(1)
    if not np.isfinite(gaps).all() or np.percentile(gaps, 2.5) <= 0:
        return None
    low, high = np.percentile(made_up / gaps, [2.5, 97.5])
    return {"value": float((swapped - after).sum() / (swapped - before).sum()), "low": float(low), "high": float(high)}


def _plain(one: Mean) -> dict[str, Any]:
    return asdict(one) if np.isfinite(one.value) else {"value": None, "low": None, "high": None, "tokens": one.tokens}
