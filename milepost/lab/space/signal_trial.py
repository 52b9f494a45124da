"""Trial: one model of signals trained, and asked axis by axis whether it knows the order, as plain data."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from milepost.lab import saved
from milepost.lab.kinds import Tell, Trial
from milepost.lab.space.encoder import Encoder
from milepost.lab.space.signal_plan import SignalPlan
from milepost.lab.space.signals import Signals
from milepost.lab.sweep import together
from milepost.lab.train import Diverged, Recipe, labels, train
from milepost.lab.trial import cost_of, news_of
from milepost.measure.intervals import share
from milepost.positions import grid

Numbers = np.ndarray[Any, Any]
FAR = 1 << 20
"""Places by which a signal is moved."""
MOVED = 8
"""Signals that are moved."""
TESTING = 1 << 31
"""A part of the seed that no training has."""


def run(plan: SignalPlan, trial: Trial, folder: Path, tell: Tell = lambda news: None) -> dict[str, Any]:
    """Train and measure. What it returns is all that a report needs; the model stays in ``folder``, and ``*.pt`` to go on from."""
    folder.mkdir(parents=True, exist_ok=True)
    signals = plan.read()
    model = Encoder(plan.shape, trial.encoding).start(trial.seed)
    base = {
        "encoding": trial.encoding, "spec": repr(model.encodings[0]), "strategy": "none", "seed": trial.seed, "data": trial.data,
        "parameters": model.count(), "folder": trial.key,
    }  # fmt: skip
    recipe = Recipe(plan.steps, plan.rows, math.prod(signals.sides), seed=trial.seed, decay_encoding=False)
    try:
        made = signals.make
        learned = train(
            model, lambda step: made(plan.rows, (trial.seed, step)), recipe, state=folder / "state.pt", tell=news_of(recipe, tell), lost=labels
        )  # fmt: skip
    except Diverged as error:
        return {"trial": base, "runs": [{**base, "by_axis": [], "train_tokens_per_s": None, "failed": str(error)}]}
    if together.is_main():
        saved.save_encoder(model, folder, seed=trial.seed, steps=plan.steps, data=trial.data)
    tell({"measuring": "every axis"})
    tested, wanted = signals.make(plan.tested, (TESTING,))
    told = answers(model, tested)
    whole = share(int((told == wanted).sum()), len(wanted))
    right = {
        "accuracy": whole.value,
        "low": whole.low,
        "high": whole.high,
        "chance": 1 / signals.classes,
        "signals": len(wanted),
    }
    return {
        "trial": base,
        "runs": [{**base, **cost_of(learned), **right, "by_axis": by_axis(model, signals, tested, wanted)}],
    }


def by_axis(model: Encoder, signals: Signals, tested: Numbers, wanted: Numbers) -> list[dict[str, Any]]:
    """Of each axis: how often its bit is right, whether a mirror turns it, and what a move along it changes."""
    bits, mine = signals.bits(wanted), signals.bits(answers(model, tested))
    found = []
    for axis, name in enumerate(signals.axes):
        turned = signals.bits(answers(model, signals.mirrored(tested, axis))) != mine
        right, mirror = (
            share(int((mine == bits)[:, axis].sum()), len(bits)),
            share(int(turned[:, axis].sum()), len(bits)),
        )
        assert right.low is not None and mirror.low is not None
        found.append(
            {
                "axis": name, "right": right.value, "right_low": right.low, "right_high": right.high,
                "turned": mirror.value, "turned_low": mirror.low, "turned_high": mirror.high, "others": float(np.delete(turned, axis, 1).mean()),
                "learned": right.low > 0.5 and mirror.low > 0.5, **moved(model, tested[:MOVED], axis),
            }
        )  # fmt: skip
    return found


@torch.no_grad()
def answers(model: Encoder, signals: Numbers) -> Numbers:
    """The likeliest class of each signal."""
    some = np.array_split(signals, 1 + len(signals) // 256)
    return np.concatenate([model(torch.from_numpy(part).to(model.device)).argmax(-1).cpu().numpy() for part in some])


@torch.no_grad()
def moved(model: Encoder, signals: Numbers, axis: int) -> dict[str, Any]:
    """How much the logits change, in float64, when all tokens move far along an axis; and, as a control, when every other token does.

    Nothing is known of encodings that end, or are told one number a token.
    """
    if any(enc.points and (enc.axes == 1 or enc.sides is not None) for enc in model.encodings):
        return {"moved_by": FAR, "change": None, "control": None, "largest_logit": None}
    exact, x = copy.deepcopy(model).double().cpu(), torch.from_numpy(signals).double()
    here = grid(*model.sides)
    before, changes = exact(x, here), []
    for some in (slice(None), slice(None, None, 2)):
        there = here.clone()
        there[axis, :, some] += FAR
        changes.append(float((exact(x, there) - before).abs().max()))
    return {"moved_by": FAR, "change": changes[0], "control": changes[1], "largest_logit": float(before.abs().max())}
