"""moved: the lab's models with a learned table, moved to other positions as `milepost migrate` moves a checkpoint.

    replace     the table is taken out, the weights stay
    tune        at a third of the rate of training, on training text, with at most a tenth of the tokens of training, at the old length
    scale       rope reads twice the old length by interpolation or NTK; alibi as it is

Losses before, right after the swap and after tuning are of test text that no model was trained on. Each migration is a folder among the trained models:
a run that goes on reads what is finished, and takes up what was killed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from milepost.checkpoints.migration.migrate import migrate
from milepost.checkpoints.recommendation.recommend import HURTS
from milepost.claims.claim import Figure, Found, NotMeasured, collected, points
from milepost.claims.needs import Need
from milepost.claims.rule import Number, least
from milepost.claims.seeds import both
from milepost.claims.trained import Lab
from milepost.lab.plan import Plan
from milepost.measure.results import write

LEARNED = Need("text", ("learned",), weights=True)
SERVED = {"rope": ("linear", "ntk"), "alibi": ("as it is",)}
"""Where models are moved to, and how they are served at twice the old length."""
TENTH, RATE, BATCH = 10, 1e-3, 8
PIECE, MEASURED = 2048, 1 << 17
"""Tokens of text that stay together, and about as many as are measured on."""
STAGES = ("before", "swapped", "recovered")
Told = dict[str, Any]


def moved_found(lab: Lab) -> Found:
    """Every model moved to both: the share recovered, and the rise of the loss at twice the old length."""
    lacking = [name for name in ("transformers", "accelerate") if find_spec(name) is None]
    if lacking:
        raise NotMeasured(f"moving a model needs {' and '.join(lacking)}: pip install 'milepost[hf]'")
    folders, plan, home = lab.folders(LEARNED, "learned"), lab.plans["text"], lab.home("moved")
    book = _book(home / "text.npy", plan)
    todo = [(to, place) for to in SERVED for place in folders]
    done: dict[str, list[Told]] = {to: [] for to in SERVED}
    for number, (to, place) in enumerate(todo):
        lab.tell(f"moving {place.name} to {to}", number / len(todo))
        done[to].append(_one(place, to, book, home / f"{to}-{place.name}", plan))
    shares = collected({to: partial(share, told) for to, told in done.items()})
    rises = {f"{to}, {served}": past(told, served) for to, told in done.items() for served in SERVED[to]}
    far = {to: least(rises[f"{to}, {served}"] for served in SERVED[to]) for to in SERVED}
    stages = Figure(
        "points", "Loss inside the old length, nats a token", "", "nats a token", STAGES,
        {to: [fmean(one["inside"][stage]["value"] for one in told) for stage in STAGES] for to, told in done.items()},
    )  # fmt: skip
    shown = points("Loss at twice the old length, against the old length", "rise, as a share", rises, HURTS)
    tokens = {
        to: told[0]["tuned"]["steps"] * told[0]["tuned"]["batch"] * told[0]["tuned"]["length"]
        for to, told in done.items()
    }
    note = f"tuned with {max(tokens.values()):,} tokens at a rate of {RATE:g}; trained with {plan.steps * plan.rows * plan.shape.length:,}"
    lost = [f"replacing with {to} lost nothing that could be told from chance" for to in SERVED if to not in shares]
    return Found(
        {**shares, **{f"far, {to}": one for to, one in far.items()}}, (stages, shown), (note, *_losses(done), *lost)
    )


def share(told: Sequence[Told]) -> Number:
    """The share of the loss that came back, one migration for each seed. All are measured on the same windows, so that their intervals over text add up."""
    found = [one["share"] for one in told]
    if any(one is None for one in found):
        raise NotMeasured("replacing the positions lost nothing that could be told from chance")
    low, high = (fmean(one[side] for one in found) for side in ("low", "high"))
    return both([one["value"] for one in found], low, high, "test text")


def past(told: Sequence[Told], served: str) -> Number:
    """How much more the same tokens lose with twice the old length than with the old one, as a share; served in one way."""
    sides: dict[str, list[float]] = {side: [] for side in ("value", "low", "high")}
    for one in told:
        base = next(row for row in one["past"] if row["served"] == "as it is")["short"]["value"]
        row = next(row for row in one["past"] if row["served"] == served)
        if base is None or any(row["difference"][side] is None for side in sides):
            raise NotMeasured(f"a model moved to {one['to']} has no loss at twice the old length")
        for side, values in sides.items():
            values.append(row["difference"][side] / base)
    return both(sides["value"], fmean(sides["low"]), fmean(sides["high"]), "test text")


def steps(plan: Plan) -> int:
    """Steps of tuning: at most a tenth of the tokens of training."""
    tokens = plan.steps * plan.rows * plan.shape.length // TENTH
    found = tokens // (BATCH * plan.shape.length)
    if found < 1:
        raise NotMeasured(f"a tenth of the tokens of training is {tokens}, which is less than one step")
    return found


def _one(source: Path, to: str, book: Path, out: Path, plan: Plan) -> Told:
    """One migration: what was written about it."""
    file = out / "milepost" / "migration.json"
    if not file.exists():
        migrate(source, to=to, text=book, steps=steps(plan), rate=RATE, batch=BATCH, out=out, resume=True)
    told: Told = json.loads(file.read_text(encoding="utf-8"))
    if not told["ok"]:
        raise NotMeasured(f"{out.name} did not pass its own checks")
    return told


def _book(path: Path, plan: Plan) -> Path:
    """One row: training text, then as much test text. `migrate` tunes on the first half and measures on the second. Pieces from all over each."""
    if path.exists():
        return path
    text = plan.read()
    unseen = np.concatenate(text.test)
    wanted = max(MEASURED, plan.steps * plan.rows * plan.shape.length // TENTH)
    count = min(len(unseen), len(text.train), wanted) // PIECE
    if count < 1:
        raise NotMeasured(f"the test text has {len(unseen)} tokens, and at least {PIECE} are wanted")
    made = [
        row[at : at + PIECE]
        for row in (text.train, unseen)
        for at in np.linspace(0, len(row) - PIECE, count).astype(int)
    ]
    held = io.BytesIO()
    np.save(held, np.concatenate(made).astype(np.int64))
    return write(path, held.getvalue())


def _losses(done: dict[str, list[Told]]) -> list[str]:
    """A sentence for each: the loss before, after the swap, and after tuning."""
    found = []
    for to, told in done.items():
        before, swapped, after = (fmean(one["inside"][stage]["value"] for one in told) for stage in STAGES)
        found.append(
            f"to {to}: {before:.4f} nats a token before, {swapped:.4f} after the swap, {after:.4f} after tuning"
        )
    return found
