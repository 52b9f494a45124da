"""recommend: what to set for a longer text. Everything is tried on the reader's own text; nothing is decided by a rule about methods.

    done = recommend("path/to/model", target_length=8192, text="book.txt")
    done.top, done.best, done.verdict

Same targets: the last half of the trained length is scored, with `trained` and with `target` tokens read. On one part of the text each method's setting
is chosen: the smallest factor that loses no more than its best one (a paired interval that touches 0). On the other part the chosen settings are measured:

    gain       what the model as it is loses at the target, less what the method loses there
    cost       what the method loses at the trained length, less what the model as it is loses: the price that short texts pay
    gap        what the method loses at the target, less what the model as it is loses at the trained length: does the longer context hurt?

A method helps where its gain's interval is above 0, and reaches the target where its gap is not clearly above 2% of the loss. Of the methods that can't be
told from the one with the largest gain, the answer prefers those that a config can say, then the smallest cost. A method that hides the far part of the
text does not read it, however little it loses: it is measured and shown, and is never the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from milepost.checkpoints.model.load import Loaded, load
from milepost.checkpoints.model.text import Text, read_text
from milepost.checkpoints.recommendation.candidates import NONE, Candidate, by_layer, candidates
from milepost.checkpoints.recommendation.words import advice, exports, verdict
from milepost.measure.intervals import Mean, difference, mean
from milepost.measure.losses import same_targets
from milepost.measure.results import provenance
from milepost.rope.config.keys import ConfigError

Numbers = np.ndarray[Any, Any]
Row = dict[str, Any]
HURTS = 0.02
"""The part of the loss by which a longer context may be worse and still count as read."""
SCORED, FEWEST, MOST = 2048, 8, 64
"""Tokens to score if that takes no more windows than ``MOST``, nor fewer than ``FEWEST``; settings are chosen on half as many windows."""


@dataclass(frozen=True)
class Recommendation:
    """``rows`` are the methods, the largest gain first. ``top`` is the answer ("none": leave it as it is).

    ``best`` is the best that a config of transformers can say, with its ``factor``, or None where none helps; ``exports`` are its words for each engine.
    """

    model: str
    family: str
    trained_length: int
    target_length: int
    rows: tuple[Row, ...]
    tried: tuple[Row, ...]
    top: str
    best: str | None
    factor: float | None
    verdict: tuple[str, ...]
    exports: dict[str, dict[str, Any]]
    notes: tuple[str, ...]
    provenance: dict[str, Any]

    @property
    def works(self) -> bool:
        """Whether the target is reached at all."""
        return any(row["reaches"] for row in self.rows if row["method"] == self.top)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        plain = (
            "model",
            "family",
            "trained_length",
            "target_length",
            "top",
            "best",
            "factor",
            "works",
            "exports",
            "provenance",
        )
        lists = ("rows", "tried", "verdict", "notes")
        return {name: getattr(self, name) for name in plain} | {name: list(getattr(self, name)) for name in lists}

    def _repr_html_(self) -> str:
        from milepost.report.recommendation import fragment

        made: str = fragment(self.to_json())
        return made


def recommend(
    model: str | Path | Loaded, *, target_length: int, text: str | Path, windows: int | None = None, trained_length: int | None = None, device: str = "cpu",
    dtype: str = "float32", tokenizer: str | Path | None = None, tell: Callable[[str, float], None] = lambda what, share: None,
) -> Recommendation:  # fmt: skip
    """Measure every scaling and every training-free map for ``target_length`` tokens.

    ``windows`` are those to report on, by default enough to score 2048 tokens, from 8 to 64. ``tell`` hears what is measured, and what share is done.
    """
    subject = model if isinstance(model, Loaded) else load(model, device=device, dtype=dtype, tokenizer=tokenizer)
    trained = trained_length or subject.trained
    if trained is None:
        raise ConfigError(f"{subject.name} does not say for what length it was trained: give the trained length")
    if target_length <= trained:
        raise ConfigError(
            f"{subject.name} was trained for {trained} tokens: {target_length} need no scaling, and there is nothing to recommend"
        )
    read = read_text(text, subject)
    bench = Bench(subject, trained, target_length, read, windows, tell)
    layers = len(subject.inspection.layers)
    found: list[Candidate] = []
    if subject.spec is not None:
        subject.prove(by_layer(subject.spec, layers))
        found = list(candidates(subject.spec, trained, target_length, layers))
    notes = advice(subject, trained, target_length)
    bench.expect(len(found), len({one.method for one in found}))
    chosen, tried = bench.choose(found)
    rows = bench.report([NONE, *chosen])
    top, best = bench.answer(rows)
    written = exports(subject, None if best is None else best["spec"])
    about = provenance(
        what="recommend", trained=trained, target=target_length, targets=bench.targets, text=read.describe(), windows=bench.counts, seed=0,
        device=str(subject.device), dtype=dtype, settings="chosen on one part of the text, reported on the other",
        intervals=f"95%, bootstrap over {'files' if bench.by_file else 'windows'}, paired on the same targets",
    )  # fmt: skip
    said = verdict(rows, top, best, trained, target_length, subject)
    plain = tuple({name: value for name, value in row.items() if name not in ("spec", "windows")} for row in rows)
    return Recommendation(
        subject.name, subject.family, trained, target_length, plain, tuple(tried), top["method"], None if best is None else best["method"],
        None if best is None else best["factor"] or target_length / trained, tuple(said), written, tuple(notes), about,
    )  # fmt: skip


class Bench:
    """One model, one text, one target; every candidate is measured here."""

    def __init__(
        self,
        subject: Loaded,
        trained: int,
        target: int,
        text: Text,
        windows: int | None,
        tell: Callable[[str, float], None],
    ):
        self.subject, self.trained, self.target, self.tell = subject, trained, target, tell
        self.end = subject.end
        longest = target if self.end is None or target <= self.end else min(trained, self.end)
        self.longest, self.targets, self.begin = longest, max(1, trained // 2), text.begin
        count = min(MOST, max(FEWEST, SCORED // self.targets)) if windows is None else windows
        first, second = text.halves()
        self.choose_on, self.choose_groups = first.windows(longest, max(2, count // 2))
        self.report_on, self.report_groups = second.windows(longest, count)
        self.counts = {"chosen on": len(self.choose_on), "reported on": len(self.report_on)}
        self.by_file = len(set(self.report_groups.tolist())) < len(self.report_groups)
        self.done = self.of = 0

    @property
    def lengths(self) -> list[int]:
        """The trained length, twice it, and so on, and the target."""
        doubled = [self.trained << n for n in range(32) if self.trained << n < self.longest]
        return [*doubled, self.longest]

    def expect(self, settings: int, methods: int) -> None:
        """How many tokens will be read: for a bar."""
        self.of = len(self.choose_on) * self.longest * settings + len(self.report_on) * sum(self.lengths) * (
            1 + methods
        )

    @contextmanager
    def _as(self, one: Candidate) -> Iterator[None]:
        with self.subject.turned(one.encodings) if one.encodings else nullcontext():
            yield

    def _lost(self, one: Candidate, windows: Numbers, length: int) -> Numbers:
        """Losses (windows x targets) at a length."""
        done = []
        with self._as(one):
            for window in windows:
                self.tell(f"{one.word}, {length} tokens", self.done / self.of)
                done.append(same_targets(self.subject, window[None], length, self.targets, begin=self.begin))
                self.done += length
        return np.concatenate(done)

    def choose(self, found: list[Candidate]) -> tuple[list[Candidate], list[Row]]:
        """Of each method the smallest factor that loses no more than its best one; and what all of them lost."""
        lost = {one: self._lost(one, self.choose_on, self.target) for one in found}
        chosen: list[Candidate] = []
        tried: list[Row] = []
        for method in dict.fromkeys(one.method for one in found):
            mine = [one for one in found if one.method == method]
            best = min(mine, key=lambda one: _rank(lost[one]))
            takes = next(
                (one for one in mine if one is best or _no_worse(lost[best], lost[one], self.choose_groups)), best
            )
            chosen.append(takes)
            tried += [
                {
                    "method": method,
                    "setting": one.setting,
                    "factor": one.factor,
                    "loss": _number(lost[one]),
                    "chosen": one is takes,
                }
                for one in mine
            ]
        return chosen, tried

    def report(self, found: list[Candidate]) -> list[Row]:
        """Each method with its chosen setting, at every length, against the model as it is; the largest gain first."""
        lost = {one.method: {n: self._lost(one, self.report_on, n) for n in self.lengths} for one in found}
        plain = lost["none"]
        rows: list[Row] = []
        for one in found:
            mine, groups = lost[one.method], self.report_groups
            gain, cost = (
                _paired(mine[self.longest], plain[self.longest], groups),
                _paired(plain[self.trained], mine[self.trained], groups),
            )
            gap = _paired(plain[self.trained], mine[self.longest], groups)
            base = float(plain[self.trained].mean())
            reaches = (
                self.longest == self.target and gap.low is not None and (gap.low <= 0 or gap.value <= HURTS * base)
            )
            by_length = [{"length": n, **_said(mine[n], groups)} for n in self.lengths]
            row: Row = {
                "method": one.method,
                "setting": one.setting,
                "factor": one.factor,
                "config": one.spec is not None or one is NONE,
            }
            row |= {"whole": one.whole, "reaches": reaches and one.whole}
            numbers = {"gain": _plain(gain), "cost": _plain(cost), "gap": _plain(gap), "loss_by_length": by_length}
            rows.append({**row, **numbers, "spec": one.spec, "windows": mine[self.longest]})
        rows.sort(key=lambda row: -np.inf if row["gain"]["value"] is None else row["gain"]["value"], reverse=True)
        first = next(row for row in rows if row["whole"])
        for row in rows:
            row["equal"] = self._equal(first, row)
        return rows

    def answer(self, rows: list[Row]) -> tuple[Row, Row | None]:
        """The answer, and the best that a config can say (None: nothing helps)."""
        none = next(row for row in rows if row["method"] == "none")
        helping = [
            row
            for row in rows
            if row is not none and row["whole"] and row["gain"]["low"] is not None and row["gain"]["low"] > 0
        ]
        configs = [row for row in helping if row["config"]]
        return self._pick(helping) or none, self._pick(configs)

    def _pick(self, rows: list[Row]) -> Row | None:
        """Of those that can't be told from the first: one that a config can say, of the smallest cost."""
        equal = [row for row in rows if self._equal(rows[0], row)]
        return min(equal, key=lambda row: (not row["config"], row["cost"]["value"]), default=None)

    def _equal(self, first: Row, row: Row) -> bool:
        return row is first or _no_worse(first["windows"], row["windows"], self.report_groups)


# -- numbers -------------------------------------------------------------------------------------------------------------


def _rank(lost: Numbers) -> float:
    return float(lost.mean()) if np.isfinite(lost).all() else np.inf


def _number(lost: Numbers) -> float | None:
    value = float(lost.mean())
    return value if np.isfinite(value) else None


def _no_worse(best: Numbers, other: Numbers, groups: Numbers) -> bool:
    ahead = _paired(best, other, groups)
    return ahead.low is not None and ahead.low <= 0


def _paired(a: Numbers, b: Numbers, groups: Numbers) -> Mean:
    """b - a; all None where one is no number."""
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return Mean(float("nan"), None, None, 0)
    return difference(a, b, groups)


def _plain(one: Mean) -> Row:
    return {"value": one.value if np.isfinite(one.value) else None, "low": one.low, "high": one.high}


def _said(lost: Numbers, groups: Numbers) -> Row:
    if not np.isfinite(lost).all():
        return {
            "loss": None,
            "perplexity": None,
            "low": None,
            "high": None,
            "tokens": 0,
            "note": "the loss is no number",
        }
    one = mean(lost, groups)
    return {
        "loss": one.value,
        "perplexity": float(np.exp(min(one.value, 700.0))),
        "low": one.low,
        "high": one.high,
        "tokens": one.tokens,
    }
