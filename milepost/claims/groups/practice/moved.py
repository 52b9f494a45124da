"""moved: the lab's models with a learned table, moved to other positions as `milepost migrate` moves a checkpoint.

    replace     the table is removed, the weights stay
    tune        at a third of the rate of training, on training text, with at most a tenth of the tokens of training,
                at the old length
    scale       rope reads twice the old length by interpolation or NTK; alibi as it is

Losses before, right after the swap and after tuning are measured on test text that no model was trained on. Each
migration is a folder among the trained models: a resumed run reads the finished ones, and continues a killed one.
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
from milepost.claims.experiment import (
    Lab,
    Measurement,
    Need,
    NotMeasured,
    Number,
    Plot,
    least,
    mean_of_seeds,
    measure_each,
    points,
)
from milepost.lab.plan import TextPlan
from milepost.measure.losses import TOLERATED_RISE
from milepost.measure.results import write

LEARNED = Need("text", ("learned",), weights=True)
SERVED = {"rope": ("linear", "ntk"), "alibi": ("as it is",)}
"""The new positions, and how models with them read twice the old length."""
TENTH, RATE, BATCH = 10, 1e-3, 8
PIECE, MEASURED = 2048, 1 << 17
"""Tokens of text that stay together, and about as many as are measured on."""
STAGES = ("before", "swapped", "recovered")
Migration = dict[str, Any]
"""What `migrate` wrote about one model."""


def measure_moved(lab: Lab) -> Measurement:
    """Every model moved to both: the share recovered, and the rise of the loss at twice the old length."""
    missing = [name for name in ("transformers", "accelerate") if find_spec(name) is None]
    if missing:
        raise NotMeasured(f"moving a model needs {' and '.join(missing)}: pip install 'milepost[hf]'")
    folders, plan, home = lab.folders(LEARNED, "learned"), lab.plans["text"], lab.home("moved")
    book = _write_text(home / "text.npy", plan)
    todo = [(to, place) for to in SERVED for place in folders]
    migrations: dict[str, list[Migration]] = {to: [] for to in SERVED}
    for number, (to, place) in enumerate(todo):
        lab.tell(f"moving {place.name} to {to}", number / len(todo))
        migrations[to].append(_migrate(place, to, book, home / f"{to}-{place.name}", plan))
    shares = measure_each({to: partial(recovered_share, some) for to, some in migrations.items()})
    rises = {f"{to}, {way}": rise_past(some, way) for to, some in migrations.items() for way in SERVED[to]}
    far = {f"far, {to}": least(rises[f"{to}, {way}"] for way in SERVED[to]) for to in SERVED}
    losses = {
        to: [fmean(m["inside"][stage]["value"] for m in some) for stage in STAGES] for to, some in migrations.items()
    }
    figures = (
        Plot("points", "Loss inside the old length, nats a token", "", "nats a token", STAGES, losses),
        points("Loss at twice the old length, against the old length", "rise, as a share", rises, TOLERATED_RISE),
    )
    tuned = [some[0]["tuned"] for some in migrations.values()]
    tokens = max(how["steps"] * how["batch"] * how["length"] for how in tuned)
    notes = [f"tuned with {tokens:,} tokens at a rate of {RATE:g}; trained with {_trained_tokens(plan):,}"]
    notes += [
        f"to {to}: {before:.4f} nats a token before, {swapped:.4f} after the swap, {after:.4f} after tuning"
        for to, (before, swapped, after) in losses.items()
    ]
    notes += [
        f"replacing the table with {to} raised the loss by no more than chance" for to in SERVED if to not in shares
    ]
    return Measurement({**shares, **far}, figures, tuple(notes))


def _trained_tokens(plan: TextPlan) -> int:
    return plan.steps * plan.rows * plan.shape.length


def recovered_share(migrations: Sequence[Migration]) -> Number:
    """The share of the rise of the loss that tuning took back, one migration for each seed.

    All are measured on the same windows, so the ends of their intervals over text are averaged.
    """
    shares = [migration["share"] for migration in migrations]
    if None in shares:
        raise NotMeasured("replacing the positions raised the loss by no more than chance")
    low, high = (fmean(share[side] for share in shares) for side in ("low", "high"))
    return mean_of_seeds([share["value"] for share in shares], low, high, "test text")


def rise_past(migrations: Sequence[Migration], served: str) -> Number:
    """The rise of the loss of the same tokens with twice the old length, as a share; served in one way."""
    sides: dict[str, list[float]] = {side: [] for side in ("value", "low", "high")}
    for migration in migrations:
        rows = {row["served"]: row for row in migration["past"]}
        base, difference = rows["as it is"]["short"]["value"], rows[served]["difference"]
        if base is None or any(difference[side] is None for side in sides):
            raise NotMeasured(f"a model moved to {migration['to']} has no loss at twice the old length")
        for side, values in sides.items():
            values.append(difference[side] / base)
    return mean_of_seeds(sides["value"], fmean(sides["low"]), fmean(sides["high"]), "test text")


def steps(plan: TextPlan) -> int:
    """Steps of tuning: at most a tenth of the tokens of training."""
    tokens = _trained_tokens(plan) // TENTH
    count = tokens // (BATCH * plan.shape.length)
    if count < 1:
        raise NotMeasured(f"a tenth of the tokens of training is {tokens}, which is less than one step")
    return count


def _migrate(source: Path, to: str, book: Path, out: Path, plan: TextPlan) -> Migration:
    """One migration, which is run if it is not finished."""
    file = out / "milepost" / "migration.json"
    if not file.exists():
        migrate(source, to=to, text=book, steps=steps(plan), rate=RATE, batch=BATCH, out=out, resume=True)
    migration: Migration = json.loads(file.read_text(encoding="utf-8"))
    if not migration["ok"]:
        raise NotMeasured(f"{out.name} did not pass its own checks")
    return migration


def _write_text(path: Path, plan: TextPlan) -> Path:
    """One row: training text, then as much test text, in pieces from all over each.

    `migrate` tunes on the first half and measures on the second.
    """
    if path.exists():
        return path
    text = plan.read()
    unseen = np.concatenate(text.test)
    wanted = max(MEASURED, _trained_tokens(plan) // TENTH)
    count = min(len(unseen), len(text.train), wanted) // PIECE
    if count < 1:
        raise NotMeasured(f"the test text has {len(unseen)} tokens, and at least {PIECE} are needed")
    pieces = [
        row[at : at + PIECE]
        for row in (text.train, unseen)
        for at in np.linspace(0, len(row) - PIECE, count).astype(int)
    ]
    held = io.BytesIO()
    np.save(held, np.concatenate(pieces).astype(np.int64))
    return write(path, held.getvalue())
