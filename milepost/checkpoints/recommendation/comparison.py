"""Comparison: one model, one text, one target; every candidate is measured here, on the same targets.

On one part of the text each method's setting is chosen, on the other part the chosen settings are measured: see
`recommend`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.model.text import Text
from milepost.checkpoints.recommendation.candidates import UNCHANGED, Candidate, Method
from milepost.checkpoints.recommendation.search import search
from milepost.measure.intervals import Mean, Numbers, difference
from milepost.measure.losses import TOLERATED_RISE, loss_row, same_targets

Row = dict[str, Any]
SCORED, FEWEST, MOST = 2048, 8, 64
"""Tokens to score if that takes no more windows than ``MOST``, nor fewer than ``FEWEST``.

Settings are chosen on half as many windows.
"""
SETTINGS = 6
"""About how many settings of a method are tried."""


class Comparison:
    """Losses of candidates: ``choose`` on one part of the text, ``report`` on the other, and the ``answer``."""

    def __init__(
        self, subject: Loaded, trained: int, target: int, text: Text, windows: int | None,
        tell: Callable[[str, float], None],
    ):  # fmt: skip
        self.subject, self.trained, self.target, self.tell = subject, trained, target, tell
        readable = subject.end is None or target <= subject.end
        self.longest = target if readable else min(trained, subject.end or trained)
        self.targets, self.begin = max(1, trained // 2), text.begin
        count = min(MOST, max(FEWEST, SCORED // self.targets)) if windows is None else windows
        first, second = text.halves()
        self.choose_on, self.choose_groups = first.windows(self.longest, max(2, count // 2))
        self.report_on, self.report_groups = second.windows(self.longest, count)
        self.counts = {"chosen on": len(self.choose_on), "reported on": len(self.report_on)}
        self.by_file = len(set(self.report_groups.tolist())) < len(self.report_groups)
        self.lengths = [n for n in (trained << k for k in range(32)) if n < self.longest] + [self.longest]
        self.done = self.work = 0

    def expect(self, methods: int) -> None:
        """Set about how many tokens will be read, for a progress bar."""
        chosen, reported = len(self.choose_on) * self.longest, len(self.report_on) * sum(self.lengths)
        self.work = chosen * methods * SETTINGS + reported * (1 + methods)

    def losses(self, candidate: Candidate, windows: Numbers, length: int) -> Numbers:
        """Losses (windows x targets) of a candidate at a length."""
        read = []
        with self.subject.turned(candidate.encodings) if candidate.encodings else nullcontext():
            for window in windows:
                self.tell(f"{candidate.name}, {length} tokens", min(1.0, self.done / self.work))
                read.append(same_targets(self.subject, window[None], length, self.targets, begin=self.begin))
                self.done += length
        return np.concatenate(read)

    def choose(self, methods: Sequence[Method]) -> tuple[list[Candidate], list[Row]]:
        """The chosen setting of each method, and the losses of all settings that were tried."""
        searched = [self._search(method) for method in methods]
        return [chosen for chosen, _ in searched], [row for _, rows in searched for row in rows]

    def _search(self, method: Method) -> tuple[Candidate, list[Row]]:
        """The smallest number that is not clearly worse than the best one, and a row for every number tried."""
        made: dict[float, Candidate] = {}
        losses: dict[float, Numbers] = {}

        def loss(number: float) -> float:
            made[number] = method.make(number)
            losses[number] = self.losses(made[number], self.choose_on, self.target)
            return float(losses[number].mean()) if np.isfinite(losses[number]).all() else np.inf

        def as_good(best: float, other: float) -> bool:
            return _not_above_0(_paired(losses[best], losses[other], self.choose_groups))

        best = search(loss, method.starts, method.low, method.high, tidy=method.tidy, as_good=as_good)
        chosen = next(number for number in sorted(losses) if number == best or as_good(best, number))
        rows = [
            {
                "method": method.name, "setting": made[number].setting, "factor": made[number].factor,
                "loss": float(mine.mean()) if np.isfinite(mine.mean()) else None, "chosen": number == chosen,
            }
            for number, mine in sorted(losses.items())
        ]  # fmt: skip
        return replace(made[chosen], limit=method.limit(best) if chosen == best else None), rows

    def report(self, candidates: Sequence[Candidate]) -> list[Row]:
        """Each method with its chosen setting, at every length, against the model as it is; the largest gain first."""
        groups = self.report_groups
        losses = {
            candidate.method: {n: self.losses(candidate, self.report_on, n) for n in self.lengths}
            for candidate in candidates
        }
        plain = losses[UNCHANGED.method]
        base = float(plain[self.trained].mean())
        rows: list[Row] = []
        for candidate in candidates:
            short, long = losses[candidate.method][self.trained], losses[candidate.method][self.longest]
            gap = _paired(plain[self.trained], long, groups)
            close = _not_above_0(gap) or (gap.low is not None and gap.value <= TOLERATED_RISE * base)
            rows.append({
                "method": candidate.method, "setting": candidate.setting, "factor": candidate.factor,
                "config": candidate.spec is not None or candidate is UNCHANGED, "whole": candidate.whole,
                "limit": candidate.limit,
                "reaches": self.longest == self.target and close and candidate.whole,
                "gain": _paired(long, plain[self.longest], groups).to_json(),
                "cost": _paired(plain[self.trained], short, groups).to_json(), "gap": gap.to_json(),
                "loss_by_length": [{"length": n, **loss_row(at, groups)} for n, at in losses[candidate.method].items()],
                "spec": candidate.spec, "windows": long,
            })  # fmt: skip
        rows.sort(key=lambda row: -np.inf if row["gain"]["value"] is None else row["gain"]["value"], reverse=True)
        first = next(row for row in rows if row["whole"])
        for row in rows:
            row["equal"] = self._equal(first, row)
        return rows

    def answer(self, rows: Sequence[Row]) -> tuple[Row, Row | None]:
        """The answer, and the best that a config can say (None: nothing helps)."""
        none = next(row for row in rows if row["method"] == UNCHANGED.method)
        helping = [row for row in rows if row is not none and row["whole"] and (row["gain"]["low"] or 0) > 0]
        return self._pick(helping) or none, self._pick([row for row in helping if row["config"]])

    def _pick(self, rows: Sequence[Row]) -> Row | None:
        """Of those that can't be told from the first: one that a config can say, of the smallest cost."""
        equal = [row for row in rows if self._equal(rows[0], row)]
        return min(equal, key=lambda row: (not row["config"], row["cost"]["value"]), default=None)

    def _equal(self, first: Row, row: Row) -> bool:
        return row is first or _not_above_0(_paired(first["windows"], row["windows"], self.report_groups))


def _paired(a: Numbers, b: Numbers, groups: Numbers) -> Mean:
    """b - a; not a number where one of the losses is not finite."""
    finite = np.isfinite(a).all() and np.isfinite(b).all()
    return difference(a, b, groups) if finite else Mean(np.nan, None, None, 0)


def _not_above_0(difference: Mean) -> bool:
    return difference.low is not None and difference.low <= 0
