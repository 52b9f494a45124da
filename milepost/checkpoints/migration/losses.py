"""Loss by position of a model that is moved: before, right after the swap, and after recovery, of the same tokens.

    share recovered = (swapped - recovered) / (swapped - before)        mean losses inside the old length

Its interval is a bootstrap over the windows (or files) that all three read. Where the swap's loss can't be told from
that before there is nothing to be recovered, and no share. A model is tuned on one half of the text, and measured on
the other. More than 100% is the effect of tuning itself: the source was not tuned.

Past the old end: the same last tokens, read with the old length and with twice that. As `recommend` has it, a model
works there where their loss is at most 2% higher, or no higher than chance explains.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.checkpoints.diagnosis.measure import retrieval_row
from milepost.checkpoints.diagnosis.needle import make_needles
from milepost.checkpoints.extension.losses import compare_losses
from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.model.text import read_text
from milepost.checkpoints.model.tune import Tuning, windows_for
from milepost.checkpoints.recommendation.candidates import encodings_by_layer, stretch
from milepost.measure.intervals import Numbers, bootstrap_ratio, mean, sum_by_group
from milepost.measure.losses import TOLERATED_RISE, buckets, same_targets, token_losses
from milepost.measure.retrieval import LEAST_HAYSTACK, retrieval, room

WINDOWS, TOKENS = 24, 1 << 16
"""At most so many windows are measured, or so many tokens where windows are short."""
TARGETS = 256
TRIALS, DEPTHS = 8, (0.0, 0.5, 1.0)
"""Needles that are asked for at each length: so many texts, each at so many depths."""
STRETCHED = ("linear", "ntk")
"""The scalings that a rotary model gets at inference, to read more than it was tuned for: PI and NTK."""
ENOUGH = 0.9
"""The share of the loss that has to be recovered to be called so."""


class MigrationLosses:
    """The text of a migration:

    ``training`` windows of one half, and the windows of the other (n x far + 1) that every stage is measured on.
    """

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

    def retrieval(self, subject: Loaded, device: str) -> dict[str, Any] | None:
        """How often a needle is found at the old length and at the farthest, as `diagnose` asks for it; None where the
        windows are too short to ask.
        """
        hays = self.windows[:TRIALS]
        needles = make_needles(subject, self.text, hays, len(DEPTHS), self.old)
        end = self.far if subject.end is None else min(self.far, subject.end)
        lengths = [n for n in dict.fromkeys((self.old, end)) if room(needles.build(0, 0), n) >= LEAST_HAYSTACK]
        if not lengths:
            return None
        cells = retrieval(subject.last, hays, needles.build, lengths, DEPTHS, device)
        return retrieval_row(needles, len(hays), cells, lengths)

    def choosing(self, subject: Loaded, length: int) -> float:
        """The mean loss on the half that is tuned on: what a choice may look at."""
        windows, _ = self.trained_on.windows(length, WINDOWS, least=1)
        return float(token_losses(subject, windows).mean())

    def by_position(self, stages: dict[str, Numbers]) -> list[dict[str, Any]]:
        """A row for each stretch of positions, with every stage's mean there; None where a model ends before."""
        items = stages.items()
        return [
            {
                "start": start, "end": end,
                **{name: self._mean(lost, start, end) if lost.shape[1] >= end else None for name, lost in items},
            }
            for start, end in buckets(self.far, self.old)
        ]  # fmt: skip

    def inside(self, stages: dict[str, Numbers]) -> dict[str, Any]:
        """Means inside the old length."""
        return {name: self._mean(losses, 0, self.old) for name, losses in stages.items()}

    def inside_and_past(self, losses: Numbers) -> dict[str, Any]:
        """Means of one model inside the old length, and past it."""
        return {"inside": self._mean(losses, 0, self.old), "past": self._mean(losses, self.old, self.far)}

    def _mean(self, losses: Numbers, start: int, end: int) -> dict[str, Any]:
        return mean(losses[:, start:end], self.groups).to_json()

    def share(self, stages: dict[str, Numbers]) -> dict[str, Any] | None:
        """The share recovered, with its interval; None where the swap lost nothing, or nothing was tuned."""
        if "recovered" not in stages:
            return None
        names = ("before", "swapped", "recovered")
        return share_recovered(*(sum_by_group(stages[name][:, : self.old].sum(1), self.groups) for name in names))

    def past(self, subject: Loaded) -> list[dict[str, Any]]:
        """Loss of the same last tokens with the old length and with ``far``: as it is, and stretched where it turns.

        ``difference`` is that of the longer text to the shorter one as it is: a stretch that spoils short texts gains
        nothing by being as bad with long ones.
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
                factor = self.far / spec.trained
                stretched = encodings_by_layer(stretch(spec, method, factor, self.far), len(subject.inspection.layers))
                with subject.turned(stretched):
                    rows.append(self._past(method, factor, own, read(self.old), read(self.far)))
        return rows

    def _past(self, served: str, factor: float, own: Numbers, short: Numbers, long: Numbers) -> dict[str, Any]:
        row = compare_losses(own, long, self.groups)
        gap, base = row["difference"], row["before"]["value"]
        close = gap["value"] is not None and gap["value"] <= TOLERATED_RISE * base
        works = close or (gap["low"] is not None and gap["low"] <= 0)
        losses = {"short": mean(short, self.groups).to_json(), "long": row["after"], "difference": gap}
        sizes = {"windows": row["windows"], "targets": row["targets"]}
        return {"served": served, "factor": factor, **losses, "works": works, **sizes}


def share_recovered(before: Numbers, swapped: Numbers, after: Numbers) -> dict[str, Any] | None:
    """The share of swapped - before that ``after`` has made up for, with its interval.

    From sums of the same tokens by group. None where the swap's loss can't be told from that before.
    """
    gap, made_up = swapped - before, swapped - after
    if len(before) < 2 or not np.isfinite(gap).all() or bootstrap_ratio(gap, np.ones_like(gap))[0] <= 0:
        return None
    low, high = bootstrap_ratio(made_up, gap)
    return {"value": float(made_up.sum() / gap.sum()), "low": low, "high": high}
